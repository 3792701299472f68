"""What a node asks of a disk: files that are whole, memory that outlives the process, and to be the only one there.

A simulation of faults brings a disk of its own; ``RealDisk`` is the one of this machine.
"""

import logging
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from omkl import storage
from omkl.errors import InputError

logger = logging.getLogger(__name__)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a file for this process alone, however it ends; refuse if another holds it."""
    lock = FileLock(path, thread_local=False)  # the thread that ends a node need not be the one that began it
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{path.parent} is not a folder; a node keeps its files in one; choose another") from None
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


class Disk(Protocol):
    """Where files are; each call raises ``OSError`` where the disk cannot do it."""

    def read(self, path: Path) -> bytes:
        """Return what a file holds; ``FileNotFoundError`` where there is none."""

    def write(self, path: Path, content: bytes) -> None:
        """Write a file, in the place of another of that name; when this returns, it is on the disk."""

    def move(self, source: Path, target: Path) -> None:
        """Rename a file, in the place of another of that name, in one step that lasts when this returns."""

    def memory(self, path: Path, content: bytes) -> "bytearray | mmap.mmap":
        """Put this into a file, where it is not there yet, and return memory that is the file from then on."""


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
        if not hasattr(os, "O_DIRECTORY"):  # a system that opens no folders
            return
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def memory(self, path: Path, content: bytes) -> mmap.mmap:
        """Put this into a file, and return the system's memory of it."""
        # Memory beyond the end of a file, or of the disk, cannot be written: so all of it is on the disk before.
        if not path.exists() or self.read(path) != content:
            self.write(new := beside(path, "new"), content)
            self.move(new, path)
        with path.open("r+b") as file:
            return mmap.mmap(file.fileno(), len(content))


def beside(path: Path, ending: str) -> Path:
    """Return the file with a longer name."""
    return path.with_name(f"{path.name}.{ending}")
