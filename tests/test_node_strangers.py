"""Strangers who connect to a node under TLS and say nothing: real processes, few descriptors."""

import json
import socket
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from omkl.node.config import load
from tests.certificates import TLS, certify
from tests.node_processes import Daemon, as_json, samples, write_network

FILES = 256  # descriptors that the node may have
STRANGERS = 300
KEPT = '[checkpoint]\nfolder = "kept"\nevery = "observation"\n'
FED = ("--input", "-", "--predictions")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors are those of Linux")


@pytest.fixture
def network(tmp_path: Path) -> Path:
    assert certify(tmp_path / "tls", "a", "b").returncode == 0
    tables = TLS.format(tmp_path / "tls") + KEPT
    return write_network(tmp_path, scheme="tls", metrics=True, deadline=5.0, tables=tables)


@contextmanager
def strangers(network: Path) -> Iterator[None]:
    """Have more connect to the first node than it has descriptors for."""
    host, _, port = load(network).members[0].listen.removeprefix("tls/").rpartition(":")
    with ExitStack() as stack:
        for _ in range(STRANGERS):
            stranger = stack.enter_context(socket.socket())
            stranger.setblocking(False)
            with suppress(BlockingIOError):
                stranger.connect((host, int(port)))
        yield


@contextmanager
def siege(network: Path) -> Iterator[None]:
    """Have as many at the port of the second node at any time, from before it listens."""
    host, _, port = load(network).members[1].listen.removeprefix("tls/").rpartition(":")
    over, mine = threading.Event(), set[socket.socket]()

    def connect() -> None:
        while not over.wait(0.01):
            for stranger in list(mine):
                with suppress(BlockingIOError):
                    try:
                        closed = not stranger.recv(1)
                    except ConnectionError:
                        closed = True
                    if closed:
                        mine.remove(stranger)
                        stranger.close()
            while len(mine) < STRANGERS:
                stranger = socket.socket()
                stranger.setblocking(False)
                stranger.connect_ex((host, int(port)))
                mine.add(stranger)

    thread = threading.Thread(target=connect)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for stranger in mine:
            stranger.close()


def learn(nodes: list[Daemon], count: int) -> list[int]:
    """Give nodes samples, and return the round of the last that each has acknowledged."""
    for node in nodes:
        node.write(as_json(samples(count)))
    return [[json.loads(node.process.stdout.readline())["round"] for _ in range(count)][-1] for node in nodes]  # type: ignore[union-attr]


def health(network: Path, member: int = 0) -> int:
    page = load(network).members[member].metrics
    with urllib.request.urlopen(f"http://{page}/healthz", timeout=20) as answer:
        return int(answer.status)


def test_strangers_cost_neither_acknowledgements_nor_health(network: Path) -> None:
    with Daemon(network, "a", *FED, files=FILES) as a, Daemon(network, "b", *FED) as b:
        a.until("link", peer="b", after="synced")
        (before, _) = learn([a, b], 3)
        with strangers(network):
            for _ in range(3):
                rounds = learn([a, b], 5)
                # One whose samples come later takes part in the rounds of the other's meanwhile.
                assert before < min(rounds) <= max(rounds) <= before + 10
                before = min(rounds)
                assert health(network) == 200
            assert b.stop()[0] == 0
        with Daemon(network, "b", *FED) as again:
            a.until("link", peer="b", after="synced")
            learn([a, again], 3)
        assert a.stop()[0] == 0


def test_a_node_full_of_strangers_leaves_in_order(network: Path) -> None:
    with Daemon(network, "a", *FED, files=FILES) as a, Daemon(network, "b", *FED) as b:
        a.until("link", peer="b", after="synced")
        learn([a, b], 3)
        with strangers(network):
            (at, _) = learn([a, b], 5)
            assert a.stop()[0] == 0
        with Daemon(network, "a", *FED) as again:
            joined = again.until("joined")
            assert (joined["restored"], joined["lost"]) == (True, 0)
            assert at <= joined["round"] <= at + 5  # it may have taken part in the rounds of the other's samples


def test_a_node_that_starts_among_strangers_is_as_any_other(network: Path) -> None:
    with Daemon(network, "a", *FED) as a, siege(network), Daemon(network, "b", *FED, files=FILES) as b:
        b.until("link", peer="a", after="synced")
        learn([a, b], 3)
        (_, at) = learn([a, b], 5)
        assert health(network, 1) == 200
        assert b.stop()[0] == 0
    with Daemon(network, "b", *FED) as again:
        assert at <= again.until("joined")["round"] <= at + 5
