"""The doors of river."""

import pickle
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from river import checks, compose, datasets, evaluate, metrics, preprocessing
from threadpoolctl import threadpool_limits

from omkl.errors import InputError
from omkl.river import OMKLClassifier, OMKLMultiTargetRegressor, OMKLRegressor

# Of river 0.26: all, and those that are made without pandas.
CHECKS = {OMKLClassifier: (62, 53), OMKLRegressor: (27, 25), OMKLMultiTargetRegressor: (36, 36)}
QUICK: dict[str, Any] = {"rank": 12, "warmup": 16}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with threadpool_limits(1, "blas"):  # matrices are small here, and threads that wait take time from others
        yield


@pytest.mark.parametrize("kind", CHECKS)
def test_check_estimator(kind: Any) -> None:
    model = kind()
    assert not model._unit_test_skips()
    names = Counter[str]()
    for check in checks.yield_checks(model):
        check(model.clone())
        names[check.__name__] += 1
    whole, without_pandas = CHECKS[kind]
    assert names.total() >= (whole if find_spec("pandas") else without_pandas)
    assert names["check_emerging_features"] >= 1


def rows(count: int) -> list[tuple[dict[Any, Any], int]]:
    rng = np.random.default_rng(0)
    made = rng.normal(size=(count, 3)) * [1, 10, 100]
    return [({"a": a, "b": b, 7: c}, int(a > b / 10)) for a, b, c in made.tolist()]


def test_order_of_names_does_not_matter() -> None:
    one, other = OMKLClassifier(**QUICK), OMKLClassifier(**QUICK)
    for k, (x, y) in enumerate(rows(40)):
        one.learn_one(x, y)
        other.learn_one(dict(reversed(x.items())) if k % 2 else x, y)
    assert all(one.predict_proba_one(x) == other.predict_proba_one(x) for x, _ in rows(10))


def test_names_that_come_early_count_and_late_ones_do_not() -> None:
    early, without, late = (OMKLClassifier(**QUICK) for _ in range(3))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for k, (x, y) in enumerate(rows(60)):
            bare = {"a": x["a"], 7: x[7]}
            early.learn_one(x if k >= 5 else bare, y)
            without.learn_one(bare | {"b": None}, y)
            late.learn_one(x if k >= 16 else bare, y)
    (warned,) = told
    assert str(warned.message).startswith("'b' first came after the first 16 rows; ")
    assert warned.filename == __file__
    seen = rows(5)
    assert all(late.predict_proba_one(x) == without.predict_proba_one(x) for x, _ in seen)
    assert all(early.predict_proba_one(x) != without.predict_proba_one(x) for x, _ in seen)
    assert list(late._columns) == [7, "a"]


def test_none_and_nan_are_not_there() -> None:
    models = [OMKLRegressor(**QUICK) for _ in range(3)]
    for k, (x, y) in enumerate(rows(40)):
        gone = {name: value for name, value in x.items() if name != "b" or k % 2}
        for model, missing in zip(models, (None, float("nan"), "left out"), strict=True):
            model.learn_one(gone if missing == "left out" else x | ({} if k % 2 else {"b": missing}), y)
    assert len({model.predict_one({"a": 0.3, 7: 1.0}) for model in models}) == 1


def test_rows_without_any_value() -> None:
    model = OMKLRegressor(**QUICK)
    for y in (1.0, 2.0, 3.0):
        model.learn_one({}, y)
    assert 1 < model.predict_one({}) < 3
    model.learn_one({"a": 1.0}, 4.0)
    assert np.isfinite(model.predict_one({"a": 1.0}))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("red", "SelectType"),
        ([1], "make numbers of it"),
        (float("inf"), "finite"),
        ("2024-05-31", "make numbers of it"),
        (datetime(2024, 5, 31), "make numbers of it"),
    ],
)
def test_values_that_are_no_numbers(value: Any, says: str) -> None:
    model = OMKLClassifier()
    with pytest.raises(InputError, match=f"'a' is .*{says}"):
        model.learn_one({"a": value}, True)
    assert model.predict_proba_one({"a": 1.0}) == {}


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf")])
def test_weights_and_targets_that_are_none(weight: float) -> None:
    with pytest.raises(InputError, match="w is"):
        OMKLClassifier().learn_one({"a": 1.0}, True, w=weight)
    with pytest.raises(InputError, match="targets must be finite"):
        OMKLRegressor().learn_one({"a": 1.0}, float("nan"))


@pytest.mark.parametrize("target", ["foo", "3.5", [1.0], {}])
def test_targets_that_are_no_numbers(target: Any) -> None:
    model = OMKLRegressor()
    with pytest.raises(InputError, match="a target must be a number"):
        model.learn_one({"a": 1.0}, target)
    with pytest.raises(InputError, match="a class is a name or a number"):
        OMKLClassifier().learn_one({"a": 1.0}, [1.0])


def test_a_target_beyond_float32_does_no_more_than_one_within() -> None:
    models = [OMKLRegressor(**QUICK), OMKLRegressor(**QUICK)]
    for model, absurd in zip(models, (1e300, 1e30), strict=True):
        for x, _ in rows(60):
            model.learn_one(x, x["a"])
        model.learn_one(x, absurd)
    assert models[0].predict_one(x) == pytest.approx(models[1].predict_one(x), rel=1e-5)
    assert abs(models[0].predict_one(x)) < 5


@pytest.mark.parametrize("at", [10, 30])
def test_classes_turn_up(at: int) -> None:
    model = OMKLClassifier(**QUICK)
    assert model.predict_proba_one({"a": 1.0}) == {}
    assert model.predict_one({"a": 1.0}) is None
    for k, (x, y) in enumerate(rows(200)):
        if k >= at and x[7] > 50:
            model.learn_one(x, "high")
        else:
            model.learn_one(x, y)
        assert set(model.predict_proba_one(x)) == {*model._labels}
        if k == 0:
            assert model.predict_proba_one(x) == {y: 1.0}
    told = [model.predict_one({"a": 0.0, "b": 0.0, 7: value}) for value in (150.0, -150.0)]
    assert told[0] == "high"
    assert told[1] != "high"


def test_weights() -> None:
    one, other = OMKLRegressor(**QUICK), OMKLRegressor(**QUICK)
    for k, (x, y) in enumerate(rows(40)):
        one.learn_one(x, y, w=k % 2)
        if k % 2:
            other.learn_one(x, y)
    assert one.predict_one(x) == other.predict_one(x)
    one.learn_one(x, 3.0, w=5.0)
    other.learn_one(x, 3.0)
    assert one.predict_one(x) > other.predict_one(x)


def test_several_targets() -> None:
    several, one = OMKLMultiTargetRegressor(**QUICK), OMKLRegressor(**QUICK)
    assert several.predict_one({"a": 1.0}) == {}
    for x, _ in rows(60):
        several.learn_one(x, {"same": x["a"], 3: x["b"]})
        one.learn_one(x, x["a"])
    told = several.predict_one(x)
    assert list(told) == [3, "same"]
    assert abs(told["same"] - x["a"]) < 1
    with pytest.raises(InputError, match="give all in every row"):
        several.learn_one(x, {"same": 1.0})


def test_frames() -> None:
    pd = pytest.importorskip("pandas")
    data = rows(50)
    X, y = pd.DataFrame([x for x, _ in data], index=range(100, 150)), pd.Series([y for _, y in data])
    single, many, values = OMKLClassifier(**QUICK), OMKLClassifier(**QUICK), OMKLRegressor(**QUICK)
    assert values.predict_many(X).tolist() == [0.0] * 50
    for x, label in data:
        single.learn_one(x, label)
    many.learn_many(X[:20], y[:20])
    many.learn_many(X[20:], y[20:])
    values.learn_many(X, y)
    assert [many.predict_proba_one(x) for x, _ in data] == [single.predict_proba_one(x) for x, _ in data]
    shares = many.predict_proba_many(X)
    assert shares.index.tolist() == X.index.tolist()
    assert np.allclose(shares[1], [single.predict_proba_one(x)[1] for x, _ in data])
    assert many.predict_many(X).tolist() == [single.predict_one(x) for x, _ in data]
    assert np.allclose(values.predict_many(X), [values.predict_one(x) for x, _ in data])
    assert many.predict_proba_many(X[:0]).empty


def test_a_pickled_model_goes_on_to_the_bit() -> None:
    data = rows(60)
    for until in (7, 40):
        one = OMKLClassifier(**QUICK)
        for x, y in data[:until]:
            one.learn_one(x, y)
        other = pickle.loads(pickle.dumps(one))
        for x, y in data[until:]:
            one.learn_one(x, y)
            other.learn_one(x, y)
        assert one.predict_proba_one(x) == other.predict_proba_one(x)


def test_in_a_pipeline() -> None:
    stream: Any = datasets.TrumpApproval  # which has no types
    model = compose.Select("ordinal_date", "gallup", "ipsos") | preprocessing.StandardScaler() | OMKLRegressor(**QUICK)
    error = 0.0
    for x, y in stream().take(300):
        error += abs(model.predict_one(x) - y)
        model.learn_one(x, y)
    assert error / 300 < 1.5


def test_texts_are_encoded_as_the_error_says() -> None:
    rng = np.random.default_rng(0)
    made: list[Any] = [{"v": rng.normal(), "k": int(rng.integers(10)), "c": "pqr"[rng.integers(3)]} for _ in range(800)]
    data = [(x, (x["v"] > 0) ^ (x["c"] == "q") ^ (x["k"] > 5)) for x in made]
    with pytest.raises(InputError, match=r"'c' is '[pqr]'; .*compose.SelectType") as caught:
        OMKLClassifier().learn_one(*data[0])
    written = re.search(r"write (.*) the estimator", str(caught.value))
    assert written
    model = eval(f"{written[1]} OMKLClassifier()", globals())  # noqa: S307
    accuracy: Any = metrics.Accuracy  # which has no types
    assert evaluate.progressive_val_score(data, model, accuracy()).get() > 0.85


def test_a_row_that_is_no_dict() -> None:
    model: Any = OMKLClassifier()
    for call in (model.predict_one, lambda x: model.learn_one(x, 1)):
        model.learn_one({"a": 1.0}, 0)
        model.learn_one({"a": 2.0}, 1)
        with pytest.raises(InputError, match=r"the row is \[1, 2\]; a row is a dict"):
            call([1, 2])
