import re
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omkl import topology
from omkl.errors import InputError
from omkl.theory import spectral_gap
from omkl.topology import GRAPHS, WEIGHTS, Graph, Topology, build
from omkl.topology.spectrum import resistances


@st.composite
def graphs(draw: st.DrawFn, connected: bool = True) -> Graph:
    nodes = draw(st.integers(1, 12))
    pairs = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)).filter(lambda e: e[0] != e[1])
    edges = draw(st.lists(pairs, max_size=30)) if nodes > 1 else []
    if connected:
        edges += [(draw(st.integers(0, k - 1)), k) for k in range(1, nodes)]
    relabel = draw(st.permutations(range(nodes)))
    return Graph(nodes, np.array([(relabel[i], relabel[j]) for i, j in edges], dtype=np.int64).reshape(-1, 2))


def as_networkx(graph: Graph) -> Any:
    g = nx.empty_graph(graph.nodes)
    g.add_edges_from(graph.edges.tolist())
    return g


def test_three_path_by_hand() -> None:
    third = 1 / 3
    w = [[2 * third, third, 0], [third, third, third], [0, third, 2 * third]]
    np.testing.assert_allclose(build("path", 3).matrix(), w)
    w = [[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]]
    for rule in ("local_degree", "max_degree", "best_constant"):  # Laplacian eigenvalues 0, 1, 3: 2/(1+3)
        np.testing.assert_allclose(build("path", 3, rule).matrix(), w, atol=1e-15)


def test_weights_differ_where_degrees_do() -> None:
    # A triangle 0, 1, 2 with 3 hanging on 0: degrees 3, 2, 2, 1; edges 01, 02, 03, 12; Laplacian 0, 1, 3, 4.
    g = Graph(4, np.array([[0, 1], [0, 2], [0, 3], [1, 2]]))
    assert topology.metropolis(g).weights.tolist() == [1 / 4, 1 / 4, 1 / 4, 1 / 3]
    assert topology.local_degree(g).weights.tolist() == [1 / 3, 1 / 3, 1 / 3, 1 / 2]
    assert topology.max_degree(g).weights.tolist() == [1 / 3] * 4
    # Resistances 2/3 in the triangle, two ohms beside one, and 1 outside; their sums at the nodes 7/3, 4/3, 4/3, 1.
    np.testing.assert_allclose(topology.resistance(g).weights, [2 / 9, 2 / 9, 3 / 10, 1 / 3])
    np.testing.assert_allclose(topology.best_constant(g).weights, 2 / 5)


@given(graphs(connected=False), st.sampled_from(["metropolis", "resistance"]))
def test_rules_for_every_graph_are_symmetric_stochastic_and_nonnegative(graph: Graph, rule: str) -> None:
    built = WEIGHTS[rule](graph)
    w = built.matrix()
    np.testing.assert_array_equal(w, w.T)
    np.testing.assert_allclose(w.sum(axis=1), 1)
    assert (w >= 0).all()
    assert (built.weights > 0).all()
    assert built.eigenvalues()[-1] > -1


@given(graphs(connected=False))
def test_resistances_are_those_of_networkx(graph: Graph) -> None:
    each = resistances(graph)
    assert each.sum() == pytest.approx(graph.nodes - len(set(graph.components.tolist())))  # Foster's theorem
    g = as_networkx(graph)
    for (i, j), r in zip(graph.edges.tolist(), each, strict=True):
        part = g.subgraph(nx.node_connected_component(g, i))
        assert r == pytest.approx(nx.resistance_distance(part, i, j))


@pytest.mark.parametrize("nodes", [2, 3, 8, 20])
@pytest.mark.parametrize("name", ["path", "ring", "complete", "star"])
def test_where_links_are_alike_resistance_is_metropolis(name: str, nodes: int) -> None:
    np.testing.assert_allclose(build(name, nodes, "resistance").weights, build(name, nodes).weights)


def test_a_bridge_counts_for_more() -> None:
    half = topology.complete(10).edges
    g = Graph(20, np.concatenate([half, half + 10, [[9, 10]]]))
    # 1 and 1 + 9 * 2/10 at both its ends, where Metropolis has 1 / (1 + 10).
    assert topology.resistance(g).weights[g.edges.tolist().index([9, 10])] == pytest.approx(1 / 3.8)
    assert spectral_gap(topology.resistance(g)) > 1.9 * spectral_gap(topology.metropolis(g))


@pytest.mark.parametrize("name", ["grid", "erdos_renyi", "geometric"])
def test_resistance_mixes_faster_than_metropolis(name: str) -> None:
    assert spectral_gap(build(name, 20, "resistance")) > 1.01 * spectral_gap(build(name, 20))


def test_too_many_nodes_for_resistances() -> None:
    with pytest.raises(InputError, match=r"resistance weights for 3001 nodes; beyond 3000 .*; use metropolis weights"):
        build("ring", 3001, "resistance")


@given(graphs(), st.sampled_from(sorted(WEIGHTS)))
def test_neighbors_agree_with_the_matrix(graph: Graph, rule: str) -> None:
    t = WEIGHTS[rule](graph)
    index, weights = t.neighbors()
    assert index.dtype == np.int32
    assert index.shape == weights.shape == (t.nodes, t.degrees.max())
    w = np.diag(t.self_weights)
    np.add.at(w, (np.arange(t.nodes)[:, None], index), weights)
    np.testing.assert_array_equal(w, t.matrix())
    padding = np.arange(index.shape[1]) >= t.degrees[:, None]
    assert (index == np.arange(t.nodes)[:, None])[padding].all()
    assert not weights[padding].any()


@given(graphs(), st.sampled_from(sorted(WEIGHTS)))
def test_ends_are_those_of_the_matrix(graph: Graph, rule: str) -> None:
    t = WEIGHTS[rule](graph)
    if t.nodes > 1:
        values = t.eigenvalues()
        np.testing.assert_allclose(t.ends, (1 - values[1], 1 - values[-1]), atol=1e-11)


@pytest.mark.parametrize("nodes", [3, 4, 7, 12, 20])
@pytest.mark.parametrize("name", ["path", "ring", "complete", "star", "grid"])
def test_closed_forms_are_the_eigenvalues(name: str, nodes: int) -> None:
    t = build(name, nodes, "max_degree")
    values = t.eigenvalues()
    np.testing.assert_allclose(t.ends, (1 - values[1], 1 - values[-1]), atol=1e-12)


def test_a_borrowed_name_does_not_lend_its_eigenvalues() -> None:
    t = topology.max_degree(Graph(5, topology.path(5).edges, name="ring"))
    assert t.ends == pytest.approx(topology.max_degree(topology.path(5)).ends)


def test_large_graphs_have_ends() -> None:
    assert build("ring", 10**5).ends[0] == pytest.approx(4 / 3 * np.sin(np.pi / 10**5) ** 2, rel=1e-12)
    hub = Graph(4000, np.concatenate([topology.complete(80).edges, topology.star(4000).edges]))
    low, high = topology.max_degree(
        hub
    ).ends  # the Laplacian of a star with more links reaches from 1 to J all the same
    assert low == pytest.approx(1 / 3999)
    assert high == pytest.approx(4000 / 3999)


@given(graphs(connected=False))
def test_components_are_those_of_networkx(graph: Graph) -> None:
    expected = np.empty(graph.nodes, dtype=np.int64)
    for part in nx.connected_components(as_networkx(graph)):
        expected[list(part)] = min(part)
    np.testing.assert_array_equal(graph.components, expected)


@pytest.mark.parametrize("name", ["path", "ring", "complete", "star"])
@pytest.mark.parametrize("nodes", [1, 2, 3, 8])
def test_named_graphs_are_those_of_networkx(name: str, nodes: int) -> None:
    makers = {
        "path": nx.path_graph, "ring": nx.cycle_graph, "complete": nx.complete_graph,
        "star": lambda n: nx.star_graph(n - 1),
    }  # fmt: skip
    theirs = {tuple(sorted(e)) for e in makers[name](nodes).edges if e[0] != e[1]}
    assert {tuple(e) for e in GRAPHS[name](nodes).edges.tolist()} == theirs


def test_grid_is_as_square_as_can_be() -> None:
    assert nx.is_isomorphic(as_networkx(topology.grid(20)), nx.grid_2d_graph(4, 5))
    np.testing.assert_array_equal(topology.grid(7).edges, topology.path(7).edges)


@pytest.mark.parametrize("rule", sorted(WEIGHTS))
@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_one_node_is_a_network(name: str, rule: str) -> None:
    t = build(name, 1, rule)
    assert t.matrix().tolist() == [[1.0]]
    assert t.neighbors()[0].shape == (1, 0)
    assert t.ends == (0.0, 0.0)


def test_ring_of_two_is_one_edge() -> None:
    t = build("ring", 2)
    assert t.graph.edges.tolist() == [[0, 1]]
    assert t.matrix().tolist() == [[0.5, 0.5], [0.5, 0.5]]


@pytest.mark.parametrize("name", ["erdos_renyi", "geometric"])
def test_random_graphs_follow_their_seed(name: str) -> None:
    make: Any = GRAPHS[name]
    assert make(20, seed=1).edges.tolist() == make(20, seed=1).edges.tolist() != make(20, seed=2).edges.tolist()
    assert make(20).name == build(name, 20).graph.name == name


def test_edges_are_put_in_order_once() -> None:
    g = Graph(3, np.array([[2, 1], [1, 0], [1, 2]]))
    assert g.edges.tolist() == [[0, 1], [1, 2]]
    assert g.degrees.tolist() == [1, 2, 1]
    with pytest.raises(ValueError, match="read-only"):
        g.edges[0, 0] = 5


def test_everything_that_stands_for_a_graph_builds_the_same() -> None:
    w = build("ring", 5).matrix()
    labels = nx.relabel_nodes(nx.cycle_graph(5), dict(enumerate("abcde")))
    for given_as in (topology.ring(5), nx.cycle_graph(5), labels, nx.to_numpy_array(nx.cycle_graph(5)), w, w.tolist()):
        np.testing.assert_allclose(build(given_as, 5).matrix(), w, atol=1e-15)
    t = build("ring", 5, "max_degree")
    assert build(t) is t
    assert build(w, weights="best_constant").rule == "matrix"  # W keeps its weights
    assert topology.metropolis(nx.cycle_graph(5)).rule == "metropolis"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: build("rign", 5), "unknown topology 'rign'; did you mean 'ring'?"),
        (lambda: build("ring", 5, "metropolys"), "did you mean 'metropolis'?"),
        (lambda: build("ring"), "topology 'ring' without nodes"),
        (lambda: build("complete", -1), "-1 nodes; a network has at least one"),
        (
            lambda: build(topology.ring(5), 6),
            "nodes=6 for a topology of 5 nodes; they must match; drop --nodes (nodes=)",
        ),
        (lambda: build(nx.DiGraph([(0, 1)])), "a directed graph; gossip goes both ways"),
        (lambda: Graph(3, np.array([[0, 1], [2, 2]])), "edge (2, 2); edges join two different nodes of 0 ... 2"),
        (lambda: Graph(3, np.array([[0, 3]])), "edge (0, 3)"),
        (lambda: build(np.ones((2, 3))), "topology of shape (2, 3); a matrix must be square"),
        (lambda: build(None), "topology of shape ()"),
        (lambda: build({"a": 1}), "topology of type dict"),
        (lambda: build([[0, np.nan], [np.nan, 0]]), "matrix entry (0, 1) is nan; entries must be finite"),
        (lambda: build([[0, 1], [0, 0]]), "matrix entry (0, 1) is 1 and (1, 0) is 0"),
        (lambda: build([[1.2, -0.2], [-0.2, 1.2]]), "gossip matrix entry (0, 1) is -0.2; entries must not be negative"),
        (lambda: topology.from_adjacency([[0, 2], [2, 0]]), "adjacency has entries besides 0 and 1"),
        (lambda: Topology(topology.path(3), np.array([0.5])), "weights of shape (1,), 1 of them finite; each of the 2"),
    ],
)
def test_refusals(call: Any, text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        call()


def test_a_row_that_does_not_sum_to_one_is_named() -> None:
    w = build("path", 5).matrix()
    w[3, 3] -= 0.03
    text = "gossip matrix row 3 sums to 0.97; rows must sum to 1; use omkl.topology.metropolis(graph)"
    with pytest.raises(InputError, match=re.escape(text)):
        build(w)


@pytest.mark.parametrize("rule", sorted(WEIGHTS))
def test_a_disconnected_graph_names_its_components(rule: str) -> None:
    g = nx.disjoint_union_all([nx.path_graph(2), nx.path_graph(5), nx.empty_graph(1)])
    text = "3 components, by number of nodes: 5 with 2, 3, 4, ...; 2 with 0, 1; 1 with 7; a network must be connected"
    with pytest.raises(InputError, match=re.escape(text)):
        build(g, weights=rule)


def test_many_components_are_cut_short() -> None:
    with pytest.raises(InputError, match=r"100 components.*: 1 with 0; .*; 1 with 4; 95 smaller; a network"):
        build(nx.empty_graph(100))
    with pytest.raises(InputError, match="2 components"):
        build(np.eye(2))


def test_links_are_as_short_as_they_can_be() -> None:
    positions = np.array([[0.0, 0], [1, 0], [3, 0], [3, 1.5]])
    assert topology.nearby(positions).edges.tolist() == [[0, 1], [1, 2], [2, 3]]
    assert len(topology.nearby(positions, slack=1.3).edges) == 4
    assert topology.nearby([[0.0, 0]]).nodes == 1
