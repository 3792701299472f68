"""What a node costs in a round, and in memory, from a hundred nodes to a million: it should not depend on their number.

One seed, d=2, on a CPU; the paper's preset unless ``--method default`` is given. Every point is a process of its own. A
round is timed as the difference of two runs, which takes out what is done once; beside the wall clock stands the
processor's time, which other work on the machine changes less, and the part of it that the system spent, on memory
mostly.

Run from the repository's root: python -m benchmarks.scale
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from benchmarks import report

import omkl
from omkl.features import Features
from omkl.methods import for_inputs
from omkl.simulator import calibrating, engine
from omkl.simulator.measures import metrics
from omkl.simulator.size import size
from omkl.topology import Graph, build, path, ring

PRESETS: dict[str, Callable[[], omkl.Gossip]] = {"default": omkl.recommended, "paper's preset": omkl.paper}
WORK = 500_000  # node-rounds of the shorter run; the longer is three times that
LEAST = 2  # rounds of the shorter run
FLAT_FROM = 1000  # nodes; with fewer, what a round costs whatever their number shows
MEMORY_FROM = 100_000  # nodes; with fewer, memory is that of the libraries


def regular(nodes: int) -> Graph:
    """Return the union of two random cycles: four neighbors each, but for the few links they share."""
    rng = np.random.default_rng(0)
    cycles = [rng.permutation(nodes) for _ in range(2)]
    return Graph(nodes, np.concatenate([np.stack([c, np.roll(c, -1)], axis=1) for c in cycles]), "regular")


def preferential(nodes: int) -> Graph:
    """Return a graph grown by preferential attachment, two links a node: degrees follow a power law.

    A link's end is that of a random earlier link, its source (even picks) or its target, which is looked up in turn.
    """
    source = np.concatenate([[0], np.repeat(np.arange(1, nodes), 2)])
    pick = (np.random.default_rng(0).random(len(source)) * np.maximum(4 * source - 2, 1)).astype(np.int64)
    while (odd := pick & 1 == 1).any():
        pick = np.where(odd, pick[pick >> 1], pick)
    return Graph(nodes, np.stack([source, source[pick >> 1]], axis=1)[1:], "preferential")


GRAPHS = {"path": path, "ring": ring, "regular": regular, "preferential": preferential}


def clocks() -> npt.NDArray[np.float64]:
    """Return the wall clock, and the process's time in all and in the system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return np.array([time.perf_counter(), used.ru_utime + used.ru_stime, used.ru_stime])


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def stream(rounds: int, nodes: int, inputs: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return inputs ``(T, J, d)`` of length about one, and their labels ``(T, J)``."""
    X = np.random.default_rng(0).standard_normal((rounds, nodes, inputs), dtype=np.float32) / np.float32(inputs**0.5)
    return X, np.where(X[..., 0] > 0, 1, -1).astype(np.float32)


def drawn(method: omkl.Gossip, X: npt.NDArray[np.float32], seeds: int) -> Features:
    """Return the features of every seed, calibrated on these inputs where the method asks for it, as a run does."""
    return calibrating.drawn(method.bank, X, X[..., :1], range(seeds), False)


def problem(method: omkl.Gossip, rounds: int, nodes: int) -> engine.Problem:
    X, y = stream(rounds, nodes, 2)
    return engine.Problem(X, y[..., None], drawn(method, X, 1), [0])


def taken(given: engine.Problem, case: engine.Case, turns: int) -> npt.NDArray[np.float64]:
    """Return the least of each clock over some runs after the first, which compiles."""
    spent = []
    for _ in range(turns + 1):
        started = clocks()
        engine.run(given, [case], metrics)
        spent.append(clocks() - started)
    least: npt.NDArray[np.float64] = np.min(spent[1:], axis=0)
    return least


def point(method: omkl.Gossip, graph: str, nodes: int, turns: int, work: int = WORK) -> report.Row:
    small = build("ring", 100)
    engine.run(problem(method, 2, 100), [engine.Case(method.on(small), (small,))], metrics)
    base, rounds = peak(), max(LEAST, work // nodes)
    started = clocks()
    topology = build(GRAPHS[graph](nodes))
    built = clocks()
    method = method.on(topology)
    case = engine.Case(method, (topology,))
    short, long = (taken(problem(method, n, nodes), case, turns) for n in (rounds, 3 * rounds))
    wall, cpu, system = ((long - short) * 1e9 / (2 * rounds * nodes)).tolist()
    row = {
        "ns / node-round": wall,
        "CPU ns": cpu,
        "system ns": system,
        "graph, s": (built - started)[0],
    }
    if nodes >= MEMORY_FROM:
        said = size((3 * rounds, nodes, 2), 1, [method], [topology], 1)
        row |= {"bytes / node": (peak() - base) / nodes, "estimate / node": said.total / nodes}
    return row


def in_process(method: str, graph: str, nodes: int, turns: int) -> report.Row:
    flags = ["--method", method, "--graphs", graph, "--nodes", str(nodes), "--turns", str(turns), "--point"]
    environment = os.environ | {"OMKL_CACHE": "off", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "benchmarks.scale", *flags]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    row: report.Row = {"graph": graph, "nodes": nodes} | json.loads(done.stdout)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[10**k for k in range(2, 7)])
    parser.add_argument("--graphs", nargs="*", choices=GRAPHS, default=list(GRAPHS))
    parser.add_argument("--method", choices=PRESETS, default="paper's preset")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--point", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        method = for_inputs(PRESETS[options.method](), 2)
        print(json.dumps(point(method, options.graphs[0], options.nodes[0], options.turns)))
        return
    rows = []
    for graph in options.graphs:
        for nodes in options.nodes:
            rows.append(in_process(options.method, graph, nodes, options.turns))
            print(rows[-1], file=sys.stderr, flush=True)
    report.finish("scale", rows, f"{options.method}; {spreads(rows)}")


def spreads(rows: list[report.Row]) -> str:
    """Return how much the cost of a node's round differs between the numbers of nodes, graph by graph."""
    costs: dict[str, list[float]] = {}
    for row in rows:
        if row["nodes"] >= FLAT_FROM:
            costs.setdefault(row["graph"], []).append(row["CPU ns"])
    found = ", ".join(f"{graph} {max(each) / min(each):.2f}" for graph, each in costs.items())
    return f"CPU ns from {FLAT_FROM:,} nodes on, largest over smallest: {found or 'no such point'}."


if __name__ == "__main__":
    main()
