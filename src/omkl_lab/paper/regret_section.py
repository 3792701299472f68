"""The report's words and tables on regret."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from omkl_lab.paper import regret
from omkl_lab.paper.lemmas import Check
from omkl_lab.paper.regret import Study
from omkl_lab.paper.report import image, paragraph, table

CHECKS = {
    "consensus": "Lemma 1: share of the squared disagreement that a round removes, at least c",
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

LEMMAS = """Rows "as printed" have the gamma* that goes with Lemma 1. Along the slowest direction of the graph,
started with h = theta, a round there removes a share of 2 gamma* rho, of order rho³ on a graph with a small gap,
while c = rho² delta / 82 is of order rho²: so it fails on path and ring. The c fits a step of gamma*/rho, which is
in the table. Lemma 2 supposes losses in [0, 1]; where they leave it, the row is outside the lemma. The bound of
Theorem 1 takes c as printed, though the runs use a practical gamma, far larger."""

TERMS = ["|theta*|²/2eta", "eta L² T/2", "consensus", "ln P/eta", "eta T/8"]


def regret_body(png: Path, own: Study, pooled: Study, checks: Sequence[Check]) -> str:
    """Return the section: figure, exponents, the bound's terms, and the lemmas."""
    names = [name(case) for case in own.exponents]
    powers = [[case, *_power(own, i), *_power(pooled, i)] for i, case in enumerate(names)]
    bounds = []
    for case, terms, lost in zip(names, own.terms[:, -1], own.regret[:, -1], strict=True):
        # Always predicting f = 0 loses ln 2 a round.
        verdict = "vacuous" if terms.sum() >= own.lengths[-1] * np.log(2) else "says something"
        bounds.append([case, *(f"{number:.3g}" for number in (*terms, terms.sum(), lost.mean())), verdict])
    parts = [
        paragraph(WHAT),
        image(png, CAPTION),
        table(["regret ~ T^a", "a, own samples", "last doubling", "a, all nodes' samples", "last doubling"], powers),
        paragraph(EXPONENTS),
        "<h3>The bound of Theorem 1 at the longest stream</h3>",
        table(["case", *TERMS, "bound", "measured", "the bound"], bounds),
        "<h3>The lemmas, checked apart</h3>",
        *(paragraph(text) + _checked([one for one in checks if one.claim == claim]) for claim, text in CHECKS.items()),
        paragraph(LEMMAS),
    ]
    return "".join(parts)


def name(case: str) -> str:
    """Return a case in words."""
    return "no communication" if case == regret.ALONE else f"gossip, {case}"


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
        rows.append([name(one.case) + start, *(f"{number:.2g}" for number in numbers), holds, _standing(one)])
    return table(["network", "gamma", "measured", "promised", "holds", "this row"], rows)


def _standing(check: Check) -> str:
    if check.covered:
        return "as printed"
    if check.gamma in (0, regret.GAMMA):
        return "a practical step" if check.claim == "consensus" else "outside the lemma"
    return "the step that c fits"
