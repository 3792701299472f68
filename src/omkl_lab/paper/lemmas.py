"""The lemmas behind Theorem 1, each checked apart from it.

Lemma 1 is about pure consensus, so it is watched where nothing is learned. Lemma 2 and the proof's distance from
consensus are read off the theorem's runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from omkl import noise, theory
from omkl.quantizers import restore
from omkl.topology import Topology, build
from omkl_lab.paper.regret import ALONE, GAMMA, GRAPHS, LAMBDA, LENGTH, NODES, QUANTIZER, contraction
from omkl_lab.paper.studies import Arrays, Floats, Integers, TheoremStudy

SETTLING = 40  # rounds in which pure consensus is watched; on the complete graph little is left after them


@dataclass(frozen=True)
class LemmaStudy(Arrays):
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
    rows: list[tuple[Any, ...]] = []
    for graph in (build(name, NODES) for name in GRAPHS):
        rows += _consensus_checks(graph, trials)
    for case, name in enumerate(study.cases.tolist()):
        for k, (rounds, eta) in enumerate(zip(study.lengths.tolist(), study.eta.tolist(), strict=True)):
            gamma = 0.0 if name == ALONE else GAMMA
            largest, lipschitz = study.loss[case, k].max(), 1 + 2 * LAMBDA * study.norm[case, k].max()
            promised = np.log(3) / eta + eta * rounds / 8
            rows.append(("hedge", name, "", rounds, gamma, study.hedge[case, k].max(), promised, largest <= 1))
            if name != ALONE:
                promised = theory.consensus_bound(NODES, eta, lipschitz, contraction(build(name, NODES)))
                rows.append(("apart", name, "", rounds, gamma, study.apart[case, k].max(), promised, False))
    return LemmaStudy(*(np.array(column) for column in zip(*rows, strict=True)))


def consensus_rate(graph: Topology, gamma: float, start: str, trials: int = 50) -> float:
    """Return the share of E sum_j |theta_j - mean|^2 + |theta_j - h_j|^2 that a round removes where nothing is learned.

    A mean over the second half of ``SETTLING`` rounds. ``start`` is ``"random"``, with h = 0, or ``"slowest"``: models
    along the network's slowest mode and h = theta.
    """
    noises = noise.uniforms(noise.fold(noise.key(0, "consensus"), np.arange(2 * trials)[:, None]), graph.nodes * LENGTH)
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

    At gamma* the slowest mode loses 2 gamma* rho of its square a round, of order rho^3: less than the promised c, of
    order rho^2, where rho is small. c goes with gamma*/rho: it is half of rho times that, the denominator being at most
    41. So that step is checked too.
    """
    rho = theory.spectral_gap(graph)
    printed = theory.consensus_step(rho, theory.beta(graph), QUANTIZER.delta(LENGTH))
    for gamma in dict.fromkeys((printed, printed / rho, GAMMA)):
        for start in ("random", "slowest"):
            rate = consensus_rate(graph, gamma, start, trials)
            yield "consensus", graph.graph.name, start, SETTLING, gamma, rate, contraction(graph), gamma == printed
