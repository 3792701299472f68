"""Many nodes on one machine for a long time: whether memory, file descriptors and threads stay what they are.

Nodes with a zenoh session each, spread over a few processes, gossip on a ring in lock step as fast as they can, with
journal, metrics and checkpoints as ``omkl node`` has them. What each process holds is written to a file of JSON lines
now and then. At the end every copy of a hidden state is compared with its owner's.

Run from the repository's root: python -m benchmarks.soak --nodes 100 --seconds 3600
"""

import argparse
import json
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks import report

import omkl
from omkl import topology
from omkl.node import cluster
from omkl.node.config import NetworkConfig
from omkl.node.events import Scored
from omkl.node.journal import Journal
from omkl.node.node import Node
from omkl.node.runtime import Observation
from omkl.node.settings import Checkpoint, Member, Timing

AHEAD = 4  # samples that a node has at hand, so that it never waits for one
SAMPLES = 1009  # different ones
LOOK = 0.5  # seconds between two looks at how far the nodes are
GIVE_UP = 120.0  # seconds without any round, after which the run has failed
CHECKPOINT = 1000  # rounds
LAST = 2**31  # a round that no run comes to
METHODS = {
    "default": omkl.recommended(basis=omkl.Landmarks(source="normal")),
    "paper": omkl.Gossip(eta=1.0, gamma=0.5, quantizer=omkl.Nearest(2.5)),
    "exact": omkl.Gossip(eta=1.0, gamma=0.5, quantizer=None),
}


class Sample(NamedTuple):
    """What the processes hold."""

    seconds: float
    round: int
    rss: list[int]
    """Bytes resident, of each process."""
    descriptors: list[int]
    threads: list[int]
    cpu: float
    """Seconds of processor time, of all processes."""


class Source:
    """Gives a node a sample whenever it has taken one, so that all end with the same round."""

    def __init__(self, node: Node, index: int, taken: Any, last: Any) -> None:
        rng = np.random.default_rng(index)
        X = rng.normal(size=(SAMPLES, 2)).astype(np.float32)
        y = np.where(X[:, :1] * X[:, 1:] > 0, 1, -1).astype(np.float32)
        self._node, self._index, self._taken, self._last = node, index, taken, last
        self._samples = [Observation(*sample, self) for sample in zip(X, y, strict=True)]

    def begin(self) -> None:
        for sample in self._samples[:AHEAD]:
            self._node.runtime.observe(sample)

    def __call__(self, event: Scored) -> None:
        self._taken[self._index] = event.round
        if event.round + AHEAD <= self._last.value:
            self._node.runtime.observe(self._samples[(event.round + AHEAD - 1) % SAMPLES])


def network(nodes: int, method: str, folder: Path) -> NetworkConfig:
    ports = cluster.free_ports(2 * nodes)
    members = tuple(
        Member(id=f"n{j}", listen=f"tcp/127.0.0.1:{ports[2 * j]}", metrics=f"127.0.0.1:{ports[2 * j + 1]}")
        for j in range(nodes)
    )
    return NetworkConfig(
        name="soak", inputs=2, method=METHODS[method], seed=0,
        topology=topology.build("ring", nodes), members=members, timing=Timing(deadline=60.0, patience=30.0),
        checkpoint=Checkpoint(folder=folder, every=CHECKPOINT),
    )  # fmt: skip


def work(config: NetworkConfig, ids: list[str], taken: Any, last: Any, pipe: Any) -> None:
    """Run some of the nodes until the parent says that all have taken their last round, or has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING)
    with ExitStack() as stack:
        journals = [Journal(id, dict.fromkeys(config.neighbors(id))) for id in ids]
        nodes = [
            stack.enter_context(Node(config, id, [journal.watch], [journal.tap])).start()
            for id, journal in zip(ids, journals, strict=True)
        ]
        for node in nodes:
            Source(node, config.index(node.id), taken, last).begin()
        pipe.recv()  # EOFError if the parent has ended
        while not all(node.runtime.call(partial(cluster.is_level, node)) for node in nodes):
            time.sleep(LOOK)
        pipe.send({node.id: node.runtime.call(partial(states, node)) for node in nodes})
        pipe.recv()


def states(node: Node) -> dict[str, bytes]:
    """Return the hidden states that a node holds, its own and the copies, by their owner."""
    copies = {peer: link.copy.tobytes() for peer, link in node.protocol.links.items()}
    return copies | {node.id: node.protocol.learning.state.hidden.tobytes()}


@contextmanager
def at_work(config: NetworkConfig, processes: int, taken: Any, last: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield the processes, each with a stretch of the ring, and the pipes to them."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(processes)]
    shares = [ids.tolist() for ids in np.array_split(config.ids, processes)]
    workers = [
        context.Process(target=work, args=(config, ids, taken, last, there), daemon=True)
        for ids, (_, there) in zip(shares, pipes, strict=True)
    ]
    try:
        for worker in workers:
            worker.start()
        yield workers, [here for here, _ in pipes]
        for worker in workers:
            worker.join(GIVE_UP)
    finally:
        for worker in workers:
            worker.kill()


def look(pids: list[int], began: float, at: int) -> Sample:
    rss, descriptors, threads = (
        [of(pid) for pid in pids]
        for of in (resident, lambda pid: entries(f"/proc/{pid}/fd"), lambda pid: entries(f"/proc/{pid}/task"))
    )
    seconds, cpu = round(time.monotonic() - began, 3), sum(processor_time(pid) for pid in pids)
    return Sample(seconds, at, rss, descriptors, threads, cpu)


def entries(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def resident(pid: int) -> int:
    # The sum over the mappings: the counters that other files show lag behind.
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))


def processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(
    workers: list[Any], taken: Any, last: Any, seconds: float, every: float, warm_up: int, file: Path
) -> list[Sample]:
    """Return samples from after the warm-up to the last round, each written to the file as well."""
    began = time.monotonic()
    moved, total, due = began, -1, 0.0
    samples: list[Sample] = []
    pids = [worker.pid for worker in workers]
    with file.open("w") as lines:
        while min(taken) < last.value:
            time.sleep(LOOK)
            now, least = time.monotonic(), min(taken)
            if sum(taken) != total:
                moved, total = now, sum(taken)
            dead = [k for k, worker in enumerate(workers) if worker.exitcode is not None]
            if dead or now > moved + GIVE_UP:
                what = f"process {dead[0]} has ended" if dead else f"no round in {GIVE_UP:g} s"
                sys.exit(f"{what}; node n{list(taken).index(least)} is the last, at round {least}")
            if least >= warm_up and now >= due:
                due = now + every
                samples.append(look(pids, began, least))
                print(json.dumps(samples[-1]._asdict()), file=lines, flush=True)
            if now > began + seconds and last.value == LAST:
                last.value = max(taken) + AHEAD + round(2 * max(taken) / (now - began))  # none is there yet
        if not samples:
            sys.exit(f"the run ended at round {last.value}, before the warm-up of {warm_up} rounds; give it more time")
        samples.append(look(pids, began, min(taken)))
        print(json.dumps(samples[-1]._asdict()), file=lines)
    return samples


def compare(pipes: list[Any]) -> tuple[int, int]:
    """Return how many copies there are, and how many are their owner's bit for bit."""
    for pipe in pipes:
        pipe.send("all have taken their last round")
    held: dict[str, dict[str, bytes]] = {}
    for pipe in pipes:
        held |= pipe.recv()
    for pipe in pipes:
        pipe.send("leave")
    equal = [copy == held[peer][peer] for id, copies in held.items() for peer, copy in copies.items() if peer != id]
    return len(equal), sum(equal)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--method", choices=METHODS, default="default")
    parser.add_argument("--rounds", type=int, default=LAST, help="of every node; without it the time ends the run")
    parser.add_argument("--seconds", type=float, default=300.0, help="from the start of the processes")
    parser.add_argument("--warm-up", type=int, default=2000, help="rounds before the first look")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two looks")
    parser.add_argument("--file", type=Path, default=Path("out/bench/soak.jsonl"))
    args = parser.parse_args()
    args.file.parent.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    taken, last = context.Array("q", args.nodes, lock=False), context.Value("q", args.rounds, lock=False)
    with tempfile.TemporaryDirectory() as folder:
        config = network(args.nodes, args.method, Path(folder))
        with at_work(config, args.processes, taken, last) as (workers, pipes):
            samples = watch(workers, taken, last, args.seconds, args.every, args.warm_up, args.file)
            copies, equal = compare(pipes)
    first, end = samples[0], samples[-1]
    if first.round == end.round:
        sys.exit(f"the run ended at round {end.round} with the warm-up; give it more rounds")
    took, done = end.seconds - first.seconds, args.nodes * (end.round - first.round)
    rows = [
        {
            "process": k, "RSS MiB": first.rss[k] / 2**20, "at the end": end.rss[k] / 2**20,
            "ratio": end.rss[k] / first.rss[k], "descriptors": first.descriptors[k],
            "then": end.descriptors[k], "threads": first.threads[k], "still": end.threads[k],
        }
        for k in range(args.processes)
    ]  # fmt: skip
    note = (
        f"{args.nodes} nodes in {args.processes} processes, {end.round:,} rounds in {end.seconds:,.0f} s, "
        f"{done / took:,.0f} node-rounds/s and {1e6 * (end.cpu - first.cpu) / done:.0f} us of CPU each after the "
        f"warm-up of {first.round:,}; "
        f"RSS at the end {sum(end.rss) / sum(first.rss):.4f} of that after warm-up; {equal} of {copies} copies are "
        "their owner's bit for bit"
    )
    report.finish("soak", rows, note)


if __name__ == "__main__":
    main()
