"""Regret against the best fixed model in hindsight, on streams of growing length, beside what the theory promises.

Theorem 1. Every node draws rows of a table with replacement, T rounds long; rates are eta = eta_w = eta_0 / sqrt(T).
A node's regret is what it loses in L, lambda sum_p wbar_p |theta_p|^2 included, beyond the best (p, theta) for the very
samples that all nodes saw. Pooled regret scores every node's model on all nodes' samples instead, and there a node's
own stream holds one class alone: half of the nodes, side by side, see only +1 and the others only -1, so that a node
by itself cannot learn.

Every seed has its own rows, features and dither; the order of the classes is common to them. A stream is the beginning
of any longer one.

eta_0 = 10 gives a rate of 1 at 100 rounds, where models on features of unit length still settle; at a tenth of it a
hundred rounds hardly train, and regret grows like T for want of learning. gamma = 0.5 is a practical step, far above
Lemma 1's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from omkl import algorithm, features, noise, theory
from omkl.arrays import Array, namespace
from omkl.data import load
from omkl.errors import InputError
from omkl.learners import Memory
from omkl.losses import Logistic
from omkl.methods import Gossip, Info, Local, Method, Round
from omkl.methods.ensemble import Ensemble
from omkl.methods.protocol import MethodState
from omkl.paper.comparator import best
from omkl.quantizers import QSGD, restore
from omkl.simulator import engine
from omkl.simulator.networks import network
from omkl.topology import Topology, build

NODES = 20
ETA_0 = 10.0
GAMMA = 0.5
LAMBDA = 1e-3
QUANTIZER = QSGD(bits=3, rescale=True)
LENGTHS = tuple(80 * 2**k for k in range(7))  # chunks of 80 rounds divide them all: one program is compiled
QUICK_LENGTHS = LENGTHS[:4]
GRAPHS = ("path", "ring", "complete")
ALONE = "alone"
FEATURES = 20
LENGTH = 2 * FEATURES
SETTLING = 40  # rounds in which pure consensus is watched; on the complete graph little is left after them

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Exponent(NamedTuple):
    """The power a of regret ~ T^a: mean over seeds and its 95 % interval."""

    mean: float
    low: float
    high: float


def fit_exponent(lengths: npt.ArrayLike, regret: npt.ArrayLike) -> Exponent:
    """Return the power of T in ``regret (S, T)``: a least-squares line in logarithms for every seed, then their mean.

    >>> fit_exponent([100, 200, 400], [[10, 20, 40], [3, 6, 12]]).mean
    1.0
    """
    x, values = np.log(np.asarray(lengths, dtype=np.float64)), np.asarray(regret, dtype=np.float64)
    if values.ndim != 2 or values.shape[1:] != x.shape or len(x) < 2:
        raise InputError(f"regret has shape {values.shape} for {x.shape} lengths; it must be (S, T), T >= 2; reshape it")
    if not (values > 0).all():
        worst = values.min()
        raise InputError(f"a regret is {worst:.3g}; a power law needs positive values; use longer streams")
    x = x - x.mean()
    slopes = np.log(values) @ x / (x @ x)
    mean, seeds = float(slopes.mean()), len(slopes)
    if seeds == 1:
        return Exponent(mean, -np.inf, np.inf)
    half = float(stdtrit(seeds - 1, 0.975) * slopes.std(ddof=1) / seeds**0.5)
    return Exponent(mean, mean - half, mean + half)


@dataclass(frozen=True)
class _Arrays:
    """A record of arrays that goes into an npz file and back."""

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the fields by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Any) -> Self:
        """Return the record of ``to_arrays``, of which ``numpy.load`` may have been the last reader."""
        return cls(**{one.name: np.asarray(arrays[one.name]) for one in fields(cls)})


@dataclass(frozen=True)
class PooledStudy(_Arrays):
    """Regret of G cases at L lengths under S seeds.

    Attributes
    ----------
    cases, lengths, eta
        Names ``(G,)``, T ``(L,)`` and the rate at each.
    regret
        ``(G, L, S)``, per node and over all rounds.
    best, radius
        The comparator's mean loss L per sample and its |theta|, ``(L, S)``.
    """

    cases: npt.NDArray[np.str_]
    lengths: Integers
    eta: Floats
    regret: Floats
    best: Floats
    radius: Floats

    @property
    def exponents(self) -> dict[str, Exponent]:
        """The fitted power of T for every case."""
        return {
            str(case): fit_exponent(self.lengths, regret.T)
            for case, regret in zip(self.cases, self.regret, strict=True)
        }


@dataclass(frozen=True)
class TheoremStudy(PooledStudy):
    """The same with what the theorem and its lemmas bound.

    Attributes
    ----------
    terms
        The five terms of the bound, ``(G, L, 5)``, at Lemma 1's gamma, L = K + 2 lambda R with R the largest model seen.
    norm, loss
        The largest |theta_p| and the largest L(theta_p) seen, ``(G, L, S)``.
    hedge
        sum_t sum_p wbar_p L_p - min_p sum_t L_p at the worst node, ``(G, L, S)``.
    apart
        The largest r, with r^2 = sum_j |theta_j - mean|^2 + |theta_j - h_j|^2 for one kernel, ``(G, L, S)``.
    """

    terms: Floats
    norm: Floats
    loss: Floats
    hedge: Floats
    apart: Floats

    @property
    def bound(self) -> Floats:
        """The sum of the terms, ``(G, L)``."""
        return np.asarray(self.terms.sum(axis=-1))

    @property
    def vacuous(self) -> npt.NDArray[np.bool_]:
        """Whether the bound allows more regret than always predicting f = 0 can have, ``(G, L)``."""
        return np.asarray(self.bound >= self.lengths * np.log(2))


def theorem(seeds: int = 20, quick: bool = False, progress: engine.Progress | None = None) -> TheoremStudy:
    """Return the regret of Theorem 1 on i.i.d. streams: without communication, and gossip on path, ring and complete."""
    lengths = QUICK_LENGTHS if quick else LENGTHS
    table = load("banana")
    draws = noise.uniforms(noise.key(0, "classes"), lengths[-1] * NODES) * len(table.y)
    study = _Study(table.X, table.y, table.y[draws.astype(int)].reshape(-1, NODES), lengths, seeds)
    return study.theorem({name: build(name, NODES) for name in GRAPHS}, progress)


def pooled(seeds: int = 20, quick: bool = False, progress: engine.Progress | None = None) -> PooledStudy:
    """Return the pooled regret where a node sees one class alone, for the same cases."""
    lengths = QUICK_LENGTHS if quick else LENGTHS
    table = load("banana")
    classes = np.where(np.arange(NODES) < NODES // 2, 1, -1)
    study = _Study(table.X, table.y, np.tile(classes, (lengths[-1], 1)), lengths, seeds)
    return study.pooled({name: build(name, NODES) for name in GRAPHS}, progress)


@dataclass(frozen=True)
class LemmaStudy(_Arrays):
    """Measured against promised, one row for each check; ``(N,)`` arrays.

    Attributes
    ----------
    claim
        ``"consensus"``, Lemma 1: the share of the squared disagreement that a round removes, at least c. ``"hedge"``,
        Lemma 2: regret to the best kernel, at most ln P / eta + eta T / 8. ``"apart"``: r of the proof, at most
        (2/c) sqrt(2J) eta L.
    case, start, length
        The network; where Lemma 1's check began; rounds.
    gamma, measured, bound
        The step used, and the two numbers compared.
    covered
        Whether the claim's assumptions hold: Lemma 1's gamma, losses in [0, 1].
    """

    claim: npt.NDArray[np.str_]
    case: npt.NDArray[np.str_]
    start: npt.NDArray[np.str_]
    length: Integers
    gamma: Floats
    measured: Floats
    bound: Floats
    covered: npt.NDArray[np.bool_]

    @property
    def ratio(self) -> Floats:
        """Measured over bound."""
        return self.measured / self.bound

    @property
    def holds(self) -> npt.NDArray[np.bool_]:
        """Whether the measured number is on the promised side; rates from below, to three digits."""
        return np.where(self.claim == "consensus", self.ratio > 0.999, self.ratio <= 1)


def lemmas(study: TheoremStudy, trials: int = 50) -> LemmaStudy:
    """Return Lemma 1 checked in pure consensus, and Lemma 2 and the proof's r in the runs of ``study``."""
    rows = []
    for graph in (build(name, NODES) for name in GRAPHS):
        rows += _consensus_checks(graph, trials)
    for case, name in enumerate(study.cases.tolist()):
        for k, (rounds, eta) in enumerate(zip(study.lengths.tolist(), study.eta.tolist(), strict=True)):
            gamma = 0.0 if name == ALONE else GAMMA
            largest, lipschitz = study.loss[case, k].max(), 1 + 2 * LAMBDA * study.norm[case, k].max()
            promised = np.log(3) / eta + eta * rounds / 8
            rows.append(("hedge", name, "", rounds, gamma, study.hedge[case, k].max(), promised, largest <= 1))
            if name != ALONE:
                c = theory.contraction(theory.spectral_gap(build(name, NODES)), QUANTIZER.delta(LENGTH))
                promised = theory.consensus_bound(NODES, eta, lipschitz, c)
                rows.append(("apart", name, "", rounds, gamma, study.apart[case, k].max(), promised, False))
    return LemmaStudy(*(np.array(column) for column in zip(*rows, strict=True)))


def consensus_rate(graph: Topology, gamma: float, start: str, trials: int = 50) -> float:
    """Return the share of E sum_j |theta_j - mean|^2 + |theta_j - h_j|^2 that a round removes where nothing is learned.

    A mean over the second half of ``SETTLING`` rounds. ``start`` is ``"random"``, with h = 0, or ``"slowest"``: models
    along the network's slowest mode and h = theta.
    """
    noises = noise.uniforms(noise.fold(noise.key(0, "consensus"), np.arange(2 * trials)[:, None]), NODES * LENGTH)
    u, v = noises[:trials], noises[trials:]
    theta = (np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)).reshape(trials, graph.nodes, LENGTH)
    pull = graph.matrix() - np.eye(graph.nodes)
    hidden = np.zeros_like(theta)
    if start == "slowest":
        mode = np.linalg.eigh(pull)[1][:, -2]
        theta = mode[:, None] * theta[:, :1]
        hidden = theta
    squares = []
    for t in range(SETTLING):
        theta = theta + gamma * pull @ hidden
        key = noise.fold(noise.key(t, "quantizer"), np.arange(trials)[:, None])
        uniforms = noise.uniforms(key, graph.nodes * LENGTH).reshape(theta.shape)
        hidden = hidden + restore(QUANTIZER.quantize(theta - hidden, uniforms))
        squares.append(((theta - theta.mean(axis=1, keepdims=True)) ** 2 + (theta - hidden) ** 2).sum())
    middle = SETTLING // 2
    return float(-np.expm1(np.log(squares[-1] / squares[middle]) / (SETTLING - 1 - middle)))


def _consensus_checks(graph: Topology, trials: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of Lemma 1.

    At the printed gamma* the slowest mode loses 2 gamma* rho of its square a round, which is of order rho^3: less than
    the promised c where rho is small. The c printed belongs to gamma*/rho, which is checked too.
    """
    rho, delta = theory.spectral_gap(graph), QUANTIZER.delta(LENGTH)
    printed = theory.consensus_step(rho, theory.beta(graph), delta)
    promised = theory.contraction(rho, delta)
    for gamma in (printed, printed / rho, GAMMA):
        for start in ("random", "slowest"):
            rate = consensus_rate(graph, gamma, start, trials)
            yield "consensus", graph.graph.name, start, SETTLING, gamma, rate, promised, gamma == printed


@dataclass(frozen=True)
class _Study:
    """Streams drawn from a table ``X (n, d), y (n,)`` in a given order of ``classes (T, J)``."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    classes: npt.NDArray[Any]
    lengths: Sequence[int]
    seeds: int

    def theorem(self, graphs: dict[str, Topology], progress: engine.Progress | None) -> TheoremStudy:
        rows, frequencies = self.draw()
        comparator = self.comparator(rows, frequencies)
        columns: dict[str, list[Any]] = {name: [] for name in ("regret", "terms", "norm", "loss", "hedge", "apart")}
        for k, measured in enumerate(self.play(rows, frequencies, graphs, own_scores, progress)):
            rounds, radius = self.lengths[k], float(comparator.radius[k].max())
            columns["regret"].append([_regret(one, comparator.best[k]) for one in measured])
            for name in ("norm", "loss", "apart"):
                columns[name].append([_largest(getattr(one, name)) for one in measured])
            columns["hedge"].append([one.gaps.sum(axis=0, dtype=np.float64).max(axis=(1, 2)) for one in measured])
            reach = [max(radius, float(norms.max())) for norms in columns["norm"][-1]]
            columns["terms"].append([
                _terms(graph, rounds, radius, R) for graph, R in zip([None, *graphs.values()], reach, strict=True)
            ])
        return TheoremStudy(
            *self.axes(graphs), best=comparator.best, radius=comparator.radius,
            **{name: np.moveaxis(np.array(column), 0, 1) for name, column in columns.items()},
        )  # fmt: skip

    def pooled(self, graphs: dict[str, Topology], progress: engine.Progress | None) -> PooledStudy:
        rows, frequencies = self.draw()
        comparator = self.comparator(rows, frequencies)
        runs = self.play(rows, frequencies, graphs, pooled_scores, progress)
        regret = [[_regret(one, comparator.best[k]) for one in measured] for k, measured in enumerate(runs)]
        return PooledStudy(*self.axes(graphs), np.moveaxis(np.array(regret), 0, 1), *comparator)

    def axes(self, graphs: dict[str, Topology]) -> tuple[npt.NDArray[np.str_], Integers, Floats]:
        lengths = np.array(self.lengths)
        return np.array([ALONE, *graphs]), lengths, ETA_0 / np.sqrt(lengths)

    def draw(self) -> tuple[Integers, npt.NDArray[np.float32]]:
        """Return which row every node sees, ``(T, J, S)``, uniform within the class, and the frequencies."""
        members = {sign: np.flatnonzero(np.sign(self.y) == sign) for sign in (1, -1)}
        rows = np.empty((*self.classes.shape, self.seeds), dtype=np.int64)
        for s in range(self.seeds):
            u = noise.uniforms(noise.key(s, "rows"), self.classes.size).reshape(self.classes.shape)
            picks = {sign: which[(u * len(which)).astype(int)] for sign, which in members.items()}
            rows[..., s] = np.where(self.classes > 0, picks[1], picks[-1])
        kernels = Gossip().kernels
        return rows, np.stack([features.draw(kernels, FEATURES, self.X.shape[1], s) for s in range(self.seeds)])

    def comparator(self, rows: Integers, frequencies: npt.NDArray[np.float32]) -> "_Comparators":
        """Return the best kernel's comparator for every length and seed."""
        found = np.empty((2, len(self.lengths), self.seeds))
        for s, V in enumerate(frequencies.astype(np.float64)):
            z = features.transform(self.X.astype(np.float64), V)
            starts = [None] * len(V)
            for k, rounds in enumerate(self.lengths):
                counts = np.bincount(rows[:rounds, :, s].ravel(), minlength=len(self.y))
                each = [best(z[:, p], self.y, Logistic(), LAMBDA, counts, starts[p]) for p in range(len(V))]
                starts = [one.theta for one in each]
                top = min(each, key=lambda one: one.objective)
                found[:, k, s] = top.objective, top.norm
        return _Comparators(*found)

    def play(
        self,
        rows: Integers,
        frequencies: npt.NDArray[np.float32],
        graphs: dict[str, Topology],
        measure: engine.Measure,
        progress: engine.Progress | None,
    ) -> Iterator[list[Any]]:
        """Yield, length by length, what was measured of each case."""
        wide = _side_by_side(frequencies)
        networks = [network(graph) for graph in graphs.values()]
        total, done = sum(self.lengths), 0
        for rounds in self.lengths:
            learner = _Pace(ETA_0 / rounds**0.5)
            gossip = _Gossip(learner=learner, weight_rate=1.0, gamma=GAMMA, quantizer=QUANTIZER, regularization=LAMBDA)
            alone = _Local(learner=learner, weight_rate=1.0, regularization=LAMBDA)
            cases = [engine.Case(alone, networks[0]), *(engine.Case(gossip, one) for one in networks)]
            X = self.X[rows[:rounds]].reshape(rounds, rows.shape[1], -1)
            y = Logistic().encode(self.classes[:rounds])
            problem = engine.Problem(X, y, wide, list(range(self.seeds)))
            yield [one for _, one in engine.run(problem, cases, measure, _after(progress, done, total))]
            done += rounds


class _Comparators(NamedTuple):
    best: Floats
    radius: Floats


def _side_by_side(frequencies: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return frequencies ``(S, P, D, S d)`` that let seed s see only the s-th of S samples joined into one input.

    The simulator gives all seeds the same samples; so every seed gets a stream of its own.
    """
    seeds, kernels, count, d = frequencies.shape
    wide = np.zeros((seeds, kernels, count, seeds, d), dtype=np.float32)
    wide[np.arange(seeds), :, :, np.arange(seeds)] = frequencies
    return wide.reshape(seeds, kernels, count, seeds * d)


def _after(progress: engine.Progress | None, done: int, total: int) -> engine.Progress | None:
    return None if progress is None else lambda rounds, _: progress(done + rounds, total)


def _regret(measured: Any, best: Floats) -> Floats:
    lost = measured.score.sum(axis=0, dtype=np.float64) + LAMBDA * measured.square.sum(axis=0, dtype=np.float64)
    return np.asarray(lost - len(measured.score) * best)


def _largest(values: npt.NDArray[np.float32]) -> Floats:
    return np.asarray(np.moveaxis(values, 1, 0).reshape(values.shape[1], -1).max(axis=1), dtype=np.float64)


def _terms(graph: Topology | None, rounds: int, radius: float, reach: float) -> tuple[float, ...]:
    """Return the bound's terms; a node by itself has nobody to agree with."""
    c = 1.0 if graph is None else theory.contraction(theory.spectral_gap(graph), QUANTIZER.delta(LENGTH))
    return theory.regret_terms(
        nodes=1 if graph is None else graph.nodes, rounds=rounds, eta=ETA_0 / rounds**0.5,
        lipschitz=Logistic.lipschitz + 2 * LAMBDA * reach, c=c, radius=radius, kernels=3,
    )  # fmt: skip


class OwnScores(NamedTuple):
    """What the theorem needs of a round, ``(S, ...)``."""

    score: Array
    """C(f, y), mean over nodes."""
    square: Array
    """sum_p wbar_p |theta_p|^2, mean over nodes."""
    norm: Array
    """The largest |theta_p|."""
    loss: Array
    """The largest L(theta_p)."""
    gaps: Array
    """sum_q wbar_q L(theta_q) - L(theta_p), ``(S, J, P)``."""
    apart: Array
    """r of every kernel, ``(S, P)``."""


def own_scores(method: Method, given: Round, info: Info, state: MethodState) -> OwnScores:
    """Return the losses of every node on its own sample, and what the lemmas are about."""
    xp = namespace(info.theta)
    weights = algorithm.normalize(info.log_weights)
    square = xp.sum(info.theta**2, axis=(-2, -1))
    outputs = algorithm.predict(info.theta, info.log_weights, given.z).kernel_outputs
    losses = algorithm.kernel_losses(info.theta, outputs, given.y, method.objective, LAMBDA)
    gaps = xp.sum(weights * losses, axis=-1, keepdims=True) - losses
    hidden = getattr(state, "hidden", info.theta)
    spread = (info.theta - xp.mean(info.theta, axis=0)) ** 2 + (info.theta - hidden) ** 2
    return OwnScores(
        xp.mean(info.loss, axis=0),
        xp.mean(xp.sum(weights * square, axis=-1), axis=0),
        xp.sqrt(xp.max(square, axis=(0, 2))),
        xp.max(losses, axis=(0, 2)),
        xp.moveaxis(gaps, 0, 1),
        xp.sqrt(xp.sum(spread, axis=(0, 3, 4))),
    )


class PooledScores(NamedTuple):
    """C(f, y) of every node's model on every node's sample and sum_p wbar_p |theta_p|^2, means over both, ``(S,)``."""

    score: Array
    square: Array


def pooled_scores(method: Method, given: Round, info: Info, state: MethodState) -> PooledScores:
    """Return the losses of every node's model on all nodes' samples."""
    xp = namespace(info.theta)
    weights = algorithm.normalize(info.log_weights)
    square = xp.mean(xp.sum(weights * xp.sum(info.theta**2, axis=(-2, -1)), axis=-1), axis=0)
    # The ensemble is linear in its weighted models, so a seed's J x J outputs are one product.
    nodes, seeds = weights.shape[:2]
    models = xp.reshape(weights[..., None, None] * info.theta, (nodes, seeds, -1))
    samples = xp.reshape(given.z, (nodes, seeds, -1))
    outputs = xp.matmul(xp.permute_dims(models, (1, 0, 2)), xp.permute_dims(samples, (1, 2, 0)))
    losses = method.objective.value(outputs[..., None], given.y[None, None, :, 0])
    return PooledScores(xp.mean(losses, axis=(1, 2)), square)


@dataclass(frozen=True)
class _Pace:
    """Gradient steps whose rate is carried in the state: one compiled program then serves every length."""

    eta: float = field(compare=False)

    name: ClassVar[str] = "pace"

    def init(self, theta: Array) -> Memory:
        return namespace(theta).asarray(self.eta, dtype=theta.dtype)

    def update(self, theta: Array, memory: Memory, gradient: Array, z: Array, curvature: Array) -> tuple[Array, Memory]:
        return theta - memory * gradient, memory


class _Paced(Ensemble):
    """Kernel weights at the rate of the models, likewise from the state; ``weight_rate`` must be one."""

    def observe(
        self, theta: Array, log_weights: Array, memory: Memory, inputs: Round
    ) -> tuple[Array, Array, Memory, Info]:
        theta, weighed, memory, info = super().observe(theta, log_weights, memory, inputs)
        return theta, log_weights + memory * (weighed - log_weights), memory, info


class _Gossip(_Paced, Gossip):
    pass


class _Local(_Paced, Local):
    pass
