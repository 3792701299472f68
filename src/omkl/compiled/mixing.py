"""Mixing with neighbors' hidden states, as ``algorithm.mix`` and ``algorithm.clipped`` state it."""

import numpy as np

from omkl.compiled.arithmetic import ONE, ZERO, add, clear, total
from omkl.compiled.jit import Floats, Whole, inner, summed


@inner
def pull(
    hidden: Floats, others: Floats, ids: Whole, weights: Floats, radius: np.float32, kernels: int, pulls: Floats
) -> None:
    """Write sum_i w_ij (h_i - h_j), all ``(N,)``, where neighbor i is row ``ids[i]`` of the others.

    Each kernel's part of a difference counts as ``radius`` long at most; zero sets no bound.
    """
    clear(pulls)
    length = len(hidden) // kernels
    for k in range(len(ids)):
        other = others[ids[k]]
        if radius == ZERO:
            _draw(pulls, weights[k], other, hidden)
            continue
        for start in range(0, len(hidden), length):
            part = slice(start, start + length)
            share = _clip(other[part], hidden[part], radius)
            _draw(pulls[part], weights[k] * share, other[part], hidden[part])


@inner
def _draw(pulls: Floats, weight: np.float32, other: Floats, own: Floats) -> None:
    for i in range(len(pulls)):
        pulls[i] += weight * (other[i] - own[i])


@inner
def _clip(other: Floats, own: Floats, radius: np.float32) -> np.float32:
    """Return the share of a difference that counts."""
    most = _farthest(other, own)
    if not most > ZERO:
        return ONE
    # In units of the largest entry: squares of 1e30 are no float32.
    bound = radius / np.sqrt(_squares(other, own, most))
    return ONE if most <= bound else bound / most


@inner
def _farthest(other: Floats, own: Floats) -> np.float32:
    most = ZERO
    for i in range(len(own)):
        most = max(most, abs(other[i] - own[i]))
    return most


@summed
def _squares(other: Floats, own: Floats, unit: np.float32) -> np.float32:
    sums = ZERO
    for i in range(len(own)):
        apart = (other[i] - own[i]) / unit
        sums += apart * apart
    return sums


@inner
def move(own: Floats, velocity: Floats, pulls: Floats, gamma: np.float32, momentum: np.float32) -> None:
    """Move a node's models by what pulls it, and by a share of its last move where there is momentum."""
    if momentum == ZERO:
        add(own, gamma, pulls)
        return
    for i in range(len(own)):
        velocity[i] = momentum * velocity[i] + gamma * pulls[i]
    add(own, ONE, velocity)


@inner
def is_finite(vector: Floats) -> bool:
    """Return whether all elements are finite."""
    return bool(np.isfinite(total(vector)))
