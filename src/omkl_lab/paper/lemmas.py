"""Checks the lemmas that Theorem 1 rests on, one by one.

How fast nodes agree is measured without learning. How far apart they can be held, which a step of the proof of Lemma 1
bounds, is computed for one adversary. Lemma 2 is checked in the runs of Theorem 1.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from omkl import noise, theory
from omkl.quantizers import restore
from omkl.topology import Topology, build
from omkl_lab.paper.regret import ALONE, GAMMA, GRAPHS, LENGTH, NODES, QUANTIZER, Study

SETTLING = 40  # rounds in which pure consensus is watched; on the complete graph little is left after them
PRINTED, OURS, PRACTICAL = "the paper's gamma*", "gamma* with one rho", "a practical step"


class Check(NamedTuple):
    """A measured number beside the number that is promised."""

    claim: str
    """``"consensus"``: the share of the squared disagreement that a round removes, at least c. ``"apart"``:
    sum_j |theta_j - mean|^2 over J eta^2 L^2, at most 12 / c^2. ``"hedge"``, Lemma 2: regret to the best kernel, at
    most ln P / eta + eta T / 8."""
    case: str
    """The network."""
    start: str
    """Where a check of consensus began."""
    length: int
    """Rounds; zero stands for as many as it takes."""
    gamma: float
    """The step used."""
    measured: float
    bound: float
    covered: str
    """Which step it is, or whether losses lie in [0, 1]."""

    @property
    def holds(self) -> bool:
        """Whether the measured number is on the promised side; rates from below, to three digits."""
        ratio = self.measured / self.bound
        return ratio > 0.999 if self.claim == "consensus" else ratio <= 1


def lemmas(study: Study, trials: int = 50) -> list[Check]:
    """Return how nodes agree without gradients and against them, and Lemma 2 in the runs of ``study``."""
    checks = [check for name in GRAPHS for check in _consensus_checks(build(name, NODES), trials)]
    for case, name in enumerate(study.cases.tolist()):
        for k, (rounds, eta) in enumerate(zip(study.lengths.tolist(), study.eta.tolist(), strict=True)):
            promised, inside = np.log(3) / eta + eta * rounds / 8, bool(study.loss[case, k].max() <= 1)
            step, regret = 0.0 if name == ALONE else GAMMA, float(study.hedge[case, k].max())
            covered = "losses in [0, 1]" if inside else "outside the lemma"
            checks.append(Check("hedge", name, "", rounds, step, regret, float(promised), covered))
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


def held_apart(graph: Topology, gamma: float) -> float:
    """Return sum_j |theta_j - mean|^2 over J eta^2 L^2 where an adversary holds nodes apart, with exact messages.

    Its losses are linear: L theta at nodes on one side of the network's slowest mode, -L theta on the other. Models
    then settle where gamma (I - W) theta = -eta (g - mean g).
    """
    pull = np.eye(graph.nodes) - graph.matrix()
    pushes = np.sign(np.linalg.eigh(pull)[1][:, 1])
    settled = np.linalg.lstsq(pull, pushes - pushes.mean(), rcond=None)[0] / gamma
    return float(((settled - settled.mean()) ** 2).mean())


def _consensus_checks(graph: Topology, trials: int) -> Iterator[Check]:
    """Yield how nodes agree, and how far apart they are held, at three steps.

    At the paper's gamma* the slowest mode loses 2 gamma* rho of its square a round, of order rho^3: less than
    c = rho^2 delta / 82 where rho is small. With one rho in gamma*, c = rho gamma* / 2 is proved.
    """
    name, rho, delta = graph.graph.name, theory.spectral_gap(graph), QUANTIZER.delta(LENGTH)
    proved = theory.consensus_step(rho, theory.beta(graph), delta)
    steps = {
        PRINTED: (rho * proved, rho**2 * delta / 82),
        OURS: (proved, rho * proved / 2),
        PRACTICAL: (GAMMA, rho * GAMMA / 2),
    }
    for step, (gamma, c) in steps.items():
        for start in ("random", "slowest"):
            rate = consensus_rate(graph, gamma, start, trials)
            yield Check("consensus", name, start, SETTLING, gamma, rate, c, step)
        yield Check("apart", name, "", 0, gamma, held_apart(graph, gamma), 12 / c**2, step)
