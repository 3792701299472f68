"""Successive halving: many candidates on few seeds, the best third on three times as many fresh ones, and so on.

Stages have more seeds, not longer streams: the loss over the whole stream counts, and what learns fastest at first need
not be best in the end.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

ETA = 3
BASE = 0
"""The place of the base among the candidates; it is in every rung, unless it diverges."""

LOG = logging.getLogger("omkl.tuning")


class Score(NamedTuple):
    """The result of a candidate on some seeds."""

    losses: tuple[float, ...] = ()
    bytes: float = math.nan
    failure: str | None = None


class Trial(NamedTuple):
    """How far a candidate came: its rungs, loss and bytes on the last of them, and what it was dropped for, if so."""

    rungs: int = 0
    loss: float = math.nan
    bytes: float = math.nan
    dropped: str | None = None


class Rung(NamedTuple):
    """How many candidates run, besides the base, and on which seeds."""

    size: int
    seeds: range


Evaluate: TypeAlias = Callable[[Sequence[int], range, str], list[Score]]
"""Returns the scores of candidates, by their places, on seeds; the text says what for."""


def rungs(count: int, seeds: int, first: int = 0) -> list[Rung]:
    """Return the rungs, down to one of ``ETA`` candidates at most; no seed is in two of them.

    >>> rungs(27, 2)
    [Rung(size=27, seeds=range(0, 2)), Rung(size=9, seeds=range(2, 8)), Rung(size=3, seeds=range(8, 26))]
    """
    plan = [Rung(count, range(first, first + seeds))]
    while plan[-1].size > ETA:
        size, before = plan[-1]
        plan.append(Rung(math.ceil(size / ETA), range(before.stop, before.stop + ETA * len(before))))
    return plan


def halve(plan: Sequence[Rung], evaluate: Evaluate, budget: float | None) -> tuple[list[Trial], list[int]]:
    """Return the trials of the base and of every candidate, and the candidates that are left, the best first."""
    trials, fit = [Trial()] * (1 + plan[0].size), list[int]()
    left = list(range(1, len(trials)))
    for k, (size, seeds) in enumerate(plan, start=1):
        running = [*([] if trials[BASE].dropped == "diverged" else [BASE]), *left[:size]]
        what = f"rung {k}"
        for place, score in zip(running, evaluate(running, seeds, what), strict=True):
            trials[place] = judged(score, budget, k)
        fit = [place for place in running if trials[place].dropped is None]
        left = sorted((place for place in fit if place != BASE), key=lambda place: trials[place].loss)
        best = min((trials[place].loss for place in fit), default=math.nan)
        lost = reasons([trials[place].dropped for place in running], budget)
        told = len(running), len(seeds), lost and f", {lost}", best
        LOG.info("%s: %d settings on %d seeds%s, best loss %.4f", what, *told)
    return trials, sorted(fit, key=lambda place: trials[place].loss)


def judged(score: Score, budget: float | None, rungs: int) -> Trial:
    """Return a candidate's trial, given its score."""
    if score.failure is not None:
        return Trial(rungs, dropped=score.failure)
    over = budget is not None and score.bytes > budget
    loss = math.fsum(score.losses) / len(score.losses)
    return Trial(rungs, loss, score.bytes, "over budget" if over else None)


def reasons(dropped: Iterable[str | None], budget: float | None) -> str:
    """Return how many candidates were dropped, and why; an empty text if none was."""
    counts = Counter(reason for reason in dropped if reason is not None)
    texts = {"over budget": f"over {budget:g} bytes" if budget is not None else ""}
    return ", ".join(f"{count} {texts.get(reason, reason)}" for reason, count in sorted(counts.items()))
