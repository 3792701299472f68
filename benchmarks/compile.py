"""What compiling costs: the first call and the next ones, in a process without kept programs, a first, and a second.

Each is a process of its own; the first and the second share an empty folder for what XLA and Numba compile. They take
turns, and the quickest first call of each counts. The first row is short enough for NumPy, the others take Numba's
loops. A last call has other numbers for steps, priors and the quantizer: *compiled for other steps* counts the loops
and the XLA programs that are made for it.

Run from the repository's root: python -m benchmarks.compile
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from benchmarks import report
from benchmarks.scale import PRESETS, stream
from numba.core import event as happening

import omkl


class Setting(NamedTuple):
    """A call of ``omkl.simulate``; ``data`` is a name, or the shape ``(T, J, d)`` of synthetic samples."""

    method: str
    data: str | tuple[int, int, int]
    topology: str
    seeds: int


SETTINGS = {
    "README's example": Setting("default", "banana", "path", 2),
    "credit card, 20 seeds": Setting("default", (1500, 20, 23), "path", 20),
    "credit card, 20 seeds, paper's": Setting("paper's preset", (1500, 20, 23), "path", 20),
    "ring of 10,000": Setting("default", (50, 10_000, 2), "ring", 1),
}
OTHER: dict[str, dict[str, Any]] = {
    "default": {"gamma": 0.3, "quantizer": omkl.Nearest(2.4), "learner": omkl.Pooled((300, 15)), "weight_rate": 0.9},
    "paper's preset": {"gamma": 0.01, "eta": 0.02},
}
HIT, MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"
COMPILED = "/jax/core/compile/backend_compile_duration"


def work(setting: Setting, calls: int) -> report.Row:
    """Return the seconds of the first call and of the best of the next, and what was compiled or reloaded."""
    counted: Counter[str] = Counter()
    jax.monitoring.register_event_listener(lambda event, **_: counted.update([event]))
    jax.monitoring.register_event_duration_secs_listener(lambda event, duration_secs, **_: counted.update([event]))
    compiled = happening.RecordingListener()
    happening.register("numba:compile", compiled)
    name, data, topology, seeds = setting
    method = PRESETS[name]()
    samples, nodes = (data, 20) if isinstance(data, str) else (stream(*data), data[1])

    def call(method: omkl.Gossip) -> float:
        started = time.perf_counter()
        omkl.simulate(samples, topology, nodes, method, seeds=seeds)
        return time.perf_counter() - started

    first, *next_ = (call(method) for _ in range(calls + 1))
    row = {"first call, s": first, "steady, s": min(next_), "first - steady, s": first - min(next_)}
    row |= {"newly kept": counted[MISS], "reloaded": counted[HIT]}
    before = counted[COMPILED], len(compiled.buffer)
    call(method.replace(**OTHER[name]))
    programs, loops = counted[COMPILED] - before[0], len(compiled.buffer) - before[1]
    return row | {"compiled for other steps": programs + loops, "loops compiled": before[1] // 2}


def in_process(setting: Setting, calls: int, cache: str, numba: str) -> report.Row:
    command = [sys.executable, "-m", "benchmarks.compile", "--calls", str(calls), "--work", json.dumps(setting)]
    others = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    places = {"OMKL_CACHE": cache, "NUMBA_CACHE_DIR": numba}
    done = subprocess.run(command, env=others | places, capture_output=True, text=True, check=True)
    row: report.Row = json.loads(done.stdout) | {"stderr, lines": len(done.stderr.splitlines())}
    return row


def in_turn(name: str, setting: Setting, calls: int) -> list[report.Row]:
    with tempfile.TemporaryDirectory() as nothing, tempfile.TemporaryDirectory() as folder:
        processes = {"none kept": ("off", nothing), "first": (folder, folder), "second": (folder, folder)}
        return [
            {"setting": name, "method": setting.method, "process": process} | in_process(setting, calls, *places)
            for process, places in processes.items()
        ]


def best(turns: Sequence[list[report.Row]]) -> list[report.Row]:
    """Return, for each process, the turn in which its first call was quickest."""
    return [min(same, key=lambda row: row["first call, s"]) for same in zip(*turns, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--calls", type=int, default=3, help="after the first")
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(Setting(*json.loads(options.work)), options.calls)))
        return
    rows = []
    for name in options.settings:
        rows += best([in_turn(name, SETTINGS[name], options.calls) for _ in range(options.turns)])
    report.finish(
        "compile",
        rows,
        f"Best first call of {options.turns} processes; steady is the best of its next {options.calls}. Budgets of the "
        "README's example: 3 s where nothing is kept, 1 s in a second process; other steps compile nothing.",
    )


if __name__ == "__main__":
    main()
