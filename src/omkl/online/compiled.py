"""The estimators' default learner as loops compiled by Numba; tests hold them to ``omkl.online.tracking``.

One row at a time, NumPy spends its time on calls. Rows that come together share what is read of landmarks and basis,
and are rounded as they would be one by one: sums run over inputs and features in order, never over rows.

All of it is one file: what Numba keeps of compiled loops is dropped when their own file changes, and no other.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

from omkl.learners import Pooled
from omkl.learners.pooled import FIRST_COUNT, FLOOR
from omkl.learners.rules import HALVINGS, LOGISTIC
from omkl.learners.rules import TINY as NOTHING
from omkl.losses import Logistic, Loss, Softmax, Squared
from omkl.methods import Method
from omkl.online.calibrating import FARTHEST, Calibrated, line_reach
from omkl.online.tracking import BOUND, MOST_APART, REMEMBERED, SHARPNESS, TINY, Tracking, TrackingState

Floats = npt.NDArray[np.float32]

LOSSES: tuple[type[Loss], ...] = (Logistic, Squared, Softmax)
TOGETHER = 8  # rows that share what is read
_LOGISTIC, _SQUARED, _ = range(len(LOSSES))
_ZERO, _ONE, _TWO, _FAINT = (np.float32(value) for value in (0, 1, 2, 1e-8))
_LEAST = np.float32(FLOOR / LOGISTIC)

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_jit: Any = partial(njit, error_model="numpy", no_cfunc_wrapper=True)
compiled: Decorator = _jit(cache=True)
inner: Decorator = _jit(no_cpython_wrapper=True)  # for other loops alone to call, and compiled sooner
summed: Decorator = _jit(no_cpython_wrapper=True, fastmath={"contract", "reassoc", "nsz"})  # in many lanes


def knows(method: Method) -> bool:
    """Return whether these loops compute what a method says."""
    return type(method) is Tracking and type(method.objective) in LOSSES


class Compiled:
    """The steps of a method that these loops know, in units and features that were calibrated for it."""

    def __init__(self, made: Calibrated) -> None:
        method, parts = made.method, made.features
        assert isinstance(method, Tracking)
        assert isinstance(method.learner, Pooled)
        assert parts.basis is not None
        assert parts.landmarks is not None
        assert parts.spectrum is not None
        assert parts.bandwidths is not None
        columns = parts.landmarks.shape[1]
        factors = np.ones(columns) if made.relevance is None else made.relevance
        self._inputs = (*made.inputs, factors.astype(np.float32), line_reach(parts))
        self._landmarks = np.ascontiguousarray(parts.landmarks.T)
        self._limits = np.ascontiguousarray(parts.limits)
        # Bandwidths that double, the widest first, as weights and exponents; others are compared one by one.
        widths = np.sort(parts.bandwidths.astype(np.float64))[::-1]
        self._shares, self._exponents = (
            (widths / widths.sum()).astype(np.float32),
            (-0.5 / widths**2).astype(np.float32),
        )
        self._doubles = bool(np.allclose(widths[:-1] / widths[1:], 2, rtol=1e-5))
        self._basis = parts.basis[0]
        assert made.directions is not None
        self._directions = made.directions
        self._width = parts.spectrum.shape[-1]
        bound = method.objective.smoothness
        self._variance = np.float32(method.learner.priors[0] * LOGISTIC / bound) * method.shown(parts.spectrum)[0]
        self._priors = np.array(method.learner.priors, np.float32) / np.float32(method.learner.priors[0])
        self._forget = np.array(method.forgets, np.float32)
        rates = bound, method.hedge_rate, method.share, method.line_rule.forget, method.times[-1]
        self._rates = np.array(rates, dtype=np.float32)
        self._stakes = method.dealt(np)
        self._loss = LOSSES.index(type(method.objective))

    def mapped(self, X: npt.NDArray[np.float64]) -> Floats:
        """Return the features ``(n, r)`` of rows ``(n, d)``; of those with more columns, the first."""
        similar = np.zeros((len(X), self._landmarks.shape[1]), dtype=np.float32)
        z = np.zeros((len(X), self._width), dtype=np.float32)
        _measure(X, *self._inputs, self._landmarks, self._limits, self._directions, similar, z)
        _compare(similar, self._shares, self._exponents, self._doubles)
        _project(similar, self._basis, z)
        return z

    def outputs(self, state: TrackingState, z: Floats) -> npt.NDArray[np.float64]:
        """Return the outputs ``(n, C)`` of all models together for features ``(n, r)``."""
        theta, memory = state.theta[0, :, 0], state.memory
        f = np.empty((len(z), theta.shape[1]))
        counts = memory.own[0], memory.log_curvature[0, :, 0]
        given = theta, *counts, state.log_weights[0], state.line[0, 0], self._variance, self._priors, self._rates
        _predict(*given, z, f)
        return f

    def learn(
        self, state: TrackingState, z: Floats, y: Floats, weight: Floats
    ) -> tuple[TrackingState, npt.NDArray[np.float64]]:
        """Return the state after rows of features ``(n, r)`` and targets ``(n, C)``, in order, and their losses."""
        memory = state.memory
        theta, log_weights, line = state.theta.copy(), state.log_weights.copy(), state.line.copy()
        own, log_curvature, spread = memory.own.copy(), memory.log_curvature.copy(), state.spread.copy()
        root = state.line_memory.root.copy()
        losses = np.empty(len(z))
        _learn(
            theta[0, :, 0], own[0], log_curvature[0, :, 0], log_weights[0], line[0, 0], root[0, 0, :, 0],
            state.line_memory.trace[0, 0], spread[0], self._variance, self._priors, self._forget, self._rates,
            self._stakes, self._loss, z, y, weight, losses,
        )  # fmt: skip
        memory = memory._replace(own=own, count=own.copy(), log_curvature=log_curvature)
        return TrackingState(theta, log_weights, memory, line, state.line_memory._replace(root=root), spread), losses


@compiled
def _measure(
    X: Any, center: Any, scale: Any, factors: Any, reach: Any, landmarks: Any, limits: Any, directions: Any,
    squares: Any, z: Any,
) -> None:  # fmt: skip
    """Add squared distances to the landmarks, ``(n, L)``, and write the linear features to the end of z."""
    lines, first = directions.shape[1], z.shape[1] - directions.shape[1] - 1
    for start in range(0, len(X), TOGETHER):
        rows = range(start, min(start + TOGETHER, len(X)))
        for i in range(len(center)):
            for k in rows:
                apart = (X[k, i] - center[i]) / scale[i] if i < X.shape[1] else np.nan
                apart = 0.0 if np.isnan(apart) else apart
                if limits[1, i] > limits[0, i]:  # where not, all inputs count as the landmarks, which are alike
                    near = np.float32(min(max(apart, -FARTHEST), FARTHEST)) * factors[i]
                    _add_squares(squares[k], min(max(near, limits[0, i]), limits[1, i]), landmarks[i])
                if lines:
                    far = np.float32(min(max(apart, -reach[i]), reach[i])) * factors[i]
                    _add(z[k, first : first + lines], far, directions[i])
        for k in rows:
            z[k, -1] = _ONE


@inner
def _add_squares(sums: Any, value: Any, column: Any) -> None:
    for j in range(len(sums)):
        apart = value - column[j]
        sums[j] += apart * apart


@compiled
def _compare(squares: Any, shares: Any, exponents: Any, doubles: Any) -> None:
    """Write the mean of Gaussians in the place of squared distances.

    That of half the width is the fourth power: one exponential serves them all. What is faint is nothing: numbers that
    are next to zero take many times as long.
    """
    for k in range(len(squares)):
        row = squares[k]
        for j in range(len(row)):
            square, total, value = row[j], _ZERO, _ZERO
            for b in range(len(shares)):
                if b == 0 or not doubles:
                    value = np.exp(exponents[b] * square)
                else:
                    value = value * value
                    value = value * value
                if value < _FAINT:
                    value = _ZERO
                total += shares[b] * value
            row[j] = total


@compiled
def _project(similar: Any, basis: Any, z: Any) -> None:
    """Add similarities ``(n, L)`` in their basis to z, which is zero there."""
    marks, rank = basis.shape
    for start in range(0, len(z), TOGETHER):
        rows = range(start, min(start + TOGETHER, len(z)))
        for i in range(0, marks - 3, 4):
            for k in rows:
                _add_four(z[k, :rank], similar[k, i : i + 4], basis[i : i + 4])
        for i in range(marks - marks % 4, marks):
            for k in rows:
                _add(z[k, :rank], similar[k, i], basis[i])


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
def _predict(
    theta: Any, own: Any, log_curvature: Any, log_weights: Any, line: Any, variance: Any, priors: Any, rates: Any,
    z: Any, output: Any,
) -> None:  # fmt: skip
    parts = np.empty((len(log_weights), theta.shape[1]), dtype=np.float32)
    shrunk = np.empty(z.shape[1], dtype=np.float32)
    weights = np.exp((log_weights - log_weights.max()).astype(np.float64))
    weights /= weights.sum()
    for t in range(len(z)):
        _read(theta, own, log_curvature, line, variance, priors, rates[0], rates[4], z[t], shrunk, parts)
        for k in range(theta.shape[1]):
            output[t, k] = 0
            for p in range(len(weights)):
                output[t, k] += weights[p] * parts[p, k]


@inner
def _read(
    theta: Any, own: Any, log_curvature: Any, line: Any, variance: Any, priors: Any, bound: Any, sharper: Any, z: Any,
    shrunk: Any, parts: Any,
) -> None:  # fmt: skip
    """Write the outputs of every model as it is read, and of the line."""
    place = 0
    for e in range(len(theta)):
        seen = bound * own[e] * np.exp(log_curvature[e])
        for prior in priors:
            for i in range(len(z)):
                known = seen * variance[i]
                shrunk[i] = z[i] * (prior * (_ONE + known) / (_ONE + prior * known))
            for k in range(theta.shape[1]):
                parts[place, k] = _dot(theta[e, k], shrunk)
            place += 1
    for k in range(theta.shape[1]):
        for p in range(place, len(parts) - 1):  # of classes, the same models once more
            parts[p, k] = sharper * parts[p - place, k]
        parts[-1, k] = _dot(line[k], z[len(z) - line.shape[1] :])


@compiled
def _learn(
    theta: Any, own: Any, log_curvature: Any, log_weights: Any, line: Any, root: Any, trace: Any, spread: Any,
    variance: Any, priors: Any, forget: Any, rates: Any, stakes: Any, loss: Any, z: Any, y: Any,
    weight: Any, losses: Any,
) -> None:  # fmt: skip
    bound, rate, share, line_forget, sharper = rates
    outputs, views = theta.shape[1], len(priors)
    parts, own_losses = np.empty((len(log_weights), outputs), dtype=np.float32), np.empty(len(log_weights), np.float32)
    f, target, slope, there = np.empty((4, outputs), dtype=np.float32)
    move, weights = np.empty(z.shape[1], dtype=np.float32), np.empty(len(log_weights), dtype=np.float32)
    for t in range(len(z)):
        _read(theta, own, log_curvature, line, variance, priors, bound, sharper, z[t], move, parts)
        _normalize(log_weights, weights)
        for k in range(outputs):
            f[k], target[k] = _ZERO, y[t, k]
            for p in range(len(weights)):
                f[k] += weights[p] * parts[p, k]
        losses[t] = _value(loss, f, target)
        sharpness = rate
        if loss == _SQUARED:
            sharpness = rate * np.float32(SHARPNESS) / max(spread[0], np.float32(TINY))
            _bound(f, target, spread)
        for p in range(len(weights)):
            own_losses[p] = sharpness * weight[t] * _value(loss, parts[p], target)
        _weigh(log_weights, own_losses, weights, share, stakes)
        for e in range(len(theta)):
            own[e] = forget[e] * own[e] + weight[t]
            f[:] = parts[e * views]
            before = np.exp(log_curvature[e])
            share_of_it = weight[t] / (np.float32(FIRST_COUNT) + own[e])
            curvature = before + share_of_it * (_curvature(loss, f, bound) - before)
            log_curvature[e] = np.log(curvature)
            seen = bound * own[e] * curvature
            for i in range(len(move)):
                move[i] = variance[i] / (_ONE + seen * variance[i]) * z[t, i]
            _derivative(loss, f, target, slope)
            slope *= weight[t]
            length = _length(loss, f, target, slope, there, _dot(move, z[t]), bound * weight[t], weight[t])
            for k in range(outputs):
                _add(theta[e, k], -length * slope[k], move)
        own_z = z[t, len(variance) - line.shape[1] :]
        _fit(loss, line, root, trace, parts[-1], target, slope, there, own_z, weight[t], line_forget)


@inner
def _normalize(log_weights: Any, weights: Any) -> None:
    top, total = log_weights.max(), _ZERO
    for p in range(len(weights)):
        weights[p] = np.exp(log_weights[p] - top)
        total += weights[p]
    for p in range(len(weights)):
        weights[p] /= total


@inner
def _bound(f: Any, target: Any, spread: Any) -> None:
    """Bring the target to within so many deviations of the prediction, and count the error."""
    far, total = np.float32(BOUND) * np.sqrt(spread[0]), _ZERO
    for k in range(len(f)):
        target[k] = min(max(target[k], f[k] - far), f[k] + far)
        total += (target[k] - f[k]) * (target[k] - f[k])
    spread[1] = min(spread[1] + _ONE, np.float32(REMEMBERED))
    spread[0] += (total / np.float32(len(f)) - spread[0]) / (spread[1] + _ONE)


@inner
def _weigh(log_weights: Any, losses: Any, weights: Any, share: Any, stakes: Any) -> None:
    least = losses.min()
    for p in range(len(losses)):
        log_weights[p] -= min(losses[p] - least, np.float32(MOST_APART))
    log_weights -= log_weights.max()
    if share > 0:
        _normalize(log_weights, weights)
        for p in range(len(losses)):
            log_weights[p] = np.log((_ONE - share) * weights[p] + share * stakes[p])


@inner
def _fit(
    loss: Any, line: Any, root: Any, trace: Any, f: Any, target: Any, slope: Any, curved: Any, z: Any, weight: Any,
    forget: Any,
) -> None:  # fmt: skip
    """Fit the line as ``Newton`` does, every output by itself."""
    _derivative(loss, f, target, slope)
    _curvatures(loss, f, curved)
    count = len(z)
    seen, moved = np.empty(count, dtype=np.float32), np.empty(count, dtype=np.float32)
    for k in range(len(line)):
        seen[:] = _ZERO
        for i in range(count):
            _add(seen, z[i], root[k, i])
        energy, bent = _dot(seen, seen), weight * curved[k]
        a = _ONE / (forget + bent * energy)
        shown = a * (bent - (_ONE - forget) / max(energy, np.float32(NOTHING)))
        left = max(_ONE - shown * energy, min(a, _ONE))
        gain = shown / (_ONE + np.sqrt(left))
        for i in range(count):
            moved[i] = _dot(root[k, i], seen)
        total = _ZERO
        for i in range(count):
            _add(root[k, i], -gain * moved[i], seen)
            total += _dot(root[k, i], root[k, i])
        if forget < 1 and total > trace[k]:
            root[k] *= np.sqrt(trace[k] / total)
        _add(line[k], -a * weight * slope[k], moved)


@inner
def _curvatures(loss: Any, f: Any, curved: Any) -> None:
    """Write a curvature for every output that C'' does not exceed."""
    top, total = f.max(), _ZERO
    for k in range(len(f)):
        total += np.exp(f[k] - top)
    for k in range(len(f)):
        if loss == _SQUARED:
            curved[k] = _TWO
        elif loss == _LOGISTIC:
            e = np.exp(-abs(f[k]))
            curved[k] = max(e / ((_ONE + e) * (_ONE + e)), np.float32(FLOOR))
        else:
            one = np.exp(f[k] - top) / total
            curved[k] = max(_TWO * one * (_ONE - one), np.float32(FLOOR))


@inner
def _length(loss: Any, f: Any, y: Any, slope: Any, there: Any, energy: Any, bound: Any, weight: Any) -> Any:
    """Return r as ``learners.rules.length`` does."""
    squares = _dot(slope, slope)
    low, high = _ONE / (_ONE + bound * energy), _ONE
    if loss == _SQUARED:
        return low
    for _ in range(HALVINGS):
        middle = np.sqrt(low * high)
        if _rise(loss, f, y, slope, there, energy, squares, middle, weight) >= 0:
            high = middle
        else:
            low = middle
    below = -_rise(loss, f, y, slope, there, energy, squares, low, weight)
    total = below + _rise(loss, f, y, slope, there, energy, squares, high, weight)
    share = below / total if total > 0 else below
    return low + min(max(share, _ZERO), _ONE) * (high - low)


@inner
def _rise(
    loss: Any, f: Any, y: Any, slope: Any, there: Any, energy: Any, squares: Any, length: Any, weight: Any
) -> Any:
    for k in range(len(f)):
        there[k] = f[k] - length * energy * slope[k]
    _derivative(loss, there, y, there)
    return length * squares - weight * _dot(slope, there)


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
def _curvature(loss: Any, f: Any, bound: Any) -> Any:
    """Return a sample's curvature, mean over outputs, in units of the bound and above the floor."""
    if loss == _SQUARED:
        return _ONE
    if loss == _LOGISTIC:
        e = np.exp(-abs(f[0]))
        return max(e / ((_ONE + e) * (_ONE + e)) / bound, _LEAST)
    top, total, mean = f.max(), _ZERO, _ZERO
    for k in range(len(f)):
        total += np.exp(f[k] - top)
    for k in range(len(f)):
        one = np.exp(f[k] - top) / total
        mean += one * (_ONE - one)
    return max(mean / (np.float32(len(f)) * bound), _LEAST)


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
