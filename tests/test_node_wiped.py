"""Nodes that lost their disk and whose neighbors reach them late: what was kept of them is still good then."""

import time
from pathlib import Path

import numpy as np
import pytest

from omkl import wire
from omkl.node.config import load
from omkl.node.events import Adopted, Begun, Recovered
from omkl.node.links import Kept, LinkState
from omkl.node.node import Node
from omkl.node.persistence import checkpoint
from omkl.node.persistence.saver import saved
from omkl.node.protocol import Protocol
from omkl.node.settings import Checkpoint, Timing
from omkl.node.start import Start
from omkl.node.transports.memory import Conditions
from tests.node_cluster import LOCKSTEP, TIMER, Cluster, config, stream
from tests.node_disk import MemoryDisk
from tests.node_processes import samples, write_network

DELAY = Conditions(delay=0.01)
EACH = 0.25  # seconds between two samples of a node


def let_pass(cluster: Cluster, seconds: float, seed: int = 0) -> None:
    """Give each node a sample now and then."""
    steps = round(seconds / EACH)
    x, y = stream(len(cluster.config.ids), steps, seed)
    for t in range(steps):
        for j, id in enumerate(cluster.config.ids):
            if id in cluster.nodes:
                cluster.network.observe(id, x[t, j], y[t, j])
        cluster.network.run(cluster.network.now + EACH)


def apart(one: Protocol, theta: np.ndarray) -> float:
    """Return how far a model is from another, as a part of it."""
    return float(np.linalg.norm(one.learning.state.theta - theta) / np.linalg.norm(theta))


@pytest.mark.parametrize("timing", [LOCKSTEP, TIMER], ids=["lockstep", "timer"])
@pytest.mark.parametrize("late", [2.0, 6.0])  # deadlines
@pytest.mark.parametrize("id", ["a", "b"])
def test_a_neighbor_that_comes_late_gives_back_what_it_kept(id: str, late: float, timing: Timing) -> None:
    cluster = Cluster(config(3, timing=timing), DELAY)
    let_pass(cluster, 100.0)
    lost = cluster.stop(id)
    let_pass(cluster, 4.0, seed=1)
    cluster.network._cut |= {frozenset((id, peer)) for peer in lost.links}
    cluster.join(id, 7)
    let_pass(cluster, late * timing.deadline, seed=2)
    back = cluster.nodes[id]
    assert back.round > 2
    assert not cluster.of(Recovered)
    for peer in lost.links:
        cluster.network.mend(id, peer)
    cluster.network.run(cluster.network.now + 0.2)
    assert [whose for whose, _ in cluster.of(Recovered)] == [id]
    assert apart(back, lost.learning.state.theta) < 0.4


@pytest.mark.parametrize("away", [0.0, 100.0, 1000.0])
def test_models_of_before_and_since_count_by_their_rounds(away: float) -> None:
    start = Start(np.zeros(2, np.float32), 1)
    start.first, start.rounds = 50, round(away)
    assert start.share(150, 1) == 100 / (100 + away)
    start.returned = {"b": Kept(1, 150, np.ones(2, np.float32))}
    assert bool(list(start.claims(["b"]))) == (away < 100)  # later the node has learned more itself
    assert not list(start.claims([]))


@pytest.mark.parametrize("timing", [LOCKSTEP, TIMER], ids=["lockstep", "timer"])
def test_one_that_ends_before_it_is_answered_goes_on_asking(timing: Timing) -> None:
    """What it has learned meanwhile is in its checkpoint, and counts beside what comes back then."""
    cluster, file, disk = Cluster(config(3, timing=timing), DELAY), Path("a.npz"), MemoryDisk()
    let_pass(cluster, 100.0)
    lost = cluster.stop("a")
    cluster.network._cut.add(frozenset("ab"))
    for boot in (7, 8):  # with nothing, then from the checkpoint of a life that ended without b
        node = checkpoint.restore(file, lost.role, boot, cluster.network.now, disk)
        cluster.add(node)
        let_pass(cluster, 2 * timing.deadline, seed=boot)
        checkpoint.save(file, cluster.stop("a"), clean=False, disk=disk)
    alone, rounds = node.learning.state.theta, node.round
    back = checkpoint.restore(file, lost.role, 9, cluster.network.now, disk)
    assert back.neighbors.start is not None
    assert back.neighbors.start.sought == ((7, 8), 0, rounds, False)
    cluster.add(back)
    kept = cluster.nodes["b"].links["a"].held
    assert kept is not None
    cluster.network.mend("a", "b")
    cluster.network.run(cluster.network.now + 0.2)
    back.recovery.begin(cluster.network.now)  # as at its first round
    share = kept.round / (kept.round + rounds)
    np.testing.assert_allclose(back.learning.state.theta, alone + share * (kept.hidden - alone), atol=1e-5)
    assert back.neighbors.start is None


@pytest.mark.parametrize(("sought", "seeks"), [(True, True), (False, False)])
def test_what_is_exact_is_not_asked_for_unless_more_was_lost(tmp_path: Path, sought: bool, seeks: bool) -> None:
    """A file that was written with every observation has all but what was lost before it."""
    role, settings = config(2).role("a"), Checkpoint(folder=tmp_path, every="observation")
    for boot in (7, 8):
        with saved(role, settings, boot, lambda _: None) as kept:
            kept.begin(0.0)
            if not sought:
                kept.protocol.neighbors.start = None  # all have answered
                assert kept.settle()
    with saved(role, settings, 9, lambda _: None) as kept:
        assert kept.protocol.neighbors.start is not None
        assert kept.protocol.neighbors.start.seeks is seeks


def test_who_has_not_answered_is_told_of() -> None:
    cluster = Cluster(config(3), DELAY)
    let_pass(cluster, 10.0)
    cluster.stop("b")
    cluster.network._cut.add(frozenset("ab"))
    cluster.join("b", 7)
    let_pass(cluster, 2 * LOCKSTEP.deadline)
    node = cluster.nodes["b"]
    assert not cluster.of(Begun)  # it has its models back from c
    cluster.stop("b")
    cluster.network._cut.add(frozenset("bc"))
    cluster.join("b", 8)
    node = cluster.nodes["b"]
    assert node.awaited == ["a", "c"]
    let_pass(cluster, 2 * LOCKSTEP.deadline)
    assert [event.awaited for _, event in cluster.of(Begun)] == [("a", "c")]
    assert node.awaited == ["a", "c"]
    cluster.network.mend("b", "a")
    cluster.network.run(cluster.network.now + 0.2)
    assert node.awaited == []


@pytest.mark.parametrize("late", [0.0, 2.0])  # deadlines
@pytest.mark.parametrize("timing", [LOCKSTEP, TIMER], ids=["lockstep", "timer"])
def test_a_new_node_begins_with_the_models_of_its_neighbors(timing: Timing, late: float) -> None:
    cluster = Cluster(config(3, timing=timing), DELAY)
    cluster.network.leave("c")
    let_pass(cluster, 100.0)
    cluster.network._cut.add(frozenset("bc"))
    cluster.join("c", 7)
    let_pass(cluster, late * timing.deadline, seed=1)
    cluster.network.mend("b", "c")
    cluster.network.observe("c", [0.1, 0.2], 1)
    cluster.network.run(cluster.network.now + timing.period + 0.1)
    assert [(id, event.peers) for id, event in cluster.of(Adopted)] == [("c", ("b",))]
    assert not cluster.of(Recovered)
    assert apart(cluster.nodes["c"], cluster.nodes["b"].learning.state.hidden) < 0.4
    let_pass(cluster, 2 * timing.deadline, seed=2)
    assert cluster.states() == {LinkState.SYNCED}


def test_models_that_cannot_be_added_up_are_not_begun_with() -> None:
    network = config(2)
    node = Protocol(network.role("a"), 1, 0.0)
    node.came("b", 0.0)
    node.receive("b", wire.write_hello(5, 9, node.neighbors.contract), 0.0)
    huge = np.full(node.learning.shape, 1e38, np.float32)
    huge[0, 0, ::2] = -1e38  # they are finite, and so is their sum
    node.receive("b", wire.write_snapshot(5, 9, huge), 0.0)
    node.observe([1.0, 2.0], None, 0.0)
    assert node.diverged or np.isfinite(node.learning.state.theta).all()


def test_over_zenoh_a_wiped_node_is_itself_again(tmp_path: Path) -> None:
    """A neighbor tries the node again only after some seconds; by then it has gone on without it."""
    network = load(write_network(tmp_path, "abc", deadline=1.0, patience=0.2))
    told: list[object] = []
    rows = iter(samples(10_000))

    def feed(*nodes: Node, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not any(isinstance(event, Recovered) for event in told):
            for node in nodes:
                node.observe(*next(rows))
            time.sleep(0.05)

    with Node.join(network, "b") as b, Node.join(network, "c") as c:
        with Node.join(network, "a") as a:
            feed(a, b, c, seconds=3.0)
            a.wait(10.0)
            theta = a.protocol.learning.state.theta
        feed(b, c, seconds=5.0)
        with Node.join(network, "a", watch=[told.append]) as a:
            feed(a, b, c, seconds=12.0)
            assert [type(event) for event in told].count(Recovered) == 1
            assert apart(a.protocol, theta) < 0.5
