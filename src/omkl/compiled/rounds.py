"""The two halves of a node's round: gossip (lines 8, 9 and 12 of Algorithm 1), and a sample (lines 3 to 6 and 14).

Models are flat: those of node j are ``own[j]``, ``P * C`` rows of m numbers, of which the first n are coefficients and
the rest what is told with them, as ``algorithm.append_weights`` has it. Tests hold each half to ``Gossip``.
"""

from typing import NamedTuple

import numpy as np

from omkl.algorithm import WEIGHT_SCALE
from omkl.compiled import learners, losses, mixing, quantizers, sizes
from omkl.compiled.arithmetic import HALF, ONE, TWO, ZERO, dot, highest, subtract, total
from omkl.compiled.jit import Floats, Whole, entry, inner
from omkl.compiled.lending import borrowed
from omkl.reach import AHEAD, ENOUGH, FALLS, KEPT, RISES, UNKNOWN
from omkl.wire.coded import ELEMENTS

ROUNDS, SHARE = range(2)  # places in what a node has heard
BEFORE, APART, DUE = range(3)  # and of a model

_SCALE = np.float32(WEIGHT_SCALE)
_AHEAD, _ENOUGH, _FALLS, _KEPT, _RISES, _UNKNOWN = (
    np.float32(one) for one in (AHEAD, ENOUGH, FALLS, KEPT, RISES, UNKNOWN)
)


class Method(NamedTuple):
    """The numbers of a method."""

    kernels: int
    outputs: int
    n: int
    m: int
    is_common: bool
    """Whether weights, and what the learner tells, are gossiped after each model."""
    tells: bool
    gamma: np.float32
    momentum: np.float32
    quantizer: int
    most: np.float32
    scale: np.float32
    block: int
    has_reach: bool
    knots: Floats
    hedge_rate: np.float32
    loss_gap_cap: np.float32
    """Infinite where there is none."""
    rule: learners.Rule
    prices: sizes.Prices


class Nodes(NamedTuple):
    """What nodes carry from round to round; arrays that a method has no use for are empty."""

    own: Floats
    """``(J, N)``."""
    velocity: Floats
    log_weights: Floats
    """``(J, W)``."""
    said: Floats
    """What each said in the last round, ``(J, N)``."""
    heard: Floats
    """``(J, 2)``."""
    alike: Floats
    """``(J, P, 3)``."""
    memory: learners.Memory


class Room(NamedTuple):
    """Scratch of a node's round."""

    pulls: Floats
    v: Floats
    levels: Floats
    steps: Floats
    bits: Floats
    """Of the levels of every block, ``(blockss)``."""
    uniforms: Floats
    shrunk: Floats
    outputs: Floats
    """Of every reading of every model, ``(W, C)``."""
    output: Floats
    values: Floats
    weights: Floats
    learning: learners.Room


def room(s: Method) -> Room:
    """Return scratch for the rounds of a method."""
    readings = s.kernels * len(s.rule.priors)
    numbers = s.kernels * s.outputs * s.m
    return Room(
        pulls=np.empty(numbers, np.float32),
        v=np.empty(s.block, np.float32),
        levels=np.empty(numbers, np.float32),
        steps=np.empty(numbers // s.block, np.float32),
        bits=np.empty((numbers // s.block, s.prices.pieces), np.float32),
        uniforms=np.empty(numbers, np.float32),
        shrunk=np.empty(s.n, np.float32),
        outputs=np.empty((readings, s.outputs), np.float32),
        output=np.empty(s.outputs, np.float32),
        values=np.empty(readings, np.float32),
        weights=np.empty(readings, np.float32),
        learning=learners.room(s.n, s.outputs),
    )


@inner
def gossip(
    s: Method, nodes: Nodes, j: int, hidden: Floats, others: Floats, ids: Whole, weights: Floats, radius: np.float32,
    share: np.float32, uniforms: Floats, fresh: Floats, k: Room,
) -> None:  # fmt: skip
    """Mix node j with its neighbors, write its message to ``k``, and absorb it: ``fresh`` is its next hidden state.

    ``share`` says how much of its links it hears.
    """
    own = nodes.own[j]
    if s.is_common:
        _append_weights(s, nodes, j, own)
    mixing.pull(hidden, others, ids, weights, radius, s.kernels, k.pulls)
    if s.has_reach:
        _hear(nodes, j, k.pulls, weights, share)
    mixing.move(own, nodes.velocity[j] if s.momentum > ZERO else own, k.pulls, s.gamma, s.momentum)
    _emit(s, own, hidden, uniforms, fresh, k)
    if s.has_reach:
        said, length = nodes.said[j], s.outputs * s.m
        subtract(fresh, hidden, said)
        for p in range(s.kernels):
            part = slice(p * length, (p + 1) * length)
            nodes.alike[j, p, BEFORE] = dot(k.pulls[part], said[part])
    if s.is_common:
        _split_weights(s, nodes, j, own)


@inner
def _emit(s: Method, own: Floats, hidden: Floats, uniforms: Floats, fresh: Floats, k: Room) -> None:
    """Quantize what the models are away from the hidden state, block by block, and absorb it."""
    for b in range(len(k.steps)):
        start, stop = b * s.block, (b + 1) * s.block
        block, was, after = own[start:stop], hidden[start:stop], fresh[start:stop]
        levels = k.levels[start:stop]
        subtract(block, was, k.v)
        step = quantizers.quantize(s.quantizer, s.most, s.scale, k.v, uniforms[start:stop], levels)
        _absorb(was, step, levels, after)
        k.steps[b] = step


@inner
def _absorb(hidden: Floats, step: np.float32, levels: Floats, fresh: Floats) -> None:
    for i in range(len(fresh)):
        fresh[i] = hidden[i] + step * levels[i]


@inner
def price(s: Method, k: Room) -> np.float32:
    """Return the bytes of the message in ``k``."""
    if s.prices.is_coded:
        for b in range(len(k.steps)):
            for piece in range(s.prices.pieces):
                start = b * s.block + piece * ELEMENTS
                stop = min(start + ELEMENTS, (b + 1) * s.block)
                k.bits[b] = sizes.level_bits(k.levels[start:stop], s.prices.levels)
    return sizes.message_bytes(k.steps, k.bits, s.prices)


@inner
def _append_weights(s: Method, nodes: Nodes, j: int, own: Floats) -> None:
    """Write centered log weights, and what the learner tells, after each model; zeros after its other outputs."""
    log_weights = nodes.log_weights[j]
    views = len(log_weights) // s.kernels
    mean = total(log_weights) / np.float32(len(log_weights))
    for p in range(s.kernels):
        for c in range(s.outputs):
            beside = own[(p * s.outputs + c) * s.m + s.n : (p * s.outputs + c + 1) * s.m]
            for v in range(views):
                beside[v] = _SCALE * (log_weights[p * views + v] - mean) if c == 0 else ZERO
            if s.tells:
                beside[views] = _SCALE * nodes.memory.noted[j, p, learners.LOG_CURVATURE] if c == 0 else ZERO


@inner
def _split_weights(s: Method, nodes: Nodes, j: int, own: Floats) -> None:
    """Take log weights, and what the learner tells, from after each model."""
    views = nodes.log_weights.shape[1] // s.kernels
    for p in range(s.kernels):
        start = p * s.outputs * s.m + s.n
        for v in range(views):
            nodes.log_weights[j, p * views + v] = own[start + v] / _SCALE
        if s.tells:
            nodes.memory.noted[j, p, learners.LOG_CURVATURE] = own[start + views] / _SCALE


@inner
def _hear(nodes: Nodes, j: int, pulls: Floats, weights: Floats, share: np.float32) -> None:
    """Count the round and what pulled the node, as ``Reach.hear`` and the first half of ``Reach.listen`` do."""
    heard, alike, said = nodes.heard[j], nodes.alike[j], nodes.said[j]
    apart = share - heard[SHARE]
    heard[SHARE] += (_FALLS if apart < ZERO else _RISES) * apart
    heard[ROUNDS] += share
    every, length = total(weights), len(said) // len(alike)
    for p in range(len(alike)):
        part = slice(p * length, (p + 1) * length)
        back = dot(pulls[part], said[part]) - alike[p, BEFORE]
        alike[p, APART] = _KEPT * alike[p, APART] - back
        alike[p, DUE] = _KEPT * alike[p, DUE] + dot(said[part], said[part]) * every


@inner
def alpha(s: Method, heard: Floats) -> np.float32:
    """Return how many samples a step counts for, as ``Reach.alpha`` does."""
    most = np.float32(2.0) ** (np.float32(len(s.knots) - 1) * HALF)
    place = TWO * np.log2(min(max(heard[ROUNDS] + _AHEAD, ONE), most))
    low = min(int(place), len(s.knots) - 1)
    upper = s.knots[min(low + 1, len(s.knots) - 1)]
    grown = s.knots[low] + (place - np.float32(low)) * (upper - s.knots[low])
    grown = ONE + min(max(heard[ROUNDS], ZERO), ONE) * (grown - ONE)
    return ONE + min(heard[SHARE] / _ENOUGH, ONE) * (grown - ONE)


@inner
def predict(s: Method, nodes: Nodes, j: int, z: Floats, k: Room) -> None:
    """Write the outputs of every reading, the weights and the ensemble's output."""
    counts, views, length = nodes.memory.counts[j], len(s.rule.priors), s.outputs * s.m
    for p in range(s.kernels):
        seen, variance = ZERO, z[p]
        if views > 1:
            known = learners.curved(counts[learners.OWN], counts[learners.COUNT])
            seen = s.rule.bound * known * np.exp(nodes.memory.noted[j, p, learners.LOG_CURVATURE])
            variance = s.rule.variance[p]
        theta, found = nodes.own[j, p * length : (p + 1) * length], k.outputs[p * views : (p + 1) * views]
        learners.readings(s.rule, theta, s.m, variance, z[p], seen, k.shrunk, found)
    losses.softmax(nodes.log_weights[j], k.weights)
    combine(k.outputs, k.weights, k.output)


@inner
def combine(outputs: Floats, weights: Floats, output: Floats) -> None:
    """Write the weighted mean of the outputs ``(W, C)``."""
    for c in range(len(output)):
        output[c] = ZERO
        for p in range(len(weights)):
            output[c] += weights[p] * outputs[p, c]


@inner
def weigh(log_weights: Floats, values: Floats, rate: np.float32, cap: np.float32) -> None:
    """Move the log weights by the losses of the models, as ``algorithm.weigh`` does."""
    least = values[0]
    for p in range(1, len(values)):
        least = min(least, values[p])
    for p in range(len(values)):
        log_weights[p] -= rate * (min(values[p] - least, cap) if cap < np.inf else values[p])
    top = highest(log_weights)
    for p in range(len(values)):
        log_weights[p] -= top


@inner
def observe(s: Method, nodes: Nodes, j: int, z: Floats, y: Floats, k: Room) -> np.float32:
    """Predict, weigh and learn a sample of node j, of features ``(P, n)``; return the loss of the ensemble."""
    predict(s, nodes, j, z, k)
    rule, own, views = s.rule, nodes.own[j], len(s.rule.priors)
    for p in range(len(k.values)):
        k.values[p] = losses.value(rule.loss, rule.delta, k.outputs[p], y)
        if rule.regularization > ZERO and views == 1:
            for c in range(s.outputs):
                start = (p * s.outputs + c) * s.m
                k.values[p] += rule.regularization * dot(own[start : start + s.n], own[start : start + s.n])
    weigh(nodes.log_weights[j], k.values, s.hedge_rate, s.loss_gap_cap)
    reach = alpha(s, nodes.heard[j]) if s.has_reach else ONE
    counts = nodes.memory.counts[j]
    counts[learners.OWN] = rule.forget * counts[learners.OWN] + ONE
    counts[learners.COUNT] = rule.forget * counts[learners.COUNT] + reach
    for p in range(s.kernels):
        theta, f = own[p * s.outputs * s.m :], k.outputs[p * views]
        alike = _said_alike(nodes.alike[j, p]) if s.has_reach else ZERO
        _learn(s, nodes.memory, j, p, theta, z[p], f, y, reach, alike, k.learning)
    return losses.value(rule.loss, rule.delta, k.output, y)


@inner
def _said_alike(alike: Floats) -> np.float32:
    """Return how alike is what a node and its neighbors say, as ``Reach.alike`` does."""
    if not alike[DUE] > ZERO:
        return _UNKNOWN
    return min(max(ONE - alike[APART] / alike[DUE], ZERO), ONE)


@inner
def _learn(
    s: Method, memory: learners.Memory, j: int, p: int, theta: Floats, z: Floats, f: Floats, y: Floats,
    reach: np.float32, alike: np.float32, k: learners.Room,
) -> None:  # fmt: skip
    rule, own, count = s.rule, memory.counts[j, learners.OWN], memory.counts[j, learners.COUNT]
    rows = slice(p * s.outputs, (p + 1) * s.outputs)
    if rule.kind == learners.POOLED:
        seen, noted, last = learners.curved(own, count), memory.noted[j, p], memory.last[j, p]
        given = theta, s.m, rule.variance[p], z, f, y, ONE
        learners.pooled(rule, *given, own, seen, noted, last, reach, alike, k)
    elif rule.kind == learners.SGD:
        learners.descend(rule, theta, s.m, z, f, y, own, k)
    elif rule.kind == learners.ADAGRAD:
        learners.adagrad(rule, theta, s.m, z, f, y, memory.squares[j, rows], k)
    elif rule.kind == learners.SHARED:
        learners.shared(rule, theta, s.m, rule.variance[p], z, f, y, own, k)
    else:
        learners.newton(rule, theta, s.m, z, f, y, ONE, memory.root[j, rows], memory.trace[j, rows], k)


@entry
def predict_one(s: Method, nodes: Nodes, z: Floats, k: Room) -> None:
    """Write the outputs of the one node for features ``(P, n)``."""
    predict(borrowed(s), borrowed(nodes), 0, z, borrowed(k))
