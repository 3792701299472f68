"""A member that lies about its round: how far it moves others, and how they get together again without it."""

import math
from functools import partial

import numpy as np
import pytest

from omkl import wire
from omkl.node.events import Event
from omkl.node.leaps import LEAP, MOST_SKIPPED, STAYS, Leaps
from omkl.node.links import LAST_ROUND, LinkState
from omkl.node.protocol import Protocol
from omkl.node.transports.memory import Conditions
from omkl.quantizers import Message
from tests.node_cluster import LOCKSTEP, Cluster, config
from tests.test_node_wiped import let_pass

DEADLINE = LOCKSTEP.deadline
ABSURD = MOST_SKIPPED - 1


def hear(node: Protocol, now: float, liar: str, data: bytes) -> list[Event]:
    return node.receive(liar, data, now)


def forge(cluster: Cluster, liar: str, victim: str, round: int = ABSURD) -> None:  # noqa: A002
    """Let a member, of which no process runs, say a round to a neighbor, and leave."""
    network, node = cluster.network, cluster.nodes[victim]
    hidden = np.zeros(node.learning.shape, dtype=np.float32)
    cluster.invariants.said[liar, 9, round] = hidden.tobytes()
    network._do(victim, lambda node, now: node.came(liar, now))
    for data in (wire.write_hello(9, round, node.neighbors.contract), wire.write_snapshot(9, round, hidden)):
        network._do(victim, partial(hear, liar=liar, data=data))
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


def test_rounds_take_time_once_somebody_is_known() -> None:
    leaps = Leaps(0.0, deadline=4.0)
    far = 50_000_000
    assert leaps.allow(0, far, 10.0)  # nobody is known yet
    assert leaps.allow(far, far + LEAP, 10.0)
    assert not leaps.allow(far, far + 1 + LEAP, 10.0)
    assert leaps.allow(far, far + 1 + LEAP, 10.1)
    assert not leaps.allow(0, MOST_SKIPPED, 1e9)
    assert leaps.allow(MOST_SKIPPED, MOST_SKIPPED + 5, 1e9)


def test_who_cannot_have_counted_so_far_goes_back_when_another_stays_behind() -> None:
    leaps, own = Leaps(0.0, deadline=4.0), 10 * LEAP
    assert leaps.allow(5, own, 0.0)
    assert leaps.back(own, [own, 7], 1.0) is None
    assert leaps.back(own, [own, own - 1], 2.0) is None  # it was about to skip
    assert leaps.back_at == math.inf
    assert leaps.back(own, [own, 7, 9], 3.0) is None
    assert leaps.back_at == 3.0 + STAYS * 4.0
    assert leaps.back(own, [own, 7, 9], leaps.back_at) == 9
    assert leaps.back(own, [0], 0.0) is None
    assert leaps.back(own, [0], 100.0) == 1  # at round 0 a hidden state is zeros
    assert leaps.back(own, [own, 7], 1e6) is None  # by then it may have counted to it
    assert leaps.doubts(MOST_SKIPPED + 1, 1e9)


def test_a_new_node_beside_a_liar_comes_back_to_the_others() -> None:
    cluster = Cluster(config(3), Conditions(delay=0.01))
    let_pass(cluster, 20.0)
    for id in "ba":
        cluster.stop(id)
    cluster.network._cut.add(frozenset("bc"))
    cluster.join("b", 7)
    cluster.nodes["b"].neighbors.skip(ABSURD, cluster.network.now)  # it was told so
    let_pass(cluster, 2 * DEADLINE)
    cluster.network.mend("b", "c")
    let_pass(cluster, 5 * DEADLINE)
    cluster.network.run(cluster.network.now + 1.0)
    assert abs(cluster.nodes["b"].round - cluster.nodes["c"].round) <= 1
    assert cluster.nodes["b"].round < 1000
    assert cluster.nodes["c"].behind == []


def test_a_neighbor_that_lags_is_told_of() -> None:
    cluster = Cluster(config(2), Conditions(delay=0.01))
    let_pass(cluster, 20.0)
    forged = cluster.nodes["a"]
    cluster.network.leave("b")
    forge(cluster, "b", "a", round=3)
    assert forged.behind == []  # gone, and so not in step
    cluster.network._do("a", lambda node, now: node.came("b", now))
    frame = wire.write_hello(9, 3, forged.neighbors.contract)
    cluster.network._do("a", lambda node, now: node.receive("b", frame, now))
    assert forged.behind == ["b"]


def test_messages_beyond_the_last_round_are_not_kept() -> None:
    node = Protocol(config(2).role("a"), 1, 0.0)
    node.came("b", 0.0)
    node.receive("b", wire.write_hello(5, LAST_ROUND, node.neighbors.contract), 0.0)
    node.receive("b", wire.write_snapshot(5, LAST_ROUND, np.zeros(node.learning.shape, np.float32)), 0.0)
    zeros = np.zeros(node.learning.shape, np.float32)
    message = Message(zeros.astype(np.int16), zeros[..., :1].copy())
    node.receive("b", wire.write_gossip(node.neighbors.codec, 5, 3, message, 0), 0.0)  # as if three rounds later
    node.receive("b", wire.write_ask(6, 0, None), 0.0)
    assert node.links["b"].last == LAST_ROUND
