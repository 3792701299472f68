"""Graphs by name and number of nodes."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from omkl.errors import InputError, extra
from omkl.topology.graphs import Graph, Integers, counted, from_networkx


def path(nodes: int) -> Graph:
    """Return the path 0 - 1 - ... - J-1."""
    k = np.arange(nodes)
    return Graph(nodes, _link(k[:-1], k[1:]), "path")


def ring(nodes: int) -> Graph:
    """Return the ring: the path with its ends joined; two nodes share one edge."""
    k = np.arange(nodes)
    return Graph(nodes, _link(k, np.roll(k, -1)) if nodes > 2 else _link(k[:-1], k[1:]), "ring")


def complete(nodes: int) -> Graph:
    """Return the complete graph, every node linked to every other."""
    return Graph(nodes, _link(*np.triu_indices(counted(nodes), 1)), "complete")


def star(nodes: int) -> Graph:
    """Return the star around node 0."""
    k = np.arange(1, nodes)
    return Graph(nodes, _link(0 * k, k), "star")


def grid(nodes: int) -> Graph:
    """Return the grid as square as the number allows, nodes numbered by rows.

    The number of rows is the largest divisor of ``nodes`` up to its square root: 20 nodes make 4 x 5, and a prime
    number of nodes makes a path.
    """
    k = np.arange(counted(nodes)).reshape(rows(nodes), -1)
    edges = np.concatenate([_link(k[:, :-1], k[:, 1:]), _link(k[:-1], k[1:])])
    row, column = np.divmod(k.ravel(), k.shape[1])
    return Graph(nodes, edges, "grid", np.stack([column, -row], axis=1).astype(np.float64))


def erdos_renyi(nodes: int, p: float | None = None, seed: int = 0) -> Graph:
    """Return a random graph with each edge present with probability ``p``.

    The default, 3 ln J / J, is three times the threshold of connectivity: a node is isolated with probability J^-3.

    Parameters
    ----------
    nodes
        Number of nodes, J.
    p
        Probability of an edge. None takes 3 ln J / J.
    seed
        Seed of the draw.
    """
    counted(nodes)
    p = min(1.0, 3 * math.log(nodes) / nodes) if p is None else p
    if not 0 <= p <= 1:
        raise InputError(f"p is {p}; a probability lies in [0, 1]; leave p out for one that suits the number of nodes")
    with extra("sim", "networkx"):
        from networkx import fast_gnp_random_graph
    return from_networkx(fast_gnp_random_graph(nodes, p, seed=seed), "erdos_renyi")


def geometric(nodes: int, radius: float | None = None, seed: int = 0) -> Graph:
    """Return random points of the unit square, linked when closer than ``radius``.

    The default, sqrt(2 ln(J+2) / J), is 2.5 times the threshold of connectivity: at most one seed in a hundred fails.

    Parameters
    ----------
    nodes
        Number of nodes, J.
    radius
        Longest distance of two linked nodes. None takes sqrt(2 ln(J+2) / J).
    seed
        Seed of the draw.
    """
    counted(nodes)
    radius = math.sqrt(2 * math.log(nodes + 2) / nodes) if radius is None else radius
    with extra("sim", "networkx"):
        from networkx import random_geometric_graph
    return from_networkx(random_geometric_graph(nodes, radius, seed=seed), "geometric")


def nearby(positions: npt.ArrayLike, slack: float = 1.0) -> Graph:
    """Return nodes at positions ``(J, k)`` with all links up to a length: the least that connects them, times slack.

    >>> nearby([[0.0], [1.0], [3.0]]).edges.tolist()
    [[0, 1], [1, 2]]
    """
    places = np.asarray(positions, dtype=np.float64)
    pairs = _link(*np.triu_indices(counted(len(places)), 1))
    apart = np.linalg.norm(np.diff(places[pairs], axis=1)[:, 0], axis=1)
    graphs = ((length, Graph(len(places), pairs[apart <= length])) for length in (0, *np.sort(apart)))
    least = next(length for length, graph in graphs if not graph.components.any())
    return Graph(len(places), pairs[apart <= slack * least], "nearby", places if places.shape[1:] == (2,) else None)


GRAPHS: dict[str, Callable[[int], Graph]] = {
    "path": path, "ring": ring, "complete": complete, "star": star, "grid": grid,
    "erdos_renyi": erdos_renyi, "geometric": geometric,
}  # fmt: skip


def rows(nodes: int) -> int:
    """Return the number of rows of the grid."""
    return next(r for r in range(math.isqrt(nodes), 0, -1) if nodes % r == 0)


def _link(i: Integers, j: Integers) -> Integers:
    return np.stack([i.ravel(), j.ravel()], axis=1)
