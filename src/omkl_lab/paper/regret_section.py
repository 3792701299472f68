"""The report's words and tables on regret."""

from pathlib import Path

import numpy as np

from omkl_lab.paper import regret
from omkl_lab.paper.lemmas import LemmaStudy
from omkl_lab.paper.report import image, paragraph, table
from omkl_lab.paper.studies import PooledStudy, TheoremStudy

CHECKS = {
    "consensus": "Lemma 1: share of the squared disagreement that a round removes, at least c",
    "hedge": "Lemma 2: regret of the kernel weights, at most ln P / eta + eta T / 8",
    "apart": "the proof's distance from consensus, at most (2/c) sqrt(2J) eta L",
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

LEMMAS = """Rows "as printed" have the gamma* that goes with Lemma 1. Along the slowest direction of the graph,
started with h = theta, a round there removes a share of 2 gamma* rho, of order rho³ on a graph with a small gap,
while c = rho² delta / 82 is of order rho²: so it fails on path and ring. The c fits a step of gamma*/rho, which is
in the table. Lemma 2 supposes losses in [0, 1]; where they leave it, the row is outside the lemma. The bound of
Theorem 1 takes c as printed, though the runs use a practical gamma, far larger."""

TERMS = ["|theta*|²/2eta", "eta L² T/2", "consensus", "ln P/eta", "eta T/8"]


def regret_body(png: Path, own: TheoremStudy, pooled: PooledStudy, checks: LemmaStudy) -> str:
    """Return the section: figure, exponents, the bound's terms, and the lemmas."""
    powers = [[name(case), *_power(own, i, case), *_power(pooled, i, case)] for i, case in enumerate(own.exponents)]
    bounds = [[name(str(case)), *(f"{term:.3g}" for term in own.terms[i, -1]), f"{own.bound[i, -1]:.3g}",
               f"{own.regret[i, -1].mean():.3g}", "vacuous" if own.vacuous[i, -1] else "says something"]
              for i, case in enumerate(own.cases)]  # fmt: skip
    parts = [
        paragraph(WHAT),
        image(png, CAPTION),
        table(["regret ~ T^a", "a, own samples", "last doubling", "a, all nodes' samples", "last doubling"], powers),
        paragraph(EXPONENTS),
        "<h3>The bound of Theorem 1 at the longest stream</h3>",
        table(["case", *TERMS, "bound", "measured", "the bound"], bounds),
        "<h3>The lemmas, checked apart</h3>",
        *(paragraph(text) + _checks(checks, claim) for claim, text in CHECKS.items()),
        paragraph(LEMMAS),
    ]
    return "".join(parts)


def name(case: str) -> str:
    """Return a case in words."""
    return "no communication" if case == "alone" else f"gossip, {case}"


def _power(study: PooledStudy, i: int, case: str) -> tuple[str, str]:
    power = study.exponents[case]
    before, last = np.log(study.regret[i, -2:]).mean(axis=1)
    slope = (last - before) / np.log(study.lengths[-1] / study.lengths[-2])
    return f"{power.mean:.3f} [{power.low:.3f}, {power.high:.3f}]", f"{slope:.2f}"


def _checks(checks: LemmaStudy, claim: str) -> str:
    rows = []
    longest = checks.length == max(checks.length[checks.claim == claim])
    for i in range(len(checks.claim)):
        if checks.claim[i] == claim and longest[i]:
            start = f", {checks.start[i]} start" if checks.start[i] else ""
            rows.append([f"{name(str(checks.case[i]))}{start}", f"{checks.gamma[i]:.2g}", f"{checks.measured[i]:.2g}",
                         f"{checks.bound[i]:.2g}", "yes" if checks.holds[i] else "no",
                         _standing(checks, i)])  # fmt: skip
    return table(["network", "gamma", "measured", "promised", "holds", "this row"], rows)


def _standing(checks: LemmaStudy, i: int) -> str:
    if checks.covered[i]:
        return "as printed"
    if checks.gamma[i] in (0, regret.GAMMA):
        return "a practical step" if checks.claim[i] == "consensus" else "outside the lemma"
    return "the step that c fits"
