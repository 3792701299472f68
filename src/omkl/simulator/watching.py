"""Looking at a run while it goes on: what some of its nodes do, and which of their links are up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from omkl import algorithm
from omkl.arrays import Array, namespace
from omkl.methods import Info, Method, Round
from omkl.methods.protocol import MethodState
from omkl.simulator.faults import failing, numbered
from omkl.topology import Faults, Graph, Topology


class NodeMetrics(NamedTuple):
    """What is seen of n nodes in k rounds, ``(k, n)``, under the first seed."""

    loss: Array
    disagreement: Array
    """The distance from the network's mean model."""
    weights: Array
    """Of the kernels, ``(k, n, P)``."""
    sent: Array
    """Bytes."""


class Look(NamedTuple):
    """What was measured in the rounds since the last look."""

    rounds: npt.NDArray[np.int64]
    network: Any
    """Means and sums over all nodes, ``(k, S)`` or more: ``measures.Metrics``."""
    nodes: NodeMetrics


class Begun(NamedTuple):
    """A run that is about to begin.

    Attributes
    ----------
    config
        What ``Result.config`` will be.
    graph
        The network, with all links that it ever has.
    kernels
        The names of the bank.
    links
        Which pairs of nodes ``(n, 2)`` can talk in a round: booleans ``(n,)``, and for a pair of a node with itself
        whether it is awake.
    """

    config: dict[str, Any]
    graph: Graph
    kernels: list[str]
    links: Callable[[int, npt.NDArray[np.int64]], npt.NDArray[np.bool_]]


class Plan(NamedTuple):
    """Which nodes to look at, and after how many rounds at least to look again."""

    nodes: Sequence[int]
    every: int


def in_units(look: Look, unit: float) -> Look:
    """Return a look with losses times the square of the target's unit."""
    return look._replace(network=scaled_losses(look.network, unit), nodes=scaled_losses(look.nodes, unit))


def scaled_losses(measured: Any, unit: float) -> Any:
    """Return measures with losses times a unit."""
    known = [name for name in ("loss", "pooled_loss") if not isinstance(getattr(measured, name, ()), tuple)]
    losses = {name: getattr(measured, name) * np.float32(unit) for name in known if unit != 1}
    return measured._replace(**losses)


class Watch(Protocol):
    """Somebody who looks at a run; the run waits while they do."""

    def begin(self, begun: Begun) -> Plan:
        """Return what to look at."""

    def see(self, look: Look) -> None:
        """Take a look."""


class Shown(NamedTuple):
    """What is measured of a round that is watched."""

    loss: Array
    network: Any
    nodes: NodeMetrics


@dataclass(frozen=True)
class Showing:
    """A measure, and what is seen of some nodes beside it."""

    measure: Callable[..., Any]
    nodes: tuple[int, ...]

    def __call__(self, method: Method, given: Round, info: Info, degrees: Array, state: MethodState) -> Shown:
        """Return both."""
        network, own = self.measure(method, given, info, degrees, state), np.array(self.nodes)
        xp = namespace(info.loss)
        apart = info.theta[own, 0] - xp.mean(info.theta[:, 0], axis=0)
        return Shown(
            network[0],
            network,
            NodeMetrics(
                info.loss[own, 0],
                xp.sqrt(xp.sum(apart**2, axis=(-3, -2, -1))),
                algorithm.normalize(info.log_weights[own, 0]),
                info.message_bytes[own, 0],
            ),
        )


def links_of(
    turns: Sequence[Topology], faults: Faults | None, seed: int
) -> Callable[[int, npt.NDArray[np.int64]], npt.NDArray[np.bool_]]:
    """Return which pairs of nodes can talk in a round, under a seed; see ``Begun``."""
    keys = [turn.graph.edges @ np.array([turn.nodes, 1]) for turn in turns]
    drawn = None if faults is None else failing(faults, [seed])

    def links(t: int, pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        i, j = np.sort(pairs, axis=1).T
        there: npt.NDArray[np.bool_] = (i == j) | _among(i * turns[0].nodes + j, keys[t % len(turns)])
        if drawn is not None:
            there &= ~drawn.failed(np.asarray(t), i, j, numbered(turns, i, j))[:, 0]
        return there

    return links


def _among(wanted: npt.NDArray[np.int64], known: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which numbers are among others, which are sorted: there may be millions of these."""
    if not len(known):
        return np.zeros(len(wanted), dtype=bool)
    return np.asarray(known[np.searchsorted(known, wanted).clip(0, len(known) - 1)] == wanted)
