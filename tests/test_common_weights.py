"""Kernel weights that are gossiped with the models."""

import numpy as np
import pytest

import omkl
from omkl import algorithm, topology
from omkl.data import load, status
from omkl.errors import InputError
from omkl.methods import Gossip
from omkl.node.config import NetworkConfig
from omkl.node.settings import Member
from omkl.node.transports import memory
from omkl.quantizers import QSGD
from tests.conftest import Library

METHOD = Gossip(eta=0.5, gamma=0.3, quantizer=omkl.Nearest(2.0), features=4, common_weights=True, momentum=0.5)


def stream(rng: np.random.Generator, nodes: int, rounds: int = 30) -> tuple[np.ndarray, np.ndarray]:
    X = rng.normal(size=(rounds, nodes, 2)).astype(np.float32)
    return X, np.where(X[..., 0] * X[..., 1] > 0, 1, -1)


def test_what_is_joined_comes_apart(library: Library, rng: np.random.Generator) -> None:
    xp = library.xp
    theta = rng.normal(size=(5, 3, 2, 4)).astype(np.float32)
    weights = rng.normal(size=(5, 3)).astype(np.float32)
    joined = algorithm.append_weights(xp.asarray(theta), xp.asarray(weights))
    assert joined.shape == (5, 3, 2, 5)
    models, told = (np.asarray(part) for part in algorithm.split_weights(joined)[:2])
    np.testing.assert_array_equal(models, theta)
    np.testing.assert_allclose(told, weights - weights.mean(axis=-1, keepdims=True), atol=1e-6)
    np.testing.assert_array_equal(np.asarray(joined)[:, :, 1, -1], 0)


def test_the_mean_of_the_weights_moves_by_learning_alone(rng: np.random.Generator) -> None:
    """Over a round without samples' losses (rate 0), the centered log weights keep their mean and come closer."""
    method = Gossip(gamma=0.5, quantizer=None, features=2, weight_rate=0.0, eta=1e-9, common_weights=True)
    _, y = stream(rng, 4, 1)
    graph = topology.build("ring", 4)
    network = omkl.methods.Neighbors(*graph.neighbors())
    state = method.init(np, (4,), 1)
    state = state._replace(log_weights=rng.normal(size=(4, 3)).astype(np.float32))
    before = state.log_weights - state.log_weights.mean(axis=-1, keepdims=True)
    z = rng.normal(size=(4, 3, 4)).astype(np.float32)
    for _ in range(40):
        state, _ = method.step(state, omkl.methods.Round(z, y[0, :, None].astype(np.float32), None), network)
    after = state.log_weights - state.log_weights.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(after, np.broadcast_to(before.mean(axis=0), (4, 3)), atol=1e-3)


@pytest.mark.parametrize("quantizer", [omkl.Nearest(2.0), QSGD(bits=3)], ids=str)
def test_nodes_do_what_the_simulator_does(rng: np.random.Generator, quantizer: omkl.Nearest | QSGD) -> None:
    X, y = stream(rng, 5)
    method = Gossip(eta=0.5, gamma=0.3, quantizer=quantizer, features=4, common_weights=True, momentum=0.5)
    members = tuple(Member(id=f"n{j}", listen=f"tcp/127.0.0.1:{j + 1}") for j in range(5))
    config = NetworkConfig(
        name="test", inputs=2, method=method, seed=3, topology=topology.build("path", 5), members=members
    )
    result = omkl.simulate((X, y), config.topology, method=method, seed=3)
    nodes = memory.run(config, X, y).nodes
    for j, id in enumerate(config.ids):
        state = nodes[id].learning.state
        assert state.hidden.shape == (3, 1, 9)
        np.testing.assert_allclose(state.theta, result.theta[j, 0], atol=2e-5)
        np.testing.assert_allclose(
            algorithm.normalize(state.log_weights), algorithm.normalize(result.log_weights[j, 0]), atol=2e-5
        )
        for peer, link in nodes[id].links.items():
            np.testing.assert_array_equal(link.copy, nodes[peer].learning.state.hidden)


def test_nodes_of_one_label_agree_on_the_weights(rng: np.random.Generator) -> None:
    """Nodes that see one class each prefer different kernels, unless weights are common."""
    X = rng.normal(size=(300, 6, 2)).astype(np.float32)
    y = np.broadcast_to(np.where(np.arange(6) < 3, 1, -1), (300, 6))
    X[:, :3] *= 3  # the classes have different widths, so that one kernel suits each best
    spread = {}
    for common in (False, True):
        method = Gossip(eta=1.0, gamma=0.5, quantizer=omkl.Nearest(2.0), features=10, common_weights=common)
        result = omkl.simulate((X, y), "ring", method=method)
        weights = algorithm.normalize(result.log_weights[:, 0])
        spread[common] = float(np.ptp(np.asarray(weights), axis=0).max())
    assert spread[True] < 0.5 * spread[False]


def test_it_is_part_of_the_contract_and_of_no_fast_path() -> None:
    graph = topology.build("path", 2)
    members = tuple(Member(id=id, listen=f"tcp/127.0.0.1:{k + 1}") for k, id in enumerate("ab"))

    def contract(method: Gossip) -> str:
        return (
            NetworkConfig(name="n", inputs=2, method=method, seed=0, topology=graph, members=members)
            .role("a")
            .contract()
        )

    assert "weights common\n" in contract(METHOD)
    assert "weights" not in contract(Gossip())
    with pytest.raises(InputError, match="one kernel has no weight to share"):
        omkl.Choco(common_weights=True)


def test_where_the_loss_has_no_bound_a_sample_moves_common_weights_by_so_much_at_most() -> None:
    weighed = algorithm.weigh(np.zeros(3), np.array([0.2, 0.7, 400.0]), 0.5, most=1.0)
    np.testing.assert_allclose(weighed, [0, -0.25, -0.5])
    assert Gossip(common_weights=True, loss="squared").loss_gap_cap == 1
    assert Gossip(common_weights=True, loss="huber").loss_gap_cap is None
    assert Gossip(loss="squared").loss_gap_cap is None


@pytest.mark.skipif(not status("twitter").verified, reason="twitter is not at hand")
def test_outliers_in_regression_do_not_carry_the_recommended_setting_away() -> None:
    X, y, loss, _ = load("twitter")
    method = omkl.recommended(loss=loss)
    assert omkl.simulate((X[:4000], y[:4000]), "path", nodes=20, method=method).loss.mean() < 0.8
