"""How the links of a graph are best laid out for mixing: as a matrix, as lists of neighbors, or one by one."""

import numpy as np

from omkl.topology import Topology
from omkl.topology.graphs import Floats, Integers

DENSE_NODES = 64  # up to here a J x J product costs less than the gathers
LARGEST_MATRIX = 4096  # nodes; up to here it does so for graphs whose nodes hear an eighth of all others
LONGEST_LIST = 32  # neighbors; each is compiled by itself
MOST_PADDING = 4  # lists may be this much longer than the edges they hold


def are_many(nodes: int, links: int) -> bool:
    """Return whether the links fill a matrix well enough to compute with it whole."""
    return nodes <= LARGEST_MATRIX and 16 * links >= nodes**2


def are_even(nodes: int, links: int, most: int) -> bool:
    """Return whether lists of as many neighbors as any node has are short and not mostly padding."""
    return most <= LONGEST_LIST and nodes * most <= MOST_PADDING * 2 * links


def directed(topology: Topology) -> tuple[Integers, Integers, Floats]:
    """Return receivers, senders and weights of the links both ways, sorted by receiver."""
    both = np.concatenate([topology.graph.edges, topology.graph.edges[:, ::-1]])
    order = np.argsort(both[:, 0], kind="stable")
    return both[order, 0], both[order, 1], np.tile(topology.weights, 2)[order]
