"""A member that lies about its round: how far it moves others, and how they get together again without it."""

import numpy as np
import pytest

from omkl import wire
from omkl.node.leaps import MOST_SKIPPED
from omkl.node.links import LinkState
from omkl.node.transports.memory import Conditions
from tests.node_cluster import LOCKSTEP, Cluster, config
from tests.test_node_wiped import let_pass

DEADLINE = LOCKSTEP.deadline
ABSURD = MOST_SKIPPED - 1


def forge(cluster: Cluster, liar: str, victim: str, round: int = ABSURD) -> None:  # noqa: A002
    """Let a member, of which no process runs, say a round to a neighbor, and leave."""
    network, node = cluster.network, cluster.nodes[victim]
    hidden = np.zeros(node.learning.shape, dtype=np.float32)
    cluster.books.said[liar, 9, round] = hidden.tobytes()
    network._do(victim, lambda node, now: node.came(liar, now))
    for data in (wire.write_hello(9, round, node.neighbors.contract), wire.write_snapshot(9, round, hidden)):
        network._do(victim, lambda node, now, data=data: node.receive(liar, data, now))
    assert node.links[liar].state is LinkState.SYNCED
    network.run(network.now + 0.5)
    network._do(victim, lambda node, now: node.gone(liar, now))


@pytest.mark.parametrize("nodes", [2, 4])
def test_one_forged_round_moves_nobody(nodes: int) -> None:
    cluster = Cluster(config(nodes), Conditions(delay=0.01))
    let_pass(cluster, 20.0)
    *_, victim, liar = cluster.config.ids
    cluster.stop(liar)
    forge(cluster, liar, victim)
    let_pass(cluster, 20.0)
    assert all(node.round < 1000 for node in cluster.nodes.values())


def test_who_loses_its_disk_after_a_lie_is_in_step_again() -> None:
    cluster = Cluster(config(4), Conditions(delay=0.01))
    let_pass(cluster, 20.0)
    cluster.stop("d")
    forge(cluster, "d", "c")
    let_pass(cluster, 10.0)
    cluster.stop("b")
    let_pass(cluster, 2 * DEADLINE)
    cluster.join("b", 7)
    cluster.join("d", 8)
    let_pass(cluster, 15 * DEADLINE)
    calm = len(cluster.left_out())
    let_pass(cluster, 5 * DEADLINE)
    cluster.network.run(cluster.network.now + DEADLINE)
    assert cluster.states() == {LinkState.SYNCED}
    assert len({node.round for node in cluster.nodes.values()}) == 1
    assert len(cluster.left_out()) == calm
    cluster.check_copies()
