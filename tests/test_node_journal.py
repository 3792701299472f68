import errno
import json
import logging
import os
import select
import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from omkl.node import journal as journals
from omkl.node.events import Begun, Differs, Diverged, Dropped, Gossiped, Moved, Recovered, Renewed, Resynced, Scored
from omkl.node.journal import BURST, LINK_BURST, PAUSE, PROGRESS, Journal, JsonLines, TextLines, Throttle, Writer
from omkl.node.links import LinkState
from omkl.node.transports import Arrival
from omkl.wire import Kind

NOTHING = np.zeros(1, np.float32)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(clock: Clock, caplog: pytest.LogCaptureFixture) -> Iterator[Journal]:
    with caplog.at_level(logging.INFO, logger="omkl.node.journal"):
        yield Journal("a", {"b": "tcp/h:1", "c": None}, every=10, clock=clock)


def test_events_become_lines(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    journal.watch(Moved("b", LinkState.SYNCING, LinkState.SYNCED, "level at its round 3"))
    journal.watch(Moved("b", LinkState.SYNCED, LinkState.LEFT_OUT, "silent for 5 s"))
    journal.watch(Resynced("b", 7))
    journal.watch(Recovered("b", 8))
    journal.watch(Renewed(5, "b knows round 9 of it, the checkpoint 3"))
    journal.watch(Diverged(9))
    assert [(record.levelname, record.getMessage()) for record in caplog.records[:5]] == [
        ("INFO", "b is synced: nothing is missing, from its round 3 on"),
        ("WARNING", "b is left out: silent for 5 s"),
        ("INFO", "the copy of b is replaced by a snapshot of its round 7"),
        ("INFO", "what this node had learned until round 8 is back: b had kept it, up to rounding"),
        ("WARNING", "takes boot 5 in place of its own: b knows round 9 of it, the checkpoint 3"),
    ]
    assert caplog.records[5].levelname == "ERROR"
    assert "not finite after round 9" in caplog.messages[5]
    assert "lower eta" in caplog.messages[5]


def test_progress_is_told_every_so_many_rounds_but_not_too_often(
    journal: Journal, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for t in range(1, 41):
        clock.now += 0.125 if t <= 20 else 0.001
        journal.watch(Gossiped(t, 30, 2))
        for _ in range(4):
            journal.watch(Scored(t, NOTHING, 0.5 if t % 2 else None))
    alone = "2 of 2 neighbors, as none was ever reached"  # nobody has come by the transport
    assert caplog.messages == [
        f"round 10: loss 0.5000, 30.0 bytes a round, {alone}, 8 rounds/s",
        f"round 20: loss 0.5000, 30.0 bytes a round, {alone}, 8 rounds/s",
    ]


def test_a_mean_of_few_losses_is_not_told(journal: Journal, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    journal.tap(Arrival("b", came=True), [])
    for t in (10, 20, 30, 40):
        clock.now += 2 * PROGRESS
        for k in range(3 if t < 40 else 11):
            journal.watch(Scored(t, NOTHING, 0.1 * t if k < 40 else None))
        journal.watch(Gossiped(t, 30, 1))
    told = [text.partition(", 30.0 bytes")[0] for text in caplog.messages[1:]]
    assert told == [
        "round 10: 3 labels so far, too few for a mean loss",
        "round 20: 6 labels so far, too few for a mean loss",
        "round 30: 9 labels so far, too few for a mean loss",
        "round 40: loss 3.1000",
    ]
    assert caplog.messages[1].endswith("1 of 2 neighbors, 0.5 rounds/s")


def test_what_is_refused_stands_beside_the_loss(
    journal: Journal, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    journal.tap(Arrival("b", came=True), [])
    for t, refused in ((10, 1), (20, 3)):
        clock.now += 2 * PROGRESS
        for _ in range(refused):
            journal.refuse("label 7")
        for _ in range(2):
            journal.watch(Scored(t, NOTHING, 0.5))
        journal.watch(Gossiped(t, 30, 2))
    told = [(one.levelname, one.getMessage()) for one in caplog.records if one.omkl["event"] == "progress"]  # type: ignore[attr-defined]
    assert told[0] == (
        "INFO",
        "round 10: 2 labels so far, too few for a mean loss, 30.0 bytes a round, 2 of 2 neighbors, 0.5 rounds/s, "
        "1 observations refused",
    )
    assert told[1][0] == "WARNING"
    assert told[1][1].endswith(", 3 observations refused")


def test_a_flood_is_told_in_few_lines(journal: Journal, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="omkl.node.journal")
    for k in range(1000):
        journal.watch(Dropped(f"stranger{k}", "is no neighbor"))
        journal.watch(Dropped("b", "round 3 again"))
    assert len(caplog.messages) == 2 * BURST
    clock.now += PAUSE
    journal.watch(Dropped("b", "round 3 again"))
    assert caplog.messages[-1] == f"bytes from b dropped: round 3 again ({1000 - BURST} more like it were left out)"


def test_a_neighbor_with_ever_new_boots_fills_no_log(
    journal: Journal, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for k in range(12_000):
        clock.now += 0.1
        journal.watch(Moved("b", LinkState.SYNCED, LinkState.CONNECTING, f"boot {k} in place of {k - 1}"))
        journal.watch(Resynced("b", k))
        journal.watch(Renewed(k, "b knows more"))
        journal.watch(Differs("b"))
        for came in (False, True):
            journal.tap(Arrival("b", came=came), [])
        journal.remind()
    assert len([record for record in caplog.records if record.omkl["event"] == "link"]) == 8 * LINK_BURST  # type: ignore[attr-defined]
    assert len(caplog.messages) < 800  # in twenty minutes
    journal.watch(Moved("c", LinkState.SYNCED, LinkState.LEFT_OUT, "silent"))
    assert caplog.messages[-1] == "c is left out: silent"


def test_what_was_held_back_last_is_told_in_the_end(
    journal: Journal, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        journal.watch(Moved("b", LinkState.SYNCED, LinkState.SYNCING, "round 3 after 1"))
    journal.watch(Moved("b", LinkState.SYNCING, LinkState.SYNCED, "level at its round 3"))
    journal.tap(Arrival("b", came=True), [])
    journal.tap(Arrival("c", came=True), [])
    caplog.clear()
    journal.remind()
    assert caplog.messages == []
    clock.now += PAUSE
    journal.remind()
    journal.remind()
    (told,) = caplog.messages
    assert told.startswith("b is synced: nothing is missing, from its round 3 on (")
    assert told.endswith(" more like it were left out)")


def test_one_that_is_held_back_is_told_in_good_english(
    journal: Journal, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(BURST + 1):
        journal.refuse("label 7")
    clock.now += PAUSE
    journal.refuse("label 8")
    assert caplog.messages[-1] == "no observation, skipped: label 8 (1 more like it was left out)"


def test_neighbors_are_counted_as_away_from_the_beginning(
    journal: Journal, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.now += 10
    journal.begin()
    clock.now += 0.5
    assert (journal.away("b"), journal.away("nobody")) == (0.5, 0)
    journal.tap(Arrival("b", came=True), [])
    assert caplog.messages == ["b is reached after 0.5 s"]
    assert journal.away("b") == 0


def test_who_has_not_answered_is_told_in_good_english(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    for awaited in (("b",), ("b", "c")):
        journal.watch(Begun(awaited))
    assert caplog.messages == [
        "takes its first round, though b has not answered yet; what it has kept of this node's models is taken when it "
        "comes",
        "takes its first round, though b, c have not answered yet; what they have kept of this node's models is taken "
        "when it comes",
    ]


def test_two_processes_under_one_id_are_told(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    def hear(*boots: int) -> list[str]:
        caplog.clear()
        for boot in boots:
            journal.tap(Arrival("b", bytes([Kind.HELLO, boot, 0])), [])
        return caplog.messages

    assert hear(1, 1, 2, 2, 1, 2, 3, 3, 3, 4, 5, 6) == []  # a late frame; restarts
    assert hear(7, 8, 7, 8, 7) == []
    for data in (b"", bytes([Kind.CODED, 9, 0]), bytes([Kind.KEPT, 9, 0])):  # no boot of its own
        journal.tap(Arrival("b", data), [])
    assert hear(8) == ["two processes speak as b, under the boots 7 and 8; end one of them"]


def test_throttle() -> None:
    throttle = Throttle(pause=10, burst=2)
    assert [throttle.pass_on("k", now) for now in (0, 1, 2, 3, 9, 10, 11, 12, 30, 31)] == [
        0, 0, None, None, None, 3, 0, None, 1, 0,
    ]  # fmt: skip
    assert throttle.pass_on("other", 12) == 0


def test_who_is_waited_for_is_told_ever_more_rarely(
    journal: Journal, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    told = []
    for _ in range(240):
        clock.now += 0.125
        journal.remind()
        if caplog.messages:
            told.append(round(clock.now - 100, 1))
            assert caplog.messages == ["waits for b (tried at tcp/h:1), c (which connects here)"]
            caplog.clear()
    assert told == [2.0, 6.0, 14.0, 30.0]
    journal.tap(Arrival("b", came=True), [])
    assert caplog.messages == ["b is reached after 30.0 s"]
    journal.tap(Arrival("c", came=True), [])
    journal.tap(Arrival("stranger", came=True), [])
    journal.tap(Arrival("c"), [])
    clock.now += 60
    caplog.clear()
    journal.remind()
    assert caplog.messages == ["waits for c (which connects here)"]


def test_lines_as_text_and_json(journal: Journal, caplog: pytest.LogCaptureFixture) -> None:
    journal.say(logging.WARNING, "link", "b is\nleft out", peer="b", state=LinkState.LEFT_OUT)
    (record,) = caplog.records
    record.created = 0.0
    assert TextLines().format(record) == "1970-01-01T00:00:00.000Z a: warning [link]: b is\nleft out"
    line = JsonLines().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "warning",
        "node": "a",
        "event": "link",
        "peer": "b",
        "state": "left out",
        "message": "b is\nleft out",
    }


def test_a_log_that_nobody_reads_keeps_nobody_waiting_and_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "MOST_LINES", 5)
    monkeypatch.setattr(journals, "LAST_WORDS", 0.01)
    reading, writing = os.pipe()
    while select.select([], [writing], [], 0)[1]:
        os.write(writing, b"." * select.PIPE_BUF)
    log = Writer(writing)
    log.setFormatter(TextLines())
    about = {"levelno": logging.INFO, "omkl": {"node": "a"}}
    told = [logging.makeLogRecord({"msg": f"line {k}"} | about) for k in range(20)]
    log.handle(told[0])
    while log._lines:  # the thread has it in its hands
        time.sleep(0.01)
    for record in told[1:]:
        log.handle(record)
    log.flush()  # gives up
    assert len(log._lines) == 5
    text = b""
    while b"line 5" not in text or not text.endswith(b"full\n"):
        text += os.read(reading, 65536)
    log._patience = None  # type: ignore[assignment]
    log.handle(told[0])
    log.flush()
    text += os.read(reading, 65536)
    words = [line.partition(" ")[2] for line in text.lstrip(b".").decode().splitlines()]
    lacks = "a: warning [unlogged]: 14 lines of this log were not written: nobody read it, or its disk was full"
    assert words == [*(f"a: line {k}" for k in range(6)), lacks, "a: line 0"]
    for end in (reading, writing):
        os.close(end)


def test_a_log_on_a_full_disk_goes_on_with_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, written = [9, -1, -1, 1000, 1000, 1000], b""

    def write(_: int, data: bytes) -> int:
        nonlocal written
        if (room := taken.pop(0)) < 0:
            raise OSError(errno.ENOSPC, "full")
        written += data[:room]
        return min(room, len(data))

    monkeypatch.setattr(journals, "os", SimpleNamespace(write=write))
    log = Writer(1)
    log.setFormatter(logging.Formatter("%(message)s"))
    for text in ("first line", "second line", "third line"):
        log.handle(logging.makeLogRecord({"msg": text}))
        log.flush()
    lacks = b"2 lines of this log were not written: nobody read it, or its disk was full"
    assert written == b"first lin\n" + lacks + b"\nthird line\n"
