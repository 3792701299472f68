"""What a node asks of a disk: files that are whole, a number that outlives the process, and to be the only one there.

A simulation of faults brings a disk of its own; ``RealDisk`` is the one of this machine.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from omkl import storage
from omkl.errors import InputError

logger = logging.getLogger(__name__)


class Lock:
    """A file that one process holds at a time."""

    def __init__(self, path: Path) -> None:
        self._path, self._is_told = path, False
        self._lock = FileLock(path, thread_local=False)  # the thread that ends a node need not be the one that began it
        self._held: tuple[int, int] | None = None

    def take(self) -> None:
        """Hold the file; ``Timeout`` if another process does."""
        self._lock.acquire(blocking=False)
        self._held = _identity(self._path)

    def renew(self) -> None:
        """Hold the file of this name again if that is another one by now: what was removed keeps nobody away."""
        if self._held is None or self._held == _identity(self._path):
            return
        self._lock.release()
        try:
            self.take()
        except (Timeout, OSError) as error:
            if not self._is_told:
                logger.warning("%s was removed and cannot be held again (%s); end other processes of this node",
                               self._path, error)  # fmt: skip
            self._is_told = True
        else:
            logger.warning("%s was removed while its node runs; it is held again", self._path)
            self._is_told = False

    def release(self) -> None:
        """Let go of the file."""
        self._lock.release()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from others that had its name; None where there is none."""
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_dev, about.st_ino


@contextmanager
def held(path: Path) -> Iterator[Lock]:
    """Hold a file for this process alone, however it ends; refuse if another holds it."""
    lock = Lock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{path.parent} is not a folder; a node keeps its files in one; choose another") from None
    try:
        lock.take()
    except Timeout:
        raise InputError(
            f"{path} is held by another process; a node runs once; wait until that has left, or end it"
        ) from None
    except OSError as error:  # a full disk, say, is no reason not to start
        logger.warning("%s cannot be had (%s); a second process of this node would not be noticed", path, error)
    try:
        yield lock
    finally:
        lock.release()


class Memory(Protocol):
    """A file of which some bytes are written at a time; what is written outlives the process."""

    def __setitem__(self, place: slice, content: bytes, /) -> None:
        """Write some bytes; ``OSError`` where the disk cannot do it."""


class OpenFile:
    """Memory that is a file of this machine."""

    # Not mapped: to touch the memory of a file that was cut short, or that has no room, would end the process.
    def __init__(self, path: Path, size: int) -> None:
        self._path, self._size, self._file = path, size, path.open("r+b", buffering=0)

    def __setitem__(self, place: slice, content: bytes) -> None:
        """Write some bytes."""
        self._file.seek(place.start)
        self._file.write(content)

    def is_there(self) -> bool:
        """Return whether its name still is this file's, all of it."""
        own = os.fstat(self._file.fileno())
        return own.st_size == self._size and _identity(self._path) == (own.st_dev, own.st_ino)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class Disk(Protocol):
    """Where files are; each call raises ``OSError`` where the disk cannot do it."""

    def read(self, path: Path) -> bytes:
        """Return what a file holds; ``FileNotFoundError`` where there is none."""

    def write(self, path: Path, content: bytes) -> None:
        """Write a file, in the place of another of that name; when this returns, it is on the disk."""

    def move(self, source: Path, target: Path) -> None:
        """Rename a file, in the place of another of that name, in one step that lasts when this returns."""

    def memory(self, path: Path, content: bytes) -> Memory:
        """Put this into a file, where it is not there yet, and return memory that is the file from then on."""


class RealDisk:
    """The file system."""

    def read(self, path: Path) -> bytes:
        """Return what a file holds."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            if path.is_symlink():  # to a disk that is not mounted, say: a new file in its place would hide the old one
                raise OSError(f"a link to {path.readlink()}, which is not there") from None
            raise

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

    def memory(self, path: Path, content: bytes) -> OpenFile:
        """Put this into a file, and return it, open."""
        if not path.exists() or self.read(path) != content:
            self.write(new := beside(path, "new"), content)
            self.move(new, path)
        return OpenFile(path, len(content))


def beside(path: Path, ending: str) -> Path:
    """Return the file with a longer name."""
    return path.with_name(f"{path.name}.{ending}")
