"""Raw inputs: what it costs to standardize them by what each node has seen, on nodes that are alike and not.

python -m benchmarks.units [SEEDS]

Banana with one column in pascals and one in degrees; 20 nodes on a path, one round of gossip a sample.
"""

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks import report
from benchmarks.per_bit import NODES, Floats, Order, by_label, by_position, error, shuffled

import omkl
from omkl.data import load

ROWS = 30  # that tell all nodes the units
HELD_OUT = 530
SETTING = omkl.recommended(gamma=0.25, momentum=0.7, pace=None, sending=None)


def rows(seeds: int, count: int | None = None, held: int = HELD_OUT) -> Iterator[report.Row]:
    """Yield the losses of every case and order, on the first so many rows of Banana, some of them held out."""
    table = load("banana")
    X, y = table.X[:count].astype(np.float64), table.y[:count].astype(np.int64)
    raw = X * [1000, 1] + [101325, 20]
    few = raw[np.random.default_rng(0).permutation(len(raw))[:ROWS]]
    known = (raw - few.mean(axis=0)) / few.std(axis=0)
    closed = SETTING.replace(basis=omkl.Landmarks(rank=120, source="normal"))
    cases: dict[str, tuple[Floats, dict[str, Any]]] = {
        "as the data set has them": (X, {}),
        "raw": (raw, {}),
        "raw, standardize": (raw, {"standardize": True}),
        "raw, standardize, no sample": (raw, {"standardize": True, "method": closed}),
        f"by {ROWS} rows that all hold": (known, {}),
    }
    for name, (inputs, settings) in cases.items():
        for order in (shuffled, by_position, by_label):
            runs = np.array([score(inputs, X, y, order, seed, held, **settings) for seed in range(seeds)])
            stream, last = runs.mean(axis=0)
            yield {
                "inputs": name, "order": order.__name__,
                "stream": f"{stream:.4f}", "+-": f"{1.96 * error(runs[:, 0]):.4f}",
                "held out": f"{last:.4f}", "+- ": f"{1.96 * error(runs[:, 1]):.4f}",
            }  # fmt: skip


def main(seeds: int) -> None:
    report.finish("units", list(rows(seeds)), f"Banana, {NODES} nodes on a path, {seeds} seeds")


def score(
    inputs: Floats,
    X: Floats,
    y: npt.NDArray[np.int64],
    order: Order,
    seed: int,
    held_out: int,
    standardize: bool = False,
    method: omkl.Gossip | None = None,
) -> tuple[float, float]:
    """Return the mean loss over the stream, and that of the nodes' last models on samples that none has seen."""
    rng = np.random.default_rng(seed)
    held, rows = np.split(rng.permutation(len(X)), [held_out])
    rows = rows[: len(rows) // NODES * NODES]
    dealt = rows[order(X[rows].astype(np.float32), y[rows].astype(np.float32), rng)].reshape(NODES, -1)
    dealt = rng.permuted(dealt, axis=1).T
    method = method or SETTING
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which say that raw inputs are far
        result = omkl.simulate((inputs[dealt], y[dealt]), "path", method=method, seed=seed, standardize=standardize)
    outputs = np.stack([result.model(node=j).decision_function(inputs[held]) for j in range(NODES)])
    loss = method.objective
    return float(result.loss.mean()), float(loss.value(outputs, loss.encode(y[held])).mean(dtype=np.float64))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
