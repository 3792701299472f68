"""All that a node keeps on its disk: its checkpoint, and how many observations it has acknowledged.

An observation is acknowledged when its ``done`` is called. The number of those is in a file of its own,
``<id>.count``, which costs little to keep up to date; what it holds beyond the checkpoint after a crash is lost, and
told. With ``every = "observation"`` nothing is: a checkpoint is written first, and where that fails the acknowledgement
waits until one can be. The node gossips on meanwhile, and takes no more observations than may wait.
"""

import errno
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from omkl.node.events import Damaged, Event, Gossiped, Lost, Unsaved
from omkl.node.persistence import checkpoint
from omkl.node.persistence.count import Count
from omkl.node.persistence.disk import Disk, Lock, RealDisk, beside, held
from omkl.node.protocol import Protocol
from omkl.node.role import Role
from omkl.node.settings import Checkpoint

logger = logging.getLogger(__name__)

FULL = (errno.ENOSPC, errno.EDQUOT)
RETRY = 5.0  # seconds after which a checkpoint that acknowledgements wait for is tried again
UNTOLD = "what a crash loses is not told"
ROUNDS = 100  # a node without observations of its own is saved every so many


class Saver:
    """Keeps one node, which goes on from what it finds; where there are no settings nothing is kept.

    Attributes
    ----------
    protocol
        The node.
    durable
        Whether an observation that is acknowledged is never lost.
    failure
        Why the last checkpoint could not be written; None if it could.
    kept
        Observations that the last checkpoint holds.
    missed
        Acknowledged observations that the checkpoint does not hold, as after a crash, found out just now.
    """

    def __init__(
        self,
        role: Role,
        settings: Checkpoint | None,
        boot: int,
        tell: Callable[[Event], None],
        disk: Disk | None = None,
        clock: Callable[[], float] = time.monotonic,
        lock: Lock | None = None,
    ) -> None:
        self._disk, self._tell, self._clock, self._lock = disk or RealDisk(), tell, clock, lock
        every = ROUNDS if settings is None else settings.every
        self.durable, self._rounds = every == "observation", ROUNDS if isinstance(every, str) else every
        self.failure: str | None = None
        self._retry_at = -math.inf
        self._count: Count | None = None
        self._is_counted = True
        self.kept = self.missed = 0
        self._file = None if settings is None else settings.file(role.id)
        if self._file is None:
            self.protocol = Protocol(role, boot, clock())
            return
        self.protocol = checkpoint.restore(self._file, role, boot, clock(), self._disk)
        self.kept = self.protocol.taken
        self.protocol.ended = False  # that was the stream of the process before
        self._look_back(count_file(self._file))

    def _look_back(self, path: Path) -> None:
        """Find out how many observations were acknowledged that the checkpoint does not hold."""
        protocol = self.protocol
        try:
            self._count = Count(self._disk, path)
        except OSError as error:
            protocol.report(Unsaved(protocol.round, f"{path} cannot be had ({error}); {UNTOLD}"))
            return
        start = protocol.neighbors.start
        if self._count.fault:
            protocol.report(Damaged(str(path), self._count.fault))
        elif protocol.restored and not (self._count.found or self.durable or (start and start.resumed)):
            # A node that left in order has lost nothing. After a crash this is true, also where the file could not be
            # had before: of that a node has told, so it is no event of this start.
            missing = Damaged(str(path), "is not there; what a crash has lost is not known")
            self._warn("damaged", f"{missing.file} {missing.why}", missing)
        # Those that wait are taken again.
        self.missed = max(0, self._count.value - protocol.taken - protocol.lost - len(protocol.waiting))
        if self.missed:
            protocol.lost += self.missed
            protocol.report(Lost(self.missed))
        if start is not None and self.durable and protocol.restored and not self.missed:
            start.seeks = start.sought is not None

    def begin(self, now: float) -> None:
        """Mark the last checkpoint as used, before the node says anything."""
        neighbors = self.protocol.neighbors
        try:
            self._write(clean=False)
        except OSError as error:
            self._fail(error, self.protocol.report)
            if neighbors.start is not None and neighbors.start.resumed:
                neighbors.renew(now, "the checkpoint that it is of could not be marked as used")
        self._acknowledge()

    def settle(self) -> bool:
        """Return whether what was taken so far may be acknowledged."""
        if self.durable and (self._clock() < self._retry_at or self.protocol.diverged or not self._try()):
            return False
        self._acknowledge()
        return True

    def end(self) -> None:
        """Write the last checkpoint; ``OSError`` if that fails, and the one before is what is left."""
        try:
            self._write(clean=True)
        except OSError as error:
            self._fail(error, self._tell)
            raise

    def close(self) -> None:
        """Let go of the files."""
        if self._count is not None:
            self._count.close()

    def watch(self, event: Event) -> None:
        """Save if a round is the one, and tell what is amiss with the disk."""
        match event:
            case Gossiped(round) if round % self._rounds == 0:
                self._try()
            case Lost(observations):
                back = "if a neighbor has kept what they taught, a line here says that it is back"
                self._warn("lost", f"{observations} acknowledged observations are in no checkpoint; {back}", event)
            case Damaged(file, why):
                rest = "; goes on from the one before it" if file == str(self._file) else ""
                if rest and why != checkpoint.ABSENT:
                    rest = f"; it is {file}.bad now{rest}"
                self._warn("damaged", f"{file} {why}{rest}", event)
            case Unsaved(round, why):
                remedy = "make room" if any(os.strerror(number) in why for number in FULL) else "see to the disk"
                where = f"the checkpoint of round {round} is not written to {self._folder}"
                self._warn("unsaved", f"{where}: {why}; {remedy}; it is tried again", event)

    def _try(self) -> bool:
        try:
            self._write(clean=False)
        except OSError as error:  # a full disk is no reason to stop learning
            self._fail(error, self._tell)
        return self.failure is None

    def _write(self, clean: bool) -> None:
        # A model that has diverged must not take the place of the last one that had not.
        if self._file is not None and not self.protocol.diverged:
            checkpoint.save(self._file, self.protocol, clean, self._disk)
            if self.failure is not None:
                extra = {"omkl": {"node": self.protocol.role.id, "event": "saved", "round": self.protocol.round}}
                logger.info("checkpoints are written again, to %s", self._folder, extra=extra)
            self.failure, self._retry_at, self.kept = None, -math.inf, self.protocol.taken
            self._mend()

    def _mend(self) -> None:
        """Put right what went with the folder, if that was removed and made again."""
        if self._lock is not None:
            self._lock.renew()
        if self._count is None:
            return
        try:
            if self._count.mend():
                self._tell(Damaged(str(self._count.path), "was removed or cut short; it is written anew"))
            self._is_counted = True
        except OSError as error:
            self._miscount(self._count, error)

    def _miscount(self, count: Count, error: OSError) -> None:
        if self._is_counted:
            self._is_counted = False
            self._tell(Unsaved(self.protocol.round, f"{count.path} cannot be written ({error}); {UNTOLD}"))

    def _fail(self, error: OSError, tell: Callable[[Event], None]) -> None:
        self.failure, self._retry_at = str(error), self._clock() + RETRY
        tell(Unsaved(self.protocol.round, self.failure))

    @property
    def _folder(self) -> Path | None:
        return self._file and self._file.parent

    def _acknowledge(self) -> None:
        if self._count is not None:
            try:
                self._count.reach(self.protocol.taken + self.protocol.lost)
            except OSError as error:
                self._miscount(self._count, error)

    def _warn(self, name: str, text: str, event: Event) -> None:
        logger.warning(text, extra={"omkl": {"node": self.protocol.role.id, "event": name} | event._asdict()})


@contextmanager
def saved(
    role: Role, settings: Checkpoint | None, boot: int, tell: Callable[[Event], None], disk: Disk | None = None
) -> Iterator[Saver]:
    """Yield what keeps a node, for this process alone."""
    with nullcontext() if settings is None else held(lock_file(settings.file(role.id))) as lock:
        saver = Saver(role, settings, boot, tell, disk, lock=lock)
        try:
            yield saver
        finally:
            saver.close()


def reset(settings: Checkpoint, id: str) -> list[Path]:
    """Remove all that a node goes on from, and return the files that were there; refuse while it runs."""
    file, removed = settings.file(id), []
    with held(lock_file(file)):
        # The first is the last to go but for the count: what is left at any moment is good to go on from.
        for path in (beside(file, "new"), beside(file, "last"), file, count_file(file)):
            if path.exists():
                path.unlink()
                removed.append(path)
    return removed


def count_file(file: Path) -> Path:
    """Return the file of the number beside a checkpoint."""
    return file.with_suffix(".count")


def lock_file(file: Path) -> Path:
    """Return the file that the process of a node holds."""
    return file.with_suffix(".lock")
