"""What a node keeps on its disk: its checkpoint, and how many observations it has acknowledged.

An observation is acknowledged when its ``done`` is called. The number of those is in a file of its own,
``<id>.count``, which costs nothing to keep up to date; what it holds beyond the checkpoint after a crash is lost, and
told. With ``every = "observation"`` nothing is: a checkpoint is written first, and where that fails the acknowledgement
waits until one can be. The node gossips on meanwhile, and takes no more observations than may wait.
"""

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path

from omkl.node import checkpoint
from omkl.node.disk import Counter, Disk
from omkl.node.events import Damaged, Event, Gossiped, Lost, Unsaved
from omkl.node.protocol import Protocol
from omkl.node.settings import Checkpoint

logger = logging.getLogger(__name__)

RETRY = 5.0  # seconds after which a checkpoint that acknowledgements wait for is tried again
ROUNDS = 100  # a node without observations of its own is saved every so many


class Keep:
    """Keeps one node.

    Attributes
    ----------
    failure
        Why the last checkpoint could not be written; None if it could.
    """

    def __init__(
        self,
        protocol: Protocol,
        settings: Checkpoint,
        disk: Disk,
        tell: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._protocol, self._disk, self._tell, self._clock = protocol, disk, tell, clock
        self._file = settings.file(protocol.role.id)
        self._durable = settings.every == "observation"
        self._rounds = ROUNDS if isinstance(settings.every, str) else settings.every
        self.failure: str | None = None
        self._retry_at = -math.inf
        self._counter: Counter | None = None
        self._look_back()

    def _look_back(self) -> None:
        """Find out how many observations were acknowledged that the checkpoint does not hold."""
        protocol, count = self._protocol, count_file(self._file)
        try:
            self._counter = self._disk.counter(count)
        except OSError as error:
            protocol.report(Unsaved(protocol.round, f"{count} cannot be had ({error}); what a crash loses is not told"))
            return
        lost = self._counter.value - protocol.taken - protocol.lost - len(protocol.waiting)  # those are taken again
        if lost > 0:
            protocol.lost += lost
            protocol.report(Lost(lost))
        start = protocol.neighbors.start
        if start is not None and self._durable and protocol.restored and lost <= 0:
            start.seeks = False

    def begin(self, now: float) -> None:
        """Mark the last checkpoint as used, before the node says anything."""
        neighbors = self._protocol.neighbors
        try:
            self._write(clean=False)
        except OSError as error:
            self._fail(error, self._protocol.report)
            if neighbors.start is not None and neighbors.start.resumed:
                neighbors.renew(now, "the checkpoint that it is of could not be marked as used")
        self._count()

    def settle(self) -> bool:
        """Return whether what was taken so far may be acknowledged."""
        if self._durable and (self._clock() < self._retry_at or self._protocol.diverged or not self._try()):
            return False
        self._count()
        return True

    def end(self) -> None:
        """Write the last checkpoint; ``OSError`` if that fails, and the one before is what is left."""
        try:
            self._write(clean=True)
        except OSError as error:
            self._fail(error, self._tell)
            raise

    def watch(self, event: Event) -> None:
        """Save if a round is the one, and tell what is amiss with the disk."""
        match event:
            case Gossiped(round) if round % self._rounds == 0:
                self._try()
            case Lost(observations):
                self._warn(
                    "lost", f"{observations} observations acknowledged before a crash are in no checkpoint", event
                )
            case Damaged(file, why):
                self._warn("damaged", f"{file} {why}; goes on from the one before it", event)
            case Unsaved(round, why):
                self._warn("unsaved", f"the checkpoint of round {round} is not written: {why}", event)

    def _try(self) -> bool:
        try:
            self._write(clean=False)
        except OSError as error:  # a full disk is no reason to stop learning
            self._fail(error, self._tell)
        return self.failure is None

    def _write(self, clean: bool) -> None:
        # A model that has diverged must not take the place of the last one that had not.
        if not self._protocol.diverged:
            checkpoint.save(self._file, self._protocol, clean, self._disk)
            self.failure, self._retry_at = None, -math.inf

    def _fail(self, error: OSError, tell: Callable[[Event], None]) -> None:
        self.failure, self._retry_at = str(error), self._clock() + RETRY
        tell(Unsaved(self._protocol.round, self.failure))

    def _count(self) -> None:
        if self._counter is not None:
            # Never back: of those that wait in a checkpoint some were acknowledged before a crash.
            self._counter.value = max(self._counter.value, self._protocol.taken + self._protocol.lost)

    def _warn(self, name: str, text: str, event: Event) -> None:
        logger.warning(text, extra={"omkl": {"node": self._protocol.role.id, "event": name} | event._asdict()})


def count_file(file: Path) -> Path:
    """Return the file of the number beside a checkpoint."""
    return file.with_suffix(".count")
