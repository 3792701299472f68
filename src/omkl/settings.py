"""The settings that a thing has, and the thing that settings make: all that configuration asks of classes."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
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
    """Return the settings of a class or function, by name; of an object, with its own values as defaults."""
    if callable(thing):
        return _declared(thing)
    kind: Any = type(thing)
    return {name: one._replace(default=getattr(thing, name)) for name, one in _declared(kind).items()}


def build(thing: Any, values: Mapping[str, Any]) -> Any:
    """Return what a class or function makes of these values; an object is copied, with these values changed."""
    known = settings(thing)
    for name in values:
        if name not in known:
            raise InputError(unknown("setting", name, known), name)
    for name, one in known.items():
        if one.default is REQUIRED and name not in values:
            raise InputError(f"{name} is missing; it has no default; give it", name)
    return thing(**values) if callable(thing) else replace(thing, **values)


@cache
def _declared(make: Any) -> Mapping[str, Setting]:
    hints, docs = get_type_hints(make), _documented(make)
    parameters = inspect.signature(make).parameters.values()
    return {
        one.name: Setting(one.name, hints.get(one.name, Any), one.default, docs.get(one.name, "")) for one in parameters
    }


def _documented(make: Any) -> dict[str, str]:
    """Return what docstrings say of attributes and parameters, those of base classes too."""
    found: dict[str, str] = {}
    for one in reversed(getattr(make, "__mro__", (make,))):
        section = SECTION.search(f"{inspect.cleandoc(one.__doc__ or '')}\n")
        for names, text in ENTRY.findall(section[1]) if section else ():
            found |= dict.fromkeys(names.split(", "), " ".join(text.split()))
    return found
