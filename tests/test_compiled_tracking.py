"""Compiled loops compute what the array text says, row by row and many at once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from omkl import Huber, Local, gaussian
from omkl.methods import Method, Round, recommended
from omkl.online import Classification, Regression, Settings, begin
from omkl.online.calibrating import Calibrated, described
from omkl.online.playing import Player, Row
from omkl.online.tasks import Task

loops_of = pytest.importorskip("omkl.online.loops")

TASKS: list[Task] = [Classification(2), Regression(2), Classification(3)]


def calibrated(task: Task, rng: np.random.Generator, settings: Settings | None = None) -> tuple[Calibrated, list[Row]]:
    X = rng.normal(size=(200, 4)) * [1, 3, 0.5, 2] + [1, 0, -2, 0]
    labels = {Classification(2): (X[:, :1] > 1), Regression(2): X[:, :2] ** 2, Classification(3): X[:, :3].argmax(1)}
    rows = [Row(x, np.atleast_1d(y).astype(float), 1.0, 0) for x, y in zip(X, labels[task], strict=True)]
    online = begin(task, (settings or Settings(rank=30)).method())
    return online._calibrated(rows[:90]), rows


@pytest.mark.parametrize("kernels", [gaussian(0.35, 0.7, 1.4), gaussian(0.5, 1.1, 5)])
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_features_are_those_of_the_landmarks(kernels: Any, task: Task, rng: np.random.Generator) -> None:
    made, rows = calibrated(task, rng, Settings(kernels=kernels, rank=30))
    X = np.stack([row.x for row in rows[:61]])
    X[3, 1], X[4, 2] = np.nan, 1e9
    loops = loops_of.Features(made)
    z = loops(X)
    np.testing.assert_allclose(z, described(X, made, np.float64), atol=2e-3)
    np.testing.assert_array_equal(loops(np.concatenate([X, X], axis=1)), z)
    for count in (1, 7, 8, 9):
        np.testing.assert_array_equal(np.concatenate([loops(X[k : k + count]) for k in range(0, 61, count)]), z)


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_learning_is_that_of_the_method(task: Task, rng: np.random.Generator) -> None:
    made, rows = calibrated(task, rng)
    loops, player = loops_of.Hedged(made), Player(made, task)
    z = described(np.stack([row.x for row in rows]), made)
    y = np.stack([task.target(row.y, made.targets) for row in rows])
    y[150] += 1e4 if isinstance(task, Regression) else 0
    weight = np.where(np.arange(200) % 7 == 3, 2.5, 1).astype(np.float32)
    state = fast = player.begin()
    losses, told = [], []
    for k in range(len(rows)):
        one = slice(k, k + 1)
        state, info = made.method.step(state, Round(z[one], y[one], None, 0, weight[one]), None)  # type: ignore[arg-type]
        fast, loss = loops.learn(fast, z[one], y[one], weight[one])
        losses.append(info.loss[0])
        told.append(loss[0])
    assert np.abs(state.theta).max() > 0.1
    np.testing.assert_allclose(told, losses, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(fast.theta, state.theta, atol=1e-3)
    np.testing.assert_allclose(fast.log_weights, state.log_weights, atol=2e-2)
    np.testing.assert_allclose(fast.memory.own, state.memory.own, rtol=1e-5)
    np.testing.assert_allclose(fast.memory.log_curvature, state.memory.log_curvature, atol=1e-4)
    np.testing.assert_allclose(fast.line, state.line, atol=1e-3)
    np.testing.assert_allclose(fast.spread, state.spread, rtol=1e-3)
    slow = Player(made, task, is_early=True)
    X = np.stack([row.x for row in rows])
    np.testing.assert_allclose(player.outputs(fast, X), slow.outputs(state, X), atol=5e-3)
    at_once, _ = loops.learn(player.begin(), z, y, weight)
    np.testing.assert_array_equal(at_once.theta, fast.theta)
    np.testing.assert_array_equal(at_once.log_weights, fast.log_weights)


@pytest.mark.parametrize(
    ("other", "known"),
    [
        (Settings().method(), True),
        (replace(Settings().method(), loss=Huber()), True),  # type: ignore[type-var]
        (Local(), True),
        (Local(weigh_first=True), False),
        (recommended(), True),
        (recommended(clip=0.1), False),
    ],
)
def test_what_has_no_compiled_text_is_left_to_the_array_text(other: Method, known: bool) -> None:
    assert loops_of.knows(other) is known
