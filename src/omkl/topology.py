"""Graphs and gossip matrices: who talks to whom, and with what weight.

A gossip matrix is W = I - A diag(w) A^T, with A the incidence matrix of the graph and w one weight per link: symmetric,
its rows sum to one. Everything is kept by link, so a million nodes fit; dense matrices are built on demand only.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.errors import InputError, MissingExtraError, pick

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
GraphLike: TypeAlias = Any
"""A Graph, an undirected networkx graph, or an adjacency matrix."""

DENSE = 3000  # nodes up to which eigenvalues come from the dense matrix, in seconds
TOLERANCE = 1e-6  # of a gossip matrix given by the user


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph on nodes 0 ... nodes-1; ``edges``, shape ``(E, 2)``, are kept with i < j, sorted, unique."""

    nodes: int
    edges: Integers
    name: str = "custom"

    def __post_init__(self) -> None:
        _counted(self.nodes)
        edges = np.sort(np.asarray(self.edges, dtype=np.int64).reshape(-1, 2), axis=1)
        bad = (edges[:, 0] == edges[:, 1]) | (edges[:, 0] < 0) | (edges[:, 1] >= self.nodes)
        if bad.any():
            i, j = edges[bad.argmax()]
            raise InputError(f"edge ({i}, {j}); edges join two different nodes of 0 ... {self.nodes - 1}; remove it")
        key = edges[:, 0] * self.nodes + edges[:, 1]
        if not (np.diff(key) > 0).all():
            edges = edges[np.unique(key, return_index=True)[1]]
        edges.setflags(write=False)
        object.__setattr__(self, "edges", edges)

    @cached_property
    def degrees(self) -> Integers:
        """Number of neighbors of each node, shape ``(J,)``."""
        return np.bincount(self.edges.ravel(), minlength=self.nodes)

    @cached_property
    def components(self) -> Integers:
        """The smallest node that each node is connected to, shape ``(J,)``."""
        label = np.arange(self.nodes)
        i, j = self.edges.T
        # A root that neither hooks nor is hooked has neighbors that hooked below it, and hooks in the next turn: two
        # turns halve the number of roots, whatever the graph.
        while len(i):
            np.minimum.at(label, np.maximum(i, j), np.minimum(i, j))
            while not np.array_equal(shorter := label[label], label):
                label = shorter
            i, j = label[i], label[j]
            i, j = i[i != j], j[i != j]
        return label


@dataclass(frozen=True, eq=False)
class Topology:
    """A connected graph with a gossip weight for each edge; a node keeps one minus the weights of its edges.

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
        _refuse_parts(self.graph)
        weights.setflags(write=False)
        object.__setattr__(self, "weights", weights)

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

    def eigenvalues(self) -> Floats:
        """Return all eigenvalues of W, descending, from the dense matrix."""
        return np.linalg.eigvalsh(self.matrix())[::-1].astype(np.float64)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """1 - l_2 and 1 - l_J: the second smallest and the largest eigenvalue of I - W; zeros for one node.

        Kept as differences from one, for on a path of a million nodes 1 - l_2 is 3e-12.
        """
        return _ends(self.graph, self.weights)


def path(nodes: int) -> Graph:
    """Return the path 0 - 1 - ... - J-1."""
    k = np.arange(_counted(nodes))
    return Graph(nodes, _link(k[:-1], k[1:]), "path")


def ring(nodes: int) -> Graph:
    """Return the ring: the path with its ends joined; two nodes share one edge."""
    k = np.arange(_counted(nodes))
    return Graph(nodes, _link(k, np.roll(k, -1)) if nodes > 2 else _link(k[:-1], k[1:]), "ring")


def complete(nodes: int) -> Graph:
    """Return the complete graph, every node linked to every other."""
    return Graph(nodes, _link(*np.triu_indices(_counted(nodes), 1)), "complete")


def star(nodes: int) -> Graph:
    """Return the star around node 0."""
    k = np.arange(1, _counted(nodes))
    return Graph(nodes, _link(0 * k, k), "star")


def grid(nodes: int) -> Graph:
    """Return the grid as square as the number allows, nodes numbered by rows.

    The number of rows is the largest divisor of ``nodes`` up to its square root: 20 nodes make 4 x 5, and a prime
    number of nodes makes a path.
    """
    k = np.arange(_counted(nodes)).reshape(_rows(nodes), -1)
    return Graph(nodes, np.concatenate([_link(k[:, :-1], k[:, 1:]), _link(k[:-1], k[1:])]), "grid")


def erdos_renyi(nodes: int, p: float | None = None, seed: int = 0) -> Graph:
    """Return a random graph with each edge present with probability ``p``.

    The default, 3 ln J / J, is three times the threshold of connectivity: a node is isolated with probability J^-3.
    """
    p = min(1.0, 3 * math.log(_counted(nodes)) / nodes) if p is None else p
    return from_networkx(_networkx().fast_gnp_random_graph(_counted(nodes), p, seed=seed), "erdos_renyi")


def geometric(nodes: int, radius: float | None = None, seed: int = 0) -> Graph:
    """Return random points of the unit square, linked when closer than ``radius``.

    The default, sqrt(2 ln(J+2) / J), is 2.5 times the threshold of connectivity: at most one seed in a hundred fails.
    """
    radius = math.sqrt(2 * math.log(_counted(nodes) + 2) / nodes) if radius is None else radius
    return from_networkx(_networkx().random_geometric_graph(_counted(nodes), radius, seed=seed), "geometric")


def from_networkx(graph: Any, name: str = "custom") -> Graph:
    """Return an undirected networkx graph, its nodes numbered in the order of ``graph.nodes``."""
    if graph.is_directed():
        raise InputError("a directed graph; gossip goes both ways over a link; pass graph.to_undirected()")
    number = {node: k for k, node in enumerate(graph.nodes)}
    ends = (number[node] for edge in graph.edges() for node in edge)
    return Graph(len(number), np.fromiter(ends, dtype=np.int64).reshape(-1, 2), name)


def from_adjacency(matrix: npt.ArrayLike) -> Graph:
    """Return the graph of a symmetric matrix of zeros and ones with a zero diagonal."""
    a = _square(matrix)
    if not _is_adjacency(a):
        raise InputError(
            "adjacency has entries besides 0 and 1 or a nonzero diagonal; make it 0/1, or use build for a W"
        )
    return Graph(len(a), np.argwhere(np.triu(a)))


GRAPHS: dict[str, Callable[[int], Graph]] = {
    "path": path, "ring": ring, "complete": complete, "star": star, "grid": grid,
    "erdos_renyi": erdos_renyi, "geometric": geometric,
}  # fmt: skip


def metropolis(graph: GraphLike) -> Topology:
    """Return weights 1 / (1 + max(d_i, d_j)): positive everywhere, and all eigenvalues above -1.

    >>> metropolis(path(3)).matrix().round(2).tolist()
    [[0.67, 0.33, 0.0], [0.33, 0.33, 0.33], [0.0, 0.33, 0.67]]
    """
    graph = _graph(graph)
    return Topology(graph, 1 / (1 + graph.degrees[graph.edges].max(axis=1)), "metropolis")


def local_degree(graph: GraphLike) -> Topology:
    """Return weights 1 / max(d_i, d_j); eigenvalue -1 where the graph is bipartite and regular, as an even ring."""
    graph = _graph(graph)
    return Topology(graph, 1 / graph.degrees[graph.edges].max(axis=1), "local_degree")


def max_degree(graph: GraphLike) -> Topology:
    """Return weights 1 / d_max; eigenvalue -1 where the graph is bipartite and regular, as an even ring."""
    graph = _graph(graph)
    return Topology(graph, np.full(len(graph.edges), 1 / max(graph.degrees.max(), 1)), "max_degree")


def best_constant(graph: GraphLike) -> Topology:
    """Return the constant weight with the largest spectral gap, 2 / (l_2 + l_J) of the Laplacian.

    A node may keep a negative weight, as the center of a star does.
    """
    graph = _graph(graph)
    _refuse_parts(graph)
    ends = _ends(graph, np.ones(len(graph.edges)))
    return Topology(graph, np.full(len(graph.edges), 2 / (sum(ends) or 1)), "best_constant")


WEIGHTS: dict[str, Callable[[GraphLike], Topology]] = {
    "metropolis": metropolis, "local_degree": local_degree, "max_degree": max_degree, "best_constant": best_constant,
}  # fmt: skip


def build(topology: Any, nodes: int | None = None, weights: str = "metropolis") -> Topology:
    """Return the topology that a name, a graph or a matrix stands for.

    Parameters
    ----------
    topology
        A name in ``GRAPHS``, a Graph, a networkx graph, a matrix, or a Topology, which is returned as it is. A matrix
        of zeros and ones with a zero diagonal is an adjacency; any other is W itself and keeps its weights.
    nodes
        Number of nodes; required with a name, checked with the rest.
    weights
        A name in ``WEIGHTS``, for what has no weights yet.
    """
    rule = pick("weights", weights, WEIGHTS)
    if isinstance(topology, str):
        make = pick("topology", topology, GRAPHS)
        if nodes is None:
            raise InputError(f"topology {topology!r} without nodes; a name needs their number; pass nodes=20")
        topology = make(nodes)
    if not (isinstance(topology, (Graph, Topology)) or _is_networkx(topology)):
        matrix = _square(topology)
        topology = from_adjacency(matrix) if _is_adjacency(matrix) else _gossip(matrix)
    built = topology if isinstance(topology, Topology) else rule(topology)
    if nodes not in (None, built.nodes):
        raise InputError(f"nodes={nodes} for a topology of {built.nodes} nodes; they must match; leave nodes out")
    return built


def _counted(nodes: int) -> int:
    if nodes < 1:
        raise InputError(f"{nodes} nodes; a network has at least one; pass nodes=1 or more")
    return nodes


def _link(i: Integers, j: Integers) -> Integers:
    return np.stack([i.ravel(), j.ravel()], axis=1)


def _rows(nodes: int) -> int:
    return next(r for r in range(math.isqrt(nodes), 0, -1) if nodes % r == 0)


def _networkx() -> Any:
    try:
        import networkx as nx
    except ImportError:
        raise MissingExtraError("networkx", "sim") from None
    return nx


def _is_networkx(graph: Any) -> bool:
    return hasattr(graph, "is_directed") and hasattr(graph, "edges")


def _graph(graph: GraphLike) -> Graph:
    if isinstance(graph, Graph):
        return graph
    return from_networkx(graph) if _is_networkx(graph) else from_adjacency(graph)


def _square(matrix: npt.ArrayLike) -> Floats:
    try:
        a = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"topology of type {type(matrix).__name__}; give a name, a graph or a square matrix") from None
    if a.ndim != 2 or a.shape[0] != a.shape[1] or not a.size:
        raise InputError(f"topology of shape {a.shape}; a matrix must be square, one row per node; or give a name")
    if not np.isfinite(a).all():
        i, j = np.argwhere(~np.isfinite(a))[0]
        raise InputError(f"matrix entry ({i}, {j}) is {a[i, j]}; entries must be finite; fill it in")
    if (apart := np.abs(a - a.T) > TOLERANCE).any():
        i, j = np.argwhere(apart)[0]
        raise InputError(
            f"matrix entry ({i}, {j}) is {a[i, j]:.4g} and ({j}, {i}) is {a[j, i]:.4g}; gossip goes both ways over a "
            "link: the matrix must be symmetric; use omkl.topology.metropolis(graph)"
        )
    return a


def _is_adjacency(a: Floats) -> bool:
    return bool(np.isin(a, (0, 1)).all() and not a.diagonal().any())


def _gossip(w: Floats) -> Topology:
    remedy = "use omkl.topology.metropolis(graph)"
    if (w < -TOLERANCE).any():
        i, j = np.argwhere(w < -TOLERANCE)[0]
        raise InputError(f"gossip matrix entry ({i}, {j}) is {w[i, j]:.4g}; entries must not be negative; {remedy}")
    if (off := np.abs(w.sum(axis=1) - 1) > TOLERANCE).any():
        row = int(off.argmax())
        raise InputError(f"gossip matrix row {row} sums to {w[row].sum():.7g}; rows must sum to 1; {remedy}")
    edges = np.argwhere(np.triu(w, 1) > 1e-12)  # what a solver leaves of a zero is no link
    return Topology(Graph(len(w), edges), w[tuple(edges.T)], "matrix")


def _refuse_parts(graph: Graph) -> None:
    roots, sizes = np.unique(graph.components, return_counts=True)
    if len(roots) == 1:
        return
    parts = []
    for k in np.argsort(-sizes, kind="stable")[:5]:
        members = [str(m) for m in np.flatnonzero(graph.components == roots[k])[:3]]
        parts.append(f"{sizes[k]} with {', '.join(members)}" + (", ..." if sizes[k] > 3 else ""))
    rest = f"; {len(roots) - 5} smaller" if len(roots) > 5 else ""
    raise InputError(
        f"the graph has {len(roots)} components, by number of nodes: {'; '.join(parts)}{rest}; a network must be "
        "connected; add edges between them, or raise p or radius of a random graph"
    )


def _ends(graph: Graph, weights: Floats) -> tuple[float, float]:
    """Return the second smallest and the largest eigenvalue of the Laplacian with these weights."""
    if graph.nodes == 1:
        return 0.0, 0.0
    if (weights == weights[0]).all() and (known := _known_ends(graph)):
        return float(weights[0]) * known[0], float(weights[0]) * known[1]
    if graph.nodes > DENSE:
        values = _sparse_ends(graph, weights)
    else:
        i, j = graph.edges.T
        dense = np.zeros((graph.nodes, graph.nodes))
        dense[i, j] = dense[j, i] = -weights
        values = np.asarray(np.linalg.eigvalsh(dense - np.diag(dense.sum(axis=1))), dtype=np.float64)
    # An eigenvalue of exactly 2 must not leave a spectral gap of 1e-16.
    return float(values[1].round(12)), float(values[-1].round(12))


def _known_ends(graph: Graph) -> tuple[float, float] | None:
    n, rows = graph.nodes, _rows(graph.nodes)
    columns = n // rows
    known = {
        "path": (_wave(1 / n), _wave(1 - 1 / n)),
        "ring": (_wave(2 / n), _wave(2 * (n // 2) / n)),
        "complete": (n, n),
        "star": (1, n),
        "grid": (_wave(1 / columns), _wave(1 - 1 / rows) + _wave(1 - 1 / columns)),
    }.get(graph.name)
    # The name is the user's to set; the edges decide.
    return known if known and n > 2 and np.array_equal(graph.edges, GRAPHS[graph.name](n).edges) else None


def _wave(k: float) -> float:
    return 4 * math.sin(math.pi / 2 * k) ** 2


def _sparse_ends(graph: Graph, weights: Floats) -> Floats:
    try:
        from scipy.sparse import csgraph, csr_array
        from scipy.sparse.linalg import ArpackNoConvergence, eigsh
    except ImportError:
        raise MissingExtraError("scipy", "sim") from None
    there, back = graph.edges.T, graph.edges[:, ::-1].T
    links = csr_array((np.tile(weights, 2), np.hstack([there, back])), shape=(graph.nodes, graph.nodes))
    start = np.random.default_rng(0).standard_normal(graph.nodes)
    try:
        found = eigsh(
            csgraph.laplacian(links), k=4, which="BE", ncv=64, v0=start, maxiter=200, return_eigenvectors=False
        )
    except ArpackNoConvergence:
        raise InputError(
            f"the eigenvalues of {graph.nodes} nodes did not converge; above {DENSE} they need a fair spectral gap; "
            "use metropolis weights, which need none, and study a smaller graph of the same kind"
        ) from None
    return np.sort(found)
