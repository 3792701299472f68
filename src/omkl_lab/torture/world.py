"""A network under faults: its nodes with their disks and streams, and the faults that can hit them."""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from random import Random

import numpy as np

from omkl import wire
from omkl.errors import InputError
from omkl.node.events import Damaged, Event, Gossiped, Lost, Scored, Unsaved
from omkl.node.links import RECENT, Link, LinkState
from omkl.node.persistence import Saver, count
from omkl.node.persistence.disk import beside
from omkl.node.persistence.saver import count_file
from omkl.node.protocol import MOST_WAITING, Protocol
from omkl.node.role import Role
from omkl.node.runtime import LOOK
from omkl.node.transports.memory import Conditions
from omkl.wire import Header, Kind
from omkl_lab.torture.arena import Arena
from omkl_lab.torture.disk import Died, Disk, Files
from omkl_lab.torture.invariants import Invariants
from omkl_lab.torture.shape import Shape, label
from omkl_lab.torture.streams import Sample, Stream
from omkl_lab.torture.trace import Trace
from omkl_lab.torture.violation import require

MOST_CALLS = 100  # of a node in a second, on average: a node that asks itself or others in circles makes many more
AGAIN = 0.5  # seconds until a node that died over its disk is started again
COMPILED = 0.6  # of the lives of nodes run as compiled loops, where there are such
NOTICED = 0.002  # seconds until neighbors notice that a process has died


class World:
    """The whole simulated network, driven by one source of randomness.

    Attributes
    ----------
    shape, arena, disks, streams, invariants, trace
        What it is made of.
    links
        The ends of every link.
    is_learning
        Whether nodes still get new samples.
    lost
        Acknowledged observations that nodes have reported as lost.
    """

    def __init__(self, shape: Shape, random: Random) -> None:
        ids = shape.config.ids
        self.shape, self.random = shape, random
        self.trace, self.invariants = Trace(), Invariants(len(ids))
        self.arena = Arena(shape.conditions, random, self.invariants.hear, self._check, self._report)
        self.arena.died = self._died
        self.disks = {id: Disk(random) for id in ids}
        self.streams = {id: Stream() for id in ids}
        self.links = [(ids[i], ids[j]) for i, j in shape.config.topology.graph.edges.tolist()]
        self.is_learning = True
        self._aged: set[str] = set()
        self._wiped: set[str] = set()
        self.lost = 0
        self._roles = {id: shape.config.role(id) for id in ids}
        self._texts = Random(shape.config.seed)  # of its own: what computes changes nothing of what happens
        self._savers: dict[str, Saver] = {}
        self._crashed: dict[str, float] = {}
        self._news: dict[str, list[Event]] = {}
        self._boots = iter(random.sample(range(2**15), 4096))  # none twice, which is not worse than good luck
        self._numbers = itertools.count()
        self._undone: dict[int, Callable[[], None]] = {}
        self._undos = itertools.count()

    def begin(self, late: dict[str, float] | None = None) -> None:
        """Start all nodes and streams, some of the nodes for the first time only after some seconds."""
        for id in self.shape.config.ids:
            if late and id in late:
                self.return_in(id, late[id])
            else:
                self.start(id)
            self.arena.at(self.random.random(), partial(self._observe, id))

    # What happens to nodes

    def start(self, id: str) -> None:
        """Start a node from its disk, as ``omkl.node.node`` does; if it dies while it starts, try again later."""
        if id in self.arena.nodes:
            return
        self._news[id] = []
        try:
            node, due = self._open(id)
        except Died:
            self._died(id)
            return
        except InputError:
            if not self.disks[id].failed:
                raise
            self._died(id)
            return
        self._note(id, f"starts at {node.neighbors.boot}:{node.round}")
        if id in self._aged:
            self._forget_beginning(id, node.neighbors.boot, node.round)
        self.invariants.attach(node)
        self.arena.join(node)
        for peer in self._aged.intersection(node.links):  # this one may have known of it, and does no more
            self._forget(peer, 0.0)
        if self.arena.now >= self.shape.ends[id]:
            self.arena.act(id, Protocol.end)
        self.arena.act(id, Protocol.wake)  # it may have something to tell
        told = self._news.pop(id)
        if self.arena.nodes.get(id) is node:
            require(told == due, f"{due} is to be told at the start, {told} was")

    def _open(self, id: str) -> tuple[Protocol, list[Event]]:
        """Return a node and its messages about its disk. Each start chooses compiled loops or arrays."""
        disk, stream, file = self.disks[id], self.streams[id], self.shape.checkpoint.file(id)
        files = [disk.files.get(path) for path in (file, beside(file, "last"))]
        whole = [written for written in files if written in stream.saved]
        due: list[Event] = [Damaged(str(file), "") for written in whole[:1] if written != files[0]]
        disk.failed, disk.uncounted = 0, False
        role = replace(self._roles[id], compiled=self._texts.random() < COMPILED)
        saver = Saver(
            role, self.shape.checkpoint, next(self._boots), partial(self._note, id), disk, partial(self.arena.clock, id)
        )
        self._savers[id], node = saver, saver.protocol
        stream.restore(node, whole[0] if whole else None, saver.missed)
        disk.saving = partial(stream.save, node)
        stream.counted &= not disk.uncounted
        if not disk.uncounted:
            due += [Damaged(str(count_file(file)), "")] * stream.rotten
            stream.check(node, saver.durable)
        saver.begin(self.arena.clock(id))
        stream.acknowledged |= stream.inside  # the disk counts what is saved, told or not
        self._recount(node)
        return node, due + [Lost(saver.missed)] * (saver.missed > 0)

    def _recount(self, node: Protocol) -> None:
        disk, stream = self.disks[node.role.id], self.streams[node.role.id]
        content = disk.numbers.get(count_file(self.shape.checkpoint.file(node.role.id)))
        stream.recount(node, None if content is None or disk.uncounted else max(count.read(content)))

    def crash(self, id: str, noticed: bool = True) -> None:
        """Kill a node, if it is running."""
        self.disks[id].calls_left = None
        self._crashed[id] = self.arena.now
        self.arena.kill(id)
        if noticed:
            self.arena.at(self.arena.now + NOTICED, lambda: self.arena.miss(id))

    def leave(self, id: str) -> None:
        """Let a node leave in order; if its disk fails then, this is a crash."""
        try:
            self._savers[id].end()
        except (OSError, Died) as error:
            self._note(id, f"does not leave in order: {error or 'it died'}")
        self.crash(id)

    def restart(self, id: str, role: Role) -> None:
        """Start a node again, with another file; without its disk, where that is of another contract."""
        self.crash(id)
        if role.contract() != self._roles[id].contract():
            self.lose_disk(id)
            self._wiped.add(id)
        self._roles[id] = role
        self.start(id)

    def lose_disk(self, id: str) -> None:
        """Delete all that a node has saved, while it is not running."""
        self.disks[id].lose()
        self.streams[id].forget()

    def bring_back(self, id: str, files: Files, made: float = 0.0) -> None:
        """Start a node again at once, with older files.

        What it said meanwhile, and no neighbor has heard or remembers, it may say anew: nobody could know. Not those of
        one that has had another contract: they may be of that one.
        """
        if id in self._wiped:
            return
        self.crash(id)
        self._aged.add(id)
        self._forget(id, made)
        self.disks[id].files = dict(files)
        self.streams[id].counted = False  # samples wait in them of which nobody knows what became
        self.start(id)

    def _forget(self, id: str, since: float) -> None:
        peers = self._roles[id].neighbors
        self.invariants.forget(id, lambda boot, at: any(self._knows(peer, id, boot, at, since) for peer in peers))

    def _forget_beginning(self, id: str, boot: int, at: int) -> None:
        """Let a node begin with an old file that it has gone on from otherwise, if all neighbors know a later boot."""
        links = [self.arena.nodes[peer].links[id] for peer in self._roles[id].neighbors if peer in self.arena.nodes]
        if len(links) == len(self._roles[id].neighbors) and all(link.boot != boot for link in links):
            self.invariants.forget(id, lambda *known: known != (boot, at))

    def _knows(self, peer: str, id: str, boot: int, at: int, since: float) -> bool:
        """Return whether a neighbor may know what a node said of a round; one that is away does, unless it crashed."""
        if peer not in self.arena.nodes:
            return self._crashed.get(peer, -1.0) < since
        link = self.arena.nodes[peer].links[id]
        # One that has heard a later boot knows that this one is over.
        return link.have >= at if link.boot == boot else link.have > 0 and self.invariants.is_later(id, link.boot, boot)

    def return_in(self, id: str, seconds: float) -> None:
        """Start a node in a while."""
        self.later(seconds, partial(self.start, id))

    def neighbors(self, id: str) -> list[str]:
        """Return the neighbors of a node."""
        return list(self._roles[id].neighbors)

    def start_apart(self, id: str, waits: dict[str, float]) -> None:
        """Start a node that its neighbors reach only some seconds later."""
        if id in self.arena.nodes:
            return
        for peer, wait in waits.items():
            if not self.arena.is_cut(id, peer):
                self.arena.cut(id, peer, noticed=False)
                self.later(wait, partial(self.arena.mend, id, peer))
        self.start(id)

    def forge(self, liar: str, victim: str, at: int) -> None:
        """Let a member send its hidden state under a forged round number and another boot, and then die."""
        node, other, boot = self.arena.nodes[liar], self.arena.nodes[victim], next(self._boots)
        _, known = node.links[victim].missed(Header(Kind.ASK, other.neighbors.boot, other.round))
        hidden = node.learning.state.hidden.copy()
        self.invariants.said[liar, boot, at] = hidden.tobytes()
        hello = wire.write_hello(boot, at, node.neighbors.contract, known)
        self.crash(liar)
        self.arena.forge(liar, victim, [hello, wire.write_snapshot(boot, at, hidden)])

    def reach(self, one: str, other: str) -> None:
        """Tell two nodes that they reach each other, if they do."""
        if not self.arena.is_cut(one, other):
            self.arena.meet(one, other)

    def observe(self, id: str, labeled: bool) -> None:
        """Give a node a sample, unless too many wait."""
        x = [self.random.gauss(0, 1), self.random.gauss(0, 1)]
        loss, stream = self.shape.config.method.objective, self.streams[id]
        y = label(loss, x) if labeled else None
        sample = Sample(next(self._numbers), np.array(x, dtype=np.float32), None if y is None else loss.encode(y))

        def act(node: Protocol, now: float) -> list[Event]:
            if len(stream.given) >= MOST_WAITING:
                return []
            stream.given.append(sample)
            return node.observe(sample.x, y, now)

        self.arena.act(id, act)

    def mend(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Mend links."""
        for pair in pairs:
            self.arena.mend(*pair)

    # How faults end

    def later(self, seconds: float, undo: Callable[[], None]) -> None:
        """Undo something after a while, or at the latest in ``calm``."""
        key = next(self._undos)
        self._undone[key] = undo
        self.arena.at(self.arena.now + seconds, lambda: self._undone.pop(key, _nothing)())

    def calm(self) -> None:
        """End all faults, and start no new ones."""
        self.arena.hits.clear()
        self.arena.calm, self.arena.conditions = True, Conditions(delay=0.01)
        for disk in self.disks.values():
            disk.full, disk.calls_left, disk.opens_left = False, None, None
        while self._undone:
            self._undone.pop(next(iter(self._undone)))()

    # What is seen

    @property
    def is_synced(self) -> bool:
        """Whether every node is there, every link of it in step, and in lock step all at one round or at the next."""
        nodes = self.arena.nodes
        return len(nodes) == len(self._roles) and all(
            link.state is LinkState.SYNCED and self._is_near(node, nodes[peer], link)
            for node in nodes.values()
            for peer, link in node.links.items()
        )

    def _is_near(self, node: Protocol, other: Protocol, link: Link) -> bool:
        """Return whether two neighbors are as close as when all is well; one may have skipped, and not told yet."""
        apart = abs(node.round - other.round) if self.shape.config.timing.mode == "lockstep" else 0
        return apart <= 1 and other.round - link.have <= RECENT

    def states(self) -> str:
        """Return the state of every link."""
        ends = ((id, link) for id, node in self.arena.nodes.items() for link in node.links.values())
        return ", ".join(f"{id}-{link.peer} {link.state} at {link.round}" for id, link in ends)

    def _check(self, node: Protocol, events: list[Event], now: float) -> None:
        self.invariants.check(node, events, now)
        calls, most = self.arena.calls[node.role.id], MOST_CALLS * (10 + self.arena.now)
        require(calls <= most, f"{calls} calls in {self.arena.now:.1f} s")

    def _report(self, id: str, events: list[Event]) -> None:
        """Handle a node's events as ``omkl.node.runtime`` does: acknowledge them, then pass them to the watchers."""
        stream, saver = self.streams[id], self._savers[id]
        learned = self.invariants.oracle.untold[id]
        for event in events:
            if isinstance(event, Scored):
                stream.take(event, learned)
        require(not learned, f"{len(learned)} samples were learned, and not scored")
        if stream.taken:
            if saver.settle():
                stream.acknowledge()
                self._recount(self.arena.nodes[id])
            else:
                self.arena.at(self.arena.now + LOOK, lambda: self.arena.act(id, Protocol.wake))
        for event in events:
            self._note(id, event)
            if isinstance(event, Gossiped):
                saver.watch(event)
            elif isinstance(event, Lost | Damaged):
                self._hear(id, event)
        require(self.disks[id].failed == 0, "the disk failed, and nobody is told")

    def _hear(self, id: str, event: Lost | Damaged) -> None:
        """Hear of what a node finds out about its disk, which it does when it starts."""
        require(id in self._news, f"{event} is told long after the start")
        self._news[id].append(event if isinstance(event, Lost) else event._replace(why=""))
        self.lost += event.observations if isinstance(event, Lost) else 0

    def _note(self, id: str, what: str | Event) -> None:
        self.trace.note(self.arena.now, id, what)
        if isinstance(what, Unsaved):
            self.disks[id].failed = 0

    def _died(self, id: str) -> None:
        self._note(id, "died over its disk")
        self.crash(id)
        self.return_in(id, AGAIN)

    def _observe(self, id: str) -> None:
        """Give a node a sample, and the next one when it is due."""
        if self.arena.now >= self.shape.ends[id] or not self.is_learning:
            self.arena.act(id, Protocol.end)
            return
        self.observe(id, self.random.random() >= self.shape.unlabeled)
        self.arena.at(self.arena.now + self.shape.periods[id], partial(self._observe, id))


def _nothing() -> None:
    pass
