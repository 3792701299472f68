"""Gossip matrices: a weight for every edge, and the rules in closed form."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from omkl.display import short
from omkl.errors import InputError
from omkl.topology.graphs import TOLERANCE, Floats, Graph, GraphLike, Integers, as_graph, refuse_parts
from omkl.topology.spectrum import laplacian_ends, resistances


@dataclass(frozen=True, eq=False)
class Topology:
    """A graph with a gossip weight for each edge; a node keeps one minus the weights of its edges.

    Attributes
    ----------
    graph
        The graph.
    weights
        One weight per row of ``graph.edges``, shape ``(E,)``.
    rule
        Where the weights come from, for the record.
    """

    graph: Graph
    weights: Floats
    rule: str = "custom"

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        if weights.shape != self.graph.edges.shape[:1] or not np.isfinite(weights).all():
            raise InputError(
                f"weights of shape {weights.shape}, {np.isfinite(weights).sum()} of them finite; each of the "
                f"{len(self.graph.edges)} edges needs a finite weight; use omkl.topology.metropolis(graph)"
            )
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)

    def __repr__(self) -> str:
        return f"<Topology {short(self.rule)} weights on {self.graph!r}>"

    @property
    def nodes(self) -> int:
        """Number of nodes, J."""
        return self.graph.nodes

    @property
    def degrees(self) -> Integers:
        """Number of neighbors of each node, shape ``(J,)``."""
        return self.graph.degrees

    @property
    def self_weights(self) -> Floats:
        """The diagonal of W, shape ``(J,)``."""
        return 1.0 - np.bincount(self.graph.edges.ravel(), np.repeat(self.weights, 2), self.nodes).astype(np.float64)

    def matrix(self) -> Floats:
        """Return W, dense, shape ``(J, J)``."""
        i, j = self.graph.edges.T
        w = np.diag(self.self_weights)
        w[i, j] = w[j, i] = self.weights
        return w

    def neighbors(self) -> tuple[npt.NDArray[np.int32], Floats]:
        """Return each node's neighbors and their weights, both ``(J, K)``, K the largest degree.

        Neighbors ascend. Rows with fewer than K are filled up with the node itself at weight zero.
        """
        source = self.graph.edges.T.ravel()
        order = np.lexsort((target := self.graph.edges[:, ::-1].T.ravel(), source))
        row, starts = source[order], np.cumsum(self.degrees) - self.degrees
        column = np.arange(len(row)) - starts[row]
        shape = self.nodes, int(self.degrees.max())
        index = np.broadcast_to(np.arange(self.nodes, dtype=np.int32)[:, None], shape).copy()
        weights = np.zeros(shape)
        index[row, column] = target[order]
        weights[row, column] = np.tile(self.weights, 2)[order]
        return index, weights

    def ordered(self, order: Integers) -> "Topology":
        """Return the same with its nodes in another order: node k is the one that was ``order[k]``."""
        ends = np.sort(np.argsort(order)[self.graph.edges], axis=1)
        return Topology(self.graph.ordered(order), self.weights[np.lexsort(ends.T[::-1])], self.rule)

    def eigenvalues(self) -> Floats:
        """Return all eigenvalues of W, descending, from the dense matrix."""
        return np.linalg.eigvalsh(self.matrix())[::-1].astype(np.float64)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """1 - l_2 and 1 - l_J: the second smallest and the largest eigenvalue of I - W; zeros for one node.

        Kept as differences from one, for on a path of a million nodes 1 - l_2 is 3e-12.
        """
        return laplacian_ends(self.graph, self.weights)


def metropolis(graph: GraphLike) -> Topology:
    """Return weights 1 / (1 + max(d_i, d_j)): positive everywhere, and all eigenvalues above -1.

    Where links have strengths s_ij, they are s_ij / (s_ij + max(S_i, S_j)), S_i the sum of a node's.

    >>> from omkl.topology import path
    >>> metropolis(path(3)).matrix().round(2).tolist()
    [[0.67, 0.33, 0.0], [0.33, 0.33, 0.33], [0.0, 0.33, 0.67]]
    """
    graph = as_graph(graph)
    each = np.ones(len(graph.edges)) if graph.strengths is None else graph.strengths
    return Topology(graph, _shares(graph, each), "metropolis")


def resistance(graph: GraphLike) -> Topology:
    """Return weights r_ij / (r_ij + max(R_i, R_j)), r_ij the effective resistance of a link, R_i the sum of a node's.

    Metropolis weights count the links of a node; here each counts for as much as the network needs it, a bridge between
    parts for more than one of a dense part. The two are the same on trees, rings, stars and complete graphs. Positive
    everywhere, and all eigenvalues above -1.

    >>> from omkl.topology import Graph
    >>> resistance(Graph(4, [[0, 1], [0, 2], [1, 2], [2, 3]])).weights.round(2).tolist()  # a triangle and a bridge to 3
    [0.33, 0.22, 0.22, 0.3]
    """
    graph = as_graph(graph)
    return Topology(graph, _shares(graph, resistances(graph)), "resistance")


def _shares(graph: Graph, each: Floats) -> Floats:
    """Return what a link has of all that its ends have in their links, of the end with more, and its own once again."""
    total = np.bincount(graph.edges.ravel(), np.repeat(each, 2), graph.nodes)
    return np.asarray(each / (each + total[graph.edges].max(axis=1)))


def local_degree(graph: GraphLike) -> Topology:
    """Return weights 1 / max(d_i, d_j); eigenvalue -1 where the graph is bipartite and regular, as an even ring."""
    graph = as_graph(graph)
    return Topology(graph, 1 / graph.degrees[graph.edges].max(axis=1), "local_degree")


def max_degree(graph: GraphLike) -> Topology:
    """Return weights 1 / d_max; eigenvalue -1 where the graph is bipartite and regular, as an even ring."""
    graph = as_graph(graph)
    return Topology(graph, np.full(len(graph.edges), 1 / max(graph.degrees.max(), 1)), "max_degree")


def best_constant(graph: GraphLike) -> Topology:
    """Return the constant weight with the largest spectral gap, 2 / (l_2 + l_J) of the Laplacian.

    A node may keep a negative weight, as the center of a star does.
    """
    graph = as_graph(graph)
    refuse_parts(graph)
    ends = laplacian_ends(graph, np.ones(len(graph.edges)))
    return Topology(graph, np.full(len(graph.edges), 2 / (sum(ends) or 1)), "best_constant")


def from_gossip(w: Floats) -> Topology:
    """Return the topology of a symmetric gossip matrix without negative entries."""
    remedy = "use omkl.topology.metropolis(graph)"
    if (w < -TOLERANCE).any():
        i, j = np.argwhere(w < -TOLERANCE)[0]
        raise InputError(f"gossip matrix entry ({i}, {j}) is {w[i, j]:.4g}; entries must not be negative; {remedy}")
    if (off := np.abs(w.sum(axis=1) - 1) > TOLERANCE).any():
        row = int(off.argmax())
        raise InputError(f"gossip matrix row {row} sums to {w[row].sum():.7g}; rows must sum to 1; {remedy}")
    edges = np.argwhere(np.triu(w, 1) > 1e-12)  # what a solver leaves of a zero is no link
    return Topology(Graph(len(w), edges), w[tuple(edges.T)], "matrix")
