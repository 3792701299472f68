"""What fails in a run, and the links that are left.

What fails is a function of seed, round and the two ends alone, so both ends agree, and so do runs of the same seed on
other graphs.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.arrays import Array, namespace
from omkl.simulator.layout import directed
from omkl.topology import Faults, Topology, union
from omkl.topology.graphs import Floats, Integers


class Failing(NamedTuple):
    """What fails, over NumPy or JAX arrays."""

    links: Array
    """The probability of failing, or booleans ``(T, E)`` for the links of all graphs."""
    nodes: Array
    """The probability of sleeping, or booleans ``(T, J)``."""
    key: noise.Key
    """Of every seed."""

    def failed(self, t: Array, i: Array, j: Array, numbers: Array | None) -> Array:
        """Return whether links, or nodes at either end, fail in round t, ``(..., S)``; a node's own link never does.

        ``numbers`` has the column in ``links`` of every link, where those are given.
        """
        xp = namespace(self.key.low)
        if self.links.ndim:
            failed = self.links[t, numbers][..., None]
        else:
            failed = self._drawn(t, xp.minimum(i, j), xp.maximum(i, j)) < self.links
        return (failed & (i != j)[..., None]) | self._asleep(t, i) | self._asleep(t, j)

    def _asleep(self, t: Array, node: Array) -> Array:
        return self.nodes[t, node][..., None] if self.nodes.ndim else self._drawn(t, node, node) < self.nodes

    def _drawn(self, t: Array, i: Array, j: Array) -> Array:
        """Return uniforms in [0, 1) for pairs of nodes, ``(..., S)``; twenty-four bits are exact in float32."""
        xp = namespace(self.key.low)
        at = noise.fold(self.key, t[..., None, None])
        pair = noise.fold(noise.fold(at, i[..., None, None]), j[..., None, None])
        return xp.astype(noise.words(pair, 1)[..., 0] >> 8, xp.float32) * 2.0**-24


def failing(faults: Faults, seeds: list[int]) -> Failing:
    """Return what fails under these seeds, over NumPy arrays."""
    return Failing(_chances(faults.links), _chances(faults.nodes), noise.key(seeds, "faults"))


def _chances(given: Any) -> npt.NDArray[Any]:
    return np.asarray(given, np.float32 if isinstance(given, float) else np.bool_)


def numbered(turns: Sequence[Topology], i: npt.NDArray[Any], j: npt.NDArray[Any]) -> Integers:
    """Return the numbers of links among those of all graphs; of a pair that is no link, any."""
    edges, nodes = union(turns).edges, turns[0].nodes
    pairs = np.minimum(i, j) * nodes + np.maximum(i, j)
    return np.asarray(np.searchsorted(edges @ np.array([nodes, 1]), pairs).clip(0, max(len(edges) - 1, 0)))


def full_weights(turns: Sequence[Topology]) -> Floats:
    """Return what the weights of each node's links add up to, ``(J,)``: the mean over the graphs."""
    return np.asarray(np.mean([1 - turn.self_weights for turn in turns], axis=0))


def share_of(sums: Array, full: Array) -> Array:
    """Return sums of weights as shares of all; a node without links hears nobody."""
    xp = namespace(sums)
    return xp.where(full > 0, xp.clip(sums / xp.where(full > 0, full, 1), 0, 1), 0)


class Wires:
    """Who hears whom, sample by sample, under one seed."""

    def __init__(self, turns: Sequence[Topology], faults: Faults | None, seed: int) -> None:
        self._changes = faults is not None or len(turns) > 1
        self._failing = failing(faults or Faults(), [seed])
        nodes, edges = turns[0].nodes, union(turns).edges if len(turns) > 1 else turns[0].graph.edges
        self.receivers, self.senders, self._numbers = directed(edges.astype(np.int64), np.arange(len(edges)))
        self.start = np.concatenate([[0], np.cumsum(np.bincount(self.receivers, minlength=nodes))]).astype(np.int64)
        self._weights = np.stack([_weights(turn, edges)[self._numbers] for turn in turns])
        self._full = full_weights(turns)

    def weights(self, first: int, last: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Return the weights of all links for samples ``(T, E)``, and how much of its links each node hears ``(T, J)``.

        One row serves all samples where nothing changes.
        """
        if not self._changes:
            return self._weights.astype(np.float32), np.ones((1, len(self._full)), np.float32)
        t = np.arange(first, last)[:, None]
        failed = self._failing.failed(t, self.receivers, self.senders, self._numbers)[..., 0]
        weights = np.where(failed, 0, self._weights[np.arange(first, last) % len(self._weights)]).astype(np.float32)
        ends = np.concatenate([np.zeros((len(weights), 1)), np.cumsum(weights, axis=1, dtype=np.float64)], axis=1)
        sums = ends[:, self.start[1:]] - ends[:, self.start[:-1]]
        return weights, share_of(sums, self._full).astype(np.float32)


def _weights(turn: Topology, edges: Integers) -> Floats:
    """Return the weights of these links in a graph; zero where it has no such link."""
    own, all_ = (links @ np.array([turn.nodes, 1]) for links in (turn.graph.edges, edges))
    found = np.zeros(len(edges))
    found[np.searchsorted(all_, own)] = turn.weights
    return found
