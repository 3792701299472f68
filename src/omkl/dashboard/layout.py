"""Where nodes are drawn: a connected piece of a large network, and places for nodes that are nowhere on a map."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.errors import MissingExtraError
from omkl.topology import Graph

LONG, BENT = 8, 0.8  # a path of more nodes is bent to this part of a circle

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]


def piece(graph: Graph, most: int) -> Integers:
    """Return at most so many nodes that hang together, sorted: those nearest to one in the middle, of map or numbers.

    >>> from omkl.topology import path
    >>> piece(path(100), 5).tolist()
    [48, 49, 50, 51, 52]
    """
    if graph.nodes <= most:
        return np.arange(graph.nodes)
    inside = np.zeros(graph.nodes, dtype=bool)
    inside[_middle(graph)] = True
    while (room := most - int(inside.sum())) > 0:
        ends = inside[graph.edges]
        met = np.unique(graph.edges[ends.any(axis=1)][~ends[ends.any(axis=1)]])
        if not len(met):
            break
        inside[met[:room]] = True
    return np.flatnonzero(inside)


def _middle(graph: Graph) -> int:
    if graph.positions is None:
        return graph.nodes // 2
    return int(np.linalg.norm(graph.positions - graph.positions.mean(axis=0), axis=1).argmin())


def within(graph: Graph, nodes: Integers) -> Integers:
    """Return the links between some nodes, as pairs of places among them."""
    place = np.full(graph.nodes, -1)
    place[nodes] = np.arange(len(nodes))
    pairs = place[graph.edges]
    return pairs[(pairs >= 0).all(axis=1)]


def spread_out(nodes: int, edges: Integers) -> Floats:
    """Return places ``(n, 2)`` at which straight distances resemble the number of links between nodes.

    The layout of Kamada and Kawai, from a circle, so that the same graph always looks the same; parts that do not hang
    together stand apart. A complete graph is a circle, and a long path bent to an open one: a straight line would leave
    most of the picture empty.

    >>> from omkl.topology import path
    >>> apart = np.diff(spread_out(4, path(4).edges), axis=0)
    >>> np.linalg.norm(apart, axis=1).round(1).tolist()
    [1.0, 1.0, 1.0]
    """
    try:
        import networkx as nx
    except ImportError:
        raise MissingExtraError("networkx", "dashboard") from None
    graph = nx.empty_graph(nodes)
    graph.add_edges_from(edges.tolist())
    hops = nx.floyd_warshall_numpy(graph)
    hops = np.where(np.isinf(hops), hops[np.isfinite(hops)].max() + 1, hops)
    if hops.max() <= 1:  # all linked: no place is better than another
        return _circle(np.arange(nodes) / nodes)
    if nodes > LONG and hops.max() == nodes - 1:
        return _circle(hops[hops.max(axis=1).argmax()] / nodes * BENT - BENT / 2)
    far = dict(enumerate(dict(enumerate(row)) for row in hops.tolist()))
    places = np.array(list(nx.kamada_kawai_layout(graph, far).values()))
    lengths = np.linalg.norm(places[edges[:, 0]] - places[edges[:, 1]], axis=1)
    return np.asarray(places / lengths.mean())


def _circle(turns: Floats) -> Floats:
    return np.stack([np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)], axis=1)
