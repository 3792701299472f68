"""Checks lock step between two neighbors: which copies may be mixed, and when a neighbor may be left out.

Two nodes are *level* when each is in step with the other as it is now, no copy is ahead of the node that holds it, and
neither node is ahead of the other by more than a round. From there on neither takes a round without the other, so each
mixes in the other's round t as it takes round t + 1, whatever is lost or late: until one of them leaves the other out,
takes a snapshot, skips rounds or begins anew. Where two are not level, a copy may be ahead by as much as is walked and
not skipped. It is never behind.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import suppress

from omkl import wire
from omkl.node.events import Event, Moved, Resynced
from omkl.node.links import RECENT, Link, LinkState
from omkl.node.protocol import Protocol
from omkl.wire import WireError
from omkl_lab.torture.violation import require

APART = (LinkState.LEFT_OUT, LinkState.REFUSED)


FAR = 2**22  # rounds that nobody takes in the time of a run


class Order:
    """The rounds of all nodes, and which pairs of neighbors are level.

    Attributes
    ----------
    taken
        Rounds that each node has taken, in all its lives.
    """

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self._nodes: dict[str, Protocol] = {}
        self._unlevel: dict[str, set[str]] = defaultdict(set)
        self._place: dict[str, tuple[int, int]] = {}
        self._due: dict[str, tuple[float, int]] = {}
        self._heard: dict[tuple[str, str], float] = {}
        self._together: set[str] = set()

    def begin(self, node: Protocol) -> None:
        """Watch a node that has just started."""
        id = node.role.id
        self._heard |= {(id, peer): -math.inf for peer in node.links}
        self._nodes[id] = node
        self._due.pop(id, None)
        self._part(id, node.links)
        self._place[id] = node.neighbors.boot, node.round
        self._together.discard(id)

    def hear(self, node: Protocol, peer: str, data: bytes, now: float) -> None:
        """Note that a node is about to take in bytes of a neighbor."""
        with suppress(WireError):
            wire.peek(data)
            self._heard[node.role.id, peer] = now

    def note(self, node: Protocol, events: list[Event]) -> None:
        """Note what parts a node from its neighbors, in what happened to it since it was looked at."""
        id, place = node.role.id, (node.neighbors.boot, node.round)
        if self._place[id] != place:
            if id in self._together:
                rounds = place[1] - self._place[id][1]
                require(rounds <= FAR, f"{rounds} rounds are skipped on somebody's word")
            self._place[id] = place
            self._part(id, node.links)
        for event in events:
            if isinstance(event, Resynced) or (isinstance(event, Moved) and event.after in APART):
                self._part(id, [event.peer])

    def check_copy(self, node: Protocol, link: Link, is_used: bool) -> None:
        """Look at a copy as a round is taken with it, or without."""
        level = link.peer not in self._unlevel[node.role.id]
        if not is_used:
            require(not level, f"a round is taken without {link.peer}, which was in step and is {link.state}")
        elif ahead := link.round - node.round:
            told = f"the copy of {link.peer} is at {link.round}, mixed in by a node at {node.round}"
            require(not level and (0 < ahead <= RECENT or ahead > FAR), told)  # who lies is far ahead, and not followed

    def take(self, node: Protocol) -> None:
        """Note that a node took a round."""
        self.taken[node.role.id] += 1
        if node.neighbors.weights.any():
            self._together.add(node.role.id)
        self._place[node.role.id] = node.neighbors.boot, node.round

    def look(self, node: Protocol, events: list[Event], now: float) -> None:
        """Look at a node after it did something, at a time of its clock."""
        self.note(node, events)
        for event in events:
            if isinstance(event, Moved) and event.after is LinkState.LEFT_OUT:
                self._check_leaving(node, node.links[event.peer], now)
        if node.role.timing.mode == "lockstep":
            self._see_due(node, now)
            self._see_level(node)

    def _part(self, id: str, peers: Iterable[str]) -> None:
        self._unlevel[id].update(peers)
        for peer in peers:
            self._unlevel[peer].add(id)

    def _check_leaving(self, node: Protocol, link: Link, now: float) -> None:
        """Refuse that one is left out before its time: see ``Protocol._limit``."""
        limit = self._heard[node.role.id, link.peer] + node.role.timing.deadline
        if node.role.timing.mode == "lockstep":
            require(node.role.id in self._due, f"{link.peer} is left out though no round was due")
            since, _ = self._due[node.role.id]
            limit = min(max(limit, since + node.role.timing.deadline), since + 2 * node.role.timing.deadline)
        require(now >= limit, f"{link.peer} is left out {limit - now:.3g} s too soon")

    def _see_due(self, node: Protocol, now: float) -> None:
        """Note since when there is a reason for the next round; patience is not waited for here."""
        id, taken = node.role.id, self.taken[node.role.id]
        if node.waiting or any(
            link.state is LinkState.SYNCED and link.have > node.round for link in node.links.values()
        ):
            if id not in self._due or self._due[id][1] != taken:
                self._due[id] = now, taken
        else:
            self._due.pop(id, None)

    def _see_level(self, node: Protocol) -> None:
        id = node.role.id
        for peer in list(self._unlevel[id]):
            other = self._nodes.get(peer)
            if other is not None and _is_level(node, other) and _is_level(other, node):
                self._unlevel[id].discard(peer)
                self._unlevel[peer].discard(id)


def _is_level(node: Protocol, other: Protocol) -> bool:
    link = node.links[other.role.id]
    is_synced = link.state is LinkState.SYNCED and link.boot == other.neighbors.boot
    return is_synced and link.round <= node.round <= other.round + 1
