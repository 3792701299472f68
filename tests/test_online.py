"""The learner of rows: its state depends on the rows alone, and is what the methods make of them."""

from dataclasses import replace

import jax
import numpy as np
import numpy.typing as npt
import pytest
from benchmarks import eager
from hypothesis import given, settings
from hypothesis import strategies as st

import omkl
from omkl import topology
from omkl.errors import InputError
from omkl.online import Classification, Online, Regression, Row, Settings, files, probabilities
from omkl.online import begin as started
from omkl.online.calibrating import described, units

SMALL = Settings(rank=12, warmup=16)
RING = topology.build("ring", 3)

Floats = npt.NDArray[np.float64]


def table(rows: int, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 2)) * [1, 50] + [0, 1000]
    return X, (np.sin(2 * X[:, 0]) > (X[:, 1] - 1000) / 50).astype(float)[:, None]


def begin(nodes: int = 1, settings: Settings = SMALL) -> Online:
    return started(Classification(), settings.method(nodes), 0, settings.warmup, None if nodes == 1 else RING)


def teach(online: Online, X: Floats, y: Floats, weight: float = 1.0) -> Online:
    for x, target in zip(X, y, strict=True):
        online.learn(Row(x, target, weight, online.seen % online.nodes))
    return online


def test_units_by_hand() -> None:
    center, scale = units(np.array([[1.0, 5, np.nan, 1e9], [3, 5, np.nan, 1e9 + 2], [5, np.nan, np.nan, 1e9 + 4]]))
    assert center.tolist() == [3, 5, 0, 1e9 + 2]
    assert scale.tolist() == [2, 1, 1, 2]


@settings(max_examples=40)
@given(rows=st.integers(1, 40), asked=st.sets(st.integers(0, 40)), nodes=st.sampled_from([1, 3]))
def test_predictions_in_between_change_nothing(rows: int, asked: set[int], nodes: int) -> None:
    X, y = table(rows)
    quiet, curious = teach(begin(nodes), X, y), begin(nodes)
    for k in range(rows):
        teach(curious, X[k : k + 1], y[k : k + 1])
        if k in asked:
            curious.outputs(X)
    for node in (None, *range(nodes)):
        assert np.array_equal(quiet.outputs(X, node), curious.outputs(X, node))


@pytest.mark.parametrize("rows", [1, 2, 3, 8, 15, 16])
def test_calibrates_on_the_largest_power_of_two(rows: int) -> None:
    X, y = table(rows)
    online = teach(begin(), X, y)
    online.models()
    made = online.settled()
    known = 2 ** int(np.log2(rows))
    assert made.rows == known
    assert np.allclose(made.inputs.center, X[:known].mean(axis=0))
    assert (online.kept is None) == (rows == 16)


def test_warmup_that_is_no_power_of_two_calibrates_on_all_of_it() -> None:
    X, y = table(30)
    online = teach(begin(settings=replace(SMALL, warmup=20)), X, y)
    assert online.settled().rows == 20
    assert online.kept is None


@pytest.mark.parametrize("name", ["local", "recommended", "paper"])
def test_is_the_method_and_nothing_else(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omkl.online.learner.compiled_loops", lambda method: None)  # loops are as near as rounding
    local = replace(SMALL, learner=omkl.Newton()).method()
    method = {"local": local, "recommended": SMALL.method(3), "paper": omkl.paper()}[name]
    X, y = table(48)
    online = teach(Online(Classification(), method, 7, 16, RING), X, y)
    made = online.settled()
    z = np.stack([described(x[None], made)[0] for x in X])
    z = z.reshape(16, 3, *z.shape[1:])
    states = eager.play(made.method, z, 2 * y.reshape(16, 3) - 1, eager.fixed(RING), 7, made.features.spectrum)
    *_, last = states
    for got, wanted in zip(jax.tree.leaves(online.state), jax.tree.leaves(last.state), strict=True):
        assert np.array_equal(got, wanted)


def test_a_round_ends_before_a_node_gets_a_second_sample() -> None:
    X, y = table(20)
    online = teach(begin(3), X[:16], y[:16])
    assert (online.rounds, list(online.open)) == (5, [0])
    for node, (rounds, waiting) in {2: (5, [0, 2]), 0: (6, [0]), 1: (6, [0, 1])}.items():
        online.learn(Row(X[16], y[16], 1.0, node))
        assert (online.rounds, list(online.open)) == (rounds, waiting)
    online.learn(Row(X[17], y[17], 1.0, 2))
    assert (online.rounds, list(online.open)) == (7, [])


def test_nodes_without_a_sample_keep_their_memory() -> None:
    X, y = table(18)
    online = teach(begin(3), X, y)
    before = online.state.memory.own.copy()
    for k in range(4):
        online.learn(Row(X[k], y[k], 1.0, 1))
    online.models()
    assert (online.state.memory.own - before).tolist() == [0, 3, 0]


def test_rows_in_one_place() -> None:
    X = np.ones((20, 2))
    online = teach(begin(), X, np.ones((20, 1)))
    assert probabilities(online.outputs(X[:1]))[0, 1] > 0.8
    bare = replace(SMALL, learner=omkl.AdaGrad())
    single = teach(started(Regression(), bare.method()), X[:1], X[:1, :1] * 7)
    assert np.allclose(single.outputs(X[:1]), 7)


def test_values_are_learned_in_their_own_units() -> None:
    X, _ = table(200)
    y = np.stack([np.sin(X[:, 0]), 1e6 + 1e3 * np.cos(X[:, 0])], axis=1)
    online = teach(started(Regression(2), SMALL.method(), warmup=16), X, y)
    error = ((online.outputs(X) - y) ** 2).mean(axis=0) / y.var(axis=0)
    assert (error < 0.2).all()
    twice = teach(started(Regression(2), SMALL.method(), warmup=16), X, 2 * y)
    assert np.allclose(twice.outputs(X), 2 * online.outputs(X))


def test_late_classes_begin_at_zero_and_change_nothing_before() -> None:
    X, y = table(40)
    online = teach(begin(), X, y)
    before = probabilities(online.outputs(X))
    online.grow(4)
    after = online.outputs(X)
    assert np.allclose(after[:, 2:], 0)
    assert np.allclose(probabilities(after[:, :2]), before)
    away = X[:20] + np.array([30, 0])
    teach(online, away, np.full((20, 1), 3.0))
    assert (probabilities(online.outputs(away)).argmax(axis=1) == 3).all()


@pytest.mark.parametrize("learner", ["newton", "adagrad", "sgd", "shared"])
def test_every_learner_takes_late_classes(learner: str) -> None:
    chosen = Settings.of((1.0,), 12, learner, None, 1.0, 16)
    X, y = table(40)
    online = teach(begin(settings=chosen), X, y)
    online.grow(3)
    assert np.isfinite(teach(online, X[:5], np.full((5, 1), 2.0)).outputs(X)).all()


def test_what_only_some_methods_can_do() -> None:
    X, y = table(40)
    drifting = Online(Classification(), omkl.AdaRaker(), 0, 16)
    for online in (teach(begin(3), X, y), teach(drifting, X, y)):
        with pytest.raises(InputError, match="must know them all"):
            online.grow(3)
    assert np.isfinite(drifting.outputs(X)).all()
    with pytest.raises(InputError, match="leave weights out"):
        teach(drifting, X, y, weight=2)
    with pytest.raises(InputError, match="use Gossip"):
        Online(Classification(), omkl.AdaRaker(), 0, 16, RING)


def test_early_classes_are_as_if_they_had_been_known() -> None:
    X, y = table(12)
    late, y[10] = begin(), 2
    teach(late, X[:10], y[:10]).outputs(X)
    late.grow(3)
    teach(late, X[10:], y[10:])
    known = teach(started(Classification(3), SMALL.method(), 0, 16), X, y)
    assert np.array_equal(late.outputs(X), known.outputs(X))


def test_columns_that_come_late_are_left_out() -> None:
    X, y = table(40)
    plain, wider = teach(begin(), X, y), teach(begin(), X[:16], y[:16])
    teach(wider, np.hstack([X[16:], 1e6 * X[16:]]), y[16:])
    assert np.array_equal(plain.outputs(X), wider.outputs(np.hstack([X, X])))


def test_what_is_missing_is_at_the_mean() -> None:
    X, y = table(40)
    online = teach(begin(), X, y)
    at_mean = np.array([[0.5, online.settled().inputs.center[1]]])
    assert np.array_equal(online.outputs(np.array([[0.5, np.nan]])), online.outputs(at_mean))
    assert np.array_equal(online.outputs(np.array([[0.5]])), online.outputs(at_mean))


@pytest.mark.parametrize("rows", [3, 16, 29])
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_learner_goes_on_from_its_numbers(rows: int, nodes: int) -> None:
    X, y = table(50)
    first, second = teach(begin(nodes), X[:rows], y[:rows]), begin(nodes)
    files.fill(second, *files.dump(first))
    for online in (first, second):
        teach(online, X[rows:], y[rows:])
    assert np.array_equal(first.outputs(X), second.outputs(X))


@pytest.mark.parametrize("method", [omkl.recommended(), omkl.paper(), omkl.Local(learner=omkl.Newton(forget=0.99))])
def test_settings_come_back_from_json(method: object) -> None:
    assert files.setting(files.plain(method)) == method


def test_code_is_no_setting() -> None:
    with pytest.raises(InputError, match="is not a setting that a file can hold"):
        files.plain(omkl.Kernel("mine", 1.0, lambda rng, d: rng.normal(size=d)))


@given(weights=st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_under_newton_and_squared_loss_a_weight_is_a_repetition(weights: list[int]) -> None:
    X, y = table(len(weights) + 16)
    chosen = replace(SMALL, learner=omkl.Newton(), weight_rate=0.0)
    weighed, repeated = (started(Regression(), chosen.method(), warmup=16) for _ in range(2))
    for online in (weighed, repeated):
        teach(online, X[:16], y[:16])
    for k, weight in enumerate(weights, 16):
        teach(weighed, X[k : k + 1], y[k : k + 1], weight)
        teach(repeated, X[[k] * weight], y[[k] * weight])
    assert np.allclose(weighed.outputs(X), repeated.outputs(X), atol=2e-3)


def test_weights_count_as_samples() -> None:
    X, y = table(17)
    lasting = replace(SMALL, forget=(1.0,))
    online = teach(teach(begin(settings=lasting), X[:16], y[:16]), X[16:], y[16:], weight=2.5)
    assert online.state.memory.own.tolist() == [[18.5]]


@pytest.mark.parametrize("learner", ["newton", "adagrad", "sgd", "shared"])
def test_weight_one_is_no_weight_and_a_small_one_moves_little(learner: str) -> None:
    chosen = Settings.of((1.0,), 12, learner, None, 1.0, 16)
    X, y = table(40)
    network = [teach(begin(3, chosen), X[:30], y[:30]) for _ in range(2)]
    for k, weight in enumerate((1.0, 1.0 + 1e-7)):  # the second is not 1, and its network is told weights
        network[k].learn(Row(X[30], y[30], weight, 0))
    assert np.allclose(network[0].outputs(X, 0), network[1].outputs(X, 0), atol=1e-5)
    moved = []
    for weight in (1e-3, 1.0, 3.0):
        online = teach(begin(settings=chosen), X[:30], y[:30])
        before = online.outputs(X[30:31])
        teach(online, X[30:31], y[30:31], weight)
        moved.append(float(np.abs(online.outputs(X[30:31]) - before).sum()))
    assert moved[0] < 0.1 * moved[1] < 0.1 * moved[2] if learner != "adagrad" else moved[1] < moved[2]


def test_divergence_is_told() -> None:
    X, y = table(60)
    chosen = replace(SMALL, learner=omkl.SGD(1e30))
    with np.errstate(all="ignore"), pytest.raises(omkl.DivergedError, match="not finite after 60 rows"):
        teach(started(Regression(), chosen.method(), warmup=16), X, y).outputs(X)
