"""Graphs and gossip matrices: who talks to whom, and with what weight.

A gossip matrix is W = I - A diag(w) A^T, with A the incidence matrix of the graph and w one weight per link: symmetric,
its rows sum to one. Everything is kept by link, so a million nodes fit; dense matrices are built on demand only. A
network that changes is a ``Schedule`` of graphs, or a graph with ``Faults``.
"""

from collections.abc import Callable
from typing import Any

from omkl.errors import InputError, pick
from omkl.topology.changing import Faults, Schedule, union
from omkl.topology.families import GRAPHS, complete, erdos_renyi, geometric, grid, nearby, path, ring, star
from omkl.topology.graphs import (
    Graph,
    GraphLike,
    from_adjacency,
    from_networkx,
    is_adjacency,
    is_networkx,
    refuse_parts,
    square,
)
from omkl.topology.optimal import fdla, fmmc
from omkl.topology.weights import (
    Topology,
    best_constant,
    from_gossip,
    local_degree,
    max_degree,
    metropolis,
    resistance,
)

__all__ = [
    "GRAPHS",
    "WEIGHTS",
    "Faults",
    "Graph",
    "GraphLike",
    "Schedule",
    "Topology",
    "best_constant",
    "build",
    "complete",
    "erdos_renyi",
    "fdla",
    "fmmc",
    "from_adjacency",
    "from_networkx",
    "geometric",
    "grid",
    "local_degree",
    "max_degree",
    "metropolis",
    "nearby",
    "path",
    "resistance",
    "ring",
    "star",
    "turns",
    "union",
]

WEIGHTS: dict[str, Callable[[GraphLike], Topology]] = {
    "metropolis": metropolis, "resistance": resistance, "local_degree": local_degree, "max_degree": max_degree,
    "best_constant": best_constant, "fdla": fdla, "fmmc": fmmc,
}  # fmt: skip


def build(topology: Any, nodes: int | None = None, weights: str = "metropolis", *, connected: bool = True) -> Topology:
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
    connected
        Refuse a graph that falls into parts.
    """
    rule = pick("weights", weights, WEIGHTS)
    if isinstance(topology, str):
        make = pick("topology", topology, GRAPHS)
        if nodes is None:
            raise InputError(f"topology {topology!r} without nodes; a name needs their number; pass nodes=20")
        topology = make(nodes)
    if not (isinstance(topology, (Graph, Topology)) or is_networkx(topology)):
        matrix = square(topology)
        topology = from_adjacency(matrix) if is_adjacency(matrix) else from_gossip(matrix)
    built = topology if isinstance(topology, Topology) else rule(topology)
    if nodes not in (None, built.nodes):
        raise InputError(f"nodes={nodes} for a topology of {built.nodes} nodes; they must match; leave nodes out")
    if connected:
        refuse_parts(built.graph)
    return built


def turns(topology: Any, nodes: int | None = None, weights: str = "metropolis") -> tuple[Topology, ...]:
    """Return the topologies of a Schedule in turn, or the one that anything else stands for; see ``build``."""
    if not isinstance(topology, Schedule):
        return (build(topology, nodes, weights),)
    built = tuple(build(one, nodes, weights, connected=False) for one in topology.graphs)
    for turn, one in enumerate(built):
        if one.nodes != built[0].nodes:
            raise InputError(
                f"graph {turn} of the schedule has {one.nodes} nodes, graph 0 has {built[0].nodes}; they must have the "
                "same nodes; a node that is not there is one without links"
            )
    union(built)
    return built
