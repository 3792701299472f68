"""What a node's round costs, and how fast real processes gossip.

python -m benchmarks.network round      one node's round on one core, and where its time goes
python -m benchmarks.network ring       20 processes on a ring in lock step, rounds a second
python -m benchmarks.network equal      20 processes on a path, the whole of Banana, against memory and simulator

The default method comes first, with one round of gossip a sample, as it has late in a stream, then the paper's preset;
the others are the paper's with larger steps. A round is measured as compiled loops, and over arrays as without Numba.
"""

import multiprocessing
import queue
import sys
import time
import timeit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from benchmarks import report

import omkl
from omkl import topology, wire
from omkl.data import Stream, as_stream, first_rounds
from omkl.node import cluster
from omkl.node.config import NetworkConfig
from omkl.node.neighbors import Send
from omkl.node.node import endpoints
from omkl.node.protocol import Protocol
from omkl.node.role import Role
from omkl.node.settings import Member, Timing
from omkl.node.transports import Arrival, memory
from omkl.node.transports.zenoh import ZenohTransport
from omkl.quantizers import Quantizer

NODES = 20
QUANTIZERS: dict[str, Quantizer | None] = {
    "QSGD M=7": omkl.QSGD(bits=3),
    "Nearest 2.5": omkl.Nearest(2.5),
    "exact": None,
}
METHODS = {"default": omkl.recommended(pace=None), "paper": omkl.paper()} | {
    name: omkl.Gossip(eta=1.0, gamma=0.5, quantizer=quantizer) for name, quantizer in QUANTIZERS.items()
}
TEXTS = {"loops": True, "arrays": False}


def network(method: omkl.Gossip, graph: str, samples: Stream) -> NetworkConfig:
    nodes, rows = samples.X.shape[1], None if method.bank.basis is None else samples.X.reshape(-1, 2)
    members = tuple(Member(id=f"n{j}", listen=f"tcp/127.0.0.1:{j + 1}") for j in range(nodes))
    return NetworkConfig(
        name="benchmark", inputs=2, method=method, seed=0, topology=topology.build(graph, nodes), members=members,
        timing=Timing(deadline=60.0, patience=30.0), calibration=rows,
    )  # fmt: skip


def one_round(
    nodes: int = NODES, rounds: int = 150, repeat: int = 20, names: Sequence[str] = tuple(METHODS)
) -> Iterator[report.Row]:
    """Yield what a round takes through the protocol, its two neighbors' frames included, and what its parts take."""
    samples = as_stream("banana", nodes)[0]
    for name in names:
        config = network(METHODS[name], "ring", samples)
        frames = heard(config, samples, rounds)
        for text, compiled in TEXTS.items():
            role = replace(config.role("n0"), compiled=compiled)
            us, node = whole(role, samples, frames, rounds, repeat)
            each = parts(node, samples, max(1, repeat // 2))
            row: report.Row = {"method": name, "text": text, "us a round": us, **each}
            yield row | {"the rest: protocol": us - sum(each.values())}


def parts(node: Protocol, samples: Stream, repeat: int) -> dict[str, float]:
    """Return the microseconds of the parts of a round, each in a loop of its own; what is left is bookkeeping."""
    learning, neighbors = node.learning, node.neighbors
    halves, state = learning._halves, learning.state
    x, y = samples.X[0, 0], learning.targets(samples.y[0, 0])
    message, _ = halves.gossip(neighbors.copies, neighbors.weights, 1, 1.0)
    copy = neighbors.copies[0].copy()
    frame = wire.write_gossip(neighbors.codec, 1, 1, message, wire.digest(copy))

    def learn() -> None:
        halves.learn(x, y)

    def gossip() -> None:
        halves.gossip(neighbors.copies, neighbors.weights, 1, 1.0)

    def pack() -> None:
        wire.write_gossip(neighbors.codec, 1, 1, message, wire.digest(learning.hidden))

    def unpack() -> None:
        for _ in "12":
            wire.add_gossip(neighbors.codec, frame, (1, 1), copy.copy())

    def us(step: Callable[[], Any]) -> float:
        best = min(timeit.repeat(step, number=50, repeat=repeat))
        learning.state = state  # a model that learns one sample a thousand times is no usual one
        return 1e6 * best / 50

    features = us(lambda: halves.features(x))
    return {
        "mix, quantize, absorb": us(gossip), "pack": us(pack), "unpack, absorb x2": us(unpack), "features": features,
        "predict, weigh, learn": us(learn) - features,
    }  # fmt: skip


def heard(config: NetworkConfig, samples: Stream, rounds: int) -> list[tuple[str, bytes]]:
    """Return the frames that one node hears in a run of the network."""
    frames: list[tuple[str, bytes]] = []
    network = memory.Network()
    for index, id in enumerate(config.ids):
        network.join(Recorded(config, id, index, frames) if index == 0 else Protocol(config.role(id), index, 0.0))
    for index, id in enumerate(config.ids):
        network.feed(id, zip(samples.X[:rounds, index], samples.y[:rounds, index], strict=True))
    network.run()
    return frames


def whole(
    role: Role, samples: Stream, frames: list[tuple[str, bytes]], rounds: int, repeat: int
) -> tuple[float, Protocol]:
    """Return the microseconds of a round at one node, fed the frames of its neighbors, and the node."""
    best = float("inf")
    for _ in range(repeat):
        node = Protocol(role, 0, 0.0)
        for peer in node.links:
            node.came(peer, 0.0)
        observations = [
            (x, node.learning.targets(y)) for x, y in zip(samples.X[:rounds, 0], samples.y[:rounds, 0], strict=True)
        ]
        start = time.perf_counter()
        for x, y in observations:
            node.take(x, y, 0.0)
        for peer, data in frames:
            node.receive(peer, data, 0.0)
            node.outgoing()
        best = min(best, time.perf_counter() - start)
        assert node.round == rounds
    return 1e6 * best / rounds, node


class Recorded(Protocol):
    """A protocol that writes down what it receives."""

    def __init__(self, config: NetworkConfig, id: str, boot: int, frames: list[tuple[str, bytes]]) -> None:
        super().__init__(config.role(id), boot, 0.0)
        self._frames = frames

    def receive(self, peer: str, data: bytes, now: float) -> Any:
        self._frames.append((peer, data))
        return super().receive(peer, data, now)


def ring(
    nodes: int = NODES, rounds: int = 530, turns: int = 3, names: Sequence[str] = tuple(METHODS)
) -> Iterator[report.Row]:
    """Yield how fast processes on a ring gossip, in turns with a bare exchange of 50 bytes by as many processes."""
    samples = as_stream("banana", nodes)[0]
    X, y = (np.concatenate([part] * -(-rounds // len(part)))[:rounds] for part in samples)
    for turn in range(turns):
        bare = exchange(network(METHODS["exact"], "ring", samples), 2 * rounds)
        yield {"turn": turn, "method": "bare exchange", "rounds/s": bare}
        for name in names:
            outcomes = cluster.run(cluster.on_loopback(network(METHODS[name], "ring", samples)), X, y)
            rate = (rounds - 1) / (max(one.ended for one in outcomes) - max(one.began for one in outcomes))
            yield {
                "turn": turn, "method": name, "rounds/s": rate, "of the bare": rate / bare,
                "us of CPU a node and round": 1e6 * cpu(outcomes),
            }  # fmt: skip


def exchange(config: NetworkConfig, rounds: int) -> float:
    """Return the rounds a second of processes that do nothing but send 50 bytes when both neighbors' have come."""
    context = multiprocessing.get_context("spawn")
    config = cluster.on_loopback(config)
    barrier, times = context.Barrier(len(config.ids)), context.Queue()
    workers = [context.Process(target=_exchange, args=(config, id, rounds, barrier, times), daemon=True)
               for id in config.ids]  # fmt: skip
    for worker in workers:
        worker.start()
    spans = [times.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    return rounds / float(max(end for _, end in spans) - max(begin for begin, _ in spans))


def _exchange(config: NetworkConfig, id: str, rounds: int, barrier: Any, times: Any) -> None:
    mail: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
    transport = ZenohTransport(config.role(id), endpoints(config, id), mail.put, lambda *_: None)
    frame, here = Send(None, bytes(50)), dict.fromkeys(config.neighbors(id), False)
    while not all(here.values()):
        arrival = mail.get()
        here[arrival.peer] = arrival.came
    barrier.wait()
    time.sleep(1)  # until every put finds its subscription
    began = time.monotonic()
    for _ in range(rounds):
        transport.send(frame)
        mail.get(), mail.get()
    times.put((began, time.monotonic()))
    barrier.wait()
    transport.close()


def cpu(outcomes: list[cluster.Outcome]) -> float:
    return float(np.mean([one.cpu / len(one.losses) for one in outcomes]))


def equal(nodes: int = NODES, rounds: int | None = None, names: Sequence[str] = ()) -> Iterator[report.Row]:
    """Yield how processes on a path compare with the same protocol objects in memory, and with the simulator."""
    samples = first_rounds(as_stream("banana", nodes)[0], rounds)
    paper = {f"{name}, small steps": omkl.Gossip(quantizer=quantizer) for name, quantizer in QUANTIZERS.items()}
    methods = paper | METHODS | {"default": omkl.recommended()}
    for name in names or methods:
        config = network(methods[name], "path", samples)
        outcomes = cluster.run(cluster.on_loopback(config), *samples)
        states = [node.learning.state for node in memory.run(config, *samples).nodes.values()]
        same = [np.array_equal(one.theta, state.theta) and np.array_equal(one.hidden, state.hidden)
                for one, state in zip(outcomes, states, strict=True)]  # fmt: skip
        copies = [np.array_equal(copy, outcomes[config.index(peer)].hidden)
                  for one in outcomes for peer, copy in one.copies.items()]  # fmt: skip
        result = omkl.simulate(tuple(samples), config.topology, method=config.method, seed=0)
        losses = np.mean([one.losses for one in outcomes], axis=0)
        models = np.stack([one.theta for one in outcomes])
        yield {
            "method": name, "nodes": nodes, "as in memory": sum(same), "copies": len(copies), "equal": sum(copies),
            "bytes a sample": float(np.mean([one.sent for one in outcomes]) / len(losses)),
            "simulated": float(result.bits.mean() / 8 / nodes),
            "loss within": float(np.abs(losses - result.loss[0]).max()),
            "in the mean": float(abs(losses.mean() - result.loss[0].mean())),
            "theta within": float(np.abs(models - result.theta[:, 0]).max() / np.abs(models).max()),
        }  # fmt: skip


def main(which: str) -> None:
    rows, work = [], {"round": one_round(), "ring": ring(), "equal": equal()}
    for row in work[which]:
        rows.append(row)
        print(report.table([row]), flush=True)
    report.finish("network", rows, f"{which}: {NODES} nodes, Banana, seed 0.")


if __name__ == "__main__":
    main(sys.argv[1])
