"""A disk in memory that is full, dies half way, or brings back what it held long ago."""

import errno
from dataclasses import dataclass, field
from pathlib import Path
from random import Random


class Died(BaseException):
    """The process ended here, whatever it was about to catch."""


@dataclass
class Disk:
    """The files of one node, as ``omkl.node.checkpoint`` uses them.

    Attributes
    ----------
    files
        By path.
    past
        What each file has held, oldest first.
    full
        Whether a write fails, and leaves a part of the file.
    calls_left
        Calls after which the process dies, in the middle of the next one; None for never.
    """

    random: Random
    files: dict[Path, bytes] = field(default_factory=dict)
    past: list[dict[Path, bytes]] = field(default_factory=list)
    full: bool = False
    calls_left: int | None = None

    def read(self, path: Path) -> bytes:
        """Return what a file holds."""
        self._live()
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return self.files[path]

    def write(self, path: Path, content: bytes) -> None:
        """Put a whole file there, unless the disk is full or the process dies over it."""
        part = bytes(content[: self.random.randrange(len(content) + 1)])
        if self.full:
            self.files[path] = part
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        if self.calls_left == 0:
            self.files[path] = part
        self._live()
        self.files[path] = bytes(content)

    def move(self, source: Path, target: Path) -> None:
        """Put a file in the place of another, before the process dies or not at all."""
        if self.calls_left == 0 and self.random.random() < 0.5:
            self._move(source, target)
        self._live()
        self._move(source, target)

    def lose(self) -> None:
        """Lose everything."""
        self.files.clear()

    def turn_back(self) -> bool:
        """Bring back what it held at some time before; return whether there was any."""
        if len(self.past) < 2:
            return False
        self.files = dict(self.random.choice(self.past[:-1]))
        return True

    def _move(self, source: Path, target: Path) -> None:
        if source not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(source))
        self.files[target] = self.files.pop(source)
        self.past.append(dict(self.files))

    def _live(self) -> None:
        if self.calls_left == 0:
            self.calls_left = None
            raise Died
        if self.calls_left is not None:
            self.calls_left -= 1
