"""AdaRaker: when its learners begin anew, what they predict together, and that it follows a change."""

import math
from typing import Any

import numpy as np
import pytest

import omkl
from omkl import AdaRaker, Local, Newton, algorithm, config, gaussian, topology
from omkl.errors import InputError
from omkl.methods import Neighbors, Round
from omkl_lab.methods.adaraker import LevelsState
from tests import numpy_run

ALONE = Neighbors(np.array([[0]]), np.zeros((1, 1), dtype=np.float32))


def samples(count: int, kernels: int = 1, n: int = 4, seed: int = 0) -> list[Round]:
    rng = np.random.default_rng(seed)
    z, y = rng.normal(size=(count, 1, kernels, n)), np.sign(rng.normal(size=(count, 1, 1)))
    return [Round(a.astype(np.float32), b.astype(np.float32), None) for a, b in zip(z, y, strict=True)]


def played(method: AdaRaker, rounds: list[Round]) -> list[LevelsState]:
    states = [method.init(np, (1,), 1)]
    for one in rounds:
        states.append(method.step(states[-1], one, ALONE)[0])
    return states


def test_learners_begin_anew_after_their_intervals() -> None:
    method = AdaRaker(features=2, kernels=gaussian(1), levels=4)
    states = played(method, samples(16))
    silent = np.array([(state.theta == 0).all(axis=(0, 2, 3, 4)) for state in states])
    expected = [[t % 2**k == 0 for k in range(3)] + [t == 0] for t in range(17)]
    np.testing.assert_array_equal(silent, expected)
    rates = np.log(np.array(method.rates, dtype=np.float32))
    for t, state in enumerate(states):
        over = [t % 2**k == 0 for k in range(4)]
        np.testing.assert_array_equal(state.log_shares[0, over], rates[over])
        assert (state.count == t).all()


def test_a_learner_is_local_at_its_rate_since_it_began() -> None:
    method = AdaRaker(features=2, kernels=gaussian(1, 3), levels=4, eta=0.6)
    assert method.rates == pytest.approx([0.5, 0.6 / math.sqrt(2), 0.3, 0.6 / math.sqrt(8)])
    rounds = samples(11, kernels=2)
    state = played(method, rounds)[-1]
    for level, since in ((0, 11), (1, 10), (2, 8), (3, 0)):
        alone = Local(features=2, kernels=gaussian(1, 3), eta=method.rates[level])
        own = alone.init(np, (1,), 1)
        for one in rounds[since:]:
            own, _ = alone.step(own, one, ALONE)
        np.testing.assert_allclose(state.theta[:, level], own.theta, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(state.log_weights[:, level], own.log_weights, rtol=1e-4, atol=1e-6)


def test_shares_by_hand() -> None:
    # Two learners of one kernel, theta = (2, 0) and (0, 0) at z = (1, 0), y = 1, shares 1 : 3; f = 1/4 * 2.
    method = AdaRaker(features=1, kernels=gaussian(1), levels=2, eta=0.5, regularization=0.0)
    state = method.init(np, (1,), 1)._replace(
        theta=np.array([2, 0, 0, 0], dtype=np.float32).reshape(1, 2, 1, 1, 2),
        log_shares=np.log(np.array([[1, 3]], dtype=np.float32)),
        count=np.array([1], dtype=np.int32),
    )
    given = Round(np.array([[[1, 0]]], dtype=np.float32), np.array([[1]], dtype=np.float32), None)
    after, info = method.step(state._replace(count=np.array([2], dtype=np.int32)), given, ALONE)
    assert info.output[0, 0] == pytest.approx(0.5)
    assert info.loss[0] == pytest.approx(math.log1p(math.exp(-0.5)))
    rate = 0.5 / math.sqrt(2)
    assert after.log_shares[0, 1] == pytest.approx(math.log(3) - rate * (math.log(2) - math.log1p(math.exp(-0.5))))
    assert after.log_shares[0, 0] == pytest.approx(math.log(0.5))  # its interval has one sample
    assert after.theta[0, 1, 0, 0, 0] == pytest.approx(rate / 2)


def test_the_models_predict_what_the_learners_do_together() -> None:
    method = AdaRaker(features=2, kernels=gaussian(1, 3, 5), levels=5)
    rounds = samples(23, kernels=3)
    state = played(method, rounds)[-1]
    (one,) = samples(1, kernels=3, seed=5)
    _, info = method.step(state, one, ALONE)
    theta, log_weights = method.models(state)
    np.testing.assert_allclose(algorithm.predict(theta, log_weights, one.z).output, info.output, rtol=1e-5)
    assert np.exp(log_weights).sum() == pytest.approx(1)
    lost = state._replace(log_weights=np.full_like(state.log_weights, [-500, 0, -500]))
    assert all(np.isfinite(part).all() for part in method.models(lost))


def test_the_simulator_equals_numpy() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4, 3)).astype(np.float32)
    y = np.where(np.sin(2 * X[..., 0]) + X[..., 1] > 0, 1, -1)
    method = AdaRaker(levels=7)
    here = numpy_run.run(method, X, y, topology.build("path", 4), seed=3)
    there = omkl.simulate((X, y), "path", method=method, seed=3)
    np.testing.assert_allclose(there.loss[0], here.loss.mean(axis=1), atol=1e-5)
    for part, own in zip((there.theta[:, 0], there.log_weights[:, 0]), method.models(here.state), strict=True):
        np.testing.assert_allclose(part, own, atol=1e-4)
    assert not there.bits.any()


def test_it_follows_a_change_sooner_than_its_steady_learner() -> None:
    rng, half = np.random.default_rng(0), 1000
    X = rng.normal(size=(2 * half, 8, 2)).astype(np.float32)
    y = np.where((X[..., 0] > 0) == (np.arange(2 * half) < half)[:, None], 1, -1)
    cases = {"adaraker": (AdaRaker(), "path"), "steady": (Local(eta=0.5), "path")}
    found = {name: run.loss[0] for name, run in omkl.compare((X, y), cases, seed=1).items()}
    after = slice(half, half + 200)
    assert found["adaraker"][after].mean() < 0.8 * found["steady"][after].mean()
    assert found["adaraker"][-200:].mean() < 1.1 * found["adaraker"][half - 200 : half].mean()


def test_it_has_a_name_in_files() -> None:
    read = config.experiment({"data": "banana", "nodes": 3, "method": {"name": "adaraker", "levels": 5}})
    assert read.method == AdaRaker(levels=5)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"levels": 0}, "levels is 0; it must be a whole number from 1 on"),
        ({"levels": 32}, "levels is 32; it must be at most 31; try 12"),
        ({"learner": Newton()}, "AdaRaker has rates for gradient steps; leave learner out"),
        ({"weigh_first": True}, "weigh_first is True; AdaRaker predicts before"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        AdaRaker(**settings)
