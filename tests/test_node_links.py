"""Links: their states, what is asked and answered, and how copies come back in step after whatever happens."""

import itertools
import random
import re
from binascii import crc_hqx
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omkl import wire
from omkl.features import gaussian
from omkl.node.config import NetworkConfig
from omkl.node.events import Differs, Dropped, Event, Gossiped, Moved, Resynced
from omkl.node.links import MOST_AHEAD, REFUSED_DEADLINES, TRANSITIONS, WAITED_FOR, LinkState, Signal
from omkl.node.protocol import Protocol
from omkl.node.settings import Timing
from omkl.node.transports.memory import Conditions
from omkl.quantizers import Message
from omkl.wire import Kind
from tests.node_cluster import LOCKSTEP, TIMER, Cluster, config, run, stream

DEADLINE = LOCKSTEP.deadline
DELAY = Conditions(delay=0.01)
DOCS = Path(__file__).parent.parent / "docs" / "protocol.md"


class End:
    """Node a, whose neighbor b is played by hand."""

    def __init__(self) -> None:
        network = config(2)
        self.node = Protocol(network.role("a"), 1, 0.0)
        self.link = self.node.links["b"]
        self.contract = network.role("b").contract()
        self.now = 0.0
        self.events: list[Event] = []

    def take(self, data: bytes) -> None:
        self.events += self.node.receive("b", data, self.now)

    def came(self) -> None:
        self.events += self.node.came("b", self.now)

    def gone(self) -> None:
        self.events += self.node.gone("b", self.now)

    def hello(self, round: int, boot: int = 5, contract: str | None = None) -> None:  # noqa: A002
        self.take(wire.write_hello(boot, round, contract or self.contract))

    def gossip(self, round: int, boot: int = 5) -> None:  # noqa: A002
        """Send a message that does not move a copy of zeros."""
        zeros = np.zeros(self.node.learning.shape)
        message = Message(zeros.astype(np.int16), np.zeros((*zeros.shape[:2], 1), dtype=np.float32))
        self.take(wire.write_gossip(self.node.neighbors.codec, boot, round, message, wire.digest(self.link.copy)))

    def snapshot(self, round: int, boot: int = 5) -> None:  # noqa: A002
        self.take(wire.write_snapshot(boot, round, np.ones_like(self.link.copy)))

    def be_silent(self) -> None:
        """Let the node have two samples, of which it can take one, and let it wait for two deadlines."""
        for _ in range(2):
            self.events += self.node.observe([1.0, 2.0], 1, self.now)
        for _ in range(2):
            self.now += DEADLINE
            self.events += self.node.wake(self.now)

    def state(self) -> LinkState:
        return self.link.state

    def asked(self) -> list[tuple[int, int] | None]:
        """Return what the node has said to have, in every question since the last call."""
        frames = [send.data for send in self.node.outgoing()]
        return [wire.read_ask(data) for data in frames if wire.peek(data).kind is Kind.ASK]


def in_state(state: LinkState) -> End:
    end = End()
    if state is not LinkState.CONNECTING:
        end.came()
    if state is LinkState.REFUSED:
        end.hello(0, contract="another\n")
    elif state is LinkState.SYNCING:
        end.hello(7)
    elif state is not LinkState.CONNECTING:
        end.hello(0)
    if state is LinkState.LEFT_OUT:
        end.be_silent()
    assert end.state() is state
    return end


CAUSES: dict[Signal, Callable[[End], None]] = {
    Signal.CAME: End.came,
    Signal.GONE: End.gone,
    Signal.AGREED: lambda end: end.hello(7),
    Signal.DIFFERED: lambda end: end.hello(7, contract="another\n"),
    Signal.CAUGHT_UP: lambda end: end.snapshot(7),
    Signal.LOST: lambda end: end.gossip(9),
    Signal.RESTARTED: lambda end: end.take(wire.write_ask(6, 0, None)),
    Signal.SILENT: End.be_silent,
}


@pytest.mark.parametrize("signal", Signal)
@pytest.mark.parametrize("state", LinkState)
def test_every_row_of_the_table(state: LinkState, signal: Signal) -> None:
    end = in_state(state)
    CAUSES[signal](end)
    assert end.state() is TRANSITIONS[state].get(signal, state)


def test_the_table_is_whole() -> None:
    assert list(TRANSITIONS) == list(LinkState)
    for state, row in TRANSITIONS.items():
        assert state not in row.values()  # what leaves a state as it is need not be said
    reached = {LinkState.CONNECTING}
    while (more := reached | {after for state in reached for after in TRANSITIONS[state].values()}) != reached:
        reached = more
    assert reached == set(LinkState)
    assert set(WAITED_FOR) == set(LinkState) - {LinkState.LEFT_OUT, LinkState.REFUSED}


def test_the_table_in_the_docs_is_the_table() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", DOCS.read_text(), re.MULTILINE)
    told = [row for row in rows if row[0] in set(LinkState)]
    assert told == [(state, signal, after) for state, row in TRANSITIONS.items() for signal, after in row.items()]


def test_a_link_from_end_to_end() -> None:
    end = End()
    end.came()
    assert end.asked() == [None]  # who are you?
    end.hello(7)
    assert end.asked() == [(5, 0)]
    end.snapshot(7)
    assert (end.state(), end.link.round, end.link.boot) == (LinkState.SYNCED, 7, 5)
    assert not end.asked()
    end.gossip(10)
    assert end.asked() == [(5, 7)]
    assert [event for event in end.events if isinstance(event, Resynced)] == [Resynced("b", 7)]


def test_a_level_neighbor_is_asked_no_more() -> None:
    end = in_state(LinkState.SYNCED)
    end.came()  # the transport says so again
    end.asked()
    end.hello(0)
    assert end.node.wake_at() == np.inf


def test_short_leaps_are_walked_and_long_ones_skipped() -> None:
    end = in_state(LinkState.SYNCED)
    end.events += end.node.observe([1.0, 2.0], 1, 0.0)
    for at in (1, 2, 3):
        end.gossip(at)
    assert (end.node.round, end.link.round, len(end.node.neighbors.recent)) == (1, 3, 1)
    end.gossip(4)
    assert (end.node.round, end.link.round, len(end.node.neighbors.recent)) == (4, 4, 0)


def test_what_lacks_is_asked_for_though_the_neighbor_is_left_out() -> None:
    end = in_state(LinkState.SYNCED)
    end.take(wire.write_ask(5, 120, (1, 0)))  # it is far ahead, and may have nothing more to say
    end.be_silent()
    assert end.state() is LinkState.LEFT_OUT
    end.asked()
    end.now += DEADLINE
    end.node.wake(end.now)
    assert end.asked() == [(5, 0)]
    end.snapshot(120)
    assert (end.state(), end.node.round) == (LinkState.SYNCED, 120)


def test_the_deadline_counts_from_when_a_round_is_due() -> None:
    network = config(3)
    node = Protocol(network.role("b"), 1, 0.0)
    node.came("a", 0.0)
    node.receive("a", wire.write_hello(5, 0, network.role("a").contract()), 0.0)
    zeros = np.zeros(node.learning.shape)
    message = Message(zeros.astype(np.int16), np.zeros((*zeros.shape[:2], 1), dtype=np.float32))
    node.receive("a", wire.write_gossip(node.neighbors.codec, 5, 1, message, wire.digest(node.links["a"].copy)), 0.0)
    node.wake(LOCKSTEP.patience)  # a has begun a round, and c is not there
    node.gone("a", 1.0)  # nobody waits any more
    node.observe([1.0, 2.0], 1, DEADLINE)
    node.wake(DEADLINE + LOCKSTEP.patience)
    assert {link.state for link in node.links.values()} == {LinkState.CONNECTING}
    node.wake(2 * DEADLINE)
    assert {link.state for link in node.links.values()} == {LinkState.LEFT_OUT}


def test_what_is_lacking_is_given() -> None:
    cluster, (x, y) = Cluster(config(2), DELAY), stream(2, 5)
    cluster.feed(x, y)
    cluster.network.run()
    node = cluster.nodes["a"]
    boot = node.neighbors.boot

    def answers(have: tuple[int, int] | None) -> list[tuple[Kind, int]]:
        node.receive("b", wire.write_ask(101, 5, have), cluster.network.now)
        return [wire.peek(send.data)[::2] for send in node.outgoing()]

    assert answers(None) == [(Kind.HELLO, 5)]
    assert answers((boot, 5)) == [(Kind.HELLO, 5)]
    assert [at for _, at in answers((boot, 4))] == [5]
    assert [at for _, at in answers((boot, 3))] == [4, 5]
    for have in ((boot, 2), (boot, 0), (boot, 6), (boot + 1, 5)):
        assert answers(have) == [(Kind.SNAPSHOT, 5)]


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("timing", [LOCKSTEP, TIMER])
def test_a_cut_longer_than_the_deadline(timing: Timing, noticed: bool) -> None:
    cluster, (x, y) = Cluster(config(4, timing=timing), DELAY), stream(4, 300)
    if timing is LOCKSTEP:
        for j, id in enumerate("abcd"):  # a stream that does not end too soon
            cluster.network.feed(id, zip(x[:, j], y[:, j], strict=True))
    cluster.network.run(0.5)
    cluster.network.cut("b", "c", noticed)
    cluster.network.run(0.5 + 2.5 * DEADLINE)
    left = {("b", "c"), ("c", "b")}
    away = {LinkState.LEFT_OUT} if timing is LOCKSTEP or not noticed else {LinkState.CONNECTING}
    for id, node in cluster.nodes.items():
        for peer, link in node.links.items():
            assert (link.state in away) == ((id, peer) in left)
    for id, peer in left:
        node = cluster.nodes[id]
        kept = dict(zip(node.links, node.neighbors.weights.tolist(), strict=True))
        assert kept.pop(peer) == 0  # what it had is the node's own: mixing pulls by the others alone
        assert all(weight > 0 for weight in kept.values())
    if timing is LOCKSTEP:
        assert {event.mixed for id, event in cluster.of(Gossiped)[-40:] if id == "b"} == {1}
    cluster.network.mend("b", "c")
    for t in range(12):
        for j, id in enumerate("abcd"):
            cluster.network.observe(id, x[t, j], y[t, j])
        cluster.network.run(cluster.network.now + 1.0)
    assert cluster.states() == {LinkState.SYNCED}
    if timing is LOCKSTEP:
        assert len({node.round for node in cluster.nodes.values()}) == 1
        cluster.check_copies()


def test_parts_that_went_apart_count_alike_again() -> None:
    cluster, (x, y) = Cluster(config(6, "ring"), DELAY), stream(6, 400)
    cluster.network.run(0.5)
    for ends in (("a", "f"), ("c", "d")):
        cluster.network.cut(*ends)
    for t in range(60):
        for j, id in enumerate("abc" if t % 3 else "abcdef"):  # the one part takes three times the rounds
            cluster.network.observe(id, x[t, j], y[t, j])
        cluster.network.run(cluster.network.now + 0.3)
    assert cluster.nodes["a"].round > cluster.nodes["e"].round + 10
    for ends in (("a", "f"), ("c", "d")):
        cluster.network.mend(*ends)
    cluster.network.run(cluster.network.now + 2 * DEADLINE)
    mended = len(cluster.events)
    for t in range(10):
        for j, id in enumerate("abcdef"):
            cluster.network.observe(id, x[t, j], y[t, j])
        cluster.network.run(cluster.network.now + 1.0)
    cluster.network.run()
    assert len({node.round for node in cluster.nodes.values()}) == 1
    assert cluster.states() == {LinkState.SYNCED}
    assert not [event for _, _, event in cluster.events[mended:] if isinstance(event, Moved | Resynced)]
    cluster.check_copies()


@pytest.mark.parametrize("timing", [LOCKSTEP, TIMER])
@pytest.mark.parametrize("id", ["a", "b"])
def test_a_node_restarted_without_its_state(timing: Timing, id: str) -> None:
    cluster, (x, y) = Cluster(config(3, timing=timing), DELAY), stream(3, 60)
    for t in range(40):
        for j, other in enumerate("abc"):
            if other in cluster.nodes:
                cluster.network.observe(other, x[t, j], y[t, j])
        cluster.network.run(cluster.network.now + 1.0)
        if t == 15:
            cluster.network.leave(id)
        if t == 18:
            cluster.join(id, 7)
    cluster.network.run(cluster.network.now + DEADLINE)
    assert cluster.states() == {LinkState.SYNCED}
    assert {node.links[id].boot for node in cluster.nodes.values() if id in node.links} == {7}
    if timing is LOCKSTEP:
        assert len({node.round for node in cluster.nodes.values()}) == 1
        cluster.check_copies()


def test_a_node_that_dies_parts_nobody_else() -> None:
    # All who wait in a row have waited equally long when the first of them gives the dead one up.
    for jitter in (0.0, 0.02):
        cluster, (x, y) = Cluster(config(6), Conditions(delay=0.01, jitter=jitter)), stream(6, 80)
        cluster.feed(x, y)
        cluster.network.run(0.5)
        cluster.network.leave("f")
        cluster.network.run()
        assert cluster.left_out() == ["e-f"]
        assert {node.round for node in cluster.nodes.values()} == {80}


def test_a_message_lost_on_the_way_to_a_node_without_samples_costs_no_link() -> None:
    cluster, (x, y) = Cluster(config(2), DELAY), stream(2, 20)
    cluster.network.run(1.0)
    for t in range(5):
        cluster.network.conditions = replace(DELAY, loss=1.0)
        cluster.network.observe("a", x[t, 0], y[t, 0])  # b will not hear of it
        cluster.network.conditions = DELAY
        cluster.network.observe("a", x[t + 10, 0], y[t + 10, 0])
        cluster.network.run(cluster.network.now + 3 * DEADLINE)
    assert not cluster.left_out()
    assert not cluster.of(Resynced)
    assert {node.round for node in cluster.nodes.values()} == {10}


def test_the_last_message_of_all_is_asked_for() -> None:
    cluster, (x, y) = Cluster(config(2), DELAY), stream(2, 1)
    cluster.network.run(1.0)
    cluster.network.conditions = replace(DELAY, loss=1.0)
    cluster.feed(x, y)
    cluster.network.conditions = DELAY
    cluster.network.run()
    cluster.check_copies()


def flipped(kind: Kind, bit: int) -> Cluster:
    """Return a network after a run in which one bit of each second frame of a kind was flipped, once restarted."""
    cluster, (x, y) = Cluster(config(3, quantizer=None if kind is Kind.FIXED else "nearest"), DELAY), stream(3, 30)
    send, seen = cluster.network._send, []

    def damage(sender: str, receiver: str, data: bytes) -> None:
        if len(data) > 8 and data[0] & 15 == kind and cluster.network.now < 25:
            seen.append(receiver)
            if len(seen) % 2:
                broken = bytearray(data)
                at = (bit + 8 * len(seen)) % (8 * len(data))
                broken[at // 8] ^= 1 << at % 8
                data = bytes(broken)
        send(sender, receiver, data)

    cluster.network._send = damage  # type: ignore[method-assign]
    for t in range(30):
        for j, id in enumerate("abc"):
            if id in cluster.nodes:
                cluster.network.observe(id, x[t, j], y[t, j])
        if t == 8:
            cluster.network.leave("b")
        if t == 10:
            cluster.join("b", 7)
        cluster.network.run(cluster.network.now + 1.0)
    assert len(seen) > 1
    cluster.network.run(cluster.network.now + (2 + REFUSED_DEADLINES) * DEADLINE)
    return cluster


@settings(max_examples=25)
@given(st.sampled_from(list(Kind)), st.integers(0, 4000))
def test_a_flipped_bit_is_refused_and_what_it_damaged_asked_for(kind: Kind, bit: int) -> None:
    cluster = flipped(kind, bit)
    assert cluster.of(Dropped) or cluster.of(Moved)
    assert cluster.states() == {LinkState.SYNCED}
    cluster.check_copies()


@settings(max_examples=30)
@given(st.integers(0, 2**16))
def test_damaged_round_numbers_do_not_fill_the_inbox(seed: int) -> None:
    end, rng = in_state(LinkState.SYNCED), np.random.default_rng(seed)
    for _ in range(3 * MOST_AHEAD):
        end.gossip(256 * int(rng.integers(2**24)) + int(rng.integers(3, 256)))
        assert len(end.link.inbox) <= MOST_AHEAD
    end.gossip(1)
    assert end.link.have == 1
    assert end.state() is LinkState.SYNCED


def test_a_link_keeps_the_messages_that_come_next() -> None:
    link = End().link
    for at in (*range(100, 120), *range(1, 5)):
        link.keep(at, b"")
    assert sorted(link.inbox) == [1, 2, 3, 4]
    assert link.have == 4
    for at in range(1, 100):
        link.keep(at, b"")
    assert len(link.inbox) == MOST_AHEAD == link.have


def test_more_messages_than_there_is_room_for_bring_a_link_in_step() -> None:
    """A gap that is filled last, when the message after all that are kept has no room."""
    end = End()
    end.came()
    end.hello(0)
    for at in range(2, MOST_AHEAD + 1):
        end.gossip(at)
    assert end.state() is LinkState.SYNCING
    end.node.neighbors.learning.round = MOST_AHEAD + 1
    end.link.inbox[1] = end.link.inbox[2]  # as if its turn came with the next one only
    end.gossip(MOST_AHEAD + 1)
    assert MOST_AHEAD + 1 not in end.link.inbox
    assert any("was all that lacked" in str(event) for event in end.events)


def test_what_is_longer_than_any_message_is_not_kept() -> None:
    network = config(2, quantizer=None)
    node = Protocol(network.role("a"), 1, 0.0)
    node.came("b", 0.0)
    node.receive("b", wire.write_hello(5, 0, network.role("b").contract()), 0.0)
    message = Message(np.zeros_like(node.links["b"].copy), np.ones((*node.learning.shape[:2], 1), dtype=np.float32))
    frame = wire.write_gossip(node.neighbors.codec, 5, 1, message, 0)
    (event,) = node.receive("b", frame[:7] + bytes(1) + frame[7:], 0.0)
    assert isinstance(event, Dropped)
    assert event.why == f"{len(frame) + 1} bytes; a message has {len(frame)} at most"
    assert not node.links["b"].inbox
    node.receive("b", frame, 0.0)
    assert list(node.links["b"].inbox) in ([1], [])


def test_a_copy_gone_wrong_is_found_and_replaced() -> None:
    cluster, (x, y) = Cluster(config(2), DELAY), stream(2, 20)
    cluster.network.run(1.0)
    for node in cluster.nodes.values():
        node.__class__ = Protocol  # a watched one would fail at once
    for t in range(20):
        if t == 7:
            cluster.nodes["a"].links["b"].copy[...] += 1  # a fault in memory
        for j, id in enumerate("ab"):
            cluster.network.observe(id, x[t, j], y[t, j])
        cluster.network.run(cluster.network.now + 1.0)
    assert any("the check is wrong" in event.why for _, event in cluster.of(Dropped))
    assert [id for id, _ in cluster.of(Resynced)] == ["a"]
    cluster.check_copies()


def test_messages_whose_sum_is_not_finite_are_refused() -> None:
    network = config(2, quantizer=None, gamma=1e-37)
    node = Protocol(network.role("a"), 1, 0.0)
    link = node.links["b"]
    node.came("b", 0.0)
    node.receive("b", wire.write_hello(5, 0, network.role("b").contract()), 0.0)
    huge = np.full_like(link.copy, 3e38)
    copy = np.zeros_like(huge)
    events: list[Event] = []
    for t in (1, 2):
        message = Message(huge, np.ones((*huge.shape[:2], 1), dtype=np.float32))
        events += node.observe([1.0, 2.0], 1, 0.0)
        events += node.receive("b", wire.write_gossip(node.neighbors.codec, 5, t, message, wire.digest(copy)), 0.0)
        copy = huge
    events += node.observe([1.0, 2.0], 1, 0.0)
    assert any("a sum that is not finite" in event.why for event in events if isinstance(event, Dropped))
    events = node.receive("b", wire.write_snapshot(5, 9, huge), 0.0)
    assert any("a sum that is not finite" in event.why for event in events if isinstance(event, Dropped))
    assert link.round < 9
    assert np.isfinite(link.copy).all()


def test_a_late_hello_or_snapshot_of_another_boot_takes_nothing_over() -> None:
    for say in (End.hello, End.snapshot):
        end = in_state(LinkState.SYNCING)
        end.snapshot(7)
        copy = end.link.copy.copy()
        say(end, 50, boot=4)  # of a life before
        assert end.state() is not LinkState.SYNCED
        assert not end.node.neighbors.weights.any()
        end.now += DEADLINE
        end.hello(7)
        end.snapshot(7)
        assert end.state() is LinkState.SYNCED
        np.testing.assert_array_equal(end.link.copy, copy)


def test_a_new_life_that_draws_the_boot_of_the_last_is_taken_in() -> None:
    end = in_state(LinkState.SYNCING)
    end.snapshot(7)
    end.gone()
    end.came()
    end.hello(2)
    end.snapshot(2)
    assert (end.state(), end.link.round) == (LinkState.SYNCED, 2)


def mismatched(**changes: Any) -> tuple[NetworkConfig, NetworkConfig]:
    here = config(2)
    if "name" in changes:
        return here, replace(here, **changes)
    return here, replace(here, method=replace(here.method, **changes))


@pytest.mark.parametrize(
    ("changes", "here", "there"),
    [
        ({"quantizer": "sign"}, "quantizer here is nearest step=2.5 block=None", "there sign"),
        (
            {"kernels": gaussian(1)},
            "is gaussian:1.0 gaussian:3.0 gaussian:5.0 D=4",
            "there gaussian:1.0 D=4 d=2 seed=3",
        ),
        ({"orthogonal": True}, "gaussian:5.0 D=4 d=2 seed=3, there", "D=4 d=2 seed=3 orthogonal"),
        ({"loss": "squared"}, "loss here is logistic, there", "there squared outputs=1"),
        ({"name": "m"}, "network here is n", "there m"),
    ],
)
def test_another_contract_is_refused_at_both_ends_with_both_values(
    changes: dict[str, Any], here: str, there: str
) -> None:
    ours, theirs = mismatched(**changes)
    cluster, (x, y) = Cluster(ours, DELAY), stream(2, 5)
    cluster.network.leave("b")
    cluster.network.join(Protocol(theirs.role("b"), 7, 0.0))
    cluster.feed(x, y)
    cluster.network.run(2.0)
    assert cluster.states() == {LinkState.REFUSED}
    whys = {id: event.why for id, event in cluster.of(Moved)}
    assert here in whys["a"]
    assert there in whys["a"]
    assert "here" in whys["b"]
    assert whys["a"] != whys["b"]
    assert {node.round for node in cluster.nodes.values()} == {5}  # each goes on without the other
    assert {event.mixed for _, event in cluster.of(Gossiped)} == {0}
    cluster.network.leave("b")
    cluster.join("b", 8)  # with its file mended
    cluster.network.run(2.0 + DEADLINE)
    assert cluster.states() == {LinkState.SYNCED}


def test_another_version_is_refused_but_not_a_flipped_bit() -> None:
    def before(frame: bytes) -> bytes:
        """Return it as the version before would have sent it."""
        head = bytes([frame[0] ^ 0x30]) + frame[1:-2]
        return head + crc_hqx(head, 0).to_bytes(2, "big")

    end, ask = in_state(LinkState.CONNECTING), wire.write_ask(5, 0, None)
    end.take(bytes([ask[0] ^ 0x30]) + ask[1:])
    assert end.state() is LinkState.CONNECTING
    end.take(before(ask))
    assert end.state() is LinkState.REFUSED
    (moved,) = [event for event in end.events if isinstance(event, Moved)]
    assert moved.why == "version 1; this node speaks 2; run the same omkl on both"
    end.hello(0)  # upgraded
    assert end.state() is LinkState.SYNCED


def test_a_refused_neighbor_is_asked_again_now_and_then() -> None:
    ours, theirs = mismatched(quantizer="sign")
    cluster = Cluster(ours, DELAY)
    cluster.network.leave("b")
    cluster.network.join(Protocol(theirs.role("b"), 7, 0.0))
    cluster.network.run(1.0)
    send, sent = cluster.network._send, []

    def count(sender: str, receiver: str, data: bytes) -> None:
        sent.append(wire.peek(data).kind)
        send(sender, receiver, data)

    cluster.network._send = count  # type: ignore[method-assign]
    cluster.network.run(10.5 * REFUSED_DEADLINES * DEADLINE)
    assert sent.count(Kind.ASK) == 20  # ten each
    assert sent.count(Kind.HELLO) == 20


def test_a_neighbor_that_never_answers_is_asked_ever_more_rarely() -> None:
    end = End()
    end.came()
    times = []
    while end.now < 100 * DEADLINE:
        times += [end.now for _ in end.asked()]
        end.now = end.node.wake_at()
        end.node.wake(end.now)
    pauses = np.diff(times)
    assert (np.diff(pauses) >= 0).all()
    assert pauses[0] == DEADLINE / 8
    assert pauses[-1] == DEADLINE


def test_strangers_are_not_heard() -> None:
    end = End()
    for events in (
        end.node.came("c", 0.0),
        end.node.gone("c", 0.0),
        end.node.receive("c", wire.write_ask(5, 0, None), 0.0),
    ):
        assert [event.why for event in events if isinstance(event, Dropped)] == [
            "no neighbor; links are those of the network's file"
        ]
    assert not end.node.outgoing()


def test_all_rows_of_the_table_happen_in_networks_too() -> None:
    """Every move of the table but those of a contract is seen in clusters under faults."""
    seen = set()
    for seed, timing in ((0, LOCKSTEP), (1, LOCKSTEP), (2, TIMER)):
        conditions = Conditions(delay=0.01, jitter=0.05, loss=0.2, ordered=False)
        cluster, (x, y) = Cluster(config(4, "ring", timing=timing), conditions, seed), stream(4, 80)
        for t in range(80):
            for j, id in enumerate("abcd"):
                if id in cluster.nodes:
                    cluster.network.observe(id, x[t, j], y[t, j])
            cluster.network.run(cluster.network.now + 0.5)
            if t % 20 == 8:
                cluster.network.cut("a", "b", noticed=t == 8)
            if t % 20 == 19:
                cluster.network.mend("a", "b")
            if t == 30:
                cluster.network.leave("c")
            if t == 50:
                cluster.join("c", 7)
        seen |= {(event.before, event.after) for _, event in cluster.of(Moved)}
    table = {(state, after) for state, row in TRANSITIONS.items() for after in row.values()}
    assert seen == {move for move in table if LinkState.REFUSED not in move}


class Trouble:
    """A network of whose nodes and links anything may happen, by a seed; the copies are watched all the while."""

    def __init__(self, seed: int, timing: Timing) -> None:
        self.random = random.Random(seed)
        pick = self.random.choice
        conditions = Conditions(
            delay=0.01,
            jitter=pick([0.0, 0.02, 0.2]),
            loss=pick([0.0, 0.1, 0.3]),
            duplication=pick([0.0, 0.2]),
            ordered=pick([True, False]),
        )
        graph = pick(["path", "ring", "star", "complete"])
        self.cluster = Cluster(config(4, graph, timing, quantizer=pick([None, "nearest"])), conditions, seed)
        self.network, self.boots = self.cluster.network, itertools.count(1000)
        self.cut: set[tuple[str, str]] = set()
        self.periods = {id: pick([1, 1, 5]) for id in self.cluster.config.ids}

    def let_pass(self, steps: int) -> None:
        """Give samples, to some nodes rarely."""
        for t in range(steps):
            for id, node in list(self.cluster.nodes.items()):
                if t % self.periods[id] == 0 and not node.is_full:
                    x = [self.random.gauss(0, 1), self.random.gauss(0, 1)]
                    self.network.observe(id, x, 1 if x[0] * x[1] > 0 else -1)
            self.network.run(self.network.now + 0.3)

    def happen(self) -> None:
        """Let one thing happen, or undo one that did."""
        config = self.cluster.config
        id = self.random.choice(config.ids)
        peer = self.random.choice(list(config.role(id).neighbors))
        if self.random.random() < 0.4:
            self.restart(id)
        elif (ends := (min(id, peer), max(id, peer))) in self.cut:
            self.mend(ends)
        elif id in self.cluster.nodes and peer in self.cluster.nodes:
            self.network.cut(*ends, noticed=self.random.random() < 0.5)
            self.cut.add(ends)

    def restart(self, id: str) -> None:
        if id in self.cluster.nodes:
            self.network.leave(id)
        else:
            self.cluster.join(id, next(self.boots))

    def mend(self, ends: tuple[str, str]) -> None:
        if all(end in self.cluster.nodes for end in ends):
            self.network.mend(*ends)
            self.cut.discard(ends)

    def end(self) -> None:
        """Undo all."""
        for id in self.cluster.config.ids:
            if id not in self.cluster.nodes:
                self.restart(id)
        for ends in list(self.cut):
            self.mend(ends)
        self.network.conditions = DELAY


@pytest.mark.parametrize("timing", [LOCKSTEP, TIMER], ids=["lockstep", "timer"])
@pytest.mark.parametrize("seed", range(8))
def test_whatever_happened_all_are_in_step_again(seed: int, timing: Timing) -> None:
    trouble = Trouble(seed, timing)
    for _ in range(25):
        trouble.let_pass(trouble.random.randrange(12))
        trouble.happen()
    trouble.end()
    trouble.let_pass(70)
    cluster = trouble.cluster
    assert cluster.states() == {LinkState.SYNCED}
    calm = len(cluster.events)
    trouble.let_pass(70)
    assert not [event for _, _, event in cluster.events[calm:] if isinstance(event, Moved | Resynced)]
    if timing is LOCKSTEP:
        cluster.network.run(cluster.network.now + 1000)
        assert all(node.wake_at() == np.inf for node in cluster.nodes.values())
        assert len({node.round for node in cluster.nodes.values()}) == 1
        cluster.check_copies()


def test_star_and_complete_networks_come_through_a_restart_of_their_center() -> None:
    for graph in ("star", "complete"):
        cluster, (x, y) = Cluster(config(5, graph), DELAY), stream(5, 60)
        cluster.feed(x, y)
        cluster.network.run(0.3)
        cluster.network.leave("a")
        cluster.network.run(0.6)
        cluster.join("a", 7)
        cluster.network.run()
        assert not cluster.left_out()
        assert cluster.states() == {LinkState.SYNCED}
        assert {node.round for node in cluster.nodes.values()} == {60}
        cluster.check_copies()


def test_nothing_is_asked_in_an_undisturbed_run() -> None:
    cluster = run(config(5, "ring"), *stream(5, 30), DELAY)
    assert not cluster.of(Dropped)
    assert not cluster.of(Resynced)
    assert {(event.before, event.after) for _, event in cluster.of(Moved)} == {
        (LinkState.CONNECTING, LinkState.SYNCING),
        (LinkState.SYNCING, LinkState.SYNCED),
    }


def test_a_new_life_that_gossips_unannounced_is_asked_who_it_is() -> None:
    """Gossip tells no boot; the check does, and so does a round that nobody would repeat."""
    end = in_state(LinkState.SYNCED)
    for at in (1, 2, 3):
        end.gossip(at)
    end.node.observe([1.0, 2.0], 1, end.now)
    end.asked()
    end.gossip(1, boot=6)  # two rounds before the copy's: nobody repeats that
    assert end.asked() == [(5, 3)]
    other = in_state(LinkState.SYNCED)
    other.node.observe([1.0, 2.0], 1, other.now)
    other.gossip(1, boot=6)  # it fits the round, and not the check
    for _ in range(2):
        other.node.observe([1.0, 2.0], 1, other.now)
    assert (other.state(), other.link.round) == (LinkState.SYNCING, 0)
    other.snapshot(1, boot=6)  # what a new life answers to a question of the old one
    assert other.state() is LinkState.CONNECTING
    other.hello(1, boot=6)
    assert (other.link.boot, other.state()) == (6, LinkState.SYNCING)


def test_a_round_is_resolved_by_what_was_shown_last() -> None:
    """A copy of round 0 hears gossip of a neighbor that has said to be at 3000: it is no message of round 1."""
    end = in_state(LinkState.SYNCING)
    end.hello(3000)
    end.gossip(3001)
    assert (end.state(), end.link.inbox) == (LinkState.SYNCING, {})
    end.gossip(2817)  # the same lowest byte as round 1
    assert (end.state(), end.link.inbox) == (LinkState.SYNCING, {})
    end.snapshot(3000)
    end.gossip(3001)
    assert (end.state(), end.link.have) == (LinkState.SYNCED, 3001)


def test_gossip_of_one_that_is_not_known_yet_is_dropped_and_asks() -> None:
    end = End()
    end.came()
    end.asked()
    end.gossip(1)
    assert [event.why for event in end.events if isinstance(event, Dropped)] == [
        "a message of one that is not known yet"
    ]
    assert (end.state(), end.link.inbox) == (LinkState.CONNECTING, {})
    end.now += DEADLINE
    end.node.wake(end.now)
    assert end.asked() == [None]


def test_other_settings_are_told_once_and_mended() -> None:
    network = config(2)
    ours, other = network.role("a").settings, replace(network, method=network.method.replace(gamma=0.123))
    assert len({ours, other.role("b").settings}) == 2
    assert network.role("b").settings == ours
    assert other.role("b").contract() == network.role("b").contract()
    end = in_state(LinkState.SYNCED)
    theirs = other.role("b").settings
    for digest in (theirs, theirs, bytes(4), ours):
        end.take(wire.write_hello(5, 0, end.contract, None, digest + bytes(4)))
        assert len([event for event in end.events if event == Differs("b")]) == 1
        assert end.link.differs == ("settings" if digest == theirs else "")
    assert end.state() is LinkState.SYNCED
