"""A CPU's fast path: rounds of ``Gossip`` as loops compiled by Numba, with seeds as the lanes of vectors.

XLA runs a round as a dozen passes over the models of all nodes. Here the models of one node, under some fifty seeds,
go through all phases of ``omkl.algorithm`` while they are in the cache. Arrays end in the axis of seeds, and every
inner loop runs along it. Tests hold each quantizer and loss to the engine's.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from omkl.quantizers import LARGEST_STEP, SMALLEST_STEP
from omkl.simulator.waves import COSINE, HIGH, LOW, MIDDLE, SINE

Floats = npt.NDArray[np.float32]

# Sums may be taken in any order and products fused into them; infinities and NaN keep their meaning.
compiled = njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract", "nsz"})

QSGD, NEAREST, EXACT = range(3)
LOGISTIC, SQUARED, SOFTMAX = range(3)
LOSS, SCORE, DISAGREEMENT, WEIGHTS = range(4)  # rows of what is recorded; the weights of P kernels are the last

_ZERO, _HALF, _ONE, _TWO = (np.float32(value) for value in (0, 0.5, 1, 2))
_UNIT = np.float32(2.0**-16)
_SMALLEST, _LARGEST = np.float32(SMALLEST_STEP), np.float32(LARGEST_STEP)
_QUARTERS, _H, _M, _L = (np.float32(value) for value in (2 / math.pi, HIGH, MIDDLE, LOW))
_S0, _S1, _S2 = (np.float32(value) for value in SINE)
_C0, _C1, _C2 = (np.float32(value) for value in COSINE)
_LOG2E, _LN2_HIGH, _LN2_LOW = (np.float32(value) for value in (1 / math.log(2), 0.693359375, -2.12194440e-4))


class Settings(NamedTuple):
    """The numbers of a method, and its quantizer and loss by code."""

    gamma: np.float32
    eta: np.float32
    hedge_rate: np.float32
    regularization: np.float32
    loss: int
    quantizer: int
    levels: np.float32
    """The largest level."""
    scale: np.float32
    """QSGD: tau. Nearest: the width of a level in norms."""


class Links(NamedTuple):
    """The neighbors of node j are ``ids[start[j] : start[j + 1]]``, with their gossip weights."""

    start: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    weights: Floats


class Lanes(NamedTuple):
    """The network: models ``(J, P * C, 2D, S)``, hidden states of even and odd rounds, log weights ``(J, P, S)``."""

    theta: Floats
    hidden: Floats
    log_weights: Floats
    low: npt.NDArray[np.uint32]
    """Halves of the dither's keys, ``(J, S)``."""
    high: npt.NDArray[np.uint32]


class Scratch(NamedTuple):
    """What a node needs within its round."""

    v: Floats
    uniforms: Floats
    levels: Floats
    steps: Floats
    low: npt.NDArray[np.uint32]
    high: npt.NDArray[np.uint32]
    waves: Floats
    outputs: Floats
    squares: Floats
    values: Floats
    slopes: Floats
    weights: Floats
    total: Floats
    ensemble: Floats
    reference: Floats
    away: Floats


@compiled
def project(X: Any, V: Any, angles: Any) -> None:
    """Write X V for V ``(d, B, M)``, block by block and four inputs at a time, so that little is read twice."""
    inputs, blocks, width = V.shape
    fours = inputs // 4
    for k in range(blocks):
        for b in range(len(X)):
            for m in range(width):
                angles[b, k, m] = _ZERO
            for four in range(fours):
                q = 4 * four
                x0, x1, x2, x3 = X[b, q], X[b, q + 1], X[b, q + 2], X[b, q + 3]
                for m in range(width):
                    angles[b, k, m] += x0 * V[q, k, m] + x1 * V[q + 1, k, m] + x2 * V[q + 2, k, m] + x3 * V[q + 3, k, m]
            for q in range(4 * fours, inputs):
                x = X[b, q]
                for m in range(width):
                    angles[b, k, m] += x * V[q, k, m]


@compiled
def advance(times: Any, lanes: Any, links: Any, angles: Any, y: Any, s: Any, every: Any, recorded: Any) -> None:
    """Take the network through rounds ``times``: angles ``(T, J, P, D, S)``, targets ``(T, J, C)``.

    Every round whose number plus one is a multiple of ``every`` is measured into ``recorded``, ``(..., 3 + P, S)``.
    """
    nodes, kernels = lanes.theta.shape[0], lanes.log_weights.shape[1]
    k = _scratch(lanes.theta, kernels, y.shape[2])
    z = k.waves.reshape(kernels, lanes.theta.shape[2], lanes.theta.shape[3])
    row = 0
    for r in range(len(times)):
        t = times[r]
        hidden, fresh = lanes.hidden[t % 2], lanes.hidden[(t + 1) % 2]
        measured = (t + 1) % every == 0
        for j in range(nodes):
            _mix(j, lanes.theta, hidden, links, s.gamma, k.v)
            if s.quantizer == QSGD:
                _dither(j, lanes.low, lanes.high, t, k.low, k.high, k.uniforms)
                _qsgd(k.v, k.uniforms.reshape(k.v.shape), k.steps, s)
            elif s.quantizer == NEAREST:
                _nearest(k.v, k.levels, k.steps, k.total, s)
            else:
                _exact(k.v)
            _absorb(j, hidden, fresh, k.v)
            _features(j, angles[r], k.waves)
            _predict(j, lanes.theta, z, k.outputs, k.squares)
            if measured:
                _normalize(j, lanes.log_weights, k.weights, k.total)
                _measure(j, lanes.theta, y[r], k, s.loss, recorded[row])
            _loss(k.outputs, y[r, j], k.values, k.slopes, s.loss)
            _weigh(j, lanes.log_weights, k.values, k.squares, k.total, s)
            _learn(j, lanes.theta, z, k.slopes, s)
        if measured:
            _finish(nodes, k.away, recorded[row])
            row += 1


@compiled
def _scratch(theta: Any, kernels: Any, outputs: Any) -> Any:
    _, rows, n, seeds = theta.shape
    f = np.float32
    return Scratch(
        np.empty((rows, n, seeds), f),
        np.empty((2, rows * n // 2, seeds), f),
        np.empty((rows, n, seeds), f),
        np.empty((rows, seeds), f),
        np.empty(seeds, np.uint32),
        np.empty(seeds, np.uint32),
        np.empty((kernels, 2, n // 2, seeds), f),
        np.empty((kernels, outputs, seeds), f),
        np.empty((kernels, seeds), f),
        np.empty((kernels, seeds), f),
        np.empty((kernels, outputs, seeds), f),
        np.empty((kernels, seeds), f),
        np.empty(seeds, f),
        np.empty((1, outputs, seeds), f),
        np.empty((rows, n, seeds), f),
        np.empty((rows, n, seeds), f),
    )


@compiled
def _mix(j: Any, theta: Any, hidden: Any, links: Any, gamma: Any, v: Any) -> None:
    """Mix the models of node j, and write how far they then lie from its hidden state."""
    rows, n, seeds = v.shape
    first, last = links.start[j], links.start[j + 1]
    for r in range(rows):
        for i in range(n):
            for m in range(seeds):
                v[r, i, m] = _ZERO
            for k in range(first, last):
                weight, other = gamma * links.weights[k], links.ids[k]
                for m in range(seeds):
                    v[r, i, m] += weight * (hidden[other, r, i, m] - hidden[j, r, i, m])
            for m in range(seeds):
                theta[j, r, i, m] += v[r, i, m]
                v[r, i, m] = theta[j, r, i, m] - hidden[j, r, i, m]


@compiled
def _scramble(counter: Any, low: Any, high: Any) -> Any:
    x = np.uint32(counter * np.uint32(0x9E3779B9) + low)
    x = np.uint32((x ^ (x >> np.uint32(17))) * np.uint32(0xED5AD4BB))
    x = np.uint32((x ^ (x >> np.uint32(11)) ^ high) * np.uint32(0xAC4C1B51))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x31848BAB))
    return np.uint32(x ^ (x >> np.uint32(14)))


@compiled
def _dither(j: Any, low: Any, high: Any, t: Any, now_low: Any, now_high: Any, uniforms: Any) -> None:
    """Write ``noise.dither(noise.fold(key, t), ...)``, whose two halves come from the halves of the same words."""
    _, half, seeds = uniforms.shape
    for m in range(seeds):
        now_low[m] = _scramble(np.uint32(t), low[j, m], high[j, m])
        now_high[m] = _scramble(np.uint32(t), high[j, m], np.uint32(~low[j, m]))
    for i in range(half):
        for m in range(seeds):
            word = _scramble(np.uint32(i), now_low[m], now_high[m])
            uniforms[0, i, m] = (np.float32(np.int32(word & np.uint32(0xFFFF))) + _HALF) * _UNIT
            uniforms[1, i, m] = (np.float32(np.int32(word >> np.uint32(16))) + _HALF) * _UNIT


@compiled
def _round_up(steps: Any) -> None:
    """Replace steps by ``quantizers.round_up``: nine significant bits of a float32 are its upper half."""
    bits = steps.view(np.uint32)
    rows, seeds = steps.shape
    for r in range(rows):
        for m in range(seeds):
            steps[r, m] = min(steps[r, m], _LARGEST) if steps[r, m] >= _SMALLEST else _ZERO
        for m in range(seeds):
            bits[r, m] = (bits[r, m] + np.uint32(0x7FFF)) & np.uint32(0xFFFF8000)


@compiled
def _qsgd(v: Any, uniforms: Any, steps: Any, s: Any) -> None:
    """Replace the rows of v = theta - h by what their messages stand for."""
    rows, n, seeds = v.shape
    parts = s.levels * s.scale
    for r in range(rows):
        for m in range(seeds):
            steps[r, m] = _ZERO
        for i in range(n):
            for m in range(seeds):
                steps[r, m] += v[r, i, m] * v[r, i, m]
        for m in range(seeds):
            steps[r, m] = np.sqrt(steps[r, m]) / parts
    _round_up(steps)
    for r in range(rows):
        for i in range(n):
            for m in range(seeds):
                divisor = max(steps[r, m], _SMALLEST) * s.scale
                level = np.floor(abs(v[r, i, m]) / divisor + uniforms[r, i, m])
                size = (level if level < s.levels else s.levels) * steps[r, m]
                v[r, i, m] = -size if v[r, i, m] < _ZERO else size


@compiled
def _nearest(v: Any, levels: Any, steps: Any, norms: Any, s: Any) -> None:
    """Replace the rows of v by their nearest levels times the fitted step."""
    rows, n, seeds = v.shape
    for r in range(rows):
        for m in range(seeds):
            steps[r, m] = norms[m] = _ZERO
        for i in range(n):
            for m in range(seeds):
                norms[m] += v[r, i, m] * v[r, i, m]
                steps[r, m] = max(steps[r, m], abs(v[r, i, m]))
        for m in range(seeds):
            width = min(np.sqrt(norms[m]) * s.scale, _TWO * steps[r, m])
            steps[r, m] = width if width > _ZERO else _ONE
        for i in range(n):
            for m in range(seeds):
                level = np.floor(abs(v[r, i, m]) / steps[r, m] + _HALF)
                levels[r, i, m] = level if level < s.levels else s.levels
        for m in range(seeds):
            steps[r, m] = norms[m] = _ZERO
        for i in range(n):
            for m in range(seeds):
                steps[r, m] += abs(v[r, i, m]) * levels[r, i, m]
                norms[m] += levels[r, i, m] * levels[r, i, m]
        for m in range(seeds):
            steps[r, m] /= max(norms[m], _ONE)
    _round_up(steps)
    for r in range(rows):
        for i in range(n):
            for m in range(seeds):
                size = steps[r, m] * levels[r, i, m]
                v[r, i, m] = -size if v[r, i, m] < _ZERO else size


@compiled
def _exact(v: Any) -> None:
    rows, n, seeds = v.shape
    for r in range(rows):
        for i in range(n):
            for m in range(seeds):
                v[r, i, m] = v[r, i, m] if abs(v[r, i, m]) >= _SMALLEST else _ZERO


@compiled
def _absorb(j: Any, hidden: Any, fresh: Any, v: Any) -> None:
    rows, n, seeds = v.shape
    for r in range(rows):
        for i in range(n):
            for m in range(seeds):
                fresh[j, r, i, m] = hidden[j, r, i, m] + v[r, i, m]


@compiled
def _features(j: Any, angles: Any, waves: Any) -> None:
    """Write the D sines and D cosines of every kernel, over sqrt(D), as ``waves`` computes them."""
    kernels, _, features, seeds = waves.shape
    scale = np.float32(1 / math.sqrt(features))
    for p in range(kernels):
        for i in range(features):
            for m in range(seeds):
                angle = angles[j, p, i, m]
                turns = np.floor(angle * _QUARTERS + _HALF)
                r = ((angle - turns * _H) - turns * _M) - turns * _L
                u = r * r
                sine = r + r * u * (_S0 + u * (_S1 + u * _S2))
                cosine = _ONE - _HALF * u + u * u * (_C0 + u * (_C1 + u * _C2))
                quarter = np.int32(turns)
                odd = (quarter & 1) == 1
                s, c = (cosine if odd else sine), (sine if odd else cosine)
                waves[p, 0, i, m] = (-s if (quarter & 2) == 2 else s) * scale
                waves[p, 1, i, m] = (-c if ((quarter + 1) & 2) == 2 else c) * scale


@compiled
def _predict(j: Any, theta: Any, z: Any, outputs: Any, squares: Any) -> None:
    """Write theta_p . z_p and |theta_p|^2."""
    kernels, count, seeds = outputs.shape
    for p in range(kernels):
        for m in range(seeds):
            squares[p, m] = _ZERO
        for c in range(count):
            for m in range(seeds):
                outputs[p, c, m] = _ZERO
            for i in range(z.shape[1]):
                for m in range(seeds):
                    model = theta[j, p * count + c, i, m]
                    outputs[p, c, m] += model * z[p, i, m]
                    squares[p, m] += model * model


@compiled
def _exp(x: Any) -> None:
    """Replace x <= 0 by exp(x), within two units of the last place: 2^k e^r, the power put together from bits."""
    bits = np.empty(len(x), np.int32)
    powers = bits.view(np.float32)
    for m in range(len(x)):
        clipped = max(x[m], np.float32(-87))
        k = np.floor(clipped * _LOG2E + _HALF)
        r = (clipped - k * _LN2_HIGH) - k * _LN2_LOW
        bits[m] = (np.int32(k) + np.int32(127)) << np.int32(23)
        tail = np.float32(0.04166796) + r * (np.float32(0.0083345) + r * np.float32(0.00138888))
        x[m] = _ONE + r + r * r * (_HALF + r * (np.float32(0.16666667) + r * tail))
    for m in range(len(x)):
        x[m] *= powers[m]


@compiled
def _log1p(e: Any) -> Any:
    """Return ln(1 + e) for 0 <= e <= 1: twice the inverse hyperbolic tangent of e / (2 + e), by its series."""
    s = e / (_TWO + e)
    u = s * s
    high = np.float32(1 / 9) + u * (np.float32(1 / 11) + u * (np.float32(1 / 13) + u * np.float32(1 / 15)))
    return _TWO * s * (_ONE + u * (np.float32(1 / 3) + u * (np.float32(1 / 5) + u * (np.float32(1 / 7) + u * high))))


@compiled
def _loss(f: Any, y: Any, values: Any, slopes: Any, kind: Any) -> None:
    """Write C(f_p, y) and its derivative for every kernel; ``slopes`` may be ``f``."""
    kernels, count, seeds = f.shape
    for p in range(kernels):
        if kind == SOFTMAX:
            _softmax(f[p], y, values[p], slopes[p])
            continue
        for m in range(seeds):
            values[p, m] = _ZERO
        for c in range(count):
            target = y[c]
            if kind == SQUARED:
                for m in range(seeds):
                    apart = f[p, c, m] - target
                    values[p, m] += apart * apart
                    slopes[p, c, m] = _TWO * apart
            else:
                _logistic(f[p, c], target, values[p], slopes[p, c])


@compiled
def _logistic(f: Any, y: Any, values: Any, slopes: Any) -> None:
    e = np.empty(len(f), np.float32)
    for m in range(len(f)):
        e[m] = -abs(y * f[m])
    _exp(e)
    for m in range(len(f)):
        margin = -y * f[m]
        values[m] += max(margin, _ZERO) + _log1p(e[m])
        slopes[m] = -y * (_ONE if margin >= _ZERO else e[m]) / (_ONE + e[m])


@compiled
def _softmax(f: Any, y: Any, values: Any, slopes: Any) -> None:
    for m in range(len(values)):
        top, total, chosen = f[0, m], _ZERO, _ZERO
        for c in range(len(y)):
            top = max(top, f[c, m])
        for c in range(len(y)):
            chosen += f[c, m] * y[c]
        for c in range(len(y)):
            slopes[c, m] = np.exp(f[c, m] - top)
            total += slopes[c, m]
        values[m] = np.log(total) + top - chosen
        for c in range(len(y)):
            slopes[c, m] = slopes[c, m] / total - y[c]


@compiled
def _weigh(j: Any, log_weights: Any, values: Any, squares: Any, top: Any, s: Any) -> None:
    kernels, seeds = values.shape
    for m in range(seeds):
        top[m] = -np.float32(math.inf)
    for p in range(kernels):
        for m in range(seeds):
            log_weights[j, p, m] -= s.hedge_rate * (values[p, m] + s.regularization * squares[p, m])
            top[m] = max(top[m], log_weights[j, p, m])
    for p in range(kernels):
        for m in range(seeds):
            log_weights[j, p, m] -= top[m]


@compiled
def _learn(j: Any, theta: Any, z: Any, slopes: Any, s: Any) -> None:
    kernels, count, seeds = slopes.shape
    shrink = _TWO * s.regularization
    for p in range(kernels):
        for c in range(count):
            for i in range(z.shape[1]):
                for m in range(seeds):
                    gradient = slopes[p, c, m] * z[p, i, m] + shrink * theta[j, p * count + c, i, m]
                    theta[j, p * count + c, i, m] -= s.eta * gradient


@compiled
def _normalize(j: Any, log_weights: Any, weights: Any, total: Any) -> None:
    kernels, seeds = weights.shape
    for m in range(seeds):
        total[m] = _ZERO
    for p in range(kernels):
        for m in range(seeds):
            weights[p, m] = log_weights[j, p, m]
        _exp(weights[p])
        for m in range(seeds):
            total[m] += weights[p, m]
    for p in range(kernels):
        for m in range(seeds):
            weights[p, m] /= total[m]


@compiled
def _measure(j: Any, theta: Any, y: Any, k: Any, kind: Any, sums: Any) -> None:
    """Add up over nodes: loss, score, weights, and the models' distance from node 0's, which is where they are near."""
    kernels, count, seeds = k.outputs.shape
    rows, n, _ = k.away.shape
    if j == 0:
        sums[:] = _ZERO
        k.away[:] = _ZERO
        k.reference[:] = theta[0]
    for c in range(count):
        for m in range(seeds):
            k.ensemble[0, c, m] = _ZERO
        for p in range(kernels):
            for m in range(seeds):
                k.ensemble[0, c, m] += k.weights[p, m] * k.outputs[p, c, m]
    _score(k.ensemble[0], y[j], sums[SCORE], kind)
    _loss(k.ensemble, y[j], k.values, k.ensemble, kind)
    for m in range(seeds):
        sums[LOSS, m] += k.values[0, m]
    for p in range(kernels):
        for m in range(seeds):
            sums[WEIGHTS + p, m] += k.weights[p, m]
    for r in range(rows):
        for i in range(n):
            for m in range(seeds):
                apart = theta[j, r, i, m] - k.reference[r, i, m]
                k.away[r, i, m] += apart
                sums[DISAGREEMENT, m] += apart * apart


@compiled
def _score(f: Any, y: Any, sums: Any, kind: Any) -> None:
    for m in range(len(sums)):
        if kind == SQUARED:
            sums[m] = math.nan
        elif kind == LOGISTIC:
            sums[m] += (_ONE + np.sign(y[0] * f[0, m])) / _TWO
        else:
            sums[m] += _ONE if np.argmax(f[:, m]) == np.argmax(y) else _ZERO


@compiled
def _finish(nodes: Any, away: Any, sums: Any) -> None:
    """Turn sums over nodes into means, and the distances into the disagreement."""
    rows, n, seeds = away.shape
    share = np.float32(1 / nodes)
    for row in range(len(sums)):
        for m in range(seeds):
            sums[row, m] *= share
    for r in range(rows):
        for i in range(n):
            for m in range(seeds):
                mean = away[r, i, m] * share
                sums[DISAGREEMENT, m] -= mean * mean
    for m in range(seeds):
        sums[DISAGREEMENT, m] = np.sqrt(max(sums[DISAGREEMENT, m], _ZERO))
