"""How checks are run, and what several of them need."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias
from unittest import SkipTest

import numpy as np

from omkl.arrays import Array
from omkl.registry import members
from omkl.settings import build, settings, values

Check: TypeAlias = Callable[[Any], None]
"""A function that takes an object and raises ``AssertionError`` where it breaks a rule."""

Call: TypeAlias = Callable[..., Any]

RTOL, ATOL = 2e-4, 2e-5  # sums of float32 in another order


class Failed(AssertionError):
    """An object breaks rules: one line for every check that failed."""


class Skipped(SkipTest):
    """A check that cannot run here, and why; pytest and unittest skip it."""


class Report(NamedTuple):
    """What was checked of an object that keeps all rules."""

    passed: tuple[str, ...]
    skipped: dict[str, str]
    """Checks that could not run here, and why."""

    def __str__(self) -> str:
        told = [f"{len(self.passed)} checks passed"]
        told += [f"skipped {name}: {reason}" for name, reason in self.skipped.items()]
        return "; ".join(told)


def run(thing: Any, checks: Sequence[Check]) -> Report:
    """Return what was checked; tell of all checks that fail, but for those that need the members that are missing."""
    passed, skipped, failed = list[str](), dict[str, str](), list[str]()
    for check in checks:
        try:
            check(thing)
        except Skipped as reason:
            skipped[check.__name__] = str(reason)
        except Exception as error:  # of any kind: it is the user's code that runs
            what = str(error) if isinstance(error, AssertionError) else f"it raised {type(error).__name__}: {error}"
            if check is checks[0]:  # that of the members
                failed.append(f"{check.__name__}: {what}; the other checks need them, and were not run")
                break
            failed.append(f"{check.__name__}: {what}")
        else:
            passed.append(check.__name__)
    if failed:
        lines = "\n".join(f"  {line}" for line in failed)
        raise Failed(f"{_called(thing)} fails {len(failed)} of {len(checks)} checks:\n{lines}")
    return Report(tuple(passed), skipped)


def _called(thing: Any) -> str:
    name: str = getattr(thing, "__name__", type(thing).__name__)
    return name


def require(holds: Any, text: str) -> None:
    """Raise ``AssertionError`` with this text where something does not hold."""
    if not bool(holds):
        raise AssertionError(text)


def require_members(thing: Any, protocol: type, kind: str) -> None:
    """Refuse a class, and an object without one of the members of a protocol."""
    own = _called(thing)
    require(not isinstance(thing, type), f"{own} is a class; checks take an object; pass {own}()")
    missing = [name for name in members(protocol) if not hasattr(thing, name)]
    require(not missing, f"{own} lacks {', '.join(missing)}; a {kind} has {', '.join(members(protocol))}; add them")
    name = thing.name
    require(isinstance(name, str) and name, f"name is {name!r}; files know a {kind} by a text; write name = 'mine'")


def require_value(thing: Any) -> None:
    """Refuse an object that is not its settings and nothing else."""
    own = type(thing).__name__
    remedy = "make the class a frozen dataclass whose fields are its settings"
    try:
        hash(thing)
    except TypeError as error:
        raise AssertionError(f"hash({own}) fails ({error}); compiled programs are kept by it; {remedy}") from None
    require(
        copy.deepcopy(thing) == thing, f"a copy of {own} is not equal to it; records compare objects by value; {remedy}"
    )
    made = build(type(thing), values(thing))
    require(made == thing, f"{own}(**settings) differs from the object; files make it from its settings; {remedy}")
    require(
        all(one.name.isidentifier() for one in settings(type(thing)).values()),
        f"settings of {own} have no names; files know them by name; {remedy}",
    )


def same(one: Any, other: Any, text: str) -> None:
    """Require two trees of arrays to be alike to the bit."""
    for mine, its in zip(leaves(one), leaves(other), strict=True):
        require(np.array_equal(np.asarray(mine), np.asarray(its), equal_nan=True), text)


def close(one: Any, other: Any, text: str, rtol: float = RTOL, atol: float = ATOL) -> None:
    """Require two trees of arrays to be alike but for rounding."""
    for mine, its in zip(leaves(one), leaves(other), strict=True):
        a, b = (np.asarray(part, dtype=np.float64) for part in (mine, its))
        require(a.shape == b.shape, f"shapes {a.shape} and {b.shape}; {text}")
        apart = float(np.max(np.abs(a - b) - rtol * np.abs(b), initial=-np.inf))
        require(apart <= atol, f"values differ by {apart:.2g} more than rounding allows; {text}")


def leaves(tree: Any) -> Iterator[Array]:
    """Yield the arrays of a tree of tuples."""
    if isinstance(tree, tuple | list):
        for part in tree:
            yield from leaves(part)
    elif tree is not None:
        yield tree


def mapped(function: Call, tree: Any) -> Any:
    """Return a tree of tuples with a function of its arrays in their place."""
    if isinstance(tree, tuple | list):
        made = (mapped(function, part) for part in tree)
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    return function(tree) if isinstance(tree, np.ndarray) else tree


def frozen(tree: Any) -> Any:
    """Return a copy of a tree whose arrays cannot be written to."""

    def locked(array: Array) -> Array:
        own = array.copy()
        own.flags.writeable = False
        return own

    return mapped(locked, tree)


def unharmed(call: Callable[[], Any], what: str) -> Any:
    """Return what a call on arrays that cannot be written to returns."""
    try:
        return call()
    except ValueError as error:
        require(
            "read-only" not in str(error),
            f"{what} writes into the arrays that it is given ({error}); they belong to the caller; make new ones",
        )
        raise


def on_strict(function: Call, *given: Any) -> Any:
    """Return what a function makes of arrays of array-api-strict, as NumPy arrays."""
    try:
        strict = import_module("array_api_strict")
    except ModuleNotFoundError:
        raise Skipped("array-api-strict is not installed; run: pip install array-api-strict") from None
    made = function(*mapped(strict.asarray, given))
    return mapped_back(np.asarray, made)


def on_jax(function: Call, *given: Any) -> Any:
    """Return what a function compiled by JAX makes of arrays, as NumPy arrays."""
    try:
        jax = import_module("jax")
    except ModuleNotFoundError:
        raise Skipped("jax is not installed; run: pip install 'omkl[sim]'") from None
    return mapped_back(np.asarray, jax.jit(function)(*mapped(jax.numpy.asarray, given)))


def mapped_back(function: Call, tree: Any) -> Any:
    """Return a tree of any library's arrays with a function of each in its place."""
    if isinstance(tree, tuple | list):
        made = (mapped_back(function, part) for part in tree)
        return type(tree)(*made) if hasattr(tree, "_fields") else type(tree)(made)
    return tree if tree is None else function(tree)


@contextmanager
def another_global_seed(seed: int) -> Iterator[None]:
    """Set NumPy's global generator for a while: what depends on it is found."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)
