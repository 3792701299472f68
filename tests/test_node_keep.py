"""What is acknowledged is kept, or told."""

import json
import logging
import threading
from concurrent.futures import Future
from pathlib import Path
from unittest.mock import Mock

import pytest

from omkl.errors import DivergedError
from omkl.node.config import NetworkConfig, load
from omkl.node.events import Event, Lost, Renewed, Scored, Unsaved
from omkl.node.node import Node
from omkl.node.persistence import Saver, count, saver
from omkl.node.protocol import MOST_WAITING, Protocol
from omkl.node.services import Services
from omkl.node.settings import Checkpoint
from tests.node_cluster import config
from tests.node_disk import MemoryDisk
from tests.node_processes import LIMIT, samples, write_network

KEPT = Path("kept")
EACH = '[checkpoint]\nfolder = "kept"\nevery = "observation"\n'
ROUNDS = '[checkpoint]\nfolder = "kept"\nevery = 5\n'


class Life:
    """A node alone, from its disk to its end."""

    def __init__(self, disk: MemoryDisk, every: int | str = 5, boot: int = 7) -> None:
        settings = Checkpoint(folder=KEPT, every=every)
        role = config(1).role("a")
        self.events: list[Event] = []
        self.saver = Saver(role, settings, boot, self.events.append, disk)
        self.node: Protocol = self.saver.protocol
        self.saver.begin(0.0)
        self.events += self.node.wake(0.0)

    def observe(self, times: int) -> int:
        """Return how many of so many were acknowledged."""
        acknowledged = pending = 0
        for _ in range(times):
            pending += 1
            events = self.node.observe([1.0, -1.0], 1, 0.0)
            if self.saver.settle():
                acknowledged, pending = acknowledged + pending, 0
            for event in events:
                self.saver.watch(event)
        return acknowledged


def crashed(disk: MemoryDisk, taken: int) -> Life:
    """Return a node after a crash: of the samples that waited in its checkpoint so many were taken since."""
    life = Life(disk)
    life.node.waiting.extend((life.node.learning.inputs([1.0, -1.0]), None) for _ in range(3))
    life.saver._write(clean=False)
    life.node.waiting.popleft()
    life.node.wake(0.0)
    life.node.taken = taken
    life.saver.settle()
    return Life(disk)


def test_samples_that_wait_in_the_checkpoint_are_not_lost() -> None:
    for taken, lost in ((2, []), (3, []), (5, [Lost(2)])):
        second = crashed(MemoryDisk(), taken)
        assert [event for event in second.events if isinstance(event, Lost)] == lost


def test_the_count_never_goes_back() -> None:
    disk = MemoryDisk()
    crashed(disk, 2)
    (content,) = disk.numbers.values()
    assert max(count.read(content)) >= 2


def test_what_a_crash_loses_is_told_once() -> None:
    disk = MemoryDisk()
    assert Life(disk).observe(13) == 13
    second = Life(disk)
    assert second.events == [Lost(3)]
    assert (second.node.taken, second.node.lost, second.node.round) == (10, 3, 10)
    assert Life(disk).events == []  # nothing more was lost
    second.observe(4)
    third = Life(disk)
    assert third.events == [Lost(4)]
    assert (third.node.taken, third.node.lost) == (10, 7)
    third.saver.end()
    fourth = Life(disk)
    assert (fourth.events, fourth.node.taken, fourth.node.lost) == ([], 10, 7)


def test_a_damaged_or_lost_file_loses_what_it_held() -> None:
    disk, file = MemoryDisk(), KEPT / "a.npz"
    Life(disk).observe(13)
    disk.files[file] = disk.files[file][:-1]
    assert Life(disk).events[-1] == Lost(8)  # the one before was of round 5
    Life(disk).observe(2)
    for path in list(disk.files):
        del disk.files[path]
    assert Life(disk).events == [Lost(15)]


def test_a_number_that_is_behind_is_put_right(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    Life(disk).observe(13)
    disk.numbers.clear()  # as a power cut may do
    again = Life(disk)
    assert again.events == []
    assert "a.count is not there; what a crash has lost is not known" in caplog.text
    again.saver.end()
    disk.numbers.clear()
    caplog.clear()
    Life(disk)  # it left in order, so nothing is lost
    Life(MemoryDisk())  # a new one
    assert not caplog.text
    assert disk.acknowledge(KEPT / "a.count", 0) == 10


def test_what_waits_in_a_checkpoint_is_not_lost() -> None:
    disk = MemoryDisk()
    life = Life(disk)
    life.observe(3)
    life.node.waiting.extend((life.node.learning.inputs([0, k]), None) for k in range(4))
    life.saver.end()
    back = Life(disk)
    assert [type(event) for event in back.events].count(Scored) == 4  # at once: it is alone
    assert not [event for event in back.events if isinstance(event, Lost)]
    assert back.node.taken == 7


def test_every_observation_is_kept_before_it_is_acknowledged() -> None:
    disk = MemoryDisk()
    for total in (4, 8):
        life = Life(disk, "observation")
        assert life.events == []
        assert life.observe(4) == 4
        assert (life.node.taken, life.node.lost) == (total, 0)
        assert life.node.neighbors.start is None


@pytest.mark.parametrize("step", range(3))
def test_what_cannot_be_kept_is_not_acknowledged(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "RETRY", 0.0)
    disk = MemoryDisk()
    life = Life(disk, "observation")
    life.observe(4)
    disk.fails_at = disk.calls + step
    assert life.observe(2) == 0
    assert [type(event) for event in life.events] == [Unsaved, Unsaved]
    assert life.saver.failure is not None
    disk.fails_at = None
    crashed = Life(disk, "observation")
    assert crashed.node.taken == 4  # nobody was told of the other two
    assert not [event for event in crashed.events if isinstance(event, Lost)]
    assert life.saver.settle()
    assert life.saver.failure is None


def test_a_disk_that_fails_is_left_alone_for_a_while() -> None:
    disk = MemoryDisk()
    life = Life(disk, "observation")
    disk.fails_at = 0
    life.observe(50)
    assert life.events.count(life.events[0]) == 1
    assert len(life.events) == 1


def test_a_checkpoint_that_cannot_be_marked_as_used_is_not_used_up() -> None:
    disk = MemoryDisk()
    life = Life(disk)
    life.observe(5)
    life.saver.end()
    disk.fails_at = 0
    second = Life(disk, boot=9)
    assert [type(event) for event in second.events] == [Unsaved, Renewed]
    assert second.node.neighbors.boot == 9
    second.observe(7)
    disk.fails_at = None
    third = Life(disk, boot=11)
    assert (third.node.neighbors.boot, third.node.round) == (7, 5)  # of it nothing was said since
    assert third.events == [Lost(7)]


def test_a_disk_without_a_number_says_so() -> None:
    class Without(MemoryDisk):
        def memory(self, path: Path, content: bytes) -> bytearray:
            raise OSError(28, "No space left on device")

    life = Life(Without())
    assert life.observe(3) == 3
    (event,) = life.events
    assert isinstance(event, Unsaved)
    assert "what a crash loses is not told" in event.why


@pytest.fixture
def each(tmp_path: Path) -> NetworkConfig:
    return load(write_network(tmp_path, "a", tables=EACH))


def test_a_node_acknowledges_when_the_disk_has_room_again(
    each: NetworkConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(saver, "RETRY", 0.0)
    caplog.set_level(logging.INFO)
    disk, done, failed = MemoryDisk(), threading.Semaphore(0), threading.Event()
    watch = [lambda event: failed.set() if isinstance(event, Unsaved) else None]
    with Node(each, "a", watch, disk=disk).start() as node:
        node.observe([0, 1], 1, done=lambda _: done.release())
        assert done.acquire(timeout=LIMIT)
        disk.fails_at = 0
        node.observe([0, 1], 1, done=lambda _: done.release())
        assert failed.wait(LIMIT)
        assert not done.acquire(blocking=False)
        assert node.unsaved is not None
        disk.fails_at = None
        assert done.acquire(timeout=LIMIT)
        node.wait(LIMIT)
        assert node.unsaved is None
    assert each.checkpoint is not None
    folder = each.checkpoint.folder
    why = f"the checkpoint of round 2 is not written to {folder}: [Errno 28] No space left on device"
    assert f"{why}; make room; it is tried again" in caplog.messages
    assert caplog.messages.count(f"checkpoints are written again, to {folder}") == 1


def test_what_is_saved_on_leaving_is_acknowledged(each: NetworkConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saver, "RETRY", 2 * LIMIT)
    disk, failed = MemoryDisk(), threading.Event()
    done: list[Scored] = []
    watch = [lambda event: failed.set() if isinstance(event, Unsaved) else None]
    with Node(each, "a", watch, disk=disk).start() as node:
        disk.fails_at = 0
        node.observe([0, 1], 1, done=done.append)
        assert failed.wait(LIMIT)
        assert done == []
        disk.fails_at = None
    assert [event.round for event in done] == [1]


def test_a_model_that_diverged_is_not_acknowledged(each: NetworkConfig) -> None:
    acknowledged: list[Scored] = []
    with Node(each, "a", disk=(disk := MemoryDisk())).start() as node:
        node.observe([0, 1], 1, done=acknowledged.append)
        node.wait(LIMIT)
        before = dict(disk.files)
        node.runtime.call(lambda: setattr(node.protocol, "diverged", True))
        with pytest.raises(DivergedError):
            node.check()
    assert disk.files == before
    assert len(acknowledged) == 1


def test_a_node_that_fails_to_start_lets_go_of_all_it_holds(
    each: NetworkConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Services, "declare", Mock(side_effect=RuntimeError("no queryable")))
        with pytest.raises(RuntimeError, match="no queryable"):
            Node.join(each, "a")
    with Node.join(each, "a") as node:  # its port, its page and its lock
        node.observe([0, 1], 1)
        node.wait(LIMIT)


def test_answers_that_wait_for_a_checkpoint_are_bounded_and_keep_nobody_waiting(tmp_path: Path) -> None:
    network = load(write_network(tmp_path, "ab", tables=EACH))
    question = b'{"x": [0, 1], "y": 1}'
    with Node(network, "a", disk=MemoryDisk()).start() as node:  # its rounds wait for b
        answers = [node.services.observe(question) for _ in range(MOST_WAITING)]
        assert not any(isinstance(answer, bytes) or answer.done() for answer in answers)
        with pytest.raises(TimeoutError, match=f"{MOST_WAITING} observations wait for their round"):
            node.services.observe(question)
        assert json.loads(node.services.predict(question))["round"] == 0
        with Node(network, "b", disk=MemoryDisk()).start() as other:
            other.end()
            first = answers[0]
            assert isinstance(first, Future)
            told = json.loads(first.result(LIMIT))
            assert told == {"waiting": told["waiting"], "round": 1, "saved": True}


def test_a_lost_count_is_in_the_status(tmp_path: Path) -> None:
    network = load(write_network(tmp_path, "a", tables=ROUNDS))
    disk = MemoryDisk()
    with Node(network, "a", disk=disk).start() as node:
        for x, y in samples(3):
            node.observe(x, y)
        node.wait(LIMIT)
    disk.acknowledge(tmp_path / "kept" / "a.count", 4)
    told: list[Event] = []
    with Node(network, "a", [told.append], disk=disk).start() as node:
        node.wait(LIMIT)
        status = node._status()
        assert (status["taken"], status["lost"], status["unsaved"]) == (3, 4, None)
    assert Lost(4) in told
