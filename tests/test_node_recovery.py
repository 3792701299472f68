"""Nodes that lose their disk, or come back with an old one: what neighbors give back, and what no boot says twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omkl import wire
from omkl.node.events import Dropped, Event, Recovered, Renewed, Resynced
from omkl.node.leaps import MOST_SKIPPED
from omkl.node.links import LinkState
from omkl.node.persistence import checkpoint
from omkl.node.protocol import Protocol
from omkl.node.settings import Timing
from omkl.node.transports.memory import Conditions
from omkl.quantizers import Message
from omkl.storage import leaves
from omkl.wire import Kind
from tests.node_cluster import LOCKSTEP, TIMER, Cluster, config, stream
from tests.node_disk import MemoryDisk

SLOW = Conditions(delay=0.01, jitter=0.02)
DEADLINE = LOCKSTEP.deadline
FILE = Path("b.npz")


def at_work(timing: Timing = LOCKSTEP, graph: str = "ring", rounds: int = 80, until: float = 0.5) -> Cluster:
    cluster = Cluster(config(4, graph, timing), SLOW)
    cluster.feed(*stream(4, rounds))
    cluster.network.run(until)
    return cluster


def check_end(cluster: Cluster) -> None:
    assert cluster.states() == {LinkState.SYNCED}
    assert len({node.round for node in cluster.nodes.values()}) == 1
    cluster.check_copies()


@pytest.mark.parametrize("away", [0.05, 0.3, 3 * DEADLINE])
@pytest.mark.parametrize("graph", ["path", "ring", "star"])
def test_a_node_without_its_disk_is_given_its_models_back(graph: str, away: float) -> None:
    cluster = at_work(graph=graph, rounds=200)
    lost = cluster.stop("b")
    cluster.network.run(0.5 + away)
    cluster.resume(Protocol(lost.role, 7, cluster.network.now))
    cluster.network.run(cluster.network.now + 0.2)
    ((id, event),) = cluster.of(Recovered)
    assert (id, event.round) == ("b", lost.round)  # the last message had time to arrive
    known = cluster.invariants.said["b", lost.neighbors.boot, lost.round]
    assert known == lost.learning.state.hidden.tobytes()
    assert cluster.invariants.said["b", 7, lost.round] == known
    cluster.network.run()
    check_end(cluster)


def test_what_comes_back_is_the_model_but_for_a_quantization_error() -> None:
    cluster = at_work()
    lost = cluster.stop("b")
    back = Protocol(lost.role, 7, 0.5)
    cluster.add(back)
    cluster.network.run(0.5 + DEADLINE / 2)  # it has no sample, and no reason for a round before its patience is over
    assert back.round >= lost.round
    (event,) = [event for _, event in cluster.of(Recovered)]
    theta, hidden = lost.learning.state.theta, lost.learning.state.hidden
    assert 0 < np.linalg.norm(hidden - theta) < np.linalg.norm(theta)
    assert back.neighbors.start is None
    assert event.round == lost.round


def test_by_timer_what_was_learned_since_is_added() -> None:
    cluster = at_work(TIMER, rounds=400, until=9.5)
    lost = cluster.stop("b")
    back, alone = (Protocol(lost.role, boot, 9.5) for boot in (7, 8))
    cluster.add(back)
    x, y = stream(1, 5, seed=9)
    for t in range(5):
        cluster.network.observe("b", x[t, 0], y[t, 0])
        alone.observe(x[t, 0], y[t, 0], 9.5)
    cluster.network.run(10.4)
    assert not cluster.of(Recovered)
    np.testing.assert_array_equal(back.learning.state.theta, alone.learning.state.theta)
    assert back.recovery.begin(10.4)  # as at its first tick
    back._record()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(back.learning.state.theta, lost.learning.state.hidden + alone.learning.state.theta)
    assert back.round == lost.round
    cluster.network.run(30.0)
    assert [(id, event.round) for id, event in cluster.of(Recovered)] == [("b", lost.round)]
    assert cluster.states() == {LinkState.SYNCED}


def test_a_crash_loses_only_what_a_checkpoint_lacks() -> None:
    """Kernel weights are those of the checkpoint, models those that came back."""
    cluster, disk = at_work(until=0.3), MemoryDisk()
    node = cluster.nodes["b"]
    checkpoint.save(FILE, node, clean=False, disk=disk)
    saved, weights = node.round, node.learning.state.log_weights
    cluster.network.run(0.6)
    lost = cluster.stop("b")
    cluster.network.run(0.7)  # its last messages arrive
    back = checkpoint.restore(FILE, lost.role, 7, 0.7, disk)
    back.waiting.clear()
    cluster.add(back)
    cluster.network.run(0.9 + LOCKSTEP.patience)
    assert [(id, event.round) for id, event in cluster.of(Recovered)] == [("b", lost.round)]
    assert saved + 2 < lost.round
    np.testing.assert_array_equal(back.learning.state.log_weights, weights)


def test_a_node_that_lacks_nothing_is_given_nothing() -> None:
    """All that was acknowledged is in the checkpoint: that is exact, and what neighbors have is not."""
    cluster, disk = at_work(until=0.3), MemoryDisk()
    checkpoint.save(FILE, cluster.nodes["b"], clean=False, disk=disk)
    cluster.network.run(0.6)
    back = checkpoint.restore(FILE, cluster.stop("b").role, 7, 0.6, disk)
    assert back.neighbors.start is not None
    back.neighbors.start.seeks = False
    cluster.resume(back)
    cluster.network.run()
    assert not cluster.of(Recovered)
    check_end(cluster)


@pytest.mark.parametrize("timing", [LOCKSTEP, TIMER])
@pytest.mark.parametrize("seeks", [True, False])  # False: its count says that the file has all
def test_a_copy_of_an_old_checkpoint_takes_another_boot(timing: Timing, seeks: bool) -> None:
    first, then, last = (0.3, 0.6, None) if timing is LOCKSTEP else (5.5, 15.5, 40.0)
    cluster, disk = at_work(timing, until=first), MemoryDisk()
    node = cluster.stop("b")
    checkpoint.save(FILE, node, clean=True, disk=disk)
    cluster.resume(checkpoint.restore(FILE, node.role, 7, first, disk))
    cluster.network.run(then)
    gone = cluster.stop("b")
    cluster.network.run(then + 0.1)  # its last messages arrive
    assert gone.neighbors.boot == node.neighbors.boot
    assert gone.round > node.round + 2
    back = checkpoint.restore(FILE, node.role, 9, then, disk)  # the file of before, still marked clean
    assert back.neighbors.start is not None
    back.neighbors.start.seeks = seeks
    cluster.resume(back)
    cluster.network.run(*([] if last is None else [last]))
    renewed = [(id, event) for id, event in cluster.of(Renewed)]
    assert [(id, event.boot) for id, event in renewed] == [("b", 9)]
    assert f"knows round {gone.round} of boot 101, the checkpoint round {node.round} of" in renewed[0][1].why
    assert [(id, event.round) for id, event in cluster.of(Recovered)] == [("b", gone.round)]
    if timing is LOCKSTEP:
        check_end(cluster)
    assert cluster.states() == {LinkState.SYNCED}


def test_a_boot_that_a_neighbor_may_know_more_of_is_not_used() -> None:
    """The neighbor that would have told is out of reach."""
    cluster, disk = at_work(graph="path", until=0.3), MemoryDisk()
    node = cluster.stop("b")
    checkpoint.save(FILE, node, clean=True, disk=disk)
    cluster.stop("a")
    cluster.resume(checkpoint.restore(FILE, node.role, 9, 0.3, disk))
    cluster.network.run(3 * DEADLINE)
    assert [(id, event) for id, event in cluster.of(Renewed)] == [
        ("b", Renewed(9, "a may know more of it than the checkpoint"))
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**16), st.sampled_from("abcd"), st.sampled_from(["nothing", "old", "crash", "clean"]),
    st.floats(0.05, 0.5), st.floats(0.05, 0.5), st.floats(0.1, 6.0), st.booleans(), st.sampled_from([0.0, 0.1]),
)  # fmt: skip
def test_whatever_comes_back_no_boot_says_two_things_and_all_links_are_in_step(
    seed: int, id: str, what: str, at: float, later: float, away: float, ordered: bool, loss: float
) -> None:  # fmt: skip
    disk = MemoryDisk()
    cluster = Cluster(config(4, "ring"), Conditions(delay=0.01, jitter=0.03, loss=loss, ordered=ordered), seed)
    cluster.feed(*stream(4, 60))
    cluster.network.run(at)
    node = cluster.stop(id)
    checkpoint.save(FILE, node, clean=what != "crash", disk=disk)
    cluster.network.run(at + 0.1)
    back = checkpoint.restore(FILE, node.role, 7, at + 0.1, disk)
    cluster.resume(back)
    cluster.network.run(at + 0.1 + later)
    gone = cluster.stop(id)
    if what == "clean":
        checkpoint.save(FILE, gone, clean=True, disk=disk)
    cluster.network.run(at + 0.1 + later + away)
    now = cluster.network.now
    fresh = Protocol(gone.role, 9, now)
    cluster.resume(fresh if what == "nothing" else checkpoint.restore(FILE, gone.role, 9, now, disk))
    cluster.network.run()
    assert cluster.states() == {LinkState.SYNCED}
    cluster.check_copies()


class Pair:
    """Node a, whose neighbor b is played by hand, and which has followed b to a round."""

    def __init__(self, peers: int = 2, graph: str = "path") -> None:
        network = config(peers, graph)
        self.node = Protocol(network.role("a"), 1, 0.0)
        self.contract = self.node.neighbors.contract
        self.link = self.node.links["b"]

    def take(self, data: bytes, peer: str = "b") -> list[Event]:
        return self.node.receive(peer, data, 0.0)

    def meet(self, round: int = 7, boot: int = 5) -> None:  # noqa: A002
        self.node.came("b", 0.0)
        self.take(wire.write_hello(boot, round, self.contract))
        self.take(wire.write_snapshot(boot, round, np.ones_like(self.link.copy)))
        self.node.outgoing()

    def answers(self, boot: int, round: int, have: Any = None) -> list[tuple[Kind, int, int]]:  # noqa: A002
        self.node.outgoing()
        self.take(wire.write_ask(boot, round, have))
        said = [wire.peek(send.data) for send in self.node.outgoing()]
        return [(kind, boot, at) for kind, boot, at in said if kind is not Kind.ASK]


def known(pair: Pair, boot: int, round: int) -> wire.Copy | None:  # noqa: A002
    """Return what the node tells one that asks who it is that it knows of it."""
    pair.node.outgoing()
    pair.take(wire.write_ask(boot, round, None))
    (hello,) = [send.data for send in pair.node.outgoing() if wire.peek(send.data).kind is Kind.HELLO]
    return wire.read_hello(hello)[1]


def test_who_shows_an_earlier_round_is_told() -> None:
    pair = Pair()
    pair.meet()
    assert pair.answers(5, 7) == [(Kind.HELLO, 1, 0)]
    assert pair.answers(5, 6) == [(Kind.KEPT, 5, 7), (Kind.HELLO, 1, 0)]
    assert known(pair, 5, 6) == (5, 7)
    pair.link.doubted = True
    assert pair.answers(5, 6) == [(Kind.HELLO, 1, 0)]
    assert known(pair, 5, 6) == (5, 7)


def test_a_message_after_a_gap_is_known_too() -> None:
    pair = Pair()
    pair.meet()
    zeros = np.zeros_like(pair.link.copy)
    message = Message(zeros.astype(np.int16), zeros[..., :1].copy())
    pair.take(wire.write_gossip(pair.node.neighbors.codec, 5, 9, message, 0))
    assert (pair.link.have, pair.link.last) == (7, 9)
    assert known(pair, 5, 8) == (5, 9)


def test_of_two_boots_the_later_is_told() -> None:
    pair = Pair()
    assert known(pair, 5, 0) is None
    pair.meet()
    assert known(pair, 6, 0) == (5, 7)
    pair.take(wire.write_hello(6, 0, pair.contract))
    assert known(pair, 5, 3) == (6, 0)  # a file of boot 5 that was put back
    assert known(pair, 6, 0) == (5, 7)  # one that was drawn: what it has lost


@pytest.mark.parametrize(("told", "renews"), [((5, 7), False), ((5, 8), True), ((6, 0), True), (None, False)])
def test_a_hello_that_knows_more_than_the_file(told: wire.Copy | None, renews: bool) -> None:
    node, disk = at_work(LOCKSTEP, until=0.3).stop("b"), MemoryDisk()
    node.neighbors.boot, node.learning.round = 5, 7
    checkpoint.save(FILE, node, clean=True, disk=disk)
    back = checkpoint.restore(FILE, node.role, 9, 0.0, disk)
    assert back.neighbors.boot == 5
    back.came("a", 0.0)
    events = back.receive("a", wire.write_hello(3, 7, back.neighbors.contract, told), 0.0)
    assert back.neighbors.boot == (9 if renews else 5)
    assert len([event for event in events if isinstance(event, Renewed)]) == renews


def test_who_shows_another_boot_is_given_the_last_until_it_is_at_work() -> None:
    pair = Pair()
    pair.meet()
    assert pair.answers(6, 0) == [(Kind.KEPT, 5, 7), (Kind.HELLO, 1, 0)]
    pair.take(wire.write_hello(6, 0, pair.contract))
    assert pair.link.round == 0
    assert pair.answers(6, 0, (1, 0)) == [(Kind.KEPT, 5, 7), (Kind.HELLO, 1, 0)]
    assert pair.answers(8, 0) == [(Kind.KEPT, 5, 7), (Kind.HELLO, 1, 0)]  # it has started once more
    pair.take(wire.write_hello(8, 0, pair.contract))
    assert pair.answers(8, 0) == [(Kind.KEPT, 5, 7), (Kind.HELLO, 1, 0)]
    zeros = np.zeros_like(pair.link.copy)
    message = Message(zeros.astype(np.int16), zeros[..., :1].copy())
    pair.take(wire.write_gossip(pair.node.neighbors.codec, 8, 1, message, wire.digest(zeros)))
    for _ in range(2):
        pair.node.observe([1.0, 2.0], 1, 0.0)
    assert pair.link.round == 1
    assert pair.answers(8, 1) == [(Kind.HELLO, 1, pair.node.round)]
    assert pair.answers(9, 0) == [(Kind.KEPT, 8, 1), (Kind.HELLO, 1, pair.node.round)]


def test_nothing_is_given_back_where_nothing_is_known() -> None:
    pair = Pair()
    assert pair.answers(6, 0) == [(Kind.HELLO, 1, 0)]
    pair.node.came("b", 0.0)
    pair.take(wire.write_hello(5, 0, pair.contract))
    assert pair.answers(6, 0) == [(Kind.HELLO, 1, 0)]  # zeros
    pair.meet()
    pair.link.doubted = True
    assert pair.answers(6, 0) == [(Kind.HELLO, 1, 0)]
    pair.link.doubted = False
    pair.take(wire.write_hello(5, 7, "another\n"))
    assert pair.answers(6, 0) == [(Kind.HELLO, 1, 0)]


def recovered(*claims: tuple[str, int, int, float], silent: str = "") -> tuple[Protocol, list[Event]]:
    """Return a node in the middle of a star that has taken its first round after its neighbors gave these back."""
    network = config(4, "star")
    (hub,) = [id for id in network.ids if len(network.neighbors(id)) == 3]
    node = Protocol(network.role(hub), 1, 0.0)
    peers = iter(node.links)
    names = dict(zip("xyz", peers, strict=True))
    for peer in node.links:
        node.came(peer, 0.0)
    for name, boot, at, value in claims:
        node.receive(names[name], wire.write_kept(boot, at, np.full(node.learning.shape, value, np.float32)), 0.0)
    for name, peer in names.items():
        if name not in silent:
            node.receive(peer, wire.write_hello(5, 0, node.neighbors.contract), 0.0)
    events = node.observe([1.0, 2.0], 1, 0.0)
    events += node.wake(2 * DEADLINE) if silent else []
    return node, events


def test_the_latest_is_taken() -> None:
    node, events = recovered(("x", 2, 30, 1.0), ("y", 3, 40, 2.0), ("z", 3, 40, 2.0))
    assert [event.round for event in events if isinstance(event, Recovered)] == [40]
    assert node.round == 40  # where the others are waited for
    for part in node.learning.state[:2]:
        np.testing.assert_array_equal(part, np.full(node.learning.shape, 2.0))


def test_where_two_differ_neither_is_taken() -> None:
    node, events = recovered(("x", 2, 30, 1.0), ("y", 3, 40, 2.0), ("z", 3, 40, 2.5))
    assert [event.round for event in events if isinstance(event, Recovered)] == [30]
    refused = [event for event in events if isinstance(event, Dropped) and "not what others have kept" in event.why]
    assert len(refused) == 2
    assert node.round == 30


@pytest.mark.parametrize("at", [MOST_SKIPPED, 2**32 - 1])
def test_of_a_round_that_nobody_skips_to_the_models_are_taken(at: int) -> None:
    node, events = recovered(("x", 2, at, 1.0))
    assert [event.round for event in events if isinstance(event, Recovered)] == [at]
    assert node.round == 1
    assert node.learning.state.hidden.any()  # as of round 1: what its models were before


@pytest.mark.parametrize("at", [1, 2])
def test_rounds_that_lead_nowhere_are_not_taken(at: int) -> None:
    node, events = recovered(("x", 2, at, 1.0))
    assert not [event for event in events if isinstance(event, Recovered)]
    assert node.round == 1


def test_one_whose_contract_is_not_known_is_not_trusted() -> None:
    node, events = recovered(("x", 2, 30, 1.0), silent="x")
    assert not [event for event in events if isinstance(event, Recovered)]
    assert node.round == 1


def test_values_that_cannot_be_added_up_are_dropped() -> None:
    node, events = recovered(("x", 2, 30, 3e38))
    assert not [event for event in events if isinstance(event, Recovered)]
    assert not node.diverged


def test_after_its_first_round_a_node_takes_nothing_back() -> None:
    node, _ = recovered()
    peer = next(iter(node.links))
    before = node.learning.state
    (event,) = node.receive(peer, wire.write_kept(1, 99, np.ones(node.learning.shape, np.float32)), 0.0)
    assert event == Dropped(peer, "our round 99 of boot 1; it is not lacking")
    node.receive(peer, wire.write_ask(5, 1, (1, 99)), 0.0)
    assert node.neighbors.boot == 1
    for one, other in zip(leaves(node.learning.state), leaves(before), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("frame", ["kept", "ask"])
def test_another_boot_is_none_that_was_shown(frame: str) -> None:
    node = Protocol(config(2).role("b"), 1, 0.0)
    node.came("a", 0.0)
    ones = np.ones(node.learning.shape, np.float32)
    node.receive("a", wire.write_kept(2, 50, ones), 0.0)
    data = wire.write_kept(1, 9, ones) if frame == "kept" else wire.write_ask(5, 0, (1, 9))
    events = node.receive("a", data, 0.0)
    boot = 2 if frame == "kept" else 3  # by then what the neighbor has shown is the last alone
    assert [event for event in events if isinstance(event, Renewed)] == [
        Renewed(boot, "a knows round 9 of boot 1, the checkpoint round 0 of boot 1")
    ]
    node.receive("a", wire.write_ask(5, 0, (boot, 9)), 0.0)
    assert node.neighbors.boot == boot + 1
    assert all(wire.peek(send.data).boot == boot + 1 for send in node.outgoing()[-1:])


def test_a_whole_network_comes_back_though_one_has_lost_its_disk() -> None:
    cluster, disk = at_work(until=0.5), MemoryDisk()
    ids = cluster.config.ids
    gone = {id: cluster.stop(id) for id in ids}
    for id in ids:
        checkpoint.save(Path(id), gone[id], clean=True, disk=disk)
    for k, id in enumerate(ids):
        role = gone[id].role
        fresh = Protocol(role, 7, 0.5)
        cluster.resume(fresh if id == "b" else checkpoint.restore(Path(id), role, 20 + k, 0.5, disk))
    cluster.network.run()
    assert [(id, event.round) for id, event in cluster.of(Recovered)] == [("b", gone["b"].round)]
    assert not cluster.left_out()
    assert {event.peer for id, event in cluster.of(Resynced) if id != "b"} == {"b"}
    check_end(cluster)


def test_one_that_is_known_by_another_boot_does_not_take_up_its_own() -> None:
    disk, path = MemoryDisk(), Path("b.npz")
    node = Protocol(config(2).role("b"), 5, 0.0)
    checkpoint.save(path, node, clean=True, disk=disk)
    back = checkpoint.restore(path, node.role, 7, 0.0, disk)
    assert back.neighbors.boot == 5
    events = back.receive("a", wire.write_kept(6, 3, np.ones_like(back.learning.state.hidden)), 0.0)
    assert [type(event) for event in events] == [Renewed]  # boot 6 was after 5: this file is an old one
    assert back.neighbors.boot not in (5, 6)
