"""Inputs in units of their own: the running mean and deviation of every column, as a node sees them.

Kernels measure distances, so a pressure in pascal drowns a temperature in degrees beside it. ``standardize`` brings
each column to mean 0 and deviation 1 by what came *before* the sample: nothing is looked ahead at, and what a node
predicts for an input is what it is scored by if that is the next of its stream. Moments are in float64, after Welford:
of a column around 1e9 they keep what varies by one.

At the start nothing is known of a column. Its center is 0 before the first sample, and its scale 1 until it has varied,
so a column that never does stays at zero. What is far off in those units, the first samples as a rule and outliers
later, is clipped to ten deviations: beyond all that others are compared with, and near enough that a basis calibrated
on the bulk of the inputs has no large features there.

Each node goes by its own stream. Where nodes see different data, each therefore has the world in units of its own, a
place that is warm for one is cold for another, and one model cannot serve both: standardize by known units there
instead, the same at all nodes, before the data comes here. Nor are moments forgetful.

A reading of 1e30 from a broken sensor must not make all others equal for good. So once fifty samples are known, one
that is beyond a hundred deviations in a column that has varied counts as one of ten there. What changes for good is
still learned: each such sample widens the deviation, and after a fifth as many as were seen before, even a level that
is a million deviations away is within a hundred. Streams without such samples have the moments of Welford to the bit.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Inputs: TypeAlias = npt.NDArray[np.floating[Any]]

CLIP = 10.0
ENOUGH, ODD = 50, 100.0  # samples after which one that is so many deviations off counts as one of CLIP


class Moments(NamedTuple):
    """What has been seen of columns.

    Attributes
    ----------
    seen
        The number of samples.
    mean
        ``(..., d)``.
    squares
        ``(..., d)``, the sum of squared deviations from the mean.
    """

    seen: int
    mean: Floats
    squares: Floats

    @property
    def units(self) -> tuple[Floats, Floats]:
        """Center and scale: the mean, and the deviation, or 1 where a column has not varied."""
        variance = self.squares / max(1, self.seen - 1)
        return self.mean, np.sqrt(np.where(variance > 0, variance, 1.0))


def start(*shape: int) -> Moments:
    """Return the moments before the first sample, of columns ``(..., d)``."""
    return Moments(0, np.zeros(shape), np.zeros(shape))


def update(moments: Moments, x: Inputs) -> Moments:
    """Return the moments with one more sample ``(..., d)``.

    >>> center, scale = update(update(start(1), np.array([1e9 - 1])), np.array([1e9 + 1])).units
    >>> center.tolist(), scale.tolist()
    ([1000000000.0], [1.4142135623730951])
    """
    seen, mean, squares = moments
    apart = x - mean
    if seen >= ENOUGH and (odd := apart * apart * (seen - 1) > ODD**2 * squares).any():
        near = mean + np.copysign(CLIP * moments.units[1], apart)
        x = np.where(odd & (squares > 0), near, x)
        apart = x - mean
    mean = mean + apart / (seen + 1)
    return Moments(seen + 1, mean, squares + apart * (x - mean))


def standardize(x: Inputs, center: Floats, scale: Floats) -> npt.NDArray[np.float32]:
    """Return inputs ``(..., d)`` in units of a center and a scale, clipped."""
    return np.clip((x - center) / scale, -CLIP, CLIP).astype(np.float32)


def standardize_stream(X: Inputs) -> tuple[npt.NDArray[np.float32], Moments]:
    """Return a stream ``(T, J, d)``, each node's samples in units of those before, and the moments ``(J, d)`` of all.

    Round by round and all nodes at once, so that it is what they compute, to the bit.
    """
    made, moments = np.empty(X.shape, dtype=np.float32), start(*X.shape[1:])
    for t, x in enumerate(X):
        made[t] = standardize(x, *moments.units)
        moments = update(moments, x)
    return made, moments


def standardize_rows(X: Inputs) -> npt.NDArray[np.float32]:
    """Return rows ``(n, d)`` in units of all of them: for a sample that all nodes hold, and that has no order."""
    moments = start(X.shape[-1])
    for x in X:
        moments = update(moments, x)
    return standardize(X, *moments.units)
