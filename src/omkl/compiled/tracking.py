"""Rows of an estimator, as ``omkl.online.tracking`` states them: models that forget at several rates, and a line."""

from typing import Any, NamedTuple

import numpy as np

from omkl.compiled import learners, losses, rounds
from omkl.compiled.arithmetic import ONE, ZERO, copy, dot
from omkl.compiled.jit import Doubles, Floats, entry, inner
from omkl.compiled.lending import borrowed

VARIANCE, COUNT = range(2)  # places in what is known of the error


class Method(NamedTuple):
    """The numbers of a method."""

    models: learners.Rule
    line: learners.Rule
    forgets: Floats
    """Rates of forgetting, ``(R,)``."""
    sharper: np.float32
    """By what readings are multiplied that follow the others."""
    hedge_rate: np.float32
    loss_gap_cap: np.float32
    share: np.float32
    """Of all weight that is dealt out after a row."""
    stakes: Floats
    """By which it is dealt out, ``(X,)``."""
    sharpness: np.float32
    """Of the weights where the loss has no bound on its slope, in units of the error's variance."""
    farthest: np.float32
    """Deviations of the error beyond which a target then counts as being there."""
    remembered: np.float32
    """Rows that the variance is a mean of."""
    least: np.float32
    """Variance that there is at least."""


class Node(NamedTuple):
    """What goes from row to row."""

    theta: Floats
    """``(R, C * n)``."""
    own: Floats
    """Rows learned, as each rate counts them, ``(R,)``."""
    noted: Floats
    """``(R, 1)``."""
    log_weights: Floats
    """``(X,)``."""
    line: Floats
    """``(C * q,)``."""
    root: Floats
    """``(C, B, b, b)``."""
    trace: Floats
    """``(C,)``."""
    spread: Floats
    """Variance of the error, and of how many rows, ``(2,)``."""


class Room(NamedTuple):
    """Scratch of a row."""

    outputs: Floats
    """``(X, C)``."""
    values: Floats
    weights: Floats
    output: Floats
    target: Floats
    learning: learners.Room


@inner
def _room(node: Node, y: Floats, z: Floats) -> Room:
    """Return scratch of a thread's own."""
    models, outputs = len(node.log_weights), len(y)
    vectors = (np.empty(outputs, np.float32), np.empty(outputs, np.float32), np.empty(outputs, np.float32))
    learning = learners.Room(np.empty(len(z), np.float32), np.empty(len(z), np.float32), *vectors)
    values, weights = np.empty(models, np.float32), np.empty(models, np.float32)
    output, target = np.empty(outputs, np.float32), np.empty(outputs, np.float32)
    return Room(np.empty((models, outputs), np.float32), values, weights, output, target, learning)


@entry
def place(X: Doubles, center: Doubles, scale: Doubles, far: Floats, factors: Floats, to: Floats) -> None:
    """Write how many deviations values are from the mean, none beyond ``far (d,)``, times factors.

    What is missing, and columns that a row has not got, are at the mean.
    """
    for k in range(to.shape[0]):
        for i in range(to.shape[1]):
            apart = (X[k, i] - center[i]) / scale[i] if i < X.shape[1] else 0.0
            apart = 0.0 if np.isnan(apart) else apart
            to[k, i] = np.float32(min(max(apart, -far[i]), far[i])) * factors[i]


@entry
def predict(held: Any, node: Node, z: Floats, outputs: Floats) -> None:
    """Write the outputs ``(n, C)`` of all models together for features ``(n, r)``, by the numbers that are held."""
    _predict_rows(borrowed(held), borrowed(node), z, outputs, _room(node, outputs[0], z[0]))


@entry
def learn(held: Any, node: Node, z: Floats, y: Floats, weight: Floats, found: Floats) -> None:
    """Learn rows of features ``(n, r)`` and targets ``(n, C)``, in order, and write their losses."""
    _learn_rows(borrowed(held), borrowed(node), z, y, weight, found, _room(node, y[0], z[0]))


@inner
def _predict_rows(s: Method, node: Node, z: Floats, outputs: Floats, made: Room) -> None:
    k = borrowed(made)
    for t in range(len(z)):
        _predict(s, node, z[t], k)
        copy(k.output, outputs[t])


@inner
def _learn_rows(s: Method, node: Node, z: Floats, y: Floats, weight: Floats, found: Floats, made: Room) -> None:
    k = borrowed(made)
    for t in range(len(z)):
        found[t] = _learn(s, node, z[t], y[t], weight[t], k)


@inner
def _predict(s: Method, node: Node, z: Floats, k: Room) -> None:
    """Write the outputs of every model as it is read, and of the line, the weights, and the output of all."""
    views, outputs, n = len(s.models.priors), len(k.output), len(z)
    once, length = len(node.own) * views, len(node.line) // outputs
    for e in range(len(node.own)):
        seen = s.models.bound * node.own[e] * np.exp(node.noted[e, learners.LOG_CURVATURE])
        found = k.outputs[e * views : (e + 1) * views]
        learners.readings(s.models, node.theta[e], n, s.models.variance[0], z, seen, k.learning.moved, found)
    last = len(k.outputs) - 1
    for c in range(outputs):
        for p in range(once, last):
            k.outputs[p, c] = s.sharper * k.outputs[p - once, c]
        k.outputs[last, c] = dot(node.line[c * length : (c + 1) * length], z[n - length :])
    losses.softmax(node.log_weights, k.weights)
    rounds.combine(k.outputs, k.weights, k.output)


@inner
def _learn(s: Method, node: Node, z: Floats, y: Floats, weight: np.float32, k: Room) -> np.float32:
    """Learn a row, and return its loss from before."""
    _predict(s, node, z, k)
    copy(y, k.target)
    rule, rate, outputs, n = s.models, s.hedge_rate, len(y), len(z)
    if not rule.is_bounded:
        rate *= s.sharpness / max(node.spread[VARIANCE], s.least)
        _bound(s, k.output, k.target, node.spread)
    for p in range(len(k.values)):
        k.values[p] = rate * weight * losses.value(rule.loss, rule.delta, k.outputs[p], k.target)
    rounds.weigh(node.log_weights, k.values, ONE, s.loss_gap_cap)
    if s.share > ZERO:
        _deal(s, node.log_weights, k.weights)
    for e in range(len(node.own)):
        node.own[e] = s.forgets[e] * node.own[e] + weight
        seen, f = node.own[e], k.outputs[e * len(rule.priors)]
        given = node.theta[e], n, rule.variance[0], z, f, k.target, weight
        learners.pooled(rule, *given, seen, seen, node.noted[e], z[:0], ONE, ZERO, k.learning)
    length, f = len(node.line) // outputs, k.outputs[len(k.outputs) - 1]
    own = z[n - length :], f, k.target, weight, node.root, node.trace
    learners.newton(s.line, node.line, length, *own, k.learning)
    return losses.value(rule.loss, rule.delta, k.output, y)


@inner
def _bound(s: Method, f: Floats, target: Floats, spread: Floats) -> None:
    """Bring the target near the prediction, and count the error."""
    far, squares = s.farthest * np.sqrt(spread[VARIANCE]), ZERO
    for c in range(len(f)):
        target[c] = min(max(target[c], f[c] - far), f[c] + far)
        squares += (target[c] - f[c]) * (target[c] - f[c])
    spread[COUNT] = min(spread[COUNT] + ONE, s.remembered)
    spread[VARIANCE] += (squares / np.float32(len(f)) - spread[VARIANCE]) / (spread[COUNT] + ONE)


@inner
def _deal(s: Method, log_weights: Floats, weights: Floats) -> None:
    """Deal a share of all weight out anew."""
    losses.softmax(log_weights, weights)
    for p in range(len(weights)):
        log_weights[p] = np.log((ONE - s.share) * weights[p] + s.share * s.stakes[p])
