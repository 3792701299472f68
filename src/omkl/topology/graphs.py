"""Undirected graphs, and what can be read as one: networkx graphs and adjacency matrices."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl import display
from omkl.errors import InputError

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
GraphLike: TypeAlias = Any
"""A Graph, an undirected networkx graph, or an adjacency matrix."""

TOLERANCE = 1e-6  # of a matrix given by the user


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph on nodes 0 ... nodes-1; ``edges``, shape ``(E, 2)``, are kept with i < j, sorted, unique.

    ``positions``, shape ``(J, 2)``, say where nodes are on a map, for whoever draws them; None where they are nowhere.
    """

    nodes: int
    edges: Integers
    name: str = "custom"
    positions: Floats | None = None

    def __post_init__(self) -> None:
        counted(self.nodes)
        if self.positions is not None and np.shape(self.positions) != (self.nodes, 2):
            raise InputError(
                f"positions have shape {np.shape(self.positions)}; each of {self.nodes} nodes has two coordinates; "
                "leave them out, or pass one row a node"
            )
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

    def __repr__(self) -> str:
        nodes, links = display.counted(self.nodes, "node"), display.counted(len(self.edges), "link")
        return f"<Graph {display.short(self.name)}: {nodes}, {links}>"

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


def from_networkx(graph: Any, name: str = "custom") -> Graph:
    """Return an undirected networkx graph, its nodes in the order of ``graph.nodes``, at their ``pos`` if any."""
    if graph.is_directed():
        raise InputError("a directed graph; gossip goes both ways over a link; pass graph.to_undirected()")
    number = {node: k for k, node in enumerate(graph.nodes)}
    ends = (number[node] for edge in graph.edges() for node in edge)
    places = [place for _, place in graph.nodes(data="pos")]
    are_there = all(isinstance(one, tuple | list | np.ndarray) and np.shape(one) == (2,) for one in places)
    positions = np.array(places, dtype=np.float64) if places and are_there else None
    return Graph(len(number), np.fromiter(ends, dtype=np.int64).reshape(-1, 2), name, positions)


def from_adjacency(matrix: npt.ArrayLike) -> Graph:
    """Return the graph of a symmetric matrix of zeros and ones with a zero diagonal."""
    a = square(matrix)
    if not is_adjacency(a):
        raise InputError(
            "adjacency has entries besides 0 and 1 or a nonzero diagonal; make it 0/1, or use build for a W"
        )
    return Graph(len(a), np.argwhere(np.triu(a)))


def as_graph(graph: GraphLike) -> Graph:
    """Return what stands for a graph as a Graph."""
    if isinstance(graph, Graph):
        return graph
    return from_networkx(graph) if is_networkx(graph) else from_adjacency(graph)


def is_networkx(graph: Any) -> bool:
    """Return whether this looks like a networkx graph, without importing networkx."""
    return hasattr(graph, "is_directed") and hasattr(graph, "edges")


def square(matrix: npt.ArrayLike) -> Floats:
    """Return the matrix as floats; refuse one that is not square, finite and symmetric."""
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


def is_adjacency(a: Floats) -> bool:
    """Return whether all entries are zeros and ones and the diagonal is zero."""
    return bool(np.isin(a, (0, 1)).all() and not a.diagonal().any())


def refuse_parts(graph: Graph) -> None:
    """Refuse a graph that is not connected; name its largest components."""
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


def counted(nodes: int) -> int:
    """Return the number of nodes; refuse less than one."""
    if nodes < 1:
        raise InputError(f"{nodes} nodes; a network has at least one; pass nodes=1 or more")
    return nodes
