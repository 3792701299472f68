"""Follows every observation: it must be learned as given, acknowledged, and then be in the model or counted as lost."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from omkl.node.events import Scored
from omkl.node.halves import Floats
from omkl.node.protocol import Protocol
from omkl_lab.torture.learning_oracle import Lesson
from omkl_lab.torture.violation import require


class Sample(NamedTuple):
    """An observation; y is None where there is no label."""

    number: int
    x: Floats
    y: Floats | None


class Saved(NamedTuple):
    """What a checkpoint holds: observations by number, those that wait, and all that is to be restored."""

    inside: frozenset[int]
    waiting: tuple[Sample, ...]
    content: bytes


@dataclass
class Stream:
    """The observations of one node.

    Attributes
    ----------
    given
        Samples that the node has accepted and not yet acknowledged, in order.
    taken
        How many of them it has learned or predicted, but not yet acknowledged.
    inside
        Numbers of the acknowledged samples that are in its model.
    acknowledged
        Numbers of the samples that it has acknowledged and not counted as lost.
    lost
        How many samples it has counted as lost.
    saved
        What each checkpoint holds, by the bytes that were written.
    counted
        Whether the disk still holds the number of acknowledged samples.
    intact
        Whether the checkpoint is the last one that was written.
    rotten
        Whether that number was damaged, so that it may be too small.
    again
        Samples that waited in the checkpoint and are not acknowledged yet.
    """

    given: deque[Sample] = field(default_factory=deque)
    taken: int = 0
    inside: set[int] = field(default_factory=set)
    acknowledged: set[int] = field(default_factory=set)
    lost: int = 0
    saved: dict[bytes, Saved] = field(default_factory=dict)
    counted: bool = True
    intact: bool = True
    rotten: bool = False
    again: int = 0

    def take(self, scored: Scored, learned: deque[Lesson]) -> None:
        """Note that the next sample was taken: if it has a label, it must be what was learned next."""
        require(self.taken < len(self.given), "a sample was scored that was not given")
        number, x, y = self.given[self.taken]
        self.taken += 1
        require((scored.loss is None) == (y is None), f"sample {number} was not taken as it was given, by its label")
        if y is not None:
            require(bool(learned), f"sample {number} was scored, and not learned")
            lesson = learned.popleft()
            same = np.array_equal(lesson.x, x) and lesson.y.tobytes() == y.tobytes()
            require(same, f"sample {number} was scored, and another one learned")
            require(lesson.loss == scored.loss, f"sample {number} had another loss than was told")

    def save(self, node: Protocol, written: bytes) -> None:
        """Note what a checkpoint holds."""
        given, taken = list(self.given), len(self.given) - len(node.waiting)
        inside = self.inside.union(sample.number for sample in given[:taken])
        self.saved[written] = Saved(frozenset(inside), tuple(given[taken:]), _content(node))

    def restore(self, node: Protocol, written: bytes | None, missed: int) -> None:
        """Go on from what a checkpoint holds, or without one; the node says what it has missed since."""
        require(node.restored == (written is not None), "there is a whole checkpoint, and it was not restored")
        saved = Saved(frozenset(), (), b"") if written is None else self.saved[written]
        require(written is None or _content(node, missed) == saved.content, "what was restored is not what was saved")
        self.given, self.taken, self.inside = deque(saved.waiting), 0, set(saved.inside)
        self.again = len(saved.waiting)

    def check(self, node: Protocol, durable: bool) -> None:
        """Check that a node that starts reports what it has lost."""
        rotten, self.rotten = self.rotten, False
        if not self.counted:
            return
        missing = self.acknowledged.difference(self.inside, (sample.number for sample in self.given))
        self.acknowledged -= missing
        self.lost += len(missing)
        told = f"{self.lost} acknowledged observations are lost, {node.lost} reported"
        require(node.lost <= self.lost if rotten else node.lost == self.lost, told)
        self.lost = node.lost
        require(not (durable and self.intact and missing), f"{len(missing)} observations lost that were saved")
        self.intact = True

    def recount(self, node: Protocol, counter: int | None) -> None:
        """Accept the node's own count of what was lost before, once its disk counts from there.

        It does so at the latest when the samples that waited in an old file are acknowledged, some of them again.
        """
        if self.counted or counter is None:
            return
        if counter == node.taken + node.lost:
            self.lost, self.acknowledged = node.lost, set(self.inside)
            self.counted = self.intact = True
        else:
            told = f"{counter} observations are counted, {node.taken} are taken and {node.lost} lost"
            require(self.again > 0, told)

    def forget(self) -> None:
        """Forget what was acknowledged: a node whose disk is lost has lost the count too."""
        self.acknowledged, self.lost = set(), 0
        self.counted = self.intact = True
        self.rotten = False

    def acknowledge(self) -> None:
        """Note that all that was taken is acknowledged."""
        for _ in range(self.taken):
            number = self.given.popleft().number
            self.inside.add(number)
            self.acknowledged.add(number)
        self.again = max(0, self.again - self.taken)
        self.taken = 0


def _content(node: Protocol, missed: int = 0) -> bytes:
    """Return what a checkpoint restores, except for what depends on whether the node left in order."""
    theta, hidden, log_weights, memory, velocity, moved, hearing = node.learning.state
    links = [(link.boot, link.round, link.adrift, link.doubted, link.inbox) for link in node.links.values()]
    arrays = [theta, hidden, log_weights, velocity, moved, *memory, *hearing, node.neighbors.copies]
    arrays += [np.asarray(part) for part in node.learning.moments]
    arrays += [part for sample in node.waiting for part in sample if part is not None]
    labeled = [y is not None for _, y in node.waiting]
    told = repr((node.round, node.taken, node.lost - missed, node.left, labeled, links))
    return told.encode() + b"".join(np.asarray(part).tobytes() for part in arrays)
