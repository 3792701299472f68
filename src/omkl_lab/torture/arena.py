"""The network in memory, with more faults: wrong clocks, slow nodes, and single messages that are lost or changed."""

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import NamedTuple, TypeAlias

from omkl.node.events import Event
from omkl.node.protocol import Protocol
from omkl.node.transports.memory import Act, Conditions, Network
from omkl_lab.torture.disk import Died
from omkl_lab.torture.violation import require

LATER = 1e-9  # seconds by which a node is woken too late, so that its clock shows the time in spite of rounding


class Clock(NamedTuple):
    """A monotonic clock that may run too fast or too slowly: it showed ``shown`` at time ``since``."""

    shown: float = 0.0
    since: float = 0.0
    pace: float = 1.0

    def at(self, now: float) -> float:
        """Return the time that it shows at a true time."""
        return self.shown + self.pace * (now - self.since)

    def when(self, time: float) -> float:
        """Return the true time at which it will show a time; infinity if it stands still."""
        return self.since + (time - self.shown) / self.pace + LATER if self.pace else math.inf


Hit: TypeAlias = Callable[[bytes], list[tuple[float, bytes]]]
"""Returns what becomes of a message: what arrives, and how much later than its turn."""

Report: TypeAlias = Callable[[str, list[Event]], None]
"""Called with a node's events, when what it had to send is sent; it may die of that."""

Check: TypeAlias = Callable[[Protocol, list[Event], float], None]
"""Called with a node after each thing it did, with what happened, and when by its clock."""

Hear: TypeAlias = Callable[[Protocol, str, bytes, float], None]
"""Called with a node, the neighbor whose bytes it is about to take in, these, and when by its clock."""


class Late(bytes):
    """A message that a fault has delayed."""


class Arena(Network):
    """A network whose nodes and links have faults of their own.

    Attributes
    ----------
    hits
        The faults of the next messages from one node to another.
    deaf
        Pairs of which the first is not heard by the second, though neither notices.
    calls
        How often each node did something.
    calm
        Whether delayed messages are dropped from now on.
    """

    def __init__(self, conditions: Conditions, random: Random, hear: Hear, check: Check, report: Report) -> None:
        super().__init__(conditions)
        self._random, self._hear, self._check, self._told = random, hear, check, report
        self._clocks: dict[str, Clock] = {}
        self._busy: dict[str, float] = {}
        self._waiting: dict[str, deque[Act]] = {}
        self._cost: dict[str, float] = {}
        self.hits: dict[tuple[str, str], deque[Hit]] = {}
        self.deaf: set[tuple[str, str]] = set()
        self.calls: dict[str, int] = {}
        self.calm = False
        self.died: Callable[[str], None] = self.kill

    def clock(self, id: str) -> float:
        """Return what the clock of a node shows."""
        return self._clocks.get(id, Clock()).at(self.now)

    def when(self, id: str, time: float) -> float:
        """Return when the clock of a node will show a time."""
        return self._clocks.get(id, Clock()).when(time)

    def set_clock(self, id: str, pace: float, ahead: float = 0.0) -> None:
        """Let a clock jump ahead and then run at another pace."""
        self._clocks[id] = Clock(self.clock(id) + ahead, self.now, pace)
        self._wakes.pop(id, None)
        if id in self.nodes:
            self._schedule_wake(id)

    def slow_down(self, id: str, cost: float) -> None:
        """Make every action of a node take so many seconds from now on."""
        self._cost[id] = cost

    def pause(self, id: str, seconds: float) -> None:
        """Stop a node for a while; messages to it wait."""
        self._busy[id] = max(self._busy.get(id, 0.0), self.now + seconds)

    @property
    def busy(self) -> float:
        """The time at which the last busy node is free again."""
        return max(self._busy.values(), default=0.0)

    def kill(self, id: str) -> None:
        """Remove a node; its neighbors are not told."""
        self.nodes.pop(id, None)
        self._busy.pop(id, None)
        self._waiting.pop(id, None)
        self._wakes.pop(id, None)

    def miss(self, id: str) -> None:
        """Let the neighbors of a node notice that it is gone."""
        if id not in self.nodes:
            for peer in [peer for peer, node in self.nodes.items() if id in node.links]:
                self._do(peer, lambda node, now: node.gone(id, now))

    def meet(self, one: str, other: str) -> None:
        """Tell two nodes that they reach each other, also where they have all along."""
        if one in self.nodes and other in self.nodes:
            self._meet(one, other)

    def part(self, one: str, other: str) -> None:
        """Let two nodes believe that they do not reach each other."""
        self._do(one, lambda node, now: node.gone(other, now))
        self._do(other, lambda node, now: node.gone(one, now))

    def cut(self, one: str, other: str, noticed: bool = True) -> None:
        """Cut a link, whichever of its ends are running."""
        self._cut.add(frozenset((one, other)))
        if noticed:
            self.part(one, other)

    def mend(self, one: str, other: str) -> None:
        """Undo a cut."""
        self._cut.discard(frozenset((one, other)))
        self.meet(one, other)

    def is_cut(self, one: str, other: str) -> bool:
        """Return whether a link is cut."""
        return frozenset((one, other)) in self._cut

    def forge(self, liar: str, victim: str, frames: list[bytes]) -> None:
        """Deliver a message that no neighbor has sent."""
        self._do(victim, lambda node, now: node.came(liar, now))
        for data in frames:
            self._do(victim, partial(self._forged, liar, data))

    def _forged(self, liar: str, data: bytes, node: Protocol, now: float) -> list[Event]:
        return self._receive(node, liar, data, now)

    def act(self, id: str, act: Act) -> None:
        """Let a node do something, if it is there."""
        self._do(id, act)

    def _do(self, id: str, act: Act) -> None:
        node = self.nodes.get(id)
        if node is None:
            return
        waiting = self._waiting.setdefault(id, deque())
        if waiting or self._busy.get(id, 0.0) > self.now:
            waiting.append(act)
            if len(waiting) == 1:
                self.at(self._busy[id], lambda: self._resume(node))
            return
        self._let(node, act)

    def _resume(self, node: Protocol) -> None:
        """Let a node that was busy do what it was to do meanwhile, in that order."""
        id = node.role.id
        if self.nodes.get(id) is not node:
            return
        waiting = self._waiting[id]
        while waiting and self._busy.get(id, 0.0) <= self.now and self.nodes.get(id) is node:
            self._let(node, waiting.popleft())
        if waiting and self.nodes.get(id) is node:
            self.at(self._busy[id], lambda: self._resume(node))

    def _let(self, node: Protocol, act: Act) -> None:
        id = node.role.id
        if cost := self._cost.get(id):
            self._busy[id] = self.now + cost
        self.calls[id] = self.calls.get(id, 0) + 1
        now = self.clock(id)
        events = act(node, now)
        self._check(node, events, now)
        require(act is not Protocol.wake or node.wake_at() > now, f"woken at {now}, it wants to be at {node.wake_at()}")
        try:
            self._tell(id, events)
        except Died:
            self.died(id)

    def _report(self, id: str, events: list[Event]) -> None:
        self._told(id, events)

    def _send(self, sender: str, receiver: str, data: bytes) -> None:
        hits = self.hits.get((sender, receiver))
        if not hits:
            super()._send(sender, receiver, data)
            return
        for later, changed in hits.popleft()(data):
            if later:
                self._arrive(self.now + later, sender, receiver, Late(changed))
            else:
                super()._send(sender, receiver, changed)

    def _deliver(self, sender: str, receiver: str, data: bytes) -> None:
        if (sender, receiver) not in self.deaf and not (self.calm and isinstance(data, Late)):
            super()._deliver(sender, receiver, data)

    def _receive(self, node: Protocol, sender: str, data: bytes, now: float) -> list[Event]:
        self._hear(node, sender, data, now)
        return super()._receive(node, sender, data, now)
