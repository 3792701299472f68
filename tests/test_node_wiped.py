"""Nodes that lost their disk and whose neighbors reach them late: what was kept of them is still good then."""

import time
from pathlib import Path

import numpy as np
import pytest

from omkl.node.config import load
from omkl.node.events import Recovered
from omkl.node.node import Node
from omkl.node.protocol import Protocol
from omkl.node.settings import Timing
from omkl.node.transports.memory import Conditions
from tests.node_cluster import LOCKSTEP, TIMER, Cluster, config, stream
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
