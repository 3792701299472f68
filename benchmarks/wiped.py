"""How many nodes that have lost their disk are themselves again, and after how long.

Many small networks run side by side over zenoh on loopback, each a path, with the default timing. All nodes get samples
at a steady pace. In each network one node is closed, stays away for a while, and is started without anything it had: in
turn every place on the path, and times from nothing to a minute. It is back when a neighbor has given it its models,
or what they say of the inputs it was fed is what they said before.

Run from the repository's root: python -m benchmarks.wiped
"""

import argparse
import multiprocessing
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from benchmarks import report

import omkl
from omkl import topology
from omkl.node import cluster
from omkl.node.config import NetworkConfig
from omkl.node.events import Event, Recovered
from omkl.node.node import Node
from omkl.node.settings import Member, Timing

METHODS = {
    "paper": omkl.Gossip(features=20, eta=1.0, gamma=0.5, quantizer=omkl.Nearest(2.5)),
    "default": omkl.recommended(basis=omkl.Landmarks(source="normal")),
}
PATH = "abc"
WARM = 20.0  # seconds in which a network learns before one of its nodes is taken away
WAIT = 40.0  # seconds after which a node that is not back has failed to come back
PAUSE = 0.25  # seconds between two samples of a node


class Trial(NamedTuple):
    """One network."""

    number: int
    ports: Sequence[int]
    place: str
    away: float
    method: str
    timing: Timing
    warm: float
    wait: float

    def config(self) -> NetworkConfig:
        addresses = zip(PATH, self.ports, strict=True)
        return NetworkConfig(
            name=f"wiped{self.number}", inputs=2, method=METHODS[self.method], seed=self.number,
            topology=topology.build("path", len(PATH)), timing=self.timing,
            members=tuple(Member(id=id, listen=f"tcp/127.0.0.1:{port}") for id, port in addresses),
        )  # fmt: skip


class Outcome(NamedTuple):
    """What became of the node that was wiped."""

    place: str
    away: float
    back: float | None
    """Seconds from its start to when its models came back."""
    apart: float
    """How far its outputs are from those of before at the end, as a part of them."""


class Feed:
    """Gives all nodes that are there a sample now and then, in a thread of its own."""

    def __init__(self, nodes: dict[str, Node], seed: int) -> None:
        self._nodes, self._rng = nodes, np.random.default_rng(seed)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(PAUSE):
            for node in list(self._nodes.values()):
                x = self._rng.normal(size=2)
                with suppress(TimeoutError, RuntimeError):  # it is just being closed
                    node.observe(x, 1 if x[0] * x[1] > 0 else -1, timeout=0.01)


def run(trial: Trial) -> Outcome:
    """Return what becomes of one network."""
    config, came = trial.config(), threading.Event()
    nodes = {id: Node.join(config, id) for id in PATH}
    seen = np.random.default_rng(0).normal(size=(100, 2))
    feed = Feed(nodes, trial.number)
    try:
        time.sleep(trial.warm)
        gone = nodes.pop(trial.place)
        before = np.array([gone.decision_function(x) for x in seen])
        gone.close()
        time.sleep(trial.away)

        def watch(event: Event) -> None:
            if isinstance(event, Recovered):
                came.set()

        started = time.monotonic()
        nodes[trial.place] = Node.join(config, trial.place, watch=[watch])
        back = time.monotonic() - started if came.wait(trial.wait) else None
        time.sleep(1.0)
        after = np.array([nodes[trial.place].decision_function(x) for x in seen])
    finally:
        feed.end()
        for node in nodes.values():
            node.close()
    return Outcome(trial.place, trial.away, back, float(np.linalg.norm(after - before) / np.linalg.norm(before)))


def work(trials: Sequence[Trial]) -> list[Outcome]:
    """Return what becomes of some networks, all at the same time."""
    outcomes: dict[int, Outcome] = {}
    threads = [
        threading.Thread(target=lambda one=one: outcomes.__setitem__(one.number, run(one)), daemon=True)
        for one in trials
    ]
    for thread in threads:
        thread.start()
    for thread, one in zip(threads, trials, strict=True):
        thread.join(one.warm + one.away + one.wait + 60.0)
    return [outcomes[one.number] for one in trials if one.number in outcomes]


def trials(
    count: int, longest: float, method: str, timing: Timing, warm: float = WARM, wait: float = WAIT
) -> list[Trial]:
    ports = iter(cluster.free_ports(count * len(PATH)))
    times = np.linspace(0.0, longest, count) if count > 1 else [longest]
    return [
        Trial(k, [next(ports) for _ in PATH], PATH[k % len(PATH)], float(away), method, timing, warm, wait)
        for k, away in enumerate(times)
    ]


def wiped(given: Sequence[Trial], processes: int) -> Iterator[dict[str, Any]]:
    """Yield what became of the nodes at each place; all networks run at once, dealt out to processes."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes) as pool:
        outcomes = [one for part in pool.map(work, [given[k::processes] for k in range(processes)]) for one in part]
    for place in (*PATH, "all"):
        mine = [one for one in outcomes if place in (one.place, "all")]
        times = [one.back for one in mine if one.back is not None]
        asked = sum(place in (one.place, "all") for one in given)
        yield {
            "place": place, "wiped": asked, "back": len(times), "seconds, median": float(np.median(times or [np.nan])),
            "seconds, most": max(times, default=np.nan),
            "apart, median": float(np.median([one.apart for one in mine] or 0)),
            "not back after": ", ".join(f"{one.away:.0f} s" for one in mine if one.back is None) or "-",
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--longest", type=float, default=60.0, help="seconds away, at most")
    parser.add_argument("--method", choices=METHODS, default="paper")
    parser.add_argument("--mode", choices=["lockstep", "timer"], default="lockstep")
    parser.add_argument("--processes", type=int, default=5)
    args = parser.parse_args()
    rows = list(wiped(trials(args.trials, args.longest, args.method, Timing(mode=args.mode)), args.processes))
    report.finish("wiped", rows, f"{args.mode}, {args.method}; seconds from the start until the models are back.")


if __name__ == "__main__":
    main()
