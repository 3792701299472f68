"""The estimators at their defaults beside other online learners: rows one by one, each predicted before it is learned.

python -m benchmarks.estimators [ROWS [SECONDS [DATA ...]]]

At most so many rows, and seconds a learner: one that is slower has its error over the rows it came to, and that of
omkl over as many beside it. Error is the share of wrong classes, or the squared error over the variance of the targets.
Competitors have a fair chance: scikit-learn's gradient descent has columns and targets standardized by the whole table
and the best of five rates and two bandwidths in hindsight, on 100 random features as its RBFSampler draws them; river's
has a running scaler and the best of two bandwidths and two rates, on 100 of every column, for that is what its sampler
makes, and rates by their number; trees are as they come.
"""

import itertools
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from benchmarks import eager, report
from river import compose, feature_extraction, forest, linear_model, optim, preprocessing, tree
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import SGDClassifier, SGDRegressor

from omkl import river
from omkl.data import load
from omkl.data.partition import permutation

IN_TIME = ("beijing", "twitter", "air", "energy")  # rows are in the order of time
DATA = ("banana", "credit_card", "digits10", "mnist10", *IN_TIME)
COMPONENTS = 100


class Table(NamedTuple):
    X: np.ndarray
    y: np.ndarray
    classes: int
    """Zero in regression."""


class Score(NamedTuple):
    error: float
    rows: int
    microseconds: float
    later: float
    """The same over the last 1,000 rows."""


class Learner(NamedTuple):
    predict: Callable[[Any], Any]
    learn: Callable[[Any, Any], Any]
    rows: Callable[[np.ndarray], list[Any]]


def table(name: str, rows: int) -> Table:
    data = load(name)
    count = len(data.X)
    order = np.arange(0, count, max(1, count // rows)) if name in IN_TIME else permutation(count, 0)
    X, y = (np.asarray(part[order[:rows]], np.float64) for part in (data.X, data.y))
    if name in IN_TIME:
        return Table(X, y, 0)
    number = np.unique(y, return_inverse=True)[1]
    return Table(X, number, int(number.max()) + 1)


def learners(data: Table) -> dict[str, dict[str, Callable[[], Learner]]]:
    """Return what is compared: by name, the settings to choose from."""
    regression = data.classes == 0
    forests = forest.ARFRegressor if regression else forest.ARFClassifier
    trees = tree.HoeffdingTreeRegressor if regression else tree.HoeffdingTreeClassifier
    own = river.OMKLRegressor if regression else river.OMKLClassifier
    scales: tuple[float | str, ...] = ("scale", 1.0)
    widths = {"gamma 1": 1.0, "gamma 1/d": 1 / data.X.shape[1]}
    length = COMPONENTS * data.X.shape[1] / 2  # of river's features, squared: its cosines are not scaled
    rates = [rate / length for rate in ((0.1, 0.5) if regression else (0.5, 4.0))]
    return {
        "omkl": {"": lambda: _by_name(own())},
        "scikit-learn, RBFSampler and SGD": {
            f"rate {rate:g}, gamma {gamma}": partial(_descent, data, rate, gamma)
            for rate, gamma in itertools.product((0.01, 0.1, 0.3, 1.0, 3.0), scales)
        },
        "river, RBFSampler and linear": {
            f"rate {rate:g}, {width}": partial(_linear, data, rate, gamma)
            for rate, (width, gamma) in itertools.product(rates, widths.items())
        },
        "river, Hoeffding tree": {"": lambda: _by_name(trees())},
        "river, adaptive random forest": {"": lambda: _by_name(forests(seed=0))},
    }


def run(made: Learner, data: Table, seconds: float) -> Score:
    """Return the progressive error over the rows that there was time for."""
    wrong = []
    rows, targets = made.rows(data.X), data.y.tolist()
    clock = [time.perf_counter()]
    for x, y in zip(rows, targets, strict=True):
        guess = made.predict(x)
        wrong.append(guess != y if data.classes else ((guess or 0.0) - y) ** 2)
        made.learn(x, y)
        clock.append(time.perf_counter())
        if clock[-1] - clock[0] > seconds or not wrong[-1] < 1e12:
            break
    unit = 1.0 if data.classes else float(np.var(data.y[: len(wrong)])) or 1.0
    each = 1e6 * np.diff(clock)
    return Score(float(np.mean(wrong)) / unit, len(wrong), float(each.mean()), float(each[-1000:].mean()))


def best(case: tuple[str, str, int, float]) -> Score:
    """Return the score of the best setting of a learner on some rows, of those that came about equally far."""
    name, learner, rows, seconds = case
    data = table(name, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = [run(make(), data, seconds) for make in learners(data)[learner].values()]
    most = max(score.rows for score in scores)
    return min((score for score in scores if score.rows > 0.8 * most), key=lambda score: score.error)


def _by_name(model: Any) -> Learner:
    def rows(X: np.ndarray) -> list[Any]:
        names = [f"x{k}" for k in range(X.shape[1])]
        return [dict(zip(names, row, strict=True)) for row in X.tolist()]

    return Learner(model.predict_one, model.learn_one, rows)


def _linear(data: Table, rate: float, gamma: float) -> Learner:
    features = feature_extraction.RBFSampler(gamma=gamma, n_components=COMPONENTS, seed=0)
    scaler, descent = preprocessing.StandardScaler(), optim.SGD(rate)
    model: Any
    if data.classes == 0:
        linear = linear_model.LinearRegression(optimizer=descent, intercept_lr=rate)
        model = preprocessing.TargetStandardScaler(regressor=linear)
    elif data.classes == 2:
        model = linear_model.LogisticRegression(optimizer=descent)
    else:
        model = linear_model.SoftmaxRegression(optimizer=descent)
    return _by_name(compose.Pipeline(scaler, features, model))


def _descent(data: Table, rate: float, gamma: float | str) -> Learner:
    scale = np.where(data.X.std(axis=0) > 0, data.X.std(axis=0), 1)
    X = (data.X - data.X.mean(axis=0)) / scale
    features = RBFSampler(gamma=gamma, n_components=COMPONENTS, random_state=0).fit(X)
    settings = {"learning_rate": "constant", "eta0": rate, "random_state": 0}
    if data.classes:
        known = np.arange(data.classes)
        model = SGDClassifier(loss="log_loss", **settings).partial_fit(features.transform(X[:1]), data.y[:1], known)
        return _scikit(lambda x: model.predict(features.transform(x))[0],
                       lambda x, y: model.partial_fit(features.transform(x), [y]), X)  # fmt: skip
    center, unit = data.y.mean(), data.y.std()
    line = SGDRegressor(**settings).partial_fit(features.transform(X[:1]), [0.0])
    return _scikit(lambda x: line.predict(features.transform(x))[0] * unit + center,
                   lambda x, y: line.partial_fit(features.transform(x), [(y - center) / unit]), X)  # fmt: skip


def _scikit(predict: Any, learn: Any, X: np.ndarray) -> Learner:
    return Learner(predict, learn, lambda _: [row[None] for row in X])


def rows(names: tuple[str, ...], count: int, seconds: float) -> Iterator[report.Row]:
    for name in names:
        which = list(learners(table(name, 2)))
        found = dict(zip(which, eager.in_processes(best, [(name, one, count, seconds) for one in which]), strict=True))
        for learner, score in found.items():
            own = found["omkl"] if score.rows == found["omkl"].rows else best((name, "omkl", score.rows, seconds))
            yield {
                "data": name, "learner": learner, "rows": score.rows, "error": f"{score.error:.4f}",
                "omkl's on these": f"{own.error:.4f}", "us a row": f"{score.microseconds:.0f}",
                "later": f"{score.later:.0f}",
            }  # fmt: skip


def main(count: str = "10000", seconds: str = "120", *names: str) -> None:
    made = []
    for row in rows(names or DATA, int(count), float(seconds)):
        made.append(row)
        print(report.table([row]), flush=True)
    note = f"at most {count} rows and {seconds} s a learner and setting, each on one core beside another"
    report.finish("estimators", made, note)


if __name__ == "__main__":
    main(*sys.argv[1:])
