"""Ways to mix a whole network at once, each equal to ``algorithm.mix`` at every node.

A small network is one matrix product, a sparse one a gather over lists of neighbors. One with hubs, whose lists would
be mostly padding, is a sum over edges. A product knows no single neighbor, so where copies are clipped there are lists
or edges. For lists and edges ``hidden`` may go on after the nodes that are mixed, with neighbors that live elsewhere
(``halo``).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import Array

from omkl.algorithm import clipped
from omkl.simulator.layout import best, directed
from omkl.topology import Topology


class Linked(NamedTuple):
    """A network: its links, laid out to be mixed, and what is known of every node's."""

    links: Any
    degree: Array
    """How many neighbors each node has, ``(J,)``, or ``(J, S)`` where seeds differ."""
    sums: Array
    """What the weights of its links add up to, likewise."""
    share: Array | None = None
    """The part of its links that it hears, likewise; None is all."""

    def mix(self, theta: Array, hidden: Array, gamma: float, radius: Array | float | None = None) -> Array:
        """Return what the links make of it."""
        mixed: Array = self.links.mix(theta, hidden, gamma, radius)
        return mixed

    def degrees(self, nodes: int) -> Array:
        """Return how many neighbors each node has."""
        return self.degree

    def heard(self) -> Array | float:
        """Return the share."""
        return 1.0 if self.share is None else self.share

    def weight(self, nodes: int) -> Array:
        """Return the sums of the weights."""
        return self.sums


class Dense(NamedTuple):
    """W - I as a matrix, so that rounding in the rows' sums does not leak; it may have seeds last."""

    laplacian: Array

    def mix(self, theta: Array, hidden: Array, gamma: float, radius: Array | float | None = None) -> Array:
        """Return theta + gamma (W - I) h, in full float32 on every device."""
        assert radius is None, "a product does not clip"
        if self.laplacian.ndim > 2:
            return theta + gamma * jnp.einsum("jks,ks...->js...", self.laplacian, hidden, precision="highest")
        return theta + gamma * jnp.tensordot(self.laplacian, hidden, axes=1, precision="highest")


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


def network(topology: Topology, clips: bool = False) -> Linked:
    """Return the way of mixing that suits the topology, and ``clips`` each neighbor's copy where that is asked for."""
    way = best(topology, clips, jax.default_backend() != "cpu")
    if way == "matrix":
        return linked(Dense(*_narrow(topology.matrix() - np.eye(topology.nodes))), topology)
    if way == "lists":
        return linked(Lists(*_narrow(*topology.neighbors())), topology)
    return linked(Edges(*_narrow(*directed(topology.graph.edges, topology.weights))), topology)


def linked(links: Any, topology: Topology, order: Any = slice(None)) -> Linked:
    """Return the network of these links, its nodes in this order."""
    ends = topology.graph.edges[topology.weights != 0].ravel()
    known = np.bincount(ends, minlength=topology.nodes), 1 - topology.self_weights
    return Linked(links, *_narrow(*(part[order] for part in known)))


def _narrow(*arrays: npt.NDArray[Any]) -> Iterator[Array]:
    """Yield whole numbers and weights, 32 bits each."""
    return (jnp.asarray(array, dtype=jnp.float32 if array.dtype.kind == "f" else jnp.int32) for array in arrays)


def _lift(weights: Array, dimensions: int) -> Array:
    """Return weights of places, or of places and seeds, to be broadcast against models."""
    return weights.reshape(*weights.shape, *(1,) * (dimensions - weights.ndim))
