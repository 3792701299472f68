"""The report's words and tables on regret."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from omkl import theory
from omkl.topology import build
from omkl_lab.paper import regret
from omkl_lab.paper.lemmas import Check
from omkl_lab.paper.regret import Study
from omkl_lab.paper.report import image, paragraph, table

CHECKS = {
    "consensus": "The share of the squared disagreement that a round removes, at least c",
    "apart": "How far an adversary holds nodes apart: sum_j |theta_j - mean|² / (J eta² L²), at most 12 / c²",
    "hedge": "Lemma 2: regret of the kernel weights, at most ln P / eta + eta T / 8",
}

WHAT = f"""Regret is what a node loses beyond the best fixed model of the best kernel, found in hindsight for the very
samples the nodes saw. It should grow slower than the number of rounds T. Streams are rows of Banana with replacement,
eta = {regret.ETA_0:g} / sqrt(T), gamma = {regret.GAMMA:g}, rescaled QSGD with M = 7, 20 nodes."""

CAPTION = """Regret over the length of the stream. Left: every node on its own samples. Right: every node's model on
all nodes' samples, where half of the nodes see only one class and half only the other."""

EXPONENTS = """A node that learns alone is measured too: on its own samples it needs nobody, and communication
changes the constant more than the power. Where nodes see different classes, a model is only good if it has heard of
the other class. The fitted power depends on the rate and on the range of T: small rates are still in their first
descent, and a curve that bends has no power; the slope of the last doubling stands beside it. Intervals are over
seeds, not over that."""

LEMMAS = """Lemma 1 of the paper is an inequality on the regret. A step of its proof is
sum_j E|theta_j - mean|² <= 12 J eta² L² / c², with c = rho² delta / 82 at the gamma* that the paper prints. That step
fails where the gap rho is small: a round there removes a share of 2 gamma* rho, of order rho³, along the slowest
direction, and constant gradients of opposite sign on the two sides of the graph hold the nodes further apart. The
printed gamma* has one rho too many. With one rho less, rho gamma* / 2 is proved, and both inequalities hold. For the
practical step nothing is proved; c is rho gamma / 2 there to compare with. Lemma 2 supposes losses in [0, 1]; where
they leave it, the row is outside the lemma."""

BOUNDS = """The bound is the one by agreement, at gamma* with one rho; the runs use a practical gamma, far larger, for
which no bound is known. Theorem 1 as printed is for the paper's gamma*. Without communication there is nothing to
agree on."""

TERMS = ["|theta*|²/2eta", "eta L² T/2", "consensus", "ln P/eta", "eta T/8"]


def regret_body(png: Path, own: Study, pooled: Study, checks: Sequence[Check]) -> str:
    """Return the section: figure, exponents, the bound's terms, and the lemmas."""
    names = [name(case) for case in own.exponents]
    powers = [[case, *_power(own, i), *_power(pooled, i)] for i, case in enumerate(names)]
    bounds = [_bound(own, i, case) for i, case in enumerate(own.exponents)]
    parts = [
        paragraph(WHAT),
        image(png, CAPTION),
        table(["regret ~ T^a", "a, own samples", "last doubling", "a, all nodes' samples", "last doubling"], powers),
        paragraph(EXPONENTS),
        "<h3>The bound on the regret at the longest stream</h3>",
        table(["case", *TERMS, "bound", "Theorem 1, printed", "measured", "the bound"], bounds),
        paragraph(BOUNDS),
        "<h3>What the theorem rests on, checked apart</h3>",
        *(paragraph(text) + _checked([one for one in checks if one.claim == claim]) for claim, text in CHECKS.items()),
        paragraph(LEMMAS),
    ]
    return "".join(parts)


def name(case: str) -> str:
    """Return a case in words."""
    return "no communication" if case == regret.ALONE else f"gossip, {case}"


def _bound(study: Study, i: int, case: str) -> list[str]:
    """Return the bound's terms at the longest stream, Theorem 1 as printed, and what was measured."""
    terms, rounds, eta = study.terms[i, -1], int(study.lengths[-1]), float(study.eta[-1])
    graph = build("path", 1) if case == regret.ALONE else build(case, regret.NODES)
    printed = theory.printed_terms(
        nodes=graph.nodes, rounds=rounds, eta=eta, lipschitz=float(np.sqrt(2 * terms[1] / (eta * rounds))),
        rho=theory.spectral_gap(graph), delta=regret.QUANTIZER.delta(regret.LENGTH),
        radius=float(np.sqrt(2 * eta * terms[0])), kernels=3,
    )  # fmt: skip
    numbers = (*terms, terms.sum(), printed.total, study.regret[i, -1].mean())
    # Always predicting f = 0 loses ln 2 a round.
    verdict = "vacuous" if terms.sum() >= rounds * np.log(2) else "says something"
    return [name(case), *(f"{number:.3g}" for number in numbers), verdict]


def _power(study: Study, i: int) -> tuple[str, str]:
    power = list(study.exponents.values())[i]
    before, last = np.log(study.regret[i, -2:]).mean(axis=1)
    slope = (last - before) / np.log(study.lengths[-1] / study.lengths[-2])
    return f"{power.mean:.3f} [{power.low:.3f}, {power.high:.3f}]", f"{slope:.2f}"


def _checked(checks: Sequence[Check]) -> str:
    """Return the table of a claim, at the longest stream."""
    rows = []
    for one in (one for one in checks if one.length == checks[-1].length):
        start, numbers = f", {one.start} start" if one.start else "", (one.gamma, one.measured, one.bound)
        holds = "yes" if one.holds else "no"
        rows.append([name(one.case) + start, *(f"{number:.2g}" for number in numbers), holds, one.covered])
    return table(["network", "gamma", "measured", "promised", "holds", "this row"], rows)
