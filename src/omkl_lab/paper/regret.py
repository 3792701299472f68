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
and the slope flatter. gamma = 0.5 is a practical step, far above Lemma 1's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from omkl import algorithm, comparator, features, noise, theory
from omkl.arrays import Array, namespace
from omkl.data import load
from omkl.losses import Logistic
from omkl.methods import Gossip, Info, Local, Method, Round, letter
from omkl.methods.protocol import MethodState
from omkl.quantizers import QSGD
from omkl.simulator import engine
from omkl.simulator.engine import Measure
from omkl.simulator.measures import pooled_loss
from omkl.topology import Topology, build
from omkl_lab.paper.studies import Floats, Integers, PooledStudy, TheoremStudy

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


def theorem(seeds: int = 20, quick: bool = False, progress: engine.Progress | None = None) -> TheoremStudy:
    """Return Theorem 1's regret on i.i.d. streams: without communication, and by gossip on path, ring and complete."""
    lengths = QUICK_LENGTHS if quick else LENGTHS
    table = load("banana")
    draws = noise.uniforms(noise.key(0, "classes"), lengths[-1] * NODES) * len(table.y)
    streams = Streams(table.X, table.y, table.y[draws.astype(int)].reshape(-1, NODES), lengths, seeds)
    return streams.theorem({name: build(name, NODES) for name in GRAPHS}, progress)


def pooled(seeds: int = 20, quick: bool = False, progress: engine.Progress | None = None) -> PooledStudy:
    """Return the pooled regret where a node sees one class alone, for the same cases."""
    lengths = QUICK_LENGTHS if quick else LENGTHS
    table = load("banana")
    classes = np.where(np.arange(NODES) < NODES // 2, 1, -1)
    streams = Streams(table.X, table.y, np.tile(classes, (lengths[-1], 1)), lengths, seeds)
    return streams.pooled({name: build(name, NODES) for name in GRAPHS}, progress)


@dataclass(frozen=True)
class Streams:
    """Streams drawn from a table ``X (n, d), y (n,)`` in a given order of ``classes (T, J)``."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    classes: npt.NDArray[Any]
    lengths: Sequence[int]
    seeds: int

    def theorem(self, graphs: dict[str, Topology], progress: engine.Progress | None = None) -> TheoremStudy:
        """Return regret on each node's own samples, alone and by gossip on every graph."""
        rows, frequencies = self.draw()
        best, radius = self.comparator(rows, frequencies)
        columns: dict[str, list[Any]] = {name: [] for name in ("regret", "terms", "norm", "loss", "hedge", "apart")}
        for k, measured in enumerate(self.play(rows, frequencies, graphs, own_scores, progress)):
            rounds, farthest = self.lengths[k], float(radius[k].max())
            columns["regret"].append([_regret(one, best[k]) for one in measured])
            for name in ("norm", "loss", "apart"):
                columns[name].append([_largest(getattr(one, name)) for one in measured])
            columns["hedge"].append([one.gaps.sum(axis=0, dtype=np.float64).max(axis=(1, 2)) for one in measured])
            reach = [max(farthest, float(norms.max())) for norms in columns["norm"][-1]]
            columns["terms"].append(
                [_terms(graph, rounds, farthest, R) for graph, R in zip([None, *graphs.values()], reach, strict=True)]
            )
        return TheoremStudy(
            *self.axes(graphs), best=best, radius=radius,
            **{name: np.moveaxis(np.array(column), 0, 1) for name, column in columns.items()},
        )  # fmt: skip

    def pooled(self, graphs: dict[str, Topology], progress: engine.Progress | None = None) -> PooledStudy:
        """Return regret on all nodes' samples, for the same cases."""
        rows, frequencies = self.draw()
        best, radius = self.comparator(rows, frequencies)
        runs = self.play(rows, frequencies, graphs, pooled_scores, progress)
        regret = [[_regret(one, best[k]) for one in measured] for k, measured in enumerate(runs)]
        return PooledStudy(*self.axes(graphs), np.moveaxis(np.array(regret), 0, 1), best, radius)

    def axes(self, graphs: dict[str, Topology]) -> tuple[npt.NDArray[np.str_], Integers, Floats]:
        """Return the cases, the lengths and the rates."""
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
        kernels = letter().bank.kernels
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

    def play(
        self,
        rows: Integers,
        frequencies: npt.NDArray[np.float32],
        graphs: dict[str, Topology],
        measure: Measure,
        progress: engine.Progress | None,
    ) -> Iterator[list[Any]]:
        """Yield, length by length, what was measured of each case."""
        wide = side_by_side(frequencies)
        total, done = sum(self.lengths), 0
        for rounds in self.lengths:
            eta = ETA_0 / rounds**0.5
            gossip = Gossip(eta=eta, gamma=GAMMA, quantizer=QUANTIZER, regularization=LAMBDA)
            alone = Local(eta=eta, regularization=LAMBDA)
            turns = [(graph,) for graph in graphs.values()]
            cases = [engine.Case(alone, turns[0]), *(engine.Case(gossip, one) for one in turns)]
            X = self.X[rows[:rounds]].reshape(rounds, rows.shape[1], -1)
            y = Logistic().encode(self.classes[:rounds])
            problem = engine.Problem(X, y, features.Features(wide), list(range(self.seeds)))
            yield [one for _, one in engine.run(problem, cases, measure, _after(progress, done, total))]
            done += rounds


def side_by_side(frequencies: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return frequencies ``(S, P, D, S d)`` that let seed s see only the s-th of S samples joined into one input.

    The simulator gives all seeds the same samples; so every seed gets a stream of its own.
    """
    seeds, kernels, count, d = frequencies.shape
    wide = np.zeros((seeds, kernels, count, seeds, d), dtype=np.float32)
    wide[np.arange(seeds), :, :, np.arange(seeds)] = frequencies
    return wide.reshape(seeds, kernels, count, seeds * d)


def contraction(graph: Topology) -> float:
    """Return Lemma 1's c."""
    return theory.contraction(theory.spectral_gap(graph), QUANTIZER.delta(LENGTH))


def _after(progress: engine.Progress | None, done: int, total: int) -> engine.Progress | None:
    return None if progress is None else lambda rounds, _: progress(done + rounds, total)


def _regret(measured: Any, best: Floats) -> Floats:
    lost = measured.score.sum(axis=0, dtype=np.float64) + LAMBDA * measured.square.sum(axis=0, dtype=np.float64)
    return np.asarray(lost - len(measured.score) * best)


def _largest(values: npt.NDArray[np.float32]) -> Floats:
    return np.asarray(values.max(axis=(0, *range(2, values.ndim))), dtype=np.float64)


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
    apart: Array
    """r of every kernel, ``(S, P)``."""


def own_scores(method: Method, given: Round, info: Info, degrees: Array, state: MethodState) -> OwnScores:
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


def pooled_scores(method: Method, given: Round, info: Info, degrees: Array, state: MethodState) -> PooledScores:
    """Return the losses of every node's model on all nodes' samples."""
    xp = namespace(info.theta)
    weights = algorithm.normalize(info.log_weights)
    square = xp.mean(xp.sum(weights * xp.sum(info.theta**2, axis=(-2, -1)), axis=-1), axis=0)
    return PooledScores(pooled_loss(method, given, info), square)
