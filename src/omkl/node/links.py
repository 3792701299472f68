"""A link to one neighbor: its state, and the copy of that neighbor's hidden state.

The states and what moves a link between them are data, ``TRANSITIONS``; a signal that is not listed for a state leaves
it as it is. A copy is used in mixing, and its next message applied, in SYNCED alone. In lock step a round waits for
links that are CONNECTING, SYNCING or SYNCED, and goes on without those LEFT_OUT or REFUSED.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from omkl.wire import nearest

MOST_AHEAD = 16  # messages kept until their turn comes; in lock step a neighbor is ahead by one


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

TRANSITIONS: dict[LinkState, dict[Signal, LinkState]] = {
    _CONNECTING: {Signal.AGREED: _SYNCING, Signal.DIFFERED: _REFUSED, Signal.SILENT: _LEFT_OUT},
    _SYNCING: {
        Signal.CAUGHT_UP: _SYNCED,
        Signal.SILENT: _LEFT_OUT,
        Signal.GONE: _CONNECTING,
        Signal.RESTARTED: _CONNECTING,
        Signal.DIFFERED: _REFUSED,
    },
    _SYNCED: {
        Signal.LOST: _SYNCING,
        Signal.SILENT: _LEFT_OUT,
        Signal.GONE: _CONNECTING,
        Signal.RESTARTED: _CONNECTING,
        Signal.DIFFERED: _REFUSED,
    },
    _LEFT_OUT: {Signal.CAUGHT_UP: _SYNCED, Signal.DIFFERED: _REFUSED},
    _REFUSED: {Signal.CAME: _CONNECTING, Signal.AGREED: _SYNCING},
}

WAITED_FOR = (LinkState.CONNECTING, LinkState.SYNCING, LinkState.SYNCED)


class Kept(NamedTuple):
    """A hidden state, and whose boot and round it is of."""

    boot: int
    round: int
    hidden: npt.NDArray[np.float32]


@dataclass
class Link:
    """What a node knows of one neighbor."""

    peer: str
    copy: npt.NDArray[np.float32]
    """Our copy of its hidden state, as of ``round``; zeros at round 0, where every hidden state begins."""
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
    adrift: bool = True
    """The copy did not follow from message to message: any snapshot is welcome."""
    doubted: bool = False
    """The last message did not fit: either it or our copy is damaged."""
    inbox: dict[int, bytes] = field(default_factory=dict)
    """Messages after the copy's round, by round."""
    kept: Kept | None = None
    """What we knew of its last boot, until it has taken a round under this one: it may have lost its own."""
    heard: float = -math.inf
    asked: float = -math.inf
    ask_at: float = math.inf
    retry: float = 0.0

    @property
    def have(self) -> int:
        """The last round of its up to which we hold everything."""
        last = self.round
        while last + 1 in self.inbox:
            last += 1
        return last

    def resolve(self, low: int) -> int:
        """Return the round that a message means, which tells its lowest byte alone."""
        return nearest(low, max(self.round, self.shown))

    @property
    def last(self) -> int:
        """The last round of its of which we hold anything."""
        return max(self.inbox, default=self.round)

    def keep(self, at: int, data: bytes) -> None:
        """Keep a message until its turn comes, unless that is far off: then what lies between is asked for anyway."""
        if at <= self.round + MOST_AHEAD:
            self.inbox[at] = data

    def reset(self, boot: int) -> None:
        """Begin anew with the neighbor's hidden state at round 0."""
        self.copy[...] = 0
        self.boot, self.round, self.adrift, self.doubted = boot, 0, True, False
        self.inbox.clear()

    def replace(self, at: int, hidden: npt.NDArray[np.float32]) -> None:
        """Take over a snapshot of round ``at``, and keep the messages that follow it."""
        self.copy[...] = hidden
        self.round, self.adrift, self.doubted = at, True, False
        self.inbox = {later: data for later, data in self.inbox.items() if later > at}
