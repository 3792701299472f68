"""Nodes that differ: in the labels they see, in how many samples they have, in where they stand, in when they join.

python -m benchmarks.differ digits [SEEDS]      ten digits dealt to 20 nodes by Dirichlet(0.1), 8 against the rest
python -m benchmarks.differ unequal [SEEDS]     Banana, 20 nodes whose samples are as 1 : 2 : 4 : 8 : 16
python -m benchmarks.differ beijing [SEEDS]     twelve stations, PM2.5 above 75 from the other readings of the hour
python -m benchmarks.differ joining [SEEDS]     the same, and a station without samples joins half way

Every node's last model is scored on held-out samples of all. Nodes with fewer samples than others have theirs at random
times, and rounds without one in between, in which they mix and send and learn nothing: no sample is used twice. *Alike*
are nodes with as many samples at the same times, but anyone's. Beijing's stream is every eighth hour of four years, in
order; a station has no sample where a reading is missing, and is scored on hours in between.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from benchmarks import eager, report
from benchmarks.per_bit import BEFORE, NODES, averaged, beside, scored

import omkl
from omkl import topology
from omkl.data import known, load, sensors
from omkl.data.files import local_folder
from omkl.methods import Method, for_inputs
from omkl.topology import Graph, Topology
from omkl_lab.paper.frontier.study import alone

DIRICHLET = 0.1
RATIOS = (1, 2, 4, 8, 16)
LIMIT = 75  # micrograms of PM2.5 a cubic meter
STRIDE = 8  # hours between rounds
HELD_OUT_HOURS = 300
MOMENTS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)  # rounds after a station has joined

Floats: TypeAlias = npt.NDArray[Any]
Integers: TypeAlias = npt.NDArray[np.int64]


class Stream(NamedTuple):
    """What nodes see, and what they are scored on."""

    X: Floats
    y: Floats
    seen: npt.NDArray[np.bool_]
    held: Floats
    held_y: Floats
    station: Integers | None = None
    """Whose sample each held-out one is, where it is someone's."""

    def shuffled(self, seed: int) -> "Stream":
        """Return nodes that are alike."""
        order = np.random.default_rng(seed).permutation(np.count_nonzero(self.seen))
        X, y = self.X.copy(), self.y.copy()
        X[self.seen], y[self.seen] = X[self.seen][order], y[self.seen][order]
        return self._replace(X=X, y=y)


def digits(seed: int, rows: int | None) -> tuple[Stream, Graph]:
    """Nodes that each see few of the ten digits, and not equally many samples."""
    rng, (X, labels) = np.random.default_rng(seed), table("digits10", rows)
    shares = rng.dirichlet(DIRICHLET * np.ones(NODES), size=10)
    owner = np.array([rng.choice(NODES, p=shares[int(label)]) for label in labels])
    y = np.where(labels == 8, 1, -1)
    return dealt(X, y, owner, rng), topology.path(NODES)


def banana(ratios: tuple[int, ...], by_position: bool, seed: int, rows: int | None) -> tuple[Stream, Graph]:
    """Nodes with samples in these ratios, alike or slices in order along the path; as many rounds in all cases."""
    rng, (X, y) = np.random.default_rng(seed), table("banana", rows)
    order = np.argsort(X[:, 0], kind="stable") if by_position else rng.permutation(len(X))
    parts = rng.permutation(np.resize(ratios, NODES))
    bounds = np.rint(np.cumsum(parts) / parts.sum() * len(order))
    owner = np.empty(len(order), dtype=np.int64)
    owner[order] = np.searchsorted(bounds, np.arange(len(order)), side="right")
    most = -(-len(order) * max(RATIOS) // int(np.resize(RATIOS, NODES).sum()))
    return dealt(X, y, owner, rng, most), topology.path(NODES)


def table(name: str, rows: int | None) -> tuple[Floats, Floats]:
    data = load(name)
    return data.X[:rows], data.y[:rows]


def dealt(X: Floats, y: Floats, owner: Integers, rng: np.random.Generator, rounds: int = 0) -> Stream:
    """Return the rows of each node at random times, in as many rounds as the node with most has rows, or more."""
    held, rows = np.split(rng.permutation(len(X)), [len(X) // 10])
    own = [rows[owner[rows] == node] for node in range(NODES)]
    rounds = max(rounds, *map(len, own))
    order = np.full((rounds, NODES), -1)
    for node, some in enumerate(own):
        order[rng.choice(rounds, len(some), replace=False), node] = some
    return Stream(X[order], y[order], np.asarray(order >= 0), X[held], y[held])


def beijing(seed: int, rows: int | None) -> tuple[Stream, Graph]:
    """Stations that each see the air of their own place, in so many hours at most."""
    hours, graph = stations()
    hours = hours[:rows]
    between = np.arange(STRIDE // 2, len(hours), STRIDE)
    held = min(HELD_OUT_HOURS, len(between))
    later = hours[np.sort(np.random.default_rng(seed).choice(between, held, replace=False))]
    now = hours[::STRIDE]
    seen, whole = (np.asarray(np.isfinite(part).all(axis=-1)) for part in (now, later))
    mean, deviation = now[seen].mean(axis=0), now[seen].std(axis=0)
    X, held = (((part - mean) / deviation)[..., 1:].astype(np.float32) for part in (now, later))
    y, held_y = (np.where(part[..., 0] > LIMIT, 1, -1) for part in (now, later))
    X[~seen] = 0
    return Stream(X, y, seen, held[whole], held_y[whole], np.nonzero(whole)[1]), graph


@cache
def stations() -> tuple[Floats, Graph]:
    """Return PM2.5 and twelve other readings of every hour and station, nan where one is missing, and the graph."""
    root, files = local_folder(), known("beijing_stations").files
    assert root, "OMKL_DATA names the folder that has beijing_multisite"
    contents = [file.read(root / "beijing_multisite") for file in files]
    return sensors.beijing_hours(contents)[..., :13], sensors.beijing_graph(contents)


def ways(graph: Graph) -> dict[str, tuple[Method, Topology]]:
    best, own = omkl.recommended(), topology.metropolis(graph)
    complete = topology.metropolis(topology.complete(graph.nodes))
    return {
        "alike": (best, own),
        "recommended": (best, own),
        "complete graph, no quantizer": (averaged(best), complete),
        "no communication": (alone(best), own),
        "0.1": (BEFORE, own),
    }


def last(case: tuple[str, str, int, int | None]) -> Floats:
    """Return the loss of every node's last model on the held-out samples of all, and on its own, ``(2, J)``."""
    name, way, seed, rows = case
    stream, graph = SETTINGS[name](seed, rows)
    method, network = ways(graph)[way]
    (scores,) = played(stream.shuffled(seed) if way == "alike" else stream, method, network, seed)
    return scores


def played(
    stream: Stream, method: Method, network: Topology, seed: int, away: Topology | None = None
) -> Iterator[Floats]:
    """Yield the losses of every node's model after the last round, and after ``MOMENTS`` where one joins half way.

    Until then the network is ``away``.
    """
    X, y, seen, held, held_y, station = stream
    method = for_inputs(method, X.shape[-1])
    method = method.on(network) if isinstance(method, omkl.Gossip) else method
    made = method.bank.draw(X.shape[-1], seed, X[seen])
    whole, half = eager.fixed(network), len(X) // 2
    before, moments = (whole, set()) if away is None else (eager.fixed(away), {half - 1 + k for k in MOMENTS})
    links = lambda t: (before if t < half else whole)(t)  # noqa: E731
    z = eager.mapped(X, made)
    for t, moment in enumerate(eager.play(method, z, y, links, seed, made.spectrum, seen)):
        if t in moments or t == len(X) - 1:
            each = scored(method, *method.models(moment.state), made, held, held_y)
            own = [row.mean() if station is None else row[station == j].mean() for j, row in enumerate(each)]
            yield np.stack([each.mean(axis=1), np.array(own)])


def joined(seed: int, rows: int | None) -> Floats:
    """Return losses ``(moments, 3)`` of a station without samples, on all and on its own, and of the others on all."""
    stream, graph = beijing(seed, rows)
    station, network = int(np.random.default_rng(seed).integers(graph.nodes)), topology.metropolis(graph)
    stream.seen[:, station] = False
    away = Topology(graph, np.where((graph.edges == station).any(axis=1), 0, network.weights))
    each = np.stack(list(played(stream, omkl.recommended(), network, seed, away)))
    others = np.delete(each[:, 0], station, axis=1).mean(axis=1)
    return np.concatenate([each[:, :, station], others[:, None]], axis=1)


SETTINGS: dict[str, Callable[[int, int | None], tuple[Stream, Graph]]] = {
    "digits": digits,
    "equal": partial(banana, (1,), False),
    "unequal": partial(banana, RATIOS, False),
    "unequal, by position": partial(banana, RATIOS, True),
    "beijing": beijing,
}
EVERY_WAY = ("alike", "recommended", "complete graph, no quantizer", "no communication", "0.1")
CASES = {
    "digits": [("digits", way) for way in EVERY_WAY],
    "unequal": [
        ("equal", "alike"),
        *((name, way) for name in ("unequal", "unequal, by position") for way in EVERY_WAY),
    ],
    "beijing": [("beijing", way) for way in EVERY_WAY],
}


def compared(which: str, seeds: int, rows: int | None = None) -> Iterator[report.Row]:
    cases = CASES[which]
    runs = [(*case, seed, rows) for case in cases for seed in range(seeds)]
    scores = np.array(list(eager.in_processes(last, runs))).reshape(len(cases), seeds, 2, -1)
    for (name, way), run in zip(cases, scores, strict=True):
        level, loss, own = scores[cases.index((name, "alike")), :, 0].mean(), run[:, 0], run[:, 1]
        yield {
            "nodes": name, "": way, "loss": loss.mean(), "of alike": loss.mean() / level,
            "worst node": loss.max(axis=1).mean() / level, "on its own": own.mean(), "worst": own.max(axis=1).mean(),
            **(beside(loss, scores[cases.index((name, "0.1")), :, 0]) if (name, "0.1") in cases else {}),
        }  # fmt: skip


def joining(seeds: int, rows: int | None = None) -> list[report.Row]:
    means = np.mean(list(eager.in_processes(partial(joined, rows=rows), range(seeds))), axis=0)
    names = ("on all", "on its own", "others on all")
    return [{"rounds after": str(k)} | dict(zip(names, row.tolist(), strict=True))
            for k, row in zip((*MOMENTS[: len(means) - 1], "the last"), means, strict=True)]  # fmt: skip


def main(which: str, seeds: int) -> None:
    rows = joining(seeds) if which == "joining" else list(compared(which, seeds))
    report.finish("differ", rows, f"{which}, {seeds} seeds: loss on held-out samples of all nodes")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4)
