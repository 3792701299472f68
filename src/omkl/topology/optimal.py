"""Gossip weights with the largest spectral gap, by semidefinite programming (Xiao and Boyd 2004).

With L = A diag(w) A^T, the gap of W = I - L is the largest g for which all eigenvalues of L but the zero of the
constant vectors lie in [g, 2 - g]:  g I <= L + 11^T/J  and  L <= (2 - g) I.  The term 11^T/J lifts that zero to one,
where it binds nothing; it is in the first constraint alone, for the solver splits the second on a sparse graph.
"""

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import numpy as np

from omkl.errors import InputError, extra
from omkl.process import shared, silenced
from omkl.topology.graphs import Floats, Graph, GraphLike, as_graph, refuse_parts
from omkl.topology.weights import Topology

LARGEST = 80  # nodes; up to a minute on two cores, and time grows with the sixth power


def fdla(graph: GraphLike) -> Topology:
    """Return the fastest distributed linear averaging: the weights, of any sign, with the largest spectral gap.

    Needs cvxpy. Weights of links and nodes may be negative; ``fmmc`` has none that are.
    """
    graph = as_graph(graph)
    return Topology(graph, _optimal(graph, "fdla", nonnegative=False), "fdla")


def fmmc(graph: GraphLike) -> Topology:
    """Return the fastest mixing Markov chain: of the W without negative entries, the one with the largest gap.

    Needs cvxpy (Boyd, Diaconis and Xiao 2004).
    """
    graph = as_graph(graph)
    weights = np.maximum(_optimal(graph, "fmmc", nonnegative=True), 0)
    given = np.bincount(graph.edges.ravel(), np.repeat(weights, 2), graph.nodes).max()
    # The margin keeps 1 - (sum of weights) from ending a rounding error below zero.
    return Topology(graph, weights / max(1.0, given * (1 + 1e-12)), "fmmc")


def _optimal(graph: Graph, rule: str, nonnegative: bool) -> Floats:
    refuse_parts(graph)
    if graph.nodes > LARGEST:
        raise InputError(
            f"{rule} weights for {graph.nodes} nodes; beyond {LARGEST} the solver takes minutes to hours; use "
            "best_constant or metropolis weights"
        )
    if graph.nodes == 1:
        return np.zeros(0)
    with extra("sdp", "cvxpy"):
        cp: Any = import_module("cvxpy")
    links = np.arange(len(graph.edges))
    incidence = np.zeros((graph.nodes, len(links)))
    incidence[graph.edges[:, 0], links], incidence[graph.edges[:, 1], links] = 1, -1
    w, gap, identity = cp.Variable(len(links), nonneg=nonnegative), cp.Variable(), np.eye(graph.nodes)
    laplacian = incidence @ cp.diag(w) @ incidence.T
    rules = [laplacian + 1 / graph.nodes >> gap * identity, (2 - gap) * identity >> laplacian]
    if nonnegative:
        rules.append(cp.diag(laplacian) <= 1)
    with _quiet():
        cp.Problem(cp.Maximize(gap), rules).solve(solver=cp.CLARABEL)
    return np.asarray(w.value, dtype=np.float64)


@shared
def _quiet() -> AbstractContextManager[None]:
    """On very symmetric graphs the optimum is degenerate: the solver has eight digits of the gap and asks for more."""
    return silenced({"Solution may be inaccurate": UserWarning})
