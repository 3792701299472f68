"""Errors that state the value, the rule and the remedy."""

import difflib
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")


class InputError(ValueError):
    """Something the caller gave breaks a rule; raised before any computation."""


class MissingExtraError(ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; this needs it; run: pip install 'omkl[{extra}]'")


def pick(kind: str, name: str, known: Mapping[str, T]) -> T:
    """Return ``known[name]``, or refuse the name and offer the nearest one."""
    if name in known:
        return known[name]
    raise InputError(unknown(kind, name, known))


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that is not among the known ones."""
    names = sorted(known)
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    return f"unknown {kind} {name!r}; {hint}known: {', '.join(names)}"
