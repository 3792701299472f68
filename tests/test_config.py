import inspect
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

import omkl
from omkl import config
from omkl.cli import options
from omkl.data import Dirichlet, Shards
from omkl.errors import InputError
from omkl.losses import Softmax, Squared
from omkl.settings import settings


def resolve(method: dict[str, Any] | None = None, **table: Any) -> omkl.Experiment:
    return config.experiment(
        {"data": "banana", "nodes": 3, **table} | ({"method": method} if method is not None else {})
    )


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(
        "a,b,y,station\n" + "".join(f"{i},{i % 3},{1 - i % 2 * 2},s{i % 3}\n" for i in range(12))
    )
    return tmp_path / "t.csv"


def test_simulate_has_the_attributes_and_defaults_of_an_experiment() -> None:
    given = {name: one.default for name, one in inspect.signature(omkl.simulate).parameters.items()}
    rest = {"progress", "watch", "changes"}
    assert {name: one for name, one in given.items() if name not in rest} == {
        name: one.default for name, one in settings(omkl.Experiment).items()
    }
    assert config.experiment({"data": "banana"}).method == omkl.recommended()


def test_method_table_makes_the_method() -> None:
    table = {
        "name": "gossip",
        "kernels": {"gaussian": [1, 3], "laplacian": [2], "matern12": [4], "matern52": [1]},
        "features": 10,
        "orthogonal": True,
        "eta": 1,
        "gamma": 0.5,
        "clip": 0.35,
        "loss": {"name": "softmax", "classes": 3},
        "weight_rate": 0.1,
        "weigh_first": True,
        "quantizer": {"name": "nearest", "step": 2, "block": 5},
        "learner": {"name": "sgd", "eta": 0.5},
    }
    assert resolve(table).method == omkl.Gossip(
        kernels=omkl.gaussian(1, 3) + omkl.laplacian(2) + omkl.matern(4, nu=0.5) + omkl.matern(1, nu=2.5),
        features=10,
        orthogonal=True,
        eta=1,
        gamma=0.5,
        clip=0.35,
        loss=omkl.Softmax(classes=3),
        weight_rate=0.1,
        weigh_first=True,
        quantizer=omkl.Nearest(step=2, block=5),
        learner=omkl.SGD(0.5),
    )


def test_names_stand_for_their_defaults() -> None:
    assert resolve({"name": "gossip", "quantizer": "nearest"}).method == omkl.Gossip(quantizer=omkl.Nearest())
    assert config.experiment({"data": "banana", "method": "local"}).method == omkl.Local()


def test_settings_without_a_name_are_the_defaults() -> None:
    assert resolve({"name": "gossip", "quantizer": {"bits": 5}}).method == omkl.Gossip(quantizer=omkl.QSGD(bits=5))


@pytest.mark.parametrize("name", ["recommended", "frugal", "paper"])
def test_a_preset_by_name_takes_settings_of_its_parts(name: str) -> None:
    preset = getattr(omkl, name)()
    assert config.experiment({"data": "banana", "method": name}).method == preset
    assert resolve({"name": name, "loss": "squared"}).method == replace(preset, loss=omkl.Squared())
    table = {"name": name, "common_weights": False, "kernels": {"cauchy": [2]}, "quantizer": {"block": 5}}
    quantizer = replace(preset.channel.quantizer, block=5)
    changed = replace(preset, common_weights=False, kernels=omkl.cauchy(2), quantizer=quantizer)
    assert resolve(table).method == changed


def test_parts_of_a_preset_keep_what_is_not_said_and_may_be_left_out() -> None:
    table = {"name": "recommended", "basis": {"source": "normal"}, "learner": {"priors": [50]}, "pace": False}
    table |= {"reach": {"most": 5}, "clip": False}
    best = omkl.recommended()
    basis, learner = omkl.Landmarks(rank=120, rows=500, source="normal"), omkl.Pooled((50,))
    assert resolve(table).method == best.replace(basis=basis, learner=learner, pace=None, reach=omkl.Reach(5))
    assert resolve({"name": "recommended", "pace": {"rate": 4}}).method == best.replace(pace=omkl.Pace(4))
    assert resolve({"name": "recommended", "pace": {"bytes": 20}}).method == best.replace(pace=omkl.Budget(20))
    assert resolve({"name": "paper", "pace": {"bytes": 20}}).method == omkl.Gossip(pace=omkl.Budget(20))


def test_a_pace_over_a_pace_keeps_what_is_not_said() -> None:
    def over(there: dict[str, Any], value: dict[str, Any]) -> Any:
        tables = {"data": "banana", "method": {"name": "gossip", "pace": there}}, {"method": {"pace": value}}
        method = config.experiment(config.merge(*tables)).method
        assert isinstance(method, omkl.Gossip)
        return method.channel.pace

    assert over({"bytes": 100}, {"samples": 60}) == omkl.Budget(100, 60)
    assert over({"bytes": 100}, {"least": 0.5}) == omkl.Budget(100, least=0.5)
    assert over({"rate": 4}, {"until": 100}) == omkl.Pace(4, 100)
    assert over({"rate": 4}, {"bytes": 20}) == omkl.Budget(20)
    assert over({"bytes": 100}, {"rate": 4}) == omkl.Pace(4)


def test_settings_without_a_name_change_the_recommended_method() -> None:
    assert resolve({"loss": "squared"}).method == replace(omkl.recommended(), loss=omkl.Squared())
    assert resolve({"gamma": 0.2}).method == omkl.recommended(gamma=0.2)
    changed = omkl.recommended(kernels=omkl.gaussian(1), quantizer=omkl.Nearest(3), learner=omkl.SGD(0.5))
    table = {"kernels": {"gaussian": [1]}, "quantizer": {"step": 3}, "learner": {"name": "sgd", "eta": 0.5}}
    assert resolve(table).method == changed


def test_topology_with_settings_is_drawn() -> None:
    graph = resolve(topology={"name": "erdos_renyi", "p": 1.0, "seed": 4}).topology
    assert (graph.name, graph.nodes, len(graph.edges)) == ("erdos_renyi", 3, 3)


def test_topology_may_be_a_matrix() -> None:
    assert resolve(topology=[[0, 1], [1, 0]]).topology == [[0, 1], [1, 0]]


def test_topology_may_be_a_schedule() -> None:
    graphs = ["ring", {"name": "erdos_renyi", "p": 1.0}, [[0, 1, 0], [1, 0, 0], [0, 0, 0]]]
    ring, drawn, matrix = resolve(topology={"graphs": graphs}).topology.graphs
    assert (ring, len(drawn.edges), matrix) == ("ring", 3, graphs[2])


def test_faults_are_a_table_of_chances() -> None:
    faults = resolve(faults={"links": 0.1}).faults
    assert (faults.links, faults.nodes) == (0.1, 0.0)  # type: ignore[union-attr]


def test_shuffle_false_keeps_the_order() -> None:
    assert resolve(shuffle=False).shuffle is None
    assert resolve(shuffle=7).shuffle == 7


def test_data_from_a_file(csv: Path) -> None:
    X, y, _ = config.experiment({"data": {"file": str(csv), "target": "y", "drop": ["station"]}}).data
    assert (X.shape, y.tolist()) == ((12, 2), [1, -1] * 6)


def test_data_with_nodes_from_a_column_tells_their_number(csv: Path) -> None:
    table = {"file": str(csv), "target": "y", "node": "station"}
    spec = config.experiment({"data": table, "topology": {"name": "geometric", "radius": 2.0}})
    assert spec.data.names == ("s0", "s1", "s2")
    assert spec.topology.nodes == 3


def test_data_file_is_looked_for_beside_the_spec(csv: Path) -> None:
    path = csv.parent / "spec.toml"
    path.write_text('data = {file = "t.csv", target = "y", drop = ["station"]}')
    assert np.array_equal(config.experiment(config.load(path)).data[1], [1, -1] * 6)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"nods": 3}, "nods: unknown key; did you mean 'nodes'?"),
    ({"gamma": 0.3}, "gamma: unknown key; it is a setting of the method; write it as method.gamma"),
    ({"nodes": 2.5}, "nodes: 2.5 given; it must be a whole number"),
    ({"nodes": 0}, "nodes: nodes is 0; it must be a whole number from 1 on"),
    ({"nodes": "3"}, "nodes: '3' given; it must be a whole number"),
    ({"seeds": True}, "seeds: True given; it must be a whole number"),
    ({"shuffle": True}, "shuffle: True given; it must be a whole number"),
    ({"record_every": 0}, "record_every: record_every is 0"),
    ({"weights": "metro"}, "weights: unknown weights 'metro'; did you mean 'metropolis'?"),
    ({"data": "bananna"}, "data: unknown data set 'bananna'; did you mean 'banana'?"),
    ({"data": "x.csv"}, "data: x.csv is not a file"),
    ({"data": "banana", "target": "y"}, "data: target='y' for the data set 'banana';"),
    ({"data": 3}, "data: 3 given; it must be a text"),
    ({"data": {"file": "x.csv"}}, "data.target: target is missing"),
    ({"data": {"file": "x.csv", "target": "y"}}, "data: x.csv is not a file"),
    ({"data": {"file": "x.csv", "taget": "y"}}, "data.taget: unknown key; did you mean 'target'?"),
    ({"topology": "rng"}, "topology: unknown topology 'rng'; did you mean 'ring'?"),
    ({"topology": {"name": ["ring"]}}, "topology: unknown topology"),
    ({"topology": 3}, "topology: 3 given; it must be a name or a table"),
    ({"topology": [[0, "x"], [1, 0]]}, "topology.0.1: 'x' given; it must be a number"),
    ({"topology": {"name": "ring", "p": 0.3}}, "topology.p: unknown key; there is nothing to set here"),
    ({"topology": {"name": "erdos_renyi", "q": 0.3}}, "topology.q: unknown key; known: p, seed"),
    ({"topology": {"name": "erdos_renyi", "nodes": 3}}, "topology.nodes: unknown key"),
    ({"topology": {"name": "erdos_renyi", "p": "x"}}, "topology.p: 'x' given; it must be a number"),
    ({"topology": {"graphs": "ring"}}, "topology.graphs: 'ring' given"),
    ({"topology": {"graphs": []}}, "topology.graphs: graphs is []; a schedule has one graph or more"),
    ({"topology": {"graphs": ["ring", "rng"]}}, "topology: unknown topology 'rng'; did you mean 'ring'?"),
    ({"topology": {"graphs": ["ring"], "p": 0.1}}, "topology.p: unknown key"),
    ({"faults": 0.1}, "faults: 0.1 given; it must be a table, as {setting=1}"),
    ({"faults": {"link": 0.1}}, "faults.link: unknown key; did you mean 'links'?"),
    ({"faults": {"links": 2}}, "faults.links: links is 2; a probability of failing lies in [0, 1]"),
    ({"faults": {"nodes": "x"}}, "faults.nodes: nodes is str"),
    ({"method": "gosip"}, "method: unknown method 'gosip'; did you mean 'gossip'?"),
    ({"method": {"name": ["gossip"]}}, "method: unknown method"),
    ({"method": "papr"}, "method: unknown method 'papr'; did you mean 'paper'?"),
    ({"method": {"name": "recommended", "gama": 0.1}}, "method.gama: unknown key; did you mean 'gamma'?"),
    ({"method": {"name": "recommended", "quantizer": {"bitz": 3}}}, "method.quantizer.bitz: unknown key"),
    ({"method": {"name": "recommended", "gamma": False}}, "method.gamma"),
    ({"method": {"name": "local", "gamma": 0.1}}, "method.gamma: unknown key"),
    ({"method": {"name": "local", "clip": 0.35}}, "method.clip: unknown key"),
    ({"method": {"clip": -1.0}}, "method.clip: clip is -1.0; it must be positive"),
    ({"method": {"name": "gossip", "eta": "fast"}}, "method.eta: 'fast' given; it must be a number"),
    ({"method": {"name": "gossip", "eta": -1}}, "method.eta: eta is -1.0; a learning rate must be positive"),
    ({"method": {"features": 2.5}}, "method.features: 2.5 given; it must be a whole number"),
    ({"method": {"weigh_first": 1}}, "method.weigh_first: 1 given; it must be true or false"),
    ({"method": {"kernels": [1, 3]}}, "method.kernels: [1, 3] given; it must be a table, as {setting=1}"),
    ({"method": {"kernels": {"gauss": [1]}}}, "method.kernels: unknown kernel 'gauss'"),
    ({"method": {"kernels": {"gaussian": ["1"]}}}, "method.kernels.gaussian.0: '1' given"),
    ({"method": {"kernels": {"gaussian": [0]}}}, "method.kernels: sigma is 0.0"),
    ({"method": {"kernels": {}}}, "method.kernels: kernels is (); a bank is one kernel or more"),
    ({"method": {"loss": "softmx"}}, "method.loss: unknown loss 'softmx'; did you mean 'softmax'?"),
    ({"method": {"loss": {"name": "softmax", "classes": "3"}}}, "method.loss.classes: '3' given"),
    ({"method": {"eta": 0.5}}, "method.eta: 0.5 given; recommended learns by a rule that has no such rate"),
    ({"method": {"features": 5}}, "method.features: 5 given; recommended compares inputs with landmarks"),
    ({"method": {"quantizer": {"bits": 3}}}, "method.quantizer.bits: 3 given; nearest has no such setting"),
    ({"method": {"name": "paper", "learner": {"prior": 1}}}, "method.learner: {'prior': 1} given; there is no"),
    ({"method": {"gamma": "x"}}, "method.gamma: 'x' given; it must be a number or 'auto'"),
    ({"method": {"quantizer": True}}, "method.quantizer: True given; it must be a name or a table"),
    ({"method": {"name": "gossip", "quantizer": {"bitz": 3}}}, "method.quantizer.bitz: unknown key; did you mean"),
    ({"method": {"name": "gossip", "quantizer": {"bits": 9}}}, "method.quantizer.bits: bits is 9; QSGD takes 1 to 8"),
    ({"method": {"name": "gossip", "quantizer": {"bits": 1}}}, "method.quantizer: plain QSGD with M=1"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_keys_and_values_are_named_by_their_path(table: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        config.experiment({"data": "banana", "nodes": 3} | table)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_topology_with_settings_needs_nodes() -> None:
    with pytest.raises(InputError, match="nodes is missing"):
        config.experiment({"data": "banana", "topology": {"name": "erdos_renyi", "p": 0.3}})


def test_data_is_required() -> None:
    with pytest.raises(InputError, match="data is missing"):
        config.experiment({})


def test_load_refuses_what_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("nodes = ")
    with pytest.raises(InputError, match=r"x\.toml is not TOML"):
        config.load(tmp_path / "x.toml")


FILE = {
    "data": "banana",
    "nodes": 3,
    "method": {
        "name": "gossip", "eta": 0.5, "gamma": 0.1, "kernels": {"laplacian": [2]},
        "quantizer": {"name": "qsgd", "bits": 4},
    },
}  # fmt: skip
BASE = omkl.Gossip(eta=0.5, gamma=0.1, kernels=omkl.laplacian(2), quantizer=omkl.QSGD(bits=4))


def tables(**flags: Any) -> dict[str, Any]:
    return options.tables(SimpleNamespace(**flags))


def merged(**flags: Any) -> omkl.Experiment:
    return config.experiment(config.merge(FILE, tables(**flags)))


def test_flags_override_the_file_and_leave_the_rest() -> None:
    found = merged(eta="1.0", seed="-3", nodes="4", weights=None, kernels=["gaussian:1,3", "cauchy:2"])
    assert (found.seed, found.nodes, found.weights) == (-3, 4, "metropolis")
    assert found.method == BASE.replace(eta=1.0, kernels=omkl.gaussian(1, 3) + omkl.cauchy(2))


@pytest.mark.parametrize(
    ("flags", "quantizer"),
    [
        ({"bits": "5"}, omkl.QSGD(bits=5)),
        ({"rescale": True}, omkl.QSGD(bits=4, rescale=True)),
        ({"quantizer": "nearest"}, omkl.Nearest()),
        ({"quantizer": "qsgd", "block": "4"}, omkl.QSGD(block=4)),
        ({"quantizer": '{name="nearest", step=2}'}, omkl.Nearest(step=2)),
    ],
)
def test_a_flag_that_names_a_thing_replaces_it_with_its_settings(flags: dict[str, Any], quantizer: Any) -> None:
    assert merged(**flags).method.quantizer == quantizer


def test_another_method_keeps_what_it_shares() -> None:
    assert merged(method="local").method == omkl.Local(eta=0.5, kernels=omkl.laplacian(2))


def laid(*methods: Any) -> Any:
    table: dict[str, Any] = {}
    for method in methods:
        table = config.merge(table, {"method": method})
    return config.method(table["method"])


def test_a_preset_keeps_the_loss_alone() -> None:
    expected = omkl.paper(gamma=0.1, loss=omkl.Squared())
    assert laid({"momentum": 0.5, "loss": "squared"}, {"name": "paper", "gamma": 0.1}) == expected


def test_another_method_than_a_preset_keeps_what_it_shares() -> None:
    assert laid("recommended", {"name": "local"}) == omkl.Local(**shared(omkl.recommended()))
    changed = omkl.recommended(momentum=0.1, basis=omkl.Landmarks(rank=90, rows=500))
    assert laid("recommended", {"momentum": 0.1, "basis": {"rank": 90}}) == changed
    assert laid({"name": "gossip", "eta": 0.5}, "choco") == omkl.Choco(eta=0.5)  # with the kernel of its own


def shared(method: omkl.Gossip) -> dict[str, Any]:
    return {name: value for name, value in method.settings().items() if name in omkl.Local.known()}


def test_flags_describe_all_of_a_method() -> None:
    given: dict[str, Any] = {
        "method": "recommended",
        "pace": "4",
        "reach": "5",
        "sending": "triggered",
        "clip": "0.3",
        "basis": "90",
        "gamma": "auto",
    }
    given |= {
        "learner": "{priors=[100]}",
        "common_weights": False,
        "weight_rate": "0.5",
        "momentum": "0.1",
        "sigma": "given",
    }
    changed = omkl.recommended(pace=omkl.Pace(4), reach=omkl.Reach(5),
        sending=omkl.Triggered(), clip=0.3, basis=omkl.Landmarks(rank=90),
        gamma="auto", learner=omkl.Pooled((100,)), common_weights=False, weight_rate=0.5, momentum=0.1,
        sigma="given",
    )  # fmt: skip
    assert config.experiment({"data": "banana"} | tables(**given)).method == changed
    none = tables(**dict.fromkeys(("pace", "sending", "clip"), "none"))
    plain = omkl.recommended(pace=None, sending=None)
    assert config.experiment({"data": "banana"} | none).method == plain


def test_another_method_does_not_hide_a_wrong_key() -> None:
    table = config.merge({"data": "banana", "method": {"etta": 1}}, {"method": {"name": "local"}})
    with pytest.raises(InputError, match=r"method\.etta: unknown key; did you mean 'eta'\?"):
        config.experiment(table)


def test_a_method_or_quantizer_by_name_takes_flags() -> None:
    assert laid("gossip", {"eta": 1.0}) == omkl.Gossip(eta=1.0)
    assert laid({"quantizer": "nearest"}, {"quantizer": {"step": 2}}).quantizer == omkl.Nearest(step=2)


def test_faults_by_flag_replace_those_of_the_file() -> None:
    table = config.merge({"faults": {"nodes": 0.2}}, tables(faults="{links=0.1}"))
    assert table["faults"] == {"links": 0.1}


def test_no_shuffle() -> None:
    assert merged(no_shuffle=True).shuffle is None
    assert merged(shuffle="7").shuffle == 7


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"kernels": ["gaussian"]}, "write gaussian:1,3,5"),
        ({"loss": "{x"}, "--loss {x is not TOML"),
        ({"pace": "fast"}, "method.pace: unknown pace 'fast'; known: budget, pace"),
        ({"clip": "auto"}, "method.clip: 'auto' given; it must be a number"),
        ({"nodes": "2.5"}, "nodes: 2.5 given; it must be a whole number"),
        ({"seeds": "many"}, "seeds: 'many' given; it must be a whole number"),
        ({"reach": "far"}, "method.reach: 'far' given; it must be a table"),
    ],
)
def test_malformed_flags(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        merged(**flags)


def test_a_family_may_be_given_twice() -> None:
    flags = tables(kernels=["gaussian:1", "cauchy:2", "gaussian:3"])
    assert flags == {"method": {"kernels": {"gaussian": [1.0, 3.0], "cauchy": [2.0]}}}


def test_help_says_what_docstrings_say() -> None:
    told = {one.name: get_args(one.type)[1].help for one in fields(options.flags("topology shard", "gamma bits"))}
    assert told["topology"].startswith(
        "Which nodes hear each other, by a file such as edges.csv or by name: path, ring, "
    )
    assert told["shard"] == "What is spread over devices: nodes, seeds."
    assert told["gamma"] == "How far a node moves towards its neighbors in a round, in (0, 1], or auto."
    assert told["bits"] == "Bits of a level's magnitude, 1 to 8; for qsgd."


def test_a_partition_has_a_name_or_settings() -> None:
    table = {"data": "banana", "nodes": 20}
    assert config.experiment(table | {"partition": "shards"}).partition == Shards()
    given = config.experiment(table | {"partition": {"name": "dirichlet", "alpha": 0.1}})
    assert given.partition == Dirichlet(alpha=0.1)
    with pytest.raises(InputError, match=r"^partition\.alpha: alpha is 0.0; it must be positive"):
        config.experiment(table | {"partition": {"name": "dirichlet", "alpha": 0.0}})
    with pytest.raises(InputError, match="did you mean 'dirichlet'"):
        config.experiment(table | {"partition": "dirichle"})


def test_nodes_of_a_set_have_its_loss() -> None:
    assert config.deployed({"data": "mnist10"}, 3).method.objective == Softmax(10)
    assert config.deployed({"data": "mnist10", "method": {"loss": "squared"}}, 3).method.objective == Squared()
    assert config.deployed({}, 3).topology == "path"


def test_a_set_of_nodes_tells_their_number() -> None:
    spec = config.experiment({"data": "los-loop", "topology": {"name": "erdos_renyi", "p": 0.1}})
    assert spec.topology.nodes == 207
    assert config.experiment({"data": "los-loop"}).topology is None
