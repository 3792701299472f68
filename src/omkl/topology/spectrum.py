"""The eigenvalues that decide how fast gossip mixes, for graphs of any size."""

import math

import numpy as np

from omkl.errors import InputError, extra
from omkl.topology.families import GRAPHS, rows
from omkl.topology.graphs import Floats, Graph

DENSE = 3000  # nodes up to which eigenvalues come from the dense matrix, in seconds


def laplacian_ends(graph: Graph, weights: Floats) -> tuple[float, float]:
    """Return the second smallest and the largest eigenvalue of the Laplacian with these weights."""
    if graph.nodes == 1:
        return 0.0, 0.0
    if (weights == weights[0]).all() and (known := _known_ends(graph)):
        return float(weights[0]) * known[0], float(weights[0]) * known[1]
    if graph.nodes > DENSE:
        values = _sparse_ends(graph, weights)
    else:
        values = np.asarray(np.linalg.eigvalsh(_laplacian(graph, weights)), dtype=np.float64)
    # An eigenvalue of exactly 2 must not leave a spectral gap of 1e-16.
    return float(values[1].round(12)), float(values[-1].round(12))


def resistances(graph: Graph) -> Floats:
    """Return the effective resistance of every edge, shape ``(E,)``: that between its ends, each edge being one ohm.

    It is one where nothing else joins them, and falls with every other way around; in all they sum to the number of
    nodes less the number of parts (Foster 1949).
    """
    if graph.nodes > DENSE:
        raise InputError(
            f"resistance weights for {graph.nodes} nodes; beyond {DENSE} the matrix takes too long to invert; use "
            "metropolis weights"
        )
    together = graph.components[:, None] == graph.components  # lifts the zero eigenvalue of every part
    inverse = np.linalg.inv(_laplacian(graph, np.ones(len(graph.edges))) + together)
    i, j = graph.edges.T
    return np.asarray(inverse[i, i] + inverse[j, j] - 2 * inverse[i, j], dtype=np.float64)


def _laplacian(graph: Graph, weights: Floats) -> Floats:
    i, j = graph.edges.T
    dense = np.zeros((graph.nodes, graph.nodes))
    dense[i, j] = dense[j, i] = -weights
    return np.asarray(dense - np.diag(dense.sum(axis=1)))


def _known_ends(graph: Graph) -> tuple[float, float] | None:
    n, height = graph.nodes, rows(graph.nodes)
    width = n // height
    known = {
        "path": (_wave(1 / n), _wave(1 - 1 / n)),
        "ring": (_wave(2 / n), _wave(2 * (n // 2) / n)),
        "complete": (n, n),
        "star": (1, n),
        "grid": (_wave(1 / width), _wave(1 - 1 / height) + _wave(1 - 1 / width)),
    }.get(graph.name)
    # The name is the user's to set; the edges decide.
    return known if known and n > 2 and np.array_equal(graph.edges, GRAPHS[graph.name](n).edges) else None


def _wave(k: float) -> float:
    return 4 * math.sin(math.pi / 2 * k) ** 2


def _sparse_ends(graph: Graph, weights: Floats) -> Floats:
    with extra("sim", "scipy"):
        from scipy.sparse import csgraph, csr_array
        from scipy.sparse.linalg import ArpackNoConvergence, eigsh
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
