"""A CPU's fast path: rounds of ``Gossip`` as loops compiled by Numba, with seeds as the lanes of vectors.

XLA runs a round as a dozen passes over the models of all nodes. Here the models of one kernel at one node, under some
fifty seeds, go through all phases of ``omkl.algorithm`` while they are in the cache. Arrays end in the axis of seeds,
and every inner loop runs along it. Tests hold each quantizer and loss to the engine's.

Numba keeps what it compiled on disk and compiles anew when the file of a function changes, but not when a file it calls
into does: all loops belong in this one.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

from omkl.quantizers import LARGEST_STEP, SMALLEST_STEP
from omkl.simulator.waves import COSINE, HIGH, LOW, MIDDLE, SINE

Floats = npt.NDArray[np.float32]
Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

# Products may be fused into sums, but sums keep their order: the reductions of _features and _exp live on it.
_jit: Any = partial(njit, nogil=True, error_model="numpy", fastmath={"contract", "nsz"}, no_cfunc_wrapper=True)
compiled: Decorator = _jit(cache=True)
inner: Decorator = _jit(no_cpython_wrapper=True)  # for other loops alone to call, and compiled sooner

QSGD, NEAREST, EXACT = range(3)
LOGISTIC, SQUARED, SOFTMAX = range(3)
LOSS, SCORE, DISAGREEMENT, WEIGHTS = range(4)  # rows of what is recorded; the weights of P kernels are the last
SENT, CARRIED = range(2)  # rows of the traffic
FEW = 8  # levels, up to which their costs are a polynomial of them: vectors have no quick way to look them up

_ZERO, _HALF, _ONE, _TWO = (np.float32(value) for value in (0, 0.5, 1, 2))
_UNIT, _EIGHTH = np.float32(2.0**-16), np.float32(1 / 8)
_SMALLEST, _LARGEST = np.float32(SMALLEST_STEP), np.float32(LARGEST_STEP)
_QUARTERS, _H, _M, _L = (np.float32(value) for value in (2 / math.pi, HIGH, MIDDLE, LOW))
_S0, _S1, _S2 = (np.float32(value) for value in SINE)
_C0, _C1, _C2 = (np.float32(value) for value in COSINE)
# exp r = 1 + r + r^2 (1/2 + r E(r)) on |r| <= ln(2)/2, interpolated at Chebyshev nodes.
_E0, _E1, _E2, _E3 = (np.float32(value) for value in (0.16666576, 0.041666556, 0.008363179, 0.0013926184))
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
    amplitude: np.float32
    """Of the waves."""


class Prices(NamedTuple):
    """What ``wire.message_bytes`` charges for a message: bits of its parts, as in ``wire.Costs``."""

    levels: Floats
    """Of a level by its magnitude."""
    few: bool
    """Whether levels are so few that ``curve`` goes through their costs."""
    curve: tuple[np.float32, ...]
    """The coefficients of a polynomial."""
    last: np.float32
    near: np.float32
    far: np.float32
    silent: np.float32
    start: np.float32
    together: int
    """How many blocks make a number."""
    lengths: np.float32
    """Bytes that tell where numbers end."""
    steps: np.float32
    """Bytes of all steps at fixed width."""
    block: np.float32
    """Bytes of the levels of a block at fixed width."""
    frame: np.float32
    """Bytes of the rest of the frame; without a quantizer, of all of it."""


class Links(NamedTuple):
    """Neighbors in pairs, and their gossip weights: those of node j are ``ids[start[j] : start[j + 1]]``."""

    start: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    weights: Floats
    degrees: npt.NDArray[np.int64]


class Lanes(NamedTuple):
    """The network: models ``(J, P * C, 2D, S)``, hidden states of even and odd rounds, log weights ``(J, P, S)``."""

    theta: Floats
    hidden: Floats
    log_weights: Floats
    low: npt.NDArray[np.uint32]
    """Halves of the dither's keys, ``(J, S)``."""
    high: npt.NDArray[np.uint32]


class Scratch(NamedTuple):
    """Room for the round of a node: the model of one row, the waves of one kernel, the outputs of all."""

    v: Floats
    levels: Floats
    uniforms: Floats
    halves: Floats
    """The uniforms again: the first half of them, then the second."""
    waves: Floats
    sides: Floats
    """The waves again: the sines, then the cosines."""
    norms: Floats
    steps: Floats
    """Of all rows."""
    bits: Floats
    """Of the levels of all rows."""
    keys: npt.NDArray[np.uint32]
    outputs: Floats
    slopes: Floats
    ensemble: Floats
    values: Floats
    squares: Floats
    weights: Floats
    away: npt.NDArray[np.float64]
    """Sums over nodes are float64: in float32 a million nodes would cost four digits."""
    reference: Floats


def scratch(rows: int, n: int, seeds: int, kernels: int) -> Scratch:
    """Return room for models ``(rows, n, seeds)``."""

    def room(*shape: int) -> Floats:
        return np.empty((*shape, seeds), np.float32)

    uniforms, waves, outputs = room(rows, n), room(n), rows // kernels
    return Scratch(
        v=room(n),
        levels=room(n),
        uniforms=uniforms,
        halves=uniforms.reshape(2, -1, seeds),
        waves=waves,
        sides=waves.reshape(2, -1),
        norms=room(),
        steps=room(rows),
        bits=room(rows),
        keys=np.empty((2, seeds), np.uint32),
        outputs=room(kernels, outputs),
        slopes=room(outputs),
        ensemble=room(outputs),
        values=room(kernels),
        squares=room(kernels),
        weights=room(kernels),
        away=np.empty((rows, n, seeds)),
        reference=room(rows, n),
    )


@compiled
def advance(
    times: Any, lanes: Any, links: Any, angles: Any, y: Any, s: Any, prices: Any, every: Any, k: Any, recorded: Any,
    traffic: Any,
) -> None:  # fmt: skip
    """Take the network through rounds ``times``: angles ``(T, J, P, D * S)``, targets ``(T, J, C)``.

    Every round whose number plus one is a multiple of ``every`` is measured into ``recorded``, ``(..., 3 + P, S)`` in
    float64, and the bytes of its messages added to ``traffic``, ``(..., 2, S)``.
    """
    nodes, kernels = lanes.log_weights.shape[:2]
    row = 0
    for r in range(len(times)):
        t = times[r]
        hidden, fresh = lanes.hidden[t % 2], lanes.hidden[(t + 1) % 2]
        measured = (t + 1) % every == 0
        if measured:
            _clear(k.away, recorded[row])
        for j in range(nodes):
            theta = lanes.theta[j]
            if s.quantizer == QSGD:
                _dither(lanes.low[j], lanes.high[j], t, k.keys, k.halves)
            for p in range(kernels):
                if measured:
                    _exchange(j, p, theta, hidden, fresh, links, k, s, prices)
                else:
                    _exchange(j, p, theta, hidden, fresh, links, k, s, None)
                _features(angles[r, j, p], k.sides, s.amplitude)
                _predict(p, theta, k.waves, k.outputs[p], k.squares[p])
                if measured:
                    _spread(j, p, theta, k.reference, k.away, k.slopes, k.norms, recorded[row, DISAGREEMENT])
                _loss(k.outputs[p], y[r, j], k.values[p], k.slopes, s.loss)
                _learn(p, theta, k.waves, k.slopes, s)
            if measured:
                _charge(links.degrees[j], k.steps, k.bits, s, prices, traffic[row])
                _normalize(lanes.log_weights[j], k.weights, k.norms)
                _measure(k.outputs, k.weights, y[r, j], k.ensemble, k.slopes, k.norms, s.loss, recorded[row])
            _weigh(lanes.log_weights[j], k.values, k.squares, k.norms, s)
        if measured:
            _finish(nodes, k.away, recorded[row])
            row += 1


@inner
def _exchange(j: Any, p: Any, theta: Any, hidden: Any, fresh: Any, links: Any, k: Any, s: Any, prices: Any) -> None:
    """Mix the models of kernel p at node j, emit and absorb; count the bits of the levels, unless prices are None."""
    count = k.outputs.shape[1]
    for c in range(count):
        row = p * count + c
        own, after = hidden[j, row], fresh[j, row]
        _mix(j, row, theta[row], hidden, links, s.gamma, k.v)
        if s.quantizer == QSGD:
            if prices is None:
                _qsgd(k.v, k.uniforms[row], own, after, k.steps[row], k.norms, s, None, None, None)
            elif prices.few:
                _qsgd(k.v, k.uniforms[row], own, after, k.steps[row], k.norms, s, prices.curve, k.bits[row], None)
            else:
                _qsgd(k.v, k.uniforms[row], own, after, k.steps[row], k.norms, s, None, None, k.levels)
                _price(k.levels, prices, k.bits[row])
        elif s.quantizer == NEAREST:
            _nearest(k.v, k.levels, own, after, k.steps[row], k.norms, s)
            if prices is not None:
                _price(k.levels, prices, k.bits[row])
        else:
            _exact(k.v, own, after)


@inner
def _mix(j: Any, row: Any, theta: Any, hidden: Any, links: Any, gamma: Any, v: Any) -> None:
    """Mix a model of node j, and write how far it then lies from its hidden state."""
    n, seeds = v.shape
    first, last = links.start[j], links.start[j + 1] - 1
    own = hidden[j, row]
    for pair in range(first, last + 1):
        one, two = hidden[links.ids[pair, 0], row], hidden[links.ids[pair, 1], row]
        a, b = gamma * links.weights[pair, 0], gamma * links.weights[pair, 1]
        if pair < last:
            for i in range(n):
                for m in range(seeds):
                    pull = a * (one[i, m] - own[i, m]) + b * (two[i, m] - own[i, m])
                    v[i, m] = pull if pair == first else v[i, m] + pull
        else:
            for i in range(n):
                for m in range(seeds):
                    pull = a * (one[i, m] - own[i, m]) + b * (two[i, m] - own[i, m])
                    theta[i, m] += pull if pair == first else v[i, m] + pull
                    v[i, m] = theta[i, m] - own[i, m]


@inner
def _scramble(counter: Any, low: Any, high: Any) -> Any:
    x = np.uint32(counter * np.uint32(0x9E3779B9) + low)
    x = np.uint32((x ^ (x >> np.uint32(17))) * np.uint32(0xED5AD4BB))
    x = np.uint32((x ^ (x >> np.uint32(11)) ^ high) * np.uint32(0xAC4C1B51))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x31848BAB))
    return np.uint32(x ^ (x >> np.uint32(14)))


@inner
def _dither(low: Any, high: Any, t: Any, keys: Any, halves: Any) -> None:
    """Write ``noise.dither(noise.fold(key, t), ...)``, whose two halves come from the halves of the same words."""
    _, half, seeds = halves.shape
    first, second, now_low, now_high = halves[0], halves[1], keys[0], keys[1]
    for m in range(seeds):
        now_low[m] = _scramble(np.uint32(t), low[m], high[m])
        now_high[m] = _scramble(np.uint32(t), high[m], np.uint32(~low[m]))
    for i in range(half):
        for m in range(seeds):
            word = _scramble(np.uint32(i), now_low[m], now_high[m])
            first[i, m] = (np.float32(np.int32(word & np.uint32(0xFFFF))) + _HALF) * _UNIT
            second[i, m] = (np.float32(np.int32(word >> np.uint32(16))) + _HALF) * _UNIT


@inner
def _round_up(step: Any) -> Any:
    """Return ``quantizers.round_up(step)``: nine significant bits of a float32 are its upper half."""
    kept = min(step, _LARGEST) if step >= _SMALLEST else _ZERO
    return np.uint32((np.float32(kept).view(np.uint32) + np.uint32(0x7FFF)) & np.uint32(0xFFFF8000)).view(np.float32)


@inner
def _qsgd(
    v: Any, uniforms: Any, own: Any, after: Any, steps: Any, divisors: Any, s: Any, curve: Any, bits: Any, levels: Any
) -> None:
    """Add to the hidden state what the message of v = theta - h stands for.

    ``bits`` get what the levels cost by the ``curve``, ``levels`` the levels; what is None is left out of the program.
    """
    n, seeds = v.shape
    _squares(v, steps)
    for m in range(seeds):
        steps[m] = _round_up(np.sqrt(steps[m]) / (s.levels * s.scale))
        divisors[m] = max(steps[m], _SMALLEST) * s.scale
        if bits is not None:
            bits[m] = _ZERO
    for i in range(n):
        for m in range(seeds):
            level = np.floor(abs(v[i, m]) / divisors[m] + uniforms[i, m])
            level = level if level < s.levels else s.levels
            size = level * steps[m]
            after[i, m] = own[i, m] + (-size if v[i, m] < _ZERO else size)
            if bits is not None:
                bits[m] += _curve(level, curve)
            if levels is not None:
                levels[i, m] = level


@inner
def _curve(x: Any, c: Any) -> Any:
    return c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * (c[4] + x * (c[5] + x * (c[6] + x * c[7]))))))


@inner
def _price(levels: Any, prices: Any, bits: Any) -> None:
    """Write what levels cost."""
    n, seeds = levels.shape
    half = n // 2
    one, two, costs = levels[:half], levels[half:], prices.levels
    for m in range(seeds):
        bits[m] = _ZERO
    for i in range(half):
        if prices.few:
            for m in range(seeds):
                bits[m] += _curve(one[i, m], prices.curve) + _curve(two[i, m], prices.curve)
        else:
            for m in range(seeds):
                bits[m] += costs[np.int32(one[i, m])] + costs[np.int32(two[i, m])]


@inner
def _squares(v: Any, sums: Any) -> None:
    """Write the squared norms, from two entries at a time: sums are read and written half as often."""
    n, seeds = v.shape
    half = n // 2
    one, two = v[:half], v[half:]
    for m in range(seeds):
        sums[m] = _ZERO
    for i in range(half):
        for m in range(seeds):
            sums[m] += one[i, m] * one[i, m] + two[i, m] * two[i, m]


@inner
def _charge(degree: Any, steps: Any, bits: Any, s: Any, prices: Any, traffic: Any) -> None:
    """Add the bytes of a node's frame to what was sent, and once for each neighbor to what was carried."""
    for m in range(steps.shape[1]):
        size = prices.frame + (_ZERO if s.quantizer == EXACT else _body(m, steps, bits, prices))
        traffic[SENT, m] += size if degree else _ZERO
        traffic[CARRIED, m] += degree * size


@inner
def _body(m: Any, steps: Any, bits: Any, prices: Any) -> Any:
    """Return the bytes of steps and levels, in the shorter form; the blocks of a number from the last to the first."""
    rows = len(steps)
    coded, spoken = prices.lengths, _ZERO
    for first in range(0, rows, prices.together):
        last = min(first + prices.together, rows) - 1
        number, following = -prices.start, _ZERO
        for row in range(last, first - 1, -1):
            step = steps[row, m]
            if step > _ZERO:
                near = _TWO * step >= following and step < _TWO * following
                number += bits[row, m] + (prices.near if near else prices.last if row == last else prices.far)
                spoken += _ONE
                following = step
            elif following > _ZERO:
                number += prices.silent
        coded += max(np.ceil(number * _EIGHTH), _ZERO)
    return min(coded, np.ceil(spoken * prices.block) + prices.steps)


@inner
def _nearest(v: Any, levels: Any, own: Any, after: Any, steps: Any, norms: Any, s: Any) -> None:
    """Add to the hidden state the nearest levels of v times the fitted step."""
    n, seeds = v.shape
    _squares(v, norms)
    _widths(v, norms, steps, s)
    for i in range(n):
        for m in range(seeds):
            level = np.floor(abs(v[i, m]) / steps[m] + _HALF)
            levels[i, m] = level if level < s.levels else s.levels
    _fit(v, levels, steps, norms)
    for i in range(n):
        for m in range(seeds):
            size = steps[m] * levels[i, m]
            after[i, m] = own[i, m] + (-size if v[i, m] < _ZERO else size)


@inner
def _widths(v: Any, norms: Any, widths: Any, s: Any) -> None:
    """Write the width of a level, at most twice the largest entry; one for a vector of zeros."""
    n, seeds = v.shape
    for m in range(seeds):
        widths[m] = _ZERO
    for i in range(n):
        for m in range(seeds):
            widths[m] = max(widths[m], abs(v[i, m]))
    for m in range(seeds):
        width = min(np.sqrt(norms[m]) * s.scale, _TWO * widths[m])
        widths[m] = width if width > _ZERO else _ONE


@inner
def _fit(v: Any, levels: Any, steps: Any, norms: Any) -> None:
    """Write the steps that fit the levels best."""
    n, seeds = v.shape
    for m in range(seeds):
        steps[m] = norms[m] = _ZERO
    for i in range(n):
        for m in range(seeds):
            steps[m] += abs(v[i, m]) * levels[i, m]
            norms[m] += levels[i, m] * levels[i, m]
    for m in range(seeds):
        steps[m] = _round_up(steps[m] / max(norms[m], _ONE))


@inner
def _exact(v: Any, own: Any, after: Any) -> None:
    n, seeds = v.shape
    for i in range(n):
        for m in range(seeds):
            after[i, m] = own[i, m] + (v[i, m] if abs(v[i, m]) >= _SMALLEST else _ZERO)


@inner
def _features(angles: Any, sides: Any, scale: Any) -> None:
    """Write the D sines and D cosines of a kernel, times ``scale``, as ``waves`` computes them."""
    sines, cosines = sides[0], sides[1]
    for m in range(len(angles)):
        turns = np.floor(angles[m] * _QUARTERS + _HALF)
        r = ((angles[m] - turns * _H) - turns * _M) - turns * _L
        u = r * r
        sine = r + r * u * (_S0 + u * (_S1 + u * _S2))
        cosine = _ONE - _HALF * u + u * u * (_C0 + u * (_C1 + u * _C2))
        quarter = np.int32(turns)
        odd = (quarter & 1) == 1
        s, c = (cosine if odd else sine), (sine if odd else cosine)
        sines[m] = (-s if (quarter & 2) == 2 else s) * scale
        cosines[m] = (-c if ((quarter + 1) & 2) == 2 else c) * scale


@inner
def _predict(p: Any, theta: Any, z: Any, outputs: Any, squares: Any) -> None:
    """Write theta_p . z_p and |theta_p|^2."""
    count, seeds = outputs.shape
    half = len(z) // 2
    sines, cosines = z[:half], z[half:]
    for m in range(seeds):
        squares[m] = _ZERO
    for c in range(count):
        sums, one, two = outputs[c], theta[p * count + c, :half], theta[p * count + c, half:]
        for m in range(seeds):
            sums[m] = _ZERO
        for i in range(half):
            for m in range(seeds):
                sums[m] += one[i, m] * sines[i, m] + two[i, m] * cosines[i, m]
                squares[m] += one[i, m] * one[i, m] + two[i, m] * two[i, m]


@inner
def _exp(x: Any) -> Any:
    """Return exp(x) of x <= 0, within two units of the last place: 2^k e^r, the power put together from bits."""
    clipped = max(x, np.float32(-87))
    k = np.floor(clipped * _LOG2E + _HALF)
    r = (clipped - k * _LN2_HIGH) - k * _LN2_LOW
    power = np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)
    return (_ONE + r + r * r * (_HALF + r * (_E0 + r * (_E1 + r * (_E2 + r * _E3))))) * power


@inner
def _log1p(e: Any) -> Any:
    """Return ln(1 + e) for 0 <= e <= 1: twice the inverse hyperbolic tangent of e / (2 + e), by its series."""
    s = e / (_TWO + e)
    u = s * s
    high = np.float32(1 / 9) + u * (np.float32(1 / 11) + u * (np.float32(1 / 13) + u * np.float32(1 / 15)))
    return _TWO * s * (_ONE + u * (np.float32(1 / 3) + u * (np.float32(1 / 5) + u * (np.float32(1 / 7) + u * high))))


@inner
def _loss(f: Any, y: Any, values: Any, slopes: Any, kind: Any) -> None:
    """Write C(f, y) and its derivative."""
    count, seeds = f.shape
    for m in range(seeds):
        values[m] = _ZERO
    if kind == SOFTMAX:
        _softmax(f, y, values, slopes)
        return
    for c in range(count):
        output, slope, target = f[c], slopes[c], y[c]
        if kind == SQUARED:
            for m in range(seeds):
                apart = output[m] - target
                values[m] += apart * apart
                slope[m] = _TWO * apart
        else:
            for m in range(seeds):
                margin = -target * output[m]
                e = _exp(-abs(margin))
                values[m] += max(margin, _ZERO) + _log1p(e)
                slope[m] = -target * (_ONE if margin >= _ZERO else e) / (_ONE + e)


@inner
def _softmax(f: Any, y: Any, values: Any, slopes: Any) -> None:
    for m in range(len(values)):
        top, total, chosen = f[0, m], _ZERO, _ZERO
        for c in range(len(y)):
            top = max(top, f[c, m])
            chosen += f[c, m] * y[c]
        for c in range(len(y)):
            slopes[c, m] = _exp(f[c, m] - top)
            total += slopes[c, m]
        values[m] = np.log(total) + top - chosen
        for c in range(len(y)):
            slopes[c, m] = slopes[c, m] / total - y[c]


@inner
def _learn(p: Any, theta: Any, z: Any, slopes: Any, s: Any) -> None:
    count, seeds = slopes.shape
    shrink = _TWO * s.regularization
    for c in range(count):
        model, slope = theta[p * count + c], slopes[c]
        for i in range(len(z)):
            for m in range(seeds):
                model[i, m] -= s.eta * (slope[m] * z[i, m] + shrink * model[i, m])


@inner
def _weigh(log_weights: Any, values: Any, squares: Any, top: Any, s: Any) -> None:
    kernels, seeds = values.shape
    for m in range(seeds):
        top[m] = -np.float32(math.inf)
    for p in range(kernels):
        for m in range(seeds):
            log_weights[p, m] -= s.hedge_rate * (values[p, m] + s.regularization * squares[p, m])
            top[m] = max(top[m], log_weights[p, m])
    for p in range(kernels):
        for m in range(seeds):
            log_weights[p, m] -= top[m]


@inner
def _normalize(log_weights: Any, weights: Any, total: Any) -> None:
    kernels, seeds = weights.shape
    for m in range(seeds):
        total[m] = _ZERO
    for p in range(kernels):
        for m in range(seeds):
            weights[p, m] = _exp(log_weights[p, m])
            total[m] += weights[p, m]
    for p in range(kernels):
        for m in range(seeds):
            weights[p, m] /= total[m]


@inner
def _clear(away: Any, sums: Any) -> None:
    rows, n, seeds = away.shape
    for row in range(len(sums)):
        for m in range(seeds):
            sums[row, m] = _ZERO
    for row in range(rows):
        for i in range(n):
            for m in range(seeds):
                away[row, i, m] = _ZERO


@inner
def _spread(j: Any, p: Any, theta: Any, reference: Any, away: Any, slopes: Any, row_squares: Any, squares: Any) -> None:
    """Add up over nodes how far the models of kernel p lie from node 0's, which is where they are near."""
    count, seeds = slopes.shape
    for row in range(p * count, p * count + count):
        model, first, sums = theta[row], reference[row], away[row]
        if j == 0:
            for i in range(len(model)):
                for m in range(seeds):
                    first[i, m] = model[i, m]
        for m in range(seeds):
            row_squares[m] = _ZERO
        for i in range(len(model)):
            for m in range(seeds):
                apart = model[i, m] - first[i, m]
                sums[i, m] += apart
                row_squares[m] += apart * apart
        for m in range(seeds):
            squares[m] += row_squares[m]


@inner
def _measure(outputs: Any, weights: Any, y: Any, ensemble: Any, slopes: Any, losses: Any, kind: Any, sums: Any) -> None:
    """Add up over nodes the loss, the score and the weights."""
    kernels, count, seeds = outputs.shape
    for c in range(count):
        for m in range(seeds):
            ensemble[c, m] = _ZERO
        for p in range(kernels):
            for m in range(seeds):
                ensemble[c, m] += weights[p, m] * outputs[p, c, m]
    _loss(ensemble, y, losses, slopes, kind)
    _score(ensemble, y, sums[SCORE], kind)
    for m in range(seeds):
        sums[LOSS, m] += losses[m]
    for p in range(kernels):
        for m in range(seeds):
            sums[WEIGHTS + p, m] += weights[p, m]


@inner
def _score(f: Any, y: Any, sums: Any, kind: Any) -> None:
    for m in range(len(sums)):
        if kind == SQUARED:
            sums[m] = math.nan
        elif kind == LOGISTIC:
            sums[m] += (_ONE + np.sign(y[0] * f[0, m])) / _TWO
        else:
            best, target = 0, 0
            for c in range(1, len(y)):
                best = c if f[c, m] > f[best, m] else best
                target = c if y[c] > y[target] else target
            sums[m] += _ONE if best == target else _ZERO


@inner
def _finish(nodes: Any, away: Any, sums: Any) -> None:
    """Turn sums over nodes into means, and the distances into the disagreement."""
    rows, n, seeds = away.shape
    share = 1 / nodes
    for row in range(len(sums)):
        for m in range(seeds):
            sums[row, m] *= share
    for r in range(rows):
        for i in range(n):
            for m in range(seeds):
                mean = away[r, i, m] * share
                sums[DISAGREEMENT, m] -= mean * mean
    for m in range(seeds):
        sums[DISAGREEMENT, m] = np.sqrt(max(sums[DISAGREEMENT, m], 0.0))
