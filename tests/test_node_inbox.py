"""Bounds on what others may send: floods of frames and of questions."""

import itertools
import json
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import zenoh
from hypothesis import given
from hypothesis import strategies as st

from omkl.compressors import Sign
from omkl.node import inbox
from omkl.node.config import NetworkConfig, load
from omkl.node.events import Dropped, Event
from omkl.node.inbox import CLIENTS, MOST_PENDING, STRANGERS, Inbox, Wake, largest_frame, largest_sample
from omkl.node.links import LinkState
from omkl.node.node import Node
from omkl.node.protocol import MOST_WAITING, Protocol
from omkl.node.transports import Arrival
from omkl.node.transports.zenoh import MOST_QUERIES, Desk, Endpoints, ask
from omkl.quantizers import QSGD, Exact, Nearest, Quantizer
from omkl.wire import Kind, peek, write_hello, write_kept, write_snapshot
from tests.node_cluster import config as network_of
from tests.node_processes import LIMIT, samples, write_network
from tests.test_node_access import session

FLOOD = 20_000


def box() -> Inbox:
    return Inbox(["b", "c"], most_bytes=10)


def drain(one: Inbox) -> list[Any]:
    return [one.get(0) for _ in range(len(one))]


def test_a_flood_fills_its_own_places_alone() -> None:
    one = box()
    for _ in range(1000):
        one.deliver(Arrival("b", b"1"))
    one.deliver(Arrival("c", b"2"))
    assert len(one) == MOST_PENDING + 2  # and one that says to look
    assert one.dropped() == [Dropped("b", inbox.WHY["pending"], "pending", 1000 - MOST_PENDING)]
    assert one.dropped() == []
    assert [item for item in drain(one) if item != Wake()] == [Arrival("b", b"1")] * MOST_PENDING + [Arrival("c", b"2")]
    one.deliver(Arrival("b", b"3"))
    assert (drain(one), one.dropped()) == ([Arrival("b", b"3")], [])


def test_what_is_too_large_does_not_wait() -> None:
    one = box()
    one.deliver(Arrival("b", b"x" * 10))
    one.deliver(Arrival("b", b"x" * 11))
    one.drop(CLIENTS, "size")
    assert drain(one) == [Arrival("b", b"x" * 10), Wake()]
    assert {(told.peer, told.reason, told.times) for told in one.dropped()} == {("b", "size", 1), (CLIENTS, "size", 1)}


def test_strangers_share_their_places() -> None:
    one = box()
    for k in range(1000):
        one.deliver(Arrival(f"stranger{k}", b"1"))
    assert len(one) == MOST_PENDING + 1
    assert [(told.peer, told.times) for told in one.dropped()] == [(STRANGERS, 1000 - MOST_PENDING)]


@given(st.lists(st.tuples(st.sampled_from("bc"), st.sampled_from(["frame", "came", "gone", "take"])), max_size=400))
def test_the_last_coming_or_going_is_told(steps: list[tuple[str, str]]) -> None:
    one, last, told = box(), {}, {}
    for peer, step in steps:
        if step == "take":
            if len(one) and (item := one.get(0)) != Wake() and item.data is None:
                told[item.peer] = item.came
        elif step == "frame":
            one.deliver(Arrival(peer, b"1"))
        else:
            last[peer] = step == "came"
            one.deliver(Arrival(peer, came=last[peer]))
        assert len(one) <= 2 * (MOST_PENDING + 1) + 1
    told |= {item.peer: item.came for item in drain(one) if item != Wake() and item.data is None}
    assert told == last


@pytest.mark.parametrize("quantizer", [Exact(), Nearest(), QSGD(rescale=True), Sign()])
def test_every_frame_of_a_role_is_within_its_limit(quantizer: Quantizer) -> None:
    role = network_of(2, features=200, quantizer=quantizer).role("a")
    protocol = Protocol(role, 7, 0.0)
    protocol.observe([1, 2], 1, 0.0)
    protocol.wake(1e9)
    sent = [send.data for send in protocol.outgoing()]
    hidden = protocol.learning.state.hidden
    sent += [write_snapshot(7, 3, hidden), write_kept(7, 3, hidden), write_hello(7, 3, role.contract())]
    assert {peek(data).kind for data in sent} > {Kind.HELLO, Kind.SNAPSHOT}
    assert max(map(len, sent)) <= largest_frame(role) <= 4 * hidden.size + 5000
    numbers = [-1.2345678901234567e-300] * (role.inputs + 1)
    assert len(json.dumps({"x": numbers, "y": numbers[0]})) < largest_sample(role)


def test_a_desk_takes_no_more_than_it_can() -> None:
    begun, go, dropped = threading.Event(), threading.Event(), Counter[str]()

    def answer(_: bytes) -> bytes:
        begun.set()
        go.wait(LIMIT)
        return b""

    class Question:
        payload: Any = None

    class Long:
        payload = b"x" * 11

    desk = Desk("k", answer, 10, lambda reason: dropped.update([reason]))
    desk.take(Question())  # type: ignore[arg-type]
    assert begun.wait(LIMIT)
    for _ in range(MOST_QUERIES + 5):
        desk.take(Question())  # type: ignore[arg-type]
    desk.take(Long())  # type: ignore[arg-type]
    go.set()
    desk.close()
    assert dropped == {"pending": 5, "size": 1}


def frames(config: NetworkConfig) -> list[bytes]:
    """Return frames of c: good ones, damaged ones, noise, and one too large.

    In lock step none that says that c is in step: it would be waited for then, up to two deadlines, again and again.
    """
    protocol, noise = Protocol(config.role("c"), 9, 0.0), random.Random(0)
    protocol.end(0.0)
    for k in range(20):
        protocol.observe([1, k], 1, 0.0)
    for k in range(1, 100):
        protocol.wake(k * 1e6)
    good = [send.data for send in protocol.outgoing() if send.peer is None]
    assert len(good) >= 20
    role = config.role("c")
    if config.timing.mode == "timer":
        good += [
            write_hello(9, protocol.round, role.contract()),
            write_snapshot(9, protocol.round, protocol.learning.state.hidden),
        ]
    bad = [data[:3] + bytes([data[3] ^ 1]) + data[4:] for data in good]
    return [*good, *bad, *(noise.randbytes(noise.randrange(80)) for _ in range(20)), bytes(largest_frame(role) + 1)]


class Count:
    """Counts what a node takes in from c, and how much waits for it at most."""

    def __init__(self) -> None:
        self.node: Node | None = None
        self.taken, self.longest, self.dropped = 0, 0, Counter[str]()

    def watch(self, event: Event) -> None:
        if isinstance(event, Dropped) and event.peer == "c" and event.reason != "content":
            self.dropped[event.reason] += event.times

    def tap(self, item: Any, _: Any) -> None:
        assert self.node
        self.longest = max(self.longest, len(self.node.runtime.inbox))
        self.taken += isinstance(item, Arrival) and item.data is not None and item.peer == "c"


def learn(*nodes: Node, seed: int) -> None:
    """Let nodes take 50 samples, and 20 rounds."""
    last = [node.protocol.round + 20 for node in nodes]
    for x, y in samples(50, seed):
        for node in nodes:
            node.observe(x, y)
    for node in nodes:
        node.wait(LIMIT)
    until(lambda: all(node.protocol.round >= after for node, after in zip(nodes, last, strict=True)))


@pytest.mark.parametrize("timing", ["", 'mode = "timer"\nperiod = 0.02\n'], ids=["lockstep", "timer"])
def test_a_flood_of_one_neighbor_leaves_the_others_in_step(tmp_path: Path, timing: str) -> None:
    path = write_network(tmp_path, "bac", deadline=1.0, tables=timing)  # b - a - c, and c floods
    config, count = load(path), Count()
    learned = threading.Event()
    with ExitStack() as stack:
        a = count.node = Node(config, "a", [count.watch], [count.tap])
        stack.enter_context(a.start())
        b = stack.enter_context(Node.join(config, "b"))
        with session(config, "a", None) as c:
            publisher = c.declare_publisher("omkl/test/c/gossip", congestion_control=zenoh.CongestionControl.BLOCK)
            until(lambda: bool(publisher.matching_status.matching))  # type: ignore[attr-defined]
            sent, sizes = itertools.cycle(frames(config)), list[int]()

            def flood() -> None:
                while len(sizes) < FLOOD or not learned.is_set():
                    publisher.put(data := next(sent))
                    sizes.append(len(data))

            thread = threading.Thread(target=flood, daemon=True)
            thread.start()
            learn(a, b, seed=0)
            learned.set()
            thread.join(LIMIT)
            until(lambda: count.taken + count.dropped.total() == len(sizes))
        assert len(sizes) >= FLOOD
        assert count.longest <= 3 * MOST_PENDING + MOST_WAITING + 4
        assert count.dropped["pending"] > 0
        most = largest_frame(config.role("c"))  # once: it takes longer than a frame
        assert count.dropped["size"] == sum(size > most for size in sizes)
        learn(a, b, stack.enter_context(Node.join(config, "c")), seed=1)  # one that means well, in its place
        until(lambda: [link.state for link in a.protocol.links.values()] == [LinkState.SYNCED] * 2)


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that others do; the daemon threads of a test that waits for ever do not keep the process."""
    end = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_flood_of_questions_leaves_a_node_at_work(tmp_path: Path) -> None:
    config = load(write_network(tmp_path, "ab", patience=0.001))
    place, told = Endpoints(connect=[config.members[0].listen]), queue.SimpleQueue[Event]()
    with Node.join(config, "a", [told.put]) as a, Node.join(config, "b") as b, session(config, "a", None) as c:
        until(lambda: answer(c) != b"")
        for _ in range(2000):
            for service in ("predict", "observe", "model"):
                c.get(f"omkl/test/a/{service}", lambda _: None, payload=b'{"x": [1, 2]}')
            c.put("omkl/test/a/observe", b"nonsense")
        learn(a, b, seed=0)
        assert json.loads(ask("test", "a", "predict", b'{"x": [1, 2]}', place, LIMIT))["round"] >= 50
        assert len(a.runtime.inbox) <= 3 * MOST_PENDING + MOST_WAITING


def answer(session: zenoh.Session) -> bytes:
    replies = session.get("omkl/test/a/predict", payload=b'{"x": [1, 2]}', timeout=LIMIT)
    return b"".join(reply.ok.payload.to_bytes() for reply in replies if reply.ok)
