"""What a setting makes of 80 bytes a round: the letter's and the recommended one, on nodes that are alike and not.

python -m benchmarks.per_bit alike [SEEDS [DATA ...]]     mean loss over the stream, 20 nodes on a path
python -m benchmarks.per_bit sorted [SEEDS [DATA ...]]    every node's last model on a held-out sample, nodes differ

Beside the loss is its ratio to that of the best constant.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

import omkl
from omkl import losses, metrics
from omkl.data import load
from omkl.features import Features, transform
from omkl.methods import Method
from omkl_lab.paper.frontier.study import alone

NODES = 20
DATA = ("banana", "credit_card", "mnist")
HELD_OUT = 2000

Floats: TypeAlias = npt.NDArray[np.float64]
Inputs: TypeAlias = npt.NDArray[np.float32]
Integers: TypeAlias = npt.NDArray[np.int64]
Order: TypeAlias = Callable[[Inputs, Inputs, np.random.Generator], Integers]
"""Returns the rows of a table, node by node."""


def alike(seeds: int, sets: Sequence[str]) -> None:
    best = omkl.recommended()
    cases = {
        "recommended": (best, "path"),
        "a message a sample": (replace(best, pace=None, sending=None), "path"),
        "frugal": (omkl.frugal(), "path"),
        "complete graph, no quantizer": (averaged(best), "complete"),
        "no communication": (alone(best), "path"),
    }
    for name in sets:
        level = constant(name)
        results = {"letter": omkl.simulate(name, "path", nodes=NODES, method=omkl.letter(), seeds=seeds)}
        results |= omkl.compare(name, cases, nodes=NODES, seeds=seeds)
        for case, result in results.items():
            mean, bits = result.loss.mean(axis=1, dtype=np.float64), result.bits.mean() / NODES
            print(
                f"{name}: {case}: {mean.mean():.4f} +- {1.96 * error(mean):.4f}, {mean.mean() / level:.3f} of constant"
                f", {bits / 8:.1f} bytes", flush=True,
            )  # fmt: skip


def constant(name: str) -> float:
    """Return the loss of the best constant: the entropy of the classes, or the variance of the targets."""
    data = load(name)
    if losses.named(data.loss) == losses.Squared():
        return float(np.var(data.y))
    shares = np.unique(data.y, return_counts=True)[1] / len(data.y)
    return float(-(shares * np.log(shares)).sum())


def sorted_(seeds: int, sets: Sequence[str]) -> None:
    for name in sets:
        table = load(name)
        X, y = np.asarray(table.X, dtype=np.float32), np.asarray(table.y)
        level = np.nan
        for order in (shuffled, by_label, by_label_apart, by_position):
            ways: dict[str, Method] = {"": omkl.recommended(), ", alone": alone(omkl.recommended())}
            for case, method in ways.items():
                found = np.concatenate([pooled(X, y, order, method, seed) for seed in range(seeds)])
                level = found.mean() if order is shuffled and not case else level
                print(
                    f"{name}: {order.__name__}{case}: {found.mean():.4f}, {found.mean() / level:.3f} of alike, "
                    f"worst node {found.max(axis=1).mean() / level:.3f}", flush=True,
                )  # fmt: skip


def pooled(X: Inputs, y: Inputs, order: Order, method: Method, seed: int) -> Floats:
    """Return the loss of every node's last model on a sample that none has seen, ``(1, J)``."""
    rows, held = dealt(X, y, order, seed)
    result = omkl.simulate((X[rows], y[rows]), "path", method=method, seed=seed)
    made = Features(result.frequencies[0], None if result.basis is None else result.basis[0])
    found = scored(method, result.theta[:, 0], result.log_weights[:, 0], made, X[held], y[held])
    return np.asarray(found.mean(axis=1)[None])


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
    return replace(method, quantizer=None, pace=None, sending=None, gamma=1.0, momentum=0.0)


def error(values: Sequence[float] | Floats) -> float:
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")


if __name__ == "__main__":
    {"alike": alike, "sorted": sorted_}[sys.argv[1]](int((sys.argv[2:] or ["20"])[0]), sys.argv[3:] or DATA)
