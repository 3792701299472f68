from typing import Any

import numpy as np
import pytest

from omkl import AdaGrad, Basis, Huber, Local, Shared, Softmax, Squared, algorithm, features, gaussian
from omkl.methods import Method, Round, recommended
from omkl.online.calibrating import Units, standardized

compiled = pytest.importorskip("omkl.online.compiled")

LOSSES: list[tuple[Any, int]] = [("logistic", 1), (Squared(2), 2), (Softmax(3), 3)]


def method(loss: Any = "logistic", **settings: Any) -> Local:
    own: dict[str, Any] = {"learner": Shared(30, c=0.05, forget=0.99), "regularization": 0.0, "weight_rate": 0.7}
    bank = gaussian(0.3, 1, 4)
    return Local(kernels=bank, sigma="median", features=37, basis=Basis(40, 60), loss=loss, **(own | settings))


UNITS = Units(np.zeros(3), np.ones(3))


def shown(z: Any, made: Any) -> Any:
    """Return features ``(n, P, r)`` beside each other, without those directions that no row has shown."""
    return np.concatenate([z[:, p, : np.count_nonzero(one)] for p, one in enumerate(made.spectrum)], axis=1)


def inputs(rng: np.random.Generator, rows: int, columns: int = 3) -> Any:
    return rng.normal(size=(rows, columns))


def test_features_are_those_of_the_basis_whatever_rows_are_beside_them(rng: np.random.Generator) -> None:
    X, units = inputs(rng, 61), Units(np.array([1.0, 0.0, -2.0]), np.array([1.0, 3.0, 0.5]))
    X[3, 1], X[4, 2] = np.nan, 1e9
    made = method().draw(3, 0, standardized(X, units))
    loops = compiled.Compiled(method(), made, units)
    z = loops.mapped(X)
    np.testing.assert_allclose(z, shown(features.transform(standardized(X, units), made), made), atol=5e-4)
    np.testing.assert_array_equal(loops.mapped(np.concatenate([X, X], axis=1)), z)
    for rows in (1, 7, 8, 9):
        np.testing.assert_array_equal(np.concatenate([loops.mapped(X[k : k + rows]) for k in range(0, 61, rows)]), z)


@pytest.mark.parametrize(("loss", "outputs"), LOSSES, ids=str)
def test_learning_is_that_of_the_algorithm(loss: Any, outputs: int, rng: np.random.Generator) -> None:
    rule = method(loss)
    X = inputs(rng, 200).astype(np.float32)
    labels = {"logistic": np.sign(X[:, 0]), Squared(2): X[:, :2] ** 2, Softmax(3): X.argmax(axis=1)}[loss]
    y, made = rule.objective.encode(labels), rule.draw(3, 0, X)
    loops, z = compiled.Compiled(rule, made, UNITS), features.transform(X, made)
    flat = shown(z, made)
    state = fast = rule.init(np, (1,), outputs, made.spectrum)
    for k in range(len(X)):
        state, _ = rule.step(state, Round(z[k : k + 1], y[k : k + 1], None), None)  # type: ignore[arg-type]
        fast = loops.learn(fast, flat[k : k + 1], y[k : k + 1])
    assert np.abs(state.theta).max() > 0.1
    np.testing.assert_allclose(fast.theta, state.theta, atol=1e-4)
    np.testing.assert_allclose(fast.log_weights, state.log_weights, atol=1e-3)
    np.testing.assert_allclose(fast.memory.count, state.memory.count, rtol=1e-5)
    output = algorithm.predict(state.theta[0], state.log_weights[0], z).output
    np.testing.assert_allclose(loops.outputs(fast, flat), output, atol=2e-3)
    at_once = loops.learn(rule.init(np, (1,), outputs, made.spectrum), flat, y)
    np.testing.assert_array_equal(at_once.theta, fast.theta)
    np.testing.assert_array_equal(at_once.log_weights, fast.log_weights)


@pytest.mark.parametrize(
    ("other", "known"),
    [
        (method(), True),
        (method(Huber()), False),
        (method(learner=AdaGrad()), False),
        (method(regularization=0.1), False),
        (method(weigh_first=True), False),
        (recommended(), False),
    ],
)
def test_other_methods_are_left_to_the_algorithm(other: Method, known: bool) -> None:
    assert compiled.knows(other) is known
