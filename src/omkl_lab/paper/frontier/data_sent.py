"""Nodes that send each other their samples, and learn alone from all that they hear: what it costs and what it loses.

In a round a node hears what its neighbors on the path have sent at the end of the last one, and learns it. Then it has
a sample of its own, predicts and learns it, and sends it to both neighbors in one broadcast, together with what it has
newly heard from one side and must go on to the other. So a sample is at hand after as many rounds as it has links to
go. Bodies have a fixed width, and the frame is that of gossip.

It gives up that raw data stay where they are. Every other method of the frontier keeps to that, but for landmarks.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from omkl.blas import one_thread
from omkl.data import Stream, as_stream
from omkl.features import Features, transform
from omkl.methods import Local, Neighbors, Round, eager, for_inputs
from omkl.wire import HEADER_BYTES
from omkl_lab.paper.experiments import Arrays, Floats, Tell

WIDTHS = {f"{bits}-bit inputs": bits for bits in (1, 2, 3, 4, 5, 8)}
LABEL_BITS = 1  # two classes
AHEAD = 4096  # samples whose similarities to all landmarks are held at once

Integers = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]


def flooded(data: str, method: Local, nodes: int, shuffle: int, share: range, tell: Tell) -> Arrays:
    """Return mean loss and bytes of the runs of one shuffle, under ``3-bit inputs:loss`` and the like.

    The loss is that of every node's own samples, each before it is learned, with the features that a simulation has.
    """
    stream, loss = as_stream(data, nodes, shuffle)
    learner, rounds = for_inputs(method.replace(loss=loss), stream.X.shape[-1]), len(stream.X)
    losses = []
    for k, seed in enumerate(share):
        losses.append(learned(learner, stream, seed, list(WIDTHS.values())))
        tell((k + 1) * rounds, len(share) * rounds)
    found = {f"{what}:loss": column for what, column in zip(WIDTHS, np.array(losses).T, strict=True)}
    sizes = {what: mean_bytes(rounds, nodes, stream.X.shape[-1], bits) for what, bits in WIDTHS.items()}
    return found | {f"{what}:bytes": np.full(len(share), size) for what, size in sizes.items()}


def learned(method: Local, stream: Stream, seed: int, widths: Sequence[int]) -> Floats:
    """Return the mean loss over nodes and rounds, ``(B,)``, for inputs of so many bits each.

    Nodes learn their own samples as they are, and those of others as they were sent.
    """
    rounds, nodes, inputs = stream.X.shape
    with one_thread():
        made = method.bank.draw(inputs, seed, stream.X)
        own = mapped(stream.X, made)[:, :, None]
        sent = np.stack([mapped(coarse(stream.X, made, bits), made) for bits in widths], axis=2)
    y = method.objective.encode(stream.y)[:, :, None]
    state = method.init(np, (nodes, len(widths)), y.shape[-1], made.spectrum)
    nobody, total = Neighbors(np.zeros((nodes, 0), np.int64), np.zeros((nodes, 0))), np.zeros(len(widths))
    for t in range(rounds):
        for source, first in heard(t, nodes):
            at, there = (np.maximum(first, 0), source), first >= 0
            state, _ = eager.advance(method, state, Round(sent[at], y[at], None), nobody, _no_dither, there)
        state, info = eager.advance(method, state, Round(own[t], y[t], None), nobody, _no_dither)
        total += info.loss.mean(axis=0, dtype=np.float64)
    return np.asarray(total / rounds)


def heard(t: int, nodes: int) -> Iterator[tuple[Integers, Integers]]:
    """Yield what is new in a round on a path, one sample a node at a time: whose each is, and of which round.

    A round below zero is none: that sample is yet to come.

    >>> [(source.tolist(), first.tolist()) for source, first in heard(1, 3)]
    [([1, 2, 0], [0, 0, -1]), ([2, 0, 1], [-1, 0, 0])]
    """
    node = np.arange(nodes)
    for k in range(1, nodes):
        source = (node + k) % nodes
        first = t - np.abs(source - node)
        if (first >= 0).any():
            yield source, first


def samples_sent(rounds: int, nodes: int) -> Integers:
    """Return how many samples each broadcast on a path has, ``(T, J)``: the node's own, and those that go on.

    What comes from one side goes to the other, unless nobody is there. Nobody hears a node that is alone.

    >>> samples_sent(3, 4).tolist()
    [[1, 1, 1, 1], [1, 3, 3, 1], [1, 4, 4, 1]]
    """
    if nodes == 1:
        return np.zeros((rounds, 1), dtype=np.int64)
    t, node = np.arange(rounds)[:, None], np.arange(nodes)
    left, right = np.minimum(t, node), np.minimum(t, nodes - 1 - node)
    return 1 + np.where((node > 0) & (node < nodes - 1), left + right, 0)


def mean_bytes(rounds: int, nodes: int, inputs: int, bits: int) -> float:
    """Return what a node sends with a sample on average, frame and all: inputs of so many bits each, and labels."""
    samples = samples_sent(rounds, nodes)
    sizes = HEADER_BYTES + -(-samples * (inputs * bits + LABEL_BITS) // 8)
    return float(np.where(samples > 0, sizes, 0).mean())


def coarse(X: Any, made: Features, bits: int) -> Singles:
    """Return inputs as they are sent: the nearest of 2^bits levels from the least to the largest of the landmarks.

    All nodes hold those, so that the range of each column need not be sent; what lies beyond is brought to its ends.
    """
    assert made.landmarks is not None
    low, high = (np.asarray(end, dtype=np.float32) for end in (made.landmarks.min(axis=0), made.landmarks.max(axis=0)))
    step = (high - low) / np.float32(2**bits - 1)
    levels = np.rint((np.clip(X, low, high) - low) / np.where(step > 0, step, 1))
    return np.asarray(low + levels * step, dtype=np.float32)


def mapped(X: Any, made: Features) -> Singles:
    """Return the features of a stream, ``(T, J, P, n)``, some samples at a time."""
    rows = X.reshape(-1, X.shape[-1])
    z = np.concatenate([transform(rows[k : k + AHEAD], made) for k in range(0, len(rows), AHEAD)])
    return np.asarray(z.reshape(*X.shape[:2], *z.shape[1:]), dtype=np.float32)


def _no_dither(round_: int) -> None:
    """Return nothing: no message is quantized."""
