"""Whole networks of protocol objects in memory, and what must hold of them."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from omkl import topology
from omkl.methods import Gossip
from omkl.node.config import Member, NetworkConfig
from omkl.node.events import Event, Moved
from omkl.node.links import LinkState
from omkl.node.protocol import Protocol
from omkl.node.settings import Timing
from omkl.node.transports.memory import Conditions, Network
from omkl_lab.torture import Invariants

LOCKSTEP = Timing(deadline=4.0, patience=0.5)
TIMER = Timing(mode="timer", deadline=4.0, period=1.0)


def config(
    nodes: int,
    graph: Any = "path",
    timing: Timing = LOCKSTEP,
    calibration: Any = None,
    standardize: bool = False,
    **method: Any,
) -> NetworkConfig:
    """Return a network of nodes a, b, c, ... that is quick to run."""
    settings: dict[str, Any] = {"features": 4, "eta": 0.2, "gamma": 0.5, "quantizer": "nearest"} | method
    members = tuple(Member(id=chr(ord("a") + k), listen=f"tcp/h:{k + 1}") for k in range(nodes))
    built = topology.build(graph, nodes)
    shared: dict[str, Any] = {"topology": built, "members": members, "timing": timing, "calibration": calibration}
    shared["standardize"] = standardize
    return NetworkConfig(name="n", inputs=2, method=Gossip(**settings), seed=3, **shared)


def stream(nodes: int, rounds: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs ``(T, J, 2)`` and labels ``(T, J)`` of a task that can be learned."""
    x = np.random.default_rng(seed).normal(size=(rounds, nodes, 2)).astype(np.float32)
    return x, np.where(x[..., 0] * x[..., 1] > 0, 1, -1)


class Watched(Protocol):
    """A node whose words the invariants of its network hold, and that is never due at the moment it was woken."""

    invariants: Invariants

    def _record(self) -> None:
        self.invariants.record(self)

    def _gossip(self, *given: Any) -> None:
        super()._gossip(*given)
        self._record()

    def _advance(self, now: float) -> list[Event]:
        events = super()._advance(now)
        self.invariants.look(self)
        assert self.wake_at() > now
        return events


class Cluster:
    """Nodes of one network in memory, and all that happened to them."""

    def __init__(self, config: NetworkConfig, conditions: Conditions | None = None, seed: int = 0) -> None:
        self.config = config
        self.events: list[tuple[float, str, Event]] = []
        self.streams: dict[str, Iterator[Any]] = {}
        self.network = Network(conditions, seed, self._note)
        self.nodes = self.network.nodes
        self.invariants = Invariants(len(config.ids))
        for k, id in enumerate(config.ids):
            self.join(id, 100 + k)

    def _note(self, now: float, id: str, event: Event) -> None:
        self.events.append((now, id, event))

    def join(self, id: str, boot: int) -> None:
        """Start a node."""
        self.add(Protocol(self.config.role(id), boot, self.network.now))

    def add(self, node: Protocol) -> None:
        """Let a node join, and watch it."""
        node.__class__ = Watched
        assert isinstance(node, Watched)
        node.invariants = self.invariants
        recover = node.recovery._recover

        def watched(*given: Any) -> None:
            recover(*given)
            self.invariants.record(node)

        node.recovery._recover = watched  # type: ignore[method-assign, assignment]
        self.invariants.record(node)
        self.network.join(node)

    def feed(self, x: np.ndarray, y: np.ndarray) -> None:
        for j, id in enumerate(self.config.ids):
            self.streams[id] = iter(zip(x[:, j], y[:, j], strict=True))
            self.network.feed(id, self.streams[id])

    def stop(self, id: str) -> Protocol:
        """Take a node away and return it."""
        node = self.nodes[id]
        self.network.leave(id)
        return node

    def resume(self, node: Protocol) -> None:
        """Bring a node back, and go on with its stream where it was."""
        self.add(node)
        if not node.ended:
            self.network.feed(node.role.id, self.streams[node.role.id])

    def of(self, kind: type[Any]) -> list[tuple[str, Any]]:
        """Return the events of one kind, and whose they are."""
        return [(id, event) for _, id, event in self.events if isinstance(event, kind)]

    def left_out(self) -> list[str]:
        return [f"{id}-{event.peer}" for id, event in self.of(Moved) if event.after is LinkState.LEFT_OUT]

    def states(self) -> set[LinkState]:
        return {link.state for node in self.nodes.values() for link in node.links.values()}

    def check_copies(self) -> None:
        """Every copy is its owner's hidden state of the owner's last round."""
        for node in self.nodes.values():
            for peer, link in node.links.items():
                owner = self.nodes[peer]
                assert (link.boot, link.round) == (owner.neighbors.boot, owner.round)
                np.testing.assert_array_equal(link.copy, owner.learning.state.hidden)

    def results(self) -> dict[str, np.ndarray]:
        """Return what a run comes to."""
        parts: dict[str, np.ndarray] = {}
        for id, node in self.nodes.items():
            state = node.learning.state
            parts |= {f"{id} theta": state.theta, f"{id} hidden": state.hidden, f"{id} weights": state.log_weights}
            parts |= {f"{id} copies": node.neighbors.copies.copy(), f"{id} round": np.array(node.round)}
        return parts


def run(
    config: NetworkConfig, x: np.ndarray, y: np.ndarray, conditions: Conditions | None = None, seed: int = 0
) -> Cluster:
    """Return the network after its streams have ended."""
    cluster = Cluster(config, conditions, seed)
    cluster.feed(x, y)
    cluster.network.run()
    return cluster


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray], skip: Iterable[str] = ()) -> None:
    assert one.keys() == other.keys()
    for name in one:
        if name not in skip:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)
