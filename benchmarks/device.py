"""The simulator on one accelerator: the default method, then the paper's preset; many seeds, and large networks.

Needs the simulator, NumPy and JAX only. Samples are synthetic, of the right shape. A *call* is ``omkl.simulate`` as
users call it: samples come from the host, features are calibrated, every round is recorded. *Rounds* are the engine's
part of it, with samples and features on the device. A round of a large network is one of a stretch that is measured
once, late in a stream, where the default gossips once a sample. First calls compile; of three more the best and the
worst are told.

Beside each time stands its floor. Under many seeds it is the features' operations at the rate of a large product in
full float32, and every round's state moved once each way. For large networks it is the latter, and for random graphs a
read of every neighbor's hidden state, at the bandwidth of a copy.

Run from the repository's root: python -m benchmarks.device
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks import report
from benchmarks.scale import GRAPHS, PRESETS, drawn, stream

import omkl
from omkl import noise
from omkl.methods import for_inputs
from omkl.simulator import engine, scans
from omkl.simulator.measures import metrics
from omkl.simulator.networks import network
from omkl.simulator.numbers import split
from omkl.simulator.rounds import Chunk, Given, Program, Samples, Span, chunks, compiled, most_rounds
from omkl.topology import build

NODES = 20
LATE = 10_000  # samples before the rounds of a large network
CALIBRATED_ON = 300  # rows
LARGEST = {"default": 10**6, "paper's preset": 10**7}  # nodes that fit the memory of one accelerator


class Sizes(NamedTuple):
    """How much to run."""

    runs: tuple[tuple[str, str, int, int], ...] = (
        ("default", "credit card", 1500, 23),
        ("paper's preset", "credit card", 1500, 23),
        ("paper's preset", "banana", 265, 2),
        ("paper's preset", "mnist", 3500, 784),
    )
    """Method, name, rounds and inputs, of those under many seeds."""
    seeds: int = 100
    graphs: tuple[str, ...] = ("ring", "regular")
    nodes: tuple[int, ...] = (10**5, 10**6, 10**7)
    rounds: int = 40
    """Of a large network."""
    copied: int = 2**30
    """Numbers in the copy that tells the bandwidth."""
    multiplied: int = 8192
    """Rows of the matrices whose product tells the rate."""


class Limits(NamedTuple):
    """What the device does at best."""

    bytes: float
    """Read and written in a second by a copy."""
    operations: float
    """In a second by a product in full float32."""


class Taken(NamedTuple):
    """Seconds of a first call, and of the best and the worst of the next."""

    first: float
    best: float
    worst: float


def taken(work: Callable[[], Any], times: int = 3) -> Taken:
    """Time a first call, and some more."""
    each = []
    for _ in range(times + 1):
        started = time.perf_counter()
        jax.block_until_ready(work())  # type: ignore[no-untyped-call]
        each.append(time.perf_counter() - started)
    return Taken(each[0], min(each[1:]), max(each[1:]))


def limits(sizes: Sizes) -> Limits:
    x, rows = jnp.zeros(sizes.copied, dtype=jnp.float32), sizes.multiplied
    copy = jax.jit(lambda a: a + 1)
    bandwidth = 2 * x.nbytes / taken(lambda: copy(x), 10).best
    square = jnp.ones((rows, rows), dtype=jnp.float32)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    return Limits(bandwidth, 2 * rows**3 / taken(lambda: product(square), 5).best)


def many_seeds(preset: str, name: str, rounds: int, inputs: int, seeds: int, most: Limits) -> report.Row:
    """Return what a run on a path takes, as a whole and by the engine."""
    method = for_inputs(PRESETS[preset](), inputs)
    X, y = stream(rounds, NODES, inputs)
    call = taken(lambda: omkl.simulate((X, y), "path", method=method, seeds=seeds).loss)
    calibrating = taken(lambda: [part for part in drawn(method, X, seeds) if part is not None])
    made = jax.tree.map(jnp.asarray, drawn(method, X, seeds))
    placed = (jnp.asarray(X), jnp.asarray(y)[..., None])
    given = engine.Problem(*placed, made, list(range(seeds)))  # type: ignore[arg-type]
    path = build("path", NODES)
    case = engine.Case(method.on(path), (path,))
    steady = taken(lambda: scans.run(given, [case], metrics, lambda *_: None))
    row: report.Row = {"run": f"{preset}, {name}", "first call, s": call.first}
    row |= {"call, ms": 1e3 * call.best, "worst call": 1e3 * call.worst, "calibrating": 1e3 * calibrating.best}
    row |= {"rounds, ms": 1e3 * steady.best, "worst rounds": 1e3 * steady.worst}
    return row | {"floor, ms": 1e3 * _floor(method, made, rounds, seeds, most)}


def _floor(method: omkl.Gossip, made: Any, rounds: int, seeds: int, most: Limits) -> float:
    """Return the seconds for the features' products, and for every round's state moved once each way."""
    if made.landmarks is None:
        kernels, count, inputs = made.frequencies.shape[1:]
        products = inputs * count + (0 if made.basis is None else 2 * count * method.bank.width)
    else:
        kernels, (count, inputs) = 1, made.landmarks.shape[1:]
        products = count * (inputs + method.bank.width)
    state = jax.eval_shape(lambda: method.init(jnp, (NODES, seeds), 1, made.spectrum))
    moved = 2 * rounds * _bytes(state)
    return float(moved / most.bytes + 2 * products * kernels * rounds * NODES * seeds / most.operations)


def _bytes(state: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def _features(method: omkl.Gossip) -> int:
    bank = method.bank
    return bank.basis.rows if isinstance(bank.basis, omkl.Landmarks) else bank.features


class Large:
    """Late rounds of a large network, every sample with one round of gossip, the last of them measured."""

    def __init__(self, preset: str, graph: str, nodes: int, rounds: int) -> None:
        self.graph, self.nodes, self.rounds = build(GRAPHS[graph](nodes)), nodes, rounds
        self.method = for_inputs(PRESETS[preset](), 2).on(self.graph)
        made = jax.tree.map(jnp.asarray, drawn(self.method, stream(1, CALIBRATED_ON, 2)[0], 1))
        keys = jax.random.split(jax.random.key(0))
        self._X = jax.random.normal(keys[0], (rounds, nodes, 2)) / 2**0.5
        self._y = jnp.sign(jax.random.normal(keys[1], (rounds, nodes, 1)))
        key = noise.fold(noise.key([0], "quantizer"), np.arange(nodes)[:, None, None])
        self._skeleton, numbers = split(self.method)
        self._given = Given(made, noise.Key(*map(jnp.asarray, key)), (network(self.graph),), (numbers,))
        self.running = scans._start([self.method], (nodes, 1), 1, made.spectrum)
        rank = 0 if self.method.bank.basis is None else self.method.bank.width
        most = most_rounds(nodes, 2, 1, self.method.members, _features(self.method), rank)
        self._chunks = chunks(rounds, rounds, most, 0)

    def run(self) -> Any:
        """Take all rounds once."""
        for chunk in self._chunks:
            program = Program(scans.HERE, (self._skeleton,), metrics, self.rounds, chunk.in_blocks)
            self.running, records = compiled()(program, self.running, _span(chunk), self._samples(chunk), self._given)
        return self.running, records

    def _samples(self, chunk: Chunk) -> Samples:
        first, last = chunk.first, chunk.last
        t = np.arange(LATE + first, LATE + last, dtype=np.uint32)
        starts = None if self.method.schedule is None else (t, t + 1)
        return Samples(t, (starts,), self._X[first:last], self._y[first:last])


def _span(chunk: Chunk) -> Span:
    return Span(np.int32(1), np.array([chunk.last - chunk.first], np.int32), np.uint32(1))


def large(preset: str, graph: str, nodes: int, rounds: int, most: Limits) -> report.Row:
    """Return the milliseconds of a round."""
    made = Large(preset, graph, nodes, rounds)
    steady = taken(made.run)
    heard = 0 if graph == "ring" else 2 * len(made.graph.graph.edges)
    state: Any = made.running.states
    floor = 1e3 * (2 * _bytes(state) + heard * _bytes(state[0].hidden) / nodes) / most.bytes
    name, ms = f"{preset}, {graph} of {nodes:,}", 1e3 * steady.best / rounds
    row: report.Row = {"run": name, "first call, s": steady.first, "round, ms": ms}
    row |= {"worst round": 1e3 * steady.worst / rounds, "floor, ms": floor}
    return row | {"times its floor": ms / floor, "bytes / node": _bytes(state) / nodes}


def rows(sizes: Sizes, most: Limits) -> Iterator[report.Row]:
    for run in sizes.runs:
        yield many_seeds(*run, sizes.seeds, most)
    for preset in PRESETS:
        for nodes in sizes.nodes:
            for graph in sizes.graphs if nodes <= LARGEST[preset] else ():
                yield large(preset, graph, nodes, sizes.rounds, most)


def main(sizes: Sizes) -> None:
    most = limits(sizes)
    made = []
    for row in rows(sizes, most):
        made.append(row)
        print(report.table([row]), flush=True)
    note = (
        f"{NODES} nodes on a path, {sizes.seeds} seeds; rounds of large networks are the mean of {sizes.rounds}. A "
        f"copy moves {most.bytes / 1e12:.2f} TB/s, a large float32 product {most.operations / 1e12:.1f} Tflop/s. "
        "Budgets on one H200: the default's call on credit card 300 ms, its round of 100,000 and 1,000,000 nodes "
        "0.8 and 6 ms; the paper's rounds on credit card and mnist 20 and 60 ms, its round on the ring of 1,000,000 "
        "1.0 ms."
    )
    report.finish("device", made, note)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=Sizes().nodes)
    parser.add_argument("--seeds", type=int, default=Sizes().seeds)
    options = parser.parse_args()
    main(Sizes(seeds=options.seeds, nodes=tuple(options.nodes)))
