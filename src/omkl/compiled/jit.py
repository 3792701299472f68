"""How loops are compiled, and kept between processes."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Whole: TypeAlias = npt.NDArray[np.int64]
Small: TypeAlias = npt.NDArray[np.int16]
Words: TypeAlias = npt.NDArray[np.uint32]

# Whose numbers loops have in them.
CONSTANTS = ("learners", "online", "wire", "algorithm.py", "quantizers.py", "reach.py")

# Products may be fused into sums. Sums keep their order, but for those of ``summed``, which run in many lanes.
_PLAIN = {"contract", "nsz"}
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def _sources() -> str:
    """Return a digest of all that compiled loops are made of."""
    package = Path(__file__).parent.parent
    files = [*Path(__file__).parent.glob("*.py")]
    for name in CONSTANTS:
        files += [package / name] if name.endswith(".py") else (package / name).glob("*.py")
    return hashlib.blake2b(b"".join(file.read_bytes() for file in sorted(files)), digest_size=16).hexdigest()


_SOURCES = _sources()


class _Kept(FunctionCache):  # type: ignore[misc]
    """Loops on disk, which are compiled anew when any of their sources changes; Numba looks at one file alone."""

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), _SOURCES)


def entry(function: F, **options: Any) -> F:
    """Return a loop that Python calls, kept on disk where there is a folder for it."""
    made: Any = njit(fastmath=_PLAIN, **_OPTIONS | options)(function)
    with suppress(RuntimeError):  # nowhere to write: each process compiles its own
        made._cache = _Kept(function)
    return made


def brief(function: F) -> F:
    """Return a loop of microseconds that Python calls: to let go of the interpreter's lock meanwhile costs more."""
    return entry(function, nogil=False)


def inner(function: F) -> F:
    """Return a loop for other loops alone to call."""
    return njit(fastmath=_PLAIN, no_cpython_wrapper=True, **_OPTIONS)(function)


def piece(function: F) -> F:
    """Return a loop that becomes a part of its caller: one that is long and called once compiles sooner so."""
    return njit(fastmath=_PLAIN, inline="always", no_cpython_wrapper=True, **_OPTIONS)(function)


def summed(function: F) -> F:
    """Return a loop for other loops to call, whose sums may be in any order: they then run in many lanes."""
    return njit(fastmath=_PLAIN | {"reassoc"}, no_cpython_wrapper=True, **_OPTIONS)(function)


@intrinsic  # type: ignore[untyped-decorator]
def borrowed(typing: Any, given: Any) -> Any:
    """Return an array, or a tuple of them, whose references are not counted: the caller holds them meanwhile.

    Else every slice of an array would count, and counting is atomic: it took a third of a node's round.
    """

    def lend(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, value)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            return array._getvalue()
        if isinstance(kind, types.BaseTuple):
            parts = zip(kind, cgutils.unpack_tuple(builder, value), strict=True)
            return context.make_tuple(builder, kind, [lend(context, builder, one, part) for one, part in parts])
        return value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return lend(context, builder, given, arguments[0])

    return given(given), generate
