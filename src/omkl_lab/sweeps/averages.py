"""What a sweep says about each setting: means over all its seeds."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from omkl.metrics import half_interval
from omkl_lab.sweeps.points import MEASURES, Row

DRAWN = ("id", "seed", "seeds")
"""Columns in which rows of one setting differ."""


def averaged(rows: Sequence[Row]) -> list[Row]:
    """Return one row for each setting: its points differ in ``seed`` and ``seeds`` only.

    A row has the setting; ``seeds``, the number of seeds that its means are over; ``failed``, the number of its points
    that failed; and the measures. In place of the standard error it has ``final_loss_half``, half the width of a 95 %
    interval over the seeds, which is None of one seed. Measures are None where every point failed. Of two points that
    share a seed only one counts. ``minus_best`` is the mean of what a setting loses more than the best one, over the
    seeds that both have, and ``minus_best_half`` half of its interval: what a seed does to both cancels.

    Examples
    --------
    >>> rows = [{"id": "a", "eta": 1, "seed": 0, "seeds": 2, "loss": 0.5, "final_loss": 0.4, "final_loss_stderr": 0.1},
    ...         {"id": "b", "eta": 1, "seed": 9, "seeds": 1, "loss": 0.6, "final_loss": 0.7, "final_loss_stderr": None}]
    >>> rows = [row | {"final_accuracy": None, "bits_per_node_round": 8.0, "failure": None} for row in rows]
    >>> [row] = averaged(rows)
    >>> row["eta"], row["seeds"], round(row["final_loss"], 3), round(row["final_loss_half"], 3)
    (1, 3, 0.5, 0.497)
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(_setting(row).values()), []).append(row)
    made = [_average(group) for group in groups.values()]
    losses = [_by_seed(group) for group in groups.values()]
    whole = [k for k, row in enumerate(made) if row["final_loss"] is not None]
    best = min(whole, key=lambda k: (made[k]["failed"] > 0, made[k]["final_loss"]), default=None)
    return [row | _minus(own, {} if best is None else losses[best]) for row, own in zip(made, losses, strict=True)]


def _setting(row: Row) -> Row:
    columns = list(row)
    return {key: row[key] for key in columns[: columns.index("loss")] if key not in DRAWN}


def _average(group: Sequence[Row]) -> Row:
    whole = _apart([row for row in group if row["failure"] is None])
    seeds = sum(row["seeds"] for row in whole)

    def mean(key: str) -> float | None:
        known = [row[key] * row["seeds"] / seeds for row in whole if row[key] is not None]
        return sum(known) if whole and len(known) == len(whole) else None

    means = {key: mean(key) for key in MEASURES if key in group[0] and key != "final_loss_stderr"}
    means |= {"final_loss_half": _half(whole, seeds, means["final_loss"])}
    failed = sum(row["failure"] is not None for row in group)
    return _setting(group[0]) | {"seeds": seeds, "failed": failed} | means


def _by_seed(group: Sequence[Row]) -> dict[int, float]:
    """Return the final loss of every seed; records of earlier versions do not tell it."""
    whole = _apart([row for row in group if row["failure"] is None and row.get("final_losses")])
    return {row["seed"] + s: loss for row in whole for s, loss in enumerate(row["final_losses"])}


def _minus(own: dict[int, float], best: dict[int, float]) -> Row:
    """Return what a setting loses more than the best, in the mean, and half the interval of that."""
    apart = np.array([own[seed] - best[seed] for seed in sorted(own.keys() & best.keys())])
    half = float(half_interval(apart)) if len(apart) > 1 else None
    return {"minus_best": float(apart.mean()) if len(apart) else None, "minus_best_half": half}


def _apart(rows: Sequence[Row]) -> list[Row]:
    """Return rows that have no seed in common, those of most seeds first."""
    chosen: list[Row] = []
    taken: set[int] = set()
    for row in sorted(rows, key=lambda row: (-row["seeds"], row["seed"])):
        own = range(row["seed"], row["seed"] + row["seeds"])
        if taken.isdisjoint(own):
            chosen.append(row)
            taken.update(own)
    return chosen


def _half(rows: Sequence[Row], seeds: int, mean: float | None) -> float | None:
    """Return half the 95 % interval of the mean of all runs, from the means and standard errors of their points."""
    if seeds < 2 or mean is None:
        return None
    from scipy.special import stdtrit  # it takes a while to import

    squares = 0.0
    for row in rows:
        count, error = row["seeds"], row["final_loss_stderr"] or 0.0
        squares += count * (row["final_loss"] - mean) ** 2 + count * (count - 1) * error**2
    return float(stdtrit(seeds - 1, 0.975) * (squares / (seeds - 1) / seeds) ** 0.5)
