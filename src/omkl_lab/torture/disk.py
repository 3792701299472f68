"""A disk in memory that can be full, fail in the middle of a write, or return old files."""

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NoReturn, TypeAlias

from omkl.node.persistence.disk import beside


class Died(BaseException):
    """The process ended here, whatever it was about to catch."""


Files: TypeAlias = dict[Path, bytes]

COUNT = ".count"  # of a file that nothing happens to while the others are written: it is memory


@dataclass
class Disk:
    """The files of one node; see ``omkl.node.disk.Disk``.

    Attributes
    ----------
    files
        By path.
    numbers
        Files that are mapped into memory, by path.
    past
        Earlier contents of the files, oldest first.
    full
        Whether a write fails, and leaves a part of the file.
    opens_left
        Files that can still be opened, the folder of one that is moved included; None for any number.
    uncounted
        Whether the last process could not have its count.
    calls_left
        Calls after which the process dies, in the middle of the next one; None for never.
    failed
        Calls that could not be done, and of which nobody has been told yet.
    saving
        Called with the bytes that are about to be written.
    """

    random: Random
    files: Files = field(default_factory=dict)
    numbers: dict[Path, bytearray] = field(default_factory=dict)
    past: list[Files] = field(default_factory=list)
    full: bool = False
    opens_left: int | None = None
    uncounted: bool = False
    calls_left: int | None = None
    failed: int = 0
    saving: Callable[[bytes], None] = lambda content: None

    def read(self, path: Path) -> bytes:
        """Return what a file holds."""
        self._open(path)
        if path in self.numbers:
            return bytes(self.numbers[path])
        if path.suffix != COUNT:
            self._live()
        if path not in self.files:
            raise _missing(path)
        return self.files[path]

    def write(self, path: Path, content: bytes) -> None:
        """Put a whole file there, unless the disk is full or the process dies over it."""
        self._open(path)
        self.saving(content)
        if self.full or self.calls_left == 0:
            self.files[path] = content[: self.random.randrange(len(content))]
        if self.full:
            self._fail(errno.ENOSPC, path)
        self._live()
        self.files[path] = content

    def move(self, source: Path, target: Path) -> None:
        """Replace a file by another: wholly, or not at all if the process dies first."""
        if source not in self.files:
            raise _missing(source)
        if self.calls_left != 0 or self.random.random() < 0.5:
            self.files[target] = self.files.pop(source)
            self.past.append(dict(self.files))
        self._live()
        self._open(target.parent)

    def memory(self, path: Path, content: bytes) -> bytearray:
        """Return memory that is a file, and outlives the process."""
        self._open(path)
        if self.numbers.get(path, b"") != content:
            if self.full:
                self._fail(errno.ENOSPC, path)
            self.numbers[path] = bytearray(content)
        return self.numbers[path]

    def lose(self) -> None:
        """Lose everything."""
        for kept in (self.files, self.numbers, self.past):
            kept.clear()

    def rot(self, path: Path) -> bool:
        """Flip a bit of a checkpoint that is not the only one; return whether there was one."""
        if not {path, beside(path, "last")} <= self.files.keys():
            return False
        content = bytearray(self.files[path])
        content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        self.files[path] = bytes(content)
        return True

    def rot_number(self, path: Path) -> bool:
        """Flip a bit of a number that is memory too, fill it or cut it short; return whether there was one."""
        content = self.numbers.get(path)
        if not content:
            return False
        match self.random.choice(("flip", "fill", "cut")):
            case "flip":
                content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
            case "fill":
                content[:] = bytes([self.random.choice((0x00, 0xFF))]) * max(len(content), 9)  # 8 zeros are of 0.1
            case _:
                del content[self.random.randrange(len(content)) :]
        return True

    def _open(self, path: Path) -> None:
        if self.opens_left == 0:
            self._fail(errno.EMFILE, path)
        if self.opens_left is not None:
            self.opens_left -= 1

    def _fail(self, number: int, path: Path) -> NoReturn:
        self.uncounted |= path.suffix == COUNT
        self.failed += 1
        raise OSError(number, os.strerror(number), str(path))

    def _live(self) -> None:
        if self.calls_left == 0:
            self.calls_left = None
            raise Died
        if self.calls_left is not None:
            self.calls_left -= 1


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
