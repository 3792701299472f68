"""After an abrupt change: in how many samples a learner in one place is back at the loss it had.

python -m benchmarks.drift [REPEATS] [STREAM ...]     all streams where none is named; the figure is out/bench/drift.png

Runs of a stream are kept in out/bench and not repeated.

Half way every stream changes at once: Banana's labels are swapped, or its inputs turned by a right angle; SEA's
threshold falls from 9.5 to 7, one label in ten being wrong; the columns of Credit-Card change places. Each repeat has
its own order of the rows or draws, and its own features.

*Before* is the mean progressive loss of the last 1,000 samples before the change. *Back* is the first sample after it
at which the mean over the repeats and the last 100 samples is at most a tenth above before; *back at the best*, at most
a tenth above the lowest before of all rules, for one that never knew much is soon back. Intervals (95 %) are those of
the repeats drawn anew, and *sooner* is the share of these draws in which the rule is back before both SGD and river's
forest. Learners with kernels have the same bank and as many coefficients; rates of SGD are tried, and the one with the
lowest loss over the whole stream is shown. River's forest gives probabilities of zero and one; they count as 0.01 and
0.99.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from benchmarks import eager, report

from omkl import AdaRaker, Basis, Local, Newton, Shared, gaussian, topology
from omkl.data import load
from omkl.methods import Method

MOST_ROWS = 6000
BEFORE, WINDOW, NEXT = 1000, 100, 500
WITHIN = 1.1
DRAWS = 1000
SURE = 0.01

Floats: TypeAlias = npt.NDArray[Any]


class Table(NamedTuple):
    """A stream whose second half is another task."""

    X: Floats
    y: Floats


def swapped(seed: int, count: int = MOST_ROWS) -> Table:
    X, y = rows("banana", seed, count)
    y[len(y) // 2 :] *= -1
    return Table(X, y)


def turned(seed: int, count: int = MOST_ROWS) -> Table:
    X, y = rows("banana", seed, count)
    half = len(X) // 2
    X[half:] = X[half:, ::-1] * np.array([-1, 1], X.dtype)
    return Table(X, y)


def permuted(seed: int, count: int = MOST_ROWS) -> Table:
    X, y = rows("credit_card", seed, count)
    half = len(X) // 2
    X[half:] = X[half:, np.random.default_rng(seed).permutation(X.shape[1])]
    return Table(X, y)


def sea(seed: int, count: int = MOST_ROWS) -> Table:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-5, 5, size=(count, 3)).astype(np.float32)
    threshold = np.where(np.arange(count) < count // 2, 9.5, 7) - 10
    right = rng.random(count) >= 0.1
    return Table(X, np.where((X[:, 0] + X[:, 1] <= threshold) == right, 1, -1))


def rows(name: str, seed: int, count: int = MOST_ROWS) -> Table:
    data = load(name)
    order = np.random.default_rng(seed).permutation(len(data.X))[:count]
    return Table(data.X[order], data.y[order])


STREAMS: dict[str, Callable[[int, int], Table]] = {
    "Banana, swapped": swapped,
    "Banana, turned": turned,
    "SEA": sea,
    "Credit-Card": permuted,
}
BANK: dict[str, Any] = {"kernels": gaussian(0.35, 0.7, 1.4), "sigma": "median", "features": 50, "regularization": 0.0}
IN_BASIS = BANK | {"features": 256, "basis": Basis(rank=100, rows=300), "weight_rate": 1.0}
RATES, FOREST = "SGD, best of four rates", "river's ARF"
RULES: dict[str, tuple[Method, ...]] = {
    RATES: tuple(Local(eta=eta, weight_rate=0.5, **BANK) for eta in (0.3, 1.0, 3.0, 10.0)),
    "AdaRaker": (AdaRaker(**BANK),),
    "Newton": (Local(learner=Newton(100), weight_rate=0.5, **BANK),),
    "Newton, forget 0.95": (Local(learner=Newton(100, 0.95), weight_rate=0.5, **BANK),),
    "Newton, forget 0.9": (Local(learner=Newton(100, 0.9), weight_rate=0.5, **BANK),),
    "Shared": (Local(learner=Shared(), **IN_BASIS),),
    "Shared, forget 0.997": (Local(learner=Shared(forget=0.997), **IN_BASIS),),
}


def learned(case: tuple[str, str, int, int]) -> Floats:
    """Return progressive loss and error: of so many repeats ``(2, T, repeats)``, or of a forest's repeat ``(2, T)``."""
    name, rule, count, rows = case
    if rule == FOREST:
        return _grown(STREAMS[name](count, rows), count)
    tables = [STREAMS[name](seed, rows) for seed in range(count)]
    return min((_played(method, tables) for method in RULES[rule]), key=lambda found: float(found[0].mean()))


def _played(method: Method, tables: list[Table]) -> Floats:
    """Run repeats side by side, as nodes without links."""
    made = [method.bank.draw(X.shape[1], seed, X[: len(X) // 2]) for seed, (X, _) in enumerate(tables)]
    z = np.stack([eager.mapped(X, features) for (X, _), features in zip(tables, made, strict=True)], axis=1)
    spectra = [features.spectrum for features in made if features.spectrum is not None]
    y, network = np.stack([y for _, y in tables], axis=1), eager.fixed(topology.build("path", len(tables)))
    infos = [
        moment.info for moment in eager.play(method, z, y, network, spectrum=np.stack(spectra) if spectra else None)
    ]
    wrong = [1 - method.objective.score(info.output, label[:, None]) for info, label in zip(infos, y, strict=True)]
    return np.stack([[info.loss for info in infos], wrong])


def _grown(table: Table, seed: int) -> Floats:
    from river.forest import ARFClassifier

    forest, found = ARFClassifier(seed=seed), []
    for x, label in zip(*map(np.ndarray.tolist, table), strict=True):
        row = dict(enumerate(x))
        chance = forest.predict_proba_one(row).get(label, 0.0)
        found.append((-np.log(np.clip(chance, SURE, 1 - SURE)), float(chance < 0.5)))
        forest.learn_one(row, label)
    return np.array(found).T


def back(curve: Floats, bar: float) -> float:
    """Return how many samples after the change the mean of the last ``WINDOW`` is below the bar; inf if never."""
    sums = np.cumsum(curve[len(curve) // 2 :])
    means = (sums[WINDOW:] - sums[:-WINDOW]) / WINDOW
    below = np.flatnonzero(means <= bar)
    return float(below[0] + WINDOW + 1) if len(below) else np.inf


def earlier(curve: Floats) -> float:
    half = len(curve) // 2
    return float(curve[max(0, half - BEFORE) : half].mean())


def described(found: dict[str, Floats], name: str) -> Iterator[report.Row]:
    """Yield a row for every rule, given losses ``(T, repeats)``."""
    best = min(earlier(run.mean(axis=1)) for run in found.values())
    repeats = next(iter(found.values())).shape[1]
    draws = np.random.default_rng(0).integers(repeats, size=(DRAWS, repeats))
    curves = {rule: [run[:, draw].mean(axis=1) for draw in draws] for rule, run in found.items()}
    own = {rule: np.array([back(curve, WITHIN * earlier(curve)) for curve in each]) for rule, each in curves.items()}
    others = np.minimum(own[RATES], own[FOREST])
    for rule, run in found.items():
        mean, half = run.mean(axis=1), len(run) // 2
        common = np.array([back(curve, WITHIN * best) for curve in curves[rule]])
        yield {
            "stream": name, "": rule, "before": earlier(mean), "next 500": float(mean[half : half + NEXT].mean()),
            "at the end": float(mean[-BEFORE:].mean()),
            "back": _interval(back(mean, WITHIN * earlier(mean)), own[rule]),
            "sooner": f"{(own[rule] < others).mean():.1%}",
            "back at the best": _interval(back(mean, WITHIN * best), common),
        }  # fmt: skip


def _interval(value: float, drawn: Floats) -> str:
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    each = [f"{x:.0f}" if np.isfinite(x) else "never" for x in (value, low, high)]
    return each[0] if len(set(each)) == 1 else f"{each[0]} [{each[1]}, {each[2]}]"


def draw(found: dict[str, dict[str, Floats]], path: Path) -> None:
    """Draw the loss after the change, averaged over windows."""
    import matplotlib.pyplot as plt
    from matplotlib import ticker

    figure, axes = plt.subplots(-(-len(found) // 2), 2, figsize=(9, 7), squeeze=False, layout="constrained")
    for axis, (name, runs) in zip(axes.flat, found.items(), strict=False):
        for rule, run in runs.items():
            mean, half = run.mean(axis=1), len(run) // 2
            smooth = np.convolve(mean, np.ones(WINDOW) / WINDOW, "valid")
            axis.plot(np.arange(len(smooth)) + WINDOW - half, smooth, label=rule, linewidth=1)
        axis.set(title=name, xlabel="samples after the change", xlim=(-300, 1500), yscale="log")
        axis.axvline(0, color="gray", linewidth=0.5)
        axis.set_ylabel("log loss, mean of the last 100")
        axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axis.yaxis.set_major_formatter(ticker.FormatStrFormatter("%g"))
        axis.yaxis.set_minor_locator(ticker.NullLocator())
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def runs(name: str, repeats: int, count: int) -> dict[str, Floats]:
    """Return progressive loss and error of every rule on a stream, ``(2, T, repeats)``."""
    path = Path("out/bench") / f"drift_{name.lower().replace(', ', '_')}_{repeats}_{count}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        cases = [(name, rule, repeats, count) for rule in RULES]
        cases += [(name, FOREST, seed, count) for seed in range(repeats)]
        done = list(eager.in_processes(learned, cases))
        found = dict(zip(RULES, done, strict=False)) | {FOREST: np.stack(done[len(RULES) :], axis=-1)}
        np.savez(path, **found)  # type: ignore[arg-type]
    with np.load(path) as kept:
        return dict(kept)


def main(repeats: int, names: list[str], count: int = MOST_ROWS) -> None:
    found = {name: runs(name, repeats, count) for name in names}
    losses, errors = ({name: {k: v[part] for k, v in each.items()} for name, each in found.items()} for part in (0, 1))
    table = [row for name in names for row in described(losses[name], name)]
    wrong = [row | {"stream": f"{name}, errors"} for name in names for row in described(errors[name], name)]
    report.finish("drift", table + wrong, f"{repeats} repeats; log loss, then errors")
    draw(losses, Path("out/bench/drift.png"))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10, sys.argv[2:] or list(STREAMS))
