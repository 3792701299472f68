from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omkl
from omkl import metrics
from omkl.data import as_stream
from omkl.errors import InputError
from omkl.features import Features, transform


def two_classes(seed: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    outputs = np.round(rng.normal(size=n), 1)  # with ties
    return outputs, np.where(np.arange(n) < n // 3, 1, -1)[rng.permutation(n)]


@pytest.mark.parametrize("seed", range(5))
def test_two_classes_as_scikit_learn_has_them(seed: int) -> None:
    sk = pytest.importorskip("sklearn.metrics")
    f, y = two_classes(seed)
    p = 1 / (1 + np.exp(-f))
    assert metrics.auc(f, y) == pytest.approx(sk.roc_auc_score(y, f), abs=1e-12)
    assert metrics.log_loss(f, y) == pytest.approx(sk.log_loss(y, p), abs=1e-12)
    assert metrics.accuracy(np.where(f >= 0, 1, -1), y) == pytest.approx(sk.accuracy_score(y, np.where(f >= 0, 1, -1)))


def test_several_classes_and_regression_as_scikit_learn_has_them(rng: np.random.Generator) -> None:
    sk = pytest.importorskip("sklearn.metrics")
    f, y = rng.normal(size=(50, 4)), rng.integers(0, 4, 50)
    p = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    assert metrics.log_loss(f, y) == pytest.approx(sk.log_loss(y, p), abs=1e-6)
    predicted, targets = rng.normal(size=(2, 30))
    assert metrics.r2(predicted, targets) == pytest.approx(sk.r2_score(targets, predicted), abs=1e-12)
    predicted, targets = rng.normal(size=(2, 30, 3)) * [1, 5, 0.1]
    together = sk.r2_score(targets, predicted, multioutput="variance_weighted")
    assert metrics.r2(predicted, targets) == pytest.approx(together, abs=1e-12)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=30))
def test_auc_is_a_share_of_pairs(samples: list[tuple[int, bool]]) -> None:
    f, y = np.array([one for one, _ in samples]), np.array([1 if upper else -1 for _, upper in samples])
    if len(set(y)) == 1:
        with pytest.raises(InputError, match="compares two classes"):
            metrics.auc(f, y)
        return
    pairs = [np.sign(a - b) for a in f[y == 1] for b in f[y == -1]]
    assert metrics.auc(f, y) == pytest.approx((1 + np.mean(pairs)) / 2)


def test_an_output_far_off_does_not_overflow() -> None:
    assert metrics.log_loss([1e4], [-1]) == pytest.approx(1e4)


def test_disagreement_by_hand_and_as_recorded(rng: np.random.Generator) -> None:
    assert metrics.disagreement(np.array([[0.0, 0], [6, 8]])) == 5
    X, y = rng.normal(size=(20, 3, 2)), np.sign(rng.normal(size=(20, 3)))
    before = omkl.simulate((X[:19], y[:19]), method=omkl.Local(eta=1.0))
    after = omkl.simulate((X, y), method=omkl.Local(eta=1.0))
    assert metrics.disagreement(before.theta[:, 0]) == pytest.approx(after.disagreement[0, -1], rel=1e-5)


def test_pooled_losses_are_those_of_every_model_on_every_sample(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(15, 3, 2)), np.sign(rng.normal(size=(15, 3)))
    result = omkl.simulate((X, y), method=omkl.Gossip(eta=1.0))
    rows, labels = X.reshape(-1, 2).astype(np.float32), y.ravel()
    z = transform(rows, Features(result.frequencies[0], None))
    pooled = metrics.pooled_losses(result.theta[:, 0], result.log_weights[:, 0], z, labels, "logistic")
    assert pooled.shape == (3, 45)
    for node in range(3):
        own = metrics.log_loss(result.model(node=node).decision_function(rows), labels)
        assert pooled[node].mean() == pytest.approx(own, rel=1e-5)


def test_hindsight_of_squared_loss_is_ridge_regression(rng: np.random.Generator) -> None:
    z, y = rng.normal(size=(60, 2, 3)), rng.normal(size=60)
    y += z[:, 1] @ [1, 2, 3]  # the second kernel is the better one
    theta = np.linalg.solve(z[:, 1].T @ z[:, 1] / 60 + 1e-3 * np.eye(3), z[:, 1].T @ y / 60)
    np.testing.assert_allclose(metrics.hindsight(z, y, "squared"), (z[:, 1] @ theta - y) ** 2, rtol=1e-4, atol=1e-6)


def test_stretches_have_a_best_of_their_own(rng: np.random.Generator) -> None:
    z = rng.normal(size=(40, 3, 1, 2))
    y = np.sign(z[..., 0, 0] * np.where(np.arange(40) < 20, 1, -1)[:, None])  # what was +1 becomes -1
    one, two = (metrics.hindsight(z, y, "logistic", changes=changes) for changes in ((), (20,)))
    assert one.shape == two.shape == (40, 3)
    assert two.mean() < 0.3 * one.mean()
    halves = [metrics.hindsight(z[part], y[part], "logistic") for part in (slice(20), slice(20, 40))]
    np.testing.assert_array_equal(two, np.concatenate(halves))
    assert metrics.regret(one.mean(axis=1), one.mean(axis=1)).tolist() == [0] * 40


def test_a_result_has_its_regret() -> None:
    stream, method = as_stream("banana", 20)[0], omkl.Gossip(eta=2, gamma=0.5, features=10)
    result = omkl.simulate(stream, "ring", method=method, seeds=2)
    regret = result.regret(stream)
    assert regret.shape == (2, 265)
    assert (regret[:, -1] > 0).all()
    # It grows more slowly than the rounds.
    assert (regret[:, -1] / 265 < 0.5 * regret[:, 65] / 66).all()
    assert (result.regret(stream, changes=[132])[:, -1] > regret[:, -1]).all()
    thinned = omkl.simulate(stream, "ring", method=method, seeds=2, record_every=5)
    assert thinned.regret(stream).shape == (2, 53)
    with pytest.raises(InputError, match="the stream that was simulated"):
        result.regret((stream.X[:5], stream.y[:5]))


def test_a_result_has_its_r2(rng: np.random.Generator, tmp_path: Path) -> None:
    X = rng.normal(size=(400, 4, 2))
    y = np.sin(X[..., 0]) + 3
    result = omkl.simulate((X, y), method=omkl.Local(eta=0.3, loss="squared"))
    expected = 1 - result.loss[0].mean() / y.var()
    assert result.r2 == pytest.approx([expected], rel=1e-4)
    result.save(tmp_path)
    assert omkl.load(tmp_path).r2 == pytest.approx(result.r2)
    assert np.isnan(omkl.simulate((X, np.sign(X[..., 0])), method=omkl.paper()).r2).all()


def test_refusals() -> None:
    with pytest.raises(InputError, match="targets are all alike"):
        metrics.r2([1.0, 2], [3, 3])
    with pytest.raises(InputError, match="shapes"):
        metrics.accuracy([1], [1, 1])
    with pytest.raises(InputError, match="one output a sample"):
        metrics.hindsight(np.zeros((3, 1, 2)), [0, 1, 2], "softmax")
    with pytest.raises(InputError, match="one output a sample"):
        metrics.hindsight(np.zeros((3, 2)), [0.0, 1, 2], "squared")
