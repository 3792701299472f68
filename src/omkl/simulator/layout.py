"""How the links of a graph are best laid out for mixing: as a matrix, as lists of neighbors, or one by one."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from omkl.topology import Topology
from omkl.topology.graphs import Integers

DENSE_NODES = 64  # up to here a J x J product costs less than the gathers
LARGEST_MATRIX = 4096  # nodes; up to here it does so for graphs whose nodes hear an eighth of all others
LONGEST_LIST = 32  # neighbors; each is compiled by itself
SHORT_LIST = 8  # neighbors; on an accelerator a few gathers are part of a kernel, and a product is one by itself
MOST_PADDING = 4  # lists may be this much longer than the edges they hold


def best(topology: Topology, clips: bool = False, accelerates: bool = False) -> Literal["matrix", "lists", "edges"]:
    """Return how a graph that stays is laid out; no matrix where copies are clipped, which it does not know."""
    nodes, links, most = topology.nodes, len(topology.graph.edges), int(topology.degrees.max())
    few = accelerates and most <= SHORT_LIST
    if ((nodes <= DENSE_NODES and not few) or are_many(nodes, links)) and not clips:
        return "matrix"
    return "lists" if are_even(nodes, links, most) else "edges"


def are_many(nodes: int, links: int) -> bool:
    """Return whether the links fill a matrix well enough to compute with it whole."""
    return nodes <= LARGEST_MATRIX and 16 * links >= nodes**2


def are_even(nodes: int, links: int, most: int) -> bool:
    """Return whether lists of as many neighbors as any node has are short and not mostly padding."""
    return most <= LONGEST_LIST and nodes * most <= MOST_PADDING * 2 * links


def directed(edges: Integers, weights: npt.NDArray[Any]) -> tuple[Integers, Integers, npt.NDArray[Any]]:
    """Return receivers, senders and weights of links both ways, sorted by receiver."""
    receivers, senders = np.concatenate([edges, edges[:, ::-1]]).T
    order = np.argsort(receivers, kind="stable")
    return receivers[order], senders[order], np.tile(weights, 2)[order]
