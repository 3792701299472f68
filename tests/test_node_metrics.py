import math
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from omkl.errors import InputError
from omkl.losses import Squared
from omkl.methods import Gossip
from omkl.node import web
from omkl.node.events import Dropped, Gossiped, Lost, Recovered, Resynced, Scored, Unsaved
from omkl.node.inbox import CLIENTS, STRANGERS
from omkl.node.links import LinkState
from omkl.node.metrics import Metrics
from omkl.node.neighbors import Send
from omkl.node.persistence import saved
from omkl.node.protocol import Protocol
from omkl.node.role import Role
from omkl.node.runtime import Observation, Runtime
from omkl.node.settings import Checkpoint, Timing
from omkl.node.transports import Arrival
from omkl.node.web import Page, Server
from omkl.quantizers import Nearest

NOTHING = np.zeros(1, np.float32)


METHOD = Gossip(features=2, quantizer=Nearest(step=2.5))
ROLE = Role(network="n", id="a", index=0, method=METHOD, inputs=2, seed=0, neighbors={"b": 0.3, "c": 0.3})


@pytest.fixture
def protocol() -> Protocol:
    return Protocol(ROLE, 1, 0.0)


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


def test_the_age_of_what_waits(protocol: Protocol) -> None:
    now = 100.0
    runtime = Runtime(protocol, lambda _: None, clock=lambda: now)
    metrics = Metrics(protocol, oldest=lambda: runtime.oldest)
    assert value(metrics, "observations_waiting_seconds") == 0
    protocol.came("b", now)  # which a round waits for
    for _ in range(2):
        runtime._do(Observation(np.zeros(protocol.role.inputs), None), now)
        now += 7
    assert value(metrics, "observations_waiting_seconds") == 14
    runtime._acknowledge([Scored(1, NOTHING, None)])
    assert value(metrics, "observations_waiting_seconds") == 7
    runtime._acknowledge([Scored(2, NOTHING, None)])
    assert value(metrics, "observations_waiting_seconds") == 0


def test_the_loss_follows_the_last_observations(metrics: Metrics) -> None:
    for loss in [5.0] * 1000 + [1.0] * 1000:
        metrics.watch(Scored(1, NOTHING, loss))
    assert value(metrics, "loss") == pytest.approx(1, abs=0.01)


def test_who_runs_what(metrics: Metrics) -> None:
    (build,) = (one for one in metrics.registry.collect() if one.name == "omkl_build_info")
    assert build.samples[0].labels == {"version": version("omkl"), "network": "n", "id": "a"}
    assert (build.samples[0].value, value(metrics, "round")) == (1, 0)
    if sys.platform == "linux":
        assert metrics.registry.get_sample_value("process_open_fds")


def test_the_share_of_labels_that_were_predicted_right(metrics: Metrics) -> None:
    assert math.isnan(value(metrics, "accuracy_ratio"))
    heard: list[Scored] = []
    for output, label, done in ((0.5, 1, heard.append), (0.5, -1, None), (-0.5, -1, None), (-2.0, -1, None)):
        event = Scored(1, np.array([output], np.float32), 0.3)
        score = metrics.scoring(np.array([label], np.float32), done)
        assert score is not None
        score(event)
    assert value(metrics, "accuracy_ratio") == 0.75
    assert len(heard) == 1
    assert metrics.scoring(None, None) is None


def test_targets_that_are_no_classes_have_no_accuracy() -> None:
    metrics = Metrics(Protocol(replace(ROLE, method=replace(METHOD, loss=Squared())), 1, 0.0))
    assert value(metrics, "accuracy_ratio") is None
    assert metrics.scoring(np.array([1.5], np.float32), None) is None


def test_disagreement_is_with_neighbors_in_step(metrics: Metrics, protocol: Protocol) -> None:
    assert math.isnan(value(metrics, "disagreement"))
    own = protocol.learning.hidden
    for peer, apart in (("b", 3.0), ("c", 4.0)):
        link = protocol.links[peer]
        link.copy[...] = own + apart / own.size**0.5
        link.state = LinkState.SYNCED
    assert value(metrics, "disagreement") == pytest.approx(12.5**0.5)
    protocol.links["c"].state = LinkState.LEFT_OUT
    assert value(metrics, "disagreement") == pytest.approx(3)
    assert value(metrics, "model_norm") == 0


def test_how_far_neighbors_are_ahead(metrics: Metrics, protocol: Protocol) -> None:
    assert math.isnan(value(metrics, "peer_rounds_ahead", peer="b"))
    protocol.learning.round = 10
    for peer, at, inbox, shown in (("b", 10, {11: b"", 12: b""}, 10), ("c", 3, {}, 4)):
        link = protocol.links[peer]
        link.boot, link.round, link.inbox, link.shown = 1, at, inbox, shown
    assert [value(metrics, "peer_rounds_ahead", peer=peer) for peer in "bc"] == [2, -6]
    timed = replace(ROLE, timing=Timing(mode="timer"))
    assert value(Metrics(Protocol(timed, 1, 0.0)), "peer_rounds_ahead", peer="b") is None


def test_what_is_in_no_checkpoint(tmp_path: Path) -> None:
    with saved(ROLE, Checkpoint(folder=tmp_path, every=2), 1, lambda _: None) as saver:
        metrics = Metrics(saver.protocol, saver)
        seen = []
        for taken in range(1, 6):
            saver.protocol.observe([0.5, 1.0], 1, 0.0)
            saver.protocol.taken = taken
            saver.watch(Gossiped(taken, 30, 0))
            seen.append(value(metrics, "observations_unsaved"))
        assert seen == [1, 0, 1, 0, 1]
        assert value(metrics, "observations_waiting") == 5
        saver.end()
    with saved(ROLE, Checkpoint(folder=tmp_path), 2, lambda _: None) as again:
        assert again.protocol.taken == 5
        assert value(Metrics(again.protocol, again), "observations_unsaved") == 0


def test_a_page_for_other_machines_too() -> None:
    for host, near in (("0.0.0.0", "127.0.0.1"), ("[::]", "[::1]")):
        try:
            one = Server(f"{host}:0", {"/healthz": lambda: Page(200, "text/plain", b"yes")}).start()
        except InputError:
            assert host == "[::]"  # a machine without IPv6
            continue
        with urllib.request.urlopen(f"http://{near}:{one.server_address[1]}/healthz", timeout=10) as answer:
            assert answer.read() == b"yes"
        one.close()


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


def test_a_client_that_sends_byte_by_byte_is_hung_up_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    address, begun = ("127.0.0.1", server.server_address[1]), time.monotonic()
    held = [socket.create_connection(address, timeout=10) for _ in range(web.MOST_REQUESTS)]
    while len(server._since) < len(held):
        assert time.monotonic() < begun + 60
        time.sleep(0.01)
    monkeypatch.setattr(web, "time", SimpleNamespace(monotonic=lambda: begun + web.TIMEOUT + 60))
    for one in held:
        with suppress(OSError):  # hung up on already
            one.sendall(b"G")
        with suppress(ConnectionResetError):
            assert one.recv(1) == b""
        one.close()
