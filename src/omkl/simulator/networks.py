"""Ways to mix a whole network at once, each equal to ``algorithm.mix`` at every node.

A small network is one matrix product, a sparse one a gather over lists of neighbors. One with hubs, whose lists would
be mostly padding, is a sum over edges. A product knows no single neighbor, so where copies are clipped there are lists
or edges. For lists and edges ``hidden`` may go on after the nodes that are mixed, with neighbors that live elsewhere
(``halo``).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array
from jax.ops import segment_sum

from omkl.algorithm import clipped
from omkl.methods import Network
from omkl.simulator.layout import DENSE_NODES, are_even, are_many, directed
from omkl.topology import Topology

Links: TypeAlias = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
"""Receivers, senders and weights, both directions of every link."""

SHORT_LIST = 8  # neighbors; on an accelerator a few gathers are part of a kernel, and a product is one by itself


class Dense(NamedTuple):
    """W - I as a matrix, so that rounding in the rows' sums does not leak."""

    laplacian: Array

    def mix(self, theta: Array, hidden: Array, gamma: float, radius: Array | float | None = None) -> Array:
        """Return theta + gamma (W - I) h, in full float32 on every device."""
        assert radius is None, "a product does not clip"
        return theta + gamma * jnp.tensordot(self.laplacian, hidden, axes=1, precision="highest")

    def degrees(self, nodes: int) -> Array:
        """Return how many neighbors each node has."""
        return jnp.count_nonzero(self.laplacian - jnp.diag(jnp.diagonal(self.laplacian)), axis=1)

    def heard(self) -> float:
        """Return one: all links are there."""
        return 1.0

    def weight(self, nodes: int) -> Array:
        """Return what the weights of each node's links add up to."""
        weight: Array = -jnp.diagonal(self.laplacian)
        return weight

    def edges(self) -> Links:
        """Return receivers, senders and weights of the links, in order of receivers."""
        off = np.asarray(self.laplacian) * (1 - np.eye(len(self.laplacian), dtype=np.float32))
        receiver, sender = np.nonzero(off)
        return receiver, sender, off[receiver, sender]


class Lists(NamedTuple):
    """Neighbors and weights ``(J, K)``, padded with the node itself at weight zero; weights may have seeds last."""

    ids: Array
    weights: Array

    def mix(self, theta: Array, hidden: Array, gamma: float, radius: Array | float | None = None) -> Array:
        """Return theta + gamma sum_k w_k (h_k - h), one neighbor at a time so that no copies are held."""
        pull, own = jnp.zeros_like(theta), hidden[: theta.shape[0]]
        for k in range(self.ids.shape[1]):
            weight = _lift(self.weights[:, k], theta.ndim)
            pull = pull + weight * (clipped(own, hidden[self.ids[:, k]], radius) - own)
        return theta + gamma * pull

    def degrees(self, nodes: int) -> Array:
        """Return how many neighbors each node has, under every seed where weights have seeds."""
        return jnp.count_nonzero(self.weights, axis=1)

    def heard(self) -> float:
        """Return one: all links are there."""
        return 1.0

    def weight(self, nodes: int) -> Array:
        """Return what the weights of each node's links add up to."""
        return jnp.sum(self.weights, axis=1)

    def edges(self) -> Links:
        """Return receivers, senders and weights of the links, in order of receivers; padding has weight zero."""
        nodes, most = self.ids.shape
        return np.repeat(np.arange(nodes), most), np.asarray(self.ids).ravel(), np.asarray(self.weights).ravel()


class Edges(NamedTuple):
    """Directed edges sorted by receiver; weights may have seeds last."""

    receiver: Array
    sender: Array
    weights: Array

    def mix(self, theta: Array, hidden: Array, gamma: float, radius: Array | float | None = None) -> Array:
        """Return theta + gamma times the sum over each node's incoming edges."""
        own = hidden[self.receiver]
        pulls = _lift(self.weights, theta.ndim) * (clipped(own, hidden[self.sender], radius) - own)
        return theta.at[self.receiver].add(gamma * pulls, indices_are_sorted=True)

    def degrees(self, nodes: int) -> Array:
        """Return how many neighbors each node has, under every seed where weights have seeds."""
        there = jnp.asarray(self.weights != 0, dtype=jnp.int32)
        return segment_sum(there, self.receiver, nodes, indices_are_sorted=True)

    def heard(self) -> float:
        """Return one: all links are there."""
        return 1.0

    def weight(self, nodes: int) -> Array:
        """Return what the weights of each node's links add up to."""
        return segment_sum(self.weights, self.receiver, nodes, indices_are_sorted=True)

    def edges(self) -> Links:
        """Return receivers, senders and weights of the links, in order of receivers."""
        return np.asarray(self.receiver), np.asarray(self.sender), np.asarray(self.weights)


def network(topology: Topology, clips: bool = False) -> Network:
    """Return the way of mixing that suits the topology, and ``clips`` each neighbor's copy where that is asked for."""
    nodes, edges, most = topology.nodes, topology.graph.edges, int(topology.degrees.max())
    few = most <= SHORT_LIST and jax.default_backend() != "cpu"
    dense = (nodes <= DENSE_NODES and not few) or are_many(nodes, len(edges))
    if dense and not clips:
        return Dense(jnp.asarray(topology.matrix() - np.eye(nodes), dtype=jnp.float32))
    if are_even(nodes, len(edges), most):
        index, weights = topology.neighbors()
        return Lists(*_narrow(index, weights))
    return Edges(*_narrow(*directed(topology)))


def _narrow(*arrays: npt.NDArray[Any]) -> Iterator[Array]:
    """Yield whole numbers and weights, 32 bits each."""
    return (jnp.asarray(array, dtype=jnp.float32 if array.dtype.kind == "f" else jnp.int32) for array in arrays)


def _lift(weights: Array, dimensions: int) -> Array:
    """Return weights of places, or of places and seeds, to be broadcast against models."""
    return weights.reshape(*weights.shape, *(1,) * (dimensions - weights.ndim))
