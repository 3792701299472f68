"""The consensus step that ``gamma="auto"`` stands for: found by experiment, without proof.

Rounds of mixing without samples, x += v, v = m v + gamma (W - I) h, h += Q(x - h), were run for many graphs, weights,
quantizers, lengths and momenta, and the largest gamma was sought at which disagreement still fades
(``benchmarks/stability.py``). Two things bound it:

    noise    what a message misses comes back through mixing. With delta the share of energy that arrives, the largest
             eigenvalue of I - W, and ``pull`` = 1 - min w_ii, the most that one node is drawn to others,
             gamma <= 1 / (largest + pull (1 - delta) (4 + delta) (1 + m^2) / delta^2)
    lag      hidden states trail behind models that move steadily, by so many rounds, and what is carried on overshoots:
             gamma <= min(1, 2 delta^2) (1 - m)^2 / (largest * lag)

Both are measured, not bounds: the bound on delta is 1/n for ``Nearest``, and gamma would be next to nothing.
"""

import math
from typing import NamedTuple

import numpy as np

from omkl import noise
from omkl.quantizers import Quantizer, restore
from omkl.topology import Topology

ROUNDS, VECTORS = 120, 8
TRIAL, DRIFT = 600, 1e-3  # rounds of a trial, and the growth in a round from which on nodes drift apart
MOST_TRIED = 50_000  # numbers of all nodes, up to which a trial takes a second or two
LARGE = 3000  # nodes beyond which the largest eigenvalue is bounded, not computed


class Tracking(NamedTuple):
    """How well hidden states follow models through a quantizer."""

    delta: float
    """The share of a difference's energy that a message carries, when models move at random."""
    lag: float
    """The number of rounds by which hidden states trail behind, when models move steadily."""


def tracking(quantizer: Quantizer, n: int) -> Tracking:
    """Return what is measured on vectors of length n that walk at random, and on such that move steadily."""
    key = noise.key(0, "tracking")
    u = noise.uniforms(noise.fold(key, np.arange(ROUNDS)[:, None]), 2 * VECTORS * n).reshape(ROUNDS, 2, VECTORS, n)
    moves = (np.sqrt(-2 * np.log(u[:, 0])) * np.cos(2 * np.pi * u[:, 1])).astype(np.float32)
    dither = noise.dither(noise.fold(noise.fold(key, 1), np.arange(ROUNDS)[:, None]), (VECTORS, n))
    walk, drift = np.zeros((2, VECTORS, n), np.float32)
    kept = sent = behind = 0.0
    for t in range(ROUNDS):
        walk, drift = walk + moves[t], drift + moves[0]
        energy = float((walk**2).sum())
        walk, drift = (left - restore(quantizer.quantize(left, dither[t])) for left in (walk, drift))
        if t >= ROUNDS // 2:  # until then it only begins to trail
            sent, kept = sent + energy, kept + float((walk**2).sum())
            behind += float((drift * moves[0]).sum())
    lag = behind / float((moves[0] ** 2).sum()) / (ROUNDS - ROUNDS // 2)
    return Tracking(1 - kept / sent, max(lag, 0.0))


def drifts(topology: Topology, quantizer: Quantizer, n: int, gamma: float, momentum: float) -> bool | None:
    """Return whether nodes that mix vectors of length n and learn nothing drift apart; None where it takes too long.

    In every round the vectors are brought back to size, for quantizers scale with what they are given.
    """
    count = topology.nodes
    if count * n > MOST_TRIED:
        return None
    laplacian = (np.eye(count) - topology.matrix()).astype(np.float32)
    key = noise.key(0, "drifting")
    u = noise.uniforms(noise.fold(key, np.arange(2)[:, None]), count * n).reshape(2, count, n)
    x = (np.sqrt(-2 * np.log(u[0])) * np.cos(2 * np.pi * u[1])).astype(np.float32)
    h, v, grown = np.zeros_like(x), np.zeros_like(x), 0.0
    for t in range(TRIAL):
        v = momentum * v - gamma * (laplacian @ h)
        x = x + v
        x, h, v = x - x.mean(axis=0), h - x.mean(axis=0), v - v.mean(axis=0)
        uniforms = noise.dither(noise.fold(noise.fold(key, 1), np.array([t])), (n,)) if quantizer.dithered else None
        h = h + restore(quantizer.quantize(x - h, None if uniforms is None else np.broadcast_to(uniforms, x.shape)))
        size = max(float(np.sqrt((x**2).sum() + ((x - h) ** 2).sum() + (v**2).sum())), 1e-30)
        x, h, v = x / size, h / size, v / size
        grown += math.log(size) if t >= TRIAL // 2 else 0.0
    return grown / (TRIAL - TRIAL // 2) > DRIFT


def seldom(followed: Tracking, share: float) -> Tracking:
    """Return the same where messages are sent in a share of the rounds, and mixing is slowed by as much.

    Between them a model moves on for (1/share - 1) / 2 rounds in the mean, (1 - share) / 2 of those that a message has.
    """
    return followed._replace(lag=followed.lag + (1 - share) / 2)


def stable_step(topology: Topology, followed: Tracking, momentum: float = 0.0) -> float:
    """Return a consensus step of at most one, half of the largest that was seen to be stable, or less.

    It is rounded down to two digits: nodes whose arithmetic differs in the last bit agree on it.
    """
    pull = 1 - float(topology.self_weights.min())
    if pull <= 0:
        return 1.0
    largest = topology.ends[1] if topology.nodes <= LARGE else 2 * pull
    delta, lag = max(followed.delta, 1e-3), followed.lag
    spread = pull * (1 - delta) * (4 + delta) * (1 + momentum**2) / delta**2
    trailing = min(1.0, 2 * delta**2) * (1 - momentum) ** 2 / max(largest * lag, 1e-9)
    step = min(1.0, 1 / (largest + spread), trailing)
    if step <= 0:
        return 0.0
    places = 1 - math.floor(math.log10(step))
    return float(f"{math.floor(step * 10**places + 1e-9) / 10**places:.2g}")
