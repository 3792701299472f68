import itertools
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omkl
from omkl import topology
from omkl.errors import InputError
from omkl.node.config import Checkpoint, Member, NetworkConfig, Timing, Tls, load, parse
from omkl.node.learning import outputs as outputs_of
from omkl.node.setup.template import write

HERE = Path("nowhere")


def listed(*ids: str) -> list[dict[str, Any]]:
    return [{"id": id, "listen": f"tcp/127.0.0.1:{7447 + k}"} for k, id in enumerate(ids)]


def network(**changes: Any) -> dict[str, Any]:
    """Return the table of a network of three, with other values, or without a key whose value is None."""
    table = {"name": "n", "inputs": 2, "nodes": listed("a", "b", "c"), "learning": {"method": "paper"}} | changes
    return {key: value for key, value in table.items() if value is not None}


def node(**changes: Any) -> dict[str, Any]:
    return network(nodes=[listed("a")[0] | changes])


def learning(**keys: Any) -> dict[str, Any]:
    return network(learning={"method": "paper"} | keys)


def method(**keys: Any) -> dict[str, Any]:
    return learning(method=keys)


def config(nodes: int, graph: Any, weights: str = "metropolis") -> NetworkConfig:
    members = tuple(Member(id=f"n{k}", listen=f"tcp/h:{k + 1}") for k in range(nodes))
    built = topology.build(graph, nodes, weights)
    return NetworkConfig(name="n", inputs=2, method=omkl.Gossip(), seed=0, topology=built, members=members)


NOBODY: dict[str, Any] = {"predict": [], "observe": [], "model": []}

WRONG: list[tuple[dict[str, Any], str]] = [
    (network(nams="x"), "nams: unknown key; did you mean 'name'? known: access, calibration, checkpoint, inputs"),
    (network(name=None), "name: name is missing; it has no default; give it"),
    (network(name="my net"), "name is 'my net'; it takes letters, digits, - and _ only; try name = "),
    (network(inputs=None), "inputs: inputs is missing; it has no default; give it"),
    (network(inputs=2.0), "inputs: 2.0 given; it must be a whole number"),
    (network(inputs=0), "inputs is 0; it must be a whole number from 1 on; pass inputs=1"),
    (network(learning=None), "learning: learning is missing; it has no default; give it"),
    (network(learning=3), "learning: 3 given; it must be a table or the path of a spec; write [learning]"),
    (network(learning="s.toml"), "learning: nowhere/s.toml is not a file; it must be a simulation's spec"),
    (network(nodes=None), "nodes: nodes is missing; it has no default; give it"),
    (network(nodes=[]), "nodes: [] given; a network has one node or more; list each under [[nodes]]"),
    (network(nodes=["a"]), "nodes.0: 'a' given; it must be a table"),
    (network(nodes=[{"id": "a"}]), "nodes.0.listen: listen is missing; it has no default"),
    (network(access={"predct": []}), "access.predct: unknown key; did you mean 'predict'? known: model, ob"),
    (network(access=NOBODY | {"predict": "*"}), "access.predict: '*' given; it must be a list"),
    (network(access=NOBODY | {"predict": ["a b"]}), "access.predict: predict is 'a b'; it takes letters, digits"),
    (network(access=NOBODY | {"model": ["*", "a"]}), "access.model: model is '*'; it takes letters, digits, - and"),
    (network(access={"predict": ["screen"], "observe": []}), "access.model: model is missing"),
    (network(access={"predict": ["screen"], "observe": [], "model": []}),
     'access: screen named; without TLS nobody proves a name; add [tls], or write ["*"] for everyone, [] for nobody'),
    (node(port=7447), "nodes.0.port: unknown key; known: id, listen, metrics"),
    (node(id=1), "nodes.0.id: 1 given; it must be a text"),
    (node(id="a/b"), "nodes.0.id: id is 'a/b'; it takes letters, digits, - and _ only; try id = "),
    (node(id=""), "nodes.0.id: id is ''; it takes letters"),
    (node(listen="127.0.0.1:7447"), "nodes.0.listen: listen is '127.0.0.1:7447'; it must be tcp/ or tls/, a host and"),
    (node(position=[1]), "nodes.0.position: position is [1.0]; it must be two numbers"),
    (node(position=[1, math.inf]), "nodes.0.position: position is [1.0, inf]; it must be two numbers"),
    (node(listen="udp/127.0.0.1:7447"), "nodes.0.listen: listen is 'udp/127.0.0.1:7447'; it must be tcp/"),
    (node(listen="tcp/127.0.0.1"), "nodes.0.listen: listen is 'tcp/127.0.0.1'; it must be tcp/"),
    (node(listen="tcp/127.0.0.1:65536"), "nodes.0.listen: listen is 'tcp/127.0.0.1:65536'; it must be tcp/"),
    (node(listen="tcp/127.0.0.1:0"), "nodes.0.listen: listen is 'tcp/127.0.0.1:0'; it must be tcp/"),
    (node(listen="tcp/fe80::1:7447"), "nodes.0.listen: listen is 'tcp/fe80::1:7447'; it must be tcp/"),
    (node(listen="tcp/h:7447\n"), "nodes.0.listen: listen is 'tcp/h:7447\\n'; it must be tcp/"),
    (node(listen="tcp/0.0.0.0:7447"), "nodes.0.listen: listen is 'tcp/0.0.0.0:7447'; neighbors connect there, so it"),
    (node(listen="tcp/[::]:7447"), "nodes.0.listen: listen is 'tcp/[::]:7447'; neighbors connect there, so it"),
    (node(listen="tls/h:7447"), "nodes.0.listen: tls/h:7447 given; tls/ needs [tls] and its files; change one of them"),
    (node(metrics="9100"), "nodes.0.metrics: metrics is '9100'; it must be a host and a port; write 127.0.0.1:17447"),
    (node(listen="tcp/h:7447", metrics="h:7447"), "nodes.0.metrics: h:7447 is where a listens; endpoints must differ"),
    (network(nodes=[{"id": "a", "listen": "tcp/H:1", "metrics": "h:2"}, {"id": "b", "listen": "tcp/h:2"}]),
     "nodes.0.metrics: h:2 is where b listens; endpoints must differ; take another port"),
    (network(nodes=[{"id": id, "listen": f"tcp/h:{ord(id)}", "metrics": "127.0.0.1:9"} for id in "ab"]),
     "nodes.1.metrics: 127.0.0.1:9 is where a serves its own; endpoints must differ; take another port"),
    (network(nodes=listed("a", "b", "a")), "nodes.2.id: 'a' is nodes.0 already; ids must differ; rename one"),
    (network(nodes=[*listed("a"), {"id": "b", "listen": "tcp/127.0.0.1:7447"}]),
     "nodes.1.listen: 127.0.0.1:7447 is where a listens; endpoints must differ; take another port"),
    (network(nodes=[{"id": "a", "listen": "tcp/Host:1"}, {"id": "b", "listen": "tcp/host:1"}]),
     "nodes.1.listen: host:1 is where a listens; endpoints must differ"),
    (network(links="ab"), "links: 'ab' given; it must be a list"),
    (network(links=[["a", 2]]), "links.0.1: 2 given; it must be a text"),
    (network(links=[["a"]]), "links.0: ['a'] given; a link joins two different nodes; write [\"a\", \"b\"]"),
    (network(links=[["a", "a"]]), "links.0: ['a', 'a'] given; a link joins two different nodes; write"),
    (network(links=[["a", "b"], ["b", "d"]]), "links.1: unknown node 'd'; known: a, b, c"),
    (network(links=[["a", "b"], ["b", "a"]]), "links.1: ['b', 'a'] is links.0 again; a link goes both ways; leave it"),
    (network(links=[["a", "c"]]), "links: the network falls into parts: a, c | b; all nodes must be connected; add"),
    (network(links=[["a", "c"]], learning={"weights": "best_constant"}), "links: the network falls into parts: a, c |"),
    (network(links=[["a", "b"]], learning={"topology": "ring"}),
     "links: given beside learning.topology; a network has one graph; leave one of them out"),
    (network(timing=3), "timing: 3 given; it must be a table"),
    (network(timing={"dead": 1}), "timing.dead: unknown key; did you mean 'deadline'? known: deadline, mode,"),
    (network(timing={"mode": "clock"}), "timing.mode: 'clock' given; it must be 'lockstep' or 'timer'"),
    (network(timing={"deadline": "5"}), "timing.deadline: '5' given; it must be a number"),
    (network(timing={"deadline": 0}), "timing.deadline: deadline is 0.0; it must be positive and 1e+06 at most"),
    (network(timing={"patience": -1.0}), "timing.patience: patience is -1.0; it must be positive and 1e"),
    (network(timing={"period": float("inf")}), "timing.period: period is inf; it must be positive and 1e"),
    (network(timing={"deadline": float("nan")}), "timing.deadline: deadline is nan; it must be positive and 1e"),
    (network(timing={"patience": 5}), "timing.patience: patience is 5.0 and the deadline 5.0; a node that pauses so"),
    (network(timing={"mode": "timer", "period": 9}), "timing.period: period is 9.0 and the deadline 5.0; a node that"),
    (network(tls={"ca": "x", "key": "x"}), "tls.certificate: certificate is missing"),
    (network(tls={"ca": 1, "key": "x", "certificate": "x"}), "tls.ca: 1 given; it must be a text"),
    (network(tls={"ca": "x", "key": "x", "certificate": "x"}),
     "nodes.0.listen: tcp/127.0.0.1:7447 given; with [tls] nodes listen on tls/; change one of them"),
    (network(checkpoint={}), "checkpoint.folder: folder is missing"),
    (network(checkpoint={"folder": "x", "every": "round"}), "checkpoint.every: every is 'round'; it must be a number"),
    (network(checkpoint={"folder": "x", "every": 0}), "checkpoint.every: every is 0; it must be a whole number from 1"),
    (learning(eta=1), "learning.eta: unknown key; it is a setting of the method"),
    (learning(nodes=5), "learning.nodes: 5 given, 3 listed; they must agree; list all or leave it out"),
    (learning(nodes="3"), "learning.nodes: '3' given; it must be a whole number"),
    (learning(seed=0.5), "learning.seed: 0.5 given; it must be a whole number"),
    (learning(seeds=0), "learning.seeds: seeds is 0; it must be a whole number from 1 on"),
    (learning(faults={"link": 1}), "learning.faults.link: unknown key; did you mean 'links'?"),
    (learning(data="bananna"), "learning.data: unknown data set 'bananna'; did you mean 'banana'?"),
    (learning(data="Credit-Card"), "inputs is 2; learning.data is Credit-Card, which has 23; write inputs = 23, or"),
    (learning(data={"file": "x.csv"}), "learning.data.target: target is missing"),
    (learning(data={"file": "x.csv", "targt": "y"}), "learning.data.targt: unknown key; did you mean 'target'?"),
    (learning(data=3), "learning.data: 3 given; it must be a text"),
    (learning(topology="rng"), "learning.topology: unknown topology 'rng'; did you mean 'ring'?"),
    (learning(topology={"graphs": ["ring"]}), "learning.topology: graphs in turn; nodes keep the links they have;"),
    (learning(topology=[[0, 1], [1, 0]]), "learning.topology: a graph of 2 nodes for 3 listed; they must agree; list"),
    (learning(topology={"name": "erdos_renyi", "p": 0.0}), "learning.topology: the network falls into parts: a | b |"),
    (learning(topology=[[0.5, 0.4, 0], [0.4, 0.6, 0], [0, 0, 1]]), "learning.topology: gossip matrix row 0 sums to"),
    (learning(weights="metro"), "learning.weights: unknown weights 'metro'; did you mean 'metropolis'?"),
    (network(nodes=listed(*"abcdef"), learning={"topology": "star", "weights": "best_constant"}),
     "learning.weights: best_constant gives a itself the weight -0.429; quantized gossip needs weights that are not "
     "negative; use metropolis or fmmc"),
    (method(name="local"), "learning.method: local is for the simulator alone; nodes run gossip, or choco without"),
    (method(name="complete"), "learning.method: complete is for the simulator alone; nodes run gossip"),
    (method(name="choco", fresh=True), "learning.method: choco with fresh copies is for the simulator alone; nodes"),
    (method(name="gossip", eta=-1), "learning.method.eta: eta is -1.0; a learning rate must be positive"),
    (method(quantizer={"name": "topk", "k": 3}), "learning.method.quantizer: topk is for the simulator alone; nodes "
     "send exact, qsgd, nearest, sign; try nearest"),
    (method(quantizer="randk"), "learning.method.quantizer: randk is for the simulator alone; nodes send"),
    (method(kernels={"mine": [1]}), "learning.method.kernels: unknown kernel 'mine'; known: cauchy, gaussian,"),
    (method(loss="softmax"), "learning.method.loss: softmax without classes; nodes agree on their number before they"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_wrong_is_one_line_that_names_the_key(table: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(table, HERE)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_graph_of_a_file_is_matched_by_ids_and_lies_beside_the_networks(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("c,a\na,b\n")
    made = parse(learning(topology="edges.csv"), tmp_path)
    assert {id: sorted(made.neighbors(id)) for id in made.ids} == {"a": ["b", "c"], "b": ["a"], "c": ["a"]}
    (tmp_path / "edges.csv").write_text("c,a\na,d\n")
    with pytest.raises(InputError, match=r"^learning\.topology: names of nodes differ: "):
        parse(learning(topology="edges.csv"), tmp_path)


def test_negative_weights_of_links_are_refused() -> None:
    w = np.full(3, 0.3)
    w[1] = -0.1
    built = topology.Topology(topology.ring(3), w, "fdla")
    with pytest.raises(InputError, match=r"fdla gives the link n0 - n2 the weight -0\.1; .*; use metropolis or fmmc"):
        config(3, built)


def test_kernels_of_ones_own_are_refused() -> None:
    own = omkl.Gossip(kernels=(omkl.Kernel("mine", 1.0, lambda rng, d: rng.normal(size=d)),))
    one = config(1, "path")
    with pytest.raises(InputError, match="'mine' has a spectrum of its own; nodes compare kernels by name"):
        NetworkConfig(name="n", inputs=2, method=own, seed=0, topology=one.topology, members=one.members)


def test_all_keys_mean_what_they_say() -> None:
    nodes: list[dict[str, Any]] = [
        {"id": "b-1", "listen": "tls/[fe80::1]:7447", "metrics": "0.0.0.0:17447"},
        {"id": "A_2", "listen": "tls/sensor-2.local:65535", "position": [1, 2.5]},
    ]
    table = network(
        nodes=nodes,
        links=[["A_2", "b-1"]],
        timing={"mode": "timer", "deadline": 3, "period": 0.5},
        tls={"ca": "ca.pem", "certificate": "/etc/{id}.pem", "key": "{id}.key"},
        checkpoint={"folder": "kept", "every": 7},
        learning={"seed": 4, "weights": "max_degree", "method": {"name": "choco", "quantizer": "sign"}},
    )
    read = parse(table, Path("/home"))
    assert read.members == (Member(**nodes[0]), Member(**nodes[1]))
    assert read.timing == Timing(mode="timer", deadline=3.0, period=0.5)
    assert read.tls == Tls(ca=Path("/home/ca.pem"), certificate=Path("/etc/{id}.pem"), key=Path("/home/{id}.key"))
    assert read.checkpoint == Checkpoint(folder=Path("/home/kept"), every=7)
    assert read.checkpoint.file("A_2") == Path("/home/kept/A_2.npz")
    assert Checkpoint(folder=Path("x"), every="observation").every == "observation"
    assert (read.seed, read.method) == (4, omkl.Choco(quantizer=omkl.Sign()))
    assert read.neighbors("A_2") == {"b-1": 1.0}


def test_what_only_simulations_need_is_left_alone() -> None:
    table = learning(
        data={"file": "not here.csv", "target": "y"}, nodes=3, faults={"links": 0.1}, seeds=9, shuffle=False,
        record_every=5, pooled=True, devices=2, shard="nodes",
    )  # fmt: skip
    assert parse(table, HERE).method == omkl.paper()
    assert parse(learning(data="banana"), HERE).inputs == 2


def test_without_a_method_it_is_the_recommended_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^calibration: missing; .* as the recommended .*; write \[cal"):
        parse(network(learning={}), HERE)
    np.savez(tmp_path / "x.npz", X=np.random.default_rng(0).normal(size=(200, 2)))
    assert parse(network(learning={}, calibration={"file": "x.npz"}), tmp_path).method == omkl.recommended()
    closed = parse(method(name="recommended", basis={"source": "normal"}), HERE)
    assert (closed.method.bank.basis, closed.calibration) == (omkl.Landmarks(120, 500, "normal"), None)
    with pytest.raises(InputError, match=r"basis\.source: 'centers' given; .*; write omkl\.landmarks\.centers"):
        parse(method(name="recommended", basis={"source": "centers"}), HERE)


def test_a_spec_that_was_simulated_is_deployed_as_it_stands(tmp_path: Path) -> None:
    spec = 'data = "banana"\nnodes = 3\ntopology = "ring"\nseed = 7\n'
    spec += 'method = {name = "gossip", eta = 1, quantizer = "nearest"}\n'
    (tmp_path / "spec.toml").write_text(spec)
    read = parse(network(learning="spec.toml"), tmp_path)
    inline = parse(network(learning=tomllib.loads(spec)), tmp_path)
    assert (read.method, read.seed) == (omkl.Gossip(eta=1, quantizer=omkl.Nearest(), loss="logistic"), 7)
    assert np.array_equal(read.topology.matrix(), topology.build("ring", 3).matrix())
    assert (inline.method, inline.seed) == (read.method, read.seed)


def test_an_error_in_a_spec_names_the_spec(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text("method = {etta = 1}")
    with pytest.raises(InputError, match=r"^learning: spec\.toml: method\.etta: unknown key; did you mean 'eta'\?"):
        parse(network(learning="spec.toml"), tmp_path)


def test_a_missing_or_broken_file(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"x\.toml is not a file; a node needs the file of its network; write one: omkl node init"
    ):
        load(tmp_path / "x.toml")
    (tmp_path / "x.toml").write_text("name = ")
    with pytest.raises(InputError, match=r"x\.toml is not TOML"):
        load(tmp_path / "x.toml")


def test_an_unknown_id_is_told_the_known_ones() -> None:
    read = parse(network(), HERE)
    assert [read.index(id) for id in "abc"] == [0, 1, 2]
    for ask in (read.index, read.neighbors, read.endpoints):
        with pytest.raises(InputError, match="unknown node 'd'; known: a, b, c"):
            ask("d")


def test_one_node_learns_alone() -> None:
    for table in (node(), node() | {"links": []}):
        read = parse(table, HERE)
        assert (read.neighbors("a"), read.endpoints("a")) == ({}, [])


def test_tls_files_are_those_of_the_node(tmp_path: Path) -> None:
    tls = Tls(ca=tmp_path / "ca.pem", certificate=tmp_path / "{id}.pem", key=tmp_path / "{id}.key")
    for name in ("ca.pem", "a.pem", "a.key"):
        (tmp_path / name).touch()
    assert tls.of("a") == Tls(ca=tmp_path / "ca.pem", certificate=tmp_path / "a.pem", key=tmp_path / "a.key")
    with pytest.raises(InputError, match=r"tls\.certificate: .*b\.pem is not a file; TLS needs it on this device"):
        tls.of("b")


@pytest.mark.parametrize(
    ("loss", "outputs"),
    [("logistic", 1), ("squared", 1), ({"name": "squared", "outputs": 2}, 2), ({"name": "softmax", "classes": 4}, 4)],
)
def test_outputs_follow_the_loss(loss: Any, outputs: int) -> None:
    assert outputs_of(parse(method(name="paper", loss=loss), HERE).method.objective) == outputs


@st.composite
def connected(draw: st.DrawFn) -> topology.Graph:
    """Draw a tree, each node hanging on one before it, and some more links."""
    nodes = draw(st.integers(1, 8))
    tree = [[draw(st.integers(0, k - 1)), k] for k in range(1, nodes)]
    pairs = [list(pair) for pair in itertools.combinations(range(nodes), 2)]
    more = draw(st.lists(st.sampled_from(pairs))) if pairs else []
    return topology.Graph(nodes, np.array(tree + more, dtype=np.int64).reshape(-1, 2))


@given(connected(), st.sampled_from(["metropolis", "local_degree", "max_degree"]))
def test_neighbors_have_the_weights_of_the_matrix(graph: topology.Graph, weights: str) -> None:
    net, matrix = config(graph.nodes, graph, weights), topology.build(graph, weights=weights).matrix()
    for i, id in enumerate(net.ids):
        found = net.neighbors(id)
        assert [net.index(one) for one in found] == [j for j in np.flatnonzero(matrix[i]) if j != i]
        assert all(weight == matrix[i, net.index(one)] for one, weight in found.items())


@given(connected())
def test_every_link_is_opened_by_its_later_end_alone(graph: topology.Graph) -> None:
    net = config(graph.nodes, graph)
    place = {member.listen: k for k, member in enumerate(net.members)}
    opened = [[place[endpoint], k] for k, id in enumerate(net.ids) for endpoint in net.endpoints(id)]
    assert sorted(opened) == graph.edges.tolist()


def test_the_file_to_start_from_is_five_sensors_on_a_ring(tmp_path: Path) -> None:
    written = write(tmp_path / "network.toml")
    read = load(tmp_path / "network.toml")
    assert (read.name, read.inputs, read.ids) == ("sensors", 2, list("abcde"))
    assert [one.listen for one in read.members] == [f"tcp/127.0.0.1:{port}" for port in range(7447, 7452)]
    assert len({one.metrics for one in read.members}) == 5
    assert np.array_equal(read.topology.graph.edges, topology.ring(5).edges)
    best = omkl.recommended(loss=omkl.Logistic(), basis=omkl.Landmarks(source="normal"))
    assert read.method == written.method == best
    assert read.calibration is None  # nothing is shared
    assert read.checkpoint == Checkpoint(folder=tmp_path / "checkpoints")
    assert read.timing == Timing()


def test_what_it_says_in_comments_holds(tmp_path: Path) -> None:
    write(tmp_path / "network.toml", nodes=3)
    text = (tmp_path / "network.toml").read_text()
    links = text.replace("# links", "links").replace('topology = "ring"', "")
    assert parse(tomllib.loads(links), tmp_path).topology.graph.edges.tolist() == [[0, 1], [1, 2]]
    assert parse(tomllib.loads(text.replace("# clip", "clip")), tmp_path).method.mixing.clip == 0.1
    head, _, tls = text.replace("tcp/1", "tls/1").partition("# [tls]")
    assert parse(tomllib.loads(head + "[tls]" + tls.replace("# ", "")), tmp_path).tls is not None
    (tmp_path / "spec.toml").write_text(text[text.index("[learning]") : text.index("# In sec")].replace("learning.", "")
                                        .replace("[learning]", ""))  # fmt: skip
    spec = text[: text.index("[[nodes]]")] + 'learning = "spec.toml"\n' + text[text.index("[[nodes]]") :]
    spec = spec[: spec.index("[learning]")] + spec[spec.index("# In sec") :]
    assert parse(tomllib.loads(spec), tmp_path).method == load(tmp_path / "network.toml").method


def test_it_takes_hosts_and_a_graph(tmp_path: Path) -> None:
    net = write(tmp_path / "n.toml", hosts=["pi-1", "pi-2", "pi-1"], topology="path", name="roof", inputs=7)
    assert [one.listen for one in net.members] == ["tcp/pi-1:7447", "tcp/pi-2:7447", "tcp/pi-1:7448"]
    assert (net.name, net.inputs, net.topology.graph.name) == ("roof", 7, "path")
    assert len(write(tmp_path / "m.toml", nodes=30, topology="grid").members) == 30


def test_ids_ports_and_hosts_by_a_pattern(tmp_path: Path) -> None:
    numbered = write(tmp_path / "s.toml", nodes=3, ids=["s{n}"], hosts=["{id}.local"])
    assert [member.listen for member in numbered.members] == [f"tcp/s{n}.local:7447" for n in (1, 2, 3)]
    net = write(tmp_path / "n.toml", ids=["x", "y"], hosts=["{id}-{n}.local"], port=9, metrics="{id}.local:1", tls=True)
    assert [one.listen for one in net.members] == ["tls/x-1.local:9", "tls/y-2.local:9"]
    assert [one.metrics for one in net.members] == ["x.local:1", "y.local:1"]
    made = tmp_path / "certificates"
    assert net.tls == Tls(ca=made / "ca.pem", certificate=made / "{id}.pem", key=made / "{id}.key")
    alone = write(tmp_path / "m.toml", nodes=2, hosts=["10.0.0.{n}"], metrics="none")
    assert [(one.id, one.listen, one.metrics) for one in alone.members] == [
        ("a", "tcp/10.0.0.1:7447", None),
        ("b", "tcp/10.0.0.2:7447", None),
    ]


def test_with_shared_inputs_it_is_the_default_method(tmp_path: Path) -> None:
    np.savez(tmp_path / "shared.npz", X=np.random.default_rng(0).normal(size=(40, 3)))
    softmax = '{name = "softmax", classes = 4}'
    write(tmp_path / "n.toml", calibration="shared.npz", loss=softmax, standardize=True)
    net = load(tmp_path / "n.toml")
    assert net.method == omkl.recommended(loss=omkl.Softmax(classes=4))
    assert (net.inputs, net.standardize) == (3, True)
    assert net.calibration is not None
    assert net.calibration.shape == (40, 3)


def test_it_never_overwrites_and_writes_nothing_wrong(tmp_path: Path) -> None:
    (tmp_path / "network.toml").write_text("mine")
    with pytest.raises(InputError, match=r"network\.toml exists; it is never overwritten; remove it"):
        write(tmp_path / "network.toml")
    assert (tmp_path / "network.toml").read_text() == "mine"
    with pytest.raises(InputError, match="2 hosts for 3 nodes; each node needs one; leave nodes out"):
        write(tmp_path / "n.toml", nodes=3, hosts=["x", "y"])
    for settings, says in (
        ({"nodes": 3, "ids": ["x", "y"]}, "2 ids for 3 nodes; each node has one; leave nodes out, or give a pattern"),
        ({"ids": ["x", "x"]}, r"nodes\.1\.id: 'x' is nodes\.0 already"),
        ({"ids": ["x y"]}, r"nodes\.0\.id: id is 'x y'; it takes letters"),
        ({"hosts": ["10.0.0.{k}"]}, r"10\.0\.0\.\{k\} given; braces stand around id or n alone"),
        ({"hosts": ["{n}.x", "{n}.y"], "nodes": 3}, "2 hosts for 3 nodes; .*, or give a single one with {id} or {n}"),
        ({"hosts": ["10.0.0.{n}"], "port": 65536}, "listen is 'tcp/10.0.0.1:65536'"),
        ({"metrics": "127.0.0.1"}, r"metrics is 127\.0\.0\.1; it must be a host and a port, or none"),
        ({"loss": "hinge"}, r"learning\.method\.loss: unknown loss 'hinge'"),
        ({"loss": "softmax"}, r"learning\.method\.loss: softmax without classes; .*classes = 3"),
        ({"loss": "{name: 3}"}, r"loss is \{name: 3\}, which is not TOML"),
        ({"calibration": "none.npz"}, r"calibration\.file: .*none\.npz cannot be read"),
    ):
        with pytest.raises(InputError, match=says):
            write(tmp_path / "n.toml", **settings)
    np.savez(tmp_path / "shared.npz", X=np.eye(3))
    with pytest.raises(
        InputError, match=r"inputs is 2; the rows of shared\.npz have 3 numbers; .* or leave inputs out"
    ):
        write(tmp_path / "n.toml", inputs=2, calibration="shared.npz")
    with pytest.raises(InputError, match=r"""^name is 'a"b'; it takes letters"""):
        write(tmp_path / "n.toml", name='a"b')
    with pytest.raises(InputError, match="nodes is 0; it must be a whole number from 1 on"):
        write(tmp_path / "n.toml", nodes=0)
    with pytest.raises(InputError, match=r"learning\.topology: unknown topology 'rng'"):
        write(tmp_path / "n.toml", topology="rng")
    assert not (tmp_path / "n.toml").exists()
