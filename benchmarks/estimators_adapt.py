"""The estimators at their defaults where data drift, columns do not matter or units change, beside other learners.

python -m benchmarks.estimators_adapt [SHARE [NAME ...]]     SHARE of every stream's rows, 1 unless said

Rows one by one, each predicted before it is learned. *Error* of streams is the share of wrong classes, or the squared
error over the variance of the targets, without the first ten rows. *0.1* is what version 0.1 had, *aim* what was aimed
at before the settings were chosen. Settings were chosen on SEA, Friedman and ImageSegments, and on Banana, Digits and
Air of ``benchmarks.estimators``.

river's forest and trees are as they come; its neighbors (500 rows) and linear models have a running scaler. Boosting is
scikit-learn's histogram gradient boosting, fitted anew to all rows so far after every 250.
"""

import itertools
import pickle
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from benchmarks import report
from benchmarks.estimators import Table
from river import compose, datasets, forest, linear_model, neighbors, preprocessing, tree
from river.datasets import synth
from sklearn.datasets import make_moons
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from omkl import river

FIRST, REFIT, WINDOW = 10, 250, 500


class Played(NamedTuple):
    guesses: list[Any]
    microseconds: float
    """A row, median of the last thousand."""
    bytes: int
    """Of the pickled model."""


def drawn(stream: Any, rows: int | None, classes: int) -> Table:
    taken = list(itertools.islice(stream, rows))
    names = sorted(taken[0][0])
    X = np.array([[float(x[name]) for name in names] for x, _ in taken])
    labels = [y for _, y in taken]
    if classes == 0:
        return Table(X, np.array(labels), 0)
    number = {label: k for k, label in enumerate(dict.fromkeys(labels))}
    known = [int(y) for y in labels] if classes == 2 else [number[y] for y in labels]
    return Table(X, np.array(known), classes)


def joined(*parts: Table) -> Table:
    return Table(np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts]), 2)


def segments() -> Table:
    stream: Any = datasets.ImageSegments  # which has no types
    return drawn(stream(), None, 7)


def rbf() -> Table:
    drifting = synth.RandomRBFDrift(
        seed_model=1, seed_sample=1, n_classes=4, n_features=8, n_centroids=20, change_speed=0.002, n_drift_centroids=20
    )
    return drawn(drifting, 4000, 4)


STREAMS: dict[str, tuple[Callable[[], Table], str, str]] = {
    "Agrawal, function 2": (
        lambda: drawn(synth.Agrawal(classification_function=2, seed=1), 3000, 2), ".142", ".05"),
    "Friedman": (lambda: drawn(synth.Friedman(seed=1), 4000, 0), ".151", ".09"),
    "ImageSegments": (segments, ".072", ".06"),
    "SEA, four variants": (
        lambda: joined(*(drawn(synth.SEA(variant=v, noise=0.1, seed=1 + v), 1000, 2) for v in range(4))),
        ".157", ".148"),
    "RandomRBFDrift": (rbf, ".264", ".21"),
    "Hyperplane": (
        lambda: drawn(synth.Hyperplane(n_features=10, n_drift_features=5, mag_change=0.003, seed=1), 4000, 2),
        ".101", ".095"),
    "Agrawal, functions 0, 2, 4": (
        lambda: joined(*(drawn(synth.Agrawal(classification_function=f, seed=f + 1), 1300, 2) for f in (0, 2, 4))),
        ".260", ".19"),
}  # fmt: skip


def fifty_columns() -> Table:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(3000, 50))
    return Table(X, np.sin(2 * X[:, 3]) + X[:, 7] ** 2 - X[:, 3] * X[:, 11] + 0.1 * rng.normal(size=3000), 0)


def moons(change: Callable[[np.ndarray, np.ndarray], None]) -> Table:
    X, y = make_moons(2500, noise=0.25, random_state=0)
    change(X, y)
    return Table(X, y, 2)


def stuck(X: np.ndarray, y: np.ndarray) -> None:
    X[:600], y[:600] = X[0], y[0]


def larger(X: np.ndarray, y: np.ndarray) -> None:
    X[512:] *= 100


def smaller(X: np.ndarray, y: np.ndarray) -> None:
    X[512:] /= 100


def spoiled(target: float | None) -> Table:
    made = drawn(synth.Friedman(seed=1), 1500, 0)
    if target is not None:
        made.y[1400] = target
    return made


def walk(seed: int) -> Table:
    """Return five lagged values of a random walk with trend, to predict the next one from."""
    steps = np.cumsum(0.1 + np.random.default_rng(seed).normal(size=2005))
    return Table(np.stack([steps[k : 2000 + k] for k in range(5)], axis=1), steps[5:], 0)


def ridge(data: Table) -> list[float]:
    """Return progressive predictions of ridge regression with a constant, fitted to all rows so far."""
    X = np.column_stack([data.X, np.ones(len(data.X))])
    moments, products, guesses = np.eye(X.shape[1]), np.zeros(X.shape[1]), []
    for x, y in zip(X, data.y, strict=True):
        guesses.append(float(x @ np.linalg.solve(moments, products)))
        moments += np.outer(x, x)
        products += x * y
    return guesses


def learners(data: Table) -> dict[str, Any]:
    numbers, scaler = data.classes == 0, preprocessing.StandardScaler
    linear = linear_model.LogisticRegression if data.classes == 2 else linear_model.SoftmaxRegression
    search = neighbors.LazySearch(window_size=WINDOW)
    near = neighbors.KNNRegressor if numbers else neighbors.KNNClassifier
    return {
        "omkl": river.OMKLRegressor() if numbers else river.OMKLClassifier(),
        "forest": forest.ARFRegressor(seed=1) if numbers else forest.ARFClassifier(seed=1),
        "adaptive tree": tree.HoeffdingAdaptiveTreeRegressor(seed=1)
        if numbers
        else tree.HoeffdingAdaptiveTreeClassifier(seed=1),
        "neighbors": compose.Pipeline(scaler(), near(engine=search)),
        "linear": compose.Pipeline(scaler(), linear_model.LinearRegression() if numbers else linear()),
    }


def play(model: Any, data: Table) -> Played:
    names = [f"x{k:03d}" for k in range(data.X.shape[1])]
    guesses, clock = [], [time.perf_counter()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for row, y in zip(data.X.tolist(), data.y.tolist(), strict=True):
            x = dict(zip(names, row, strict=True))
            guesses.append(model.predict_one(x))
            model.learn_one(x, y)
            clock.append(time.perf_counter())
    each = 1e6 * np.diff(clock)
    return Played(guesses, float(np.median(each[-1000:])), len(pickle.dumps(model)))


def boosted(data: Table) -> list[Any]:
    """Return what gradient boosting says of each block, fitted to all rows before it; of the first, mean or mode."""
    kind = HistGradientBoostingRegressor if data.classes == 0 else HistGradientBoostingClassifier
    usual: Callable[[Any], Any] = (lambda y: np.bincount(y).argmax()) if data.classes else np.mean
    guesses: list[Any] = [0] + [usual(data.y[:k]) for k in range(1, min(REFIT, len(data.X)))]
    with threadpool_limits(1):  # blocks are small, and threads that wait take time from others
        for start in range(REFIT, len(data.X), REFIT):
            model = kind(random_state=0).fit(data.X[:start], data.y[:start])
            guesses += model.predict(data.X[start : start + REFIT]).tolist()
    return guesses


def error(guesses: list[Any], data: Table, rows: slice = slice(None)) -> float:
    """Return the share of wrong classes, or the squared error over the variance without the first rows."""
    y = data.y[rows]
    if data.classes:
        return float(np.mean([guess != label for guess, label in zip(guesses[rows], y.tolist(), strict=True)]))
    apart = np.array([guess or 0.0 for guess in guesses[rows]]) - y
    first = FIRST if rows.start is None else 0
    return float(np.mean(apart[first:] ** 2) / np.var(y[first:]))


def stream_row(name: str, share: float) -> report.Row:
    made, before, aim = STREAMS[name]
    data = made()
    count = int(share * len(data.X))
    data = Table(data.X[:count], data.y[:count], data.classes)
    played = {learner: play(model, data) for learner, model in learners(data).items()}
    row = {"error": name, "0.1": before, "aim": aim}
    row |= {learner: f"{error(one.guesses, data):.3f}" for learner, one in played.items()}
    return row | {"boosting": f"{error(boosted(data), data):.3f}"}


def cost_rows(names: list[str], share: float) -> list[report.Row]:
    made = []
    for name in names:
        data = STREAMS[name][0]()
        count = int(share * len(data.X))
        played = {kind: play(model, Table(data.X[:count], data.y[:count], data.classes))
                  for kind, model in learners(data).items()}  # fmt: skip
        costs = {kind: f"{one.microseconds:.0f} us, {one.bytes / 1e3:.0f} kB" for kind, one in played.items()}
        made.append({"row and memory": name} | costs)
    return made


def last(data: Table, rows: int) -> dict[str, str]:
    """Return the error of every learner over the last rows."""
    found = {}
    for learner, model in learners(data).items():
        found[learner] = f"{error(play(model, data).guesses, data, slice(len(data.X) - rows, None)):.3f}"
    return found


def single_rows() -> list[report.Row]:
    """Return the cases that are about one thing each."""
    cases = {
        "3 of 50 columns matter, 1 - R^2 of the last third": (fifty_columns(), 1000, "1.07", ".10"),
        "moons, a sensor stuck for 600 rows": (moons(stuck), 1500, ".501", ".12"),
        "moons, inputs times 100 from row 512 on": (moons(larger), 1500, ".371", ".10"),
        "moons, inputs over 100 from row 512 on": (moons(smaller), 1500, ".329", ".10"),
    }
    return [{"last rows": name, "0.1": before, "aim": aim} | last(data, rows)
            for name, (data, rows, before, aim) in cases.items()]  # fmt: skip


def absurd_rows() -> list[report.Row]:
    clean = spoiled(None)
    made = []
    for target in (None, 1e6, -1e6):
        guesses = play(river.OMKLRegressor(), spoiled(target)).guesses
        fit = 1 - error(guesses, clean, slice(1401, None))
        made.append({"Friedman, target 1,400 of 1,500": str(target), "R^2 of the rows after it": f"{fit:.3f}"})
    return made


def walk_rows() -> list[report.Row]:
    made = []
    for seed in (1, 2, 3):
        data = walk(seed)
        own, theirs = error(play(river.OMKLRegressor(), data).guesses, data), error(ridge(data), data)
        made.append({"random walk with trend, seed": seed, "omkl over ridge": f"{own / theirs:.3f}", "aim": "1.1"})
    return made


def main(share: str = "1", *names: str) -> None:
    chosen = list(names or STREAMS)
    made = []
    for name in chosen:
        made.append(stream_row(name, float(share)))
        print(report.table([made[-1]]), flush=True)
    made += cost_rows(chosen[:2], float(share))
    if not names:
        made += single_rows() + absurd_rows() + walk_rows()
    report.finish("estimators_adapt", made, f"{share} of the rows of every stream, one process")


if __name__ == "__main__":
    main(*sys.argv[1:])
