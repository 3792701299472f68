"""A disk in memory that fails when it is told to."""

from pathlib import Path


class Number:
    def __init__(self) -> None:
        self.value = 0

    def add(self, count: int = 1) -> None:
        self.value += count


class MemoryDisk:
    """Files by path; the call of number ``fails_at``, counted from 0, and those after it fail, and a write is torn."""

    def __init__(self) -> None:
        self.files: dict[Path, bytes] = {}
        self.numbers: dict[Path, Number] = {}
        self.calls = 0
        self.fails_at: int | None = None

    def read(self, path: Path) -> bytes:
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

    def counter(self, path: Path) -> Number:
        return self.numbers.setdefault(path, Number())

    def _call(self) -> None:
        self.calls += 1
        if self.fails_at is not None and self.calls > self.fails_at:
            raise OSError(28, "No space left on device")
