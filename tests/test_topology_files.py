"""Graphs from files, and the names of nodes on their way through a simulation."""

import re
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import omkl
from omkl import config, topology
from omkl.errors import InputError
from omkl.topology import Graph, Topology, build, metropolis, read

ROOMS = "kitchen,hall\nhall,attic\nattic,cellar\n"
NAMES = ("kitchen", "hall", "attic", "cellar")
CHAIN = [[0, 1], [1, 2], [2, 3]]


def written(folder: Path, text: str, name: str = "graph.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def graph_of(path: Path) -> Graph:
    found = read(path)
    return found.graph if isinstance(found, Topology) else found


@pytest.mark.parametrize(
    "text",
    [
        ROOMS,
        "source,target\n" + ROOMS,
        "\ufeffFrom,To\r\n" + ROOMS.replace("\n", "\r\n"),
        "# made by hand\n\n" + ROOMS.replace(",", "\t") + "% end\n",
        ROOMS.replace(",", " ; "),
        ROOMS.replace(",", "   "),
        '"kitchen","hall"\n"hall","attic"\n"attic","cellar"\n',
        ROOMS + "hall,kitchen\nattic,cellar\n",  # both ways, and again
        "kitchen hall {}\nhall attic {}\nattic cellar {}\n",
        "kitchen,hall,attic,cellar\n0,1,0,0\n1,0,1,0\n0,1,0,1\n0,0,1,0\n",
        ",kitchen,hall,attic,cellar\nkitchen,0,1,0,0\nhall,1,0,1,0\nattic,0,1,0,1\ncellar,0,0,1,0\n",
    ],
)
def test_a_text_of_links_or_a_matrix(tmp_path: Path, text: str) -> None:
    found = graph_of(written(tmp_path, text))
    assert (found.edges.tolist(), found.names, found.strengths) == (CHAIN, NAMES, None)
    assert repr(found) == "<Graph graph.csv: 4 nodes, 3 links>"


@pytest.mark.parametrize(
    "text",
    [
        "2,10,0.5\n1,2,2\n",
        "a,b,weight\n2,10,0.5\n1,2,2\n",
        "2;10;0,5\n1;2;2\n2;1;2\n",
        "2 10 {'weight': 0.5}\n1 2 {'color': 'red', 'weight': 2}\n",
    ],
)
def test_numbers_are_sorted_as_such_and_weights_go_with_their_links(tmp_path: Path, text: str) -> None:
    found = graph_of(written(tmp_path, text, "graph.txt"))
    assert (found.names, found.edges.tolist()) == (("1", "2", "10"), [[0, 1], [1, 2]])
    assert found.strengths is not None
    assert found.strengths.tolist() == [2, 0.5]
    # By hand: 2 / (2 + 2.5) and 0.5 / (0.5 + 2.5); alike strengths are no strengths.
    np.testing.assert_allclose(build(found).weights, [2 / 4.5, 0.5 / 3])
    alike = Graph(3, found.edges, strengths=np.full(2, 7.0))
    np.testing.assert_allclose(metropolis(alike).matrix(), build("path", 3).matrix())
    with pytest.raises(InputError, match=r"weights='max_degree' for links .*only metropolis .*leave weights out"):
        build(found, weights="max_degree")


def test_a_gossip_matrix_keeps_its_weights(tmp_path: Path) -> None:
    w = np.array([[0.9, 0.1], [0.1, 0.9]])
    np.savetxt(tmp_path / "w.csv", w, delimiter=",")
    np.testing.assert_array_equal(build(str(tmp_path / "w.csv")).matrix(), w)
    named = read(written(tmp_path, ",x,y\nx,0.9,0.1\ny,0.1,0.9\n"))
    assert isinstance(named, Topology)
    np.testing.assert_array_equal(build(named, names=("y", "x")).matrix(), w)
    assert build(named, names=("y", "x")).graph.names == ("y", "x")


def test_graphml_as_networkx_writes_it(tmp_path: Path) -> None:
    given = nx.Graph([("n0", "n1"), ("n1", "n2")])
    for k, (node, name) in enumerate(zip(given, ("sea", "hill", "wood"), strict=True)):
        given.nodes[node].update(x=float(k), y=2.0 * k)
        given.nodes[node]["label"] = name
    nx.write_graphml(given, tmp_path / "g.graphml")
    found = graph_of(tmp_path / "g.graphml")
    assert (found.names, found.edges.tolist()) == (("sea", "hill", "wood"), [[0, 1], [1, 2]])
    assert found.positions is not None
    assert found.positions.tolist() == [[0, 0], [1, 2], [2, 4]]
    given.nodes["n2"]["label"] = "sea"  # two alike: labels are no names
    nx.write_graphml(given, tmp_path / "g.graphml")
    assert graph_of(tmp_path / "g.graphml").names == ("n0", "n1", "n2")


def test_networkx_keeps_names_and_weights() -> None:
    given = nx.Graph()
    given.add_weighted_edges_from([("b", "a", 3.0)])
    given.add_edge("a", "c")
    found = topology.from_networkx(given)
    assert (found.names, found.edges.tolist()) == (("b", "a", "c"), [[0, 1], [1, 2]])
    assert found.strengths is not None
    assert found.strengths.tolist() == [3, 1]
    assert topology.from_networkx(nx.path_graph(3)).names is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it has no line; a graph has links"),
        ("source,target\n", "it has no line below its header"),
        ("a,b\nb,b\n", "line 2 links 'b' and 'b'; a link joins two different nodes; remove it"),
        ("a,b\nb,\n", "line 2 links 'b' and ''"),
        ("a,b\nb,c,1\n", "line 2 has 3 cells, line 1 has 2; a link has two names and perhaps a weight"),
        ("a,b,1\nb,a,2\n", "the link of a and b has weights 1 and 2; a link goes both ways and has one"),
        ("a,b,0\n", "the link of a and b has weight 0; a weight says how much a link counts and must be positive"),
        ("a,b,nan\n", "the link of a and b has weight nan"),
        ("a,b,far\n", "line 1 has 'far' for a weight; it must be a number"),
        ("s_a,s_b\na,b\nb,c\n", "line 1 links 's_a' and 's_b', which no other line has; it looks like a header"),
        ("s_a,s_b,km\na,b,3\nb,c,1\n", "line 1 links 's_a' and 's_b', which no other line has; it looks like a header"),
        ("from,to,km\na,b,3\n", "column 'km' given; beside its two ends a link may have a weight"),
        ("0,1,0,0\n0,0,1,0\n0,1,0,1\n0,0,1,0\n", "matrix entry (0, 1) is 1 and (1, 0) is 0; gossip goes both ways"),
        (",a,a\na,0,1\na,1,0\n", "two nodes are called 'a'; names tell nodes apart"),
    ],
)
def test_what_is_no_graph_is_refused_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=re.escape(f"{path}: {told}")):
        read(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    nx.write_graphml(nx.DiGraph([("a", "b")]), tmp_path / "d.graphml")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00a")
    written(tmp_path, "<graphml>", "x.graphml")
    for name, told in (
        ("d.graphml", "d.graphml: a directed graph; gossip goes both ways over a link; write it undirected"),
        ("b.csv", "b.csv cannot be read ("),
        ("x.graphml", "x.graphml is no GraphML ("),
        ("no.csv", "no.csv is not a file; a graph is a name such as 'ring', or a file of links"),
        ("g.gexf", "g.gexf ends in '.gexf'; a graph is read from .csv, "),
    ):
        with pytest.raises(InputError, match=re.escape(told)):
            build(tmp_path / name)
    apart = written(tmp_path, ROOMS + "shed,barn\n")
    with pytest.raises(
        InputError, match=r"2 components.*: 4 with kitchen, hall, attic, \.\.\.; 2 with shed, barn; a network"
    ):
        build(apart)


def test_nodes_are_matched_by_name(tmp_path: Path) -> None:
    given = read(written(tmp_path, ROOMS))
    built = build(given, names=sorted(NAMES))  # attic, cellar, hall, kitchen
    assert built.graph.edges.tolist() == [[0, 1], [0, 2], [2, 3]]
    assert built.graph.names == tuple(sorted(NAMES))
    assert build("path", 4, names=NAMES).graph.names == NAMES
    with pytest.raises(
        InputError, match=r"lack 'kitchen'; did you mean 'Kitchen' by 'kitchen'[?] each node of the data"
    ):
        build(given, names=["attic", "cellar", "hall", "Kitchen"])
    told = "names of nodes differ: the graph lacks 'loft', the data lack 'attic'; each node of the data is one of the"
    with pytest.raises(InputError, match=re.escape(told)):
        build(given, names=("kitchen", "hall", "loft", "cellar"))
    turns = topology.turns(topology.Schedule([given, build(given, names=NAMES[::-1]), "ring"]), 4)
    assert [turn.graph.names for turn in turns] == [NAMES] * 3
    assert topology.union(turns).names == NAMES


def test_a_name_misspelled_in_one_link_gets_a_suggestion(tmp_path: Path) -> None:
    path = written(tmp_path, "kitchen,hall\nhal,attic\nattic,kitchen\n")
    with pytest.raises(InputError, match=r"the data lack 'hal'; did you mean 'hall' by 'hal'[?]"):
        build(read(path), names=("attic", "hall", "kitchen"))


def test_links_of_nodes_apart_have_no_header(tmp_path: Path) -> None:
    assert len(graph_of(written(tmp_path, "a,b\nc,d\ne,f\n")).edges) == 3  # as in a schedule


def test_names_stay_to_the_end(tmp_path: Path) -> None:
    path, rng = written(tmp_path, ROOMS), np.random.default_rng(0)
    X, y = rng.normal(size=(12, 4, 2)), np.sign(rng.normal(size=(12, 4)))
    result = omkl.simulate((X, y), str(path), method=omkl.Gossip(eta=1.0), seeds=4)
    assert result.names == NAMES
    np.testing.assert_array_equal(result.model(node="attic").theta, result.model(node=2).theta)
    with pytest.raises(InputError, match="unknown node 'atic'; did you mean 'attic'"):
        result.model(node="atic")
    loaded = omkl.load(result.save(tmp_path / "run"))
    assert loaded.names == NAMES
    from omkl.dashboard.saved import replayed

    assert next(replayed(loaded))["ids"] == list(NAMES)


def test_files_in_toml_lie_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, ROOMS)
    spec = written(tmp_path, 'data = "banana"\ntopology = "graph.csv"\n', "spec.toml")
    assert config.experiment(config.load(spec)).topology.names == NAMES
    turns = written(tmp_path, 'data = "banana"\ntopology = {graphs = ["graph.csv", "ring"]}\nnodes = 4\n', "turns.toml")
    assert config.experiment(config.load(turns)).topology.graphs[0].names == NAMES
    monkeypatch.chdir(tmp_path)
    given: Any = {"data": "banana", "topology": "graph.csv", "nodes": 5}
    with pytest.raises(InputError, match="nodes=5 for a topology of 4 nodes"):
        config.experiment(given).run()
    with pytest.raises(InputError, match=r"topology: g\.csv is not a file"):
        config.experiment(given | {"topology": "g.csv"})
