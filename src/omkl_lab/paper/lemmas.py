"""The lemmas behind Theorem 1, each checked apart from it.

Lemma 1 is about pure consensus, so it is watched where nothing is learned. Lemma 2 is read off the theorem's runs.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from omkl import noise, theory
from omkl.quantizers import restore
from omkl.topology import Topology, build
from omkl_lab.paper.regret import ALONE, GAMMA, GRAPHS, LENGTH, NODES, QUANTIZER, Study, contraction

SETTLING = 40  # rounds in which pure consensus is watched; on the complete graph little is left after them


class Check(NamedTuple):
    """Measured against promised."""

    claim: str
    """``"consensus"``, Lemma 1: the share of the squared disagreement that a round removes, at least c. ``"hedge"``,
    Lemma 2: regret to the best kernel, at most ln P / eta + eta T / 8."""
    case: str
    """The network."""
    start: str
    """Where Lemma 1's check began."""
    length: int
    """Rounds."""
    gamma: float
    """The step used."""
    measured: float
    bound: float
    covered: bool
    """Whether the claim's assumptions hold: Lemma 1's gamma, losses in [0, 1]."""

    @property
    def holds(self) -> bool:
        """Whether the measured number is on the promised side; rates from below, to three digits."""
        ratio = self.measured / self.bound
        return ratio > 0.999 if self.claim == "consensus" else ratio <= 1


def lemmas(study: Study, trials: int = 50) -> list[Check]:
    """Return Lemma 1 checked in pure consensus, and Lemma 2 in the runs of ``study``."""
    checks = [check for name in GRAPHS for check in _consensus_checks(build(name, NODES), trials)]
    for case, name in enumerate(study.cases.tolist()):
        for k, (rounds, eta) in enumerate(zip(study.lengths.tolist(), study.eta.tolist(), strict=True)):
            promised, inside = np.log(3) / eta + eta * rounds / 8, bool(study.loss[case, k].max() <= 1)
            step, regret = 0.0 if name == ALONE else GAMMA, float(study.hedge[case, k].max())
            checks.append(Check("hedge", name, "", rounds, step, regret, float(promised), inside))
    return checks


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


def _consensus_checks(graph: Topology, trials: int) -> Iterator[Check]:
    """Yield what Lemma 1 is checked by.

    At gamma* the slowest mode loses 2 gamma* rho of its square a round, of order rho^3: less than the promised c, of
    order rho^2, where rho is small. c goes with gamma*/rho: it is half of rho times that, the denominator being at most
    41. So that step is checked too.
    """
    rho = theory.spectral_gap(graph)
    printed = theory.consensus_step(rho, theory.beta(graph), QUANTIZER.delta(LENGTH))
    for gamma in dict.fromkeys((printed, printed / rho, GAMMA)):
        for start in ("random", "slowest"):
            rate = consensus_rate(graph, gamma, start, trials)
            c = contraction(graph)
            yield Check("consensus", graph.graph.name, start, SETTLING, gamma, rate, c, bool(gamma == printed))
