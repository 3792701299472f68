"""Errors that state the value, the rule and the remedy."""

import difflib
import math
import numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Order: TypeAlias = Callable[[Iterable[str]], list[str]]


class InputError(ValueError):
    """Something the caller gave breaks a rule; raised before any computation. ``key`` names the setting, if known."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class DivergedError(InputError):
    """The models left the finite numbers: a step was too large for them."""


class DiskError(InputError):
    """A disk does not give what is on it, or takes nothing; it may another time."""


class RestoreError(InputError):
    """A node cannot go on from what it kept; the message ends with the command that lets it start anew."""


class AddressError(InputError):
    """An address is none of this device; it may be another time, when its network is up."""


class ClockError(InputError):
    """A certificate is not valid yet; it may be another time, when this device's clock is right."""


class MissingExtraError(ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; this needs it; run: pip install 'omkl[{extra}]'")


@contextmanager
def extra(name: str, package: str) -> Iterator[None]:
    """Tell of a package that cannot be imported in here by the extra that brings it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or package, name) from None


def real(name: str, value: Any) -> float:
    """Return a setting as a Python float, because a NumPy scalar would turn float32 arrays into float64."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise InputError(f"{name} is {value!r}; it must be a number; pass {name}=0.5, say", name)
    return float(value)


def positive(name: str, value: Any, usual: str, what: str = "it") -> float:
    """Return a setting as a Python float that is positive and finite."""
    number = real(name, value)
    if not 0 < number < math.inf:
        raise InputError(f"{name} is {number}; {what} must be positive and finite; {usual}", name)
    return number


def whole(name: str, value: Any, least: int = 1, usual: int = 1) -> int:
    """Return a setting as a Python int that is at least ``least``; ``usual`` is a value to offer."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        rule = f"it must be a whole number from {least} on; pass {name}={max(least, usual)}"
        raise InputError(f"{name} is {value!r}; {rule}", name)
    return int(value)


def pick(kind: str, name: str, known: Mapping[str, T]) -> T:
    """Return ``known[name]``, or refuse the name and offer the nearest one."""
    if name in known:
        return known[name]
    raise InputError(unknown(kind, name, known))


def unknown(kind: str, name: str, known: Iterable[str], order: Order = sorted) -> str:
    """Return the message for a name that is not among the known ones, which are told in an order."""
    return f"unknown {kind} {name!r}; {nearest(name, known, order)}"


def nearest(name: str, known: Iterable[str], order: Order = sorted) -> str:
    """Return the remedy for such a name: the nearest one that is known, and all that are."""
    names = order(known)
    found = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {found[0]!r}? " if found else ""
    return f"{hint}known: {', '.join(names)}"
