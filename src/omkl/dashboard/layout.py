"""Where nodes are drawn: a connected piece of a large network, and places for nodes that are nowhere on a map."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.topology import Graph

STEPS = 200  # of the majorization; a few dozen are enough for most graphs
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

    Stress majorization (Gansner, Koren, North 2004) from a start by classical scaling, so that the same graph always
    looks the same; parts that do not hang together stand apart. A complete graph is a circle, and a long path bent to
    an open one: a straight line would leave most of the picture empty.

    >>> from omkl.topology import path
    >>> apart = np.diff(spread_out(4, path(4).edges), axis=0)
    >>> np.linalg.norm(apart, axis=1).round(1).tolist()
    [1.0, 1.0, 1.0]
    """
    hops = _hops(nodes, edges)
    if hops.max() <= 1:  # all linked: no place is better than another
        return _circle(np.arange(nodes) / nodes)
    if nodes > LONG and hops.max() == nodes - 1:
        return _circle(hops[hops.max(axis=1).argmax()] / nodes * BENT - BENT / 2)
    weights = 1 / (hops + np.eye(nodes)) ** 2 - np.eye(nodes)
    inverse = np.linalg.pinv(np.diag(weights.sum(axis=1)) - weights)
    places = _scaled(hops)
    for _ in range(STEPS):
        apart = np.linalg.norm(places[:, None] - places, axis=2) + np.eye(nodes)
        pull = weights * hops / np.maximum(apart, 1e-9)
        places = inverse @ (np.diag(pull.sum(axis=1)) - pull) @ places
    return places


def _circle(turns: Floats) -> Floats:
    return np.stack([np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)], axis=1)


def _hops(nodes: int, edges: Integers) -> Floats:
    """Return the least number of links between all pairs; between parts one more than within any."""
    hops = np.full((nodes, nodes), np.inf)
    np.fill_diagonal(hops, 0)
    hops[edges[:, 0], edges[:, 1]] = hops[edges[:, 1], edges[:, 0]] = 1
    for k in range(nodes):
        hops = np.minimum(hops, hops[:, k, None] + hops[k])
    return np.where(np.isinf(hops), hops[np.isfinite(hops)].max() + 1, hops)


def _scaled(hops: Floats) -> Floats:
    """Return the first two coordinates of classical scaling, which tell all nodes apart."""
    center = np.eye(len(hops)) - 1 / len(hops)
    values, vectors = np.linalg.eigh(-center @ hops**2 @ center / 2)
    vectors = vectors[:, -2:] * np.sign(vectors[np.abs(vectors[:, -2:]).argmax(axis=0), [-2, -1]])
    angle = np.arange(len(hops)) * (3 - 5**0.5) * np.pi  # a tenth of a link aside, so that twins part
    aside = 0.1 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.asarray((vectors * np.sqrt(values[-2:].clip(0)))[:, ::-1] + aside)
