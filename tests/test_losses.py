import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omkl import losses
from omkl.errors import InputError
from omkl.losses import Huber, Logistic, Loss, SmoothedHinge, Softmax, Squared
from omkl.model import Model, load_model


@pytest.mark.parametrize("margin", [1e4, 1e30])
def test_large_margins_neither_overflow_nor_vanish(margin: float) -> None:
    f, y = np.array([[margin], [-margin]], dtype=np.float32), np.ones((2, 1), dtype=np.float32)
    loss = Logistic()
    np.testing.assert_array_equal(loss.value(f, y), [0, np.float32(margin)])
    np.testing.assert_array_equal(loss.derivative(f, y)[:, 0], [0, -1])
    np.testing.assert_array_equal(loss.curvature(f, y)[:, 0, 0], [0, 0])
    wide = np.array([[margin, 0, 0]], dtype=np.float32)
    one_hot = np.array([[0, 1, 0]], dtype=np.float32)
    assert Softmax(3).value(wide, one_hot) == np.float32(margin)
    assert np.isfinite(Softmax(3).curvature(wide, one_hot)).all()


def test_logistic_by_hand() -> None:
    f, y = np.array([[0.0], [2.0]]), np.array([[1.0], [-1.0]])
    np.testing.assert_allclose(Logistic().value(f, y), [math.log(2), math.log1p(math.exp(2))])
    np.testing.assert_allclose(Logistic().score(f, y), [0.5, 0])


def test_softmax_of_two_is_logistic_of_the_difference() -> None:
    f = np.array([[0.3, -1.1]])
    two = Softmax(2).value(f, np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(two, Logistic().value(f[:, :1] - f[:, 1:], np.ones((1, 1))))


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=3), st.integers(0, 2))
def test_constants_bound_what_they_claim(f: list[float], label: int) -> None:
    cases: list[tuple[Loss, Any, Any]] = [
        (Logistic(), f[:1], [1.0]),
        (SmoothedHinge(), f[:1], [-1.0]),
        (Softmax(3), f, np.eye(3)[label]),
        (Huber(3, delta=0.3), f, np.eye(3)[label]),
    ]
    for loss, outputs, y in cases:
        out, target = np.array([outputs]), np.array([y])
        assert np.linalg.norm(loss.derivative(out, target)) <= loss.lipschitz + 1e-9
        assert np.linalg.eigvalsh(loss.curvature(out, target)[0]).max() <= loss.smoothness + 1e-9


def test_smoothed_hinge_by_hand() -> None:
    f = np.array([[2.0], [0.5], [-1.0]])
    loss, y = SmoothedHinge(), np.ones((3, 1))
    np.testing.assert_allclose(loss.value(f, y), [0, 0.125, 1.5])
    np.testing.assert_allclose(loss.derivative(f, y)[:, 0], [0, -0.5, -1])
    np.testing.assert_allclose(loss.curvature(f, y)[:, 0, 0], [0, 1, 0])


def test_huber_is_squared_near_and_straight_far() -> None:
    f, y = np.array([[0.5], [-0.5], [3.0]]), np.zeros((3, 1))
    np.testing.assert_allclose(Huber().value(f, y), [0.25, 0.25, 5])
    np.testing.assert_allclose(Huber().derivative(f, y)[:, 0], [1, -1, 2])
    np.testing.assert_allclose(Huber(delta=1e9).value(f, y), Squared().value(f, y))
    with pytest.raises(InputError, match="delta is 0"):
        Huber(delta=0)


def test_encoding() -> None:
    np.testing.assert_array_equal(Logistic().encode([1, -1]), [[1], [-1]])
    np.testing.assert_array_equal(Softmax().encode([[0, 2]]), [[[1, 0, 0], [0, 0, 1]]])
    assert Softmax(5).encode([0, 2]).shape == (2, 5)
    assert Softmax().encode([0, 0]).shape == (2, 2)
    assert Squared().encode(np.zeros((4, 3))).shape == (4, 3, 1)
    assert Squared(3).encode(np.zeros((4, 3))).shape == (4, 3)


@pytest.mark.parametrize(
    ("loss", "labels", "text"),
    [
        (
            Logistic(),
            [1, 0, 1],
            r"label 0 at index \(1,\); logistic loss takes labels -1 and \+1; for 0 and 1 pass 2\*y-1",
        ),
        (Softmax(3), [0, 3], r"label 3 at index \(1,\); softmax loss takes whole labels 0 ... 2"),
        (Softmax(), [0.5], "label 0.5"),
        (Softmax(), [100_000], "label 100000 .* set classes="),
        (Softmax(), [-1], "label -1"),
        (Squared(), [np.nan], "label nan at index .*must be finite"),
        (Squared(2), [1.0, 2.0, 3.0], r"Squared\(outputs=2\) needs a last axis"),
        (Logistic(), ["spam"], "labels must be numbers"),
    ],
)
def test_labels_outside_the_domain_are_refused(loss: Loss, labels: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        loss.encode(labels)


def test_names() -> None:
    assert losses.named("squared") == Squared()
    with pytest.raises(InputError, match="did you mean 'logistic'"):
        losses.named("logistics")


@pytest.mark.parametrize("bad", [0, 1, -1, 2.5, True])
def test_bad_numbers_of_classes_are_refused(bad: Any) -> None:
    with pytest.raises(InputError, match="classes is"):
        Softmax(bad)
    with pytest.raises(InputError, match="give a name or an object"):
        losses.named(Softmax)  # type: ignore[arg-type]


def test_probabilities_by_hand() -> None:
    assert Logistic().probabilities([np.log(3)]) == pytest.approx({-1: 0.25, 1: 0.75})
    assert Softmax(3).probabilities([0.0, np.log(2), 0.0]) == pytest.approx({0: 0.25, 1: 0.5, 2: 0.25})
    assert Logistic().probabilities([1000.0]) == {-1: 0.0, 1: 1.0}
    assert Softmax().probabilities([-1000.0, 1000.0]) == {0: 0.0, 1: 1.0}


def test_probabilities_of_a_saved_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for loss, classes in ((Logistic(), 2), (Softmax(3), 3)):
        shapes = (1, 4, 2), (1, 1 if classes == 2 else 3, 8)
        frequencies, theta = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
        Model(frequencies, theta, np.zeros(1, np.float32), loss).save(tmp_path / "model.npz")
        model, X = load_model(tmp_path / "model.npz"), rng.normal(size=(20, 2))
        chances = model.predict_proba(X)
        assert chances.shape == (20, classes)
        np.testing.assert_allclose(chances.sum(axis=1), 1)
        labels = np.array([-1, 1] if classes == 2 else [0, 1, 2])
        np.testing.assert_array_equal(labels[chances.argmax(axis=1)], model.predict(X))
        assert model.predict_proba(np.empty((0, 2))).shape == (0, classes)
        assert model.classes_ is not None
        assert model.classes_[chances.argmax(axis=1)].tolist() == model.predict(X).tolist()
    model = Model(frequencies, theta[:, :1], np.zeros(1, np.float32), Squared())
    with pytest.raises(InputError, match="loss is squared; it has no probabilities"):
        model.predict_proba(X)
