"""What the default learner adapts to: columns that do not matter, drift, units that change, absurd targets."""

import pickle
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_moons

import omkl
from omkl.errors import InputError
from omkl.online import Classification, Online, Regression, Row, Settings, begin, files
from omkl.online.adaptive import BLOCK, TRIALS, Adaptive, Watch, reexpressed
from omkl.online.calibrating import described
from omkl.online.playing import Player
from omkl.online.tracking import BOUND, Tracking, shared

Floats = npt.NDArray[np.float64]
QUICK = Settings(rank=30, warmup=64)


def rows(X: Floats, y: Any) -> list[Row]:
    return [Row(x, np.array([float(one)]), 1.0, 0) for x, one in zip(X, y, strict=True)]


def progressive(online: Online, X: Floats, y: Any) -> Floats:
    """Return the outputs for every row before it is learned."""
    told = []
    for row in rows(X, y):
        told.append(online.outputs(row.x[None])[0, 0] if online.seen else 0.0)
        online.learn(row)
    return np.array(told)


def wrong(online: Online, X: Floats, y: Any, last: int) -> float:
    return float(np.mean((progressive(online, X, y)[-last:] > 0) != (np.asarray(y)[-last:] > 0)))


# Columns


def test_many_columns_of_noise(rng: np.random.Generator) -> None:
    X = rng.normal(size=(1500, 30))
    y = np.sin(2 * X[:, 3]) - X[:, 3] * X[:, 11]
    told = progressive(begin(Regression(), Settings().method()), X, y)
    assert np.mean((told - y)[-500:] ** 2) < 0.2 * np.var(y)


# Drift


def test_a_share_of_the_weights_is_dealt_out_by_the_stakes() -> None:
    weights = np.exp(shared(np.log(np.array([0.5, 0.25, 0.25])), 0.1, np.array([0.8, 0.1, 0.1])))
    assert weights == pytest.approx([0.9 * 0.5 + 0.08, 0.9 * 0.25 + 0.01, 0.9 * 0.25 + 0.01])
    assert np.array_equal(shared(np.zeros(3), 0.0, np.ones(3) / 3), np.zeros(3))
    usual: dict[str, Any] = {"learner": omkl.Pooled((600, 20)), "basis": omkl.Landmarks()}
    usual |= {"sharper": 1.5, "stakes": (0.5, 0.1, 0.4)}
    stakes = [0.125, 0.125, 0.025, 0.025] * 2 + [0.4]
    assert Tracking(**usual, rates=(1, 0.9), lines=3).dealt(np) == pytest.approx(stakes)
    assert Tracking(**usual, rates=(0.9,)).dealt(np) == pytest.approx([0.25] * 4)
    assert Tracking(**usual, loss="huber", rates=(1, 0.9)).dealt(np) == pytest.approx([5 / 12] * 2 + [1 / 12] * 2)
    assert Tracking(**usual, loss="squared", lines=3).dealt(np) == pytest.approx([1 / 7] * 7)
    once = Tracking(**usual | {"sharper": None, "stakes": None}, rates=(1, 0.9), lines=3)  # as before there were these
    assert once.dealt(np) == pytest.approx([0.25, 0.25, *[0.5 / 3] * 3])


def test_labels_that_are_swapped_are_learned_anew(rng: np.random.Generator) -> None:
    X = rng.normal(size=(1600, 2))
    y = (X[:, 0] > np.sin(3 * X[:, 1])).astype(int)
    y[800:] = 1 - y[800:]
    assert wrong(begin(Classification(), Settings().method()), X, y, 400) < 0.12
    assert wrong(begin(Classification(), Settings.of(learner="newton").method()), X, y, 400) > 0.2


def test_the_weights_say_which_rate_is_best(rng: np.random.Generator) -> None:
    X = rng.normal(size=(900, 1))
    noisy = np.sin(X[:, 0]) + rng.normal(size=900)
    moving = np.sin(X[:, 0] + np.arange(900) / 40)
    favored = []
    for y in (noisy, moving):
        online = begin(Regression(), Settings().method())
        progressive(online, X, y)
        weights = np.exp(online.models()[1])
        favored.append(weights.reshape(-1)[:-1].reshape(3, 2).sum(axis=1).argmax())
    assert favored[0] == 0
    assert favored[1] > 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"rates": (0.9, 1.0)}, "the largest comes first"),
        ({"rates": ()}, "the largest comes first"),
        ({"rates": (1.0, 0.1)}, r"it must lie in \[0.5, 1\]"),
        ({"share": 1.0}, r"it must lie in \[0, 1\)"),
        ({"learner": omkl.Newton()}, "use Pooled"),
    ],
)
def test_settings_of_tracking(settings: dict[str, Any], says: str) -> None:
    usual: dict[str, Any] = {"learner": omkl.Pooled(), "basis": omkl.Landmarks()}
    with pytest.raises(InputError, match=says):
        Tracking(**(usual | settings))


def test_labels_name_what_is_weighed() -> None:
    usual: dict[str, Any] = {"learner": omkl.Pooled((600, 20)), "basis": omkl.Landmarks(), "sharper": 1.5}
    method = Tracking(**usual, rates=(1, 0.9), lines=3)
    wanted = ["forget 1, prior 600", "forget 1, prior 20", "forget 0.9, prior 600", "forget 0.9, prior 20"]
    assert method.labels == [*wanted, *(f"{one}, sharper" for one in wanted), "line"]
    assert method.replace(loss="huber").labels == [*wanted, "line"]


# Units


def moons(change: str) -> tuple[Floats, Any]:
    X, y = make_moons(1600, noise=0.25, random_state=0)
    if change == "stuck":
        X[:600], y[:600] = X[0], y[0]
    X[512:] *= {"larger": 100, "smaller": 0.01}.get(change, 1)
    return X, y


@pytest.mark.parametrize("change", ["none", "stuck", "larger", "smaller"])
def test_units_that_change_are_noticed(change: str) -> None:
    online = begin(Classification(), Settings().method())
    assert wrong(online, *moons(change), 600) < 0.11
    assert online.settled().rows in TRIALS


def test_columns_that_matter_change(rng: np.random.Generator) -> None:
    X = rng.normal(size=(2000, 9))
    y = np.where(np.arange(2000) < 1000, np.sin(2 * X[:, 0]) + X[:, 1], np.sin(2 * X[:, 4]) + X[:, 5]) > 0
    online = begin(Classification(), Settings().method())
    assert wrong(online, X, y, 400) < 0.12
    factors = online.settled().relevance
    assert factors is not None
    assert set(np.argsort(factors)[-2:]) == {4, 5}


def test_a_watch_by_hand() -> None:
    watch = Watch.of([9.0] * 8 + [1.0, 3.0] * 4)
    assert (watch.usual, watch.deviation, watch.room) == (2, 1, BLOCK)
    watch.add([None] * 10, [2.0] * 10)
    assert (watch.room, len(watch.rows)) == (BLOCK - 10, 10)
    watch.add([None] * 54, [2.4] * 54)  # a mean of 2.34; the alarm is at 2 + 4 / 8 and a little more
    assert (watch.changed, watch.rows) == (False, [])
    assert watch.usual == pytest.approx(2 + 0.3375 / 8)
    watch.add([None] * 64, [2.7] * 64)
    assert (watch.changed, len(watch.rows), watch.is_due) == (True, 64, False)
    watch.add([None] * 64, [2.7] * 64)
    assert watch.is_due
    assert watch.capped(np.array([1e9]))[0] == pytest.approx(100 * watch.usual)


def test_a_model_says_the_same_in_another_basis(rng: np.random.Generator) -> None:
    X = rng.normal(size=(400, 2))
    y = np.sin(X[:, 0]) * X[:, 1]
    online = begin(Regression(), Settings().method(), warmup=200)
    assert isinstance(online, Adaptive)
    online.learn_many(rows(X[:200], y[:200]))
    watch = Watch(1, 1, made=online.settled(), state=online.state)
    later = rows(3 * X[200:] + 5, 2 * y[200:])  # elsewhere, so that units differ
    made = online._calibrated(rows(X[200:], 2 * y[200:]))
    assert not np.allclose(made.targets.scale, online.settled().targets.scale)
    moved = reexpressed(watch, made, rows(X[200:], y[200:]))
    old = described(X, online.settled())[:, 0] @ online.state.theta[0, 0, 0].T * online.settled().targets.scale
    new = described(X, made)[:, 0] @ moved.theta[0, 0, 0].T * made.targets.scale
    assert np.sqrt(np.mean((old + online.settled().targets.center - new - made.targets.center) ** 2)) < 0.1 * y.std()
    assert np.array_equal(moved.memory.own, online.state.memory.own)
    assert Player(made, Regression()).learn(moved, later)[0].theta.shape == moved.theta.shape


# Absurd targets, and trends


@pytest.mark.parametrize("at", [40, 500, 900])
@pytest.mark.parametrize("target", [1e6, -1e12])
def test_one_absurd_target_does_not_destroy_a_model(at: int, target: float, rng: np.random.Generator) -> None:
    X = rng.normal(size=(1000, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    seen = y.copy()
    seen[at] = target
    told = progressive(begin(Regression(), Settings().method()), X, seen)
    assert np.mean((told - y)[-90:] ** 2) < 0.1 * np.var(y)


def test_what_one_row_may_do_is_bounded(rng: np.random.Generator) -> None:
    X = rng.normal(size=(100, 1))
    online = begin(Regression(), QUICK.method(), warmup=64)
    online.learn_many(rows(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=100)))
    state = online.state
    far, farther = (pickle.loads(pickle.dumps(online)) for _ in range(2))
    far.learn_many(rows(X[:1], [1e3]))
    farther.learn_many(rows(X[:1], [1e9]))
    assert np.array_equal(far.state.theta, farther.state.theta)
    deviation = float(np.sqrt(state.spread[0, 0]))
    assert far.state.spread[0, 0] <= state.spread[0, 0] * (1 + BOUND**2 / 65)
    assert deviation < 0.5


def test_a_trend_goes_on(rng: np.random.Generator) -> None:
    x = np.arange(900.0)
    y = 3 * x + rng.normal(size=900)
    told = progressive(begin(Regression(), Settings().method()), x[:, None], y)
    assert np.mean((told - y)[-200:] ** 2) < 3


# Exactness


@pytest.mark.parametrize("until", [70, 150, 700, 800, 1000])
def test_a_learner_goes_on_from_its_numbers_also_in_the_middle_of_a_change(until: int) -> None:
    X, y = moons("larger")
    first, second = (begin(Classification(), QUICK.method(), warmup=64) for _ in range(2))
    first.learn_many(rows(X[:until], y[:until]))
    files.fill(second, *files.dump(first))
    third = pickle.loads(pickle.dumps(first))
    for online in (first, second, third):
        online.learn_many(rows(X[until:], y[until:]))
    assert np.array_equal(first.outputs(X), second.outputs(X))
    assert np.array_equal(first.outputs(X), third.outputs(X))


@given(cuts=st.lists(st.integers(1, 300), max_size=8))
def test_it_does_not_matter_how_calls_cut_the_rows(cuts: list[int]) -> None:
    X, y = moons("larger")
    X, y = X[300:1000], y[300:1000]
    whole, cut = (begin(Classification(), QUICK.method(), warmup=64) for _ in range(2))
    whole.learn_many(rows(X, y))
    start = 0
    for size in [*cuts, len(X)]:
        cut.learn_many(rows(X[start : start + size], y[start : start + size]))
        start += size
        if cut.seen:
            cut.outputs(X[:2])
    assert np.array_equal(whole.outputs(X), cut.outputs(X))


def test_classes_that_turn_up_in_the_middle_of_a_change() -> None:
    X, y = moons("larger")
    online = begin(Classification(), QUICK.method(), warmup=64)
    assert isinstance(online, Adaptive)
    online.learn_many(rows(X[:600], y[:600]))
    assert online.watch is not None
    assert online.watch.rows
    before = online.outputs(X[:5])
    online.grow(3)
    after = online.outputs(X[:5])
    assert np.allclose(after[:, 1] - after[:, 0], before[:, 0], atol=1e-5)
    online.learn_many(rows(X[600:], np.where(X[600:, 0] > 100, 2, y[600:])))
    assert np.isfinite(online.outputs(X)).all()


def test_with_compiled_loops_and_without(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    X = rng.normal(size=(300, 3))
    for task, y in ((Classification(), X[:, 0] > 0), (Regression(), X[:, 0] * X[:, 1])):
        told = []
        for blocked in (False, True):
            with monkeypatch.context() as patch:
                if blocked:
                    patch.setattr("omkl.online.playing._loops", lambda made: None)
                online = begin(task, Settings().method(), warmup=100)
                online.learn_many(rows(X, y))
                told.append(online.outputs(X))
        assert np.allclose(told[0], told[1], atol=0.02)
        assert not np.array_equal(told[0], told[1]) or not find_spec("numba")


def test_a_learner_stays_small(rng: np.random.Generator) -> None:
    X = rng.normal(size=(900, 30))
    online = begin(Classification(), Settings().method())
    online.learn_many(rows(X, X[:, 0] > 0))
    assert len(pickle.dumps(online)) < 400_000
    X[512:] *= 1000
    changing = begin(Classification(), Settings().method())
    changing.learn_many(rows(X, X[:, 0] > 0))
    assert len(pickle.dumps(changing)) < 1_000_000
