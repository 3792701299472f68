"""Regret against the best fixed model in hindsight, on streams of growing length, beside what the theory promises.

Theorem 1. Every node draws rows of a table with replacement, T rounds long; rates are eta = eta_w = eta_0 / sqrt(T).
A node's regret is what it loses in L, lambda sum_p wbar_p |theta_p|^2 included, beyond the best (p, theta) for the very
samples that all nodes saw. Pooled regret scores every node's model on all nodes' samples instead, and there a node's
own stream holds one class alone: half of the nodes, side by side, see only +1 and the others only -1, so that a node
by itself cannot learn.

Every seed has its own rows, features and dither; the order of the classes is common to them. A stream is the beginning
of any longer one.

eta_0 = 10 is near |theta*| / L, about 8 here, which minimizes the first two terms of the bound. Smaller rates hardly
train in a hundred rounds, and regret then grows like T for want of learning; larger ones make the short streams worse
and the slope flatter. gamma = 0.5 is a practical step, far above those that have a proof.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from omkl import algorithm, comparator, features, noise, theory
from omkl.arrays import Array, namespace
from omkl.data import load
from omkl.errors import InputError
from omkl.losses import Logistic
from omkl.methods import Gossip, Info, Local, Method, Round, paper
from omkl.methods.protocol import MethodState
from omkl.quantizers import QSGD
from omkl.simulator import engine
from omkl.simulator.engine import Measure
from omkl.simulator.measures import pooled_loss
from omkl.topology import Topology, build
from omkl_lab.paper.experiments import Floats, spread

Integers = npt.NDArray[np.int64]
Graphs = Mapping[str, Topology]

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
SETTING = repr((NODES, ETA_0, GAMMA, LAMBDA, QUANTIZER, LENGTHS, FEATURES))
"""All that the results depend on."""


class Exponent(NamedTuple):
    """The power a of regret ~ T^a: mean over seeds and its 95 % interval."""

    mean: float
    low: float
    high: float


class Study(NamedTuple):
    """Regret of G cases at L lengths under S seeds; where a node has its own samples also what the theorem bounds."""

    cases: npt.NDArray[np.str_]
    """``(G,)``."""
    lengths: Integers
    """T, ``(L,)``."""
    eta: Floats
    """The rate at each length."""
    regret: Floats
    """``(G, L, S)``, per node and over all rounds."""
    best: Floats
    """The comparator's mean loss L per sample, ``(L, S)``."""
    radius: Floats
    """Its |theta|, ``(L, S)``."""
    terms: Any = None
    """The terms of the bound by agreement, ``(G, L, 5)``, at gamma*; L = 1 + 2 lambda R for the largest model R."""
    norm: Any = None
    """The largest |theta_p| seen, ``(G, L, S)``."""
    loss: Any = None
    """The largest L(theta_p) seen, ``(G, L, S)``."""
    hedge: Any = None
    """sum_t sum_p wbar_p L_p - min_p sum_t L_p at the worst node, ``(G, L, S)``."""

    @property
    def exponents(self) -> dict[str, Exponent]:
        """The fitted power of T for every case."""
        return {str(case): fit_exponent(self.lengths, own.T) for case, own in zip(self.cases, self.regret, strict=True)}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return what there is, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}


def fit_exponent(lengths: npt.ArrayLike, regret: npt.ArrayLike) -> Exponent:
    """Return the power of T in ``regret (S, T)``: a least-squares line in logarithms for every seed, then their mean.

    >>> round(fit_exponent([100, 200, 400], [[10, 20, 40], [3, 6, 12]]).mean, 6)
    1.0
    """
    x, values = np.log(np.asarray(lengths, dtype=np.float64)), np.asarray(regret, dtype=np.float64)
    if not (values > 0).all():
        raise InputError(f"a regret is {values.min():.3g}; a power law needs positive values; use longer streams")
    x = x - x.mean()
    slopes = np.log(values) @ x / (x @ x)
    found = spread(slopes, np.zeros(len(slopes), dtype=np.int64))
    return Exponent(found.mean, found.mean - found.half, found.mean + found.half)


def theorem(seeds: int = 20, quick: bool = False, progress: engine.Progress | None = None) -> Study:
    """Return Theorem 1's regret on i.i.d. streams: without communication, and by gossip on path, ring and complete."""
    lengths, table = QUICK_LENGTHS if quick else LENGTHS, load("banana")
    draws = noise.uniforms(noise.key(0, "classes"), lengths[-1] * NODES) * len(table.y)
    streams = Streams(table.X, table.y, table.y[draws.astype(int)].reshape(-1, NODES), lengths, seeds)
    return streams.study({name: build(name, NODES) for name in GRAPHS}, own_scores, progress)


def pooled(seeds: int = 20, quick: bool = False, progress: engine.Progress | None = None) -> Study:
    """Return the pooled regret where a node sees one class alone, for the same cases."""
    lengths, table = QUICK_LENGTHS if quick else LENGTHS, load("banana")
    classes = np.where(np.arange(NODES) < NODES // 2, 1, -1)
    streams = Streams(table.X, table.y, np.tile(classes, (lengths[-1], 1)), lengths, seeds)
    return streams.study({name: build(name, NODES) for name in GRAPHS}, pooled_scores, progress)


class Streams(NamedTuple):
    """Streams drawn from a table ``X (n, d), y (n,)`` in a given order of ``classes (T, J)``."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    classes: npt.NDArray[Any]
    lengths: Sequence[int]
    seeds: int

    def study(self, graphs: Graphs, measure: Measure, progress: engine.Progress | None = None) -> Study:
        """Return regret alone and by gossip on every graph, on what the measure scores."""
        rows, frequencies = self.draw()
        best, radius = self.comparator(rows, frequencies)
        wide, columns, done = side_by_side(frequencies), defaultdict[str, list[Any]](list), 0
        for k, rounds in enumerate(self.lengths):
            X = self.X[rows[:rounds]].reshape(rounds, rows.shape[1], -1)
            y = Logistic().encode(self.classes[:rounds])
            problem = engine.Problem(X, y, features.Features(wide), list(range(self.seeds)))
            tell = _after(progress, done, sum(self.lengths))
            measured = [one for _, one in engine.run(problem, _cases(rounds, graphs), measure, tell)]
            done += rounds
            columns["regret"].append([_regret(one, best[k]) for one in measured])
            if measure is own_scores:
                for name, column in _bounded(rounds, float(radius[k].max()), graphs, measured).items():
                    columns[name].append(column)
        lengths, arrays = np.array(self.lengths), {key: np.moveaxis(np.array(c), 0, 1) for key, c in columns.items()}
        return Study(np.array([ALONE, *graphs]), lengths, ETA_0 / np.sqrt(lengths), best=best, radius=radius, **arrays)

    def draw(self) -> tuple[Integers, npt.NDArray[np.float32]]:
        """Return which row every node sees, ``(T, J, S)``, uniform within the class, and the frequencies."""
        members = {sign: np.flatnonzero(np.sign(self.y) == sign) for sign in (1, -1)}
        rows = np.empty((*self.classes.shape, self.seeds), dtype=np.int64)
        for s in range(self.seeds):
            u = noise.uniforms(noise.key(s, "rows"), self.classes.size).reshape(self.classes.shape)
            picks = {sign: which[(u * len(which)).astype(int)] for sign, which in members.items()}
            rows[..., s] = np.where(self.classes > 0, picks[1], picks[-1])
        kernels = paper().bank.kernels
        return rows, np.stack([features.draw(kernels, FEATURES, self.X.shape[1], s) for s in range(self.seeds)])

    def comparator(self, rows: Integers, frequencies: npt.NDArray[np.float32]) -> tuple[Floats, Floats]:
        """Return the mean loss and |theta| of the best kernel's comparator, ``(L, S)`` each."""
        found = np.empty((2, len(self.lengths), self.seeds))
        for s, V in enumerate(frequencies.astype(np.float64)):
            z = features.transform(self.X.astype(np.float64), features.Features(V))
            starts: list[Floats | None] = [None] * len(V)
            for k, rounds in enumerate(self.lengths):
                counts = np.bincount(rows[:rounds, :, s].ravel(), minlength=len(self.y))
                each = [comparator.best(z[:, p], self.y, Logistic(), LAMBDA, counts, starts[p]) for p in range(len(V))]
                starts = [one.theta for one in each]
                top = min(each, key=lambda one: one.objective)
                found[:, k, s] = top.objective, top.norm
        return found[0], found[1]


def _cases(rounds: int, graphs: Graphs) -> list[engine.Case]:
    eta, turns = ETA_0 / rounds**0.5, [(graph,) for graph in graphs.values()]
    gossip = Gossip(eta=eta, gamma=GAMMA, quantizer=QUANTIZER, regularization=LAMBDA)
    alone = Local(eta=eta, regularization=LAMBDA)
    return [engine.Case(alone, turns[0]), *(engine.Case(gossip, one) for one in turns)]


def side_by_side(frequencies: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return frequencies ``(S, P, D, S d)`` that let seed s see only the s-th of S samples joined into one input.

    The simulator gives all seeds the same samples; so every seed gets a stream of its own.
    """
    seeds, kernels, count, d = frequencies.shape
    wide = np.zeros((seeds, kernels, count, seeds, d), dtype=np.float32)
    wide[np.arange(seeds), :, :, np.arange(seeds)] = frequencies
    return wide.reshape(seeds, kernels, count, seeds * d)


def contraction(graph: Topology) -> float:
    """Return c at gamma*."""
    return theory.contraction(theory.spectral_gap(graph), theory.beta(graph), QUANTIZER.delta(LENGTH))


def _after(progress: engine.Progress | None, done: int, total: int) -> engine.Progress | None:
    return None if progress is None else lambda rounds, _: progress(done + rounds, total)


def _regret(measured: Any, best: Floats) -> Floats:
    lost = measured.score.sum(axis=0, dtype=np.float64) + LAMBDA * measured.square.sum(axis=0, dtype=np.float64)
    return np.asarray(lost - len(measured.score) * best)


def _bounded(rounds: int, radius: float, graphs: Graphs, measured: Sequence[Any]) -> dict[str, list[Any]]:
    """Return what the theorem and its lemmas bound, of every case, and the bound's terms."""
    norm, loss = ([getattr(one, name).max(axis=0).astype(np.float64) for one in measured] for name in ("norm", "loss"))
    cases = zip([None, *graphs.values()], norm, strict=True)
    terms = [_terms(graph, rounds, radius, max(radius, float(norms.max()))) for graph, norms in cases]
    hedge = [one.gaps.sum(axis=0, dtype=np.float64).max(axis=(1, 2)) for one in measured]
    return {"terms": terms, "norm": norm, "loss": loss, "hedge": hedge}


def _terms(graph: Topology | None, rounds: int, radius: float, reach: float) -> tuple[float, ...]:
    """Return the bound's terms; a node by itself has nobody to agree with."""
    return theory.regret_terms(
        nodes=1 if graph is None else graph.nodes, rounds=rounds, eta=ETA_0 / rounds**0.5,
        lipschitz=Logistic.lipschitz + 2 * LAMBDA * reach, c=1.0 if graph is None else contraction(graph),
        radius=radius, kernels=3,
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


def own_scores(method: Method, given: Round, info: Info, degrees: Array, state: MethodState) -> OwnScores:
    """Return the losses of every node on its own sample, and what the lemmas are about."""
    xp = namespace(info.theta)
    weights = algorithm.normalize(info.log_weights)
    square = xp.sum(info.theta**2, axis=(-2, -1))
    outputs = algorithm.predict(info.theta, info.log_weights, given.z).kernel_outputs
    losses = algorithm.kernel_losses(info.theta, outputs, given.y, method.objective, LAMBDA)
    gaps = xp.sum(weights * losses, axis=-1, keepdims=True) - losses
    return OwnScores(
        xp.mean(info.loss, axis=0),
        xp.mean(xp.sum(weights * square, axis=-1), axis=0),
        xp.sqrt(xp.max(square, axis=(0, 2))),
        xp.max(losses, axis=(0, 2)),
        xp.moveaxis(gaps, 0, 1),
    )


class PooledScores(NamedTuple):
    """C(f, y) of every node's model on every node's sample and sum_p wbar_p |theta_p|^2, means over both, ``(S,)``."""

    score: Array
    square: Array


def pooled_scores(method: Method, given: Round, info: Info, degrees: Array, state: MethodState) -> PooledScores:
    """Return the losses of every node's model on all nodes' samples."""
    xp = namespace(info.theta)
    weights = algorithm.normalize(info.log_weights)
    square = xp.mean(xp.sum(weights * xp.sum(info.theta**2, axis=(-2, -1)), axis=-1), axis=0)
    return PooledScores(pooled_loss(method, given, info), square)
