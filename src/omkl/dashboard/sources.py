"""Where events come from: a file that may still grow, or the memory of who watches a network."""

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from omkl.dashboard import events
from omkl.dashboard.events import Event

MOST_BYTES = 2**16  # that are read at a time
MOST_LINE = 2**24  # bytes; a longer one is no event
MOST_TITLE = 200  # letters
LEFT = "it was left unfinished: its process is gone"
MOST_FRAMES, MOST_NOTES = 1000, 1000  # that are kept of a network


class Read(NamedTuple):
    """Some lines, and from where to read on."""

    lines: list[str]
    cursor: int
    ended: bool


def failed(text: str, cursor: int) -> Read:
    """Return the end of a run of which no more is to come, and why."""
    return Read([events.line(events.end(0.0, text, failed=True)).rstrip("\n")], cursor, True)


class Source(Protocol):
    """A stream of events that can be read from the beginning, by several at a time."""

    def read(self, cursor: int) -> Read:
        """Return lines after a cursor, 0 at first: none where there are no more yet."""

    def about(self) -> dict[str, Any]:
        """Return title and source, and whether more is to come."""


class File:
    """The events of a run, in a file that is complete or being written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, cursor: int) -> Read:
        """Return the next whole lines."""
        if not self._path.is_file():
            return Read([], 0, False)
        is_left = not self._is_written()  # before the look, so that its last words are not missed
        with self._path.open("rb") as file:
            file.seek(cursor)
            block = file.read(MOST_BYTES)
            while block and b"\n" not in block and len(block) < MOST_LINE and (more := file.read(MOST_BYTES)):
                block += more
        whole = block[: block.rfind(b"\n") + 1]
        lines = whole.decode(errors="replace").splitlines()
        if not lines and (is_left or len(block) >= MOST_LINE):
            return failed(LEFT, cursor)
        return Read(lines, cursor + len(whole), bool(lines) and _is_end(lines[-1].encode()))

    def about(self) -> dict[str, Any]:
        """Return title and source, from the first line, and whether more is to come."""
        first, _ = self._ends()
        live, header = self._is_written(), _header(first)
        title = header.get("title") if header.get("event") == "network" else header.get("text")
        if not isinstance(title, str):
            title = "a run that begins" if live else f"a damaged {events.FILE}"
        elif header["event"] != "network":
            title = f"nothing came of it: {title}"
        source = "network" if header.get("source") == "network" else "simulation"
        return {"title": title.encode(errors="replace").decode()[:MOST_TITLE], "source": source, "live": live}

    def _ends(self) -> tuple[bytes, bytes]:
        """Return the first line and the last."""
        if not self._path.is_file():
            return b"", b""
        with self._path.open("rb") as file:
            first = file.readline(MOST_LINE)
            file.seek(max(0, self._path.stat().st_size - MOST_BYTES))
            return first, file.read().rstrip(b"\n").rpartition(b"\n")[2]

    def _is_written(self) -> bool:
        """Return whether more is to come: there is no end, and who writes the file is there, as far as can be told."""
        first, last = self._ends()
        if _is_end(last):
            return False
        if not first.endswith(b"\n"):
            return len(first) < MOST_LINE  # it begins only now
        try:
            host, process = _header(first)["writer"]
        except (ValueError, TypeError, KeyError):
            return False
        return host != socket.gethostname() or _is_alive(process)


class Memory:
    """The events of a network while it is watched: the newest, and of those before ever fewer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: str | None = None
        self._kept: list[tuple[int, str, str]] = []  # numbers, kinds and lines
        self._count = 0
        self._began = 0
        self._about: dict[str, Any] = {"title": "a network", "source": "network", "live": True}

    def add(self, event: Event) -> None:
        """Keep an event; that of a network comes first, and with another one all before it is forgotten."""
        with self._lock:
            self._count += 1
            if event["event"] == "network":
                self._first, self._began, self._kept = events.line(event).rstrip("\n"), self._count, []
                self._about["title"] = event["title"]
                return
            self._kept.append((self._count, event["event"], events.line(event).rstrip("\n")))
            frames = [entry for entry in self._kept if entry[1] == "frame"]
            notes = [entry for entry in self._kept if entry[1] != "frame"]
            if len(frames) > MOST_FRAMES or len(notes) > MOST_NOTES:
                half = len(frames) // 2
                frames = frames[:half:2] + frames[half:] if len(frames) > MOST_FRAMES else frames
                self._kept = sorted(frames + notes[-MOST_NOTES // 2 :] if len(notes) > MOST_NOTES else frames + notes)

    def read(self, cursor: int) -> Read:
        """Return what was added since."""
        with self._lock:
            lines = [line for number, _, line in self._kept if number > cursor]
            first = [self._first] if cursor < self._began and self._first else []
            return Read(first + lines, self._count, False)

    def about(self) -> dict[str, Any]:
        """Return the network's title."""
        return dict(self._about)


def _header(line: bytes) -> dict[str, Any]:
    """Return the object in a line; none where there is another thing."""
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def _is_alive(process: Any) -> bool:
    if not isinstance(process, int) or not 0 < process < 2**31:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # another's, and there
    return True


def _is_end(line: bytes) -> bool:
    return line.startswith(b'{"event":"end"')
