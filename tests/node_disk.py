"""A disk in memory that fails when it is told to."""

from pathlib import Path

from omkl.node.persistence.count import Count


class MemoryDisk:
    """Files by path; the call of number ``fails_at``, counted from 0, and those after it fail, and a write is torn."""

    def __init__(self) -> None:
        self.files: dict[Path, bytes] = {}
        self.numbers: dict[Path, bytearray] = {}
        self.calls = 0
        self.fails_at: int | None = None

    def read(self, path: Path) -> bytes:
        if path in self.numbers:
            return bytes(self.numbers[path])
        if path not in self.files:
            raise FileNotFoundError(2, "No such file", str(path))
        return self.files[path]

    def write(self, path: Path, content: bytes) -> None:
        self.files[path] = content[: len(content) // 2]
        self._call()
        self.files[path] = content

    def move(self, source: Path, target: Path) -> None:
        self._call()
        if source not in self.files:
            raise FileNotFoundError(2, "No such file", str(source))
        self.files[target] = self.files.pop(source)

    def memory(self, path: Path, content: bytes) -> bytearray:
        if self.numbers.get(path, b"") != content:
            self.numbers[path] = bytearray(content)
        return self.numbers[path]

    def acknowledge(self, path: Path, more: int) -> int:
        """Count some more into a file, as another process would, and return the number."""
        number = Count(self, path)
        number.reach(number.value + more)
        return number.value

    def _call(self) -> None:
        self.calls += 1
        if self.fails_at is not None and self.calls > self.fails_at:
            raise OSError(28, "No space left on device")
