"""What each ingredient of the recommended setting brings: it is left out, or the paper's stands in its place.

python -m benchmarks.without alike [SEEDS [DATA ...]]     mean loss over the stream, 20 nodes on a path, bytes sent
python -m benchmarks.without sorted [SEEDS [DATA ...]]    every node's last model on a held-out sample, nodes differ

Bytes are a node's in a round, in the mean, and percents the loss's change, seed by seed, from that with nothing left
out. Beside the pooled loss is its ratio to that of nodes which are alike with nothing left out, and in brackets that of
the worst node. Where other steps go with what stands in, several are tried, and the best on that data set is shown.
"""

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from benchmarks import eager, report
from benchmarks.per_bit import DATA, NODES, by_label, by_position, dealt, error, scored, shuffled
from scipy.special import stdtrit

import omkl
from omkl import topology
from omkl.data import Stream, as_stream, first_rounds, load
from omkl.features import Features
from omkl.learners import SGD, AdaGrad, Newton
from omkl.methods import for_inputs
from omkl.quantizers import QSGD

BEST = omkl.recommended()
DRAWN = BEST.replace(
    kernels=omkl.gaussian(0.7), features=BEST.bank.width // 2, reach=None
)  # as many features as are sent
SETTINGS: dict[str, list[omkl.Gossip]] = {
    "nothing": [BEST],
    "landmarks: centers of clusters": [BEST.replace(basis=omkl.Landmarks(BEST.bank.width, 500, "centers"))],
    "landmarks: standard normal": [BEST.replace(basis=omkl.Landmarks(BEST.bank.width, 500, "normal"))],
    "landmarks: random features, calibrated": [BEST.replace(features=256, basis=omkl.Basis(120))],
    "landmarks: random features, closed form": [BEST.replace(features=256, basis=omkl.Basis(120, source="normal"))],
    "landmarks: 60 random features, Newton": [DRAWN.replace(basis=None, learner=Newton(prior)) for prior in (30, 100)],
    "landmarks: 500 become 120": [BEST.replace(basis=omkl.Landmarks(BEST.bank.width, 120))],
    "steps for all who are heard": [replace(BEST, reach=None)],
    "hedged priors": [replace(BEST, learner=omkl.Pooled((prior,))) for prior in (400, 40)],
    "shared curvature: Newton": [replace(BEST, reach=None, learner=Newton(prior)) for prior in (30, 100)],
    "shared curvature: AdaGrad": [replace(BEST, reach=None, learner=AdaGrad(eta)) for eta in (0.03, 0.1, 0.3)],
    "shared curvature: SGD": [replace(BEST, reach=None, learner=SGD(eta)) for eta in (0.01, 0.03, 0.1)],
    "momentum": [BEST.replace(momentum=0.0, gamma=gamma) for gamma in (0.3, 0.6, 0.7)],
    "common kernel weights": [BEST.replace(common_weights=False)],
    **{
        f"nearest quantizer: QSGD, {bits} bits": [
            BEST.replace(quantizer=QSGD(bits, rescale=True), momentum=momentum, gamma=gamma)
            for momentum, gamma in ((0.0, 0.1), (0.0, 0.2), (0.7, 0.05), (0.7, 0.1))
        ]
        for bits in (2, 3)
    },
    "bandwidths by the median: 1, 3, 5": [BEST.replace(kernels=omkl.gaussian(1, 3, 5), sigma="given")],
    "weights' rate of 1: 0.01": [BEST.replace(weight_rate=0.01)],
    **({} if BEST.channel.pace is None else {"pace": [BEST.replace(pace=None)]}),
    **({} if BEST.channel.sending is None else {"sending": [BEST.replace(sending=None)]}),
}
SORTED = [
    name
    for name in SETTINGS
    if name.startswith(("nothing", "steps", "hedged", "shared", "momentum", "common", "pace", "sending"))
]
ORDERS = {order.__name__: order for order in (shuffled, by_label, by_position)}


class Run(NamedTuple):
    without: str
    data: str
    seed: int
    order: str
    """Of samples; empty where nodes are alike."""
    rows: int | None
    """Of the data set, at most."""


def losses(run: Run) -> eager.Floats:
    """Return a loss and another number for every setting to choose from, ``(settings, 2)``.

    That over the stream and the bytes of a message; where there is an order, that of all last models, and the worst's.
    """
    name, data, seed, order, count = run
    if not order:
        rounds = [moments for moments, _, _ in played(name, *stream(data, count), seed)]
        return np.array([np.mean([_scores(moment) for moment in moments], axis=0) for moments in rounds])
    X, y = table(data, count)
    rows, held = dealt(X, y, ORDERS[order], seed)
    return np.array([_final(*run, X[held], y[held]) for run in played(name, X[rows], y[rows], seed)])


def played(
    name: str, X: eager.Floats, y: eager.Floats, seed: int
) -> Iterator[tuple[Iterator[eager.Moment], omkl.Gossip, Features]]:
    """Yield the rounds of every setting to choose from; they have the same features."""
    methods = [for_inputs(method, X.shape[-1]) for method in SETTINGS[name]]
    made = methods[0].bank.draw(X.shape[-1], seed, X)
    z, network = eager.mapped(X, made), topology.metropolis(topology.path(NODES))
    for method in methods:
        yield eager.play(method.on(network), z, y, eager.fixed(network), seed, made.spectrum), method, made


@lru_cache(1)
def stream(name: str, rows: int | None) -> Stream:
    return first_rounds(as_stream(name, NODES)[0], rows and rows // NODES)


@lru_cache(1)
def table(name: str, rows: int | None) -> tuple[eager.Floats, eager.Floats]:
    data = load(name)
    return data.X[:rows], data.y[:rows]


def alike(
    seeds: int, sets: Sequence[str], names: Sequence[str] = tuple(SETTINGS), rows: int | None = None
) -> list[report.Row]:
    found = best(names, sets, seeds, [""], rows)
    return [
        {"without": name} | {
            data: f"{spread(loss, 4)}, {spread(100 * (loss - level) / level.mean(), 1)} %, {sent.mean():.1f} bytes"
            for data in sets for loss, sent in [found[name, data, ""].T]
            for level in [found["nothing", data, ""][:, 0]]
        }
        for name in names
    ]  # fmt: skip


def sorted_(
    seeds: int, sets: Sequence[str], names: Sequence[str] = tuple(SORTED), rows: int | None = None
) -> list[report.Row]:
    found = best(names, sets, seeds, list(ORDERS), rows)
    return [
        {"without": name, "order": order} | {
            data: f"{loss.mean():.4f}, {loss.mean() / level:.3f} ({worst.mean() / level:.3f})"
            for data in sets for loss, worst in [found[name, data, order].T]
            for level in [found["nothing", data, "shuffled"][:, 0].mean()]
        }
        for order in ORDERS for name in names
    ]  # fmt: skip


def best(
    names: Sequence[str], sets: Sequence[str], seeds: int, orders: list[str], rows: int | None
) -> dict[tuple[str, str, str], eager.Floats]:
    """Return the numbers of every seed, ``(seeds, 2)``, for what is left out, data set and order."""
    runs = [Run(name, data, seed, order, rows)
            for data in sets[::-1] for order in orders for name in names for seed in range(seeds)]  # fmt: skip
    done = dict(zip(runs, eager.in_processes(losses, runs), strict=True))
    cases = {(run.without, run.data, run.order) for run in runs}
    each = {
        (name, data, order): np.array([done[Run(name, data, seed, order, rows)] for seed in range(seeds)])
        for name, data, order in cases
    }
    return {case: numbers[:, np.nanargmin(numbers[..., 0].mean(axis=0))] for case, numbers in each.items()}


def spread(values: eager.Floats, digits: int) -> str:
    """Return the mean and half the width of its 95 % interval, by Student's t: seeds are few."""
    half = float(stdtrit(len(values) - 1, 0.975)) * error(values)
    return f"{values.mean():.{digits}f} ± {half:.{digits}f}"


def _scores(moment: eager.Moment) -> tuple[float, float]:
    return float(moment.info.loss.mean(dtype=np.float64)), float(moment.info.message_bytes.mean())


def _final(
    moments: Iterator[eager.Moment], method: omkl.Gossip, made: Features, X: eager.Floats, y: eager.Floats
) -> tuple[float, float]:
    last = deque(moments, maxlen=1).pop()  # all of Newton's are many gigabytes
    nodes = scored(method, *method.models(last.state), made, X, y).mean(axis=1)
    return float(nodes.mean()), float(nodes.max())


def main(which: str, seeds: str = "8", *sets: str) -> None:
    rows = {"alike": alike, "sorted": sorted_}[which](int(seeds), sets or DATA)
    report.finish("without", rows, f"{which}, {seeds} seeds, 95 % intervals over seeds")


if __name__ == "__main__":
    main(*sys.argv[1:])
