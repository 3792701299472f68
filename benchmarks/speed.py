"""How fast the simulator is: the default method beside the paper's preset, and the preset beside NumPy.

The first table is at the size of Credit-Card. *Products alone* are the matrix products that a method's features take,
and nothing else: all inputs times the frequencies, and the waves times the basis where there is one; seeds are dealt to
as many threads as there are cores. *Calibrating* draws a seed's features.

In the second table NumPy stands twice: the same computation, that is the text of ``omkl.algorithm`` and the same dither
on NumPy arrays over nodes and seeds; and ``vectorized``, a program of its own written for speed, whose dither and steps
are cheaper. NumPy and the loops are timed on a part of the rounds and seeds and scaled up. NumPy counts with the better
of one BLAS thread and all: on a busy machine threads that wait for each other make its small products ten times slower.

All run in turns in one process, on synthetic samples of the right shape; the best of each counts. Read the ratios: a
busy machine changes the seconds.

Run from the repository's root: python -m benchmarks.speed
"""

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from benchmarks import naive, report, vectorized
from benchmarks.scale import PRESETS, drawn, stream
from threadpoolctl import threadpool_limits

import omkl
from omkl import features, noise
from omkl.blas import one_thread
from omkl.features import Features
from omkl.methods import Neighbors, Round
from omkl.topology import build

PART, SAME = 100, 30  # rounds that NumPy is timed on, written for speed and as it stands
LOOP_ROUNDS, LOOP_SEEDS = 20, 1  # and the loops
CHUNK = 2000  # rows in a product

Floats: TypeAlias = npt.NDArray[np.float32]
multiply = np.matmul


class Shape(NamedTuple):
    """Of a stream."""

    rounds: int
    inputs: int
    nodes: int = 20


SHAPES = {"credit card": Shape(1500, 23), "banana": Shape(265, 2), "mnist": Shape(3500, 784)}


def seconds(work: Callable[..., Any], *args: Any) -> float:
    started = time.perf_counter()
    work(*args)
    return time.perf_counter() - started


def side_by_side(shape: Shape, seeds: int, turns: int) -> list[report.Row]:
    """Return a row for the default, one for the paper's preset, and what the first is as a multiple of the second."""
    X, y = stream(shape.rounds, shape.nodes, shape.inputs)
    methods = {name: make() for name, make in PRESETS.items()}
    made = {name: drawn(method, X, seeds) for name, method in methods.items()}
    call = partial(omkl.simulate, (X, y), "path", None, seeds=seeds)
    rows: dict[str, report.Row] = {name: {"first call, s": seconds(call, one)} for name, one in methods.items()}
    for _ in range(turns):
        for name, method in methods.items():
            taken = {
                "call, s": seconds(call, method),
                "products alone, s": seconds(products, made[name], X),
                "calibrating a seed, ms": 1e3 * seconds(drawn, method, X, seeds) / seeds,
            }
            rows[name] |= {what: min(value, rows[name].get(what, value)) for what, value in taken.items()}
    default, preset = rows.values()
    rows["default / paper's"] = {what: default[what] / preset[what] for what in default}
    for row in (default, preset):
        row["call / products"] = row["call, s"] / row["products alone, s"]
    return [{"method": name} | row for name, row in rows.items()]


def products(made: Features, X: Floats) -> None:
    """Multiply what features are made by, seed by seed, a chunk of rows at a time."""
    rows = X.reshape(-1, X.shape[-1])
    with one_thread(), ThreadPoolExecutor(os.cpu_count()) as pool:
        seeds = len(made.frequencies if made.landmarks is None else made.landmarks)
        list(pool.map(partial(_multiply, made, rows), range(seeds)))


def _multiply(made: Features, rows: Floats, seed: int) -> None:
    if made.landmarks is not None:
        marks, basis = made.landmarks[seed], made.basis[seed, 0]  # type: ignore[index]
        similar = np.ones((CHUNK, len(marks)), dtype=np.float32)
        for start in range(0, len(rows), CHUNK):
            chunk = rows[start : start + CHUNK]
            multiply(chunk, marks.T)
            multiply(similar[: len(chunk)], basis)
        return
    V = made.frequencies[seed]
    waves = np.ones((len(V), CHUNK, 2 * V.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), CHUNK):
        chunk = rows[start : start + CHUNK]
        multiply(chunk, V.reshape(-1, V.shape[-1]).T)
        if made.basis is not None:
            multiply(waves[:, : len(chunk)], made.basis[seed])


def stated(method: omkl.Gossip, X: Any, y: Any, V: Any) -> None:
    """Run the algorithm's own text on NumPy arrays ``(J, S, ...)``, with the simulator's dither."""
    nodes = X.shape[1]
    ids, weights = build("path", nodes).neighbors()
    network = Neighbors(ids, weights.astype(np.float32))
    key = noise.fold(noise.key(range(len(V)), "quantizer"), np.arange(nodes)[:, None, None])
    state = method.init(np, (nodes, len(V)), 1)
    for t in range(len(X)):
        uniforms = noise.dither(noise.fold(key, t), (len(method.bank.kernels), 1, 2 * method.bank.features))
        sample = Round(features.transform(X[t], Features(V)), y[t][:, None, None], uniforms)
        state, _ = method.step(state, sample, network)


def against_numpy(shape: Shape, seeds: int, turns: int) -> report.Row:
    """Return the seconds of the paper's preset in the simulator, in NumPy twice and in loops, and their ratios."""
    rounds, inputs, nodes = shape
    X, y = stream(rounds, nodes, inputs)
    method = omkl.paper()
    V = drawn(method, X, seeds).frequencies
    laplacian = (build("path", nodes).matrix() - np.eye(nodes)).astype(np.float32)
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
        return taken * rounds * seeds / (min(LOOP_ROUNDS, rounds) * LOOP_SEEDS)

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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, help="of the default beside the paper's preset")
    parser.add_argument("--numpy-seeds", type=int, default=100, help="of the preset beside NumPy")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--settings", nargs="*", choices=SHAPES, default=list(SHAPES), help="of the second table")
    options = parser.parse_args()
    os.environ["OMKL_CACHE"] = "off"  # first calls are to compile
    shape = SHAPES["credit card"]
    rows = side_by_side(shape, options.seeds, options.turns)
    for name in options.settings:
        rows.append({"setting": name} | against_numpy(SHAPES[name], options.numpy_seeds, options.turns))
    note = (
        f"{shape.nodes} nodes on a path, best of {options.turns} in turns. First table: {shape.rounds} rounds, "
        f"d={shape.inputs}, {options.seeds} seeds; budgets are 4 times the paper's preset, 2 times the products alone, "
        f"and 10 ms to calibrate a seed. Second: the paper's preset, {options.numpy_seeds} seeds; the budget on credit "
        f"card is 12 times as fast as the same in NumPy. NumPy from {SAME} and {PART} rounds, loops from {LOOP_ROUNDS} "
        f"rounds of {LOOP_SEEDS} seed, scaled up."
    )
    report.finish("speed", rows, note)


if __name__ == "__main__":
    main()
