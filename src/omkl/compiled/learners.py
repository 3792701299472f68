"""What a node does with a sample, as ``omkl.learners`` states it; a rule is known by its place in a list.

All functions are about one kernel model of one node. Its rows, one for each output, begin every m numbers, and have as
many coefficients as there are features.
"""

from typing import NamedTuple

import numpy as np

from omkl import learners
from omkl.compiled import losses
from omkl.compiled.arithmetic import ONE, TWO, ZERO, add, clear, copy, dot, total
from omkl.compiled.jit import Floats, inner, summed
from omkl.learners import Learner
from omkl.learners.pooled import FIRST_COUNT, OWN_FIRST, RECENT
from omkl.learners.pooled import FLOOR as POOLED_FLOOR
from omkl.learners.rules import FLOOR, HALVINGS, NARROW, TINY
from omkl.learners.rules import LOGISTIC as LOGISTIC_BOUND

LEARNERS: tuple[type[Learner], ...] = (
    learners.Pooled, learners.SGD, learners.AdaGrad, learners.Shared, learners.Newton,
)  # fmt: skip
POOLED, SGD, ADAGRAD, SHARED, NEWTON = range(len(LEARNERS))

OWN, COUNT = range(2)  # places in the counts of a node
LOG_CURVATURE, ALIKE = range(2)  # in what Pooled notes of a model

_FIRST_COUNT, _OWN_FIRST, _RECENT = (np.float32(one) for one in (FIRST_COUNT, OWN_FIRST, RECENT))
_NARROW = np.float32(NARROW)
_FLOOR, _TINY, _LEAST = np.float32(FLOOR), np.float32(TINY), np.float32(POOLED_FLOOR / LOGISTIC_BOUND)


class Rule(NamedTuple):
    """The numbers of a learner and of the loss that it learns."""

    kind: int
    loss: int
    delta: np.float32
    """Huber's."""
    bound: np.float32
    """The largest curvature of the loss."""
    is_bounded: bool
    """Whether the loss has a bound on its slope."""
    eta: np.float32
    decays: bool
    regularization: np.float32
    """Zero where a prior takes its place."""
    forget: np.float32
    curvature: np.float32
    """Of a sample, for ``Shared``."""
    variance: Floats
    """Of the coefficients before any sample, ``(P, n)``."""
    priors: Floats
    """In units of the first, one for every reading."""


class Memory(NamedTuple):
    """What the learners of nodes carry; arrays that a rule has no use for are empty."""

    counts: Floats
    """Samples learned, and those learned for, ``(J, 2)``."""
    noted: Floats
    """``(J, P, 2)``."""
    last: Floats
    """z of the last sample, ``(J, P, n)``."""
    squares: Floats
    """``(J, P * C, n)``."""
    root: Floats
    """``(J, P * C, B, b, b)``."""
    trace: Floats
    """``(J, P * C)``."""


class Room(NamedTuple):
    """Scratch of a sample: two vectors of n numbers, and three of C."""

    metric: Floats
    moved: Floats
    slope: Floats
    there: Floats
    bent: Floats


def room(n: int, outputs: int) -> Room:
    """Return scratch for models of n coefficients."""
    return Room(*np.empty((2, n), np.float32), *np.empty((3, outputs), np.float32))


@inner
def curved(own: np.float32, count: np.float32) -> np.float32:
    """Return how many samples count as curvature, as ``pooled._curved`` does."""
    others = count / (own if own > ZERO else ONE) - ONE
    return count / (ONE + max(others, ZERO) * _OWN_FIRST / (_OWN_FIRST + own))


@inner
def read(z: Floats, variance: Floats, seen: np.float32, prior: np.float32, shrunk: Floats) -> None:
    """Write z with its coordinates shrunk as a prior of that share of the first shrinks coefficients."""
    for i in range(len(z)):
        known = seen * variance[i]
        shrunk[i] = z[i] * (prior * (ONE + known) / (ONE + prior * known))


@inner
def readings(
    s: Rule, theta: Floats, m: int, variance: Floats, z: Floats, seen: np.float32, shrunk: Floats, outputs: Floats
) -> None:
    """Write the outputs ``(V, C)`` of a model in every reading; the first is the model as it is."""
    for v in range(len(outputs)):
        if v > 0:
            read(z, variance, seen, s.priors[v], shrunk)
        for c in range(outputs.shape[1]):
            row = theta[c * m : c * m + len(z)]
            outputs[v, c] = dot(row, z) if v == 0 else dot(row, shrunk)


@inner
def pooled(
    s: Rule, theta: Floats, m: int, variance: Floats, z: Floats, f: Floats, y: Floats, weight: np.float32,
    own: np.float32, seen: np.float32, noted: Floats, last: Floats, reach: np.float32, alike: np.float32, k: Room,
) -> None:  # fmt: skip
    """Take a step of ``Pooled``: ``seen`` samples count as curvature, this one included.

    An empty ``last`` keeps no account of what is alike.
    """
    before = np.exp(noted[LOG_CURVATURE])
    curvature = before + weight / (_FIRST_COUNT + own) * (_mean_curvature(s, f, y, k.bent) - before)
    noted[LOG_CURVATURE] = np.log(curvature)
    known = s.bound * seen * curvature
    _settle(variance, known, z, k.metric, k.moved)
    energy = dot(k.moved, z)
    if len(last):
        noted[ALIKE] = _alike(noted[ALIKE], k.metric, k.moved, last, energy)
        copy(z, last)
        taken = max(noted[ALIKE], alike * alike)
        if not s.is_bounded:
            taken = max(taken, np.float32(0.5) ** own)
        energy *= ONE + (reach - ONE) * taken
    losses.derivative(s.loss, s.delta, f, y, k.slope)
    for c in range(len(y)):
        k.slope[c] *= weight
    length = reach * _length(s, f, y, energy, weight, k)
    for c in range(len(y)):
        add(theta[c * m : c * m + len(z)], -length * k.slope[c], k.moved)


@inner
def _settle(variance: Floats, known: np.float32, z: Floats, metric: Floats, moved: Floats) -> None:
    """Write S, its diagonal, and S z."""
    for i in range(len(z)):
        metric[i] = variance[i] / (ONE + known * variance[i])
    for i in range(len(z)):
        moved[i] = metric[i] * z[i]


@inner
def _mean_curvature(s: Rule, f: Floats, y: Floats, bent: Floats) -> np.float32:
    """Return a sample's curvature, mean over outputs, in units of the bound and above the floor."""
    losses.curvatures(s.loss, s.delta, f, y, bent)
    return max(total(bent) / (np.float32(len(f)) * s.bound), _LEAST)


@inner
def _alike(before: np.float32, metric: Floats, moved: Floats, last: Floats, energy: np.float32) -> np.float32:
    """Return how alike samples are that follow each other, as ``pooled._alike`` does."""
    old, product, every, squares = _products(metric, moved, last)
    both = old * energy
    cosine = product * product / (both if both > ZERO else ONE)
    chance = squares / (every * every if every > ZERO else ONE)
    beyond = (cosine - chance) / (ONE - chance if chance < ONE else ONE)
    return min(max(before + _RECENT * (beyond - before), ZERO), ONE)


@summed
def _products(metric: Floats, moved: Floats, last: Floats) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    old, product, every, squares = ZERO, ZERO, ZERO, ZERO
    for i in range(len(metric)):
        old += metric[i] * last[i] * last[i]
        product += moved[i] * last[i]
        every += metric[i]
        squares += metric[i] * metric[i]
    return old, product, every, squares


@inner
def _length(s: Rule, f: Floats, y: Floats, energy: np.float32, weight: np.float32, k: Room) -> np.float32:
    """Return r as ``learners.rules.length`` does; ``k.slope`` has C' times the weight."""
    squares = ZERO
    for c in range(len(f)):
        squares += k.slope[c] * k.slope[c]
    low, high = ONE / (ONE + s.bound * weight * energy), ONE
    if s.loss == losses.SQUARED:
        return low
    for _ in range(HALVINGS):
        if high < _NARROW * low:
            break
        middle = np.sqrt(low * high)
        if _rise(s, f, y, energy, squares, middle, weight, k) >= ZERO:
            high = middle
        else:
            low = middle
    below = -_rise(s, f, y, energy, squares, low, weight, k)
    both = below + _rise(s, f, y, energy, squares, high, weight, k)
    share = below / both if both > ZERO else below
    return low + min(max(share, ZERO), ONE) * (high - low)


@inner
def _rise(
    s: Rule, f: Floats, y: Floats, energy: np.float32, squares: np.float32, length: np.float32, weight: np.float32,
    k: Room,
) -> np.float32:  # fmt: skip
    far, rise = length * energy, length * squares
    for c in range(len(f)):
        k.there[c] = f[c] - far * k.slope[c]
    losses.derivative(s.loss, s.delta, k.there, y, k.there)
    for c in range(len(f)):
        rise -= weight * k.slope[c] * k.there[c]
    return rise


@inner
def shared(
    s: Rule, theta: Floats, m: int, variance: Floats, z: Floats, f: Floats, y: Floats, count: np.float32, k: Room
) -> None:
    """Take a step of ``Shared``, with this sample counted."""
    _settle(variance, s.curvature * count, z, k.metric, k.moved)
    losses.derivative(s.loss, s.delta, f, y, k.slope)
    length = _length(s, f, y, dot(k.moved, z), ONE, k)
    for c in range(len(y)):
        add(theta[c * m : c * m + len(z)], -length * k.slope[c], k.moved)


@inner
def descend(s: Rule, theta: Floats, m: int, z: Floats, f: Floats, y: Floats, count: np.float32, k: Room) -> None:
    """Take a step of ``SGD``, with this sample counted."""
    losses.derivative(s.loss, s.delta, f, y, k.slope)
    rate = s.eta / np.sqrt(count) if s.decays else s.eta
    shrink = ONE - rate * TWO * s.regularization
    for c in range(len(y)):
        _shrink(theta[c * m : c * m + len(z)], shrink, -rate * k.slope[c], z)


@inner
def _shrink(row: Floats, shrink: np.float32, factor: np.float32, z: Floats) -> None:
    for i in range(len(row)):
        row[i] = shrink * row[i] + factor * z[i]


@inner
def adagrad(s: Rule, theta: Floats, m: int, z: Floats, f: Floats, y: Floats, squares: Floats, k: Room) -> None:
    """Take a step of ``AdaGrad``."""
    losses.derivative(s.loss, s.delta, f, y, k.slope)
    for c in range(len(y)):
        row, sums = theta[c * m : c * m + len(z)], squares[c]
        for i in range(len(z)):
            k.moved[i] = k.slope[c] * z[i] + TWO * s.regularization * row[i]
            sums[i] += k.moved[i] * k.moved[i]
        for i in range(len(z)):
            row[i] -= s.eta * k.moved[i] / np.sqrt(sums[i] if sums[i] > ZERO else ONE)


@inner
def newton(
    s: Rule, theta: Floats, m: int, z: Floats, f: Floats, y: Floats, weight: np.float32, root: Floats, trace: Floats,
    k: Room,
) -> None:  # fmt: skip
    """Take a step of ``Newton``, every output by itself; its S is R R^T in blocks."""
    losses.derivative(s.loss, s.delta, f, y, k.slope)
    losses.curvatures(s.loss, s.delta, f, y, k.bent)
    rows = TWO if s.loss == losses.SOFTMAX else ONE  # the magnitudes in a row of C'' add up to twice its diagonal
    for c in range(len(y)):
        a = _fit(root[c], z, weight * max(rows * k.bent[c], _FLOOR), s.forget, k.metric, k.moved)
        if s.forget < ONE:
            _keep_within(root[c], trace[c])
        add(theta[c * m : c * m + len(z)], -a * weight * k.slope[c], k.moved)


@inner
def _fit(root: Floats, z: Floats, bent: np.float32, forget: np.float32, seen: Floats, moved: Floats) -> np.float32:
    """Write S z to ``moved``, update R, and return a."""
    blocks, size = root.shape[0], root.shape[1]
    clear(seen)
    every = ZERO
    for b in range(blocks):
        part = seen[b * size : (b + 1) * size]
        for i in range(size):
            add(part, z[b * size + i], root[b, i])
        every += dot(part, part)
        for i in range(size):
            moved[b * size + i] = dot(root[b, i], part)
    a = ONE / (forget + bent * every)
    shown = bent * a if forget == ONE else a * (bent - (ONE - forget) / max(every, _TINY))
    for b in range(blocks):
        part = seen[b * size : (b + 1) * size]
        left = max(ONE - shown * dot(part, part), min(a, ONE))
        gain = shown / (ONE + np.sqrt(left))
        for i in range(size):
            add(root[b, i], -gain * moved[b * size + i], part)
    return a


@inner
def _keep_within(root: Floats, trace: np.float32) -> None:
    """Make S smaller where its trace exceeds that of the start."""
    every, blocks, size = ZERO, root.shape[0], root.shape[1]
    for b in range(blocks):
        for i in range(size):
            every += dot(root[b, i], root[b, i])
    if every > trace:
        share = np.sqrt(trace / every)
        for b in range(blocks):
            for i in range(size):
                add(root[b, i], share - ONE, root[b, i])
