"""The best fixed model in hindsight: what regret is measured against."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from omkl.errors import InputError
from omkl.losses import Loss

TOLERANCE = 1e-8  # on the norm of the mean gradient
MOST_STEPS = 100
CHUNK = 1 << 16  # rows of weighted features held at a time

Floats = npt.NDArray[np.float64]


class Comparator(NamedTuple):
    """The best fixed model and its mean loss per sample."""

    theta: Floats
    """``(2D,)``."""
    loss: float
    """Mean of C(theta.z, y)."""
    objective: float
    """The same and lambda |theta|^2: the minimum."""
    norm: float
    """|theta|."""


def best(
    z: npt.ArrayLike,
    y: npt.ArrayLike,
    loss: Loss,
    regularization: float,
    counts: npt.ArrayLike | None = None,
    start: npt.ArrayLike | None = None,
) -> Comparator:
    """Return the theta that minimizes the mean of C(theta.z, y) + lambda |theta|^2, by damped Newton steps.

    Parameters
    ----------
    z, y
        Features ``(n, 2D)`` and targets ``(n,)`` of a loss with one output.
    counts
        How often each row was seen, ``(n,)``: a stream drawn with replacement is its table and these.
    start
        Where to begin; None is zero. A neighboring problem's solution saves steps.
    """
    if not regularization > 0:
        raise InputError(f"regularization is {regularization}; a unique minimum needs lambda > 0; pass 1e-3")
    batch = _batch(z, y, counts)
    theta = np.zeros(batch.z.shape[1]) if start is None else np.array(start, dtype=np.float64)
    for _ in range(MOST_STEPS):
        f = (batch.z @ theta)[:, None]
        slope = batch.share * loss.derivative(f, batch.y)[:, 0]
        gradient = batch.z.T @ slope + 2 * regularization * theta
        if np.linalg.norm(gradient) < TOLERANCE:
            mean = float(batch.share @ loss.value(f, batch.y))
            square = float(theta @ theta)
            return Comparator(theta, mean, mean + regularization * square, square**0.5)
        step = np.linalg.solve(_hessian(batch, f, loss, regularization), gradient)
        theta = theta - _damping(batch, theta, step, float(step @ gradient), loss, regularization) * step
    raise InputError(
        f"the gradient is {np.linalg.norm(gradient):.2g} after {MOST_STEPS} Newton steps; it must fall below "
        f"{TOLERANCE}; raise regularization from {regularization}"
    )


class _Batch(NamedTuple):
    z: Floats
    y: Floats
    share: Floats
    """Each row's share of the samples."""


def _batch(z: npt.ArrayLike, y: npt.ArrayLike, counts: npt.ArrayLike | None) -> _Batch:
    rows, targets = np.asarray(z, dtype=np.float64), np.asarray(y, dtype=np.float64)
    seen = np.ones(len(rows)) if counts is None else np.asarray(counts, dtype=np.float64)
    if rows.ndim != 2 or targets.shape != rows.shape[:1] or seen.shape != rows.shape[:1]:
        shapes = f"z has shape {rows.shape}, y {targets.shape}, counts {seen.shape}"
        raise InputError(f"{shapes}; they must be (n, 2D), (n,) and (n,); reshape them")
    if not (seen >= 0).all() or not seen.sum() > 0:
        raise InputError(
            f"counts sum to {seen.sum()}; they must be >= 0 and not all zero; count the rows of the stream"
        )
    if (seen == 0).any():
        kept = seen > 0
        rows, targets, seen = rows[kept], targets[kept], seen[kept]
    return _Batch(rows, targets[:, None], seen / seen.sum())


def _hessian(batch: _Batch, f: Floats, loss: Loss, regularization: float) -> Floats:
    curvature = batch.share * loss.curvature(f, batch.y)[:, 0, 0]
    total = 2 * regularization * np.eye(batch.z.shape[1])
    for first in range(0, len(curvature), CHUNK):
        rows = slice(first, first + CHUNK)
        total += (batch.z[rows] * curvature[rows, None]).T @ batch.z[rows]
    return total


def _damping(batch: _Batch, theta: Floats, step: Floats, decrement: float, loss: Loss, regularization: float) -> float:
    """Return the first of 1, 1/2, 1/4, ... that lowers the objective enough (Armijo)."""

    def objective(point: Floats) -> float:
        value = loss.value((batch.z @ point)[:, None], batch.y)
        return float(batch.share @ value + regularization * point @ point)

    here, factor = objective(theta), 1.0
    rounding = 1e-14 * max(1.0, abs(here))  # near the minimum a good step gains less than the sum's last digits
    while objective(theta - factor * step) > here - 1e-4 * factor * decrement + rounding:
        factor /= 2
    return factor
