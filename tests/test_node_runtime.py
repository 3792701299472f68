"""The thread of a node, turn by turn: what waits is done together, and comes to the same."""

from collections.abc import Iterator
from concurrent.futures import Future
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omkl import wire
from omkl.node.events import Event, Gossiped, Scored
from omkl.node.neighbors import Send
from omkl.node.protocol import Protocol
from omkl.node.runtime import Call, Observation, Runtime
from omkl.node.transports import Arrival
from tests.node_cluster import config, stream

ROUNDS = 12
NETWORK = config(3, "ring")
X, Y = stream(3, ROUNDS)


class Wire:
    """A transport that writes down what is sent, and for which query."""

    def __init__(self) -> None:
        self.sent: list[tuple[Send, Any]] = []

    def send(self, send: Send, query: Any = None) -> None:
        self.sent.append((send, query))


class End:
    """A node whose turns are taken by hand."""

    def __init__(self, id: str) -> None:
        self.protocol, self.wire = Protocol(NETWORK.role(id), NETWORK.index(id), 0.0), Wire()
        self.events: list[Event] = []
        self.done: list[Any] = []
        self.runtime = Runtime(self.protocol, self.events.append, lambda: 0.0, lambda item, _: self.done.append(item))

    def turn(self) -> None:
        while len(self.runtime.inbox):
            assert self.runtime._turn(self.wire)


def arrivals() -> list[Arrival]:
    """Return what node a is sent in a run of the network, its questions and their answers included."""
    nodes = {id: Protocol(NETWORK.role(id), index, 0.0) for index, id in enumerate(NETWORK.ids)}
    for node in nodes.values():
        for peer in node.links:
            node.came(peer, 0.0)
    for index, node in enumerate(nodes.values()):
        for x, y in zip(X[:, index], Y[:, index], strict=True):
            node.observe(x, y, 0.0)
    found: list[Arrival] = []
    while sends := [(id, send) for id, node in nodes.items() for send in node.outgoing()]:
        for id, (to, data) in sends:
            for peer in nodes[id].links if to is None else [to]:
                nodes[peer].receive(id, data, 0.0)
                found += [Arrival(id, data)] if peer == "a" else []
    assert nodes["a"].round == ROUNDS
    return found


ARRIVALS = arrivals()


def replay(breaks: Iterator[bool], first: int) -> End:
    """Return node a after all arrivals, its turns taken where there is a break, or where the next depends on them.

    So many samples are there at first, the others come one by one behind the frames.
    """
    end = End("a")
    inbox = end.runtime.inbox
    samples = [Observation(x, end.protocol.learning.targets(y)) for x, y in zip(X[:, 0], Y[:, 0], strict=True)]
    for item in [Arrival(peer, came=True) for peer in end.protocol.links]:
        inbox.deliver(item)
    for sample in samples[:first]:
        end.runtime.observe(sample)
    end.turn()
    for arrival in ARRIVALS:
        assert arrival.data
        kind, _, at = wire.peek(arrival.data)
        if next(breaks) or (kind in (wire.Kind.CODED, wire.Kind.FIXED) and at > end.protocol.round + 1):
            end.turn()
        inbox.deliver(arrival)
        if at > 1 and first < ROUNDS:
            end.runtime.observe(samples[first])
            first += 1
    end.turn()
    return end


@given(st.lists(st.booleans(), min_size=1), st.integers(3, ROUNDS))
@settings(max_examples=50, deadline=None)
def test_frames_taken_in_together_come_to_the_same(breaks: list[bool], first: int) -> None:
    one_by_one, together = replay(cycle([True]), ROUNDS), replay(cycle(breaks), first)
    assert one_by_one.protocol.round == together.protocol.round == ROUNDS
    for kind in (Gossiped, Scored):
        assert [str(event) for event in together.events if isinstance(event, kind)] == [
            str(event) for event in one_by_one.events if isinstance(event, kind)
        ]
    gossip = [[send for send, _ in end.wire.sent if send.peer is None] for end in (one_by_one, together)]
    assert gossip[0] == gossip[1]
    told = [[item for item in end.done if isinstance(item, Arrival)] for end in (one_by_one, together)]
    assert told[0] == told[1]


def test_an_answer_goes_to_whoever_asked() -> None:
    end, query = End("a"), object()
    ask = wire.write_ask(7, 0, None)
    for arrival in (Arrival("b", ask), Arrival("c", ask, query)):
        end.runtime.inbox.deliver(arrival)
    end.turn()
    answers = [(send.peer, asked) for send, asked in end.wire.sent if wire.peek(send.data).kind is wire.Kind.HELLO]
    assert answers == [("b", None), ("c", query)]


def test_nothing_is_taken_behind_the_end() -> None:
    end = End("a")
    x, y = X[0, 0], end.protocol.learning.targets(Y[0, 0])
    assert end.runtime.observe(Observation(x, y))
    end.runtime.stop()
    with pytest.raises(RuntimeError, match="takes no more observations"):
        end.runtime.observe(Observation(x, y))
    assert end.runtime._turn(end.wire)
    assert len(end.protocol.waiting) == 1
    assert not end.runtime._turn(end.wire)
    assert len(end.runtime.inbox) == 0


def test_a_thread_that_comes_back_from_nothing_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    end, now = End("a"), [0.0]
    end.runtime._clock = lambda: now[0]
    stuck: list[bool] = []

    def work() -> None:
        for now[0] in (30.0, 31.0):
            stuck.append(end.runtime.is_at_one_thing(30.0))

    for _ in range(2):  # each is given its own time
        end.runtime.inbox.put(Call(work, Future()))
        now[0] = 0.0
        end.turn()
    assert stuck == [False, True] * 2
    now[0] = 99.0

    def wait(timeout: float) -> None:
        stuck.append(end.runtime.is_at_one_thing(30.0))

    monkeypatch.setattr(end.runtime.inbox, "get", wait)
    assert not end.runtime._turn(end.wire)
    assert stuck[-1] is False  # it waits
