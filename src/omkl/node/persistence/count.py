"""How many observations a node has acknowledged: a number that outlives the process, and knows when it is wrong.

The file has two places that are written by turns, each a number and its digest. So there is a whole one whenever the
process dies, and a bit that flips later is noticed. Version 0.1 wrote the number alone; no part of a file of today can
be taken for it.
"""

from hashlib import blake2b
from pathlib import Path
from struct import Struct

from omkl.node.persistence.disk import Disk, OpenFile

_NUMBER, _PLACE = Struct("<Q"), Struct("<8sQ")
SIZE = 2 * _PLACE.size
MOST = 2**53  # what 0.1 wrote is believed up to here, for it has no digest; a million a second make it in 285 years


class Count:
    """The number in a file, which begins at 0.

    Counting takes a few microseconds, so it can be done for every observation. What is counted survives the process,
    be it killed; a power cut may take the last seconds of it.

    Attributes
    ----------
    value
        The number: of a damaged file the one before it, or 0.
    fault
        What is wrong with the file as it was found, in words; None if nothing is.
    path
        The file.
    found
        Whether there was a file.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk, self.path, self.found = disk, path, True
        try:
            content = disk.read(path)
        except FileNotFoundError:
            content, self.found = written(0), False
        numbers = read(content)
        self.value, self.fault = max(numbers, default=0), None
        if len(numbers) < 2:
            rest = "more may be lost than it says" if numbers else "what a crash has lost is not known"
            self.fault = f"is damaged, by its digests; {rest}"
        if self.fault or len(content) != SIZE:
            content, numbers = written(self.value), [self.value] * 2
        self._next = numbers.index(min(numbers))
        self._memory = disk.memory(path, content)

    def reach(self, number: int) -> None:
        """Count up to a number; never back."""
        if number > self.value:
            self.value, place = number, self._next * _PLACE.size
            self._memory[place : place + _PLACE.size] = _PLACE.pack(_digest(number), number)
            self._next = 1 - self._next

    def mend(self) -> bool:
        """Write the file anew if its name is not this file's any more, all of it; return whether that was so."""
        if not isinstance(self._memory, OpenFile) or self._memory.is_there():
            return False
        memory = self._disk.memory(self.path, written(self.value))
        self.close()
        self._memory, self._next = memory, 0
        return True

    def close(self) -> None:
        """Let go of the file; nothing is counted from here on."""
        if isinstance(self._memory, OpenFile):
            self._memory.close()


def read(content: bytes | bytearray) -> list[int]:
    """Return the numbers of both places in a file, without those that are damaged."""
    if len(content) == _NUMBER.size:
        (number,) = _NUMBER.unpack(content)
        return [number] * 2 if number < MOST else []
    places = _PLACE.iter_unpack(content) if len(content) == SIZE else ()
    return [number for digest, number in places if digest == _digest(number)]


def written(number: int) -> bytes:
    """Return a file with a number in both places."""
    return 2 * _PLACE.pack(_digest(number), number)


def _digest(number: int) -> bytes:
    return blake2b(_NUMBER.pack(number), digest_size=7, person=b"omkl count").digest() + b"\xff"  # beyond MOST
