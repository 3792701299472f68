import re
from functools import partial
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import omkl
from omkl import Gossip, InputError, algorithm, topology
from omkl.cli.app import app
from omkl.compressors import RandK, Sign, TopK
from omkl.config import experiment
from omkl.methods import Neighbors
from omkl.methods.consensus_step import Tracking, stable_step, tracking
from omkl.quantizers import QSGD, Exact, Nearest, Quantizer
from omkl.topology import Schedule
from tests.node_cluster import config, run, stream


def shrinks(method: Gossip, name: str, rounds: int, nodes: int = 12) -> float:
    """Return what is left of disagreement and of what hidden states miss, after rounds without samples."""
    network = topology.build(name, nodes)
    ids, weights = network.neighbors()
    links, method = Neighbors(ids, weights.astype(np.float32)), method.on(network)
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(nodes, 1, 1, 2 * method.bank.features)).astype(np.float32)
    theta -= theta.mean(axis=0)
    state = algorithm.init(theta, method.learner)._replace(velocity=method.mixing.start(theta))
    for _ in range(rounds):
        theta, velocity = method.mixing.mix(state.theta, state.velocity, state.hidden, links, 0)
        uniforms = rng.uniform(size=theta.shape).astype(np.float32)
        hidden = algorithm.absorb(state.hidden, algorithm.emit(theta, state.hidden, method.channel.quantizer, uniforms))
        state = state._replace(theta=theta, hidden=hidden, velocity=velocity)
    apart = np.linalg.norm(theta - theta.mean(axis=0)) + np.linalg.norm(theta - state.hidden)
    return float(apart / np.linalg.norm(rng.normal(size=theta.shape)))


@pytest.mark.parametrize(
    "quantizer", [None, QSGD(3), QSGD(3, rescale=True), Nearest(1), Nearest(2.5), Nearest(3), Sign()]
)
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("name", ["path", "complete", "star"])
def test_disagreement_fades(quantizer: Quantizer | None, momentum: float, name: str) -> None:
    method = Gossip(gamma="auto", momentum=momentum, quantizer=quantizer)
    early, late = (shrinks(method, name, rounds) for rounds in (100, 500))
    assert late < max(0.9 * early, 1e-6)
    assert late < 0.5


@pytest.mark.parametrize("quantizer", [None, QSGD(4)])
@pytest.mark.parametrize("momentum", [0.0, 0.7, 0.9])
@pytest.mark.parametrize("sending", [omkl.Sampled(1.5, 0.4), omkl.Sampled(1, 0.1), omkl.Triggered(1)])
def test_disagreement_fades_where_kernels_are_seldom_sent(
    sending: omkl.Sampled | omkl.Triggered, quantizer: Quantizer | None, momentum: float
) -> None:
    network = topology.build("path", 12, "best_constant")
    method = Gossip(gamma="auto", momentum=momentum, quantizer=quantizer, sending=sending).on(network)
    ids, weights = network.neighbors()
    links, rng = Neighbors(ids, weights.astype(np.float32)), np.random.default_rng(0)
    state = method.init(np, (12,), 1)
    state = state._replace(theta=rng.normal(size=state.theta.shape).astype(np.float32))
    state.log_weights[:, 0] = 4  # so that the others are hardly ever sent
    apart = []
    for t in range(600):
        uniforms = rng.uniform(size=state.theta.shape).astype(np.float32)
        state, _ = method.gossip(state, uniforms, links, t)
        apart.append(np.sum((state.theta - state.theta.mean(axis=0)) ** 2, axis=(0, 2, 3)))
    late, early = np.mean(apart[400:], axis=0), np.mean(apart[:200], axis=0)
    assert (late < early).all()


@pytest.mark.parametrize(
    ("quantizer", "delta", "lag"),
    [
        (Exact(), 1.0, 0.0),
        (QSGD(3), 0.86, 0.0),
        (QSGD(3, rescale=True), 0.755, 0.82),  # a message is 1/tau of what it stands for, and tau - 1 is .82
        (Nearest(2.5), 0.634, 0.87),
        (RandK(8), 0.2, 4.0),  # an element is sent every fifth round
    ],
)
def test_what_is_measured(quantizer: Quantizer, delta: float, lag: float) -> None:
    found = tracking(quantizer, 40)
    assert found == tracking(quantizer, 40)
    assert found.delta == pytest.approx(delta, abs=0.02)
    assert found.lag == pytest.approx(lag, abs=0.3)


def test_the_law_by_hand() -> None:
    complete = topology.build("complete", 2)  # W = 1/2 everywhere: the largest eigenvalue is 1, the pull 1/2
    assert stable_step(complete, Tracking(1.0, 0.0)) == 1.0
    assert stable_step(complete, Tracking(0.5, 0.0)) == 0.18  # 1 / (1 + .5 * .5 * 4.5 / .25) = .1818
    assert stable_step(complete, Tracking(1.0, 0.5), 0.5) == 0.5
    assert stable_step(complete, Tracking(0.5, 0.0), 0.5) == 0.15  # 1 / (1 + 4.5 * 1.25) = .1509
    assert stable_step(topology.build("path", 1), Tracking(0.5, 1.0)) == 1.0


def test_it_falls_with_coarseness_and_momentum() -> None:
    path = topology.build("path", 20)
    steps = [
        Gossip(gamma="auto", quantizer=one).on(path).mixing.step for one in (None, Nearest(1), Nearest(2.5), TopK(2))
    ]
    assert steps == sorted(steps, reverse=True)
    assert 0.05 > steps[-1] > omkl.explain("path", 20, method="paper", quantizer=0.05).gamma_star  # not the vacuous one
    steps = [Gossip(gamma="auto", momentum=m, quantizer="nearest").on(path).mixing.step for m in (0, 0.5, 0.9)]
    assert steps == sorted(steps, reverse=True)


def test_a_number_stays_and_auto_needs_a_network() -> None:
    method, ring = Gossip(gamma=0.3), topology.build("ring", 5)
    assert method.on(ring) is method
    assert isinstance(Gossip(gamma="auto").on(ring), Gossip)
    with pytest.raises(InputError, match=r"gamma is 'auto' on no network; .*; call method.on\(topology\) first"):
        Gossip(gamma="auto").mixing.step  # noqa: B018 - it raises
    with pytest.raises(InputError, match=r"gamma is 2.0; the consensus step must lie in \(0, 1\], or be 'auto'"):
        Gossip(gamma=2)
    with pytest.raises(InputError, match="gamma is 'fast'; it must be a number"):
        Gossip(gamma="fast")


def test_the_simulator_takes_the_networks_number() -> None:
    X, y = stream(6, 20)
    auto = Gossip(gamma="auto", quantizer="nearest", features=6, eta=0.3)
    ring, complete = topology.build("ring", 6), topology.build("complete", 6)
    alone = omkl.Local(features=6, eta=0.3)
    cases = {"ring": (auto, "ring"), "complete": (auto, "complete"), "alone": (alone, "ring")}
    results = omkl.compare((X, y), cases)
    for name, network in (("ring", ring), ("complete", complete)):
        found = results[name].config["method"]["gamma"]
        assert found == auto.on(network).mixing.step
        given = Gossip(gamma=found, quantizer="nearest", features=6, eta=0.3)
        np.testing.assert_allclose(results[name].loss, omkl.simulate((X, y), name, method=given).loss, atol=1e-5)
    both = Schedule([topology.ring(6), topology.complete(6)])
    turns = omkl.simulate((X, y), both, method=auto).config["method"]["gamma"]
    assert turns == min(auto.on(one).mixing.step for one in (ring, complete))


def test_nodes_take_the_networks_number() -> None:
    given, (x, y) = config(4, "ring", gamma="auto", momentum=0.5), stream(4, 10)
    role = given.role("a")
    assert role.method.mixing.step == given.method.on(given.topology).mixing.step
    cluster = run(given, x, y)
    assert {node.round for node in cluster.nodes.values()} == {10}


def test_by_name() -> None:
    spec: Any = experiment({"data": "banana", "nodes": 3, "method": {"gamma": "auto", "momentum": 0.5}})
    assert (spec.method.gamma, spec.method.momentum) == ("auto", 0.5)
    with pytest.raises(InputError, match=r"method\.gamma"):
        experiment({"data": "banana", "nodes": 3, "method": {"gamma": "fast"}})
    page = CliRunner().invoke(
        app, ["explain", "--method", "paper", "--nodes", "20", "--quantizer", "nearest", "--gamma", "auto"]
    )
    assert page.exit_code == 0
    auto = Gossip(gamma="auto", quantizer="nearest").on(topology.build("path", 20)).mixing.step
    assert re.search(rf"gamma +{auto:.3g} +the step used", page.output)
    assert re.search(rf'auto +{auto:.3g} +the step of gamma = "auto": stable in experiment, without proof', page.output)
    wrong = CliRunner().invoke(app, ["explain", "--nodes", "20", "--gamma", "fast"])
    assert "method.gamma: 'fast' given; it must be a number or 'auto'" in wrong.output


def test_theory_knows_momentum() -> None:
    explain = partial(omkl.explain, "path", 20, method="paper", quantizer=1.0)
    slow, fast = (explain(gamma=0.3, momentum=m).halving for m in (0.0, 0.7))
    assert fast < 0.35 * slow
    assert explain(gamma="auto").gamma == 0.75
    assert explain(gamma="auto", quantizer=0.5).gamma < 0.2
