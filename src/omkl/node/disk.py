"""What a node asks of a disk: files that are whole, and a number that outlives the process.

A simulation of faults brings a disk of its own; ``RealDisk`` is the one of this machine.
"""

import logging
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from omkl import storage
from omkl.errors import InputError

logger = logging.getLogger(__name__)

_NUMBER = struct.Struct("<Q")


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a file for this process alone, however it ends; refuse if another holds it."""
    lock = FileLock(path, thread_local=False)  # the thread that ends a node need not be the one that began it
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise InputError(
            f"{path} is held by another process; a node runs once; wait until that has left, or end it"
        ) from None
    except OSError as error:  # a full disk, say, is no reason not to start
        logger.warning("%s cannot be had (%s); a second process of this node would not be noticed", path, error)
    try:
        yield
    finally:
        lock.release()


class Counter(Protocol):
    """A whole number that is kept."""

    value: int

    def add(self, count: int = 1) -> None:
        """Count on."""


class Disk(Protocol):
    """Where files are; each call raises ``OSError`` where the disk cannot do it."""

    def read(self, path: Path) -> bytes:
        """Return what a file holds; ``FileNotFoundError`` where there is none."""

    def write(self, path: Path, content: bytes) -> None:
        """Write a file, in the place of another of that name; when this returns, it is on the disk."""

    def move(self, source: Path, target: Path) -> None:
        """Rename a file, in the place of another of that name, in one step that lasts when this returns."""

    def counter(self, path: Path) -> Counter:
        """Return the number in a file, which begins at 0."""


class RealDisk:
    """The file system."""

    def read(self, path: Path) -> bytes:
        """Return what a file holds."""
        return path.read_bytes()

    def write(self, path: Path, content: bytes) -> None:
        """Write a file and flush it to the disk."""
        with path.open("wb") as file:
            file.write(content)
            storage.sync(file)

    def move(self, source: Path, target: Path) -> None:
        """Rename a file, and flush the folder."""
        source.replace(target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def counter(self, path: Path) -> "MappedCounter":
        """Return the number in a file."""
        return MappedCounter(path)


class MappedCounter:
    """A number in eight bytes of memory that the system writes to a file.

    To count costs no call, so it can be done for every observation. What is counted survives the process, be it killed;
    a power cut may take the last seconds of it.
    """

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            if (lacking := _NUMBER.size - file.tell()) > 0:
                file.write(bytes(lacking))  # memory beyond the end of a file, or of the disk, cannot be written
                storage.sync(file)
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _NUMBER.size)

    @property
    def value(self) -> int:
        """The number."""
        return int(_NUMBER.unpack_from(self._memory)[0])

    @value.setter
    def value(self, value: int) -> None:
        _NUMBER.pack_into(self._memory, 0, value)

    def add(self, count: int = 1) -> None:
        """Count on."""
        self.value += count
