"""A mixing rule of one's own: one class and its name, and simulator, nodes, files and torture know it."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import omkl
from omkl import Choco, Gossip, InputError, config, features, topology
from omkl.arrays import Array, namespace
from omkl.compiled import plan
from omkl.methods import Mixing, Neighbors, tables
from omkl.methods.mixing import MIXING
from omkl.node.persistence import checkpoint
from omkl.online import files
from omkl_lab.torture import run as torture
from omkl_lab.torture import shape
from tests import numpy_run
from tests.node_cluster import Cluster, run, stream
from tests.node_cluster import config as network
from tests.test_node_protocol import one_by_one


@dataclass(frozen=True, kw_only=True)
class Fading(Mixing):
    """A consensus step of gamma / sqrt(1 + k / halving) in round k."""

    halving: float = 100.0

    name: ClassVar[str] = "fading"

    def step_in(self, round_: Array | int) -> Array | float:
        if not isinstance(round_, int):
            xp = namespace(round_)
            round_ = xp.astype(round_, xp.float32)
        return self.step / (1 + round_ / self.halving) ** 0.5


HALF = Fading(gamma=0.5, halving=10)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MIXING, "fading", Fading)
    monkeypatch.setitem(files.KNOWN, "Fading", Fading)


def test_two_nodes_by_hand() -> None:
    """Weights 1/2, hidden states 1 and -1: pulls of gamma, half of it in round 3 * halving."""
    ids, weights = topology.build("path", 2).neighbors()
    links, hidden = Neighbors(ids, weights.astype(np.float32)), np.array([1, -1], np.float32).reshape(2, 1, 1, 1)
    for round_, due in ((0, 0.5), (30, 0.75), (150, 0.875)):
        theta, velocity = HALF.mix(hidden, (), hidden, links, round_)
        np.testing.assert_array_equal(theta[:, 0, 0, 0], [due, -due])
        assert theta.dtype == np.float32
        assert velocity == ()


@pytest.mark.parametrize("method", [Gossip, partial(Choco, fresh=True), partial(omkl.recommended, quantizer=None)])
def test_the_simulator_is_the_numpy_loop(method: Any) -> None:
    """Also with a pace and a reach, whose rounds of gossip are more than samples."""
    X, y = stream(8, 40)
    own = {} if isinstance(method, partial) and method.func is omkl.recommended else {"quantizer": None, "features": 6}
    method = method(mixing=HALF, **own).on(topology.build("path", 8))
    here = numpy_run.run(method, X, y, topology.build("path", 8), seed=3)
    there = omkl.simulate((X, y), "path", method=method, seed=3)
    np.testing.assert_allclose(there.loss[0], here.loss.mean(axis=1), atol=2e-4)
    still = omkl.simulate((X, y), "path", method=method.replace(mixing=Mixing(gamma=0.5)), seed=3)
    assert not np.allclose(still.theta, there.theta, atol=1e-6)


def test_nodes_compute_what_the_whole_network_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a stop between: the round is that of the checkpoint."""
    given, (x, y) = network(5, "ring", gamma=0.5, mixing=HALF), stream(5, 30)
    assert given.method.mixing == HALF
    cluster = Cluster(given)
    cluster.feed(x[:20], y[:20])
    cluster.network.run()
    for node in [cluster.stop(id) for id in given.ids]:
        checkpoint.save(tmp_path / node.role.id, node, clean=True)
    for id in given.ids:
        cluster.resume(checkpoint.restore(tmp_path / id, given.role(id), 7, cluster.network.now))
    cluster.feed(x[20:], y[20:])
    cluster.network.run()
    monkeypatch.setattr(features, "transform", one_by_one)
    whole = numpy_run.run(given.method, x, y, given.topology, given.seed)
    still = run(network(5, "ring", gamma=0.5), x, y)
    for j, (node, other) in enumerate(zip(cluster.nodes.values(), still.nodes.values(), strict=True)):
        for part in ("theta", "hidden"):
            np.testing.assert_array_equal(getattr(node.learning.state, part), getattr(whole.state, part)[j])
        assert not np.allclose(node.learning.state.theta, other.learning.state.theta, atol=1e-6)
    cluster.check_copies()


def test_a_file_and_a_record_hold_it() -> None:
    method: Any = config.method({"mixing": {"name": "fading", "gamma": 0.5, "halving": 10}})
    assert method == omkl.recommended(mixing=HALF)
    assert config.method(tables.as_table(method)) == method
    assert files.setting(files.plain(Gossip(mixing=HALF))) == Gossip(mixing=HALF)
    assert config.method({"mixing": "fading", "gamma": 0.5}) == omkl.recommended(mixing=Fading(gamma=0.5))


def test_auto_is_the_step_of_the_first_round() -> None:
    path = topology.build("path", 9)
    due = Gossip(gamma="auto").on(path).mixing.step
    assert Gossip(mixing=Fading(gamma="auto", halving=7)).on(path).mixing == Fading(gamma=due, halving=7)


def test_compiled_text_leaves_it_alone() -> None:
    assert plan.unknown_part(Gossip(mixing=Mixing())) is None
    assert plan.unknown_part(Gossip(mixing=Fading())) == "mixing fading"


def test_by_name() -> None:
    assert Gossip(mixing="fading", gamma=0.5) == Gossip(mixing=Fading(gamma=0.5))
    with pytest.raises(InputError, match="unknown mixing 'fadin'; did you mean 'fading'"):
        Gossip(mixing="fadin")
    with pytest.raises(InputError, match=r"mixing is 3; it must be a part of a method; pass Mixing\(...\)"):
        Gossip(mixing=3)


def test_torture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "Gossip", lambda gamma, **given: Gossip(mixing=Fading(gamma=gamma), **given))
    monkeypatch.setattr(shape, "_varied", lambda method, own, timing: method)  # which draws momenta
    assert [torture(seed, 60).violation for seed in range(4)] == [None] * 4
