"""What became of every observation: acknowledged, and then in the model or counted as lost."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from omkl.node.protocol import Protocol
from omkl.torture.invariants import Violation, require


class Saved(NamedTuple):
    """The observations that a checkpoint holds, by number."""

    inside: frozenset[int]
    waiting: tuple[int, ...]


@dataclass
class Stream:
    """The observations of one node, by number.

    Attributes
    ----------
    given
        Those that the node has accepted and not acknowledged, in order.
    taken
        How many of them it has taken, and not acknowledged.
    inside
        Those that its model has taken and that were acknowledged.
    acknowledged
        Those of which that was told.
    saved
        What each checkpoint holds.
    counted
        Whether the disk still knows how many were acknowledged.
    intact
        Whether the checkpoint is the last one that was written.
    """

    given: deque[int] = field(default_factory=deque)
    taken: int = 0
    inside: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    saved: dict[bytes, Saved] = field(default_factory=dict)
    counted: bool = True
    intact: bool = True

    @property
    def lost(self) -> int:
        """How many were acknowledged and are not in the model, nor will be."""
        return len(self.acknowledged.difference(self.inside, self.given))

    def save(self, node: Protocol) -> None:
        """Note what a checkpoint holds."""
        given, taken = list(self.given), len(self.given) - len(node.waiting)
        self.saved[_name(node)] = Saved(frozenset(self.inside.union(given[:taken])), tuple(given[taken:]))

    def restore(self, node: Protocol) -> None:
        """Go on from what a checkpoint holds."""
        saved = self.saved.get(_name(node))
        if saved is None:
            raise Violation("a checkpoint was restored that was never saved")
        self.given, self.taken, self.inside = deque(saved.waiting), 0, set(saved.inside)

    def check(self, node: Protocol, durable: bool) -> None:
        """Look whether a node that starts reports what it has lost."""
        if self.counted:
            require(node.lost == self.lost, f"{self.lost} acknowledged observations are lost, {node.lost} reported")
            require(not (durable and self.intact and self.lost), f"{self.lost} observations lost that were saved")

    def begin_anew(self) -> None:
        """Go on without a checkpoint."""
        self.given, self.taken, self.inside = deque(), 0, set()

    def forget(self) -> None:
        """Forget what was acknowledged, as a node does whose disk is lost: the count is gone with it."""
        self.acknowledged = set()
        self.counted = self.intact = True

    def acknowledge(self) -> None:
        """Note that all that was taken is acknowledged."""
        for _ in range(self.taken):
            number = self.given.popleft()
            self.inside.add(number)
            self.acknowledged.add(number)
        self.taken = 0


def _name(node: Protocol) -> bytes:
    """Return what tells a checkpoint from others: the model, its round and the samples taken and waiting."""
    state = [node.learning.state.theta, np.array([node.round, node.taken]), *(x for x, _ in node.waiting)]
    return b"".join(part.tobytes() for part in state)
