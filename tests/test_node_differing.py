"""Nodes whose files differ: what is refused, what is told, and what is nobody's business."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from omkl.node.config import NetworkConfig, parse
from omkl.node.events import Differs
from omkl.node.links import LinkState
from omkl.node.metrics import Metrics
from omkl.node.protocol import Protocol
from omkl.node.role import agreed
from omkl.node.transports.memory import Network

Table: TypeAlias = dict[str, Any]
SMALL: Table = {"name": "recommended", "gamma": 0.5, "basis": {"source": "rows", "rank": 20, "rows": 60}}
PAPER: Table = {"name": "paper", "gamma": 0.5}
NODES = [{"id": id, "listen": f"tcp/h:{7447 + k}"} for k, id in enumerate("abcd")]


def table(method: Table = SMALL) -> Table:
    """Return a network's file: a path of four."""
    learning = {"method": method, "seed": 3}
    links = [["a", "b"], ["b", "c"], ["c", "d"]]
    calibration = {} if method is PAPER else {"calibration": {"file": "one.npz"}}
    return copy.deepcopy(
        {"name": "n", "inputs": 2, "nodes": NODES, "learning": learning, "links": links, "timing": {}} | calibration
    )


def read(folder: Path, network: Table) -> NetworkConfig:
    rng = np.random.default_rng(0)
    for name in ("one", "other"):
        np.savez(folder / f"{name}.npz", X=rng.normal(size=(60, 2)))
    return parse(network, folder)


def method(**keys: Any) -> Callable[[Table], object]:
    return lambda network: network["learning"]["method"].update(keys)


def learning(**keys: Any) -> Callable[[Table], object]:
    return lambda network: network["learning"].update(keys)


def top(**keys: Any) -> Callable[[Table], object]:
    return lambda network: network.update(keys)


def timer(network: Table) -> None:
    network["timing"]["mode"] = "timer"
    network["learning"]["method"]["pace"] = False


def member(**keys: Any) -> Callable[[Table], object]:
    return lambda network: network["nodes"][0].update(keys)


REFUSED: dict[str, Callable[[Table], object]] = {
    "name": top(name="other"),
    "inputs": learning(method=PAPER | {"features": 4}),
    "mode": timer,
    "seed": learning(seed=4),
    "landmarks file": top(calibration={"file": "other.npz"}),
    "landmarks": method(basis={"source": "rows", "rank": 21, "rows": 60}),
    "kernels": method(kernels={"gaussian": [0.5, 1, 2]}),
    "quantizer": method(quantizer={"name": "nearest", "step": 2.0}),
    "loss": method(loss="squared"),
    "priors": method(learner={"name": "pooled", "priors": [400, 10]}),
    "reach": method(reach={"most": 5}),
    "pace": method(pace={"bytes": 24}),
    "common_weights": method(common_weights=False),
    "standardize": learning(standardize=True),
}
TOLD: dict[str, tuple[Callable[[Table], object], str]] = {
    "gamma": (method(gamma=0.3), "settings"),
    "momentum": (method(momentum=0.1), "settings"),
    "clip": (method(clip=0.1), "settings"),
    "weight_rate": (method(weight_rate=0.5), "settings"),
    "deadline": (top(timing={"deadline": 7.0}), "settings"),
    "patience": (top(timing={"patience": 0.5}), "settings"),
    "weights": (learning(weights="max_degree"), "weight"),
    "a link more": (top(links=[["a", "b"], ["b", "c"], ["c", "d"], ["b", "d"]]), "weight"),
}
TOLD_OF_THE_PAPER: dict[str, tuple[Callable[[Table], object], str]] = {
    "eta": (method(eta=0.2), "settings"),
    "regularization": (method(regularization=1e-4), "settings"),
    "weight_rate": (method(weight_rate=0.1), "settings"),
}
OWN: dict[str, Callable[[Table], object]] = {
    "nothing": lambda network: None,
    "a node more elsewhere": lambda network: (
        network["nodes"].append({"id": "e", "listen": "tcp/h:9"}),
        network["links"].append(["d", "e"]),
    ),
    "listen": member(listen="tcp/elsewhere:9"),
    "metrics": member(metrics="127.0.0.1:17447"),
    "position": member(position=[1, 2]),
    "access": top(access={"predict": [], "observe": [], "model": []}),
    "checkpoint": top(checkpoint={"folder": "kept"}),
}


def met(ours: NetworkConfig, theirs: NetworkConfig) -> tuple[list[Protocol], list[tuple[str, Differs]]]:
    """Return a and b after they met, each with a file of its own, and what they told of it."""
    told = []
    network = Network(watch=lambda now, id, event: told.append((id, event)) if isinstance(event, Differs) else None)
    nodes = [Protocol(ours.role("a"), 1, 0.0), Protocol(theirs.role("b"), 2, 0.0)]
    for node in nodes:
        network.join(node)
    network.run(2.0)
    return nodes, told


def standing(nodes: list[Protocol]) -> list[LinkState]:
    a, b = nodes
    return [a.links["b"].state, b.links["a"].state]


@pytest.mark.parametrize("row", REFUSED)
def test_what_must_be_equal_is_refused(row: str, tmp_path: Path) -> None:
    other = table()
    REFUSED[row](other)
    nodes, _ = met(read(tmp_path, table()), read(tmp_path, other))
    assert standing(nodes) == [LinkState.REFUSED] * 2


@pytest.mark.parametrize("row", [*TOLD, *(f"{row} of the paper" for row in TOLD_OF_THE_PAPER)])
def test_what_may_differ_is_told(row: str, tmp_path: Path) -> None:
    of_the_paper = row.endswith(" of the paper")
    change, what = TOLD_OF_THE_PAPER[row.removesuffix(" of the paper")] if of_the_paper else TOLD[row]
    ours, other = (table(PAPER if of_the_paper else SMALL) for _ in range(2))
    change(other)
    nodes, told = met(read(tmp_path, ours), read(tmp_path, other))
    assert standing(nodes) == [LinkState.SYNCED] * 2
    assert sorted(told) == [("a", Differs("b", what)), ("b", Differs("a", what))]
    for node, peer in zip(nodes, "ba", strict=True):
        assert node.links[peer].differs == what
        registry = Metrics(node).registry
        shown = {one: registry.get_sample_value("omkl_peer_differs", {"peer": peer, "what": one})
                 for one in ("settings", "weight")}  # fmt: skip
        assert shown == {one: float(one == what) for one in shown}


@pytest.mark.parametrize("row", OWN)
def test_what_is_each_nodes_own_is_not_told(row: str, tmp_path: Path) -> None:
    other = table()
    OWN[row](other)
    nodes, told = met(read(tmp_path, table()), read(tmp_path, other))
    assert (standing(nodes), told) == ([LinkState.SYNCED] * 2, [])
    assert [node.links[peer].differs for node, peer in zip(nodes, "ba", strict=True)] == ["", ""]


@pytest.mark.parametrize("row", ["nothing", "gamma", "weights", "a link more"])
def test_mixing_keeps_the_mean_where_files_differ(row: str, tmp_path: Path) -> None:
    """Both ends of a link go by the smaller of their weights, so what one gives the other takes."""
    files = {id: table(PAPER) for id in "abcd"}
    for id in "bd" if row != "nothing" else "":
        TOLD[row][0](files[id])
        files[id]["learning"]["method"].pop("basis", None)
    network = Network()
    nodes = [Protocol(read(tmp_path, files[id]).role(id), k, 0.0) for k, id in enumerate("abcd")]
    rng = np.random.default_rng(1)
    for node in nodes:
        state = node.learning.state
        node.learning.state = state._replace(theta=rng.normal(size=state.theta.shape).astype(np.float32))
        network.join(node)
    before, apart = mean(nodes)
    for node in nodes:
        network.feed(node.role.id, [([0.5, 1.0], None)] * 60)
    network.run()
    after, left = mean(nodes)
    assert {node.round for node in nodes} == {60}
    assert left < 0.5 * apart
    np.testing.assert_allclose(after, before, atol=2e-5)


def mean(nodes: list[Protocol]) -> tuple[np.ndarray, float]:
    """Return the mean of the models, and how far they are from it."""
    thetas = np.array([node.learning.state.theta for node in nodes], dtype=np.float64)
    return thetas.mean(axis=0), float(np.abs(thetas - thetas.mean(axis=0)).max())


def test_a_link_has_one_weight(tmp_path: Path) -> None:
    other = table()
    TOLD["a link more"][0](other)
    nodes, _ = met(read(tmp_path, table()), read(tmp_path, other))
    assert [node.role.neighbors[peer] for node, peer in zip(nodes, "ba", strict=True)] == pytest.approx([1 / 3, 1 / 4])
    assert [node.neighbors.weights[0] for node in nodes] == pytest.approx([1 / 4, 1 / 4])


def test_no_word_of_a_neighbor_makes_a_link_count_for_more(tmp_path: Path) -> None:
    role = read(tmp_path, table()).role("a")
    own = role.stance("b")
    for pull in (b"\0\0\0\0", b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\x80\xff", b"\0\0\x80\xbf", b"\xff\xff\x7f\x7f"):
        weight, _ = agreed(own, own[:4] + pull, role.neighbors["b"])
        assert weight == role.neighbors["b"]
    assert agreed(own, bytes(8), 0.25) == (0.25, "")
    assert agreed(bytes(8), own, 0.25) == (0.25, "")
