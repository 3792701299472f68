"""The default learner of one node as loops compiled by Numba; tests hold them to ``omkl.algorithm``.

One row at a time, NumPy spends its time on calls. Rows that come together share what is read of frequencies and basis,
and are rounded as they would be one by one: sums run over inputs and features in order, never over rows.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
from numba import njit

from omkl.features import Features, waves
from omkl.learners import Shared
from omkl.learners.rules import HALVINGS, LOGISTIC
from omkl.losses import Logistic, Loss, Softmax, Squared
from omkl.methods import Local, Method
from omkl.methods.local import LocalState
from omkl.online.calibrating import FARTHEST, Units

Floats = npt.NDArray[np.float32]

LOSSES: tuple[type[Loss], ...] = (Logistic, Squared, Softmax)
TOGETHER = 8  # rows that share what is read
_LOGISTIC, _SQUARED, _ = range(len(LOSSES))
_ZERO, _ONE, _TWO = (np.float32(value) for value in (0, 1, 2))

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_jit: Any = partial(njit, error_model="numpy", no_cfunc_wrapper=True)
compiled: Decorator = _jit(cache=True)
inner: Decorator = _jit(no_cpython_wrapper=True)  # for other loops alone to call, and compiled sooner
summed: Decorator = _jit(no_cpython_wrapper=True, fastmath={"contract", "reassoc", "nsz"})  # in many lanes


def knows(method: Method) -> TypeGuard[Local]:
    """Return whether these loops compute what a method says."""
    return (
        type(method) is Local
        and type(method.rule) is Shared
        and type(method.objective) in LOSSES
        and method.regularization == 0
        and not method.weigh_first
    )


class Compiled:
    """The steps of a method that these loops know, in units and features that were calibrated for it.

    Features of all kernels are beside each other, ``(n, R)``, without those directions that no row has shown.
    """

    def __init__(self, method: Local, made: Features, inputs: Units) -> None:
        assert isinstance(method.rule, Shared)
        assert made.basis is not None
        assert made.spectrum is not None
        rule, bound = method.rule, method.objective.smoothness
        kernels, count, columns = made.frequencies.shape
        ranks = np.count_nonzero(made.spectrum, axis=-1)
        self._inputs = inputs
        self._frequencies = np.ascontiguousarray(made.frequencies.reshape(kernels * count, columns).T)
        self._ends = np.concatenate([[0], np.cumsum(ranks)])
        self._basis = np.concatenate([one[:, :rank] for one, rank in zip(made.basis, ranks, strict=True)], axis=1)
        shown = np.concatenate([one[:rank] for one, rank in zip(made.spectrum, ranks, strict=True)])
        self._variance = np.float32(rule.prior) * shown
        curvature = rule.c * max(1.0, bound / LOGISTIC)
        most = np.inf if method.most_apart is None else method.most_apart
        self._rates = np.array([curvature, rule.forget, bound, method.hedge_rate, most], dtype=np.float32)
        self._loss = LOSSES.index(type(method.objective))

    def mapped(self, X: npt.NDArray[np.float64]) -> Floats:
        """Return the features ``(n, R)`` of rows ``(n, d)``; of those with more columns, the first."""
        kernels = len(self._ends) - 1
        angles = np.zeros((len(X), self._frequencies.shape[1]), dtype=np.float32)
        _turn(X, *self._inputs, self._frequencies, angles)
        z = np.zeros((len(X), self._basis.shape[1]), dtype=np.float32)
        _project(waves(angles.reshape(len(X), kernels, -1)), self._basis, self._ends, z)
        return z

    def outputs(self, state: LocalState, z: Floats) -> npt.NDArray[np.float64]:
        """Return the outputs ``(n, C)`` of the ensemble for features ``(n, R)``."""
        f = np.empty((len(z), state.theta.shape[2]))
        _predict(state.theta[0], state.log_weights[0], z, self._ends, f)
        return f

    def learn(self, state: LocalState, z: Floats, y: Floats) -> LocalState:
        """Return the state after rows of features ``(n, R)`` and targets ``(n, C)``, in this order."""
        theta, log_weights, count = state.theta.copy(), state.log_weights.copy(), state.memory.count.copy()
        _learn(theta[0], log_weights[0], count, z, y, self._variance, self._ends, self._rates, self._loss)
        return LocalState(theta, log_weights, state.memory._replace(count=count))


@compiled
def _turn(X: Any, center: Any, scale: Any, frequencies: Any, angles: Any) -> None:
    """Add v.x to the angles, ``(n, P D)``, of rows in these units; what is missing is at the mean."""
    for start in range(0, len(X), TOGETHER):
        rows = range(start, min(start + TOGETHER, len(X)))
        for i in range(min(X.shape[1], len(center))):
            for k in rows:
                apart = (X[k, i] - center[i]) / scale[i]
                if not np.isnan(apart):
                    _add(angles[k], np.float32(min(max(apart, -FARTHEST), FARTHEST)), frequencies[i])


@compiled
def _project(waves: Any, basis: Any, ends: Any, z: Any) -> None:
    """Write the features of every kernel ``(n, P, 2D)`` in its basis to z, which is zero."""
    width = waves.shape[-1]
    for start in range(0, len(z), TOGETHER):
        rows = range(start, min(start + TOGETHER, len(z)))
        for p in range(len(ends) - 1):
            own = basis[:, ends[p] : ends[p + 1]]
            for i in range(0, width - 3, 4):
                for k in rows:
                    _add_four(z[k, ends[p] : ends[p + 1]], waves[k, p, i : i + 4], own[i : i + 4])
            for i in range(width - width % 4, width):
                for k in rows:
                    _add(z[k, ends[p] : ends[p + 1]], waves[k, p, i], own[i])


@inner
def _add_four(sums: Any, factors: Any, vectors: Any) -> None:
    one, two, three, four = factors[0], factors[1], factors[2], factors[3]
    for j in range(len(sums)):
        sums[j] += (one * vectors[0, j] + two * vectors[1, j]) + (three * vectors[2, j] + four * vectors[3, j])


@inner
def _add(sums: Any, factor: Any, vector: Any) -> None:
    for j in range(len(sums)):
        sums[j] += factor * vector[j]


@summed
def _dot(one: Any, other: Any) -> Any:
    total = _ZERO
    for i in range(len(one)):
        total += one[i] * other[i]
    return total


@compiled
def _predict(theta: Any, log_weights: Any, z: Any, ends: Any, f: Any) -> None:
    weights = np.exp((log_weights - log_weights.max()).astype(np.float64))
    weights /= weights.sum()
    for t in range(len(z)):
        for k in range(theta.shape[1]):
            f[t, k] = 0
            for p in range(len(theta)):
                row = z[t, ends[p] : ends[p + 1]]
                f[t, k] += weights[p] * _dot(theta[p, k, : len(row)], row)


@compiled
def _learn(
    theta: Any, log_weights: Any, count: Any, z: Any, y: Any, variance: Any, ends: Any, rates: Any, loss: Any
) -> None:
    curvature, forget, bound, rate, most = rates
    f, slope, there = np.empty((3, theta.shape[1]), dtype=np.float32)
    move, losses = np.empty(z.shape[1], dtype=np.float32), np.empty(len(theta), dtype=np.float32)
    for t in range(len(z)):
        count[0] = forget * count[0] + _ONE
        slowed = curvature * count[0]
        for i in range(len(move)):
            move[i] = variance[i] / (_ONE + slowed * variance[i]) * z[t, i]
        for p in range(len(theta)):
            row, along = z[t, ends[p] : ends[p + 1]], move[ends[p] : ends[p + 1]]
            for k in range(len(f)):
                f[k] = _dot(theta[p, k, : len(row)], row)
            losses[p] = _value(loss, f, y[t])
            _derivative(loss, f, y[t], slope)
            length = _length(loss, f, y[t], slope, there, _dot(along, row), bound)
            for k in range(len(f)):
                _add(theta[p, k, : len(row)], -length * slope[k], along)
        least = losses.min()
        for p in range(len(theta)):
            log_weights[p] -= rate * min(losses[p] - least, most)
        log_weights -= log_weights.max()


@inner
def _length(loss: Any, f: Any, y: Any, slope: Any, there: Any, energy: Any, bound: Any) -> Any:
    """Return r as ``learners.rules.length`` does."""
    squares = _dot(slope, slope)
    low, high = _ONE / (_ONE + bound * energy), _ONE
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        if _rise(loss, f, y, slope, there, energy, squares, middle) >= 0:
            high = middle
        else:
            low = middle
    below = -_rise(loss, f, y, slope, there, energy, squares, low)
    total = below + _rise(loss, f, y, slope, there, energy, squares, high)
    share = below / total if total > 0 else below
    return low + min(max(share, _ZERO), _ONE) * (high - low)


@inner
def _rise(loss: Any, f: Any, y: Any, slope: Any, there: Any, energy: Any, squares: Any, length: Any) -> Any:
    for k in range(len(f)):
        there[k] = f[k] - length * energy * slope[k]
    _derivative(loss, there, y, there)
    return length * squares - _dot(slope, there)


@inner
def _value(loss: Any, f: Any, y: Any) -> Any:
    if loss == _LOGISTIC:
        margin = -y[0] * f[0]
        return max(margin, _ZERO) + np.log1p(np.exp(-abs(margin)))
    total = _ZERO
    if loss == _SQUARED:
        for k in range(len(f)):
            total += (f[k] - y[k]) * (f[k] - y[k])
        return total
    top = f.max()
    for k in range(len(f)):
        total += np.exp(f[k] - top)
    return np.log(total) + top - _dot(f, y)


@inner
def _derivative(loss: Any, f: Any, y: Any, slope: Any) -> None:
    """Write C'(f, y); ``slope`` may be f itself."""
    if loss == _LOGISTIC:
        margin = y[0] * f[0]
        e = np.exp(-abs(margin))
        slope[0] = -y[0] * (e if margin >= 0 else _ONE) / (_ONE + e)
        return
    if loss == _SQUARED:
        for k in range(len(f)):
            slope[k] = _TWO * (f[k] - y[k])
        return
    top, total = f.max(), _ZERO
    for k in range(len(f)):
        slope[k] = np.exp(f[k] - top)
        total += slope[k]
    for k in range(len(f)):
        slope[k] = slope[k] / total - y[k]
