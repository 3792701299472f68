"""How much each column matters, from labelled rows.

A kernel that compares inputs column by column drowns in columns that say nothing of the target. Kernel ridge regression
on the calibration rows tells which ones do: where its function does not change along a column, that column does not
matter. Units divided by the root mean square of its derivatives are better ones, in which it is fitted again.

References
----------
A. Radhakrishnan, D. Beaglehole, P. Pandit, M. Belkin, "Mechanism for feature learning in neural networks and
backpropagation-free machine learning models", Science 383 (2024): the average outer product of gradients, of which this
is the diagonal.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from omkl.scaling import Floats

PASSES = (2, 1, 1)  # the share of the rows that each fit has, inverted: the first one need not be exact
RIDGE = 0.03  # of a kernel whose diagonal is one
DOUBT = 0.5  # columns over rows, times this: how much of every column counts whatever its derivatives are
SPARED = 4  # of many outputs, derivatives are taken at every fourth row: those of all take most of the time
FEWEST = 8  # rows that say something about columns

Real = npt.NDArray[np.floating[Any]]
"""Of one precision throughout: single for speed, double where machines are to agree."""


def relevance(X: Real, Y: Real) -> Floats:
    """Return a factor for every column ``(d,)``, of mean square one, from inputs and targets ``(n, C)``.

    >>> X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    >>> relevance(X, np.sin(2 * X[:, :1])).round(1)
    array([1.7, 0. , 0. ])
    """
    factors = np.ones(X.shape[1])
    targets = Y - Y.mean(axis=0, dtype=np.float64)
    unit = np.sqrt(np.mean(targets**2))
    if not unit > 0:
        return factors
    scaled = (targets / unit).astype(X.dtype)
    for share in PASSES:
        rows = len(X) // share
        if rows >= FEWEST:
            factors = _renewed(X[:rows], scaled[:rows], factors)
    return factors


def _renewed(X: Real, targets: Real, factors: Floats) -> Floats:
    """Return factors from the derivatives of a function that was fitted in units of those before."""
    doubt = DOUBT * X.shape[1] / len(X)
    if doubt >= 1:
        return np.ones_like(factors)
    steep = np.sqrt(_squared_slopes(X * factors.astype(X.dtype), targets)) * factors
    if not steep.max() > 0:
        return factors
    made = (1 - doubt) * steep / steep.max() + doubt
    return np.asarray(made / np.sqrt(np.mean(made**2)))


def _squared_slopes(X: Real, targets: Real) -> Floats:
    """Return the mean square of a fitted function's derivative along every column, ``(d,)``, summed over outputs."""
    squares = squared_distances(X)
    width = typical_distance(squares) ** 2
    if not width > 0:
        return np.zeros(X.shape[1])
    similar = np.exp(squares / (-2 * width))
    weights = np.linalg.solve(similar + RIDGE * np.eye(len(X), dtype=X.dtype), targets)
    some = slice(None, None, min(SPARED, max(1, len(weights.T) // 2)))
    pulls = similar[some] * weights.T[:, None]
    slopes = pulls @ X - pulls.sum(axis=2)[..., None] * X[some]
    return np.asarray(np.mean(slopes**2, axis=1, dtype=np.float64).sum(axis=0)) / width**2


def squared_distances(X: Real) -> Real:
    """Return |x_i - x_j|^2 for all rows, ``(n, n)``."""
    lengths = np.sum(X * X, axis=1)
    squares = lengths[:, None] + lengths - 2 * (X @ X.T)
    np.fill_diagonal(squares, 0)
    return np.asarray(np.maximum(squares, 0, out=squares))


def typical_distance(squares: Real) -> float:
    """Return the median distance between two rows, or a fourth of its root mean square where most rows are alike."""
    if len(squares) < 2:
        return 0.0
    apart = squares[np.tri(len(squares), k=-1, dtype=bool)]
    return max(float(np.median(np.sqrt(apart))), math.sqrt(np.mean(apart, dtype=np.float64)) / 4)
