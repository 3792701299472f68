"""Learning rows one after another in one process: what the estimators of ``omkl.sklearn`` and ``omkl.river`` share.

Kernels need units: those of the columns, the median distance between inputs, and the basis they vary in. Nobody gives
them here, so the first rows do. While rows are few, up to ``warmup``, they are kept: at any time the state is what
comes of calibrating on the first 2^k of the n rows so far, the largest such power, and learning all n from the start,
in order. With row ``warmup`` all kept rows calibrate once more, that stays, they are dropped, and what comes is learned
as it comes. So the state depends on the rows and their order alone, never on how calls cut them or on what was
predicted in between; and it is computed when it is asked for, so that many rows given at once calibrate once.

As a network, every row is one node's. A round goes on until all nodes have a sample, or one would get a second, and
then they gossip and learn; nodes without a sample rest. All nodes share the calibration.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl import algorithm, calibration, features, losses, scaling
from omkl.calibration import Basis
from omkl.errors import DivergedError, InputError, pick, whole
from omkl.features import Features, Kernel, gaussian
from omkl.learners import Learner, Shared
from omkl.losses import Logistic, Loss, Softmax
from omkl.methods import Gossip, Local, Method, Neighbors, Round, eager, recommended
from omkl.scaling import Floats
from omkl.topology import Topology

BLOCK = 256  # rows predicted at once: features before the basis are many

Shares: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Settings:
    """How to learn: the defaults of all estimators.

    Attributes
    ----------
    kernels
        Bandwidths are in units of the median distance between inputs.
    features
        D, spectral samples of a kernel.
    rank
        Directions of the 2D features that are learned; fewer while fewer rows are known. None learns all as they are.
    learner
        The update rule.
    weight_rate
        Rate of the kernel weights.
    warmup
        Rows to calibrate on.
    """

    kernels: tuple[Kernel, ...] = gaussian(0.35, 0.7, 1.4)
    features: int = 256
    rank: int | None = 160
    learner: Learner = Shared(prior=100, c=0.05)  # noqa: RUF009 - it is frozen
    weight_rate: float = 1.0
    warmup: int = 512

    def method(self, nodes: int = 1) -> Method:
        """Return the method of one node, or the recommended gossip of several."""
        basis = None if self.rank is None else Basis(self.rank, rows=max(self.rank, 2))
        own: dict[str, Any] = {"kernels": self.kernels, "features": self.features, "basis": basis, "sigma": "median"}
        own |= {"learner": self.learner, "weight_rate": self.weight_rate, "regularization": 0.0}
        return Local(**own) if nodes == 1 else replace(recommended(), **own)


class Units(NamedTuple):
    """What numbers are centered at and divided by, ``(d,)`` each."""

    center: Floats
    scale: Floats


@dataclass(frozen=True)
class Classification:
    """Targets are class numbers; two classes have one output, more have one each."""

    classes: int = 2

    @property
    def loss(self) -> Loss:
        """The loss of so many classes."""
        return Logistic() if self.classes <= 2 else Softmax(self.classes)

    @property
    def outputs(self) -> int:
        """C."""
        return 1 if self.classes <= 2 else self.classes

    def units(self, y: Floats) -> Units:
        """Return units in which class numbers are as they are."""
        return Units(np.zeros(1), np.ones(1))

    def target(self, y: Floats, units: Units) -> Shares:
        """Return the target ``(C,)`` of a class number ``(1,)``."""
        return self.loss.encode(2 * y[0] - 1 if self.classes <= 2 else y[0])


@dataclass(frozen=True)
class Regression:
    """Targets are numbers, brought to mean 0 and deviation 1 by the calibration rows."""

    outputs: int = 1
    loss_name: str = "squared"

    @property
    def loss(self) -> Loss:
        """The loss of so many outputs."""
        return pick("loss", self.loss_name, losses.LOSSES)(outputs=self.outputs)  # type: ignore[call-arg]

    def units(self, y: Floats) -> Units:
        """Return mean and deviation of every output."""
        return units(y)

    def target(self, y: Floats, units: Units) -> Shares:
        """Return the target ``(C,)`` of numbers ``(C,)``."""
        return ((y - units.center) / units.scale).astype(np.float32)


class Row(NamedTuple):
    """One row."""

    x: Floats
    """``(d,)``; what is missing is nan. Rows may be of different lengths: columns that are new come last."""
    y: Floats
    weight: float
    node: int


class Calibrated(NamedTuple):
    """What the kept rows say of the world."""

    rows: int
    method: Method
    features: Features
    wide: Features
    """The same in float64: predictions of a row do not depend on what others it is predicted with."""
    inputs: Units
    targets: Units


def calibrated(method: Any, sample: Shares, seed: int) -> tuple[Any, Features]:
    """Return the features of standardized rows, and the method with the basis that they allow.

    Rows that are all in one place say nothing of how inputs vary: they are taken for standard normal.
    """
    rows, inputs = sample.shape
    is_one_place = _is_one_place(sample)
    if method.basis is not None:
        rank = method.basis.rank if is_one_place else min(method.basis.rank, rows)
        method = replace(method, basis=Basis(rank, max(rank, rows), "normal" if is_one_place else "sample"))
    elif is_one_place and method.sigma == "median":
        unit = calibration.normal_median(inputs)
        bank = tuple(replace(kernel, sigma=kernel.sigma * unit) for kernel in method.kernels)
        method = replace(method, kernels=bank, sigma="given")
    return method, method.draw(inputs, seed, sample)


def widened(made: Features) -> Features:
    """Return the features in float64."""
    return Features(*(None if part is None else part.astype(np.float64) for part in made))


def units(table: Floats) -> Units:
    """Return mean and deviation of columns ``(n, d)``; what has not varied has scale 1, and nan is not counted.

    >>> units(np.array([[1.0, 5.0], [3.0, np.nan]]))
    Units(center=array([2., 5.]), scale=array([1.41421356, 1.        ]))
    """
    there = ~np.isnan(table)
    count = np.maximum(there.sum(axis=0), 1)
    center = np.where(there, table, 0).sum(axis=0) / count
    apart = np.where(there, table - center, 0)
    variance = (apart * apart).sum(axis=0) / np.maximum(count - 1, 1)
    # A column that is constant but for rounding has no unit either.
    varied = variance > (1e-12 * np.abs(center)) ** 2
    return Units(center, np.sqrt(np.where(varied, variance, 1.0)))


class Online:
    """A learner of rows.

    Parameters
    ----------
    task
        What the targets are.
    method
        How it learns; its loss is the task's, and its basis shrinks with the rows there are.
    seed
        Of the features, and of dither.
    warmup
        Rows that are kept.
    topology
        Who talks to whom; None is one node.

    Attributes
    ----------
    seen
        Rows so far.
    """

    def __init__(
        self, task: Any, method: Method, seed: int = 0, warmup: int = 512, topology: Topology | None = None
    ) -> None:
        if topology is not None:
            method.check(topology)
            method = method.on(topology) if isinstance(method, Gossip) else method
        self.task, self.method, self.seed = task, method, seed
        self.warmup = whole("warmup", warmup, 2)
        self.nodes = 1 if topology is None else topology.nodes
        self.network = _network(topology)
        self.seen = 0
        self.kept: list[Row] | None = []
        self.open: dict[int, Row] = {}
        self.rounds = 0
        self.made: Calibrated | None = None
        self.state: Any = None
        self._learned = 0
        self._ahead: Any = None

    def learn(self, row: Row) -> None:
        """Learn a row, or keep it."""
        self.seen += 1
        if self.kept is not None:
            self.kept.append(row)
            if len(self.kept) == self.warmup:
                self._catch_up()
                self.kept = None
        else:
            self._take(row)

    def grow(self, classes: int) -> None:
        """Know more classes: from the start while rows are kept, later with outputs that begin at zero."""
        if self.kept is not None:
            self.task, self.made = Classification(classes), None
            return
        made = self._settled()
        before, self.task = self.state, Classification(classes)
        method = replace(made.method, loss=self.task.loss)  # type: ignore[type-var]
        fresh = method.init(np, (self.nodes,), self.task.outputs, made.features.spectrum)
        self.state = _grown(before, fresh)
        self.made = made._replace(method=method)
        self._ahead = None

    def outputs(self, X: Floats, node: int | None = None) -> Floats:
        """Return the outputs ``(n, C)`` for rows ``(n, d)``, in the units of the targets.

        By the models of one node, or the mean of all nodes' models, under the mean of their log weights.
        """
        theta, log_weights = self.models(node)
        made = self._settled()
        blocks = [
            algorithm.predict(theta, log_weights, mapped(_scaled(X[k : k + BLOCK], made).astype(np.float64), made.wide))
            for k in range(0, len(X), BLOCK)
        ]
        center, scale = made.targets
        return np.concatenate([block.output for block in blocks]) * scale + center

    def models(self, node: int | None = None) -> tuple[Floats, Floats]:
        """Return theta ``(P, C, n)`` and log weights ``(P,)`` of one node, or their means."""
        self._catch_up()
        made = self._settled()
        if self.open and self._ahead is None:
            self._ahead = self._round(self.open)
        theta, log_weights = made.method.models(self._ahead if self.open else self.state)
        if not (np.isfinite(theta).all() and np.isfinite(log_weights).all()):
            raise DivergedError(
                f"a model is not finite after {self.seen} rows; use a smaller rate, or the default learner"
            )
        if node is None:
            return theta.mean(axis=0, dtype=np.float64), log_weights.mean(axis=0, dtype=np.float64)
        return theta[node].astype(np.float64), log_weights[node].astype(np.float64)

    def _settled(self) -> Calibrated:
        if self.made is None:
            raise InputError("no row has been learned; predictions need one at least; learn some rows first")
        return self.made

    def _catch_up(self) -> None:
        """Bring the state to all rows that are kept."""
        if not self.kept:
            return
        count = len(self.kept)
        rows = count if count == self.warmup else 1 << (count.bit_length() - 1)
        if self.made is None or self.made.rows != rows:
            self.made = self._calibrated(self.kept[:rows])
            method = self.made.method
            self.state = method.init(np, (self.nodes,), self.task.outputs, self.made.features.spectrum)
            self.open, self.rounds, self._learned = {}, 0, 0
        for row in self.kept[self._learned :]:
            self._take(row)
        self._learned = count

    def _take(self, row: Row) -> None:
        self._ahead = None
        if row.node in self.open:
            self._close()
        self.open[row.node] = row
        if len(self.open) == self.nodes:
            self._close()

    def _close(self) -> None:
        self.state = self._round(self.open)
        self.open = {}
        self.rounds += 1

    def _round(self, rows: dict[int, Row]) -> Any:
        """Return the state after a round in which these nodes have samples."""
        made = self._settled()
        method, outputs = made.method, self.task.outputs
        z = np.zeros((self.nodes, len(method.kernels), method.width), np.float32)
        y, weight = np.zeros((self.nodes, outputs), np.float32), np.ones(self.nodes, np.float32)
        for node, row in rows.items():
            z[node] = mapped(_scaled(row.x[None], made), made.features)[0]
            y[node] = self.task.target(row.y, made.targets)
            weight[node] = row.weight
        seen = np.isin(np.arange(self.nodes), list(rows))
        dither = eager.dither(method, self.nodes, outputs, self.seed)
        sample = Round(z, y, dither(self.rounds), self.rounds, None if (weight == 1).all() else weight)
        with np.errstate(over="ignore", invalid="ignore"):  # a model may diverge: that is told when it is asked
            return eager.advance(method, self.state, sample, self.network, dither, seen)[0]

    def _calibrated(self, rows: list[Row]) -> Calibrated:
        X = table([row.x for row in rows])
        inputs, targets = units(X), self.task.units(np.stack([row.y for row in rows]))
        method: Any = replace(self.method, loss=self.task.loss)  # type: ignore[type-var]
        method, made = calibrated(method, _standardized(X, inputs), self.seed)
        return Calibrated(len(rows), method, made, widened(made), inputs, targets)


def table(rows: list[Floats]) -> Floats:
    """Return rows as a table, those that are shorter than the longest filled up with nan."""
    made = np.full((len(rows), max(map(len, rows))), np.nan)
    for k, row in enumerate(rows):
        made[k, : len(row)] = row
    return made


def mapped(x: npt.NDArray[Any], made: Features) -> npt.NDArray[Any]:
    """Return ``features.transform`` of rows ``(n, d)``, without a copy of the frequencies."""
    kernels, count, inputs = made.frequencies.shape
    angles = x @ made.frequencies.reshape(kernels * count, inputs).T
    z = features.waves(angles.reshape(len(x), kernels, count))
    return np.asarray(z if made.basis is None else features.project(z, made.basis))


def _scaled(X: Floats, made: Calibrated) -> Shares:
    """Return rows in the units of the calibrated columns; columns that came later are left out."""
    width = len(made.inputs.center)
    X = X[:, :width] if X.shape[1] >= width else table([*X, np.full(width, np.nan)])[:-1]
    return _standardized(X, made.inputs)


def _standardized(X: Floats, units: Units) -> Shares:
    """Return rows in these units; what is missing is at the mean."""
    made = scaling.standardize(X, *units)
    return np.where(np.isnan(made), np.float32(0), made)


def _is_one_place(sample: Shares) -> bool:
    """Return whether the median distance between rows is zero."""
    _, counts = np.unique(sample, axis=0, return_counts=True)
    return bool(2 * (counts * (counts - 1)).sum() > len(sample) * (len(sample) - 1)) or len(sample) == 1


def _network(topology: Topology | None) -> Neighbors:
    if topology is None:
        return Neighbors(np.zeros((1, 0), np.int32), np.zeros((1, 0), np.float32))
    index, weights = topology.neighbors()
    return Neighbors(index, weights.astype(np.float32))


def _grown(before: Any, fresh: Any) -> Any:
    """Return a state of more outputs, those of before in it: f of two classes is -f/2 and f/2 of the first two.

    Of what a learner remembers by output, both of the two have what the one had.
    """

    def put(old: Any, new: Any, scale: bool) -> Any:
        if isinstance(new, tuple):
            parts = [put(a, b, scale) for a, b in zip(old, new, strict=True)]
            return type(new)(*parts) if hasattr(new, "_make") else tuple(parts)
        if old.shape == new.shape:
            return old
        made = new.copy()
        if old.shape[2] == 1:
            half = np.array([-0.5, 0.5], np.float32).reshape(2, *(1,) * (old.ndim - 3)) if scale else 1
            made[:, :, :2] = half * old
        else:
            made[:, :, : old.shape[2]] = old
        return made

    return type(fresh)(**{
        name: put(getattr(before, name), getattr(fresh, name), name != "memory") for name in fresh._fields
    })  # fmt: skip
