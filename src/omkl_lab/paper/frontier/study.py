"""What a byte buys: loss against message size for every family of methods, and the lines to compare them with.

To compute takes JAX, NumPy and SciPy only; the stored runs can be drawn on another machine.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from omkl.errors import DivergedError
from omkl.features import Kernel, gaussian
from omkl.landmarks import Landmarks
from omkl.learners import SGD, AdaGrad, Learner, Newton
from omkl.methods import Choco, Gossip, Local, frugal, paper, recommended
from omkl.methods.ensemble import Ensemble
from omkl.quantizers import QSGD, Nearest, Quantizer
from omkl.sending import Pace
from omkl.simulator import compare
from omkl.wire import VERSION
from omkl_lab.paper.experiments import NODES, Arrays, Cases, Floats, Progress, Store, Tell, dealt, joined, spread
from omkl_lab.paper.frontier.data_sent import WIDTHS, flooded
from omkl_lab.paper.frontier.lines import BATCH_GRID, SGD_GRID, batch_optimum, tuned_sgd

NARROW, WIDE = 20, 80  # features of a model: the paper's, and such that the message is as large as the recommended
DATA = "data"  # the family that sends samples in place of models
PRESET = "as it is"  # the recommended setting among its own variations
ETAS = (0.3, 1.0, 3.0, 10.0)
Bank = tuple[tuple[Kernel, ...], Literal["given", "median"]]
BANKS: Mapping[str, Bank] = {
    "sigma 1, 3, 5": (gaussian(1, 3, 5), "given"),
    "median bank": (gaussian(0.35, 0.7, 1.4), "median"),
}

Channel = tuple[Quantizer | None, float]
"""A quantizer, and a consensus step for the path: twice auto's or more, which did better on Banana than auto's."""
NEAREST: Mapping[str, Channel] = {
    f"nearest {step:g}": (Nearest(step), gamma)
    for step, gamma in ((1, 1.0), (1.5, 1.0), (2, 0.7), (2.5, 0.5), (3, 0.25))
}
LEVELS: Mapping[str, Channel] = {
    # Plain QSGD of two bits or one is no contraction on forty coefficients.
    "QSGD, 1 bit": (QSGD(1, rescale=True), 0.1),
    "QSGD, 2 bit": (QSGD(2, rescale=True), 0.3),
    "QSGD, 3 bit": (QSGD(3), 0.8),
    "QSGD, 4 bit": (QSGD(4), 1.0),
    "exact": (None, 1.0),
}


class Family(NamedTuple):
    """Methods that differ in what they send, at the best in hindsight of several settings."""

    tried: Mapping[str, Gossip]
    """The settings, with the quantizer that they are tried with."""
    channels: Mapping[str, Channel]
    features: tuple[int, ...]


class Runs(NamedTuple):
    """All runs of one case, the shuffles one after another, each array ``(runs,)``."""

    loss: Floats
    """Mean over nodes and the whole stream, scored before a sample is learned."""
    bytes: Floats
    """Sent by a node with a sample on average, header and all, a broadcast counting once."""
    shuffle: npt.NDArray[np.int64]


class Point(NamedTuple):
    """A method on a data set: what it sends and what it loses."""

    family: str
    what: str
    bytes: float
    loss: float
    half: float
    """Half the width of the loss's 95 % interval."""


class Frontier(NamedTuple):
    """What was found on a data set."""

    points: list[Point]
    lines: dict[str, Point]
    """What to compare with: ``alone``, ``complete``, ``central``, ``sgd`` and ``batch``."""

    def record(self) -> dict[str, Any]:
        """Return the same for a JSON file."""
        lines = {name: line._asdict() for name, line in self.lines.items()}
        return {"points": [point._asdict() for point in self.points], "lines": lines}


def _family(made: Mapping[str, Gossip], channels: Mapping[str, Channel], tried: str, *features: int) -> Family:
    quantizer, gamma = channels[tried]
    return Family(
        {name: one.replace(quantizer=quantizer, gamma=gamma) for name, one in made.items()}, channels, features
    )


def _plain(learners: Mapping[str, Learner]) -> Family:
    """Return a learner on the paper's bank of kernels and on the recommended one, at two sizes."""
    made = {
        f"{rate}, {bank}": Gossip(learner=learner, kernels=kernels, sigma=sigma, weight_rate=1.0)
        for (rate, learner), (bank, (kernels, sigma)) in itertools.product(learners.items(), BANKS.items())
    }
    return _family(made, NEAREST, "nearest 2", NARROW, WIDE)


FAMILIES: dict[str, Family] = {
    "larger": _family({f"eta {eta:g}": Gossip(eta=eta) for eta in ETAS}, LEVELS, "QSGD, 3 bit", NARROW),
    "choco": _family(
        {
            f"eta {eta:g}, sigma {sigma:g} medians": Choco(kernels=gaussian(sigma), sigma="median", eta=eta)
            for eta, sigma in itertools.product(ETAS, (0.25, 0.5, 1.0))
        },
        LEVELS,
        "QSGD, 3 bit",
        NARROW,
    ),
    "sgd": _plain({f"eta {eta:g}": SGD(eta) for eta in ETAS}),
    "adagrad": _plain({f"eta {eta:g}": AdaGrad(eta) for eta in (0.3, 1.0, 3.0)}),
    "newton": _plain({f"prior {prior:g}": Newton(prior) for prior in (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)}),
}
"""The competitors; ``larger`` is the paper's method at larger steps."""


def _variations() -> dict[str, dict[str, Gossip]]:
    best = recommended()
    steps = {what: best.replace(quantizer=quantizer) for what, (quantizer, _) in NEAREST.items()}
    steady = {f"pace {rate:g}": Pace(rate) for rate in (1, 1 / 2, 1 / 4, 1 / 8)}
    fading = {f"pace {rate} to 1/{last}": Pace(rate, until=8, least=1 / last) for rate, last in ((4, 4), (1, 16))}
    made = {
        "quantizers": {PRESET: best, **{w: one for w, one in steps.items() if one != best}},
        "frugal": {"frugal": frugal()},
        "paces": {what: best.replace(pace=pace) for what, pace in (steady | fading).items()},
    }
    assert isinstance(best.bank.basis, Landmarks)
    for rank in (20, 40, 80):
        small = best.replace(basis=replace(best.bank.basis, rank=rank))
        paced = {f"rank {rank}, {what}": small.replace(pace=pace) for what, pace in fading.items()}
        made[f"rank-{rank}"] = {f"rank {rank}": small, **paced}
    return made


VARIATIONS = _variations()
"""Of the recommended setting, those that share features together."""


class Study(NamedTuple):
    """Where runs are kept, and how many there are of each case on which data."""

    store: Store
    data: str
    seeds: int
    progress: Progress

    def frontier(self) -> Frontier:
        """Return all points and lines, computed or from the store."""
        points = self.paper()
        for name in FAMILIES:
            points += self.family(name)
        return Frontier(points + self.data_sent() + self.recommended(), self.lines())

    def paper(self) -> list[Point]:
        """Return the paper's point."""
        (runs,) = self.runs("paper", {"paper": (paper(), "path")}).values()
        return [_point("paper", "eta 0.01, gamma 0.009, QSGD, 3 bit, D=20", runs)]

    def family(self, name: str) -> list[Point]:
        """Return the points of a family, for each number of features at its best setting."""
        points = []
        for features in FAMILIES[name].features:
            setting, method = self.in_hindsight(name, features)
            cases = {
                what: (method.replace(quantizer=quantizer, gamma=gamma), "path")
                for what, (quantizer, gamma) in FAMILIES[name].channels.items()
            }
            found = self.runs(f"{name}-{features}", cases)
            points += [_point(name, f"{what}, D={features}, {setting}", runs) for what, runs in found.items()]
        return points

    def in_hindsight(self, name: str, features: int) -> tuple[str, Gossip]:
        """Return the setting of a family that loses least in the first shuffle's runs, and its method."""
        tried = {what: one.replace(features=features) for what, one in FAMILIES[name].tried.items()}
        losses = dict[str, float]()
        banks = list(dict.fromkeys((method.bank.kernels, method.bank.sigma) for method in tried.values()))
        for k, bank in enumerate(banks):
            cases = {what: (one, "path") for what, one in tried.items() if (one.bank.kernels, one.bank.sigma) == bank}
            found = self.share(f"{name}-{features}-tried-{k}", cases, 0, dealt(self.seeds)[0])
            losses |= {what: float(found[f"{what}:loss"].mean()) for what in cases}
        best = min(losses, key=losses.__getitem__)
        return best, tried[best]

    def data_sent(self) -> list[Point]:
        """Return the points of nodes that send each other their samples, and no models."""
        method = alone(recommended())
        case = {"nodes": NODES, "method": repr(method), "cases": WIDTHS, "wire": VERSION}

        def share(shuffle: int, seeds: range) -> Arrays:
            title, settings = f"frontier-{self.data}-{DATA}-{shuffle}", {"seeds": list(seeds), **case}
            work = partial(flooded, self.data, method, NODES, shuffle, seeds, partial(self.progress, title))
            return self.store.get(title, settings, work)

        return [_point(DATA, what, runs) for what, runs in self.joined(share, WIDTHS).items()]

    def recommended(self) -> list[Point]:
        """Return the recommended setting as it is, and varied in what and how often it sends."""
        found = dict[str, Runs]()
        for name, variations in VARIATIONS.items():
            found |= self.runs(name, {what: (one, "path") for what, one in variations.items()})
        return [_point("recommended", what, runs) for what, runs in found.items()]

    def lines(self) -> dict[str, Point]:
        """Return what there is to compare with."""
        best = recommended()
        exact = best.replace(quantizer=None, sending=None)
        cases: Cases = {"complete": (exact, "complete"), "alone": (alone(best), "path")}
        found = self.runs("networks", cases) | self.runs("central", {"central": (alone(best), "path")}, nodes=1)
        lines = {what: _point(what, "", found[what]) for what in ("alone", "complete", "central")}
        lines["sgd"] = self.line("sgd", {"seeds": self.seeds, **SGD_GRID}, partial(tuned_sgd, self.data, self.seeds))
        lines["batch"] = self.line("batch", BATCH_GRID, partial(batch_optimum, self.data))
        return lines

    def line(self, name: str, settings: dict[str, Any], compute: Callable[[Tell], Arrays]) -> Point:
        """Return a line of ``frontier_lines``, computed or from the store."""
        title = f"frontier-{self.data}-{name}"
        found = self.store.get(title, settings, lambda: compute(partial(self.progress, title)))
        return Point(name, str(found["what"]), 0.0, float(found["loss"]), float(found["half"]))

    def runs(self, name: str, cases: Cases, nodes: int = NODES) -> dict[str, Runs]:
        """Return the runs of every case, dealt over shuffles, computed or from the store."""
        return self.joined(lambda shuffle, share: self.share(name, cases, shuffle, share, nodes), cases)

    def joined(self, share: Callable[[int, range], Arrays], cases: Iterable[str]) -> dict[str, Runs]:
        """Return the runs of every case that does not diverge, given what returns those of a shuffle."""
        arrays, shuffle = joined(self.seeds, share)
        found = {case: Runs(arrays[f"{case}:loss"], arrays[f"{case}:bytes"], shuffle) for case in cases}
        return {case: runs for case, runs in found.items() if np.isfinite(runs.loss).all()}

    def share(self, name: str, cases: Cases, shuffle: int, share: range, nodes: int = NODES) -> Arrays:
        """Return mean loss and bytes of the runs of one shuffle, under ``case:loss`` and ``case:bytes``.

        Both are infinite where a run diverges.
        """
        title = f"frontier-{self.data}-{name}-{shuffle}"
        settings = {"seeds": list(share), "nodes": nodes, "cases": repr(cases), "wire": VERSION}

        def compute(some: Cases = cases) -> Arrays:
            tell, seeds = partial(self.progress, title), len(share)
            try:
                found = compare(self.data, some, nodes, seeds=seeds, seed=share[0], shuffle=shuffle, progress=tell)
            except DivergedError:
                if len(some) > 1:  # the others do not: each by itself
                    return {key: array for case in some for key, array in compute({case: some[case]}).items()}
                return {f"{case}:{what}": np.full(seeds, np.inf) for case in some for what in ("loss", "bytes")}
            losses = {f"{case}:loss": one.loss.mean(axis=1, dtype=np.float64) for case, one in found.items()}
            return losses | {f"{case}:bytes": one.bits.mean(axis=1) / (8 * nodes) for case, one in found.items()}

        return self.store.get(title, settings, compute)


def alone(method: Ensemble) -> Local:
    """Return the same learner without communication."""
    return Local(**{name: value for name, value in method.settings().items() if name in Local.known()})


def at_home(points: Sequence[Point]) -> list[Point]:
    """Return the points of methods that leave raw data where they are."""
    return [point for point in points if point.family != DATA]


def front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other one beats in both bytes and loss, by bytes."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda one: (one.bytes, one.loss)):
        if not kept or point.loss < kept[-1].loss:
            kept.append(point)
    return kept


def _point(family: str, what: str, runs: Runs) -> Point:
    found = spread(runs.loss, runs.shuffle)
    return Point(family, what, float(runs.bytes.mean()), found.mean, found.half)
