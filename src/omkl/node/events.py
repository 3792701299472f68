"""What a node tells of itself: values, for logs, metrics and whoever waits for a prediction."""

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from omkl.node.links import LinkState


class Scored(NamedTuple):
    """An observation was predicted and, where it had a label, learned."""

    round: int
    output: npt.NDArray[np.float32]
    loss: float | None


class Gossiped(NamedTuple):
    """A round of gossip was taken."""

    round: int
    size: int
    """Bytes of the frame that every neighbor is sent."""
    mixed: int
    """Neighbors whose copies were mixed in."""


class Moved(NamedTuple):
    """A link changed its state."""

    peer: str
    before: "LinkState"
    after: "LinkState"
    why: str


class Resynced(NamedTuple):
    """A snapshot replaced our copy of a neighbor's hidden state."""

    peer: str
    round: int


class Dropped(NamedTuple):
    """Bytes from a neighbor were not used."""

    peer: str
    why: str
    reason: str = "content"
    """In a word; others than this one are in ``omkl.node.inbox``."""
    times: int = 1


class Differs(NamedTuple):
    """A neighbor's file is another, though its contract agrees."""

    peer: str
    what: str = "settings"
    """``"settings"`` of learning or timing; or ``"weight"``, that of the link alone, of which the smaller counts."""


class Diverged(NamedTuple):
    """The model left the finite numbers; the node sends and learns no more."""

    round: int


class Renewed(NamedTuple):
    """The node goes on under another boot: what it knows of the last one may not be all that it said."""

    boot: int
    why: str


class Recovered(NamedTuple):
    """The node has lost its state, and has its models back from a neighbor's copy of its hidden state."""

    peer: str
    round: int


class Begun(NamedTuple):
    """The node takes its first round before these neighbors have answered, which may have kept models that it lost."""

    awaited: tuple[str, ...]


class Adopted(NamedTuple):
    """The node has no models of its own, and begins with the mean of what these neighbors say."""

    peers: tuple[str, ...]


class Lost(NamedTuple):
    """Observations that were taken after the checkpoint from which the node goes on, before a crash."""

    observations: int


class Unsaved(NamedTuple):
    """A checkpoint could not be written; the node goes on."""

    round: int
    why: str


class Damaged(NamedTuple):
    """A checkpoint, or the count of what was acknowledged, was not whole; the node goes on from the one before it."""

    file: str
    why: str


Event: TypeAlias = (
    Scored
    | Gossiped
    | Moved
    | Resynced
    | Dropped
    | Differs
    | Diverged
    | Renewed
    | Recovered
    | Begun
    | Adopted
    | Lost
    | Unsaved
    | Damaged
)
