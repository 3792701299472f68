"""The paper's experiments: settings, runs, and the numbers its claims are about.

All methods that are compared on a data set run together on the same samples, features and dither, so that every
difference is paired. The runs of a data set are spread over several shuffles, because shuffles vary the loss as much as
features do.
"""

import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from omkl import storage
from omkl.methods import Choco, Complete, Local, Method, paper
from omkl.quantizers import QSGD
from omkl.simulator import compare
from omkl.wire import VERSION

NODES = 20
SHUFFLES = 5
LEVELS = {7: 3, 15: 4, 31: 5, 255: 8}
"""M and its bits, of claim (e)."""

TITLES = {
    "banana": "Banana",
    "credit_card": "Credit-Card",
    "mnist": "MNIST, 8 against the rest",
    "digits": "Digits, 8 against the rest",
}

Cases = Mapping[str, tuple[Method, str]]
Progress = Callable[[str, int, int], None]
Tell = Callable[[int, int], None]
Arrays: TypeAlias = storage.Arrays
Floats = npt.NDArray[np.float64]

FIGURE1: Cases = {
    "gossip": (paper(), "path"),
    "complete": (Complete(), "complete"),
    "single": (Choco(), "path"),
    "local": (Local(), "path"),
    "ring": (paper(), "ring"),
    "full": (paper(), "complete"),
    **{f"M={m}": (paper(quantizer=QSGD(bits=bits)), "path") for m, bits in LEVELS.items() if m > 7},
    "exact": (paper(quantizer=None), "path"),
}
"""The paper's steps, eta = 0.01 and gamma = 0.009."""

FIGURE2: Cases = {graph: (paper(eta=0.1, gamma=0.09, quantizer=None), graph) for graph in ("complete", "ring", "path")}


@dataclass(frozen=True)
class Store:
    """A folder of npz files, each with the settings that made it."""

    folder: Path

    def get(self, name: str, settings: dict[str, Any], compute: Callable[[], Arrays]) -> Arrays:
        """Return the arrays stored under ``name`` if made with these settings, else compute and store them."""
        path, header = self.folder / f"{name}.npz", json.dumps(settings | {"omkl": version("omkl")}, sort_keys=True)
        with suppress(FileNotFoundError, *storage.DAMAGED):
            found = storage.load(path).arrays
            if str(found.pop("settings", None)) == header:
                return found
        arrays = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        storage.write(path, {"settings": np.array(header)} | arrays)
        return arrays


class Runs(NamedTuple):
    """All runs of one case, the shuffles one after another."""

    loss: npt.NDArray[np.float32]
    """``(runs, rounds)``, mean over nodes."""
    accuracy: Floats
    """``(runs,)``, over the whole stream."""
    shuffle: npt.NDArray[np.int64]
    """``(runs,)``, which shuffle each had."""
    bits: float
    """Sent by a node in a round on average, a broadcast counting once."""
    link_bits: float
    """The same in all, counted once per directed link."""

    @property
    def final(self) -> Floats:
        """The mean loss over the last tenth of the stream, ``(runs,)``."""
        return np.asarray(self.loss[:, -max(1, self.loss.shape[1] // 10) :].mean(axis=1, dtype=np.float64))


class Spread(NamedTuple):
    """A mean over runs, and how it varies over feature draws and shuffles."""

    mean: float
    features: float
    """Standard deviation over feature draws within a shuffle."""
    shuffles: float
    """Standard deviation over shuffles of their means, less what the feature draws put into it."""
    error: float
    """Standard error of the mean, from both."""
    half: float
    """Half the width of its 95 % interval, by Student's t: five shuffles are few."""


def spread(values: Floats, shuffle: npt.NDArray[np.int64]) -> Spread:
    """Return the mean of ``values`` and its two spreads, by a one-way analysis of variance."""
    groups = [values[shuffle == k] for k in np.unique(shuffle)]
    within = float(np.mean([g.var(ddof=1) if len(g) > 1 else 0.0 for g in groups]))
    if len(groups) == 1:
        shuffles, error, freedom = 0.0, (within / len(values)) ** 0.5, len(values) - 1
    else:
        between = float(np.var([g.mean() for g in groups], ddof=1))
        shuffles = between - within * float(np.mean([1 / len(g) for g in groups]))
        error, freedom = (between / len(groups)) ** 0.5, len(groups) - 1
    half = float(stdtrit(freedom, 0.975)) * error
    return Spread(float(values.mean()), within**0.5, max(0.0, shuffles) ** 0.5, error, half)


def half_widths(curves: Floats, shuffle: npt.NDArray[np.int64]) -> Floats:
    """Return half the 95 % interval of the mean of curves ``(runs, rounds)``, by the same rule as ``spread``."""
    groups = [curves[shuffle == k] for k in np.unique(shuffle)]
    units = curves if len(groups) == 1 else np.stack([g.mean(axis=0) for g in groups])
    return np.asarray(stdtrit(len(units) - 1, 0.975) * units.std(axis=0, ddof=1) / len(units) ** 0.5)


def dealt(seeds: int) -> list[range]:
    """Return the seeds of each shuffle: at least two each, and at most five shuffles."""
    ends = np.linspace(0, seeds, max(1, min(SHUFFLES, seeds // 2)) + 1).round().astype(int).tolist()
    return [range(first, last) for first, last in itertools.pairwise(ends)]


def joined(seeds: int, share: Callable[[int, range], Arrays]) -> tuple[Arrays, npt.NDArray[np.int64]]:
    """Return the runs of all shuffles, given what returns those of one, and which shuffle each had."""
    shares = dealt(seeds)
    parts = [share(shuffle, some) for shuffle, some in enumerate(shares)]
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return arrays, np.repeat(np.arange(len(shares)), [len(some) for some in shares])


def run_cases(store: Store, data: str, name: str, cases: Cases, seeds: int, progress: Progress) -> dict[str, Runs]:
    """Return the runs of every case on a data set, computed or from the store."""

    def share(shuffle: int, some: range) -> Arrays:
        title = f"{name}-{data}-{shuffle}"
        settings = {"data": data, "shuffle": shuffle, "seeds": list(some), "cases": repr(cases), "wire": VERSION}
        return store.get(title, settings, partial(_compute, data, cases, shuffle, some, partial(progress, title)))

    found, shuffle = joined(seeds, share)
    return {
        case: Runs(
            found[f"{case}:loss"], found[f"{case}:accuracy"], shuffle,
            float(found[f"{case}:bits"].mean()), float(found[f"{case}:link_bits"].mean()),
        )
        for case in cases
    }  # fmt: skip


def _compute(data: str, cases: Cases, shuffle: int, share: range, progress: Tell) -> Arrays:
    results = compare(data, cases, NODES, seeds=len(share), seed=share[0], shuffle=shuffle, progress=progress)
    arrays: dict[str, Any] = {}
    for case, result in results.items():
        arrays[f"{case}:loss"] = result.loss
        arrays[f"{case}:accuracy"] = result.accuracy.mean(axis=1, dtype=np.float64)
        arrays[f"{case}:bits"] = result.bits.mean(axis=1) / NODES
        arrays[f"{case}:link_bits"] = result.link_bits.mean(axis=1)
    return {name: np.asarray(value) for name, value in arrays.items()}
