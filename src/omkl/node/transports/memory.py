"""A network in memory, in virtual time: the same seed gives the same run, faults and all."""

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from omkl.node.config import NetworkConfig
from omkl.node.events import Event, Scored
from omkl.node.protocol import Protocol

Sample: TypeAlias = tuple[Any, Any]
Watch: TypeAlias = Callable[[float, str, Event], None]
Act: TypeAlias = Callable[[Protocol, float], list[Event]]
"""Something that a node does at a time of its clock."""


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """What happens to a message on its way; probabilities, and seconds."""

    delay: float = 0.0
    jitter: float = 0.0
    """The delay of each message is up to this much longer."""
    loss: float = 0.0
    duplication: float = 0.0
    ordered: bool = True
    """Messages of one node to another arrive in the order they were sent, whatever their delays."""


class Network:
    """Nodes, and messages under way between neighbors.

    Attributes
    ----------
    now
        Virtual seconds since the start.
    nodes
        The protocols, by id.
    """

    def __init__(self, conditions: Conditions | None = None, seed: int = 0, watch: Watch | None = None) -> None:
        self.now = 0.0
        self.nodes: dict[str, Protocol] = {}
        self.conditions = conditions or Conditions()
        self._random = random.Random(seed)
        self._watch = watch
        self._count = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._streams: dict[str, Iterator[Sample]] = {}
        self._cut: set[frozenset[str]] = set()
        self._arrival: dict[tuple[str, str], float] = {}
        self._wakes: dict[str, float] = {}

    def join(self, protocol: Protocol) -> None:
        """Add a node, and let it and its neighbors reach each other."""
        own = protocol.role.id
        self.nodes[own] = protocol
        self._schedule_wake(own)
        for peer in self._reached(own):
            self._meet(own, peer)

    def leave(self, id: str) -> None:
        """Take a node away, as a kill would: its messages under way arrive, nothing more reaches it."""
        del self.nodes[id]
        self._streams.pop(id, None)
        for peer, node in list(self.nodes.items()):
            if id in node.links:
                self._do(peer, lambda node, now: node.gone(id, now))

    def observe(self, id: str, x: Any, y: Any) -> None:
        """Give a node one sample, now."""
        self._do(id, lambda node, now: node.observe(x, y, now))

    def feed(self, id: str, samples: Iterable[Sample]) -> None:
        """Give a node a stream: the next sample as soon as it has taken the last one, and its end."""
        self._streams[id] = iter(samples)
        self._next_sample(id)

    def cut(self, one: str, other: str, noticed: bool = True) -> None:
        """Cut a link: what is under way or sent from now on is lost; the ends may notice or not."""
        self._cut.add(frozenset((one, other)))
        if noticed:
            self._do(one, lambda node, now: node.gone(other, now))
            self._do(other, lambda node, now: node.gone(one, now))

    def mend(self, one: str, other: str) -> None:
        """Undo a cut."""
        self._cut.discard(frozenset((one, other)))
        self._meet(one, other)

    def at(self, time: float, act: Callable[[], None]) -> None:
        """Let something happen at a time."""
        heapq.heappush(self._due, (time, next(self._count), act))

    def clock(self, id: str) -> float:
        """Return what the clock of a node shows."""
        return self.now

    def when(self, id: str, time: float) -> float:
        """Return when the clock of a node will show a time."""
        return time

    def run(self, until: float = math.inf) -> None:
        """Let time pass until then, or until nothing is left to happen."""
        while self._due and self._due[0][0] <= until:
            self.now, _, act = heapq.heappop(self._due)
            act()
        if until < math.inf:
            self.now = until

    def _reached(self, id: str) -> list[str]:
        own = self.nodes[id]
        return [peer for peer in own.links if peer in self.nodes and frozenset((id, peer)) not in self._cut]

    def _meet(self, one: str, other: str) -> None:
        self._do(one, lambda node, now: node.came(other, now))
        self._do(other, lambda node, now: node.came(one, now))

    def _do(self, id: str, act: Act) -> None:
        self._tell(id, act(self.nodes[id], self.clock(id)))

    def _tell(self, id: str, events: list[Event]) -> None:
        """Pass on what a node has to say: its messages, when to wake it, its events."""
        node = self.nodes[id]
        for peer, data in node.outgoing():
            for receiver in node.links if peer is None else (peer,):
                self._send(id, receiver, data)
        self._schedule_wake(id)
        self._report(id, events)

    def _report(self, id: str, events: list[Event]) -> None:
        for event in events:
            if self._watch:
                self._watch(self.now, id, event)
            if isinstance(event, Scored):
                self.at(self.now, lambda: self._next_sample(id))

    def _next_sample(self, id: str) -> None:
        if id not in self.nodes or id not in self._streams:
            return
        for x, y in self._streams[id]:
            self.observe(id, x, y)
            return
        del self._streams[id]
        self._do(id, Protocol.end)

    def _send(self, sender: str, receiver: str, data: bytes) -> None:
        rules = self.conditions
        copies = 2 if self._random.random() < rules.duplication else 1
        for _ in range(copies):
            arrival = self.now + rules.delay + rules.jitter * self._random.random()
            if rules.ordered:
                arrival = max(arrival, self._arrival.get((sender, receiver), 0.0))
                self._arrival[sender, receiver] = arrival
            if self._random.random() >= rules.loss:
                self._arrive(arrival, sender, receiver, data)

    def _arrive(self, time: float, sender: str, receiver: str, data: bytes) -> None:
        """Let bytes pass from one process to another, not from or to the next of that name: links are connections."""
        source, target = self.nodes.get(sender), self.nodes.get(receiver)

        def arrive() -> None:
            if self.nodes.get(receiver) is target and self.nodes.get(sender) in (source, None):
                self._deliver(sender, receiver, data)

        self.at(time, arrive)

    def _deliver(self, sender: str, receiver: str, data: bytes) -> None:
        if receiver in self.nodes and frozenset((sender, receiver)) not in self._cut:
            self._do(receiver, lambda node, now: self._receive(node, sender, data, now))

    def _receive(self, node: Protocol, sender: str, data: bytes, now: float) -> list[Event]:
        return node.receive(sender, data, now)

    def _schedule_wake(self, id: str) -> None:
        due = self.nodes[id].wake_at()
        if due < math.inf and self._wakes.get(id) != due and (time := self.when(id, due)) < math.inf:
            self._wakes[id] = due
            self.at(max(time, self.now), lambda: self._wake(id, due))

    def _wake(self, id: str, due: float) -> None:
        node = self.nodes.get(id)
        if self._wakes.get(id) == due:
            del self._wakes[id]
        if node is not None and node.wake_at() == due:  # else another call has seen to it
            self._do(id, Protocol.wake)


def run(config: NetworkConfig, X: Any, y: Any, conditions: Conditions | None = None, seed: int = 0) -> Network:
    """Return the network after every node has learned its column of a stream X ``(T, J, d)``, y ``(T, J)``."""
    network = Network(conditions, seed)
    for index, id in enumerate(config.ids):
        network.join(Protocol(config.role(id), index, network.now))
    for index, id in enumerate(config.ids):
        network.feed(id, zip(X[:, index], y[:, index], strict=True))
    network.run()
    return network
