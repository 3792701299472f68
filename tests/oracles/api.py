"""Public names and signatures: what the pages in ``docs/api`` list, and what modules have in ``__all__``.

``api.txt`` has a line for each name. Parameters are there with their defaults, and without their types.
"""

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from omkl.methods.ensemble import Ensemble

FILE = Path(__file__).with_name("api.txt")
PAGES = Path(__file__).parents[2] / "docs" / "api"
MODULES = (
    "omkl", "omkl.dashboard", "omkl.data", "omkl.learners", "omkl.methods", "omkl.simulator", "omkl.sklearn",
    "omkl.testing", "omkl.theory", "omkl.topology", "omkl.wire", "omkl_lab.sweeps", "omkl_lab.tuning",
)  # fmt: skip
DIRECTIVE = re.compile(r"^\.\. (?:auto\w+|py:data):: (omkl[\w.]*)$", re.MULTILINE)
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
HINT = "if this is meant, freeze it anew (python -m tests.oracles api), and tell users in CHANGELOG.md"


def names() -> list[str]:
    """Return every public name once, modules left out."""
    shown = [name for page in sorted(PAGES.glob("*.md")) for name in DIRECTIVE.findall(page.read_text())]
    listed = [f"{module}.{name}" for module in MODULES for name in import_module(module).__all__]
    return sorted({name for name in (*shown, *listed) if not inspect.ismodule(found(name))}, key=_order)


def _order(name: str) -> tuple[str, str]:
    module, _, last = name.rpartition(".")
    return module, last


@cache
def found(name: str) -> Any:
    """Return what a name stands for."""
    thing: Any = import_module(name.partition(".")[0])
    path = thing.__name__
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        try:
            thing = getattr(thing, part)
        except AttributeError:
            thing = import_module(path)
    return thing


def told() -> list[str]:
    """Return the lines: a name with its parameters and public bases, and the members that the bases do not have."""
    lines, home = [], dict[int, str]()
    for name in names():
        home.setdefault(id(found(name)), name)
    for name in names():
        thing = found(name)
        if callable(thing) and home[id(thing)] != name:
            lines.append(f"{name} is {home[id(thing)]}")
            continue
        bases = [base for base in getattr(thing, "__mro__", ())[1:] if id(base) in home]
        nearest = [home[id(base)] for base in bases if not any(base in other.__mro__[1:] for other in bases)]
        lines.append(f"{name}{_parameters(thing)}{': ' * bool(nearest)}{', '.join(nearest)}")
        if inspect.isclass(thing):
            lines.extend(f"    {line}" for line in _members(thing, bases))
    return lines


def _parameters(thing: Any) -> str:
    if not callable(thing) or not _has_signature(thing):
        return ""
    if inspect.isclass(thing) and issubclass(thing, Ensemble):  # it takes all settings of its parts
        return f"({', '.join(f'{name}={_shown(setting.default)}' for name, setting in thing.known().items())})"
    signature = inspect.signature(thing)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_shown(parameter.default))
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def _has_signature(thing: Any) -> bool:
    """Return whether a thing takes parameters of omkl's: exceptions, protocols and enumerations have Python's own."""
    if not inspect.isclass(thing):
        return inspect.isroutine(thing)
    own = (part for part in thing.__mro__ if part.__module__.startswith("omkl"))
    made = any("__init__" in vars(part) or "__new__" in vars(part) for part in own)
    return made and not issubclass(thing, Enum) and not getattr(thing, "_is_protocol", False)


class _Text(str):
    """A default as it is written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _shown(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return default
    named = inspect.isroutine(default) or inspect.isclass(default)
    return _Text(default.__name__ if named else ADDRESS.sub("", repr(default)))


def _members(kind: type, bases: list[type]) -> Iterator[str]:
    """Yield the public members of a class that omkl gives it, without its parameters and what its public bases have."""
    own = [part for part in kind.__mro__ if part.__module__.startswith("omkl") and part not in bases]
    written = {name for part in own for name in (*vars(part), *inspect.get_annotations(part))}
    parameters = inspect.signature(kind).parameters if _has_signature(kind) else {}
    for name in sorted(name for name in written if not name.startswith("_") and name not in parameters):
        member = inspect.getattr_static(kind, name, None)
        if not type(member).__module__.startswith("sklearn"):  # set_fit_request and the like
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            yield name + (_parameters(function) if inspect.isfunction(function) else "")


def difference(old: list[str], new: list[str]) -> str:
    """Return what differs, a line for each name that is gone (-) or new (+); nothing where nothing does."""
    before, after = set(_placed(old)), set(_placed(new))
    changed = [(line, "-") for line in before - after] + [(line, "+") for line in after - before]
    return "\n".join(f"{sign} {line}" for line, sign in sorted(changed, key=_by_name))


def _by_name(changed: tuple[str, str]) -> tuple[str, bool]:
    line, sign = changed
    return re.split(r"[ (:]", line)[0], sign == "+"


def _placed(lines: list[str]) -> Iterator[str]:
    """Yield lines that stand alone: a member has the name of its class before it."""
    above = ""
    for line in lines:
        if not line.startswith(" "):
            above = re.split(r"[ (:]", line)[0]
        yield f"{above}.{line.strip()}" if line.startswith(" ") else line


def frozen() -> list[str]:
    """Return the lines of the file."""
    return FILE.read_text().splitlines()


def freeze() -> None:
    """Write the file."""
    FILE.write_text("\n".join(told()) + "\n")
