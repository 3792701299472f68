"""A link to one neighbor: all that a node knows of it, and all that changes that.

In a hidden-state scheme one lost message would corrupt a copy for ever. So every message carries its round, and a check
that fits only the boot, round and hidden state of its sender. A copy absorbs only the next round of the boot it knows;
what is older is dropped, and after a gap the owner is asked. Asking is the receiver's business alone: it says what it
has, and is given what it lacks. So either end may lose, repeat or restart what it likes: it asks again, and an answer
never causes a question unless something is lacking.

The states and what moves a link between them are data, ``TRANSITIONS``; a signal that is not listed for a state leaves
it as it is. A copy is used in mixing, and its next message applied, in SYNCED alone. In lock step a round waits for
links that are CONNECTING, SYNCING or SYNCED, and goes on without those LEFT_OUT or REFUSED.
Around the table ``boot`` and ``round`` say what the copy is of, ``inbox`` holds the messages after it, and ``shown`` is
the round that the neighbor claims. Of questions the last was at ``asked``, the next is due at ``ask_at``, and ``retry``
grows until there is an answer that helps. A link tells what happens to it in ``Terms.events``.
"""

import math
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from omkl import wire
from omkl.node.events import Differs, Dropped, Event, Moved, Resynced
from omkl.node.halves import Floats, total
from omkl.node.role import agreed, differences
from omkl.wire import Header, VersionError, WireError, nearest

MOST_AHEAD = 16  # messages kept until their turn comes; in lock step a neighbor is ahead by one
ASKS = 8  # the first question is repeated after this part of a deadline, the next after twice the time
LAST_ROUND = 2**32 - 1  # that fits a frame
RECENT = 2  # in lock step a neighbor that misses a message of ours lets us take one more round, and no second
REFUSED_DEADLINES = 12  # deadlines after which a refused neighbor is asked again: its file may have been mended
ENDLESS = "a sum that is not finite; hidden states are; its sender should have stopped"


class LinkState(StrEnum):
    """Where a link stands."""

    CONNECTING = "connecting"
    """Nothing is known of the neighbor yet, or no longer: it is asked who it is."""
    SYNCING = "syncing"
    """It speaks our contract; we lack its hidden state and have asked for it."""
    SYNCED = "synced"
    """Our copy is its hidden state, bit for bit, as of a round of its that we know."""
    LEFT_OUT = "left out"
    """Nothing new came of it until the deadline; its weight is ours until it is in step again."""
    REFUSED = "refused"
    """Its contract differs from ours."""


class Signal(StrEnum):
    """What happens to a link."""

    CAME = "came"
    """The transport reaches the neighbor."""
    GONE = "gone"
    """The transport does not reach it any more."""
    AGREED = "agreed"
    """Its contract is ours."""
    DIFFERED = "differed"
    """Its contract is not ours."""
    CAUGHT_UP = "caught up"
    """We hold all that it has sent."""
    LOST = "lost"
    """A message is missing, or does not fit our copy."""
    RESTARTED = "restarted"
    """It shows a boot that we do not know."""
    SILENT = "silent"
    """Nothing new came of it until the deadline."""


_CONNECTING, _SYNCING, _SYNCED, _LEFT_OUT, _REFUSED = LinkState

_ANYHOW = {Signal.SILENT: _LEFT_OUT, Signal.GONE: _CONNECTING, Signal.RESTARTED: _CONNECTING, Signal.DIFFERED: _REFUSED}
TRANSITIONS: dict[LinkState, dict[Signal, LinkState]] = {
    _CONNECTING: {Signal.AGREED: _SYNCING, Signal.DIFFERED: _REFUSED, Signal.SILENT: _LEFT_OUT},
    _SYNCING: {Signal.CAUGHT_UP: _SYNCED} | _ANYHOW,
    _SYNCED: {Signal.LOST: _SYNCING} | _ANYHOW,
    _LEFT_OUT: {Signal.CAUGHT_UP: _SYNCED, Signal.DIFFERED: _REFUSED},
    _REFUSED: {Signal.CAME: _CONNECTING, Signal.AGREED: _SYNCING},
}

WAITED_FOR = (LinkState.CONNECTING, LinkState.SYNCING, LinkState.SYNCED)


class Kept(NamedTuple):
    """A hidden state, and whose boot and round it is of."""

    boot: int
    round: int
    hidden: Floats


@dataclass(frozen=True)
class Terms:
    """What all links of a node go by."""

    contract: str
    codec: wire.Codec
    deadline: float
    pause: float
    """How long a neighbor may take for its next message before it is asked for it."""
    longest: int  # bytes of a message
    events: list[Event]
    """Where links tell what happens to them."""


@dataclass
class Link:
    """What a node knows of one neighbor. Only its own methods assign its fields."""

    peer: str
    copy: Floats
    """Our copy of its hidden state, as of ``round``; zeros at round 0, where every hidden state begins."""
    terms: Terms
    stance: bytes
    """What it is told of our file."""
    given: float
    """Its gossip weight by our file."""
    state: LinkState = LinkState.CONNECTING
    reachable: bool = False
    unsure: bool = True
    """It is to be asked who it is, before anything else of it counts."""
    boot: int | None = None
    round: int = 0
    shown: int = 0
    """The round that it last showed in full."""
    differs: str = ""
    """What of its file is not ours, though the contract is: ``"settings"``, ``"weight"``, or nothing."""
    weight: float = 0.0
    """The gossip weight that both ends go by."""
    adrift: bool = True
    """The copy did not follow from message to message: any snapshot is welcome."""
    doubted: bool = False
    """The last message did not fit: either it or our copy is damaged."""
    inbox: dict[int, bytes] = field(default_factory=dict)
    """Messages after the copy's round, by round."""
    kept: Kept | None = None
    """What we knew of its last boot, until it has asked and taken a round under this one: it may have lost its own."""
    answered: int | None = None
    """The boot under which it has asked us last."""
    heard: float = -math.inf
    asked: float = -math.inf
    ask_at: float = math.inf
    retry: float = 0.0

    def __post_init__(self) -> None:
        self.weight = self.given

    @property
    def have(self) -> int:
        """The last round of its up to which we hold everything."""
        last = self.round
        while last + 1 in self.inbox:
            last += 1
        return last

    @property
    def last(self) -> int:
        """The last round of its of which we hold anything."""
        return max(self.inbox, default=self.round)

    @property
    def held(self) -> Kept | None:
        """The last hidden state that we know of it, by the messages at hand; None if in doubt."""
        if self.boot is None or self.doubted:
            return None
        return Kept(self.boot, *self._reached())

    def missed(self, header: Header) -> tuple[Kept | None, wire.Copy | None]:
        """Return what one that shows this may have lost of its own, and how far we know it."""
        held, kept = self.held, self.kept or self.held
        known = None if self.boot is None else (self.boot, self.last)
        if header.boot == self.boot:
            kept = held if held and header.round < held.round else self.kept
            known = self.kept[:2] if self.kept else known
        return (kept if kept and kept.round else None), known

    def came(self, now: float) -> None:
        """Note that the transport reaches the neighbor: it is to be asked who it is."""
        self.reachable, self.unsure, self.retry = True, True, 0.0
        self._signal(Signal.CAME, now, "reached")
        self.ask_at = now

    def gone(self, now: float) -> None:
        """Note that the transport reaches it no more."""
        self.reachable, self.ask_at = False, math.inf
        self._signal(Signal.GONE, now, "out of reach")

    def hear(self, now: float) -> None:
        """Note that it said something."""
        self.heard = now

    def fail(self, error: WireError, data: bytes, now: float) -> None:
        """Drop bytes that are no frame, or of another version; a flipped bit must not look like one."""
        self._drop(str(error))
        if isinstance(error, VersionError) and self.state is LinkState.CONNECTING and wire.is_whole(data):
            self._signal(Signal.DIFFERED, now, str(error))

    def gossip(self, header: Header, data: bytes, now: float) -> None:
        """Take in a message, for when its turn comes."""
        at = nearest(header.round, max(self.round, self.shown))  # it tells its lowest byte alone
        if self.state is LinkState.REFUSED:
            self._drop("it was refused")
        elif len(data) > (longest := self.terms.longest):
            self._drop(f"{len(data)} bytes; a message has {longest} at most")
        elif self.boot is None:
            self._drop("a message of one that is not known yet")
            self._ask_soon(now)
        elif at <= self.round or at in self.inbox:
            self._drop(f"round {at} again; the copy is at {self.round}")
            if at <= self.round - RECENT:  # nobody repeats that; it may be a new life of its, at another round
                self._ask_soon(now)
        else:
            self.keep(at, data)
            self._follow(at, now)

    def hello(self, header: Header, hello: wire.Hello, now: float) -> None:
        """Learn who it is, and how far it is."""
        if header.boot != self.boot:
            self._signal(Signal.RESTARTED, now, f"boot {header.boot} in place of {self.boot}")
            if self.kept is None and (held := self.held) and held.round:
                self.kept = held
            self._reset(header.boot)
        self.shown = header.round
        self.unsure = hello.contract != self.terms.contract
        if self.unsure:
            self._signal(Signal.DIFFERED, now, differences(self.terms.contract, hello.contract))
            return
        self._compare(hello.settings)
        self._signal(Signal.AGREED, now, "contracts agree")
        if header.round == self.have:
            self._signal(Signal.CAUGHT_UP, now, f"level at its round {header.round}")
            self.ask_at = math.inf  # nothing lacks; whoever waits for its next round asks again
        elif header.round > self.have:
            self.ask_at = now
        elif self.state is not LinkState.SYNCED:  # late on its way, or a new life that drew the boot of the last
            self.adrift, self.ask_at = True, now

    def snapshot(self, header: Header, data: bytes, now: float) -> None:
        """Take over its hidden state, if that is lacking."""
        # A copy that follows takes no snapshot where messages reach: the run would depend on who was faster.
        least = 0 if self.adrift else self.have + RECENT + 1
        if self.unsure or header.boot != self.boot or header.round < least:
            self._drop(f"a snapshot of round {header.round} that is not lacking")
            if header.boot != self.boot:
                self._restarted(header.boot, now)
            return
        hidden = wire.read_snapshot(self.copy.shape, data)
        if not math.isfinite(total(hidden)):
            raise WireError(ENDLESS)
        self.copy[...] = hidden
        self.round, self.adrift, self.doubted = header.round, True, False
        self.inbox = {later: data for later, data in self.inbox.items() if later > header.round}
        self.terms.events.append(Resynced(self.peer, header.round))
        self._signal(Signal.CAUGHT_UP, now, f"snapshot of its round {header.round}")
        self.adrift = self.state is not LinkState.SYNCED

    def asks(self, header: Header, now: float) -> None:
        """Note what a question of its shows, when it is answered."""
        self.answered = header.boot
        if header.boot != self.boot:
            self._restarted(header.boot, now)
        else:
            self.shown = header.round
            if header.round > self.have and self.state is not LinkState.REFUSED:
                self._ask_soon(now)

    def absorb(self, upto: float, now: float) -> None:
        """Bring the copy forward by the messages at hand, to a round of its owner's at most."""
        while self.state is LinkState.SYNCED and self.round < upto and (data := self.inbox.get(self.round + 1)):
            del self.inbox[self.round + 1]
            try:
                self._add(self.round + 1, data, self.copy)
            except WireError as error:
                self._distrust(now, str(error))
                return
            self.round += 1
            if self.answered == self.boot:
                self.kept = None  # it is at work, and no more in want of it
            self.doubted, self.ask_at, self.retry = False, math.inf, 0.0

    def sift(self, now: float) -> None:
        """Let go of the first message at hand that does not fit: by a flipped bit it may name a round far ahead."""
        at, _ = self._reached()
        if self.state is LinkState.SYNCED and at < self.have:
            del self.inbox[at + 1]
            self._distrust(now, f"round {at + 1} does not fit; damaged on the way")

    def leave_out(self, now: float) -> None:
        """Go on without a neighbor of which nothing new came until the deadline."""
        self._signal(Signal.SILENT, now, f"nothing new within the deadline of {self.terms.deadline:g} s")

    def ask(self, now: float) -> wire.Copy | None:
        """Return what is to be said to have in a question that is sent now, and when to repeat it is set."""
        deadline = self.terms.deadline
        self.retry = min(2 * self.retry, deadline) if self.retry else deadline / ASKS
        self.asked = now
        self.ask_at = now + (REFUSED_DEADLINES * deadline if self.state is LinkState.REFUSED else self.retry)
        return None if self.unsure or self.boot is None else (self.boot, self.have)

    def ask_at_once(self, now: float) -> None:
        """Let a question be due: there is something that it is to hear of."""
        if self.reachable:
            self.ask_at = now

    def ask_late(self, now: float, urgent: bool) -> None:
        """Ask one that is behind, in a while: its message may have been lost."""
        if self.reachable:
            pause = self.terms.pause if urgent else self.terms.deadline
            self.ask_at = min(self.ask_at, now + max(pause, self.retry))

    def saved(self) -> dict[str, Any]:
        """Return what a checkpoint holds of it, besides the copy."""
        told = {name: getattr(self, name) for name in ("boot", "round", "adrift", "doubted")}
        return told | {"inbox": {str(at): data.hex() for at, data in self.inbox.items()}}

    def restore(self, saved: dict[str, Any], copy: Floats, inbox: dict[int, bytes]) -> None:
        """Go on from what a checkpoint holds."""
        self.copy[...] = copy
        self.inbox, names = inbox, ("boot", "round", "adrift", "doubted")
        self.boot, self.round, self.adrift, self.doubted = (saved[name] for name in names)

    def _signal(self, signal: Signal, now: float, why: str) -> None:
        before, self.state = self.state, TRANSITIONS[self.state].get(signal, self.state)
        if self.state is before:
            return
        self.terms.events.append(Moved(self.peer, before, self.state, why))
        if self.state is LinkState.SYNCED:
            self.adrift, self.ask_at = False, math.inf
            self.retry = self.retry if self.doubted else 0.0  # one that never fits must not be asked in circles
        elif self.state is LinkState.LEFT_OUT:
            self.adrift = True  # a question that is due stays so: what it shows may be a round far ahead
        elif self.state is LinkState.REFUSED:
            self.ask_at = now + REFUSED_DEADLINES * self.terms.deadline
        else:
            self._ask_soon(now)

    def _ask_soon(self, now: float) -> None:
        """Ask now, or when the last question has had its time."""
        if self.reachable:
            self.ask_at = min(self.ask_at, max(now, self.asked + self.retry))

    def _restarted(self, boot: int, now: float) -> None:
        """Ask a neighbor that shows a boot we do not know who it is now."""
        self.unsure = True
        self._signal(Signal.RESTARTED, now, f"boot {boot} in place of {self.boot}")
        self._ask_soon(now)

    def keep(self, at: int, data: bytes) -> None:
        """Keep a message until its turn comes, unless that is far off: then what lies between is asked for anyway."""
        if at <= min(self.round + MOST_AHEAD, LAST_ROUND):
            self.inbox[at] = data

    def _follow(self, at: int, now: float) -> None:
        """Go on with a message of a later round, if it is the next; else ask for what lies between."""
        if (last := self.have) + 1 < at:
            self._signal(Signal.LOST, now, f"round {at} after {last}")
            self._ask_soon(now)
        elif not self.unsure and self.state is not LinkState.SYNCED:  # there may be no room for the last one yet
            self._signal(Signal.CAUGHT_UP, now, f"its round {last} was all that lacked")

    def _compare(self, stance: bytes) -> None:
        """Take the weight that both ends go by, and note what its file says otherwise."""
        self.weight, differs = agreed(self.stance, stance, self.given)
        if differs and differs != self.differs:
            self.terms.events.append(Differs(self.peer, differs))
        self.differs = differs

    def _reset(self, boot: int) -> None:
        """Begin anew with its hidden state at round 0."""
        self.copy[...] = 0
        self.boot, self.round, self.adrift, self.doubted = boot, 0, True, False
        self.inbox.clear()

    def _reached(self) -> tuple[int, Floats]:
        """Return the round that the messages at hand lead to, and the neighbor's hidden state then."""
        at, hidden = self.round, self.copy.copy()
        with suppress(WireError):
            while data := self.inbox.get(at + 1):
                self._add(at + 1, data, hidden)
                at += 1
        return at, hidden

    def _add(self, at: int, data: bytes, copy: Floats) -> None:
        if not wire.add_gossip(self.terms.codec, data, (self.boot or 0, at), copy):
            raise WireError(ENDLESS)

    def _distrust(self, now: float, why: str) -> None:
        """Ask anew for a message that does not fit; if the next does not either, it is our copy that is wrong."""
        self._drop(why)
        assert self.boot is not None
        if self.doubted:
            self._reset(self.boot)
        self.doubted = True
        self._signal(Signal.LOST, now, why)

    def _drop(self, why: str) -> None:
        self.terms.events.append(Dropped(self.peer, why))
