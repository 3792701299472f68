"""Graphs and gossip matrices: who talks to whom, and with what weight.

A gossip matrix is W = I - A diag(w) A^T, with A the incidence matrix of the graph and w one weight per link: symmetric,
its rows sum to one. Everything is kept by link, so a million nodes fit; dense matrices are built on demand only. A
network that changes is a ``Schedule`` of graphs, or a graph with ``Faults``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np

from omkl.errors import InputError, pick
from omkl.topology.changing import Faults, Schedule, union
from omkl.topology.families import GRAPHS, complete, erdos_renyi, geometric, grid, nearby, path, ring, star
from omkl.topology.files import is_file, read
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
    "read",
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


def build(
    topology: Any,
    nodes: int | None = None,
    weights: str = "metropolis",
    *,
    connected: bool = True,
    names: Sequence[str] | None = None,
) -> Topology:
    """Return the topology that a name, a graph or a matrix stands for.

    Parameters
    ----------
    topology
        A name in ``GRAPHS``, a Graph, a networkx graph, the path of a file that ``read`` knows, a matrix, or a
        Topology, which is returned as it is. A matrix of zeros and ones with a zero diagonal is an adjacency; any other
        is W itself and keeps its weights.
    nodes
        Number of nodes; required with a name, checked with the rest.
    weights
        A name in ``WEIGHTS``, for what has no weights yet.
    connected
        Refuse a graph that falls into parts.
    names
        What the nodes are called, in their order. A graph with names has the same ones, and is put in this order;
        another has this order already.
    """
    rule, topology = pick("weights", weights, WEIGHTS), opened(topology)
    if isinstance(topology, str):
        make = pick("topology", topology, GRAPHS)
        if nodes is None:
            raise InputError(
                f"topology {topology!r} without nodes; a name needs their number; pass nodes=20 (--nodes 20)"
            )
        topology = make(nodes)
    if not isinstance(topology, (Graph, Topology)):
        matrix = square(topology)
        topology = from_adjacency(matrix) if is_adjacency(matrix) else from_gossip(matrix)
    built = topology if isinstance(topology, Topology) else _weighed(topology, weights, rule)
    if names is not None:
        built = _matched(built, tuple(names))
    if nodes not in (None, built.nodes):
        raise InputError(f"nodes={nodes} for a topology of {built.nodes} nodes; they must match; drop --nodes (nodes=)")
    if connected:
        refuse_parts(built.graph)
    return built


def _weighed(graph: Graph, weights: str, rule: Callable[[GraphLike], Topology]) -> Topology:
    if graph.strengths is not None and weights != "metropolis":
        raise InputError(
            f"weights={weights!r} for links that have weights of their own; only metropolis weights follow these; "
            "leave weights out, or remove those of the links"
        )
    return rule(graph)


def opened(topology: Any) -> Any:
    """Return the graph of a file's path or of networkx, also where it is one of a Schedule; all else as it is."""
    if isinstance(topology, Schedule):
        return Schedule([opened(one) for one in topology.graphs])
    if is_networkx(topology):
        return from_networkx(topology)
    return read(topology) if is_file(topology) else topology


def names_of(topology: Any) -> tuple[str, ...] | None:
    """Return what the nodes of an opened topology are called; None where they have no names but 0, 1, 2, ..."""
    graphs = topology.graphs if isinstance(topology, Schedule) else [topology]
    each = (getattr(one, "graph", one) for one in graphs)
    names: tuple[str, ...] | None = next((one.names for one in each if getattr(one, "names", None)), None)
    return None if names is None or names == tuple(map(str, range(len(names)))) else names


def _matched(topology: Topology, names: tuple[str, ...]) -> Topology:
    """Return a topology whose nodes are in the order of these names; one without names has this order already."""
    graph = topology.graph
    if graph.names is None:  # a number of nodes that differs is told elsewhere
        return replace(topology, graph=replace(graph, names=names)) if len(names) == graph.nodes else topology
    place = {name: k for k, name in enumerate(graph.names)}
    lacking, others = [one for one in names if one not in place], [one for one in place if one not in set(names)]
    told = [f"the {what} {_some(those)}" for what, those in (("graph lacks", lacking), ("data lack", others)) if those]
    if told:
        near = ((one, get_close_matches(one, lacking, n=1) or get_close_matches(one, names, n=1)) for one in others)
        alike = next((f"did you mean {found[0]!r} by {one!r}? " for one, found in near if found), "")
        raise InputError(
            f"names of nodes differ: {', '.join(told)}; {alike}each node of the data is one of the graph, by its "
            "name; rename them, or leave out their rows or links"
        )
    return topology.ordered(np.array([place[name] for name in names]))


def _some(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more


def turns(
    topology: Any, nodes: int | None = None, weights: str = "metropolis", names: Sequence[str] | None = None
) -> tuple[Topology, ...]:
    """Return the topologies of a Schedule in turn, or the one that anything else stands for; see ``build``."""
    if not isinstance(topology, Schedule):
        return (build(topology, nodes, weights, names=names),)
    built: tuple[Topology, ...] = ()
    for one in topology.graphs:
        known = names or (built[0].graph.names if built else None)
        built += (build(one, nodes, weights, connected=False, names=known),)
    for turn, one in enumerate(built):
        if one.nodes != built[0].nodes:
            raise InputError(
                f"graph {turn} of the schedule has {one.nodes} nodes, graph 0 has {built[0].nodes}; they must have the "
                "same nodes; a node that is not there is one without links"
            )
    union(built)
    return built
