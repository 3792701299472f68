"""Undirected graphs, and what can be read as one: networkx graphs and adjacency matrices."""

from collections.abc import Sequence
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

    Attributes
    ----------
    nodes, edges, name
        The number of nodes, the links, and what the graph is called.
    positions
        Where the nodes are on a map, ``(J, 2)``, for whoever draws them; None where they are nowhere.
    names
        What the nodes are called, if they have names. Data that name their nodes are matched by them.
    strengths
        How much each link counts, ``(E,)``, positive; only their ratios matter. ``metropolis`` weights follow them.
        None counts all links alike.
    """

    nodes: int
    edges: Integers
    name: str = "custom"
    positions: Floats | None = None
    names: tuple[str, ...] | None = None
    strengths: Floats | None = None

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
        if self.names is not None:
            object.__setattr__(self, "names", distinct(self.names, self.nodes))
        key = edges[:, 0] * self.nodes + edges[:, 1]
        if not (np.diff(key) > 0).all():
            _, first, same = np.unique(key, return_index=True, return_inverse=True)
            if self.strengths is not None:
                object.__setattr__(self, "strengths", self._once(edges, first, same))
            edges = edges[first]
        if self.strengths is not None:
            self._check_strengths(edges)
        edges.setflags(write=False)
        object.__setattr__(self, "edges", edges)

    def _once(self, edges: Integers, first: Integers, same: Integers) -> Floats:
        """Return one strength for each link that is there, sorted; refuse a link with two of them."""
        given = np.asarray(self.strengths, dtype=np.float64)
        kept = np.asarray(given[first])
        if (apart := kept[same] != given).any():
            i, j = edges[k := int(apart.argmax())]
            raise InputError(
                f"the link of {self.called(i)} and {self.called(j)} has weights {kept[same[k]]:g} and {given[k]:g}; a "
                "link goes both ways and has one; remove the other"
            )
        return kept

    def _check_strengths(self, edges: Integers) -> None:
        given = np.asarray(self.strengths, dtype=np.float64)
        if given.shape != edges.shape[:1]:
            raise InputError(f"{given.shape} strengths for {len(edges)} links; each link has one; leave them out")
        if (bad := ~(np.isfinite(given) & (given > 0))).any():
            i, j = edges[k := int(bad.argmax())]
            raise InputError(
                f"the link of {self.called(i)} and {self.called(j)} has weight {given[k]:g}; a weight says how much a "
                "link counts and must be positive; remove the link, or all weights"
            )
        given.setflags(write=False)
        object.__setattr__(self, "strengths", given)

    def called(self, node: Any) -> str:
        """Return the name of a node, or its number."""
        return str(node) if self.names is None else self.names[node]

    def ordered(self, order: Integers) -> "Graph":
        """Return the same graph with its nodes in another order: node k is the one that was ``order[k]``."""
        place = np.argsort(order)
        return Graph(
            self.nodes,
            place[self.edges],
            self.name,
            None if self.positions is None else self.positions[order],
            None if self.names is None else tuple(self.names[k] for k in order),
            self.strengths,
        )

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
    """Return an undirected networkx graph, its nodes in the order of ``graph.nodes``.

    Nodes that are not 0, 1, 2, ... in this order keep what they are called. They are at their ``pos``, or ``x`` and
    ``y``, if any; links count by their ``weight`` if any has one.
    """
    if graph.is_directed():
        raise InputError("a directed graph; gossip goes both ways over a link; pass graph.to_undirected()")
    number = {node: k for k, node in enumerate(graph.nodes)}
    names = None if list(number) == list(range(len(number))) else tuple(map(str, number))
    links = [(number[u], number[v], weight) for u, v, weight in graph.edges(data="weight")]
    edges = np.array([link[:2] for link in links], dtype=np.int64).reshape(-1, 2)
    return Graph(len(number), edges, name, _positions(graph), names, _strengths([weight for *_, weight in links]))


def _positions(graph: Any) -> Floats | None:
    """Return where all nodes of a networkx graph are, if they all say so."""
    told = dict(graph.nodes(data=True)).values()
    places = [one.get("pos", (one.get("x"), one.get("y"))) for one in told]
    try:
        found = np.array(places, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if found.shape == (len(places), 2) and np.isfinite(found).all() else None


def _strengths(weights: list[Any]) -> Floats | None:
    """Return what links count; one without a weight counts one, as in networkx, where others have some."""
    if all(weight is None for weight in weights):
        return None
    try:
        return np.array([1.0 if weight is None else weight for weight in weights], dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            "a link's weight is not a number; it says how much the link counts; remove the weights"
        ) from None


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
        members = [graph.called(m) for m in np.flatnonzero(graph.components == roots[k])[:3]]
        parts.append(f"{sizes[k]} with {', '.join(members)}" + (", ..." if sizes[k] > 3 else ""))
    rest = f"; {len(roots) - 5} smaller" if len(roots) > 5 else ""
    raise InputError(
        f"the graph has {len(roots)} components, by number of nodes: {'; '.join(parts)}{rest}; a network must be "
        "connected; add edges between them, or raise p or radius of a random graph; for nodes that never talk take "
        "omkl.alone() (--method alone) on any graph"
    )


def distinct(names: Sequence[str], nodes: int) -> tuple[str, ...]:
    """Return the names of nodes as texts; refuse two that are alike."""
    texts = tuple(map(str, names))
    if len(texts) != nodes:
        raise InputError(f"{len(texts)} names for {nodes} nodes; each node has one; give as many, or none")
    if len(set(texts)) < nodes:
        twice = next(name for k, name in enumerate(texts) if name in texts[:k])
        raise InputError(f"two nodes are called {twice!r}; names tell nodes apart; rename one")
    return texts


def counted(nodes: int) -> int:
    """Return the number of nodes; refuse less than one."""
    if nodes < 1:
        raise InputError(f"{nodes} nodes; a network has at least one; pass nodes=1 or more")
    return nodes
