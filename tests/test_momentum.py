from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omkl
from omkl import Choco, Gossip, InputError, algorithm, features, topology
from omkl.algorithm import State
from omkl.learners import Newton
from omkl.methods import Neighbors, Round, clipping
from omkl.node.halves import Arrays
from omkl.node.links import Kept
from omkl.node.persistence import checkpoint
from omkl.node.protocol import Protocol
from omkl.quantizers import QSGD, Exact, Nearest, Quantizer
from omkl.topology import Faults
from omkl_lab.torture import run as torture
from omkl_lab.torture import shape
from tests import numpy_run
from tests.conftest import Library
from tests.node_cluster import Cluster, config, run, stream
from tests.test_node_protocol import one_by_one


def network(name: Any, nodes: int, weights: str = "metropolis") -> Neighbors:
    ids, w = topology.build(name, nodes, weights).neighbors()
    return Neighbors(ids, w.astype(np.float32))


def consensus(
    links: Neighbors, theta: np.ndarray, gamma: float, momentum: float, quantizer: Quantizer, rounds: int
) -> tuple[np.ndarray, list[float]]:
    """Return models after rounds without samples, and how far they lay apart after each, of the start."""
    hidden, velocity = np.zeros_like(theta), np.zeros_like(theta) if momentum else ()

    def mix(start: np.ndarray) -> np.ndarray:
        return np.asarray(links.mix(start, hidden, gamma))

    rng, apart = np.random.default_rng(0), [float(theta.std(axis=0).max())]
    for _ in range(rounds):
        theta, velocity = algorithm.heavy_ball(theta, velocity, momentum, mix)
        uniforms = rng.uniform(size=theta.shape).astype(np.float32)
        hidden = algorithm.absorb(hidden, algorithm.emit(theta, hidden, quantizer, uniforms))
        apart.append(float(theta.std(axis=0).max()))
    return theta, [one / apart[0] for one in apart]


def test_two_nodes_by_hand() -> None:
    """Weights 1/2, gamma 1/2, momentum 1/2, hidden states 1 and -1: pulls of -1/2 and 1/2, then -1/4 carried on."""
    links, hidden = network("path", 2), np.array([1, -1], np.float32).reshape(2, 1, 1, 1)
    method = Gossip(gamma=0.5, momentum=0.5, quantizer=None, features=1)
    state = State(hidden, hidden, np.zeros((2, 1), np.float32), (), np.zeros_like(hidden))
    theta, velocity = method.mixing.mix(state.theta, state.velocity, hidden, links, 0)
    np.testing.assert_array_equal(theta[:, 0, 0, 0], [0.5, -0.5])
    np.testing.assert_array_equal(velocity[:, 0, 0, 0], [-0.5, 0.5])
    theta, velocity = method.mixing.mix(theta, velocity, theta, links, 0)  # pulls of 1/2 * 1/2 * (-1) = -1/4
    np.testing.assert_array_equal(velocity[:, 0, 0, 0], [-0.5, 0.5])
    np.testing.assert_array_equal(theta[:, 0, 0, 0], [0, 0])


def test_carrying_on_every_library(library: Library, rng: np.random.Generator) -> None:
    theta, velocity, pull = rng.normal(size=(3, 4, 2, 1, 6)).astype(np.float32)

    def carry(theta: Any, velocity: Any, pull: Any) -> Any:
        return algorithm.heavy_ball(theta, velocity, 0.5, lambda start: start + pull)

    for mine, due in zip(library.call(carry, theta, velocity, pull), carry(theta, velocity, pull), strict=True):
        np.testing.assert_allclose(mine, due, rtol=1e-6, atol=1e-6)


@given(
    st.integers(0, 10**6),
    st.sampled_from(["path", "ring", "star", "complete", "grid"]),
    st.sampled_from([Exact(), QSGD(bits=3), Nearest(), Nearest(1, block=4)]),
    st.sampled_from(["metropolis", "best_constant"]),
    st.floats(0.01, 0.5),
    st.floats(0, 0.95),
)
def test_mixing_keeps_the_mean(
    seed: int, name: str, quantizer: Quantizer, weights: str, gamma: float, momentum: float
) -> None:
    theta = np.random.default_rng(seed).normal(size=(9, 2, 1, 8)).astype(np.float32)
    after, apart = consensus(network(name, 9, weights), theta, gamma, momentum, quantizer, 12)
    moved = np.abs(after.mean(axis=0, dtype=np.float64) - theta.mean(axis=0, dtype=np.float64)).max()
    assert moved <= 1e-5 * max(1, *apart)


def test_news_travels_along_a_path(rng: np.random.Generator) -> None:
    """Twenty nodes agree to a thousandth in a third of the rounds."""
    links, theta = network("path", 20), rng.normal(size=(20, 1, 1, 40)).astype(np.float32)
    (_, slow), (_, fast) = (consensus(links, theta, 0.3, momentum, Nearest(), 3000) for momentum in (0.0, 0.7))
    rounds = [next(t for t, apart in enumerate(curve) if apart < 1e-3) for curve in (slow, fast)]
    assert 3 * rounds[1] <= rounds[0] < 3000
    assert fast[-1] < 1e-4


@pytest.mark.parametrize("method", [Gossip, Choco])
@pytest.mark.parametrize("name", ["path", "star", "complete"])
def test_the_simulator_is_the_numpy_loop(name: str, method: Any) -> None:
    X, y = stream(8, 40)
    fresh: dict[str, Any] = {"fresh": True} if method is Choco else {}
    method = method(eta=0.3, gamma=0.3, momentum=0.7, quantizer=None, features=6, learner=Newton(2.0), **fresh)
    here = numpy_run.run(method, X, y, topology.build(name, 8), seed=3)
    there = omkl.simulate((X, y), name, method=method, seed=3)
    np.testing.assert_allclose(there.theta[:, 0], here.state.theta, atol=2e-5)
    np.testing.assert_allclose(there.loss[0], here.loss.mean(axis=1), atol=1e-5)
    assert here.state.velocity.shape == here.state.theta.shape
    still = omkl.simulate((X, y), name, method=Gossip(eta=0.3, gamma=0.3, quantizer=None, features=6), seed=3)
    assert not np.allclose(still.theta[:, :, :1], there.theta[:, :, :1], atol=1e-3)


def test_networks_that_change_and_seeds() -> None:
    X, y = stream(6, 30)
    method = Gossip(eta=0.3, gamma=0.3, momentum=0.7, features=6, quantizer=Nearest())
    results = omkl.simulate((X, y), "ring", method=method, seeds=8, faults=Faults(links=0.3))
    alone = omkl.simulate((X, y), "ring", method=method, seed=4, faults=Faults(links=0.3))
    np.testing.assert_allclose(results.loss[4], alone.loss[0], atol=1e-3)


@pytest.mark.parametrize("clip", [None, 0.35])
def test_nodes_compute_what_the_whole_network_does(clip: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omkl.node.learning.halves", lambda *given: Arrays(*given[:4]))
    given, (x, y) = config(5, "ring", momentum=0.8, gamma=0.3, clip=clip), stream(5, 30)
    cluster = run(given, x, y)
    monkeypatch.setattr(features, "transform", one_by_one)
    whole = numpy_run.run(given.method, x, y, given.topology, given.seed)
    for j, node in enumerate(cluster.nodes.values()):
        for part in ("theta", "hidden", "velocity"):
            np.testing.assert_array_equal(getattr(node.learning.state, part), getattr(whole.state, part)[j])
    cluster.check_copies()
    velocities = np.array([node.learning.state.velocity for node in cluster.nodes.values()])
    assert np.abs(velocities.sum(axis=0)).max() < 1e-6 < np.abs(velocities).max()


def test_nodes_go_on_from_checkpoints_to_the_bit(tmp_path: Path) -> None:
    given, (x, y) = config(4, "path", momentum=0.8, gamma=0.3), stream(4, 40)
    straight = run(given, x, y)
    cluster = Cluster(given)
    cluster.feed(x[:20], y[:20])
    cluster.network.run()
    for node in [cluster.stop(id) for id in given.ids]:
        assert node.round == 20
        checkpoint.save(tmp_path / node.role.id, node, clean=True)
        saved = node.learning.state
        back = checkpoint.restore(tmp_path / node.role.id, node.role, 7, cluster.network.now).learning.state
        for one, other in zip((*saved[:3], saved.velocity), (*back[:3], back.velocity), strict=True):
            np.testing.assert_array_equal(one, other)
    for id in given.ids:
        cluster.resume(checkpoint.restore(tmp_path / id, given.role(id), 7, cluster.network.now))
    cluster.feed(x[20:], y[20:])
    cluster.network.run()
    for mine, other in zip(cluster.nodes.values(), straight.nodes.values(), strict=True):
        assert mine.round == other.round == 40
        for part in ("theta", "hidden", "velocity"):
            np.testing.assert_array_equal(getattr(mine.learning.state, part), getattr(other.learning.state, part))


def test_a_checkpoint_without_momentum_does_not_fit(tmp_path: Path) -> None:
    still, moving = (config(1, momentum=momentum).role("a") for momentum in (0.0, 0.5))
    checkpoint.save(tmp_path / "a", Protocol(still, 1, 0.0), clean=True)
    with pytest.raises(InputError, match=r"does not fit .*velocity_0"):
        checkpoint.restore(tmp_path / "a", moving, 7, 0.0)


def test_without_momentum_nothing_is_carried() -> None:
    method = Gossip(features=2)
    state = method.init(np, (2,), 1)
    assert state.velocity == ()
    given_round = Round(
        np.ones((2, 3, 4), np.float32), np.ones((2, 1), np.float32), np.full((2, 3, 1, 4), 0.5, np.float32)
    )
    assert method.step(state, given_round, network("path", 2))[0].velocity == ()


def test_a_radius_follows_the_momentum() -> None:
    method = Gossip(eta=2, gamma=0.25, clip=0.5, momentum=0.75)
    assert clipping.radius(method, method.init(np, (2,), 1), 0) == 1.0


@pytest.mark.parametrize("momentum", [-0.1, 1.0, float("nan")])
def test_bad_momentum_is_refused(momentum: float) -> None:
    with pytest.raises(InputError, match=r"momentum is .*; it must lie in \[0, 1\); zero is the paper's"):
        Gossip(momentum=momentum)


def test_a_model_that_is_given_back_rests() -> None:
    node = Protocol(config(2, momentum=0.5).role("a"), 1, 0.0)
    ones = np.ones_like(node.learning.state.theta)
    node.learning.state = node.learning.state._replace(velocity=ones)
    assert node.neighbors.start is not None
    node.recovery._recover("b", Kept(1, 5, 2 * ones), node.neighbors.start, 0.0)
    state = node.learning.state
    for part, value in ((state.theta, 2), (state.hidden, 2), (state.velocity, 0)):
        np.testing.assert_array_equal(part, np.full_like(ones, value))


def test_torture_with_momentum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "Gossip", partial(Gossip, momentum=0.5))
    reports = [torture(seed, 60) for seed in range(6)]
    assert [report.violation for report in reports] == [None] * 6
    assert sum(report.balanced for report in reports) > 10
