"""The learner of rows at its defaults: it tracks what drifts, and calibrates anew where units no longer fit."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from omkl.blas import one_thread
from omkl.learners.rules import LOGISTIC
from omkl.online.calibrating import Calibrated, described, table
from omkl.online.drift import CLEARLY, TRIALS, Watch
from omkl.online.learner import Online, grown
from omkl.online.playing import MANY, Player, Row
from omkl.online.tasks import Classification
from omkl.online.tracking import TrackingState
from omkl.scaling import Floats


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
