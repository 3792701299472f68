"""One network, one learner: the default beside that of 0.1, on paired seeds and orders, and beside one place.

python -m benchmarks.learner streams [SEEDS [DATA ...]]    20 nodes on a path; five orders of every set
python -m benchmarks.learner graphs [SEEDS [DATA ...]]     100 nodes, on graphs that are not a path
python -m benchmarks.learner links [SEEDS [DATA ...]]      links and nodes that fail; all links down beside Local
python -m benchmarks.learner many [SEEDS]                  1,000 nodes and more beside one place, on rows drawn anew

Losses are means over streams: regression's and room_occupied's over that of the best constant. Intervals of 95 % are
over orders and seeds. A difference is that to 0.1's method on the same rows with the same seeds. Bytes are a node's in
a sample, all-in, in today's frames for both.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from benchmarks import report
from benchmarks.per_bit import BEFORE, NODES, Floats, constant

import omkl
from omkl.data import load
from omkl.methods import Method
from omkl.topology import Graph, from_networkx

DATA = ("banana", "credit_card", "mnist", "digits", "room_occupied", "air", "twitter", "energy")
OVER_CONSTANT = ("room_occupied", "air", "twitter", "energy")
ORDERS = 5


class Found(NamedTuple):
    """Of every order and seed: the loss, and the bytes of a node in a sample."""

    loss: Floats
    bytes: Floats


def ways() -> dict[str, omkl.Gossip]:
    """Return what is compared; the first is what differences are to."""
    return {"0.1": BEFORE, "recommended": omkl.recommended(), "frugal": omkl.frugal()}


def alone() -> omkl.Local:
    """Return the default's learner without a network."""
    best = omkl.recommended()
    kept = ("kernels", "sigma", "basis", "learner", "regularization", "weight_rate")
    return omkl.Local(**{name: getattr(best, name) for name in kept})


def run(
    name: str, method: Any, graph: Any, nodes: int, seeds: int, orders: int, rounds: int | None = None, **given: Any
) -> Found:
    """Return what a method makes of a set, shuffled so many times."""
    table, losses, sent = load(name), [], []
    for order in range(orders):
        rows = np.random.default_rng(order).permutation(len(table.X))[: rounds and rounds * nodes]
        stream = np.asarray(table.X)[rows], np.asarray(table.y)[rows]
        told = replace(method, loss=table.loss)
        result = omkl.simulate(stream, graph, nodes=nodes, seeds=seeds, method=told, **given)
        losses.append(result.loss.mean(axis=1, dtype=np.float64))
        sent.append(result.bits.mean(axis=1) / nodes / 8)
    scale = constant(name) if name in OVER_CONSTANT else 1.0
    return Found(np.concatenate(losses) / scale, np.concatenate(sent))


def half(values: Floats) -> float:
    """Return half of an interval of 95 %."""
    return float(1.96 * values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")


def compared(name: str, where: str, found: dict[str, Found]) -> Iterator[report.Row]:
    """Yield a row for every way."""
    first = next(iter(found.values())).loss
    for way, (loss, sent) in found.items():
        apart = loss - first
        told = ("", "") if loss is first else (f"{apart.mean():+.4f}", f"{half(apart):.4f}")
        yield {
            "data": name, "graph": where, "": way, "loss": f"{loss.mean():.4f}", "+-": f"{half(loss):.4f}",
            "to 0.1": told[0], "+- ": told[1], "bytes": f"{sent.mean():.1f}",
        }  # fmt: skip


def streams(seeds: int, sets: Sequence[str], orders: int = ORDERS, rounds: int | None = None) -> Iterator[report.Row]:
    """Yield rows of the path of twenty."""
    for name in sets:
        fewer = max(1, seeds // 2) if name == "mnist" else seeds
        given = ("path", NODES, fewer, orders, rounds)
        yield from compared(name, "path", {way: run(name, method, *given) for way, method in ways().items()})


def graphs(seeds: int, sets: Sequence[str], nodes: int = 100, rounds: int | None = None) -> Iterator[report.Row]:
    """Yield rows of a hundred nodes."""
    chosen: dict[str, str | Graph] = {"4-regular": regular(nodes), "ring": "ring", "star": "star"}
    both = dict(list(ways().items())[:2])
    for name in sets:
        for where, graph in chosen.items():
            given = (graph, nodes, seeds, 1, rounds)
            yield from compared(name, where, {way: run(name, method, *given) for way, method in both.items()})


def links(seeds: int, sets: Sequence[str], rounds: int | None = None) -> Iterator[report.Row]:
    """Yield rows of links that fail."""
    best = omkl.recommended()
    for name in sets:
        given: tuple[Any, ...] = ("path", NODES, seeds, 1, rounds)
        found = {"0.1": run(name, BEFORE, *given)}
        found["recommended"] = run(name, best, *given)
        faults = omkl.Faults(links=0.3, nodes=0.05)
        found["0.1, Faults(0.3, 0.05)"] = run(name, BEFORE, *given, faults=faults)
        found["Faults(0.3, 0.05)"] = run(name, best, *given, faults=faults)
        found["all links down"] = run(name, best, *given, faults=omkl.Faults(links=1.0))
        found["Local"] = run(name, alone(), *given)
        yield from compared(name, "path", found)


def many(
    seeds: int, sizes: Sequence[int] = (1000, 100_000), rounds: int = 50, places: Sequence[int] = (1, 20, 1000)
) -> Iterator[report.Row]:
    """Yield rows of large random graphs, and of one place that sees a thousand of their samples in a round."""
    for nodes in sizes:
        X, y = moons(rounds, nodes)
        methods: dict[str, Method] = {"recommended": omkl.recommended(), "0.1": BEFORE, "Local": alone()}
        for way, method in methods.items():
            result = omkl.simulate((X, y), regular(nodes), seeds=seeds, method=method, record_every=rounds)
            yield {"nodes": nodes, "graph": "4-regular", "": way, "last loss": f"{result.loss[:, -1].mean():.4f}"}
    for count in places:
        X, y = moons(rounds * count, 1)
        result = omkl.simulate((X, y), "path", seeds=seeds, method=alone())
        yield {
            "nodes": 1, "graph": "", "": f"one place, {count} samples in place of one",
            "last loss": f"{result.loss[:, -count * rounds // 10 :].mean():.4f}",
        }  # fmt: skip


def moons(rounds: int, nodes: int) -> tuple[Floats, Floats]:
    """Return two classes that no line parts: the sign of a wave, a tenth of it turned."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rounds, nodes, 2))
    y = np.where(np.sin(2.5 * X[..., 0]) > X[..., 1], 1, -1)
    return X, np.where(rng.random(y.shape) < 0.1, -y, y)


def regular(nodes: int) -> Graph:
    """Return a random graph of four links a node."""
    return from_networkx(nx.random_regular_graph(4, nodes, seed=0))


def main() -> None:
    which, *rest = sys.argv[1:] or ["streams"]
    seeds, sets = int(rest[0]) if rest else 20, rest[1:]
    made: dict[str, Callable[[], Iterator[report.Row]]] = {
        "streams": lambda: streams(seeds, sets or DATA),
        "graphs": lambda: graphs(seeds, sets or DATA[:2]),
        "links": lambda: links(seeds, sets or DATA[:2]),
        "many": lambda: many(seeds),
    }
    rows = list(made[which]())
    report.finish("learner", rows, f"{which}, {seeds} seeds")


if __name__ == "__main__":
    main()
