"""What a setting makes of 80 bytes a round: the paper's and the recommended one, on nodes that are alike and not.

python -m benchmarks.per_bit alike [SEEDS [DATA ...]]     mean loss over the stream, 20 nodes on a path
python -m benchmarks.per_bit sorted [SEEDS [DATA ...]]    every node's last model on a held-out sample, nodes differ

Beside the loss is its ratio to that of the best constant.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from benchmarks import report

import omkl
from omkl import losses, metrics
from omkl.data import load
from omkl.features import Features, transform
from omkl.methods import Method
from omkl_lab.paper.frontier.study import alone

NODES = 20
DATA = ("banana", "credit_card", "mnist")
HELD_OUT = 2000
BEFORE = omkl.Gossip(
    kernels=omkl.gaussian(0.35, 0.7, 1.4),
    sigma="median",
    features=256,
    basis=omkl.Basis(rank=160, rows=300),
    learner=omkl.Shared(prior=100, c=0.05),
    regularization=0.0,
    weight_rate=1.0,
    common_weights=True,
    gamma=0.35,
    momentum=0.6,
    quantizer=omkl.Nearest(2.5),
    pace=omkl.Pace(8, until=8, least=1),
    sending=omkl.Sampled(3, floor=0.3),
)

Floats: TypeAlias = npt.NDArray[np.float64]
Inputs: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.int64]
Order: TypeAlias = Callable[[Inputs, Inputs, np.random.Generator], Integers]
"""Returns the rows of a table, node by node."""


def ways() -> dict[str, tuple[Method, str]]:
    """Return what is compared with the paper's method on its path."""
    best = omkl.recommended()
    return {
        "recommended": (best, "path"),
        "no communication": (alone(best), "path"),
        "a message a sample": (best.replace(pace=None, sending=None), "path"),
        "frugal": (omkl.frugal(), "path"),
        "complete graph, no quantizer": (averaged(best), "complete"),
    }


def alike(seeds: int, sets: Sequence[str], count: int | None = None, rounds: int | None = None) -> Iterator[report.Row]:
    """Yield a row for the paper's method, then one for each way, or for the first so many."""
    settings: dict[str, Any] = {"nodes": NODES, "seeds": seeds, "rounds": rounds}
    for name in sets:
        level, cases = constant(name), dict(list(ways().items())[:count])
        results = {"paper": omkl.simulate(name, "path", method=omkl.paper(), **settings)}
        for case, result in (results | omkl.compare(name, cases, **settings)).items():
            mean, bits = result.loss.mean(axis=1, dtype=np.float64), result.bits.mean() / NODES
            yield {
                "data": name, "": case, "loss": f"{mean.mean():.4f}", "+-": f"{1.96 * error(mean):.4f}",
                "of constant": f"{mean.mean() / level:.3f}", "bytes": f"{bits / 8:.1f}",
            }  # fmt: skip


def constant(name: str) -> float:
    """Return the loss of the best constant: the entropy of the classes, or the variance of the targets."""
    data = load(name)
    if losses.named(data.loss) == losses.Squared():
        return float(np.var(data.y))
    shares = np.unique(data.y, return_counts=True)[1] / len(data.y)
    return float(-(shares * np.log(shares)).sum())


def sorted_(seeds: int, sets: Sequence[str], rows: int | None = None) -> Iterator[report.Row]:
    for name in sets:
        table = load(name)
        X, y = np.asarray(table.X[:rows], dtype=np.float32), np.asarray(table.y[:rows])
        level = np.nan
        for order in (shuffled, by_label, by_label_apart, by_position):
            found = np.stack([pooled(X, y, order, seed) for seed in range(seeds)], axis=1)
            for case, loss in zip(last_ways(), found, strict=True):
                level = loss.mean() if order is shuffled and case == "recommended" else level
                yield {
                    "data": name, "order": order.__name__, "": case, "loss": f"{loss.mean():.4f}",
                    "of alike": f"{loss.mean() / level:.3f}", "worst node": f"{loss.max(axis=1).mean() / level:.3f}",
                    **beside(loss, found[-1]),
                }  # fmt: skip


def last_ways() -> dict[str, tuple[Method, str]]:
    """Return what is compared where nodes differ; the last is 0.1's default."""
    return {name: ways()[name] for name in ("recommended", "no communication")} | {"0.1": (BEFORE, "path")}


def beside(loss: Floats, before: Floats) -> report.Row:
    """Return the change from 0.1's losses ``(seeds, J)``, seed by seed: of the mean over nodes, and of the worst."""
    changes = {"to 0.1": loss.mean(axis=1) / before.mean(axis=1), "worst to 0.1": loss.max(axis=1) / before.max(axis=1)}
    return {name: f"{100 * (ratio.mean() - 1):+.1f} ± {196 * error(ratio):.1f} %" for name, ratio in changes.items()}


def pooled(X: Inputs, y: Inputs, order: Order, seed: int) -> Floats:
    """Return the loss of every node's last model on a sample that none has seen, in each way, ``(ways, J)``."""
    rows, held = dealt(X, y, order, seed)
    found = []
    for method, graph in last_ways().values():
        result = omkl.simulate((X[rows], y[rows]), graph, method=method, seed=seed)
        models = result.theta[:, 0], result.log_weights[:, 0]
        found.append(scored(method, *models, result.features(0), X[held], y[held]).mean(axis=1))
    return np.stack(found)


def dealt(X: Inputs, y: Inputs, order: Order, seed: int) -> tuple[Integers, Integers]:
    """Return the rows of a stream ``(T, J)``, and others to score models on."""
    rng = np.random.default_rng(seed)
    held, rows = np.split(rng.permutation(len(X)), [min(HELD_OUT, len(X) // 10)])
    rounds = len(rows) // NODES
    rows = rows[: rounds * NODES]
    own = rows[order(X[rows], y[rows], rng)].reshape(NODES, rounds)
    return rng.permuted(own, axis=1).T, held


def scored(method: Method, theta: Inputs, log_weights: Inputs, made: Features, X: Inputs, y: Inputs) -> Floats:
    """Return the loss of every node's model on each of these samples, ``(J, n)``."""
    return metrics.pooled_losses(theta, log_weights, transform(X, made), y, method.objective)


def shuffled(X: Inputs, y: Inputs, rng: np.random.Generator) -> Integers:
    """Nodes that are alike."""
    return np.arange(len(X))


def by_label(X: Inputs, y: Inputs, rng: np.random.Generator) -> Integers:
    """Each node sees one class, wherever on the path it is."""
    shards = np.argsort(y, kind="stable").reshape(NODES, -1)
    return rng.permutation(shards).ravel()


def by_label_apart(X: Inputs, y: Inputs, rng: np.random.Generator) -> Integers:
    """One class at one end of the path, the other at the other."""
    return np.argsort(y, kind="stable")


def by_position(X: Inputs, y: Inputs, rng: np.random.Generator) -> Integers:
    """Slices along the first principal direction, in order along the path."""
    some = X[:3000] - X[:3000].mean(axis=0)
    return np.argsort(X @ np.linalg.svd(some, full_matrices=False)[2][0], kind="stable")


def averaged(method: omkl.Gossip) -> omkl.Gossip:
    """Return the same where all nodes hear all exactly: after every sample they hold the mean of their models."""
    return method.replace(quantizer=None, pace=None, sending=None, gamma=1.0, momentum=0.0)


def error(values: Sequence[float] | Floats) -> float:
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")


def main(which: str, seeds: str = "20", *sets: str) -> None:
    given, rows = (int(seeds), sets or DATA), []
    for row in {"alike": alike(*given), "sorted": sorted_(*given)}[which]:
        rows.append(row)
        print(report.table([row]), flush=True)
    report.finish("per_bit", rows, f"{which}, {NODES} nodes on a path, {seeds} seeds")


if __name__ == "__main__":
    main(*sys.argv[1:])
