import json
import queue
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zenoh

import omkl
from omkl.errors import DiskError, DivergedError, InputError, MissingExtraError
from omkl.node import inputs, services
from omkl.node.config import NetworkConfig, load
from omkl.node.events import Event, Gossiped, Scored
from omkl.node.node import Node
from omkl.node.persistence import checkpoint
from omkl.node.protocol import MOST_WAITING
from omkl.node.transports.zenoh import Endpoints, ask
from omkl.wire import Header, Hello, Kind
from tests.node_processes import CHECKPOINT, LIMIT, samples, write_network


@pytest.fixture
def config(tmp_path: Path) -> NetworkConfig:
    return load(write_network(tmp_path, "a"))


@pytest.fixture
def node(config: NetworkConfig) -> Iterator[Node]:
    with Node.join(config, "a") as one:
        yield one


def test_two_nodes_in_python(tmp_path: Path) -> None:
    path, rows = write_network(tmp_path), samples(60)
    with omkl.Node.join(path, "a") as a, omkl.Node.join(str(path), "b") as b:
        before = a.decision_function([1.0, 1.0])
        for x, y in rows:
            a.observe(x, y)
            b.observe(x)  # without a label: all that b knows comes from a
        for node in (a, b):
            node.wait()
        assert before.tolist() == [0.0]
        assert a.predict([1.0, 1.0]) == b.predict([1.0, 1.0]) == 1
        a.model().save(tmp_path / "a.npz")
        assert omkl.load_model(tmp_path / "a.npz").predict([[1.0, 1.0]]) == [1]
    assert a.protocol.round == b.protocol.round == 60
    a.close()  # again: nothing is left to do


def test_observations_are_done_in_order(config: NetworkConfig) -> None:
    seen: list[Event] = []
    done: list[Scored] = []
    with Node.join(config, "a", [seen.append]) as node:
        for x, y in samples(20):
            node.observe(x, y, done=done.append)
        node.wait(timeout=60)
    assert done == [event for event in seen if isinstance(event, Scored)]
    assert [event.round for event in done] == list(range(1, 21))


def client(config: NetworkConfig) -> zenoh.Session:
    """Return a session with the first node, such as a program has."""
    settings = zenoh.Config()
    settings.insert_json5("mode", '"client"')
    settings.insert_json5("connect/endpoints", json.dumps([config.members[0].listen]))
    settings.insert_json5("scouting/multicast/enabled", "false")
    return zenoh.open(settings)


def test_a_full_node_says_so(tmp_path: Path) -> None:
    config = load(write_network(tmp_path))  # b never comes: no round before the deadline
    with Node.join(config, "a") as node, client(config) as session:
        for _ in range(MOST_WAITING):
            node.observe([0, 1], 1)
        with pytest.raises(TimeoutError, match=f"{MOST_WAITING} observations wait for their round"):
            node.observe([0, 1], 1, timeout=0.01)
        (full,) = session.get("omkl/test/a/observe", payload=b'{"x": [0, 1], "y": 1}', timeout=LIMIT)
        (odd,) = session.get("omkl/test/a/observe", payload=b'{"x": [0], "y": 1}', timeout=LIMIT)
        answers = [json.loads(reply.err.payload.to_bytes()) for reply in (full, odd) if reply.err]
        assert [answer["retry"] for answer in answers] == [True, False]
        with pytest.raises(TimeoutError, match=r"observations are not taken after 0\.01 s"):
            node.wait(0.01)


def test_a_node_that_diverges_refuses_more(config: NetworkConfig) -> None:
    method = config.method.replace(loss="squared", eta=50.0)
    with Node.join(replace(config, method=method), "a") as node:

        def learn() -> None:
            for _ in range(10 * MOST_WAITING):
                node.observe([0, 1], 1)

        with pytest.raises(DivergedError, match="lower eta"):
            learn()
        with pytest.raises(DivergedError):
            node.check()


def test_a_full_disk_does_not_stop_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = load(write_network(tmp_path, "a", tables=CHECKPOINT))

    def fail(*_: object) -> None:
        raise OSError("no space left")

    node = Node.join(config, "a")
    monkeypatch.setattr(checkpoint, "save", fail)
    for x, y in samples(12):
        node.observe(x, y)
    node.wait(60)
    with pytest.raises(DiskError, match="no space left"):
        node.close()  # what is lost on leaving is told
    assert node.protocol.round == 12
    told = "is not written to {}: no space left; see to the disk; it is tried again".format(tmp_path / "kept")
    assert [text for text in caplog.messages if "round" in text] == [
        f"the checkpoint of round {t} {told}" for t in (5, 10, 12)
    ]


def test_a_watch_that_fails_does_not_end_the_node(config: NetworkConfig, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Event] = []

    def fail(*_: object) -> None:
        raise RuntimeError("mine")

    with Node(config, "a", [fail, seen.append], [fail]).start() as node:
        for x, y in samples(5):
            node.observe(x, y)
        node.wait(60)
    assert sum(isinstance(event, Scored) for event in seen) == 5
    assert [text.partition("failed; ")[2] for text in caplog.messages] == ["the node goes on; this is said once"] * 2


def test_health_waits_for_no_neighbor_that_is_refused(tmp_path: Path) -> None:
    with Node(load(write_network(tmp_path, "abc")), "b") as node:
        assert node._status()["awaited"] == ["a", "c"]
        node.protocol.links["c"].hello(Header(Kind.HELLO, 7, 0), Hello("another", None, bytes(8)), 0.0)
        assert node._status()["links"] == {"a": "connecting", "c": "refused"}
        assert node._status()["awaited"] == ["a"]


def test_health_tells_of_a_thread_that_is_stuck(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    assert node._is_well
    monkeypatch.setattr(node.runtime, "is_at_one_thing", lambda seconds: seconds == 10 * node.config.timing.deadline)
    assert not node._is_well


def test_a_closed_node_says_so(node: Node) -> None:
    node.close()
    with pytest.raises(RuntimeError, match="thread has ended"):
        node.end()


@pytest.mark.parametrize("last", ["pass", "raise SystemExit(3)", "1 / 0"])
def test_a_node_that_nobody_closed_does_not_keep_the_process(tmp_path: Path, last: str) -> None:
    path = write_network(tmp_path, "a", tables=CHECKPOINT)
    code = f"import omkl; node = omkl.Node.join({str(path)!r}, 'a'); node.observe([0, 1], 1); node.wait(); {last}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=LIMIT, check=False)
    assert done.returncode == {"pass": 0, "1 / 0": 1}.get(last, 3)
    assert (tmp_path / "kept" / "a.npz").is_file()


def test_bad_observations_are_refused_at_once(node: Node) -> None:
    with pytest.raises(InputError, match="takes 2 numbers"):
        node.observe([1.0], 1)
    with pytest.raises(InputError, match="label 3; labels of logistic loss are 0 and 1"):
        node.observe([1.0, 2.0], 3)


def test_observed_over_zenoh(config: NetworkConfig) -> None:
    scored: list[Event] = []
    refused: list[str] = []
    place = Endpoints(connect=[config.members[0].listen])
    with Node(config, "a", [scored.append], refuse=[refused.append]).start() as node:
        answer = ask("test", "a", "observe", b'{"x": [1, 2], "y": 1}', place, 20)
        assert json.loads(answer) == {"waiting": 0}
        node.wait(60)
        for wrong in (b"", b"{", b'{"x": [1]}', b'{"x": [1, 2], "y": 5}', b"\xff" * 100):
            with pytest.raises(InputError, match=r"^(not JSON|an object|x has|label 5|.*inputs)"):
                ask("test", "a", "observe", wrong, place, 20)
        assert len(refused) == 5
        assert sum(isinstance(event, Scored) for event in scored) == 1
        taken = node.protocol.round
        taking = node.services.observe(b'{"x": [1, 2]}')
        assert isinstance(taking, bytes)
        assert json.loads(taking)["waiting"] in (0, 1)
        node.wait(60)
        assert (node.protocol.round, len(refused)) == (taken + 1, 5)


def test_what_is_put_is_heard(config: NetworkConfig) -> None:
    heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with Node.join(config, "a", [heard.put]), client(config) as session:
        session.put("omkl/test/a/observe", b'{"x": [1, 2], "y": 1}')
        gossiped, scored = heard.get(timeout=60), heard.get(timeout=60)
    assert isinstance(gossiped, Gossiped)
    assert isinstance(scored, Scored)
    assert scored.loss == pytest.approx(np.log(2))


def test_without_its_extra_a_node_says_what_to_install() -> None:
    code = "import sys; sys.modules['zenoh'] = None; import omkl\ntry: omkl.Node\nexcept ImportError as e: print(e)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{MissingExtraError('zenoh', 'node')}\n"


def test_a_start_that_fails_leaves_the_checkpoint_as_it_was(tmp_path: Path) -> None:
    config = load(write_network(tmp_path, "a", tables=CHECKPOINT))
    with Node.join(config, "a") as one:
        for x, y in samples(5):
            one.observe(x, y)
        one.wait(LIMIT)
    assert config.checkpoint is not None
    before = config.checkpoint.file("a").read_bytes()
    with zenoh.open(_listening(config.members[0].listen)), pytest.raises(InputError, match="cannot be listened on"):
        Node.join(config, "a")
    assert config.checkpoint.file("a").read_bytes() == before


def _listening(endpoint: str) -> zenoh.Config:
    config = zenoh.Config()
    config.insert_json5("listen/endpoints", json.dumps([endpoint]))
    config.insert_json5("scouting/multicast/enabled", "false")
    return config


def test_a_sample_of_many_bytes_is_not_parsed() -> None:
    with pytest.raises(InputError, match=r"1048577 bytes; a sample takes 1048576 at most; send one at a time"):
        services._parsed(b" " * (inputs.MOST_BYTES + 1))


def test_a_node_runs_once(tmp_path: Path) -> None:
    config = load(write_network(tmp_path, "a", tables=CHECKPOINT))
    with (
        Node.join(config, "a"),
        pytest.raises(InputError, match=r"a\.lock is held by another process; a node runs once"),
    ):
        Node(config, "a")
    Node.join(config, "a").close()


def test_a_done_that_fails_does_not_end_the_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config, taken = load(write_network(tmp_path, "a")), queue.SimpleQueue[Scored]()

    def fail(event: Scored) -> None:
        raise ZeroDivisionError

    with Node.join(config, "a") as node:
        for done in (fail, fail, taken.put):
            node.observe([0.5, 1.0], 1, done=done)
        assert taken.get(timeout=LIMIT).round == 3
    assert sum("failed; the node goes on" in record.message for record in caplog.records) == 1
