"""The compiled halves of a round are those of ``omkl.algorithm``."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from omkl import QSGD, Gossip, Nearest, Pace, Softmax, Squared
from omkl.algorithm import State
from omkl.learners import SGD
from omkl.node.compiled import Compiled, knows
from omkl.node.learning import Learning, Plain, halves

LOSSES = ["logistic", Squared(), Softmax(classes=3)]
CHANNELS = [QSGD(3), QSGD(3, rescale=True), QSGD(8), Nearest(2.5), Nearest(0.5), None]
METHOD = Gossip(eta=0.5, weight_rate=0.7, gamma=0.4, regularization=0.01, features=10)


class Custom(SGD):
    """A rule that the loops do not know."""


def drawn(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("channel", CHANNELS, ids=str)
@pytest.mark.parametrize("neighbors", [0, 1, 3])
def test_gossip_is_that_of_the_algorithm(channel: QSGD | Nearest | None, neighbors: int) -> None:
    method = METHOD.replace(quantizer=channel)
    shape = (3, 2, 20)
    plain, compiled = Plain(method), Compiled(method, shape)
    weights = np.full(neighbors, 0.3, dtype=np.float32)
    for seed in range(50):
        theta, hidden, copies = drawn(shape, seed), drawn(shape, seed + 1), drawn((neighbors, *shape), seed + 2)
        theta[0], hidden[0], copies[:, 0] = 0, 0, 0
        uniforms = np.random.default_rng(seed).random(shape).astype(np.float32) if method.dithered else None
        state = State(theta, hidden, drawn((3,), seed + 3), ())
        expected, found = (one.gossip(state, copies, weights, uniforms, 0) for one in (plain, compiled))
        assert found[-1]
        assert expected[-1]
        for one, other in zip((*expected[0][:3], *expected[1]), (*found[0][:3], *found[1]), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("learner", [None, SGD(0.2)], ids=str)
def test_learning_is_that_of_the_algorithm(loss: str | Squared | Softmax, learner: SGD | None) -> None:
    method = METHOD.replace(loss=loss, learner=learner)
    learning = Learning(method, 4, 0, 0)
    plain, compiled = Plain(method), Compiled(method, learning.shape)
    for seed in range(50):
        theta = drawn(learning.shape, seed) * (seed > 0)
        state = State(theta, theta, drawn(learning.shape[:1], seed + 1), ())
        sample = learning.features, drawn((4,), seed + 2), learning.targets(1)
        first, second = (half.learn(state, *sample) for half in (plain, compiled))
        (one, output, value, sound), (other, found, cost, told) = first, second
        assert sound
        assert told
        assert cost == pytest.approx(value, rel=2e-6, abs=1e-7)
        assert found.dtype == other.theta.dtype == other.log_weights.dtype == np.float32
        np.testing.assert_allclose(found, output, rtol=2e-6, atol=2e-6)
        np.testing.assert_allclose(other.theta, one.theta, rtol=2e-6, atol=2e-6)
        np.testing.assert_allclose(other.log_weights, one.log_weights, rtol=2e-6, atol=5e-6)
        assert other.hidden is theta


@pytest.mark.parametrize("value", [0.0, 1.0, 1e30, 3e38, np.inf, np.nan])
def test_what_is_not_finite_is_seen(value: float) -> None:
    method = METHOD.replace(quantizer=None)
    learning = Learning(method, 2, 0, 0)
    plain, compiled = Plain(method), Compiled(method, learning.shape)
    wrong, right, weights = drawn(learning.shape, 0), drawn(learning.shape, 1), np.zeros(3, dtype=np.float32)
    wrong[1, 0, 3:5] = value
    heard = right[None], weights[:1], None, 0
    mixed = [half.gossip(State(wrong, right, weights, ()), *heard)[-1] for half in (plain, compiled)]
    assert mixed == [value < 1e38] * 2
    absorbed = [half.gossip(State(right, wrong, weights, ()), *heard)[-1] for half in (plain, compiled)]
    assert absorbed == [np.isfinite(value)] * 2
    sample = learning.features, drawn((2,), 2), learning.targets(1)
    learned = [half.learn(State(wrong, right, weights, ()), *sample)[-1] for half in (plain, compiled)]
    assert learned == [value < 1e38] * 2
    weighed = [half.learn(State(right, right, wrong[1, 0, 2:5], ()), *sample)[-1] for half in (plain, compiled)]
    assert weighed == [np.isfinite(value)] * 2


def test_other_methods_take_the_plain_halves() -> None:
    shape = (3, 1, 20)
    assert isinstance(halves(METHOD, shape), Compiled)
    for other in (
        replace(METHOD, learner=Custom(0.1)),
        METHOD.replace(weigh_first=True),
        METHOD.replace(quantizer=QSGD(3, block=10)),
        METHOD.replace(quantizer="sign"),
        METHOD.replace(pace=Pace(2)),
        METHOD.replace(sending="sampled"),
    ):
        assert not knows(other)
        assert isinstance(halves(other, shape), Plain)


def test_without_numba_all_methods_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "omkl.node.compiled", None)
    monkeypatch.delattr("omkl.node.compiled", raising=False)
    assert isinstance(halves(METHOD, (3, 1, 20)), Plain)
