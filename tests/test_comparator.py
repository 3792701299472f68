import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from omkl.comparator import TOLERANCE, best
from omkl.errors import InputError
from omkl.losses import Logistic, Squared

LAMBDA = 1e-3


@pytest.fixture
def batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    z = rng.normal(size=(300, 8))
    y = np.where(z @ rng.normal(size=8) + rng.normal(size=300) > 0, 1.0, -1.0)
    return z, y


def objective(theta: np.ndarray, z: np.ndarray, y: np.ndarray) -> float:
    return float(np.log1p(np.exp(-y * (z @ theta))).mean() + LAMBDA * theta @ theta)


def test_gradient_vanishes(batch: tuple[np.ndarray, np.ndarray]) -> None:
    z, y = batch
    found = best(z, y, Logistic(), LAMBDA)
    gradient = -(y / (1 + np.exp(y * (z @ found.theta)))) @ z / len(y) + 2 * LAMBDA * found.theta
    assert np.linalg.norm(gradient) < TOLERANCE
    assert found.objective == pytest.approx(objective(found.theta, z, y), rel=1e-12)
    assert found.loss == pytest.approx(found.objective - LAMBDA * found.norm**2, rel=1e-12)
    assert found.norm == pytest.approx(np.linalg.norm(found.theta))


def test_agrees_with_scipy_and_scikit_learn(batch: tuple[np.ndarray, np.ndarray]) -> None:
    z, y = batch
    found = best(z, y, Logistic(), LAMBDA)
    scipy = minimize(objective, np.zeros(8), args=(z, y), method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9})
    assert found.objective <= scipy.fun + 1e-12
    np.testing.assert_allclose(found.theta, scipy.x, atol=1e-4)
    # scikit-learn minimizes C * sum of losses + |theta|^2 / 2.
    sklearn = LogisticRegression(C=1 / (2 * LAMBDA * len(y)), fit_intercept=False, tol=1e-10, max_iter=1000).fit(z, y)
    np.testing.assert_allclose(found.theta, sklearn.coef_[0], atol=1e-5)


def test_no_perturbation_improves_it(batch: tuple[np.ndarray, np.ndarray], rng: np.random.Generator) -> None:
    found = best(*batch, Logistic(), LAMBDA)
    for size in (1e-3, 1e-1, 10):
        for direction in rng.normal(size=(50, 8)):
            assert objective(found.theta + size * direction, *batch) > found.objective


def test_squared_loss_is_ridge_regression(batch: tuple[np.ndarray, np.ndarray]) -> None:
    z, y = batch
    ridge = np.linalg.solve(z.T @ z / len(y) + LAMBDA * np.eye(8), z.T @ y / len(y))
    np.testing.assert_allclose(best(z, y, Squared(), LAMBDA).theta, ridge, atol=1e-8)


def test_counts_stand_for_repeated_rows(batch: tuple[np.ndarray, np.ndarray], rng: np.random.Generator) -> None:
    z, y = batch
    rows = rng.integers(0, len(y), 1000)
    counts = np.bincount(rows, minlength=len(y))
    assert (counts == 0).any()
    once, again = best(z, y, Logistic(), LAMBDA, counts), best(z[rows], y[rows], Logistic(), LAMBDA)
    np.testing.assert_allclose(once.theta, again.theta, atol=1e-6)
    assert once.objective == pytest.approx(again.objective, rel=1e-12)


def test_separable_data_from_a_far_start(batch: tuple[np.ndarray, np.ndarray]) -> None:
    z, _ = batch
    y = np.sign(z[:, 0])
    near, far = best(z, y, Logistic(), LAMBDA), best(z, y, Logistic(), LAMBDA, start=np.full(8, 100.0))
    np.testing.assert_allclose(near.theta, far.theta, atol=1e-5)


def test_many_rows_in_chunks(rng: np.random.Generator) -> None:
    z = rng.normal(size=(70_000, 3))
    y = np.where(z[:, 0] + rng.normal(size=70_000) > 0, 1.0, -1.0)
    found = best(z, y, Logistic(), LAMBDA)
    gradient = -(y / (1 + np.exp(y * (z @ found.theta)))) @ z / len(y) + 2 * LAMBDA * found.theta
    assert np.linalg.norm(gradient) < TOLERANCE


def test_refusals() -> None:
    z, y = np.ones((3, 2)), np.ones(3)
    with pytest.raises(InputError, match="lambda > 0"):
        best(z, y, Logistic(), 0.0)
    with pytest.raises(InputError, match=r"\(n, 2D\)"):
        best(z, np.ones(4), Logistic(), LAMBDA)
    with pytest.raises(InputError, match="counts sum to"):
        best(z, y, Logistic(), LAMBDA, counts=[0, 0, 0])
