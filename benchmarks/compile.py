"""What compiling costs: the first call and the next ones, in a process without kept programs, a first, and a second.

Each is a process of its own; the first and the second share an empty folder for what XLA and Numba compile. They take
turns, and the quickest first call of each counts.

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

import jax
import numpy as np
from benchmarks import report

import omkl

SETTINGS = {
    "credit card, 100 seeds": ("path", 1500, 20, 23, 100),  # Numba's loops
    "credit card, 4 seeds": ("path", 1500, 20, 23, 4),  # XLA's rounds, as the next
    "ring": ("ring", 50, 10_000, 2, 1),
}
HIT, MISS = "/jax/compilation_cache/cache_hits", "/jax/compilation_cache/cache_misses"


def work(setting: str, calls: int) -> report.Row:
    """Return the seconds of the first call and of the best of the next, and what was compiled or reloaded."""
    counted: Counter[str] = Counter()
    jax.monitoring.register_event_listener(lambda event, **_: counted.update([event]))
    topology, rounds, nodes, inputs, seeds = SETTINGS[setting]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rounds, nodes, inputs), dtype=np.float32) / np.float32(inputs**0.5)
    y = np.where(X[..., 0] > 0, 1, -1)
    taken = []
    for _ in range(calls + 1):
        started = time.perf_counter()
        omkl.simulate((X, y), topology, method=omkl.letter(), seeds=seeds)
        taken.append(time.perf_counter() - started)
    steady = min(taken[1:])
    times = {"first call, s": taken[0], "steady, s": steady, "first - steady, s": taken[0] - steady}
    return times | {"newly kept": counted[MISS], "reloaded": counted[HIT]}


def in_process(setting: str, calls: int, cache: str, numba: str) -> report.Row:
    command = [sys.executable, "-m", "benchmarks.compile", "--calls", str(calls), "--work", setting]
    places = {"OMKL_CACHE": cache, "NUMBA_CACHE_DIR": numba}
    done = subprocess.run(command, env=os.environ | places, capture_output=True, text=True, check=True)
    row: report.Row = json.loads(done.stdout) | {"stderr, lines": len(done.stderr.splitlines())}
    return row


def in_turn(setting: str, calls: int) -> list[report.Row]:
    with tempfile.TemporaryDirectory() as nothing, tempfile.TemporaryDirectory() as folder:
        processes = {"none kept": ("off", nothing), "first": (folder, folder), "second": (folder, folder)}
        return [
            {"setting": setting, "process": process} | in_process(setting, calls, *places)
            for process, places in processes.items()
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--calls", type=int, default=3, help="after the first")
    parser.add_argument("--work", choices=SETTINGS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(work(options.work, options.calls)))
        return
    rows = []
    for setting in SETTINGS:
        turns = [in_turn(setting, options.calls) for _ in range(options.turns)]
        rows += [min(same, key=lambda row: row["first call, s"]) for same in zip(*turns, strict=True)]
    report.finish(
        "compile",
        rows,
        f"Best first call of {options.turns} processes; steady is the best of its next {options.calls}.",
    )


if __name__ == "__main__":
    main()
