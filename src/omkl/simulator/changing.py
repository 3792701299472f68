"""Networks that change, for the engine: the weights of every round and seed.

The links of a graph are held as places where a node hears another: lists of neighbors, whole rows, or directed edges,
as in ``networks``. A place at which a node would hear itself is padding.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from jax.ops import segment_sum

from omkl.methods import Network
from omkl.simulator.faults import Failing, failing, full_weights, numbered, share_of
from omkl.simulator.layout import are_even, are_many, directed
from omkl.simulator.networks import Dense, Edges, Linked, Lists
from omkl.topology import Faults, Topology

Places: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
"""Receivers and senders, broadcast against each other, and weights."""


class Changing(NamedTuple):
    """Graphs that take turns, each ``(J, K)``, ``(J, J)`` or ``(2E,)`` places, and what fails."""

    receivers: Array
    senders: Array
    weights: Array
    full: Array
    """What the weights of a node's links add up to, ``(J,)``: the mean over the graphs."""
    numbers: Array
    """The number of the link at every place, among those of all graphs."""
    failing: Failing

    def at(self, t: Array) -> Network:
        """Return the network of round t, with weights for every seed."""
        turn = t % len(self.senders)
        receivers, senders, weights, numbers = (part[turn] for part in (*self[:3], self.numbers))
        failed = self.failing.failed(t, receivers, senders, numbers)
        up = (receivers != senders)[..., None] & ~failed
        weights = jnp.where(up, weights[..., None], 0)
        total = partial(jnp.sum, axis=1)
        if senders.ndim == 1:
            total = partial(segment_sum, segment_ids=receivers, num_segments=len(self.full), indices_are_sorted=True)
        sums = total(weights)
        if senders.ndim == 1:
            links: Any = Edges(receivers, senders, weights)
        elif senders.shape[0] > senders.shape[1]:
            links = Lists(senders, weights)
        else:
            links = Dense(weights - jnp.eye(len(sums))[..., None] * sums)
        share = share_of(sums, self.full[:, None])
        return Linked(links, total(jnp.asarray(weights != 0, jnp.int32)), sums, share)


def changing(turns: Sequence[Topology], faults: Faults, seeds: list[int], clips: bool = False) -> Changing:
    """Return the network of topologies that take turns, under the faults of these seeds."""
    nodes, links = turns[0].nodes, max(len(turn.graph.edges) for turn in turns)
    most = max(int(turn.degrees.max()) for turn in turns)
    if are_even(nodes, links, most):
        places = [_lists(turn, most) for turn in turns]
    elif are_many(nodes, links) and not clips:
        places = [_rows(turn) for turn in turns]
    else:
        places = [_edges(turn, 2 * links) for turn in turns]
    receivers, senders, weights = (np.stack(part) for part in zip(*places, strict=True))
    narrow = (part.astype(np.int32) for part in (receivers, senders, numbered(turns, receivers, senders)))
    receivers, senders, numbers = narrow
    full = full_weights(turns).astype(np.float32)
    made = receivers, senders, weights.astype(np.float32), full, numbers, failing(faults, seeds)
    return Changing(*jax.tree.map(jnp.asarray, made))


def _lists(turn: Topology, most: int) -> Places:
    index, weights = turn.neighbors()
    own, missing = np.arange(turn.nodes)[:, None], ((0, 0), (0, most - index.shape[1]))
    index = np.pad(index, missing, constant_values=-1)
    return own, np.where(index < 0, own, index), np.pad(weights, missing)


def _rows(turn: Topology) -> Places:
    own, (i, j) = np.arange(turn.nodes)[:, None], turn.graph.edges.T
    senders = np.broadcast_to(own, (turn.nodes, turn.nodes)).copy()
    senders[i, j], senders[j, i] = j, i
    return own, senders, turn.matrix()


def _edges(turn: Topology, most: int) -> Places:
    receivers, senders, weights = directed(turn.graph.edges, turn.weights)
    missing = (0, most - len(senders))
    own = turn.nodes - 1  # the last, so that receivers stay sorted
    return (
        np.pad(receivers, missing, constant_values=own),
        np.pad(senders, missing, constant_values=own),
        np.pad(weights, missing),
    )
