"""DOMKL: its update is the argmin it states, and its nodes agree on the common optimum."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

import omkl
from omkl import DOMKL, Huber, Logistic, Newton, SmoothedHinge, Squared, config, gaussian, topology
from omkl.errors import InputError
from omkl.losses import Loss
from omkl.methods import Neighbors, Network, Round
from omkl_lab.methods.domkl import DualState, nearest
from tests import numpy_run

LOSSES: list[Loss] = [Logistic(), SmoothedHinge(), Squared(), Huber(delta=0.5)]
SMALL: dict[str, Any] = {"kernels": gaussian(1), "features": 2, "regularization": 0.01, "loss": "squared"}


@given(st.sampled_from(LOSSES), st.floats(-30, 30), st.floats(-3, 3), st.sampled_from([-1.0, 1.0]))
def test_the_output_after_a_sample_is_where_the_derivative_vanishes(
    loss: Loss, f: float, scale: float, y: float
) -> None:
    energy = 10**scale

    def rise(there: float) -> float:
        return there - f + energy * float(loss.derivative(np.array([there]), np.array([y]))[0])

    found = nearest(np.array([f]), np.array([energy]), np.array([y]), loss)[0]
    far = f - rise(f)
    expected = f if far == f else brentq(rise, min(f, far) - 1e-9, max(f, far) + 1e-9, xtol=1e-12)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("penalty", [0.3, 4.0])
def test_the_models_are_the_stated_argmin(loss: Loss, penalty: float) -> None:
    rng = np.random.default_rng(0)
    method = DOMKL(kernels=gaussian(1), features=2, regularization=0.1, loss=loss, eta=2.0, penalty=penalty)
    theta, dual = rng.normal(size=(2, 3, 1, 1, 4))
    z, y = rng.normal(size=(3, 1, 4)), np.array([[1.0], [-1.0], [1.0]])
    W = np.array([[0.5, 0.3, 0.2], [0.3, 0.7, 0.0], [0.2, 0.0, 0.8]])
    ids, weights = np.array([[1, 2], [0, 1], [0, 2]]), np.array([[0.3, 0.2], [0.3, 0], [0.2, 0]])
    after, _ = method.step(DualState(theta, dual, np.zeros((3, 1))), Round(z, y, None), Neighbors(ids, weights))
    models = theta[:, 0, 0]
    for i in range(3):
        mu = dual[i, 0, 0] + penalty / 2 * sum(W[i, j] * (models[i] - models[j]) for j in range(3))

        def objective(own: np.ndarray, i: int = i, mu: np.ndarray = mu) -> float:
            sample = float(loss.value(own @ z[i, 0, :, None], y[i])) + 0.1 * own @ own + mu @ own
            held = [W[i, j] * np.sum((own - (models[i] + models[j]) / 2) ** 2) for j in range(3)]
            return float(sample + penalty / 2 * sum(held) + np.sum((own - models[i]) ** 2) / 4)

        expected = minimize(objective, models[i], method="BFGS", options={"gtol": 1e-9}).x
        np.testing.assert_allclose(after.theta[i, 0, 0], expected, atol=1e-5)
        np.testing.assert_allclose(after.dual[i, 0, 0], mu, rtol=1e-12)


def test_a_round_by_hand() -> None:
    # Node 2: argmin (t - 5)^2 + mu t + (t - 2)^2 / 2 + (t - 3)^2 / 2 + (t - 3)^2 / 2, mu = 1: 5 t = 17.
    method = DOMKL(kernels=gaussian(1), features=1, eta=1.0, penalty=2.0, regularization=0.0, loss="squared")
    state = method.init(np, (2,), 1)
    state = state._replace(theta=np.array([[[[1, 0]]], [[[3, 0]]]], dtype=np.float32))
    given = Round(np.array([[[1, 0]]] * 2, dtype=np.float32), np.array([[0], [5]], dtype=np.float32), None)
    pair = Neighbors(np.array([[1], [0]]), np.array([[0.5], [0.5]], dtype=np.float32))
    after, info = method.step(state, given, pair)
    np.testing.assert_allclose(after.theta[:, 0, 0], np.array([[1, 0], [3.4, 0]]), rtol=1e-6)
    np.testing.assert_allclose(after.dual[:, 0, 0], [[-1, 0], [1, 0]], rtol=1e-6)
    np.testing.assert_array_equal(info.loss, np.array([1, 4]))
    assert (info.message_bytes == 4 + 2 * 4).all()


def failing(network: Neighbors, rng: np.random.Generator) -> Neighbors:
    """Return the network with each link up or down at both ends."""
    nodes = len(network.ids)
    up = np.triu(rng.uniform(size=(nodes, nodes)) < 0.6)
    up = up | up.T
    return network._replace(weights=network.weights * up[np.arange(nodes)[:, None], network.ids])


@pytest.mark.parametrize("graph", ["ring", "path", "star", "complete"])
@pytest.mark.parametrize("faulty", [False, True])
def test_nodes_with_samples_of_their_own_find_the_common_optimum(graph: str, faulty: bool) -> None:
    rng, nodes = np.random.default_rng(1), 6
    method = DOMKL(**SMALL, penalty=1.0)
    z, y = rng.normal(size=(nodes, 1, 4)), rng.normal(size=(nodes, 1))
    Z = z[:, 0]
    optimum = np.linalg.solve(Z.T @ Z + nodes * 0.01 * np.eye(4), Z.T @ y[:, 0])
    index, weights = topology.build(graph, nodes).neighbors()
    network: Network = Neighbors(index, weights)
    state = method.init(np, (nodes,), 1)
    state = state._replace(theta=state.theta.astype(np.float64), dual=state.dual.astype(np.float64))
    for _ in range(3000):
        now = failing(Neighbors(index, weights), rng) if faulty else network
        state, _ = method.step(state, Round(z, y, None), now)
    np.testing.assert_allclose(state.theta[:, 0, 0], np.broadcast_to(optimum, (nodes, 4)), atol=1e-5)
    np.testing.assert_allclose(state.dual.sum(axis=0), 0, atol=1e-9)
    alone = [np.linalg.solve(np.outer(one, one) + 0.01 * np.eye(4), one * t) for one, t in zip(Z, y[:, 0], strict=True)]
    assert np.abs(np.array(alone) - optimum).max() > 0.1


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_the_simulator_equals_numpy(loss: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8, 3)).astype(np.float32)
    y = np.where(np.sin(2 * X[..., 0]) + X[..., 1] > 0, 1, -1)
    method = DOMKL(eta=1.0, penalty=2.0, loss=loss)
    here = numpy_run.run(method, X, y, topology.build("ring", 8), seed=3)
    there = omkl.simulate((X, y), "ring", method=method, seed=3)
    np.testing.assert_allclose(there.loss[0], here.loss.mean(axis=1), atol=2e-5)
    np.testing.assert_allclose(there.theta[:, 0], here.state.theta, atol=1e-3)
    assert (there.bits == 8 * 8 * (4 + 3 * 40 * 4)).all()
    assert there.loss[0, -50:].mean() < 0.8 * there.loss[0, :50].mean()
    assert (
        there.disagreement[0, -1]
        < omkl.simulate((X, y), "ring", method=omkl.Local(eta=1.0, loss=loss)).disagreement[0, -1]
    )


def test_it_learns_where_links_fail() -> None:
    sound, faulty = (
        omkl.simulate("banana", "ring", 20, DOMKL(eta=3.0), faults=faults)
        for faults in (None, omkl.Faults(links=0.3, nodes=0.1))
    )
    assert faulty.loss.mean() == pytest.approx(sound.loss.mean(), rel=0.05)
    assert sound.loss.mean() < 0.6


def test_it_has_a_name_in_files() -> None:
    read = config.experiment({"data": "banana", "nodes": 3, "method": {"name": "domkl", "penalty": 2.0, "eta": 0.5}})
    assert read.method == DOMKL(penalty=2.0, eta=0.5)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"penalty": 0}, r"penalty is 0\.0; it must be positive and finite; try 1"),
        ({"penalty": float("inf")}, "penalty is inf"),
        ({"eta": -1.0}, r"eta is -1\.0"),
        ({"learner": Newton()}, "DOMKL solves for its models; leave learner out"),
        ({"loss": "softmax"}, "loss is softmax; DOMKL solves for one output at a time"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        DOMKL(**settings)


def test_negative_weights_are_refused() -> None:
    with pytest.raises(InputError, match=r"a gossip weight is -0\.429; to DOMKL they are penalties"):
        omkl.simulate("banana", "star", 6, DOMKL(), weights="best_constant")
