"""A network under faults: its nodes with their disks and streams, and what can be done to them."""

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from omkl.node import checkpoint
from omkl.node.events import Event, Gossiped, Scored
from omkl.node.links import LinkState
from omkl.node.protocol import Protocol
from omkl.node.transports.memory import Conditions
from omkl.torture.arena import Arena
from omkl.torture.disk import Died, Disk
from omkl.torture.invariants import Books, Violation, require
from omkl.torture.shape import Shape
from omkl.torture.trace import Trace

MOST_CALLS = 100  # of a node in a second, on average: a node that asks itself or others in circles makes many more
AGAIN = 0.5  # seconds until a node that could not start is started again
NOTICED = 0.002  # seconds until neighbors notice that a process has died


class Kept(NamedTuple):
    """The observations that a checkpoint holds, by number."""

    inside: frozenset[int]
    waiting: tuple[int, ...]


@dataclass
class Stream:
    """What became of the observations of one node, by number.

    Attributes
    ----------
    given
        Those that the node has accepted and not yet acknowledged, in order.
    inside
        Those that its model has learned or predicted.
    acknowledged
        Those of which that was told.
    lost
        Those acknowledged whose effect a crash undid.
    kept
        What each checkpoint holds.
    """

    given: deque[int] = field(default_factory=deque)
    inside: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    kept: dict[bytes, Kept] = field(default_factory=dict)

    def save(self, node: Protocol) -> None:
        """Note what a checkpoint holds; what has been taken is told one by one after it."""
        taken = len(self.given) - len(node.waiting)
        given = list(self.given)
        self.kept[_name(node)] = Kept(frozenset(self.inside.union(given[:taken])), tuple(given[taken:]))

    def restore(self, node: Protocol) -> None:
        """Go on from what a checkpoint holds."""
        kept = self.kept.get(_name(node))
        if kept is None:
            raise Violation("a checkpoint was restored that was never saved")
        self.inside, self.given = set(kept.inside), deque(kept.waiting)
        require(len(node.waiting) == len(self.given), f"{len(node.waiting)} samples wait of {len(self.given)} saved")
        self._count()

    def begin_anew(self) -> None:
        """Go on without any."""
        self.inside, self.given = set(), deque()
        self._count()

    def take(self) -> None:
        """Note that the next was acknowledged."""
        number = self.given.popleft()
        self.inside.add(number)
        self.acknowledged.add(number)

    def _count(self) -> None:
        self.lost |= self.acknowledged.difference(self.inside, self.given)
        self.lost -= self.inside.union(self.given)


def _name(node: Protocol) -> bytes:
    """Return what tells a checkpoint from others: the model, its round and the samples that wait."""
    state = [node.learning.state.theta, np.array(node.round), *(x for x, _ in node.waiting)]
    return b"".join(part.tobytes() for part in state)


class World:
    """All of it, driven by one source of randomness.

    Attributes
    ----------
    shape, arena, disks, streams, books, trace
        What it is made of.
    links
        The ends of every link.
    """

    def __init__(self, shape: Shape, random: Random) -> None:
        ids = shape.config.ids
        self.shape, self.random = shape, random
        self.trace, self.books = Trace(), Books(len(ids))
        self.arena = Arena(shape.conditions, random, self._watch, self._check)
        self.arena.died = self._died
        self.disks = {id: Disk(random) for id in ids}
        self.streams = {id: Stream() for id in ids}
        self.links = [(ids[i], ids[j]) for i, j in shape.config.topology.graph.edges.tolist()]
        self.learning = True
        self._roles = {id: shape.config.role(id) for id in ids}
        self._boots = iter(random.sample(range(2**16), 4096))  # none twice: nodes without a disk draw with little luck
        self._numbers = itertools.count()
        self._undone: dict[int, Callable[[], object]] = {}
        self._undos = itertools.count()
        for id in ids:
            self.start(id)
            self.arena.at(random.random(), partial(self._observe, id))

    # What happens to nodes

    def start(self, id: str) -> None:
        """Start a node from its disk, as ``omkl.node.node`` does; try again later if it cannot be."""
        try:
            node = self._open(id)
            self._save(node, clean=False)
        except (OSError, Died) as error:
            self.trace.note(self.arena.now, id, f"does not start: {error or 'died'}")
            self.return_in(id, AGAIN)
            return
        self.trace.note(self.arena.now, id, f"starts at {node.neighbors.boot}:{node.round}")
        self.books.attach(node)
        self.arena.join(node)
        if self.arena.now >= self.shape.ends[id]:
            self.arena.act(id, Protocol.end)

    def crash(self, id: str, noticed: bool = True) -> None:
        """Kill a node, if it is there."""
        self.disks[id].calls_left = None
        self.arena.kill(id)
        if noticed:
            self.arena.at(self.arena.now + NOTICED, lambda: self.arena.miss(id))

    def leave(self, id: str) -> None:
        """Let a node leave in order, which a full disk makes a crash."""
        node = self.arena.nodes[id]
        try:
            self._save(node, clean=True)
        except (OSError, Died) as error:
            self.trace.note(self.arena.now, id, f"does not leave in order: {error or 'died'}")
        self.crash(id)

    def lose_disk(self, id: str) -> None:
        """Lose what a node has saved."""
        self.disks[id].files.clear()

    def return_in(self, id: str, seconds: float) -> None:
        """Start a node in a while, unless it is there by then."""
        self.later(seconds, lambda: id in self.arena.nodes or self.start(id))

    def reach(self, one: str, other: str) -> None:
        """Let two nodes notice that they reach each other, if they do."""
        if not self.arena.is_cut(one, other):
            self.arena.meet(one, other)

    # How faults end

    def later(self, seconds: float, undo: Callable[[], object]) -> None:
        """Undo something in a while, or when all is calmed."""
        key = next(self._undos)
        self._undone[key] = undo
        self.arena.at(self.arena.now + seconds, lambda: self._undone.pop(key, _nothing)())

    def calm(self) -> None:
        """Undo everything, and let nothing happen from here on."""
        self.arena.hits.clear()
        self.arena.calm, self.arena.conditions = True, Conditions(delay=0.01)
        for disk in self.disks.values():
            disk.full, disk.calls_left = False, None
        while self._undone:
            self._undone.pop(next(iter(self._undone)))()
        for pair in self.links:
            self.reach(*pair)

    # What is seen

    @property
    def is_synced(self) -> bool:
        """Whether every node is there, and every link of it in step."""
        nodes = self.arena.nodes.values()
        synced = all(link.state is LinkState.SYNCED for node in nodes for link in node.links.values())
        return synced and len(nodes) == len(self._roles)

    def _check(self, node: Protocol) -> None:
        self.books.check(node)
        calls, most = self.arena.calls[node.role.id], MOST_CALLS * (10 + self.arena.now)
        require(calls <= most, f"{calls} calls in {self.arena.now:.1f} s")

    def _watch(self, now: float, id: str, event: Event) -> None:
        self.trace.note(now, id, event)
        if isinstance(event, Scored):
            self.streams[id].take()
        elif isinstance(event, Gossiped) and event.round % self.shape.every == 0:
            try:
                self._save(self.arena.nodes[id], clean=False)
            except OSError as error:
                self.trace.note(now, id, f"no checkpoint: {error.strerror}")

    def _died(self, id: str) -> None:
        self.trace.note(self.arena.now, id, "died over its disk")
        self.crash(id)
        self.return_in(id, AGAIN)

    def _observe(self, id: str) -> None:
        """Give a node a sample, and the next one when it is due."""
        if self.arena.now >= self.shape.ends[id] or not self.learning:
            self.arena.act(id, Protocol.end)
            return
        self.observe(id, self.random.random() >= self.shape.unlabeled)
        self.arena.at(self.arena.now + self.shape.periods[id], partial(self._observe, id))

    def observe(self, id: str, labeled: bool) -> None:
        """Give a node a sample, unless too many wait."""
        x = [self.random.gauss(0, 1), self.random.gauss(0, 1)]
        y = (1 if x[0] * x[1] > 0 else -1) if labeled else None

        def act(node: Protocol, now: float) -> list[Event]:
            if node.is_full:
                return []
            self.streams[id].given.append(next(self._numbers))
            return node.observe(x, y, now)

        self.arena.act(id, act)

    # Disks

    def _open(self, id: str) -> Protocol:
        disk, path, now = self.disks[id], Path(f"{id}.npz"), self.arena.clock(id)
        node = checkpoint.restore(path, self._roles[id], next(self._boots), now, disk)
        node.ended = False
        if node.restored:
            self.streams[id].restore(node)
        else:
            self.streams[id].begin_anew()
        return node

    def _save(self, node: Protocol, clean: bool) -> None:
        id = node.role.id
        self.streams[id].save(node)
        checkpoint.save(Path(f"{id}.npz"), node, clean, self.disks[id])


def _nothing() -> None:
    pass
