"""A loop that is run when this is imported: it fails where Numba is not as ``jit`` and ``lending`` take it to be."""

from typing import Any, NamedTuple

import numpy as np

from omkl.compiled.arithmetic import dot
from omkl.compiled.jit import Floats, brief
from omkl.compiled.lending import borrowed, hold


class _Within(NamedTuple):
    vector: Floats


class _Things(NamedTuple):
    vector: Floats
    within: _Within


@brief
def _product(held: Any, other: Floats) -> np.float32:
    things = borrowed(held)
    return dot(things.vector, borrowed(other)) + dot(things.vector, things.within.vector)


_ONES = np.ones(3, np.float32)
if (_found := _product(hold(_Things(_ONES, _Within(_ONES))), _ONES)) != 2 * len(_ONES):
    raise ValueError(f"a sum of six ones is {_found}")
