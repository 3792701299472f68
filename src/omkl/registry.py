"""Things by name: omkl's own, what a program adds to them, and what installed packages add through entry points."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import get_annotations
from typing import Any, Generic, TypeVar

from omkl.errors import InputError, pick
from omkl.settings import brief

T = TypeVar("T")


class Registry(MutableMapping[str, T], Generic[T]):
    """What is known by name. The names of other packages are listed without importing them.

    A program can add to it as to a dictionary, for as long as it runs.

    Attributes
    ----------
    group
        The group of entry points that adds to it, such as ``"omkl.methods"``: in a package's ``pyproject.toml``,
        ``[project.entry-points."omkl.methods"]`` and ``mine = "my_package:MyMethod"``.
    """

    def __init__(self, group: str, own: Mapping[str, T]) -> None:
        self.group, self._own = group, dict(own)

    def __getitem__(self, name: str) -> T:
        return self._own[name] if name in self._own else self._load(added(self.group)[name])

    def __setitem__(self, name: str, thing: T) -> None:
        self._own[name] = thing

    def __delitem__(self, name: str) -> None:
        del self._own[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in added(self.group) if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in added(self.group)

    def clear(self) -> None:
        """Forget all but the names of other packages."""
        self._own.clear()

    def copy(self) -> dict[str, T]:
        """Return ``own``: a copy imports no other package."""
        return self.own

    def _load(self, point: EntryPoint) -> T:
        package = point.dist.name if point.dist is not None else "another package"
        try:
            loaded: T = point.load()
        except Exception as error:  # of any kind: it is not ours
            raise InputError(
                f"{point.name!r} is {point.value} of the package {package}, which cannot be imported ({error}); update "
                f"that package, or remove it: pip uninstall {package}"
            ) from error
        if not callable(loaded):
            raise InputError(
                f"{point.name!r} is {point.value} of the package {package}, and {loaded!r}; an entry point of "
                f"{self.group} must be a class or a function; mend the pyproject.toml of {package}"
            )
        return loaded

    @property
    def own(self) -> dict[str, T]:
        """Those of omkl itself and of this program, which another package cannot replace."""
        return dict(self._own)


@cache
def added(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group, by name and in that order; of several of one name the last package's."""
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}


def named(kind: str, thing: Any, known: Mapping[str, Callable[[], Any]], protocol: type, example: str) -> Any:
    """Return the thing of that name with its defaults, or the thing itself; refuse what is none of its kind.

    ``protocol`` lists what a thing of this kind has; ``example`` is one.
    """
    if isinstance(thing, str):
        thing = pick(kind, thing, known)()
    if isinstance(thing, type):
        raise InputError(
            f"{kind} is the class {thing.__name__}; give a name or an object; pass {thing.__name__}(), or {example}"
        )
    needed = members(protocol)
    if missing := [name for name in needed if not hasattr(thing, name)]:
        rule = "" if len(missing) == len(needed) else f"; a {kind} has {', '.join(needed)}"
        raise InputError(
            f"{kind} is {brief(thing)}, which lacks {', '.join(missing)}{rule}; give a name or an object such as "
            f"{example}"
        )
    return thing


@cache
def members(protocol: type) -> tuple[str, ...]:
    """Return what an object needs to follow a protocol, by name."""
    bases = [base for base in reversed(protocol.__mro__) if getattr(base, "_is_protocol", False)]
    names = [name for base in bases for name in (*get_annotations(base), *vars(base))]
    return tuple(dict.fromkeys(name for name in names if not name.startswith("_")))
