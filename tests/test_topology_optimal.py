import re
import sys
from typing import Any

import numpy as np
import pytest

from omkl import topology
from omkl.errors import InputError, MissingExtraError
from omkl.theory import explain, spectral_gap
from omkl.topology import WEIGHTS, Graph, Topology, build

CLOSED = sorted(set(WEIGHTS) - {"fdla", "fmmc"})


def random_graph(seed: int) -> Graph:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(3, 16))
    adjacency = np.triu(rng.uniform(size=(nodes, nodes)) < rng.uniform(0, 0.6), 1)
    adjacency[np.arange(nodes - 1), np.arange(1, nodes)] = True  # a path through all keeps it connected
    return Graph(nodes, np.argwhere(adjacency))


@pytest.mark.parametrize("rule", ["fdla", "fmmc"])
@pytest.mark.parametrize(
    ("name", "gap"),
    [
        ("path", 1 - np.cos(np.pi / 20)),  # a half everywhere, as best_constant has it
        ("grid", 0.136969),
        ("complete", 1),
    ],
)
def test_known_gaps(name: str, gap: float, rule: str) -> None:
    assert spectral_gap(build(name, 20, rule)) == pytest.approx(gap, abs=1e-6)


def test_star_by_hand() -> None:
    # By symmetry one weight w: the Laplacian has w and 10 w, so fdla takes 2/11; a center that keeps nothing, w = 1/9.
    np.testing.assert_allclose(build("star", 10, "fdla").weights, 2 / 11, atol=1e-6)
    np.testing.assert_allclose(build("star", 10, "fmmc").weights, 1 / 9, atol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_no_rule_has_a_larger_gap(seed: int) -> None:
    graph = random_graph(seed)
    gaps = {name: spectral_gap(rule(graph)) for name, rule in WEIGHTS.items()}
    assert gaps["fdla"] >= max(gaps.values()) - 1e-6
    nonnegative = [gaps[name] for name in CLOSED if WEIGHTS[name](graph).self_weights.min() >= 0]
    assert gaps["fmmc"] >= max(nonnegative) - 1e-6


def test_erdos_renyi_gains_over_the_closed_forms() -> None:
    graph = topology.erdos_renyi(20, 0.2, seed=1)
    optimal = spectral_gap(topology.fdla(graph))
    assert optimal > 1.2 * max(spectral_gap(WEIGHTS[name](graph)) for name in CLOSED)


@pytest.mark.parametrize("graph", [*map(random_graph, range(12)), topology.star(16), topology.path(20)])
def test_fmmc_has_no_negative_entry(graph: Graph) -> None:
    w = topology.fmmc(graph).matrix()
    assert (w >= 0).all()
    np.testing.assert_array_equal(w, w.T)
    np.testing.assert_allclose(w.sum(axis=1), 1, atol=1e-15)


@pytest.mark.parametrize("rule", ["fdla", "fmmc"])
def test_one_and_two_nodes(rule: str) -> None:
    assert build("path", 1, rule).matrix().tolist() == [[1.0]]
    np.testing.assert_allclose(build("path", 2, rule).matrix(), 0.5, atol=1e-7)


def test_theory_takes_negative_weights() -> None:
    network = topology.fdla(topology.erdos_renyi(20))
    assert network.weights.min() < -0.01 < network.self_weights.min()
    step = explain(network, method="paper").gamma_star
    page = explain(network, method="paper", gamma=step)
    mixed = np.eye(20) - step * (np.eye(20) - network.matrix())
    assert 0 < page.c < 1 - np.linalg.norm(mixed - 1 / 20, 2) ** 2


@pytest.mark.parametrize("rule", ["fdla", "fmmc"])
def test_large_networks_are_refused(rule: str) -> None:
    text = f"{rule} weights for 81 nodes; beyond 80 the solver takes minutes to hours; use best_constant or metropolis"
    with pytest.raises(InputError, match=re.escape(text)):
        build("path", 81, rule)


@pytest.mark.parametrize("rule", [topology.fdla, topology.fmmc])
def test_without_cvxpy_the_extra_is_named(rule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(MissingExtraError, match=re.escape("run: pip install 'omkl[sdp]'")):
        rule(topology.path(3))
    assert isinstance(topology.metropolis(topology.path(3)), Topology)
