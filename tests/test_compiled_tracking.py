"""Rows of estimators by the compiled text are those over arrays, one by one and many at once."""

import logging
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import omkl
from omkl import Huber, gaussian
from omkl.methods import Method, Round
from omkl.online import Classification, Online, Regression, Settings, begin
from omkl.online.calibrating import Calibrated, described
from omkl.online.playing import Player, Row
from omkl.online.tasks import Task
from omkl.topology import build

loops = pytest.importorskip("omkl.online.loops")

TASKS: list[Task] = [Classification(2), Regression(2), Classification(3)]
LABELS: dict[Task, Any] = {
    Classification(2): lambda X: X[:, :1] > 1,
    Classification(3): lambda X: X[:, :3].argmax(1),
    Regression(1): lambda X: X[:, :1] ** 2,
    Regression(2): lambda X: X[:, :2] ** 2,
}
DEFAULT = Settings(rank=30)


def calibrated(
    task: Task, rng: np.random.Generator, settings: Settings = DEFAULT, **changes: Any
) -> tuple[Calibrated, list[Row]]:
    X = rng.normal(size=(200, 4)) * [1, 3, 0.5, 2] + [1, 0, -2, 0]
    y = np.asarray(LABELS[task](X), dtype=float)
    rows = [Row(x, np.atleast_1d(one), 1.0, 0) for x, one in zip(X, y, strict=True)]
    made = begin(task, settings.method())._calibrated(rows[:90])
    method: Any = made.method
    return made._replace(method=method.replace(**changes)), rows


@pytest.mark.parametrize("kernels", [gaussian(0.35, 0.7, 1.4), gaussian(0.5, 1.1, 5)])
@pytest.mark.parametrize("task", TASKS, ids=str)
def test_features_are_those_of_the_landmarks(kernels: Any, task: Task, rng: np.random.Generator) -> None:
    made, rows = calibrated(task, rng, Settings(kernels=kernels, rank=30))
    X = np.stack([row.x for row in rows[:61]])
    X[3, 1], X[4, 2], X[5] = np.nan, 1e9, np.nan
    features = loops.Features(made)
    z = features(X)
    np.testing.assert_allclose(z, described(X, made, np.float64), atol=2e-3)
    np.testing.assert_array_equal(features(np.concatenate([X, X], axis=1)), z)
    few = X[:, :3]
    np.testing.assert_allclose(features(few), described(few, made, np.float64), atol=2e-3)
    for count in (1, 7, 8, 9):
        np.testing.assert_array_equal(np.concatenate([features(X[k : k + count]) for k in range(0, 61, count)]), z)


@pytest.mark.parametrize(
    ("task", "changes"),
    [
        (Classification(2), {}),
        (Classification(3), {}),
        (Regression(1), {}),
        (Regression(2), {}),
        (Classification(2), {"loss": "smoothed_hinge"}),
        (Regression(2), {"loss": Huber(delta=0.5, outputs=2)}),
        (Classification(2), {"rates": (1.0,), "sharper": None, "stakes": None}),
        (Classification(2), {"share": 0.0}),
        (Classification(3), {"rates": (0.99, 0.9), "stakes": (0.2, 0.5, 0.3)}),
        (Regression(1), {"rates": (0.95,), "learner": omkl.Pooled((300,))}),
        (Regression(2), {"learner": omkl.Pooled((600, 60, 6)), "weight_rate": 0.2}),
    ],
    ids=str,
)
def test_learning_is_that_of_the_method(task: Task, changes: dict[str, Any], rng: np.random.Generator) -> None:
    made, rows = calibrated(task, rng, **changes)
    fast, player = loops.Hedged(made), Player(made, task)
    z = described(np.stack([row.x for row in rows]), made)
    y = np.stack([task.target(row.y, made.targets) for row in rows])
    y[150] += 1e4 if "squared" in str(made.method.objective) else 0
    weight = np.where(np.arange(200) % 7 == 3, 2.5, 1).astype(np.float32)
    state = after = player.begin()
    step: Any = made.method.step
    losses, told = [], []
    for k in range(len(rows)):
        one = slice(k, k + 1)
        state, info = step(state, Round(z[one], y[one], None, 0, weight[one]), None)
        after, loss = fast.learn(after, z[one], y[one], weight[one])
        losses.append(info.loss[0])
        told.append(loss[0])
    assert np.abs(state.theta).max() > 0.1
    np.testing.assert_allclose(told, losses, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(after.theta, state.theta, atol=1e-3)
    np.testing.assert_allclose(after.log_weights, state.log_weights, atol=2e-2)
    np.testing.assert_allclose(after.memory.own, state.memory.own, rtol=1e-5)
    np.testing.assert_allclose(after.memory.count, state.memory.count, rtol=1e-5)
    np.testing.assert_allclose(after.memory.log_curvature, state.memory.log_curvature, atol=1e-4)
    np.testing.assert_allclose(after.line, state.line, atol=1e-3)
    np.testing.assert_allclose(after.line_memory.root, state.line_memory.root, atol=1e-3)
    np.testing.assert_allclose(after.spread, state.spread, rtol=1e-3)
    arrays = algorithm_outputs(made, state, z)
    np.testing.assert_allclose(fast.outputs(after, z), arrays, atol=5e-3)
    at_once, _ = fast.learn(player.begin(), z, y, weight)
    np.testing.assert_array_equal(at_once.theta, after.theta)
    np.testing.assert_array_equal(at_once.log_weights, after.log_weights)


def algorithm_outputs(made: Calibrated, state: Any, z: Any) -> Any:
    theta, log_weights = (part[0].astype(float) for part in made.method.models(state))
    return omkl.algorithm.predict(theta, log_weights, z.astype(float)).output


def test_a_state_that_was_learned_from_stays_as_it_was(rng: np.random.Generator) -> None:
    made, rows = calibrated(TASKS[0], rng)
    fast, before = loops.Hedged(made), Player(made, TASKS[0]).begin()
    kept = jax.tree.map(np.copy, before)
    z = loops.Features(made)(np.stack([row.x for row in rows]))
    fast.learn(before, z, np.ones((200, 1), np.float32), np.ones(200, np.float32))
    jax.tree.map(np.testing.assert_array_equal, before, kept)


@pytest.mark.parametrize("classes", [3, 5])
def test_classes_that_come_late(classes: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    X = rng.normal(size=(400, 3))
    y = np.where(np.arange(400) < 250, X[:, 0] > 0, np.digitize(X[:, 0], np.linspace(-1, 1, classes - 1)))
    told = []
    for has_loops in (True, False):
        with monkeypatch.context() as patch:
            if not has_loops:
                patch.setattr("omkl.online.playing._loops", lambda made: None)
            online = begin(Classification(), DEFAULT.method(), warmup=100)
            for x, label in zip(X, y, strict=True):
                online.grow(max(online.task.outputs, 2, int(label) + 1))
                online.learn(Row(x, np.array([float(label)]), 1.0, 0))
            told.append(online.outputs(X))
    assert told[0].shape == (400, classes)
    np.testing.assert_allclose(told[0], told[1], atol=0.02)
    assert np.ptp(told[0], axis=1).mean() > 1


# --- other methods, by rounds of a network

RING = build("ring", 3)
OTHERS: dict[str, Any] = {
    "newton": (omkl.Local(basis=omkl.Landmarks(20, 20), sigma="median", learner=omkl.Newton()), None),
    "gradient steps": (omkl.Local(features=10, learner=omkl.SGD(0.3)), None),
    "adagrad": (omkl.Local(features=10, learner=omkl.AdaGrad(0.3)), None),
    "paper's, alone": (omkl.paper(quantizer="exact"), None),
    "paper's, on a ring": (omkl.paper(quantizer="exact"), RING),
    "recommended, alone": (omkl.recommended(quantizer="exact", reach=None), None),
    "recommended, on a ring": (omkl.recommended(quantizer="exact"), RING),
}  # fmt: skip


def taught(task: Task, method: Method, topology: Any, seed: int = 0) -> tuple[Online, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(120, 3))
    online = begin(task, method, 7, 32, topology)
    y = X[:, 0] * X[:, 1] if isinstance(task, Regression) else X[:, 0] * X[:, 1] > 0
    for k, (x, one) in enumerate(zip(X, y, strict=True)):
        online.learn(Row(x, np.array([float(one)]), 2.0 if k == 100 else 1.0, k % online.nodes))
    return online, online.outputs(X)


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("task", [Classification(), Regression()], ids=str)
def test_other_methods(name: str, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    method, topology = OTHERS[name]
    fast, told = taught(task, method, topology)
    assert fast._player is not None
    monkeypatch.setattr("omkl.online.learner.compiled_loops", lambda method: None)
    slow, expected = taught(task, method, topology)
    assert slow._player is None
    scale = np.abs(expected).max()
    assert scale > 0.01
    np.testing.assert_allclose(told, expected, atol=5e-3 * scale)
    for got, wanted in zip(jax.tree.leaves(fast.state), jax.tree.leaves(slow.state), strict=True):
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, atol=5e-3 * max(1, np.abs(wanted).max()))


def test_a_reach_on_no_network_is_refused() -> None:
    with pytest.raises(omkl.InputError, match="reach has no knots"):
        taught(Classification(), omkl.recommended(), None)


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (Settings().method(), None),
        (replace(Settings().method(), loss=Huber()), None),  # type: ignore[type-var]
        (omkl.Local(), None),
        (omkl.recommended(), None),
        (omkl.recommended(clip=1.0), "clip"),
        (omkl.Complete(), "method complete"),
        (omkl.Local(weigh_first=True), "weigh_first"),
        (omkl.paper(quantizer=omkl.TopK(k=2)), "TopK"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_has_no_compiled_text_runs_over_arrays_and_says_so(
    other: Method, part: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "omkl"):
        assert loops.knows(other) is (part is None)
    said = [] if part is None else [f"rows run over arrays: {part} has no compiled text"]
    assert [record.message for record in caplog.records] == said
