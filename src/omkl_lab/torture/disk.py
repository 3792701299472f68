"""A disk in memory that is full, dies half way, or brings back what it held long ago."""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TypeAlias


class Died(BaseException):
    """The process ended here, whatever it was about to catch."""


@dataclass
class Number:
    """A number that outlives the process."""

    value: int = 0

    def add(self, count: int = 1) -> None:
        """Count on."""
        self.value += count


Files: TypeAlias = dict[Path, bytes]


@dataclass
class Disk:
    """The files of one node; see ``omkl.node.disk.Disk``.

    Attributes
    ----------
    files, numbers
        By path.
    past
        What the files have been, oldest first.
    full
        Whether a write fails, and leaves a part of the file.
    calls_left
        Calls after which the process dies, in the middle of the next one; None for never.
    saving
        Called with what is about to be written.
    """

    random: Random
    files: Files = field(default_factory=dict)
    numbers: dict[Path, Number] = field(default_factory=dict)
    past: list[Files] = field(default_factory=list)
    full: bool = False
    calls_left: int | None = None
    saving: Callable[[bytes], None] = lambda content: None

    def read(self, path: Path) -> bytes:
        """Return what a file holds."""
        self._live()
        if path not in self.files:
            raise _missing(path)
        return self.files[path]

    def write(self, path: Path, content: bytes) -> None:
        """Put a whole file there, unless the disk is full or the process dies over it."""
        self.saving(content)
        if self.full or self.calls_left == 0:
            self.files[path] = content[: self.random.randrange(len(content))]
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        self._live()
        self.files[path] = content

    def move(self, source: Path, target: Path) -> None:
        """Put a file in the place of another, before the process dies or not at all."""
        if source not in self.files:
            raise _missing(source)
        if self.calls_left != 0 or self.random.random() < 0.5:
            self.files[target] = self.files.pop(source)
            self.past.append(dict(self.files))
        self._live()

    def counter(self, path: Path) -> Number:
        """Return the number in a file."""
        if self.full and path not in self.numbers:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return self.numbers.setdefault(path, Number())

    def lose(self) -> None:
        """Lose everything."""
        for kept in (self.files, self.numbers, self.past):
            kept.clear()

    def rot(self, path: Path) -> bool:
        """Flip a bit of a checkpoint that is not the only one; return whether there was one."""
        if not {path, path.with_name(f"{path.name}.last")} <= self.files.keys():
            return False
        content = bytearray(self.files[path])
        content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        self.files[path] = bytes(content)
        return True

    def _live(self) -> None:
        if self.calls_left == 0:
            self.calls_left = None
            raise Died
        if self.calls_left is not None:
            self.calls_left -= 1


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
