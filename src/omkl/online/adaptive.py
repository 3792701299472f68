"""The learner of rows at its defaults: it tracks what drifts, and calibrates anew where units no longer fit.

Rows in new units, other columns that matter, another place: what tells is the loss. Rows are looked at in blocks. Where
the mean loss of a block is far above what it was before, rows are kept from that block on. When there are 128, 256 and
512 of them, a calibration on these rows is tried: on the first half, and scored on the second, which it has not seen.
One that would have lost clearly less takes over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from omkl.blas import one_thread
from omkl.learners.rules import LOGISTIC
from omkl.online.calibrating import Calibrated, described, table
from omkl.online.learner import Online, grown
from omkl.online.playing import MANY, Player, Row
from omkl.online.tasks import Classification
from omkl.online.tracking import TrackingState
from omkl.scaling import Floats

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
            share = BLOCK / RECENT
            self.usual += share * (float(found.mean()) - self.usual)
            square = float(((found - self.usual) ** 2).mean())
            self.deviation = float(np.sqrt((1 - share) * self.deviation**2 + share * square))
            self.rows, self.losses, self.made, self.state = [], [], None, None

    def capped(self, losses: Any) -> Any:
        """Return losses of which none counts for more than an outlier may."""
        return np.minimum(losses, OUTLIER * max(self.usual, 1e-12))


class Adaptive(Online):
    """A learner of rows in one place, by ``Tracking``.

    Attributes
    ----------
    watch
        What the losses are compared with, once the first rows are learned.
    """

    watch: Watch | None = None
    _losses: list[float]

    @property
    def _is_fast(self) -> bool:
        return self._player.fast is not None

    def _outputs(self, X: Floats, node: int | None) -> Floats:
        return self._player.outputs(self.state, X)  # type: ignore[no-any-return]

    def grow(self, classes: int) -> None:
        """Know more classes: from the start while rows are kept, later with outputs that begin at zero."""
        before = self.task.outputs
        super().grow(classes)
        watch = self.watch
        if watch is not None and watch.made is not None and before != self.task.outputs:
            watch.made = self.knowing(watch.made)
            watch.state = grown(watch.state, Player(watch.made, self.task, is_early=True).begin())

    def _playing(self, made: Calibrated) -> Player:
        return Player(made, self.task, is_early=made.rows < min(MANY, self.warmup))

    def _start(self, made: Calibrated) -> None:
        super()._start(made)
        self._losses = []

    def _complete(self) -> None:
        """Drop the rows that were kept, and watch those to come."""
        super()._complete()
        self.watch, self._losses = Watch.of(self._losses), []

    def _take(self, rows: Sequence[Row]) -> None:
        while rows:
            some = list(rows if self.watch is None else rows[: self.watch.room])
            rows = rows[len(some) :]
            if self.watch is not None:
                self.watch.before(self.settled(), self.state)
            self.state, losses = self._player.learn(self.state, some)
            if self.watch is None:
                self._losses += losses
                continue
            self.watch.add(some, losses)
            if self.watch.is_due:
                with one_thread():
                    self._try(self.watch)

    def _try(self, watch: Watch) -> None:
        """Calibrate on the rows since a change, if that would have lost clearly less."""
        rows, half = watch.rows, len(watch.rows) // 2
        trial = self._playing(self._calibrated(rows[:half]))
        now = watch.capped(watch.losses[half:]).mean()
        anew, kept = trial.begin(), reexpressed(watch, trial.made, rows[:half])
        losses = [watch.capped(trial.learn(state, rows)[1][half:]).mean() for state in (anew, kept)]
        if min(losses) < (CLEARLY if isinstance(self.task, Classification) else CLEARLY**2) * now:
            self.made = self._calibrated(rows)
            self.compile()
            is_anew = losses[0] <= losses[1]
            first = self._player.begin() if is_anew else reexpressed(watch, self.made, rows)
            self.state, told = self._player.learn(first, rows)
            watch.losses[half:] = told[half:]
        if len(rows) == TRIALS[-1]:
            self.watch = Watch.of(watch.losses)


def reexpressed(watch: Watch, made: Calibrated, rows: list[Row]) -> TrackingState:
    """Return the state before a change in another calibration: models that say the same of these rows.

    By least squares, with the prior for what the rows leave open. The line begins anew.
    """
    before, state, X = watch.made, watch.state, table([row.x for row in rows])
    assert before is not None
    method: Any = made.method
    old, new = described(X, before)[:, 0], described(X, made)[:, 0].astype(np.float64)
    told = np.einsum("rcn,tn->trc", state.theta[0, :, 0], old)
    told = (told * before.targets.scale + before.targets.center - made.targets.center) / made.targets.scale
    fresh = method.init(np, (1,), told.shape[2], made.features.spectrum)
    variance = method.learner.priors[0] * LOGISTIC * fresh.memory.spectrum[0, 0, 0]
    moments = new.T @ new + np.diag(1 / np.maximum(variance, 1e-12))
    theta = np.linalg.solve(moments, new.T @ told.reshape(len(X), -1)).T.reshape(1, told.shape[1], 1, told.shape[2], -1)
    memory = fresh.memory._replace(
        own=state.memory.own, count=state.memory.count, log_curvature=state.memory.log_curvature
    )
    weights = state.log_weights if state.log_weights.shape == fresh.log_weights.shape else fresh.log_weights
    return TrackingState(theta.astype(np.float32), weights, memory, fresh.line, fresh.line_memory, fresh.spread)
