"""How loops are compiled, and kept between processes."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numba
import numpy as np
import numpy.typing as npt
from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.runtime import rtsys

from omkl.compiled.libraries import Alone, Text, compiler

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
    """Return a digest of all that compiled loops are made of, and by."""
    package = Path(__file__).parent.parent
    files = [*Path(__file__).parent.glob("*.py")]
    for name in CONSTANTS:
        files += [package / name] if name.endswith(".py") else (package / name).glob("*.py")
    parts = [numba.__version__.encode(), *(file.read_bytes() for file in sorted(files))]
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


_SOURCES = _sources()


class _Files(IndexDataCacheFile):  # type: ignore[misc]
    """A file for each signature, which says what it is of.

    Numba numbers files, and an index tells which is whose. Of processes that start at once one could take another's
    file for its own: loops of other arguments, whose memory they would not know.
    """

    def load(self, key: Any) -> Any:
        """Return what is kept under a key; None where nothing is."""
        try:
            kept, data = self._load_data(self._file(key))
        except (OSError, ValueError):
            return None
        return data if kept == key else None

    def save(self, key: Any, data: Any) -> None:
        """Keep something, and let go of what was made of older sources."""
        name = self._file(key)
        self._save_data(name, (key, data))
        for other in Path(self._cache_path).glob(self._base() + "*.nbc"):
            if not other.name.startswith(name.rpartition("-")[0]):
                with suppress(OSError):
                    other.unlink()

    def _file(self, key: Any) -> str:
        return f"{self._base()}{_SOURCES[:8]}-{hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()}.nbc"

    def _base(self) -> str:
        return str(self._index_name.removesuffix("nbi"))


class _Kept(FunctionCache):  # type: ignore[misc]
    """Loops on disk, which are compiled anew when any of their sources changes; Numba looks at one file alone."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file = _Files(self._cache_path, self._impl.filename_base, None)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(sig, codegen), _SOURCES)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is kept, without loading all that is needed to compile: that took longer than anything else."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


_ENTRY: dict[str, Any] = _OPTIONS | {"pipeline_class": compiler(Alone)}
_INNER: dict[str, Any] = _OPTIONS | {"pipeline_class": compiler(Text), "no_cpython_wrapper": True}


def entry(function: F, **options: Any) -> F:
    """Return a loop that Python calls, kept on disk where there is a folder for it."""
    made: Any = njit(fastmath=_PLAIN, **_ENTRY | options)(function)
    with suppress(RuntimeError):  # nowhere to write: each process compiles its own
        made._cache = _Kept(function)
    return made


def brief(function: F) -> F:
    """Return a loop of microseconds that Python calls: to let go of the interpreter's lock meanwhile costs more."""
    return entry(function, nogil=False)


def inner(function: F) -> F:
    """Return a loop for other loops alone to call."""
    return njit(fastmath=_PLAIN, **_INNER)(function)


def summed(function: F) -> F:
    """Return a loop for other loops to call, whose sums may be in any order: they then run in many lanes."""
    return njit(fastmath=_PLAIN | {"reassoc"}, **_INNER)(function)
