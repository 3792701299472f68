"""The report's words and tables on regret."""

from pathlib import Path

from omkl.paper import regret
from omkl.paper.lemmas import LemmaStudy
from omkl.paper.report import image, paragraph, table
from omkl.paper.studies import PooledStudy, TheoremStudy

CHECKS = {
    "consensus": "Lemma 1: share of the squared disagreement that a round removes, at least c",
    "hedge": "Lemma 2: regret of the kernel weights, at most ln P / eta + eta T / 8",
    "apart": "the proof's distance from consensus, at most (2/c) sqrt(2J) eta L",
}

WHAT = f"""Regret is what a node loses beyond the best fixed model of the best kernel, found in hindsight for the very
samples the nodes saw. It should grow slower than the number of rounds T. Streams are rows of Banana with replacement,
eta = {regret.ETA_0:g} / sqrt(T), gamma = {regret.GAMMA:g}, rescaled QSGD with M = 7, 20 nodes."""

CAPTION = """Regret over the length of the stream. Left: every node on its own samples. Right: every node's model on all
nodes' samples, where half of the nodes see only one class and half only the other."""

EXPONENTS = """On its own samples a node needs nobody: without communication the exponent is as good, only the constant
is worse. The exponent depends on the rate: with eta_0 = 3 it is about 0.75 on this range, for small rates are still in
their first descent. Where a node sees one class alone, learning alone has regret in proportion to T, and gossip mends
it, the more the better the graph mixes."""

LEMMAS = """Lemma 1 as printed, gamma* with c = rho² delta / 82, does not hold on path and ring: along the slowest
direction with h = theta, a round at gamma* removes a share 2 gamma* rho, which is of order rho³. The c fits a step of
gamma*/rho, which is in the table too. Lemma 2 supposes losses in [0, 1], which they leave; its inequality holds all the
same. All rows at gamma = 0.5 lie outside what is proved."""

TERMS = ["|theta*|²/2eta", "eta L² T/2", "consensus", "ln P/eta", "eta T/8"]


def regret_body(png: Path, own: TheoremStudy, pooled: PooledStudy, checks: LemmaStudy) -> str:
    """Return the section: figure, exponents, the bound's terms, and the lemmas."""
    powers = [[name(case), _power(own, case), _power(pooled, case)] for case in own.exponents]
    bounds = [[name(str(case)), *(f"{term:.3g}" for term in own.terms[i, -1]), f"{own.bound[i, -1]:.3g}",
               f"{own.regret[i, -1].mean():.3g}", "vacuous" if own.vacuous[i, -1] else "says something"]
              for i, case in enumerate(own.cases)]  # fmt: skip
    parts = [
        paragraph(WHAT),
        image(png, CAPTION),
        table(["regret ~ T^a", "a, own samples", "a, all nodes' samples"], powers),
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


def _power(study: PooledStudy, case: str) -> str:
    power = study.exponents[case]
    return f"{power.mean:.3f} [{power.low:.3f}, {power.high:.3f}]"


def _checks(checks: LemmaStudy, claim: str) -> str:
    rows = []
    longest = checks.length == max(checks.length[checks.claim == claim])
    for i in range(len(checks.claim)):
        if checks.claim[i] == claim and longest[i]:
            start = f", {checks.start[i]} start" if checks.start[i] else ""
            rows.append([f"{name(str(checks.case[i]))}{start}", f"{checks.gamma[i]:.2g}", f"{checks.measured[i]:.2g}",
                         f"{checks.bound[i]:.2g}", "yes" if checks.holds[i] else "no",
                         "as stated" if checks.covered[i] else "outside the lemma"])  # fmt: skip
    return table(["network", "gamma", "measured", "promised", "holds", "assumptions"], rows)
