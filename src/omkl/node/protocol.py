"""A node of the network as a state machine: observations and bytes in, events and bytes out.

There is no I/O here and no clock. Whoever drives the machine passes the time as ``now``, hands it what arrives, sends
what ``outgoing`` returns, and calls ``wake`` at ``wake_at``:

    observe(x, y, now)          a sample of this node's stream; y is None where there is no label
    came(peer, now), gone(...)  the transport reaches a neighbor, or no longer
    receive(peer, data, now)    bytes of a neighbor
    wake(now)                   time has passed
    hear(peer, data, now)       as receive, but to go on with whatever comes next
    outgoing()                  bytes to send, oldest first

Each but the last two returns the events it caused. A round is that of ``algorithm.py``: mix, emit, absorb, then
predict, weigh and learn. What the modes differ in is when:

Lock step, the paper's. A round for every observation, or as the pace of the method has it. Round t + 1 begins when the
copies of all neighbors that are waited for stand at round t; a message that comes early is kept until then. So what a
node computes depends on the samples alone, not on who was faster. A neighbor that does not come forward is left out, a
deadline after it was last heard of or two after the round was due. A node without an observation takes part in the
round its neighbors have begun, without learning: once its patience has passed since its last observation, so a sensor
that is slow or silent holds up nobody, or at once when its stream has ended. All count the same rounds: a node that was
away skips to the round of its neighbors.

Timer. Every observation is learned at once, and gossip happens every period with whatever copies are in step.
"""

import math
from collections import deque
from collections.abc import Iterable

import numpy.typing as npt

from omkl import wire
from omkl.errors import InputError
from omkl.node.events import Diverged, Event, Gossiped, Scored
from omkl.node.halves import Floats
from omkl.node.leaps import Leaps
from omkl.node.learning import Learning
from omkl.node.links import LAST_ROUND, RECENT, WAITED_FOR, Link, LinkState
from omkl.node.neighbors import Neighbors, Send
from omkl.node.recovery import Recovery
from omkl.node.role import Role
from omkl.scaling import Inputs

MOST_WAITING = 1024  # observations that wait for their round; a caller with more must wait


class Protocol:
    """One node.

    Attributes
    ----------
    waiting
        Observations that wait for their round.
    taken, lost
        How many were taken in all, by this process and those whose checkpoint it goes on from; and how many more were
        taken since such a checkpoint, and lost in a crash.
    restored
        Whether it goes on from a checkpoint.
    left
        Samples that it may still learn in lock step before the next round, where the method has a pace.

    Parameters
    ----------
    role
        Who it is, what it learns and with whom.
    boot
        A number of sixteen bits, another one for each start of the process.
    now
        The time, on whatever clock the caller keeps.
    """

    def __init__(self, role: Role, boot: int, now: float) -> None:
        self.role = role
        self.learning = Learning(
            role.method,
            role.inputs,
            role.seed,
            role.index,
            role.calibration,
            role.standardize,
            math.fsum(role.neighbors.values()),
            role.targets,
            role.compiled,
        )
        self.neighbors = Neighbors(role, self.learning, boot)
        self.waiting: deque[tuple[Inputs, Floats | None]] = deque()
        self.ended = False
        self.diverged = False
        self.restored = False
        self.taken = self.lost = 0
        self.left = 0
        self._leaps = Leaps(now, role.timing.deadline)
        self.recovery = Recovery(role.method, self.neighbors, self._leaps)
        self._events: list[Event] = self.neighbors.events
        self._lockstep = role.timing.mode == "lockstep"
        self._tick = now + role.timing.period
        self._blocked: float | None = None  # since when a round could begin but for neighbors
        self._invited = False  # whether neighbors could go on but for this node
        self._seen = now  # when the last observation came, or the node began
        self._heard = False  # whether something was taken in that is yet to be gone on with

    @property
    def round(self) -> int:
        """Rounds of gossip taken."""
        return self.learning.round

    @property
    def links(self) -> dict[str, Link]:
        """The link to every neighbor."""
        return self.neighbors.links

    @property
    def awaited(self) -> list[str]:
        """The neighbors that have not answered since the start, and may have kept what this node has lost."""
        return self.recovery.awaited

    @property
    def behind(self) -> list[str]:
        """The neighbors in lock step with this node that are behind by more than a message lost explains."""
        return [link.peer for link in self._synced() if self._lockstep and link.round < self.round - RECENT]

    @property
    def is_full(self) -> bool:
        """Whether no more observations are taken before a round."""
        return len(self.waiting) >= MOST_WAITING

    def observe(self, x: npt.ArrayLike, y: npt.ArrayLike | None, now: float) -> list[Event]:
        """Take a sample; without a label it is only predicted."""
        return self.take(self.learning.inputs(x), None if y is None else self.learning.targets(y), now)

    def take(self, x: Inputs, y: Floats | None, now: float) -> list[Event]:
        """Take a sample that is checked already, as ``learning.inputs`` and ``learning.targets`` return it."""
        if self.is_full:
            raise InputError(f"{MOST_WAITING} observations wait for their round; that is the most; observe more slowly")
        self.waiting.append((x, y))
        self._seen = now
        return self._advance(now) if len(self.waiting) == 1 or self._heard else []  # else the first waits already

    def end(self, now: float) -> list[Event]:
        """Note that the stream has ended: from here on the node takes part in its neighbors' rounds."""
        self.ended = True
        return self._advance(now)

    def predict(self, x: npt.ArrayLike) -> Floats:
        """Return the output f of the ensemble, shape ``(C,)``."""
        return self.learning.predict(self.learning.inputs(x))

    def came(self, peer: str, now: float) -> list[Event]:
        """Note that the transport reaches a neighbor."""
        self.neighbors.came(peer, now)
        return self._advance(now)

    def gone(self, peer: str, now: float) -> list[Event]:
        """Note that the transport reaches a neighbor no more."""
        self.neighbors.gone(peer, now)
        return self._advance(now)

    def receive(self, peer: str, data: bytes, now: float) -> list[Event]:
        """Take in bytes of a neighbor; whatever they are, nothing is raised."""
        self.hear(peer, data, now)
        return self._advance(now)

    def hear(self, peer: str, data: bytes, now: float) -> None:
        """Take in bytes of a neighbor, to go on with whatever is done next: a round costs less than two attempts."""
        if not self.diverged:
            self.neighbors.receive(peer, data, now)
            self._heard = True

    def wake(self, now: float) -> list[Event]:
        """Do what is due."""
        return self._advance(now)

    def wake_at(self) -> float:
        """Return when to call ``wake`` if nothing else happens before; infinity for never."""
        if self.diverged:
            return math.inf
        timing, due = self.role.timing, [self.neighbors.wake_at()]
        if self._lockstep:
            due.append(self._leaps.back_at)
            if self._blocked is not None:
                due += [self._limit(link) for link in self.links.values() if self._is_late(link)]
            elif self._invited:
                due.append(self._seen + timing.patience)
        else:
            due += [self._tick, *(link.heard + timing.deadline for link in self._synced())]
        return min(due)

    def report(self, event: Event) -> None:
        """Tell of something that happened outside, with the next events."""
        self._events.append(event)

    def outgoing(self) -> list[Send]:
        """Return what is to be sent, and forget it."""
        sends, self.neighbors.sends = self.neighbors.sends, []
        return sends

    def _advance(self, now: float) -> list[Event]:
        """Take the rounds that can be taken, ask what is to be asked, and return what happened."""
        if not self.diverged:
            self.recovery.go_on(now)
            if self._lockstep:
                self._go_back(now)
            step = self._step_together if self._lockstep else self._step_by_timer
            while step(now) and not self.diverged:
                pass
        if not self.diverged:
            self.neighbors.wake(now)
        self._heard = False
        events = self._events.copy()
        self._events.clear()
        return events

    def _step_together(self, now: float) -> bool:
        """Take a round in lock step, if there is one to take and all neighbors that are waited for are there."""
        if self.left and self.waiting:
            self._learn_next()
            return True
        late, own = [], self.learning.round
        for link in self.neighbors.links.values():
            if (link.inbox or link.round > own) and self._catch_up(link, now):
                return True
            if self._is_late(link):
                late.append(link)
        due = self._is_due(now)
        for link in late:
            link.ask_late(now, urgent=due)
        if not due:
            self._blocked = None
            return False
        if late and self._waits_for(late, now):
            return False
        if self.recovery.begin(now):
            return True
        self._blocked, self._invited = None, False
        self._gossip(now)
        schedule = self.role.method.schedule
        self.left = 1 if schedule is None else schedule.samples(self.round)
        if self.left:
            self._learn_next()
        return True

    def _learn_next(self) -> None:
        """Learn the sample that waits, if there is one, in place of one that this round has left."""
        self.left -= 1
        if self.waiting and not self.diverged:
            self._learn(*self.waiting.popleft())

    def _waits_for(self, late: list[Link], now: float) -> bool:
        """Leave out those whose time is over, and return whether there are others."""
        self._blocked = now if self._blocked is None else self._blocked
        for link in late:
            if now >= self._limit(link):
                link.leave_out(now)
        return any(link.state in WAITED_FOR for link in late)

    def _is_due(self, now: float) -> bool:
        """Return whether there is a reason for a round: a sample, or neighbors who wait for this node's."""
        if self.waiting:
            return True
        # One that is farther ahead is skipped to, or at a round that is out of reach: no reason to take so many.
        reach = RECENT if self.recovery.has_begun else math.inf
        self._invited = any(0 < link.have - self.round <= reach for link in self._synced())
        return self._invited and (self.ended or now >= self._seen + self.role.timing.patience)

    def _catch_up(self, link: Link, now: float) -> bool:
        """Bring a copy forward to our round; return whether it is us who skipped to its."""
        own = self.learning.round
        if link.have > own + 1:
            link.sift(now)  # else a flipped bit could make the copy run ahead
        if link.have <= own + 1:
            link.absorb(own, now)
            return False
        link.absorb(math.inf, now)  # it has gone on without us
        if not self.recovery.has_begun:  # what neighbors have kept is of an earlier round
            return False
        # A shorter leap would look like messages under way, for which no snapshot is taken.
        if link.state is not LinkState.SYNCED or link.round <= own + RECENT:
            return False
        if not self._leaps.allow(own, link.round, now):
            return False
        self.neighbors.skip(link.round, now)
        return True

    def _go_back(self, now: float) -> None:
        """Go back to the round of a neighbor, if it was another's word that led far beyond it."""
        if not self._leaps.doubts(self.round, now):
            return
        others = [link.have for link in self.links.values() if link.reachable and not link.unsure]
        if (to := self._leaps.back(self.round, others, now)) is not None:
            self.neighbors.go_back(to, now)
            self._blocked, self._invited = None, False

    def _is_late(self, link: Link) -> bool:
        """Return whether a neighbor has yet to come to our round."""
        return link.round < self.learning.round if link.state is LinkState.SYNCED else link.state in WAITED_FOR

    def _limit(self, link: Link) -> float:
        """Return when to go on without a neighbor: a deadline after it was last heard of, two after the round was due.

        One that answers is alive, and waits for a third; if both went by one clock, the loss of that third would part
        all those who wait in a row.
        """
        assert self._blocked is not None
        deadline = self.role.timing.deadline
        return min(max(self._blocked, link.heard) + deadline, self._blocked + 2 * deadline)

    def _step_by_timer(self, now: float) -> bool:
        """Learn all samples at once, and gossip when the period is over."""
        timing = self.role.timing
        for link in list(self._synced()):
            link.absorb(math.inf, now)
            if now >= link.heard + timing.deadline:
                link.leave_out(now)
        while self.waiting and not self.diverged:
            self._learn(*self.waiting.popleft())
        if now >= self._tick and not self.diverged:
            self._tick += timing.period * (1 + math.floor((now - self._tick) / timing.period))
            self.recovery.begin(now)
            self._gossip(now)
        return False

    def _gossip(self, now: float) -> None:
        if self.round == LAST_ROUND:
            raise InputError(f"round {self.round} was the last that fits a frame; restart the network from a model")
        neighbors, weights = self.neighbors, self.neighbors.weights
        if self._leaps.is_new and weights.any():
            self._leaps.note(self.round, now)
        seed = wire.digest(self.learning.hidden)
        message = self.learning.gossip(neighbors.copies, weights)
        if self._is_sound():
            own = self.learning.round
            frame = wire.write_gossip(neighbors.codec, neighbors.boot, own, message, seed)
            neighbors.recent.append(frame)
            if neighbors.start is not None:
                neighbors.start.rounds += 1
            neighbors.sends.append(Send(None, frame))
            self._events.append(Gossiped(own, len(frame), len(weights) - weights.tolist().count(0.0)))

    def _learn(self, x: Inputs, y: Floats | None) -> None:
        self.taken += 1
        if y is None:
            self._events.append(Scored(self.round, self.learning.see(x), None))
            return
        output, loss = self.learning.learn(x, y)
        self._events.append(Scored(self.round, output, loss))
        self._is_sound()

    def _is_sound(self) -> bool:
        """Return whether the model is finite, and halt if it is not."""
        if not self.diverged and not self.learning.is_sound:
            self.diverged = True
            self._events.append(Diverged(self.round))
        return not self.diverged

    def _synced(self) -> Iterable[Link]:
        return (link for link in self.links.values() if link.state is LinkState.SYNCED)
