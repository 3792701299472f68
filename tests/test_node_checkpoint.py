import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omkl.arrays import Array
from omkl.errors import InputError
from omkl.node.events import Moved, Resynced
from omkl.node.links import LinkState
from omkl.node.persistence import checkpoint
from omkl.node.protocol import Protocol
from omkl.node.role import Role
from omkl.node.transports.memory import Conditions
from tests.node_cluster import TIMER, Cluster, assert_same, config, run, stream

ROUNDS = 12
SLOW = Conditions(delay=0.01, jitter=0.02)


def resumed(path: Path, node: Protocol, now: float, clean: bool = True, boot: int = 7) -> Protocol:
    checkpoint.save(path, node, clean)
    return checkpoint.restore(path, node.role, boot, now)


def role() -> Role:
    return config(3).role("b")


def header(path: Path) -> dict[str, Any]:
    with np.load(path) as file:
        return dict(json.loads(file["header"].tobytes()))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "b.npz"


@pytest.fixture
def node() -> Protocol:
    """A node in the middle of its stream, with messages and samples that wait."""
    cluster = Cluster(config(3), SLOW)
    x, y = stream(3, ROUNDS)
    cluster.feed(x, y)
    cluster.network.run(0.2)
    node = cluster.nodes["b"]
    node.observe([1.0, 2.0], None, 0.2)
    assert 0 < node.round < ROUNDS
    return node


@settings(max_examples=40)
@given(
    st.integers(0, 2**16), st.sampled_from("abcd"), st.floats(0, 0.5), st.floats(0, 3), st.booleans(),
    st.sampled_from([None, "nearest"]), st.booleans(),
)  # fmt: skip
def test_a_node_that_left_in_order_goes_on_as_if_nothing_had_happened(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int, id: str, at: float, away: float, ordered: bool, quantizer: str | None, standardize: bool,
) -> None:  # fmt: skip
    path = tmp_path_factory.mktemp("c") / "c.npz"
    network, (x, y) = config(4, "ring", quantizer=quantizer, standardize=standardize), stream(4, ROUNDS)
    x = x.astype(np.float64) + 1e9 * standardize
    cluster = Cluster(network, replace(SLOW, ordered=ordered), seed)
    cluster.feed(x, y)
    cluster.network.run(at)
    node = cluster.stop(id)
    checkpoint.save(path, node, clean=True)
    cluster.network.run(at + away)
    back = checkpoint.restore(path, node.role, 7, at + away)
    cluster.resume(back)
    cluster.network.run()
    assert not cluster.left_out()
    assert not cluster.of(Resynced)
    assert back.neighbors.boot == node.neighbors.boot
    assert_same(cluster.results(), run(network, x, y).results())


@settings(max_examples=20)
@given(st.integers(0, 2**16), st.floats(0, 0.5), st.sampled_from([None, "qsgd", "sign"]))
def test_all_nodes_stopped_at_once_go_on(
    tmp_path_factory: pytest.TempPathFactory, seed: int, at: float, quantizer: str | None
) -> None:
    folder = tmp_path_factory.mktemp("c")
    network, (x, y) = config(4, "ring", quantizer=quantizer, features=12), stream(4, ROUNDS)
    cluster = Cluster(network, SLOW, seed)
    cluster.feed(x, y)
    cluster.network.run(at)
    for node in [cluster.stop(id) for id in network.ids]:
        checkpoint.save(folder / node.role.id, node, clean=True)
    cluster.network.run(at + 60)
    for id in network.ids:
        cluster.resume(checkpoint.restore(folder / id, network.role(id), 7, at + 60))
    cluster.network.run()
    assert_same(cluster.results(), run(network, x, y).results())
    cluster.check_copies()


@pytest.mark.parametrize("clean", [True, False])
def test_a_node_alone_by_timer(path: Path, clean: bool) -> None:
    x, y = stream(1, 40)

    def play(stop: Callable[[int], bool]) -> Protocol:
        node = Protocol(config(1, timing=TIMER).role("a"), 1, 0.0)
        for t in range(40):
            node.observe(x[t, 0], y[t, 0], t / 4)
            node.wake(t / 4)
            if stop(t):
                node = resumed(path, node, t / 4, clean)
        return node

    straight, broken = play(lambda t: False), play(lambda t: t % 8 == 4)  # with a tick, from which the next one counts
    assert broken.round == straight.round == 9
    for one, other in zip(broken.learning.state[:3], straight.learning.state[:3], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("graph", ["path", "ring", "star"])
def test_after_a_crash_an_older_checkpoint_leads_back(path: Path, graph: str) -> None:
    cluster, (x, y) = Cluster(config(4, graph), SLOW), stream(4, 60)
    cluster.feed(x, y)
    cluster.network.run(0.3)
    checkpoint.save(path, cluster.nodes["b"], clean=False)
    saved = cluster.nodes["b"].round
    cluster.network.run(0.8)
    lost = cluster.stop("b")
    assert lost.round > saved + 2
    back = checkpoint.restore(path, lost.role, 7, 0.8)
    assert (back.round, back.neighbors.boot) == (saved, 7)
    cluster.resume(back)
    cluster.network.run()
    assert cluster.states() == {LinkState.SYNCED}
    assert not cluster.left_out()
    assert len({node.round for node in cluster.nodes.values()}) == 1
    cluster.check_copies()


def test_everything_comes_back(path: Path, node: Protocol) -> None:
    back = resumed(path, node, 5.0)
    assert (back.round, back.neighbors.boot, back.ended) == (node.round, node.neighbors.boot, node.ended)
    assert back.neighbors.recent == node.neighbors.recent
    assert [y is None for _, y in back.waiting] == [y is None for _, y in node.waiting]
    for (one, _), (other, _) in zip(back.waiting, node.waiting, strict=True):
        np.testing.assert_array_equal(one, other)
    for peer, link in back.links.items():
        was = node.links[peer]
        assert (link.state, link.unsure, link.reachable) == (LinkState.CONNECTING, True, False)
        assert (link.boot, link.round, link.adrift, link.doubted) == (was.boot, was.round, was.adrift, was.doubted)
        assert link.inbox == was.inbox
        np.testing.assert_array_equal(link.copy, was.copy)
        assert np.shares_memory(link.copy, back.neighbors.copies)
    for one, other in zip(back.learning.state[:3], node.learning.state[:3], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_boot_is_taken_up_once(path: Path, node: Protocol) -> None:
    last = node.neighbors.boot
    checkpoint.save(path, node, clean=True)
    boots = []
    for boot in (last, last, last, 2**16 - 1, 2**16 - 1):
        back = checkpoint.restore(path, node.role, boot, 0.0)
        checkpoint.save(path, back, clean=False)  # as a node does before it says anything
        boots.append(back.neighbors.boot)
    assert boots == [last, last + 1, last, 2**16 - 1, 0]  # no two in a row, though they were told to take the same


def test_under_another_boot_no_message_of_the_last_is_sent(path: Path, node: Protocol) -> None:
    assert not resumed(path, node, 0.0, clean=False).neighbors.recent


def test_links_follow_the_networks_file(path: Path, node: Protocol) -> None:
    checkpoint.save(path, node, clean=True)
    changed = replace(node.role, neighbors={"d": 0.25, "c": 0.25})
    back = checkpoint.restore(path, changed, 7, 0.0)
    assert list(back.links) == ["d", "c"]
    assert back.links["d"].boot is None
    np.testing.assert_array_equal(back.links["c"].copy, node.links["c"].copy)


class Twice(NamedTuple):
    total: Array
    nested: tuple[Array, tuple[()]]


@dataclass(frozen=True)
class Remembering:
    """A rule whose memory is nested."""

    name: ClassVar[str] = "remembering"
    has_prior: ClassVar[bool] = False

    def init(self, theta: Array, spectrum: Array | None = None) -> Any:
        return Twice(theta * 0, (theta * 0 + 1, ()))

    def update(self, theta: Array, memory: Any, gradient: Array, z: Array, curvature: Array) -> Any:
        return theta - 0.1 * gradient, Twice(memory.total + gradient, (memory.nested[0] * 2, ()))


def test_a_learners_memory_is_kept(path: Path, node: Protocol) -> None:
    alone = config(1, learner=Remembering()).role("a")
    one = Protocol(alone, 1, 0.0)
    for _ in range(3):
        one.observe([1.0, -1.0], 1, 0.0)
    memory, back = one.learning.state.memory, resumed(path, one, 0.0).learning.state.memory
    assert isinstance(memory, Twice)
    assert isinstance(back, Twice)
    np.testing.assert_array_equal(back.total, memory.total)
    np.testing.assert_array_equal(back.nested[0], np.full_like(memory.total, 8))
    checkpoint.save(path, node, clean=True)
    other = replace(node.role, method=replace(node.role.method, learner=Remembering()))
    with pytest.raises(InputError, match=r"does not fit .*memory_0.*was it another learner's\? bring that back, or"):
        checkpoint.restore(path, other, 7, 0.0)


def test_the_file(path: Path, node: Protocol) -> None:
    checkpoint.save(path, node, clean=True)
    with np.load(path, allow_pickle=False) as file:
        assert {"header", "theta", "hidden", "log_weights", "copies", "x", "y"} == set(file.files)
    assert (header(path)["omkl_checkpoint"], header(path)["id"], header(path)["clean"]) == (2, "b", True)
    assert header(path)["contract"] == node.role.contract()
    checkpoint.restore(path, node.role, 7, 0.0)
    assert header(path)["clean"] is True  # it is the node that uses it up, when it begins to speak
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    first = path.read_bytes()
    checkpoint.save(path, node, clean=False)
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, f"{path.name}.last"]
    assert path.with_name("b.npz.last").read_bytes() == first != path.read_bytes()


def test_a_diverged_node_keeps_its_last_good_one(path: Path, node: Protocol) -> None:
    node.diverged = True
    with pytest.raises(InputError, match=r"the model diverged at round .*; it would replace a good one in .*; lower"):
        checkpoint.save(path, node, clean=True)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04"])
def test_what_is_no_checkpoint_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(
        InputError, match=r"b.npz is not a whole checkpoint \(.*\); .*last is not there; .*start anew: omkl"
    ):
        checkpoint.restore(path, role(), 7, 0.0)
    assert path.read_bytes() == content


def test_other_files_are_refused(path: Path, node: Protocol) -> None:
    node.learning.model().save(path)
    with pytest.raises(InputError, match=r"is not a whole checkpoint .its digest is wrong"):
        checkpoint.restore(path, role(), 7, 0.0)
    path.write_bytes(checkpoint.seal(path.read_bytes()))
    with pytest.raises(InputError, match=r"is not a whole checkpoint .it is something else"):
        checkpoint.restore(path, role(), 7, 0.0)


def test_where_there_is_no_file_a_node_begins_anew(path: Path) -> None:
    fresh = checkpoint.restore(path, role(), 7, 0.0)
    assert (fresh.neighbors.boot, fresh.round, fresh.restored) == (7, 0, False)


def edited(path: Path, **changes: Any) -> None:
    with np.load(path) as file:
        arrays = dict(file)
    head = json.loads(arrays.pop("header").tobytes()) | changes
    _write(path, header=np.frombuffer(json.dumps(head).encode(), dtype=np.uint8), **arrays)


def _write(path: Path, **arrays: Any) -> None:
    content = io.BytesIO()
    np.savez(content, **arrays)
    path.write_bytes(checkpoint.seal(content.getvalue()))


def test_another_format_network_or_id_is_refused(path: Path, node: Protocol) -> None:
    checkpoint.save(path, node, clean=True)
    with pytest.raises(InputError, match=r"is of node 'b'; this is 'c'; give each a file of its own"):
        checkpoint.restore(path, config(3).role("c"), 7, 0.0)
    finer = config(3, quantizer="sign").role("b")
    with pytest.raises(InputError, match=r"another network: quantizer here is sign, there nearest step=2.5 block"):
        checkpoint.restore(path, finer, 7, 0.0)
    assert header(path)["clean"] is True  # a refused one is not used up
    edited(path, omkl_checkpoint=1)
    with pytest.raises(InputError, match="has checkpoint format 1; this version reads 2; use the omkl it is of"):
        checkpoint.restore(path, node.role, 7, 0.0)
    edited(path, omkl_checkpoint=2, links=3)
    with pytest.raises(InputError, match="does not fit"):
        checkpoint.restore(path, node.role, 7, 0.0)


def test_arrays_of_another_shape_are_refused(path: Path, node: Protocol) -> None:
    checkpoint.save(path, node, clean=True)
    with np.load(path) as file:
        arrays = dict(file) | {"theta": np.zeros((2, 1, 8), dtype=np.float32)}
    _write(path, **arrays)
    with pytest.raises(InputError, match=r"does not fit \(arrays .*where.* are due\)"):
        checkpoint.restore(path, node.role, 7, 0.0)


def test_a_node_that_returns_too_late_comes_back_in_step(path: Path) -> None:
    cluster, (x, y) = Cluster(config(3), SLOW), stream(3, 200)
    cluster.feed(x, y)
    cluster.network.run(0.3)
    node = cluster.stop("c")
    checkpoint.save(path, node, clean=True)
    cluster.network.run(6.0)
    cluster.resume(checkpoint.restore(path, node.role, 7, 6.0))
    cluster.network.run()
    assert cluster.left_out() == ["b-c"]
    assert [event.after for _, event in cluster.of(Moved)][-1] is LinkState.SYNCED
    cluster.check_copies()


def test_no_pickle(path: Path, node: Protocol) -> None:
    checkpoint.save(path, node, clean=True)
    with zipfile.ZipFile(path) as file:
        assert all(b"|O" not in file.read(name)[:128] for name in file.namelist())
