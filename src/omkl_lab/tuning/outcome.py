"""The result of tuning."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from omkl.methods.tables import as_toml
from omkl.metrics import half_interval
from omkl_lab.tuning.halving import Rung, Score, reasons


class Candidate(NamedTuple):
    """A setting that was tried."""

    settings: dict[str, Any]
    """What differs from the base; nothing in the base itself."""
    rungs: int
    """Those that it came to."""
    loss: float
    """Its mean loss on the seeds of the last of them; nan where it diverged."""
    bytes: float
    """That a node sent in a round, in the mean."""
    dropped: str | None
    """What for, before its loss was looked at: ``"over budget"``, ``"diverged"``, or the failure of a sweep's point."""


class Comparison(NamedTuple):
    """The best setting against the base, on seeds that had no part in the choice; nan where the base diverged."""

    seeds: int
    loss: float
    base_loss: float
    difference: float
    """Mean of loss - base_loss over the seeds, each paired with itself."""
    half: float
    """Half the width of its 95 % interval, by Student's t."""
    bytes: float
    base_bytes: float


@dataclass(frozen=True, eq=False)
class Tuned:
    """The result of tuning.

    Attributes
    ----------
    method
        The best setting; the base where none was better.
    settings
        The settings in which it differs from the base.
    comparison
        How it compares with the base, on other seeds.
    candidates
        All that were tried, the base first.
    rungs
        How many were run, and on which seeds.
    budget
        Bytes a round that were allowed.
    """

    method: Any
    settings: dict[str, Any]
    comparison: Comparison
    candidates: tuple[Candidate, ...]
    rungs: tuple[Rung, ...]
    budget: float | None

    def summary(self) -> str:
        """Return a page of text: what was tried, what the best brings, and what it is."""
        told, base = self.comparison, self.candidates[0]
        lost = reasons([one.dropped for one in self.candidates[1:]], self.budget)
        sizes = ", ".join(f"{size} on {len(seeds)}" for size, seeds in self.rungs)
        lines = [f"settings tried, and seeds: {sizes}{lost and f'; {lost}'}", f"on {told.seeds} other seeds:"]
        flaw = "" if base.dropped is None else f" ({base.dropped})"
        lines.append(f"  base  loss {told.base_loss:.4f}, {told.base_bytes:.1f} bytes{flaw}")
        if not self.settings:
            return "\n".join([*lines, "no setting was better than the base"])
        share = told.difference / told.base_loss
        lines.append(f"  best  loss {told.loss:.4f}, {told.bytes:.1f} bytes")
        lines.append(f"  difference {told.difference:+.4f} ± {told.half:.4f} ({share:+.1%}), 95 % interval over seeds")
        if abs(told.difference) <= told.half:
            lines.append("  which may be chance; more seeds, and more of them held out, would tell")
        return "\n".join([*lines, "the best has", *(f"  {name} = {value}" for name, value in self.settings.items())])

    def to_toml(self) -> str:
        """Return the best setting as the table ``[method]`` of a file."""
        return as_toml(self.method)


def compared(best: Score, base: Score) -> Comparison:
    """Return the comparison of two scores on the same seeds; of a base that failed there is none to make."""
    own = np.array(best.losses)
    other = np.array(base.losses if base.failure is None else [np.nan] * len(own))
    apart, seeds = own - other, len(own)
    loss, base_loss, difference = (float(part.mean()) for part in (own, other, apart))
    return Comparison(seeds, loss, base_loss, difference, float(half_interval(apart)), best.bytes, base.bytes)
