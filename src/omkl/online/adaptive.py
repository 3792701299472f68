"""The learner of rows at its defaults: it tracks what drifts, and calibrates anew where units no longer fit."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from omkl.blas import one_thread
from omkl.learners.rules import LOGISTIC
from omkl.online.calibrating import Calibrated, described, table
from omkl.online.drift import CLEARLY, TRIALS, Watch
from omkl.online.learner import BLOCK, Online, grown
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
    _player: Player | None = None
    _losses: list[float]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_player": None}

    @property
    def has_classes(self) -> bool:
        """Whether classes are learned, whose loss is no square."""
        return isinstance(self.task, Classification)

    def learn_many(self, rows: Sequence[Row]) -> None:
        """Learn rows in order: to the bit what they would do one by one, and sooner."""
        if self.kept is not None:
            room = self.warmup - len(self.kept)
            self.kept += rows[:room]
            self.seen += len(rows[:room])
            rows = rows[room:]
            if len(self.kept) < self.warmup:
                return
            self._catch_up()
            self._complete()
        self.seen += len(rows)
        self._take(rows)

    def learn(self, row: Row) -> None:
        """Learn a row, or keep it."""
        self.learn_many([row])

    def outputs(self, X: Floats, node: int | None = None) -> Floats:
        """Return the outputs ``(n, C)`` for rows ``(n, d)``, in the units of the targets."""
        self._catch_up()
        center, scale = self.settled().targets
        assert self._player is not None
        blocks = (X[k : k + BLOCK] for k in range(0, len(X), BLOCK))
        if self._player.fast is None:
            with one_thread():
                found = [self._player.outputs(self.state, block) for block in blocks]
        else:
            found = [self._player.outputs(self.state, block) for block in blocks]
        return np.asarray(self._finite(np.concatenate(found)) * scale + center)

    def grow(self, classes: int) -> None:
        """Know more classes: from the start while rows are kept, later with outputs that begin at zero."""
        before = self.task.outputs
        super().grow(classes)
        watch = self.watch
        if watch is not None and watch.made is not None and before != self.task.outputs:
            watch.made = self.knowing(watch.made)
            watch.state = grown(watch.state, Player(watch.made, self.task, is_early=True).begin())

    def compile(self) -> None:
        """Take compiled loops for what has been calibrated, where there are such, and rows enough for their loading."""
        made = self.made
        self._player = None if made is None else self._playing(made)

    def _playing(self, made: Calibrated) -> Player:
        return Player(made, self.task, is_early=made.rows < min(MANY, self.warmup))

    def _start(self, made: Calibrated) -> None:
        super()._start(made)
        self._losses = []

    def _complete(self) -> None:
        """Drop the rows that were kept, and watch those to come."""
        self.watch = Watch.of(self._losses)
        self.kept, self._losses = None, []

    def _take(self, rows: Sequence[Row]) -> None:
        while rows:
            some = rows if self.watch is None else rows[: self.watch.room]
            rows = rows[len(some) :]
            self._take_some(list(some))

    def _take_some(self, rows: list[Row]) -> None:
        """Learn rows of one block."""
        assert self._player is not None
        if self.watch is None:
            self.state, losses = self._player.learn(self.state, rows)
            self._losses += losses
            return
        self.watch.before(self.settled(), self.state)
        self.state, losses = self._player.learn(self.state, rows)
        self.watch.add(rows, losses)
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
        if min(losses) < (CLEARLY if self.has_classes else CLEARLY**2) * now:
            self.made = self._calibrated(rows)
            self.compile()
            assert self._player is not None
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
