"""The letter's three settings: the simulator against NumPy vectorized over nodes and seeds, and against plain loops.

NumPy stands here twice: the same computation, that is the text of ``omkl.algorithm`` and the same dither on NumPy
arrays over nodes and seeds; and ``vectorized``, a program of its own written for speed, whose dither and steps are
cheaper. All run in turns in one process, on synthetic samples of the right shape; the best of each counts. NumPy and
the loops are timed on a part of the rounds and seeds and scaled up. NumPy counts with the better of one BLAS thread and
all: on a busy machine threads that wait for each other make its small products ten times slower. Read the ratios: a
busy machine changes the seconds.

Run from the repository's root: python -m benchmarks.letter
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks import naive, report, vectorized
from threadpoolctl import threadpool_limits

import omkl
from omkl import features, noise
from omkl.methods import Neighbors, Round
from omkl.topology import build

NODES = 20
SETTINGS = {"credit card": (1500, 23), "banana": (265, 2), "mnist": (3500, 784)}
PART, SAME = 100, 30  # rounds that NumPy is timed on, written for speed and as it stands
LOOP_ROUNDS, LOOP_SEEDS = 20, 1  # and the loops


def seconds(work: Callable[..., Any], *args: Any) -> float:
    started = time.perf_counter()
    work(*args)
    return time.perf_counter() - started


def stated(method: omkl.Gossip, X: Any, y: Any, V: Any) -> None:
    """Run the algorithm's own text on NumPy arrays ``(J, S, ...)``, with the simulator's dither."""
    ids, weights = build("path", NODES).neighbors()
    network = Neighbors(ids, weights.astype(np.float32))
    key = noise.fold(noise.key(range(len(V)), "quantizer"), np.arange(NODES)[:, None, None])
    state = method.init(np, (NODES, len(V)), 1)
    for t in range(len(X)):
        uniforms = noise.dither(noise.fold(key, t), (len(method.kernels), 1, 2 * method.features))
        sample = Round(features.transform(X[t], features.Features(V)), y[t][:, None, None], uniforms)
        state, _ = method.step(state, sample, network)


def measure(rounds: int, inputs: int, seeds: int, turns: int) -> report.Row:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rounds, NODES, inputs), dtype=np.float32) / np.float32(inputs**0.5)
    y = np.where(X[..., 0] > 0, 1, -1).astype(np.float32)
    method = omkl.Gossip()
    V = np.stack([features.draw(method.kernels, method.features, inputs, seed) for seed in range(seeds)])
    laplacian = (build("path", NODES).matrix() - np.eye(NODES)).astype(np.float32)
    part = min(PART, rounds)

    def simulate() -> float:
        return seconds(lambda: omkl.simulate((X, y), "path", method=method, seeds=seeds))

    def same(threads: int | None) -> float:
        with threadpool_limits(threads):
            return seconds(stated, method, X[:SAME], y[:SAME], V) * rounds / min(SAME, rounds)

    def fast(threads: int | None) -> float:
        with threadpool_limits(threads):
            setup, whole = (seconds(vectorized.run, X[:n], y[:n], V, laplacian) for n in (0, part))
        return setup + (whole - setup) * rounds / part

    def loops() -> float:
        with threadpool_limits(1):
            taken = seconds(naive.run, X[:LOOP_ROUNDS], y[:LOOP_ROUNDS], V[:LOOP_SEEDS], laplacian)
        return taken * rounds * seeds / (LOOP_ROUNDS * LOOP_SEEDS)

    first = simulate()
    ours, text, quick, loop = np.min(
        [(simulate(), min(same(1), same(None)), min(fast(1), fast(None)), loops()) for _ in range(turns)], axis=0
    ).tolist()
    return {
        "first call, s": first,
        "simulator, s": ours,
        "same in NumPy, s": text,
        "fast NumPy, s": quick,
        "loops, s": loop,
        "rounds x seeds / s": rounds * seeds / ours,
        "same / sim.": text / ours,
        "fast / sim.": quick / ours,
        "loops / sim.": loop / ours,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--settings", nargs="*", choices=SETTINGS, default=list(SETTINGS))
    options = parser.parse_args()
    os.environ["OMKL_CACHE"] = "off"  # first calls are to compile
    rows = []
    for name in options.settings:
        rounds, inputs = SETTINGS[name]
        rows.append({"setting": name} | measure(rounds, inputs, options.seeds, options.turns))
    report.finish(
        "letter",
        rows,
        f"{NODES} nodes on a path, 3 kernels, D=20, QSGD M=7; best of {options.turns} in turns. NumPy from {SAME} "
        f"and {PART} rounds, loops from {LOOP_ROUNDS} rounds of {LOOP_SEEDS} seed, scaled up.",
    )


if __name__ == "__main__":
    main()
