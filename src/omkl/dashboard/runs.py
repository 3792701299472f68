"""The runs that the page can open: saved ones, those that it started itself, and a network."""

import math
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from omkl.dashboard import events
from omkl.dashboard.saved import RESULT, Saved
from omkl.dashboard.sources import File, Source
from omkl.data import DATA_SETS, status
from omkl.errors import InputError, pick, unknown
from omkl.learners import LEARNERS
from omkl.methods import PRESETS
from omkl.topology import GRAPHS

LOG, ERROR = "log.txt", "omkl: error: "
MOST_RUNNING = 2  # simulations at a time
WORD = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_-]")  # a folder's name, and no way out of where it is

NAMES: dict[str, Mapping[str, Any]] = {
    "data": DATA_SETS, "topology": GRAPHS, "method": PRESETS, "learner": LEARNERS,
}  # fmt: skip
LIMITS: dict[str, tuple[float, float]] = {
    "nodes": (1, 200), "rounds": (1, 5000), "bits": (1, 8), "eta": (0, 100), "gamma": (0, 1), "links": (0, 1),
    "seed": (0, 2**31),
}  # fmt: skip
WHOLE = ("nodes", "rounds", "bits", "seed")
DEFAULTS = {"data": "banana", "topology": "geometric", "nodes": 20, "method": "recommended", "seed": 0}


@cache
def options() -> dict[str, Any]:
    """Return what can be chosen on the page; ``nodes`` of data are those whose rows belong to nodes."""
    at_hand = [one for one in DATA_SETS.values() if status(one.name).place is not None]
    return {
        "data": [{"name": one.name, "task": one.task, "nodes": one.nodes} for one in at_hand],
        "topology": list(GRAPHS),
        "method": list(PRESETS),
        "learner": list(LEARNERS),
        "limits": {name: list(limits) for name, limits in LIMITS.items()},
        "defaults": DEFAULTS,
    }


def flags(form: Any) -> list[str]:
    """Return the flags of ``omkl simulate`` for what was chosen; refuse what the page does not offer."""
    if not isinstance(form, dict):
        raise InputError(f"a {type(form).__name__} given; a simulation is described by an object")
    made = []
    chosen = DEFAULTS | {name: value for name, value in form.items() if value is not None}
    for name, value in chosen.items():
        if name in NAMES:
            pick(name, str(value), NAMES[name])
        elif name in LIMITS:
            value = _number(name, value)
        else:
            raise InputError(unknown("setting", str(name), [*NAMES, *LIMITS]))
        if name not in ("nodes", "topology") or DATA_SETS[str(chosen["data"])].nodes is None:
            made += _flag(name, value)
    _check_rounds(**{name: chosen.get(name) for name in ("data", "nodes", "rounds")})
    return made


def _check_rounds(data: Any, nodes: Any, rounds: Any) -> None:
    """Refuse more rounds than the data have, before a simulation is started to say so."""
    known = DATA_SETS[str(data)]
    most = known.n // (known.nodes or nodes)
    if rounds is not None and rounds > most:
        raise InputError(f"rounds is {rounds}; {known.n:,} samples are {most:,} rounds here; leave rounds out for all")


def _number(name: str, value: Any) -> float:
    least, most = LIMITS[name]
    kinds = (int,) if name in WHOLE else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
        what = "a whole number" if name in WHOLE else "a number"
        raise InputError(f"{name} is {value!r}; it must be {what} from {least} to {most}; change it")
    return value


def _flag(name: str, value: Any) -> list[str]:
    if name == "bits":
        return ["--quantizer", f'{{name="qsgd", bits={value}, rescale=true}}']
    if name == "links":
        return ["--faults", f"{{links={float(value)}}}"] if value else []
    return [f"--{name}", str(value)]


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
        file = self._folder / name / events.FILE
        if WORD.fullmatch(name) and (name in self._started or file.is_file()):
            return File(file)
        if WORD.fullmatch(name) and (file.parent / RESULT).is_file():
            return self._results.setdefault(name, Saved(file.parent))
        raise InputError(f"no run has the name {name!r}; open one of those listed")

    def about(self) -> list[dict[str, Any]]:
        """Return what is known of every run, the newest first after those that were given."""
        self._reap()
        files = [path for kind in (events.FILE, RESULT) for path in self._folder.glob(f"*/{kind}")]
        saved = {path.parent.name: path.stat().st_mtime for path in files}
        found = filter(WORD.fullmatch, {*saved, *self._started})
        names = sorted(found, key=lambda name: saved.get(name, math.inf), reverse=True)
        return [{"name": name} | self.source(name).about() for name in [*self._others, *names]]

    def start(self, form: Any) -> str:
        """Return the name of a simulation that is started."""
        self._reap()
        made = flags(form)
        with self._lock:
            if len(self._started) >= MOST_RUNNING:
                raise InputError(f"{MOST_RUNNING} simulations are running; that is the most; stop one, or wait for it")
            name = next(name for k in count(1) if not (self._folder / (name := f"run-{k}")).exists())
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
            raise InputError(f"{name!r} is not running here; only runs that the page has started can be stopped")
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
