"""The neighborhood of a node: its links, what arrives on them, and what is asked and answered.

In a hidden-state scheme one lost message would corrupt a copy for ever. So every message carries its round, and a check
that fits only the boot, round and hidden state of its sender. A copy absorbs only the next round of the boot it knows;
what is older is dropped, and after a gap the owner is asked. Asking is the receiver's business alone: it says what it
has, and is given what it lacks, which is

    nothing (HELLO)     if it has all, or has not said what it has: then it learns who the other is,
    the last messages   if one or two of them are all it lacks,
    a SNAPSHOT          of the hidden state otherwise.

One that begins is told in HELLO how far we know it, and given before that what we have KEPT of its hidden state: see
``omkl.node.start``.

So either end may lose, repeat or restart what it likes: it asks again, and an answer never causes a question unless
something is lacking. Each end compares the contracts by itself and refuses a neighbor whose hidden state would mean
something else.
"""

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from omkl import wire
from omkl.node.events import Differs, Dropped, Event, Moved, Renewed, Resynced
from omkl.node.halves import Floats, codec, quiet, total
from omkl.node.learning import Learning
from omkl.node.links import TRANSITIONS, Kept, Link, LinkState, Signal
from omkl.node.role import Role, agreed, differences
from omkl.node.start import Start
from omkl.wire import Header, Kind, VersionError, WireError

ASKS = 8  # the first question is repeated after this part of a deadline, the next after twice the time
RECENT = 2  # in lock step a neighbor that misses a message of ours lets us take one more round, and no second
REFUSED_DEADLINES = 12  # deadlines after which a refused neighbor is asked again: its file may have been mended
ENDLESS = "a sum that is not finite; hidden states are; its sender should have stopped"


class Send(NamedTuple):
    """Bytes for one neighbor, or for all where ``peer`` is None."""

    peer: str | None
    data: bytes


class Neighbors:
    """The links of a node.

    Attributes
    ----------
    links
        By id of the neighbor.
    copies, weights
        The neighbors' hidden states ``(K, P, C, 2D)`` and gossip weights ``(K,)``, as mixing wants them.
    recent
        The last frames this process has sent, for neighbors that lack only those.
    start
        What is to be found out before the first round, None after it.
    """

    def __init__(self, role: Role, learning: Learning, boot: int) -> None:
        self.contract, self._stances = role.contract(), {peer: role.stance(peer) for peer in role.neighbors}
        self.learning, self.boot = learning, boot
        self.codec = codec(learning.shape, role.method, role.compiled)
        self.copies: Floats = np.zeros((len(role.neighbors), *learning.shape), dtype=np.float32)
        self.links = {peer: Link(peer, self.copies[k]) for k, peer in enumerate(role.neighbors)}
        self.recent: deque[bytes] = deque(maxlen=RECENT)
        self.start: Start | None = Start(learning.state.theta, (boot + 1) % 2**16)
        self.sends: list[Send] = []
        self.events: list[Event] = []
        self._longest = wire.HEADER_BYTES + self.codec.most_bytes
        self._given, self._agreed = role.neighbors, dict(role.neighbors)
        self._weights: Floats = np.array(list(role.neighbors.values()), dtype=np.float32)
        self._in_step: Floats = np.zeros_like(self._weights)
        self._deadline = role.timing.deadline
        # One without samples may take its patience; a message that has not come then is asked for.
        self._pause = min(role.timing.patience, self._deadline / 2) + self._deadline / ASKS

    @property
    def weights(self) -> Floats:
        """The gossip weights, zero for a neighbor that is not in step: what it loses is the node's own."""
        return self._in_step

    def came(self, peer: str, now: float) -> None:
        """Note that the transport reaches a neighbor: ask it who it is."""
        if link := self._known(peer):
            link.reachable, link.unsure, link.retry = True, True, 0.0
            self._signal(link, Signal.CAME, now, "reached")
            link.ask_at = now

    def gone(self, peer: str, now: float) -> None:
        """Note that the transport reaches it no more."""
        if link := self._known(peer):
            link.reachable, link.ask_at = False, math.inf
            self._signal(link, Signal.GONE, now, "out of reach")

    def receive(self, peer: str, data: bytes, now: float) -> None:
        """Take in a frame of a neighbor."""
        link = self._known(peer)
        if link is None:
            return
        try:
            header = wire.peek(data)
            link.heard = now
            _HANDLERS[header.kind](self, link, header, data, now)
        except WireError as error:
            self.events.append(Dropped(peer, str(error)))
            # A flipped bit must not look like another version: that would cost many deadlines.
            if isinstance(error, VersionError) and link.state is LinkState.CONNECTING and wire.is_whole(data):
                self._signal(link, Signal.DIFFERED, now, str(error))

    def absorb(self, link: Link, upto: float, now: float) -> None:
        """Bring a copy forward by the messages at hand, to a round of its owner's at most."""
        while link.state is LinkState.SYNCED and link.round < upto and (data := link.inbox.get(link.round + 1)):
            del link.inbox[link.round + 1]
            try:
                self._add(link, link.round + 1, data, link.copy)
            except WireError as error:
                self._distrust(link, now, str(error))
                return
            link.round += 1
            link.kept = None  # it is at work, and no more in want of it
            link.doubted, link.ask_at, link.retry = False, math.inf, 0.0

    def sift(self, link: Link, now: float) -> None:
        """Let go of the first message at hand that does not fit: by a flipped bit it may name a round far ahead."""
        at, _ = self._reached(link)
        if link.state is LinkState.SYNCED and at < link.have:
            del link.inbox[at + 1]
            self._distrust(link, now, f"round {at + 1} does not fit; damaged on the way")

    def _reached(self, link: Link) -> tuple[int, Floats]:
        """Return the round that the messages at hand lead to, and the neighbor's hidden state then."""
        at, hidden = link.round, link.copy.copy()
        with suppress(WireError):
            while data := link.inbox.get(at + 1):
                self._add(link, at + 1, data, hidden)
                at += 1
        return at, hidden

    def _add(self, link: Link, at: int, data: bytes, copy: Floats) -> None:
        assert link.boot is not None
        if not wire.add_gossip(self.codec, data, (link.boot, at), copy):
            raise WireError(ENDLESS)

    def leave_out(self, link: Link, now: float) -> None:
        """Go on without a neighbor of which nothing new came until the deadline."""
        self._signal(link, Signal.SILENT, now, f"nothing new within the deadline of {self._deadline:g} s")

    def ask_late(self, link: Link, now: float, urgent: bool) -> None:
        """Ask a neighbor that is behind, in a while: its message may have been lost."""
        if link.reachable:
            pause = self._pause if urgent else self._deadline
            link.ask_at = min(link.ask_at, now + max(pause, link.retry))

    def skip(self, to: int, now: float) -> None:
        """Skip the rounds that neighbors took without us, and ask the others: so they hear of it, and skip too."""
        self.learning.round = to
        self.recent.clear()  # the next message does not follow them
        for link in self.links.values():
            if link.reachable and link.have < to:
                link.ask_at = now

    def renew(self, now: float, why: str) -> None:
        """Take another boot, and let the neighbors know; only before the first round."""
        assert self.start is not None
        self.start.seeks = True  # the checkpoint may not be all there is
        self.boot = self.start.renew(self.boot)
        self.recent.clear()
        self.events.append(Renewed(self.boot, why))
        for link in self.links.values():
            if link.reachable:
                link.ask_at = now

    def wake_at(self) -> float:
        """Return when the next question is due."""
        return min([link.ask_at for link in self.links.values()], default=math.inf)

    def wake(self, now: float) -> None:
        """Ask what is due."""
        for link in self.links.values():
            if link.ask_at <= now:
                self._ask(link, now)

    def _known(self, peer: str) -> Link | None:
        link = self.links.get(peer)
        if link is None:
            self.events.append(Dropped(peer, "no neighbor; links are those of the network's file"))
        return link

    def _signal(self, link: Link, signal: Signal, now: float, why: str) -> None:
        before, link.state = link.state, TRANSITIONS[link.state].get(signal, link.state)
        if link.state is before:
            return
        self._weigh()
        self.events.append(Moved(link.peer, before, link.state, why))
        if link.state is LinkState.SYNCED:
            link.adrift, link.ask_at = False, math.inf
            link.retry = link.retry if link.doubted else 0.0  # one that never fits must not be asked in circles
        elif link.state is LinkState.LEFT_OUT:
            link.adrift = True  # a question that is due stays so: what it shows may be a round far ahead
        elif link.state is LinkState.REFUSED:
            link.ask_at = now + REFUSED_DEADLINES * self._deadline
        else:
            self._ask_soon(link, now)

    def _ask_soon(self, link: Link, now: float) -> None:
        """Ask now, or when the last question has had its time."""
        if link.reachable:
            link.ask_at = min(link.ask_at, max(now, link.asked + link.retry))

    def _ask(self, link: Link, now: float) -> None:
        have = None if link.unsure or link.boot is None else (link.boot, link.have)
        self.sends.append(Send(link.peer, wire.write_ask(self.boot, self.learning.round, have)))
        link.retry = min(2 * link.retry, self._deadline) if link.retry else self._deadline / ASKS
        link.asked = now
        slow = link.state is LinkState.REFUSED
        link.ask_at = now + (REFUSED_DEADLINES * self._deadline if slow else link.retry)

    def _restarted(self, link: Link, boot: int, now: float) -> None:
        """Ask a neighbor that shows a boot we do not know who it is now."""
        link.unsure = True
        self._signal(link, Signal.RESTARTED, now, f"boot {boot} in place of {link.boot}")
        self._ask_soon(link, now)

    def _gossip(self, link: Link, header: Header, data: bytes, now: float) -> None:
        at = link.resolve(header.round)
        if link.state is LinkState.REFUSED:
            self.events.append(Dropped(link.peer, "it was refused"))
        elif len(data) > self._longest:
            self.events.append(Dropped(link.peer, f"{len(data)} bytes; a message has {self._longest} at most"))
        elif link.boot is None:
            self.events.append(Dropped(link.peer, "a message of one that is not known yet"))
            self._ask_soon(link, now)
        elif at <= link.round or at in link.inbox:
            self.events.append(Dropped(link.peer, f"round {at} again; the copy is at {link.round}"))
            if at <= link.round - RECENT:  # nobody repeats that; it may be a new life of its, at another round
                self._ask_soon(link, now)
        else:
            link.keep(at, data)
            self._follow(link, at, now)

    def _follow(self, link: Link, at: int, now: float) -> None:
        """Go on with a message of a later round, if it is the next; else ask for what lies between."""
        if (last := link.have) + 1 < at:
            self._signal(link, Signal.LOST, now, f"round {at} after {last}")
            self._ask_soon(link, now)
        elif not link.unsure and link.state is not LinkState.SYNCED:  # there may be no room for the last one yet
            self._signal(link, Signal.CAUGHT_UP, now, f"its round {last} was all that lacked")

    def _hello(self, link: Link, header: Header, data: bytes, now: float) -> None:
        theirs, known, stance = wire.read_hello(data)
        if known is not None:
            self._warn(link, known, now)
        if header.boot != link.boot:
            self._signal(link, Signal.RESTARTED, now, f"boot {header.boot} in place of {link.boot}")
            if link.kept is None and (held := self._held(link)) and held.round:
                link.kept = held
            link.reset(header.boot)
        link.shown = header.round
        link.unsure = theirs != self.contract
        if link.unsure:
            self._signal(link, Signal.DIFFERED, now, differences(self.contract, theirs))
            return
        self._compare(link, stance)
        self._signal(link, Signal.AGREED, now, "contracts agree")
        if header.round == link.have:
            self._signal(link, Signal.CAUGHT_UP, now, f"level at its round {header.round}")
            link.ask_at = math.inf  # nothing lacks; whoever waits for its next round asks again
        elif header.round > link.have:
            link.ask_at = now
        elif link.state is not LinkState.SYNCED:  # late on its way, or a new life that drew the boot of the last
            link.adrift, link.ask_at = True, now

    def _compare(self, link: Link, stance: bytes) -> None:
        """Take the weight that both ends go by, and note what a neighbor's file says otherwise."""
        self._agreed[link.peer], differs = agreed(self._stances[link.peer], stance, self._given[link.peer])
        if differs and differs != link.differs:
            self.events.append(Differs(link.peer, differs))
        link.differs = differs
        self._weights = np.array(list(self._agreed.values()), dtype=np.float32)
        self.learning.links = math.fsum(self._agreed.values())
        self._weigh()

    def _weigh(self) -> None:
        synced = [one.state is LinkState.SYNCED for one in self.links.values()]
        self._in_step = self._weights * np.array(synced, dtype=np.float32)

    def _snapshot(self, link: Link, header: Header, data: bytes, now: float) -> None:
        # A copy that follows takes no snapshot where messages reach: the run would depend on who was faster.
        least = 0 if link.adrift else link.have + RECENT + 1
        if link.unsure or header.boot != link.boot or header.round < least:
            self.events.append(Dropped(link.peer, f"a snapshot of round {header.round} that is not lacking"))
            if header.boot != link.boot:
                self._restarted(link, header.boot, now)
            return
        hidden = wire.read_snapshot(self.learning.shape, data)
        if not math.isfinite(total(hidden)):
            raise WireError(ENDLESS)
        link.replace(header.round, hidden)
        self.events.append(Resynced(link.peer, header.round))
        self._signal(link, Signal.CAUGHT_UP, now, f"snapshot of its round {header.round}")
        link.adrift = link.state is not LinkState.SYNCED

    def _answer(self, link: Link, header: Header, data: bytes, now: float) -> None:
        """Give a neighbor what it lacks."""
        have = wire.read_ask(data)
        if have is not None and self._warn(link, have, now):
            have = None
        self.sends += [Send(link.peer, reply) for reply in self._replies(link, header, have)]
        if header.boot != link.boot:
            self._restarted(link, header.boot, now)
            return
        link.shown = header.round
        if header.round > link.have and link.state is not LinkState.REFUSED:
            self._ask_soon(link, now)

    def _replies(self, link: Link, header: Header, have: wire.Copy | None) -> list[bytes]:
        if link.state is LinkState.REFUSED:
            return self._lacking(link, None, None)
        held, same = self._held(link), header.boot == link.boot
        kept, known = link.kept or held, None if link.boot is None else (link.boot, link.last)
        if same:
            kept = held if held and header.round < held.round else link.kept
            known = link.kept[:2] if link.kept else known
        return [*([wire.write_kept(*kept)] if kept and kept.round else []), *self._lacking(link, have, known)]

    def _lacking(self, link: Link, have: wire.Copy | None, known: wire.Copy | None) -> list[bytes]:
        """Return what one that has this lacks; it is told what is known of it."""
        own = self.learning.round
        if have is None or have == (self.boot, own):
            return [wire.write_hello(self.boot, own, self.contract, known, self._stances[link.peer])]
        if have[0] == self.boot and 0 < own - have[1] <= len(self.recent):
            return list(self.recent)[have[1] - own :]
        return [wire.write_snapshot(self.boot, own, self.learning.hidden)]

    def _held(self, link: Link) -> Kept | None:
        """Return the last hidden state that we know of a neighbor, by the messages at hand; None if in doubt."""
        if link.boot is None or link.doubted:
            return None
        return Kept(link.boot, *self._reached(link))

    def _warn(self, link: Link, known: wire.Copy, now: float) -> bool:
        """Take another boot if a neighbor knows more of us than we do: then ours is a checkpoint from before."""
        if self.start is None:
            return False
        # One that knows us by another boot has heard that one after ours, if our file is an old one.
        other, later = known[0] != self.boot, known[1] > self.learning.round
        if (other and self.start.resumed) or (later and not other):
            ours = f"round {self.learning.round} of boot {self.boot}"
            self.renew(now, f"{link.peer} knows round {known[1]} of boot {known[0]}, the checkpoint {ours}")
            return True
        return False

    def _kept(self, link: Link, header: Header, data: bytes, now: float) -> None:
        """Take what was our own hidden state, for the first round."""
        hidden = wire.read_kept(self.learning.shape, data)
        with quiet():
            is_sound = math.isfinite(total(hidden))
        if self.start is None or not is_sound:
            self.events.append(Dropped(link.peer, f"our round {header.round} of boot {header.boot}; it is not lacking"))
            return
        self.start.returned[link.peer] = Kept(header.boot, header.round, hidden)
        self._warn(link, header[1:], now)

    def _distrust(self, link: Link, now: float, why: str) -> None:
        """Ask anew for a message that does not fit; if the next does not either, it is our copy that is wrong."""
        self.events.append(Dropped(link.peer, why))
        assert link.boot is not None
        if link.doubted:
            link.reset(link.boot)
        link.doubted = True
        self._signal(link, Signal.LOST, now, why)


_HANDLERS: dict[Kind, Callable[[Neighbors, Link, Header, bytes, float], None]] = {
    Kind.HELLO: Neighbors._hello,
    Kind.ASK: Neighbors._answer,
    Kind.SNAPSHOT: Neighbors._snapshot,
    Kind.CODED: Neighbors._gossip,
    Kind.FIXED: Neighbors._gossip,
    Kind.KEPT: Neighbors._kept,
}
