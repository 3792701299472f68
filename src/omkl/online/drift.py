"""Noticing that a calibration no longer fits: rows in new units, other columns that matter, another place.

What tells is the loss. Rows are looked at in blocks. Where the mean loss of a block is far above what it was before,
rows are kept from that block on. When there are 128, 256 and 512 of them, a calibration on these rows is tried: on the
first half, and scored on the second, which it has not seen. One that would have lost clearly less takes over.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from omkl.online.calibrating import Calibrated

BLOCK = 64  # rows that are looked at together
TRIALS = (128, 256, 512)  # rows that a calibration is tried on
ALARM = 4.0  # standard errors by which a block's loss exceeds what it was before
OUTLIER = 100.0  # times the usual loss: no single row counts for more
RECENT = 512  # rows that the usual loss is about a mean of
CLEARLY = 0.7  # of the loss that there was, or of the root of a squared one: what a new calibration must come to


@dataclass
class Watch:
    """The loss as it used to be, and the rows of a change that is being looked at.

    Attributes
    ----------
    usual, deviation
        Of the losses of single rows.
    changed
        Whether rows are kept until it is clear what became of a change.
    rows, losses
        Those of the block that is open, or all since the change.
    made, state
        Calibration and state before the first of these rows.
    """

    usual: float
    deviation: float
    changed: bool = False
    rows: list[Any] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    made: Calibrated | None = None
    state: Any = None

    @classmethod
    def of(cls, losses: list[float]) -> "Watch":
        """Return a watch to which these losses are usual, the second half of them."""
        usual = np.asarray(losses[len(losses) // 2 :])
        return cls(float(usual.mean()), float(usual.std()))

    @property
    def room(self) -> int:
        """How many rows there are until the next look."""
        return BLOCK - len(self.rows) % BLOCK

    @property
    def is_due(self) -> bool:
        """Whether a calibration on the rows since a change is to be tried now."""
        return self.changed and len(self.rows) in TRIALS

    def before(self, made: Calibrated, state: Any) -> None:
        """Remember where the first row of a block finds the learner."""
        if not self.rows:
            self.made, self.state = made, state

    def add(self, rows: list[Any], losses: list[float]) -> None:
        """Take rows that were learned; at the end of a block see whether they are as they used to be."""
        self.rows += rows
        self.losses += losses
        if self.changed or len(self.rows) % BLOCK:
            return
        found = self.capped(self.losses)
        error = self.deviation / np.sqrt(BLOCK) + 1e-3 * self.usual
        self.changed = bool(found.mean() > self.usual + ALARM * error)
        if not self.changed:
            self._get_used(found)
            self.rest()

    def capped(self, losses: Any) -> Any:
        """Return losses of which none counts for more than an outlier may."""
        return np.minimum(losses, OUTLIER * max(self.usual, 1e-12))

    def rest(self) -> None:
        """Keep no rows."""
        self.changed, self.rows, self.losses, self.made, self.state = False, [], [], None, None

    def _get_used(self, losses: Any) -> None:
        share = BLOCK / RECENT
        self.usual += share * (float(losses.mean()) - self.usual)
        square = float(((losses - self.usual) ** 2).mean())
        self.deviation = float(np.sqrt((1 - share) * self.deviation**2 + share * square))
