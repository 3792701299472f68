"""Networks that change from round to round: graphs in turn, links that fail, nodes that sleep."""

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from omkl.errors import InputError
from omkl.topology.graphs import Graph, refuse_parts
from omkl.topology.weights import Topology

Chance: TypeAlias = Any
"""A probability, or a boolean array with a row per round, True where it happens."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Graphs that take turns: round t runs on graph t mod G.

    Each is anything that stands for a topology. One of them alone may fall into parts, as a matching does; the links
    of all together must connect the nodes.
    """

    graphs: list[Any]

    def __post_init__(self) -> None:
        if not isinstance(self.graphs, list | tuple) or not self.graphs:
            rule = "a schedule has one graph or more; pass ['ring', 'star']"
            raise InputError(f"graphs is {self.graphs!r}; {rule}", "graphs")
        object.__setattr__(self, "graphs", list(self.graphs))


@dataclass(frozen=True, eq=False)
class Faults:
    """What fails in a round, drawn anew in every round of every seed, or given.

    Attributes
    ----------
    links
        The probability that a link fails, or booleans ``(T, E)``, True where it does: a row per round, a column per
        row of ``graph.edges``; under a Schedule, per link of any of its graphs, as pairs i < j in ascending order.
    nodes
        The probability that a node sleeps, or booleans ``(T, J)``, True where it does.

    Notes
    -----
    A failed link carries nothing in that round, and its weight returns to the self weights of both its ends: W stays
    symmetric, its rows sum to one, and mixing keeps the mean over the nodes. All links of a sleeping node fail; it
    goes on learning from its own stream. When a link is back, both ends first bring their copies of each other's
    hidden state up to date; that is not charged.

    >>> import omkl
    >>> method = omkl.paper()
    >>> result = omkl.simulate("banana", "ring", 20, method, faults=omkl.Faults(links=0.3, nodes=0.05))
    >>> bool(result.link_bits.mean() < 0.7 * omkl.simulate("banana", "ring", 20, method).link_bits.mean())
    True
    """

    name: ClassVar[str] = "faults"

    links: Chance = 0.0
    nodes: Chance = 0.0

    def __post_init__(self) -> None:
        for name in ("links", "nodes"):
            object.__setattr__(self, name, _chance(name, getattr(self, name)))

    def check(self, rounds: int, links: int, nodes: int) -> None:
        """Refuse arrays that do not fit the run."""
        for name, value, columns in (("links", self.links, links), ("nodes", self.nodes, nodes)):
            if not isinstance(value, float) and value.shape != (rounds, columns):
                raise InputError(
                    f"{name} has shape {value.shape}; this run has {rounds} rounds and {columns} {name}; give faults "
                    f"of shape {(rounds, columns)}, or a probability"
                )


def _chance(name: str, value: Chance) -> Any:
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        if not 0 <= (chance := float(value)) <= 1:
            raise InputError(f"{name} is {value}; a probability of failing lies in [0, 1]; try {name}=0.1")
        return chance
    try:
        array = np.array(value)
    except ValueError:
        array = np.empty(0)
    if array.dtype != bool or array.ndim != 2:
        raise InputError(
            f"{name} is {type(value).__name__} of {array.dtype} and shape {array.shape}; it must be a probability, or "
            f"booleans with a row per round, True where it fails; try {name}=0.1"
        )
    array.setflags(write=False)
    return array


def union(turns: Sequence[Topology]) -> Graph:
    """Return the graph of all links that a schedule has; refuse one whose parts never meet."""
    edges = np.concatenate([turn.graph.edges for turn in turns])
    graph = Graph(turns[0].nodes, edges, "schedule", names=turns[0].graph.names)
    refuse_parts(graph)
    return graph
