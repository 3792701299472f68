"""The learner of nodes that are averaged: its step, its curvature, its readings, and networks of it."""

from dataclasses import replace

import numpy as np
import pytest

import omkl
from omkl import algorithm
from omkl.data import as_stream
from omkl.errors import InputError
from omkl.learners import Pooled, Sample, pooled
from omkl.losses import Logistic, Squared
from omkl.methods import Gossip, Local, Round
from omkl.topology import Faults


def step(y: float, reach: float | None, loss: Logistic | Squared, priors: tuple[float, ...] = (300.0, 10.0)) -> tuple:  # type: ignore[type-arg]
    rule, theta = Pooled(priors), np.zeros((1, 1, 2), np.float32)
    memory = rule.init(theta, np.array([[0.5, 0.1]], np.float32))
    z, f = np.array([[1.0, 2.0]], np.float32), np.zeros((1, 1), np.float32)
    target = np.array([[y]], np.float32)
    gradient = loss.derivative(f, target)[..., None] * z[:, None, :]
    heard = None if reach is None else np.float32(reach)
    return rule.update(theta, memory, gradient, z, Sample(f, target, loss, None, heard))


@pytest.mark.parametrize("reach", [None, 1.0, 7.0])
def test_a_step_by_hand(reach: float | None) -> None:
    alpha = reach or 1.0
    theta, memory = step(2.0, reach, Squared())
    counted = alpha / (1 + (alpha - 1) * 3 / 4)  # one sample of its own, and three that are taken for granted
    variance = 300 * 0.25 * np.array([0.5, 0.1])  # the bound on the curvature is four times that of the logistic loss
    S = variance / (1 + counted * variance)  # a square has the largest curvature everywhere
    crowd = 1 + (alpha - 1) / 2  # the first sample of a square is taken to be half like those of others
    length = 1 / (1 + crowd * S @ np.array([1.0, 4.0]))
    np.testing.assert_allclose(theta[0, 0], alpha * length * S * np.array([1, 2]) * 2, rtol=1e-2)
    assert memory.count == alpha
    assert memory.own == 1
    np.testing.assert_array_equal(memory.last, [[1, 2]])
    assert memory.log_curvature == pytest.approx(0, abs=1e-6)


def test_curvature_gives_way_to_what_is_measured() -> None:
    _, memory = step(1.0, 1.0, Logistic())
    assert memory.log_curvature == pytest.approx(0, abs=1e-6)  # at zero the logistic loss has the largest there is
    z, far = np.array([[1.0, 2.0]], np.float32), np.full((1, 1), 3.0, np.float32)
    sample = Sample(far, np.ones((1, 1), np.float32), Logistic(), None, np.float32(1))
    _, memory = Pooled().update(np.zeros((1, 1, 2), np.float32), memory, 0 * z[:, None], z, sample)
    measured = 4 / (2 + np.exp(3) + np.exp(-3))
    assert np.exp(memory.log_curvature) == pytest.approx(1 + (measured - 1) / 18, rel=1e-5)


def test_first_a_nodes_own_samples_count_as_curvature_and_in_the_end_all() -> None:
    def curved(own: float, count: float) -> float:
        return float(pooled._curved(np.float32(own), np.float32(count)))

    assert curved(0, 0) == 0
    assert curved(7, 7) == 7  # alone
    assert curved(1e-3, 12e-3) == pytest.approx(1e-3, rel=1e-2)
    assert curved(3, 3 * 12) == pytest.approx(36 / 6.5)
    assert curved(1e5, 12e5) == pytest.approx(12e5, rel=1e-3)


def test_a_step_for_many_overshoots_no_more_than_they_do() -> None:
    ones, many = (step(1.0, reach, Logistic())[0] for reach in (1.0, 12.0))
    assert 1 < (many / ones).min() <= (many / ones).max() < 12  # S is that of twelve samples, smaller


def test_readings_are_what_other_priors_would_have_learned() -> None:
    rule, m, n, c = Pooled((50.0, 5.0)), np.array([0.5, 0.1, 0.0], np.float32), 40.0, 0.1
    memory = rule.init(np.zeros((1, 1, 3), np.float32), m[None])
    memory = memory._replace(
        own=np.float32(n), count=np.float32(n), log_curvature=np.full(1, np.log(c / 0.25), np.float32)
    )
    first, second = rule.read(memory)[0]
    np.testing.assert_array_equal(first, 1)
    ridge = [c * n / (c * n + 1 / (prior * m[:2])) for prior in (50, 5)]
    np.testing.assert_allclose(second[:2], ridge[1] / ridge[0], rtol=1e-5)
    assert np.isfinite(second).all()


def test_one_model_is_weighed_in_all_its_readings() -> None:
    theta = np.array([[[1.0, 2.0]]], np.float32)
    readings = np.array([[[1.0, 1.0], [0.5, 0.25]]], np.float32)
    log_weights, z = np.log(np.array([0.25, 0.75], np.float32)), np.array([[1.0, 1.0]], np.float32)
    found = algorithm.predict(theta, log_weights, z, readings)
    np.testing.assert_allclose(found.kernel_outputs, [[3], [1]])
    np.testing.assert_allclose(found.output, [1.5])


def test_what_is_told_comes_back() -> None:
    rng = np.random.default_rng(0)
    theta, log_weights = rng.normal(size=(4, 2, 3, 5)), rng.normal(size=(4, 6))
    told = rng.normal(size=(4, 2, 1))
    joined = algorithm.append_weights(theta, log_weights, told)
    assert joined.shape == (4, 2, 3, 9)
    assert (joined[..., 1:, 5:] == 0).all()
    models, weights, numbers = algorithm.split_weights(joined, 3, 1)
    np.testing.assert_array_equal(models, theta)
    np.testing.assert_allclose(weights, log_weights - log_weights.mean(axis=1, keepdims=True))
    np.testing.assert_allclose(numbers, told)


def test_noisy_labels_choose_the_smaller_prior() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8000, 2)).astype(np.float32)
    clean = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    noisy = np.where(rng.random(8000) < 0.4, -clean, clean)
    weights = [omkl.simulate((X, y), "ring", nodes=10).weights[0, -1] for y in (clean, noisy)]
    assert weights[0][0] > 0.9
    assert weights[1][1] > 0.9


def test_alone_and_unheard_are_the_same() -> None:
    method = omkl.recommended()
    shared = {name: getattr(method, name) for name in
              ("kernels", "sigma", "basis", "learner", "regularization", "weight_rate")}  # fmt: skip
    every = Faults(links=1.0)
    unheard = omkl.simulate("banana", "path", nodes=6, rounds=60, method=method, faults=every)
    alone = omkl.simulate("banana", "path", nodes=6, rounds=60, method=Local(**shared))
    np.testing.assert_allclose(unheard.loss, alone.loss, atol=2e-5)


def test_a_cut_leaves_no_lasting_bias() -> None:
    """Nodes of one label each that are cut in two for a third of the time come to the model of those who were not."""
    nodes, rounds = 8, 240
    stream, _ = as_stream("banana", nodes, 0, partition=omkl.data.Shards(each=1))
    X, y = stream.X[:rounds], stream.y[:rounds]
    held = omkl.data.load("banana")
    cut = np.zeros((rounds, nodes - 1), bool)
    cut[40:120, nodes // 2 - 1] = True
    loss = Logistic()
    scores = []
    for faults in (None, Faults(links=cut)):
        result = omkl.simulate((X, y), "path", nodes=nodes, faults=faults)
        outputs = [result.model(node=node).decision_function(held.X) for node in range(nodes)]
        scores.append([float(loss.value(f, held.y[:, None]).mean()) for f in outputs])
    whole, healed = np.array(scores)
    assert healed.max() < 1.1 * whole.max()
    assert healed.max() < 0.45  # a constant has .69


def test_refusals() -> None:
    with pytest.raises(InputError, match="largest comes first"):
        Pooled((10.0, 300.0))
    with pytest.raises(InputError, match="largest comes first"):
        Pooled(())
    with pytest.raises(InputError, match="priors is"):
        Pooled((-1.0,))
    with pytest.raises(InputError, match="no spectrum"):
        Gossip(learner=Pooled()).init(np, (2,), 1)


def test_numpy_keeps_float32() -> None:
    method = omkl.recommended(basis=omkl.Landmarks(rank=5)).on(omkl.topology.build("ring", 4))
    made = method.bank.draw(2, 0, np.random.default_rng(0).normal(size=(50, 2)))
    state = method.init(np, (4,), 1, made.spectrum)
    z = omkl.features.transform(np.ones((4, 2), np.float32), made)
    state, info = method.learn(state, Round(z, np.ones((4, 1), np.float32), None))
    leaves = (state.theta, state.log_weights, *state.memory, info.loss, info.output)
    assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_nodes_that_all_see_the_same_do_not_overshoot(loss: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1, 3)).repeat(10, axis=1).astype(np.float32)
    y = np.sign(X[..., 0] * X[..., 1]) if loss == "logistic" else np.sin(X[..., 0]) * X[..., 1]
    method = omkl.recommended(loss=loss)
    heard, one = (omkl.simulate((X, y), "ring", method=replace(method, reach=reach)) for reach in (method.reach, None))
    assert heard.loss.mean() < 1.25 * one.loss.mean()  # not less: they are counted as so many different samples


def test_a_series_in_which_samples_are_alike_does_not_overshoot() -> None:
    turns = np.linspace(0, 12 * np.pi, 300)[:, None] + 0.3 * np.arange(8)
    X = np.stack([np.sin(turns), np.cos(0.7 * turns)], axis=-1).astype(np.float32)
    y = (X[..., 0] * X[..., 1]).astype(np.float32)
    method = omkl.recommended(loss="squared")
    heard, one = (omkl.simulate((X, y), "ring", method=replace(method, reach=reach)) for reach in (method.reach, None))
    assert heard.loss.mean() < 1.15 * one.loss.mean()
