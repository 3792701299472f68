"""What a node's round costs, and how fast real processes gossip.

python -m benchmarks.network round      one node's round in NumPy on one core, by its parts
python -m benchmarks.network ring       20 processes on a ring in lock step, rounds a second
python -m benchmarks.network equal      20 processes on a path, the whole of Banana, against memory and simulator
"""

import multiprocessing
import queue
import sys
import time
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np

import omkl
from omkl import algorithm, features, topology, wire
from omkl.data import Stream, as_stream
from omkl.methods import Round
from omkl.node import cluster
from omkl.node.config import NetworkConfig
from omkl.node.neighbors import Send
from omkl.node.node import endpoints
from omkl.node.protocol import Protocol
from omkl.node.settings import Member, Timing
from omkl.node.transports import Arrival, memory
from omkl.node.transports.zenoh import ZenohTransport

NODES = 20
QUANTIZERS = {"QSGD M=7": omkl.QSGD(bits=3), "Nearest 2.5": omkl.Nearest(2.5), "exact": None}


def network(method: omkl.Gossip, graph: str) -> NetworkConfig:
    members = tuple(Member(id=f"n{j}", listen=f"tcp/127.0.0.1:{j + 1}") for j in range(NODES))
    return NetworkConfig(
        name="benchmark", inputs=2, method=method, seed=0, topology=topology.build(graph, NODES), members=members,
        timing=Timing(deadline=60.0, patience=30.0),
    )  # fmt: skip


def one_round() -> None:
    """Time the parts of a round, and a whole one through the protocol, its two neighbors' frames included."""
    for name, quantizer in QUANTIZERS.items():
        config = network(omkl.Gossip(eta=1.0, gamma=0.5, quantizer=quantizer), "ring")
        samples = as_stream("banana", NODES)[0]
        node = memory.run(config, samples.X[:50], samples.y[:50]).nodes["n0"]
        print(f"{name}: a round through the protocol {whole(config, samples):.0f} us; parts, us:")
        print("   " + ", ".join(f"{part} {us:.1f}" for part, us in parts(node, samples).items()))


def parts(node: Protocol, samples: Stream) -> dict[str, float]:
    learning, neighbors = node.learning, node.neighbors
    method, state = learning.method, learning.state
    x, y = samples.X[0, 0], learning.targets(samples.y[0, 0])
    z = features.transform(x, learning.features)
    copies, weights = neighbors.copies, neighbors.weights
    uniforms = np.full(learning.shape, 0.5, dtype=np.float32)
    message = algorithm.emit(state.theta, 0.9 * state.hidden, method.channel, uniforms)
    frame = wire.write_gossip(neighbors.codec, 1, 1, message, 0)
    steps: dict[str, Callable[[], Any]] = {
        "features": lambda: features.transform(x, learning.features),
        "mix": lambda: algorithm.mix(state.theta, state.hidden, copies, weights, method.consensus_step),
        "emit": lambda: algorithm.emit(state.theta, 0.9 * state.hidden, method.channel, uniforms),
        "absorb x3": lambda: [algorithm.absorb(state.hidden, message) for _ in range(3)],
        "predict, weigh, learn": lambda: method.observe(state.theta, state.log_weights, (), Round(z, y, None)),
        "pack": lambda: wire.write_gossip(neighbors.codec, 1, 1, message, wire.digest(state.hidden)),
        "unpack x2": lambda: [(wire.read_gossip(neighbors.codec, frame, 0), wire.digest(state.hidden)) for _ in "12"],
    }
    return {name: 1e6 * min(timeit.repeat(step, number=200, repeat=20)) / 200 for name, step in steps.items()}


def whole(config: NetworkConfig, samples: Stream, rounds: int = 150, repeat: int = 5) -> float:
    """Return the microseconds of a round at one node, fed the frames its neighbors sent in a run of the network."""
    frames: list[tuple[str, bytes]] = []
    network = memory.Network()
    for index, id in enumerate(config.ids):
        network.join(Recorded(config, id, index, frames) if index == 0 else Protocol(config.role(id), index, 0.0))
    for index, id in enumerate(config.ids):
        network.feed(id, zip(samples.X[:rounds, index], samples.y[:rounds, index], strict=True))
    network.run()
    best = float("inf")
    for _ in range(repeat):
        node = Protocol(config.role("n0"), 0, 0.0)
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
    return 1e6 * best / rounds


class Recorded(Protocol):
    """A protocol that writes down what it receives."""

    def __init__(self, config: NetworkConfig, id: str, boot: int, frames: list[tuple[str, bytes]]) -> None:
        super().__init__(config.role(id), boot, 0.0)
        self._frames = frames

    def receive(self, peer: str, data: bytes, now: float) -> Any:
        self._frames.append((peer, data))
        return super().receive(peer, data, now)


def ring(turns: int = 3) -> None:
    """Run 20 processes on a ring in lock step, in turns with a bare exchange of as many bytes by as many processes."""
    samples = as_stream("banana", NODES)[0]
    X, y = np.tile(samples.X, (2, 1, 1)), np.tile(samples.y, (2, 1))
    for turn in range(turns):
        bare = exchange(2 * len(X))
        print(f"turn {turn}: bare exchange {bare:.0f} rounds/s")
        for name, quantizer in QUANTIZERS.items():
            config = network(omkl.Gossip(eta=1.0, gamma=0.5, quantizer=quantizer), "ring")
            outcomes = cluster.run(cluster.on_loopback(config), X, y)
            rate = (len(X) - 1) / (max(one.ended for one in outcomes) - max(one.began for one in outcomes))
            print(
                f"   {name}: {rate:.0f} rounds/s, {rate / bare:.2f} of the bare exchange, "
                f"{1e6 * cpu(outcomes):.0f} us of CPU a node and round"
            )


def exchange(rounds: int) -> float:
    """Return the rounds a second of processes that do nothing but send 50 bytes when both neighbors' have come."""
    context = multiprocessing.get_context("spawn")
    config = cluster.on_loopback(network(omkl.Gossip(), "ring"))
    barrier, times = context.Barrier(NODES), context.Queue()
    workers = [context.Process(target=_exchange, args=(config, id, rounds, barrier, times), daemon=True)
               for id in config.ids]  # fmt: skip
    for worker in workers:
        worker.start()
    spans = [times.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    return rounds / (max(end for _, end in spans) - max(begin for begin, _ in spans))


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


def equal() -> None:
    """Compare 20 processes on a path with the same protocol objects in memory, and with the simulator."""
    samples = as_stream("banana", NODES)[0]
    for eta, gamma in ((0.01, 0.009), (1.0, 0.5)):
        for name, quantizer in QUANTIZERS.items():
            config = network(omkl.Gossip(eta=eta, gamma=gamma, quantizer=quantizer), "path")
            outcomes = cluster.run(cluster.on_loopback(config), *samples)
            nodes = memory.run(config, *samples).nodes
            states = [nodes[id].learning.state for id in config.ids]
            same = sum(
                np.array_equal(one.theta, state.theta) and np.array_equal(one.hidden, state.hidden)
                for one, state in zip(outcomes, states, strict=True)
            )
            copies = [np.array_equal(copy, outcomes[config.index(peer)].hidden)
                      for one in outcomes for peer, copy in one.copies.items()]  # fmt: skip
            result = omkl.simulate(tuple(samples), config.topology, method=config.method, seed=0)
            losses = np.mean([one.losses for one in outcomes], axis=0)
            models = np.stack([one.theta for one in outcomes])
            print(
                f"eta {eta}, {name}: {same} of {NODES} nodes as in memory, {sum(copies)} of {len(copies)} copies as "
                f"their owner's, bytes {np.mean([one.sent for one in outcomes]) / len(losses):.1f}; simulator: loss "
                f"curve within {np.abs(losses - result.loss[0]).max():.1e}, its mean "
                f"{abs(losses.mean() - result.loss[0].mean()):.1e}, "
                f"theta within {np.abs(models - result.theta[:, 0]).max() / np.abs(models).max():.1e} of the largest"
            )


if __name__ == "__main__":
    {"round": one_round, "ring": ring, "equal": equal}[sys.argv[1]]()
