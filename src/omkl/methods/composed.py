"""Methods made of parts, whose settings are known by their own names too.

``Gossip(gamma=0.2)`` is ``Gossip(mixing=Mixing(gamma=0.2))``. Files, flags and records hold settings by their own names
alone, in one table; which part one belongs to follows from the parts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_type_hints

from omkl.display import as_html
from omkl.errors import InputError, unknown
from omkl.settings import Setting, changes, documented, settings


class Part:
    """A part of a method: a frozen dataclass of settings, with the functions that need them."""

    aliases: ClassVar[Mapping[str, str]] = {}
    """Names of settings in a method, where their own names would say too little."""

    @classmethod
    def names(cls) -> dict[str, str]:
        """Return what each setting is called in a method."""
        return {one.name: cls.aliases.get(one.name, one.name) for one in fields(cls)}  # type: ignore[arg-type]

    def settings(self) -> dict[str, Any]:
        """Return the settings by the names they have in a method."""
        return {name: getattr(self, own) for own, name in self.names().items()}

    def changed(self, given: dict[str, Any]) -> Self:
        """Return the part with those of the settings that are its own, which are taken out of what is given."""
        changes = {own: given.pop(name) for own, name in self.names().items() if name in given}
        return replace(self, **changes) if changes else self  # type: ignore[type-var]


@dataclass(frozen=True, init=False, repr=False)
class Composed:
    """A thing made of parts. A subclass is a frozen dataclass of parts, each with a default."""

    def __init__(self, **given: Any) -> None:
        made = {one.name: given.pop(one.name, one.default) for one in fields(self)}
        for name, part in self._routed(made, given).items():
            usual = getattr(type(self), name)
            if isinstance(usual, Part) and not isinstance(part, Part):
                raise InputError(f"{name} is {part!r}; it must be a part of a method; pass {type(usual).__name__}(...)")
            object.__setattr__(self, name, part.changed(given) if isinstance(part, Part) else part)
        if given:
            raise InputError(unknown(f"setting of {type(self).__name__}", next(iter(given)), self.known()))
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check what concerns several parts."""

    def _routed(self, made: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """Return the parts, with such settings as concern several of them taken out of what is given."""
        return made

    if not TYPE_CHECKING:  # the library itself goes by the parts

        def __getattr__(self, name: str) -> Any:
            """Return a setting of a part: ``method.gamma`` is ``method.mixing.gamma``."""
            for part in vars(self).values():
                if isinstance(part, Part) and name in (settings := part.settings()):
                    return settings[name]
            raise AttributeError(f"{type(self).__name__} has no {name}")

    def replace(self, **changes: Any) -> Self:
        """Return the same with other parts or settings: ``omkl.recommended().replace(gamma=0.2)``."""
        return type(self)(**{one.name: getattr(self, one.name) for one in fields(self)} | changes)

    @classmethod
    @cache
    def known(cls) -> Mapping[str, Setting]:
        """Return all settings by their names in files and flags, and the parts of which there are several kinds."""
        found: dict[str, Setting] = {}
        hints, docs = get_type_hints(cls), documented(cls)
        for one in fields(cls):
            own = Setting(one.name, hints[one.name], one.default, docs.get(one.name, ""))
            if isinstance(part := one.default, Part):
                names, given = part.names(), part.settings()
                for key, inner in settings(type(part)).items():
                    found[names[key]] = inner._replace(name=names[key], default=given[names[key]])
            if not isinstance(part, Part) or hasattr(part, "name"):
                found[one.name] = own
        return found

    def settings(self) -> dict[str, Any]:
        """Return the values of all settings, by these names."""
        return dict(self._settings())

    def _settings(self) -> Iterator[tuple[str, Any]]:
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(one.default, Part):
                own = one.default.settings()
                yield from ((name, given) for name, given in value.settings().items() if name in own)
            if type(value) is not type(one.default) or not isinstance(value, Part):
                yield one.name, value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(changes(self, type(self)))})"

    def _repr_html_(self) -> str:
        rows = (one.partition("=") for one in changes(self, type(self)))
        return as_html(type(self).__name__, {name: value for name, _, value in rows})
