"""Columns weighed by the labels of the landmarks, beside columns as they are: what a network gains by sharing those.

python -m benchmarks.columns [SEEDS [ROUNDS [DATA ...]]]

20 nodes on a path, the default method. *Fifty columns* are standard normal, y = sign(sin(2 x3) + x7^2 - x3 x11), 8,000
rows: three of fifty matter.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from benchmarks import report
from benchmarks.per_bit import NODES

import omkl

FIFTY, ROWS = "fifty columns", 8000
DATA = ("banana", "digits", "credit_card", "mnist", FIFTY)


def fifty() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(1).normal(size=(ROWS, 50)).astype(np.float32)
    return X, np.where(np.sin(2 * X[:, 3]) + X[:, 7] ** 2 - X[:, 3] * X[:, 11] > 0, 1, -1)


def rows(names: tuple[str, ...], seeds: int, rounds: int | None = None) -> Iterator[report.Row]:
    """Yield the losses of a data set with labels of the landmarks, and without."""
    plain = omkl.recommended()
    weighed = plain.replace(basis=omkl.Landmarks(source="labelled"))
    for name in names:
        data: Any = fifty() if name == FIFTY else name
        ran = [
            omkl.simulate(data, "path", nodes=NODES, method=method, seeds=seeds, rounds=rounds)
            for method in (plain, weighed)
        ]
        before, after = (one.loss.mean() for one in ran)
        yield {
            "data": name, "rounds": len(ran[0].rounds), "loss": f"{before:.4f}", "weighed": f"{after:.4f}",
            "%": f"{100 * (after / before - 1):+.1f}",
            "bytes": f"{ran[0].bits.mean() / NODES / 8:.0f}", "bytes ": f"{ran[1].bits.mean() / NODES / 8:.0f}",
        }  # fmt: skip


def main(seeds: str = "2", rounds: str = "0", *names: str) -> None:
    made = []
    for row in rows(names or DATA, int(seeds), int(rounds) or None):
        made.append(row)
        print(report.table([row]), flush=True)
    report.finish("columns", made, f"{NODES} nodes on a path, {seeds} seeds, loss over the stream")


if __name__ == "__main__":
    main(*sys.argv[1:])
