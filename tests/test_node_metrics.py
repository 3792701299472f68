import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from omkl.errors import InputError
from omkl.methods import Gossip
from omkl.node.events import Dropped, Gossiped, Lost, Recovered, Resynced, Scored, Unsaved
from omkl.node.inbox import CLIENTS, STRANGERS
from omkl.node.metrics import Metrics
from omkl.node.neighbors import Send
from omkl.node.protocol import Protocol
from omkl.node.role import Role
from omkl.node.transports import Arrival
from omkl.node.web import Page, Server
from omkl.quantizers import Nearest

NOTHING = np.zeros(1, np.float32)


@pytest.fixture
def protocol() -> Protocol:
    method = Gossip(features=2, quantizer=Nearest(step=2.5))
    role = Role(network="n", id="a", index=0, method=method, inputs=2, seed=0, neighbors={"b": 0.3, "c": 0.3})
    return Protocol(role, 1, 0.0)


@pytest.fixture
def metrics(protocol: Protocol) -> Metrics:
    return Metrics(protocol)


def value(metrics: Metrics, name: str, **labels: str) -> Any:
    return metrics.registry.get_sample_value(f"omkl_{name}", labels)


def test_bytes_are_counted_for_who_is_in_reach(metrics: Metrics, protocol: Protocol) -> None:
    protocol.links["b"].reachable = True
    metrics.tap(None, [Send(None, b"12345"), Send("c", b"123")])
    metrics.tap(Arrival("b", b"1234567"), [])
    metrics.tap(Arrival("b", came=True), [])
    metrics.tap(Arrival("stranger", b"1"), [])
    assert [value(metrics, "sent_bytes_total", peer=peer) for peer in "bc"] == [5, 3]
    assert [value(metrics, "received_bytes_total", peer=peer) for peer in "bc"] == [7, 0]


def dropped(metrics: Metrics, peer: str) -> Any:
    return value(metrics, "frames_dropped_total", peer=peer, reason="size" if peer == CLIENTS else "content")


def test_events_are_counted(metrics: Metrics) -> None:
    for loss in (0.5, 1.5, None):
        metrics.watch(Gossiped(1, 30, 2))
        metrics.watch(Scored(1, NOTHING, loss))
    metrics.watch(Resynced("b", 3))
    metrics.watch(Dropped("c", "why"))
    metrics.watch(Dropped("stranger", "why"))
    metrics.watch(Lost(4))
    metrics.watch(Unsaved(3, "why"))
    metrics.watch(Recovered("c", 3))
    metrics.watch(Dropped(CLIENTS, "why", "size", 7))
    metrics.refuse()
    assert value(metrics, "observations_lost_total") == 4
    assert value(metrics, "checkpoint_failures_total") == 1
    assert [value(metrics, "recoveries_total", peer=peer) for peer in "bc"] == [0, 1]
    assert value(metrics, "rounds_total") == 3
    assert value(metrics, "round_duration_seconds_count") == 2
    assert value(metrics, "loss") == 1.0
    kinds = [value(metrics, "observations_total", kind=kind) for kind in ("labelled", "unlabelled", "bad")]
    assert kinds == [2, 1, 1]
    assert value(metrics, "resyncs_total", peer="b") == 1
    assert [dropped(metrics, peer) for peer in ("b", "c", STRANGERS, CLIENTS)] == [0, 1, 1, 7]
    assert dropped(metrics, "stranger") is None


def test_links_are_shown_as_they_are(metrics: Metrics, protocol: Protocol) -> None:
    assert value(metrics, "peer_up", peer="b") == 0
    protocol.came("b", 0.0)
    assert (value(metrics, "peer_up", peer="b"), value(metrics, "peer_up", peer="c")) == (1, 0)
    assert value(metrics, "link_state", peer="b", state="connecting") == 1
    assert value(metrics, "link_state", peer="b", state="left_out") == 0


def test_the_loss_follows_the_last_observations(metrics: Metrics) -> None:
    for loss in [5.0] * 1000 + [1.0] * 1000:
        metrics.watch(Scored(1, NOTHING, loss))
    assert value(metrics, "loss") == pytest.approx(1, abs=0.01)


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server("127.0.0.1:0", {"/healthz": lambda: Page(503, "text/plain", b"no")}).start()
    yield one
    one.close()


def test_pages(server: Server) -> None:
    base = f"http://127.0.0.1:{server.server_address[1]}"
    for path, status, body in (("/healthz?x", 503, b"no"), ("/", 404, b"known: /healthz\n")):
        with pytest.raises(urllib.error.HTTPError) as answered:
            urllib.request.urlopen(base + path, timeout=10)
        with answered.value as answer:
            assert (answer.code, answer.read()) == (status, body)


def test_a_port_that_is_taken_is_refused(server: Server) -> None:
    with pytest.raises(
        InputError, match=rf"metrics: 127.0.0.1:{server.server_address[1]} cannot be .* is the port taken"
    ):
        Server(f"127.0.0.1:{server.server_address[1]}", {})


def test_idle_clients_do_not_fill_the_process(server: Server) -> None:
    held = [socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10) for _ in range(12)]
    turned_away = [one for one in held[8:] if one.recv(1) == b""]
    for one in held:
        one.close()
    assert len(turned_away) == 4
