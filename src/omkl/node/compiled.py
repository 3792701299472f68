"""The two halves of a node's round as loops compiled by Numba; tests hold them to ``omkl.algorithm``.

A node wakes for a message of fifty bytes with its caches full of other processes' data. A dozen NumPy calls then cost
more than the arithmetic: one loop touches the models and little else.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

from omkl.algorithm import State
from omkl.features import Features
from omkl.learners import SGD
from omkl.losses import Logistic, Softmax, Squared
from omkl.methods import Gossip
from omkl.methods.plain import is_plain
from omkl.quantizers import LARGEST_STEP, QSGD, SMALLEST_STEP, Exact, Message, Nearest

Floats = npt.NDArray[np.float32]

LOSSES: tuple[type, ...] = (Logistic, Squared, Softmax)
QUANTIZERS: tuple[type, ...] = (QSGD, Nearest, Exact)
_LOGISTIC, _SQUARED, _ = range(len(LOSSES))
_QSGD, _NEAREST, _EXACT = range(len(QUANTIZERS))
_ZERO, _HALF, _ONE, _TWO = (np.float32(value) for value in (0, 0.5, 1, 2))
_SMALLEST, _LARGEST = np.float32(SMALLEST_STEP), np.float32(LARGEST_STEP)

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

_jit: Any = partial(njit, error_model="numpy", no_cfunc_wrapper=True)
compiled: Decorator = _jit(cache=True)
inner: Decorator = _jit(no_cpython_wrapper=True)  # for other loops alone to call, and compiled sooner


def knows(method: Gossip) -> bool:
    """Return whether these loops compute what a method says."""
    return is_plain(method, LOSSES, QUANTIZERS)


class Compiled:
    """The rounds of a method that these loops know."""

    def __init__(self, method: Gossip, shape: tuple[int, int, int]) -> None:
        channel, n = method.channel.quantizer, 2 * method.bank.features
        most, scale = 0.0, 1.0
        if isinstance(channel, QSGD):
            most, scale = channel.levels, channel.tau(n)
        elif isinstance(channel, Nearest):
            most, scale = channel.most(n), channel.step / math.sqrt(n)
        assert isinstance(method.learner, SGD)
        self._gossip = np.array([method.mixing.step, most, scale], dtype=np.float32)
        self._learn = np.array([method.learner.eta, method.hedge_rate, method.regularization], dtype=np.float32)
        self._quantizer, self._loss = QUANTIZERS.index(type(channel)), LOSSES.index(type(method.objective))
        self._levels = np.float32 if isinstance(channel, Exact) else np.int16
        self._compile(np.zeros(shape, dtype=np.float32))

    def _compile(self, theta: Floats) -> None:
        """Compile, or load what was compiled: neighbors would not wait for it in the first round."""
        state = State(theta, theta, theta[:, 0, 0].copy(), ())
        self.gossip(state, theta[None], np.zeros(1, dtype=np.float32), None, 0)
        self.learn(
            state,
            Features(np.zeros((len(theta), theta.shape[-1] // 2, 1), dtype=np.float32)),
            theta[0, 0, :1],
            theta[0, :, 0].copy(),
        )

    def gossip(
        self, state: State, copies: Floats, weights: Floats, uniforms: Floats | None, round_: int, heard: float = 1.0
    ) -> tuple[State, Message, bool]:
        """Return state and message after mixing, emitting and absorbing, and if they are finite."""
        theta, hidden = state.theta, state.hidden
        levels = np.empty(theta.shape, dtype=self._levels)
        step = np.empty((*theta.shape[:-1], 1), dtype=np.float32)
        dither = theta if uniforms is None else uniforms  # a quantizer without dither does not look at it
        mixed, after = np.empty_like(theta), np.empty_like(theta)
        is_finite = gossip(
            theta, hidden, copies, weights, dither, self._gossip, self._quantizer, mixed, after, levels, step
        )
        return State(mixed, after, state.log_weights, state.memory), Message(levels, step), is_finite

    def learn(self, state: State, made: Features, x: Floats, y: Floats) -> tuple[State, Floats, float, bool]:
        """Return the state after a sample, the output and its loss from before it, and whether the state is sound."""
        theta, hidden, log_weights, memory, *_ = state
        learned, weighed, output = np.empty_like(theta), np.empty_like(log_weights), np.empty_like(y)
        loss, is_sound = learn(
            theta, log_weights, made.frequencies, x, y, self._learn, self._loss, learned, weighed, output
        )
        return State(learned, hidden, weighed, memory), output, loss, is_sound


@compiled
def gossip(
    theta: Any, hidden: Any, copies: Any, weights: Any, uniforms: Any, numbers: Any, quantizer: Any,
    mixed: Any, after: Any, levels: Any, steps: Any,
) -> Any:  # fmt: skip
    """Write models, hidden state, levels and steps (lines 8, 9 and 12); return whether the first two are finite."""
    kernels, outputs, n = theta.shape
    gamma, most, scale = numbers
    v, total = np.empty(n, dtype=np.float32), _ZERO
    for p in range(kernels):
        for c in range(outputs):
            own = hidden[p, c]
            for i in range(n):
                pull = _ZERO
                for k in range(len(weights)):
                    pull += weights[k] * (copies[k, p, c, i] - own[i])
                mixed[p, c, i] = theta[p, c, i] + gamma * pull
                v[i] = mixed[p, c, i] - own[i]
                total += mixed[p, c, i]
            if quantizer == _QSGD:
                steps[p, c, 0] = _qsgd(v, uniforms[p, c], most, scale, levels[p, c])
            elif quantizer == _NEAREST:
                steps[p, c, 0] = _nearest(v, most, scale, levels[p, c])
            else:
                steps[p, c, 0] = _exact(v, levels[p, c])
            for i in range(n):
                after[p, c, i] = own[i] + steps[p, c, 0] * np.float32(levels[p, c, i])
                total += after[p, c, i]
    return np.isfinite(total)


@inner
def _exact(v: Any, levels: Any) -> Any:
    for i in range(len(v)):
        levels[i] = v[i] if abs(v[i]) >= _SMALLEST else _ZERO
    return _ONE


@inner
def _qsgd(v: Any, uniforms: Any, most: Any, tau: Any, levels: Any) -> Any:
    step = _round_up(_norm(v) / (most * tau))
    width = (step if step > _ZERO else _ONE) * tau
    for i in range(len(v)):
        level = min(np.floor(abs(v[i]) / width + uniforms[i]), most)
        levels[i] = -level if v[i] < _ZERO else level
    return step


@inner
def _nearest(v: Any, most: Any, scale: Any, levels: Any) -> Any:
    largest = product = squares = _ZERO
    for i in range(len(v)):
        largest = max(largest, abs(v[i]))
    width = min(_norm(v) * scale, _TWO * largest)
    width = width if width > _ZERO else _ONE
    for i in range(len(v)):
        level = min(np.floor(abs(v[i]) / width + _HALF), most)
        product += abs(v[i]) * level
        squares += level * level
        levels[i] = -level if v[i] < _ZERO else level
    step = _round_up(product / max(squares, _ONE))
    if step == _ZERO:
        levels[:] = 0
    return step


@inner
def _norm(v: Any) -> Any:
    squares = _ZERO
    for i in range(len(v)):
        squares += v[i] * v[i]
    return np.sqrt(squares)


@inner
def _round_up(step: Any) -> Any:
    if step < _SMALLEST:
        return _ZERO
    bits = np.float32(min(step, _LARGEST)).view(np.uint32)
    return np.uint32((bits + np.uint32(0x7FFF)) & np.uint32(0xFFFF8000)).view(np.float32)


@compiled
def learn(
    theta: Any, log_weights: Any, frequencies: Any, x: Any, y: Any, numbers: Any, kind: Any,
    learned: Any, weighed: Any, output: Any,
) -> Any:  # fmt: skip
    """Write models, log weights and output (lines 3 to 6 and 14); return its loss, and whether all is sound."""
    kernels, outputs, n = theta.shape
    eta, rate, regularization = numbers
    z, f, slope = np.empty(n, np.float32), np.empty(outputs, np.float32), np.empty(outputs, np.float32)
    top, total, models = np.max(log_weights), _ZERO, _ZERO
    output[:] = _ZERO
    for p in range(kernels):
        _waves(frequencies[p], x, z)
        squares = _predict(theta[p], z, f)
        weight = np.exp(log_weights[p] - top)
        total += weight
        for c in range(outputs):
            output[c] += weight * f[c]
        weighed[p] = log_weights[p] - rate * (_loss(f, y, kind, slope) + regularization * squares)
        for c in range(outputs):
            for i in range(n):
                gradient = slope[c] * z[i] + _TWO * regularization * theta[p, c, i]
                learned[p, c, i] = theta[p, c, i] - eta * gradient
                models += learned[p, c, i]
    weighed -= np.max(weighed)
    output /= total
    return _loss(output, y, kind, slope), np.isfinite(models) and not np.isnan(np.sum(weighed))


@inner
def _waves(frequencies: Any, x: Any, z: Any) -> None:
    count, inputs = frequencies.shape
    scale = _ONE / np.sqrt(np.float32(count))
    for i in range(count):
        angle = _ZERO
        for d in range(inputs):
            angle += frequencies[i, d] * x[d]
        z[i], z[count + i] = np.sin(angle) * scale, np.cos(angle) * scale


@inner
def _predict(theta: Any, z: Any, f: Any) -> Any:
    """Write the outputs of a kernel and return its squared norm."""
    squares = _ZERO
    for c in range(len(f)):
        f[c] = _ZERO
        for i in range(len(z)):
            f[c] += theta[c, i] * z[i]
            squares += theta[c, i] * theta[c, i]
    return squares


@inner
def _loss(f: Any, y: Any, kind: Any, slope: Any) -> Any:
    """Write the derivative C'(f, y) and return C(f, y)."""
    value = _ZERO
    if kind == _LOGISTIC:
        for c in range(len(f)):
            margin = -y[c] * f[c]
            e = np.exp(-abs(margin))
            value += max(margin, _ZERO) + np.log1p(e)
            slope[c] = -y[c] * ((_ONE if margin >= _ZERO else e) / (_ONE + e))
    elif kind == _SQUARED:
        for c in range(len(f)):
            apart = f[c] - y[c]
            value += apart * apart
            slope[c] = _TWO * apart
    else:
        top, total = np.max(f), _ZERO
        for c in range(len(f)):
            slope[c] = np.exp(f[c] - top)
            total += slope[c]
            value -= f[c] * y[c]
        value += np.log(total) + top
        for c in range(len(f)):
            slope[c] = slope[c] / total - y[c]
    return value
