"""The settings that a thing has, and the thing that settings make: all that configuration asks of classes."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass, replace
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple, get_type_hints

from omkl.errors import InputError, unknown

REQUIRED = inspect.Parameter.empty
"""The default of a setting that has none."""

SECTION = re.compile(r"^ *(?:Attributes|Parameters)\n *-+\n(.*?)(?=^ *[A-Z]\w+\n *-+$|\Z)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^(\w+(?:, \w+)*)\n((?:(?: +.*)?\n?)+)", re.MULTILINE)


class Setting(NamedTuple):
    """One setting of a class or function."""

    name: str
    hint: Any
    default: Any
    doc: str
    """What its docstring says of it, in one line."""


def settings(thing: Any) -> Mapping[str, Setting]:
    """Return the settings of a class or function, by name; of an object, with its own values as defaults.

    A class whose parts have settings of their own says them itself, by ``known``.
    """
    if callable(thing):
        return thing.known() if hasattr(thing, "known") else _declared(thing)
    own = values(thing)
    return {name: one._replace(default=own.get(name, one.default)) for name, one in settings(type(thing)).items()}


def values(thing: Any) -> dict[str, Any]:
    """Return the values of an object's settings, by name."""
    if hasattr(thing, "known"):
        return dict(thing.settings())
    kind: Any = type(thing)
    return {name: getattr(thing, name) for name in _declared(kind)}


def build(thing: Any, values: Mapping[str, Any]) -> Any:
    """Return what a class or function makes of these values; an object is copied, with these values changed."""
    known = settings(thing)
    for name in values:
        if name not in known:
            raise InputError(unknown("setting", name, known), name)
    for name, one in known.items():
        if one.default is REQUIRED and name not in values:
            raise InputError(f"{name} is missing; it has no default; give it", name)
    if callable(thing):
        return thing(**values)
    return thing.replace(**values) if hasattr(thing, "replace") else replace(thing, **values)


@cache
def _declared(make: Any) -> Mapping[str, Setting]:
    hints, docs = get_type_hints(make), documented(make)
    parameters = inspect.signature(make).parameters.values()
    return {
        one.name: Setting(one.name, hints.get(one.name, Any), one.default, docs.get(one.name, "")) for one in parameters
    }


def documented(make: Any) -> dict[str, str]:
    """Return what docstrings say of attributes and parameters, those of base classes too."""
    found: dict[str, str] = {}
    for one in reversed(getattr(make, "__mro__", (make,))):
        section = SECTION.search(f"{inspect.cleandoc(one.__doc__ or '')}\n")
        for names, text in ENTRY.findall(section[1]) if section else ():
            found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found


def changes(thing: Any, base: Any, path: str = "") -> Iterator[str]:
    """Yield the settings in which a thing differs from another of its kind, or from its class's defaults."""
    before = {name: one.default for name, one in settings(base).items()}
    for name, value in values(thing).items():
        old = before.get(name)
        if value == old:
            continue
        if is_dataclass(value) and type(value) is type(old):
            yield from changes(value, old, f"{path}{name}.")
        else:
            yield f"{path}{name}={brief(value)}"


def brief(value: Any) -> str:
    """Return a value in a few characters."""
    if isinstance(value, tuple) and value and all(hasattr(one, "sigma") for one in value):
        families = groupby(value, lambda kernel: kernel.name)
        return "+".join(f"{name}({', '.join(f'{one.sigma:g}' for one in bank)})" for name, bank in families)
    if isinstance(value, tuple) and all(isinstance(one, int | float) for one in value):
        return f"({', '.join(f'{one:g}' for one in value)})"
    if is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(changes(value, type(value)))
        return getattr(value, "name", type(value).__name__) + (f"({inner})" if inner else "")
    if isinstance(value, str | int | float | None):
        return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return f"{type(value).__name__}{getattr(value, 'shape', '')}"
