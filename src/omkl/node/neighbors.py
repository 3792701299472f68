"""The neighborhood of a node: its links, and what is asked and answered.

What a neighbor's frames change is its ``Link``'s business. Here is what the node says itself. A question is answered by
what the asker lacks:

    nothing (HELLO)     if it has all, or has not said what it has: then it learns who the other is,
    the last messages   if one or two of them are all it lacks,
    a SNAPSHOT          of the hidden state otherwise.

One that begins is told in HELLO how far we know it, and given before that what we have KEPT of its hidden state: see
``omkl.node.start``. Each end compares the contracts by itself and refuses a neighbor whose hidden state would mean
something else.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from omkl import wire
from omkl.node.events import Dropped, Event, Renewed
from omkl.node.halves import Floats, codec, quiet, total
from omkl.node.learning import Learning
from omkl.node.links import ASKS, RECENT, Kept, Link, LinkState, Terms
from omkl.node.role import Role
from omkl.node.start import Start
from omkl.wire import Header, Kind, WireError


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
        What is yet to be found out since the start; None when all is.
    """

    def __init__(self, role: Role, learning: Learning, boot: int) -> None:
        self.learning, self.boot = learning, boot
        self.codec = codec(learning.shape, role.method, role.compiled)
        self.events: list[Event] = []
        deadline = role.timing.deadline
        # One without samples may take its patience; a message that has not come then is asked for.
        pause = min(role.timing.patience, deadline / 2) + deadline / ASKS
        longest = wire.HEADER_BYTES + self.codec.most_bytes
        self._terms = Terms(role.contract(), self.codec, deadline, pause, longest, self.events)
        self.copies: Floats = np.zeros((len(role.neighbors), *learning.shape), dtype=np.float32)
        self.links = {
            peer: Link(peer, copy, self._terms, role.stance(peer), weight)
            for copy, (peer, weight) in zip(self.copies, role.neighbors.items(), strict=True)
        }
        self.recent: deque[bytes] = deque(maxlen=RECENT)
        self.start: Start | None = Start(learning.state.theta, (boot + 1) % 2**16)
        self.sends: list[Send] = []
        self._weighed: list[tuple[float, bool]] = []
        self._in_step: Floats = np.zeros(len(role.neighbors), dtype=np.float32)

    @property
    def contract(self) -> str:
        """What is to be that of every neighbor."""
        return self._terms.contract

    @property
    def weights(self) -> Floats:
        """The gossip weights, zero for a neighbor that is not in step: what it loses is the node's own."""
        weighed = [(link.weight, link.state is LinkState.SYNCED) for link in self.links.values()]
        if weighed != self._weighed:
            self._weighed = weighed
            self._in_step = np.array([weight * synced for weight, synced in weighed], dtype=np.float32)
            self.learning.links = math.fsum(weight for weight, _ in weighed)
        return self._in_step

    def came(self, peer: str, now: float) -> None:
        """Note that the transport reaches a neighbor: ask it who it is."""
        if link := self._known(peer):
            link.came(now)

    def gone(self, peer: str, now: float) -> None:
        """Note that the transport reaches it no more."""
        if link := self._known(peer):
            link.gone(now)

    def receive(self, peer: str, data: bytes, now: float) -> None:
        """Take in a frame of a neighbor."""
        link = self._known(peer)
        if link is None:
            return
        try:
            header = wire.peek(data)
            link.hear(now)
            _HANDLERS[header.kind](self, link, header, data, now)
        except WireError as error:
            link.fail(error, data, now)

    def skip(self, to: int, now: float) -> None:
        """Skip the rounds that neighbors took without us, and ask the others: so they hear of it, and skip too."""
        self.learning.round = to
        self.recent.clear()  # the next message does not follow them
        for link in self.links.values():
            if link.have < to:
                link.ask_at_once(now)

    def renew(self, now: float, why: str) -> None:
        """Take another boot, and let the neighbors know: it has said nothing of any round."""
        if self.start is None:
            self.boot = (self.boot + 1) % 2**16
        else:
            self.start.seeks = True  # the checkpoint may not be all there is
            self.boot = self.start.renew(self.boot)
        self.recent.clear()
        self.events.append(Renewed(self.boot, why))
        for link in self.links.values():
            link.ask_at_once(now)

    def go_back(self, to: int, now: float) -> None:
        """Go back to a round, under another boot."""
        self.start = None  # what neighbors have kept is of rounds that were not true
        self.renew(now, f"its round {self.learning.round} was another's word, and a neighbor counts to {to}")
        self.learning.round = to

    def wake_at(self) -> float:
        """Return when the next question is due."""
        return min([link.ask_at for link in self.links.values()], default=math.inf)

    def wake(self, now: float) -> None:
        """Ask what is due."""
        for link in self.links.values():
            if link.ask_at <= now:
                self._ask(link, now)

    def _ask(self, link: Link, now: float) -> None:
        self.sends.append(Send(link.peer, wire.write_ask(self.boot, self.learning.round, link.ask(now))))

    def _known(self, peer: str) -> Link | None:
        link = self.links.get(peer)
        if link is None:
            self.events.append(Dropped(peer, "no neighbor; links are those of the network's file"))
        return link

    def _gossip(self, link: Link, header: Header, data: bytes, now: float) -> None:
        link.gossip(header, data, now)

    def _hello(self, link: Link, header: Header, data: bytes, now: float) -> None:
        hello = wire.read_hello(data)
        if hello.known is not None:
            self._warn(link, hello.known, now)
            if self.start is not None and self.start.lacks(link.peer, hello.known, self.boot):
                return  # the question stays due
        link.hello(header, hello, now)

    def _snapshot(self, link: Link, header: Header, data: bytes, now: float) -> None:
        link.snapshot(header, data, now)

    def _answer(self, link: Link, header: Header, data: bytes, now: float) -> None:
        """Give a neighbor what it lacks."""
        have = wire.read_ask(data)
        if have is not None and self._warn(link, have, now):
            have = None
        self.sends += [Send(link.peer, reply) for reply in self._replies(link, header, have)]
        link.asks(header, now)

    def _replies(self, link: Link, header: Header, have: wire.Copy | None) -> list[bytes]:
        if link.state is LinkState.REFUSED:
            return self._lacking(link, None, None)
        kept, known = link.missed(header)
        return [*([wire.write_kept(*kept)] if kept else []), *self._lacking(link, have, known)]

    def _lacking(self, link: Link, have: wire.Copy | None, known: wire.Copy | None) -> list[bytes]:
        """Return what one that has this lacks; it is told what is known of it."""
        own = self.learning.round
        if have is None or have == (self.boot, own):
            return [wire.write_hello(self.boot, own, self.contract, known, link.stance)]
        if have[0] == self.boot and 0 < own - have[1] <= len(self.recent):
            return list(self.recent)[have[1] - own :]
        return [wire.write_snapshot(self.boot, own, self.learning.hidden)]

    def _warn(self, link: Link, known: wire.Copy, now: float) -> bool:
        """Take another boot if a neighbor knows more of us than we do: then ours is a checkpoint from before."""
        if self.start is None or self.start.begun:
            return False
        # One that knows us by another boot has heard that one after ours, if our file is an old one.
        other, later = known[0] != self.boot, known[1] > self.learning.round
        if (other and self.start.resumed) or (later and not other):
            ours = f"round {self.learning.round} of boot {self.boot}"
            self.renew(now, f"{link.peer} knows round {known[1]} of boot {known[0]}, the checkpoint {ours}")
            return True
        return False

    def _kept(self, link: Link, header: Header, data: bytes, now: float) -> None:
        """Take what was our own hidden state."""
        hidden = wire.read_kept(self.learning.shape, data)
        with quiet():
            is_sound = math.isfinite(total(hidden))
        if self.start is not None:
            self.start.returned[link.peer] = Kept(header.boot, header.round, hidden) if is_sound else None
        if self.start is None or not is_sound:
            self.events.append(Dropped(link.peer, f"our round {header.round} of boot {header.boot}; it is not lacking"))
            return
        self._warn(link, header[1:], now)


_HANDLERS: dict[Kind, Callable[[Neighbors, Link, Header, bytes, float], None]] = {
    Kind.HELLO: Neighbors._hello,
    Kind.ASK: Neighbors._answer,
    Kind.SNAPSHOT: Neighbors._snapshot,
    Kind.CODED: Neighbors._gossip,
    Kind.FIXED: Neighbors._gossip,
    Kind.KEPT: Neighbors._kept,
}
