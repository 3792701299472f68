"""The array type of the core and the namespace it brings along."""

from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""Any array of the Python Array API standard: NumPy on a node, JAX in the simulator."""


FEW = 8  # numbers of an axis up to which a reduction is no loop of its own

SHORT = 4  # and columns, up to which a product is none


def namespace(array: Array) -> Any:
    """Return what holds the functions that work on ``array``."""
    if type(array) is np.ndarray or isinstance(array, np.generic):
        return _NUMPY
    return array.__array_namespace__()


def is_nowhere(mask: Array) -> bool:
    """Return whether nothing of a mask is true, so that a loop may end; where it is not known yet, as in JAX, False."""
    return type(mask) is np.ndarray and not mask.any()


def is_exactly(setting: Any, number: float) -> bool:
    """Return whether a setting is this number; an argument of a compiled program is none in particular."""
    return isinstance(setting, int | float) and setting == number


def short_sum(x: Array) -> Array:
    """Return the sum along the last axis, which is kept: of few numbers one by one where a compiler fuses that."""
    return _along(x, "add", "sum")


def short_max(x: Array) -> Array:
    """Return the largest along the last axis in the same way."""
    return _along(x, "maximum", "max")


def products(rows: Array, others: Array) -> Array:
    """Return the products of rows ``(..., n, d)`` with others ``(..., m, d)``, shape ``(..., n, m)``.

    Of few columns they are added one by one where a compiler fuses that with what comes of them.
    """
    xp = namespace(rows)
    if xp is _NUMPY or rows.shape[-1] > SHORT:
        return xp.matmul(rows, xp.matrix_transpose(others))
    return reduce(xp.add, [rows[..., :, None, k] * others[..., None, :, k] for k in range(rows.shape[-1])])


def _along(x: Array, pair: str, whole: str) -> Array:
    xp = namespace(x)
    if xp is _NUMPY or x.shape[-1] > FEW:
        return getattr(xp, whole)(x, axis=-1, keepdims=True)
    return reduce(getattr(xp, pair), [x[..., k : k + 1] for k in range(x.shape[-1])])


class _Numpy:
    """NumPy without the Python around its C functions, which takes longer than the few numbers of one node.

    What is not listed here is NumPy's own.
    """

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        setattr(self, name, found)  # so that it is looked up once
        return found

    @staticmethod
    def astype(x: Array, dtype: Any) -> Array:
        return x.astype(dtype)

    @staticmethod
    def reshape(x: Array, shape: tuple[int, ...]) -> Array:
        return x.reshape(shape)

    @staticmethod
    def zeros_like(x: Array) -> Array:
        return np.zeros(x.shape, x.dtype)

    @staticmethod
    def ones_like(x: Array) -> Array:
        ones = np.empty(x.shape, x.dtype)
        ones.fill(1)
        return ones

    @staticmethod
    def clip(x: Array, low: float | None = None, high: float | None = None) -> Array:
        x = x if low is None else np.maximum(x, low)
        return x if high is None else np.minimum(x, high)

    @staticmethod
    def mean(x: Array, axis: int | tuple[int, ...], keepdims: bool = False) -> Array:
        if isinstance(axis, tuple):
            return np.mean(x, axis=axis, keepdims=keepdims)
        return np.add.reduce(x, axis=axis, keepdims=keepdims) / x.shape[axis]  # type: ignore[call-overload]

    @staticmethod
    def moveaxis(x: Array, source: int, to: int) -> Array:
        axes = list(range(x.ndim))
        axes.insert(to % x.ndim, axes.pop(source))
        return x.transpose(axes)

    sum: Callable[..., Array] = staticmethod(np.add.reduce)
    max: Callable[..., Array] = staticmethod(np.maximum.reduce)


_NUMPY = _Numpy()
