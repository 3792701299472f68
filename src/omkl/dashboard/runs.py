"""The runs that the page can open: saved ones, those that it started itself, and a network."""

import math
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from omkl.dashboard import events
from omkl.dashboard.form import flags
from omkl.dashboard.saved import RESULT, Saved
from omkl.dashboard.sources import File, Source
from omkl.errors import InputError

LOG, ERROR = "log.txt", "omkl: error: "
MOST_RUNNING = 2  # simulations at a time
LONGEST_NAME = 255  # bytes of a folder's name


class Runs:
    """Named sources of events.

    Parameters
    ----------
    folder
        Where new runs are kept, and saved ones are looked for: in folders that hold ``events.jsonl``.
    others
        More sources, by name; they come first.
    """

    def __init__(self, folder: Path, others: Mapping[str, Source] | None = None) -> None:
        self._folder, self._others = folder, dict(others or {})
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._results: dict[str, Saved] = {}
        self._lock = threading.Lock()  # requests come in several threads
        self.closed = threading.Event()
        """Set when the server is about to end, and readers should."""

    def source(self, name: str) -> Source:
        """Return a source by its name; refuse one that is not there."""
        self._reap()
        if name in self._others:
            return self._others[name]
        if _is_name(name):
            folder = self._folder / name
            if name in self._started or _is_own(folder / events.FILE):
                return File(folder / events.FILE)
            if _is_own(folder / RESULT):
                return self._results.setdefault(name, Saved(folder))
        raise InputError(f"no run has the name {name!r}; open one of those listed")

    def about(self) -> list[dict[str, Any]]:
        """Return what is known of every run, the newest first after those that were given."""
        self._reap()
        files = [path for kind in (events.FILE, RESULT) for path in self._folder.glob(f"*/{kind}")]
        own, told = set(self._started), []
        found = {path.parent.name for path in files if _is_name(path.parent.name)} | own
        for name in [*self._others, *sorted(found - {*self._others}, key=self._changed, reverse=True)]:
            with suppress(InputError, OSError):  # it was removed just now, or cannot be read
                told.append({"name": name, "own": name in own} | self.source(name).about())
        return told

    def _changed(self, name: str) -> float:
        """Return when a run was written to; one that has not begun to be comes first."""
        times = [path.stat().st_mtime for kind in (RESULT, events.FILE) if _is_own(path := self._folder / name / kind)]
        return times[-1] if times else math.inf

    def start(self, form: Any) -> str:
        """Return the name of a simulation that is started."""
        self._reap()
        made = flags(form)
        with self._lock:
            if len(self._started) >= MOST_RUNNING:
                raise InputError(f"{MOST_RUNNING} simulations are running; that is the most; stop one, or wait for it")
            names = (f"run-{k}" for k in count(1))
            name = next(one for one in names if one not in self._others and not (self._folder / one).exists())
            folder = self._folder / name
            folder.mkdir(parents=True)
            command = [sys.executable, "-m", "omkl.cli", "simulate", "--quiet", "--out", str(folder), "--events", *made]
            with (folder / LOG).open("wb") as log:
                self._started[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return name

    def stop(self, name: str) -> None:
        """End a simulation that was started here."""
        process = self._started.get(name)
        if process is None:
            raise InputError(
                f"{name!r} is not running here; the page stops only what it has started; end it where it runs"
            )
        process.terminate()
        process.wait()
        self._reap()

    def close(self) -> None:
        """End all simulations."""
        self.closed.set()
        for name in list(self._started):
            self.stop(name)

    def _reap(self) -> None:
        """Write the end of simulations that came to none."""
        with self._lock:
            for name, process in list(self._started.items()):
                if (code := process.poll()) is not None:
                    del self._started[name]
                    _close(self._folder / name, code)


def _is_name(name: str) -> bool:
    """Return whether this can be a folder's name, and no way out of where it is."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError:  # in a folder's name that is not UTF-8, which the page could not ask for
        return False
    return name not in (".", "..") and 0 < length <= LONGEST_NAME and not any(letter in name for letter in "/\\\0")


def _is_own(path: Path) -> bool:
    """Return whether a file is there, and no way to one elsewhere."""
    return path.is_file() and not path.is_symlink()


def _close(folder: Path, code: int) -> None:
    """Write the end of a run that was stopped or has failed, unless it has written that itself."""
    path = folder / events.FILE
    if code == 0 or (path.is_file() and not File(path).about()["live"]):
        return
    lines = (folder / LOG).read_text(errors="replace").split("\n")
    said = next((line.removeprefix(ERROR) for line in lines if line.startswith(ERROR)), None)
    text = "stopped" if code < 0 else said or f"it ended with code {code}; see {LOG} in its folder"
    with path.open("a", encoding="utf-8") as file:
        file.write(events.line(events.end(0.0, text, failed=code > 0)))
