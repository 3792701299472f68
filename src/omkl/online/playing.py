"""Rows through the default method in one calibration: by compiled loops where there are such, else as it is stated."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from omkl import algorithm
from omkl.blas import one_thread
from omkl.methods import Method, Round
from omkl.online.calibrating import Calibrated, described, table
from omkl.online.tasks import Task
from omkl.scaling import Floats

MANY = 64  # rows from which on compiled loops are worth loading


class Row(NamedTuple):
    """One row."""

    x: Floats
    """``(d,)``; what is missing is nan. Rows may be of different lengths: columns that are new come last."""
    y: Floats
    weight: float
    node: int


class Player:
    """A calibration, and rows that are learned in it."""

    def __init__(self, made: Calibrated, task: Task, is_early: bool = False) -> None:
        self.made, self.task = made, task
        self.fast: Any = None if is_early else _loops(made)
        self._mapped: tuple[bytes, Any] | None = None

    def begin(self) -> Any:
        """Return the state before any row."""
        return self.made.method.init(np, (1,), self.task.outputs, self.made.features.spectrum)

    def learn(self, state: Any, rows: Sequence[Row]) -> tuple[Any, list[float]]:
        """Return the state after rows, in order, and the loss of each before it was learned, in the targets' own units.

        It does not matter how calls cut them.
        """
        if self.fast is None:
            losses = []
            for row in rows:
                y = self.task.target(row.y, self.made.targets)[None]
                weight = None if row.weight == 1 else np.full(1, row.weight, np.float32)
                sample = Round(described(row.x[None], self.made), y, None, 0, weight)
                with np.errstate(over="ignore", invalid="ignore"):  # a model may diverge: that is told when it is asked
                    state, info = self.made.method.step(state, sample, None)  # type: ignore[arg-type]
                losses.append(float(info.loss[0]) * self._unit)
            return state, losses
        X = rows[0].x[None] if len(rows) == 1 else table([row.x for row in rows])
        targets = np.array([self.task.target(row.y, self.made.targets) for row in rows])
        weights = np.array([row.weight for row in rows], np.float32)
        state, found = self.fast.learn(state, self.features(X), targets, weights)
        return state, (found * self._unit).tolist()

    @property
    def _unit(self) -> float:
        return float(np.mean(self.made.targets.scale**2))

    def features(self, X: Floats) -> Any:
        """Return the features of rows to predict, or to learn by compiled loops; often it is first one, then the other.

        Those of a row do not depend on the rows beside it.
        """
        if self.fast is None:
            return described(X, self.made, np.float64)
        if len(X) != 1:
            return self.fast.features(X)
        key = X.tobytes()
        if self._mapped is None or self._mapped[0] != key:
            self._mapped = key, self.fast.features(X)
        return self._mapped[1]

    def outputs(self, state: Any, X: Floats) -> Floats:
        """Return the outputs ``(n, C)`` for rows ``(n, d)``, as they are learned."""
        if self.fast is not None:
            found: Floats = self.fast.outputs(state, self.features(X))
            return found
        with one_thread():
            theta, log_weights = (part[0].astype(np.float64) for part in self.made.method.models(state))
            return np.asarray(algorithm.predict(theta, log_weights, self.features(X)).output)


def _loops(made: Calibrated) -> Any:
    loops = compiled_loops(made.method)
    return None if loops is None else loops.Hedged(made)


def compiled_loops(method: Method) -> Any:
    """Return the compiled text of rows, where Numba is installed and there is text for all of a method; else None."""
    try:
        from omkl.online import loops
    except (ImportError, RuntimeError):
        return None
    return loops if loops.knows(method) else None
