"""Daemons that are killed, and what their next life knows of it."""

import json
import os
import resource
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from omkl.cli.exits import Exit
from omkl.errors import InputError
from omkl.node.config import load
from omkl.node.transports import zenoh
from omkl.node.transports.zenoh import Endpoints
from tests.node_processes import CHECKPOINT, LIMIT, Daemon, as_json, daemons, omkl, samples, write_network
from tests.test_cli_node import get

FED = ("--input", "-", "--predictions")
EACH = CHECKPOINT.replace("every = 5", 'every = "observation"')


def feed(node: Daemon, count: int, seed: int = 0) -> None:
    """Give a node observations, and wait until each is acknowledged."""
    node.write(as_json(samples(count, seed)))
    acknowledged(node, count)


def acknowledged(node: Daemon, count: int) -> None:
    assert node.process.stdout
    for _ in range(count):
        assert node.process.stdout.readline()


def kill(node: Daemon) -> None:
    node.process.send_signal(signal.SIGKILL)
    assert node.process.wait(LIMIT) == -signal.SIGKILL


@pytest.mark.parametrize("mode", ["lockstep", "timer"])
def test_what_was_read_before_a_node_is_told_to_leave_is_not_lost(tmp_path: Path, mode: str) -> None:
    path = write_network(tmp_path, "a", tables=CHECKPOINT.replace("every = 5", "every = 1000000"))
    path.write_text(path.read_text().replace("[timing]", f'[timing]\nmode = "{mode}"\nperiod = 0.01'))
    (tmp_path / "a.jsonl").write_text(as_json(samples(1000)) * 200)
    with Daemon(path, "a", "--input", tmp_path / "a.jsonl") as a:
        a.until("progress")  # in the middle of its stream
        code, told = a.stop()
    assert (code, told["lines"] > told["taken"] - 1 > 0) == (Exit.OK, True)
    with Daemon(path, "a") as a:
        joined = a.until("joined", restored=True)
        assert joined["lost"] == 0
        assert a.stop()[0] == Exit.OK
    with Daemon(path, "a") as a:
        assert a.until("joined", restored=True)["taken"] == told["lines"]


@pytest.mark.parametrize(("table", "lost"), [(CHECKPOINT, 3), (EACH, 0)], ids=["rounds", "observation"])
def test_what_a_kill_loses_is_counted(tmp_path: Path, table: str, lost: int) -> None:
    path = write_network(tmp_path, "a", metrics=True, tables=table)
    with Daemon(path, "a", *FED) as a:
        feed(a, 13)
        kill(a)
    with Daemon(path, "a", *FED) as a:
        joined = a.until("joined", restored=True)
        assert (joined["round"], joined["taken"], joined["lost"]) == (13 - lost, 13 - lost, lost)
        if lost:
            told = a.until("lost")
            assert (told["observations"], told["level"]) == (lost, "warning")
        feed(a, 2, seed=1)
        assert f"omkl_observations_lost_total {lost}.0" in get(load(path).members[0].metrics or "", "/metrics")[1]
        assert f'"taken": {15 - lost}, "lost": {lost}' in get(load(path).members[0].metrics or "", "/healthz")[1]
        assert a.stop()[0] == 0
    with Daemon(path, "a") as a:
        joined = a.until("joined", restored=True)
        assert (joined["taken"], joined["lost"]) == (15 - lost, lost)


def test_a_lost_disk_is_given_back(tmp_path: Path) -> None:
    path = write_network(tmp_path, deadline=10.0, tables=CHECKPOINT)
    with daemons(path, "a", "b", args=FED) as (a, b):
        for node in (a, b):
            node.until("link", after="synced")
            node.write(as_json(samples(20)))
        for node in (a, b):
            acknowledged(node, 20)
        kill(b)
        shutil.rmtree(tmp_path / "kept")
        with Daemon(path, "b", *FED) as back:
            assert back.until("joined")["restored"] is False
            for node in (a, back):
                node.write(as_json(samples(5, seed=1)))
            told = back.until("recovered", peer="a")
            # Killed at once after its word, its last message may not have left; and it may have taken part in rounds of
            # the other's samples.
            assert 19 <= told["round"] <= 40
            for node in (a, back):
                acknowledged(node, 5)
            for node in (a, back):
                assert node.stop()[0] == 0


# What is acknowledged, and where: the count, the zenoh key, the predictions


def count_of(network: Path, id: str = "a") -> Path:
    return network.parent / "kept" / f"{id}.count"


def aged(network: Path, samples: int = 13) -> Path:
    """Return the count of a node that was killed after so many observations."""
    with Daemon(network, "a", *FED) as a:
        feed(a, samples)
        kill(a)
    return count_of(network)


@pytest.mark.parametrize("bit", [0, 3, 40, 63, 8 * 8 + 5])
def test_a_count_with_a_flipped_bit_is_not_believed(tmp_path: Path, bit: int) -> None:
    count = aged(path := write_network(tmp_path, "a", tables=CHECKPOINT))
    content = bytearray(count.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    count.write_bytes(content)
    with Daemon(path, "a", *FED) as a:
        joined = a.until("joined", restored=True)
        assert joined["lost"] <= 3
        assert "a.count" in a.until("damaged")["file"]
        feed(a, 2, seed=1)
        assert a.stop()[0] == 0


@pytest.mark.parametrize("content", [b"\xff" * 8, b"\xff" * 32, b"", b"\x0d\0\0"], ids=["8", "32", "empty", "cut"])
def test_a_count_that_makes_no_sense_keeps_no_node_from_its_work(tmp_path: Path, content: bytes) -> None:
    count = aged(path := write_network(tmp_path, "a", tables=CHECKPOINT))
    count.write_bytes(content)
    for taken in (10, 17):
        with Daemon(path, "a", *FED) as a:
            joined = a.until("joined", restored=True)
            assert (joined["taken"], joined["lost"]) == (taken, 0)
            if taken == 10:
                assert "a.count" in a.until("damaged")["file"]
            feed(a, 7, seed=1)
            assert a.stop()[0] == 0


def test_a_folder_that_was_removed_and_made_again_is_told_of_and_counts_again(tmp_path: Path) -> None:
    path, kept = write_network(tmp_path, "a", tables=CHECKPOINT), tmp_path / "kept"
    with Daemon(path, "a", *FED) as a:
        feed(a, 7)
        shutil.rmtree(kept)
        kept.mkdir()
        feed(a, 6, seed=1)
        told = a.until("damaged", level="warning")
        assert (told["file"], told["why"]) == (str(count_of(path)), "was removed or cut short; it is written anew")
        reset = omkl("node", "reset", "--id", "a", "--network", path, plain=True, stderr=subprocess.PIPE)
        assert "a.lock is held by another process" in reset.communicate(timeout=LIMIT)[1]
        kill(a)
    with Daemon(path, "a") as a:
        joined = a.until("joined", restored=True)
        assert (joined["taken"], joined["lost"]) == (10, 3)


def test_a_count_that_is_cut_short_while_a_node_runs_does_not_end_it(tmp_path: Path) -> None:
    path = write_network(tmp_path, "a", tables=CHECKPOINT)
    with Daemon(path, "a", *FED) as a:
        feed(a, 7)
        os.truncate(count_of(path), 0)  # as who copies a file over it does
        feed(a, 6, seed=1)
        kill(a)
    with Daemon(path, "a") as a:
        joined = a.until("joined", restored=True)
        assert (joined["taken"], joined["lost"]) == (10, 3)


def test_a_crash_without_a_count_says_that_it_knows_no_number(tmp_path: Path) -> None:
    aged(path := write_network(tmp_path, "a", tables=CHECKPOINT)).unlink()
    with Daemon(path, "a") as a:
        assert a.until("damaged", level="warning")["why"] == "is not there; what a crash has lost is not known"
        assert a.stop()[0] == 0
    count_of(path).unlink()
    with Daemon(path, "a") as a:  # it left in order
        a.until("joined")
        assert a.stop()[0] == 0
        assert "damaged" not in [told["event"] for told in a.events]


def test_a_node_that_leaves_without_its_folder_ends_as_after_a_disk_that_fails(tmp_path: Path) -> None:
    path = write_network(tmp_path, "a", tables=CHECKPOINT)
    with Daemon(path, "a", "--input", "-", "--predictions") as a:
        feed(a, 3)
        shutil.rmtree(tmp_path / "kept")
        a.process.send_signal(signal.SIGTERM)
        assert a.process.wait(LIMIT) == Exit.DISK
        assert a.process.stderr
        assert "omkl: error: the last checkpoint is not written (" in a.process.stderr.read()


def ask(network: Path, key: str, question: dict[str, Any], timeout: float) -> dict[str, Any]:
    config = load(network)
    there = Endpoints(connect=[config.members[0].listen])
    told: dict[str, Any] = json.loads(zenoh.ask(config.name, "a", key, json.dumps(question).encode(), there, timeout))
    return told


def at_work(network: Path) -> None:
    """Wait until a node answers, which it does a moment after it has joined."""
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        with suppress(InputError):
            ask(network, "predict", {"x": [0, 0]}, 5.0)
            return


def test_an_observation_over_zenoh_is_acknowledged_when_it_is_saved(tmp_path: Path) -> None:
    path = write_network(tmp_path, tables=EACH)
    sample = {"x": [0.5, -1.0], "y": 1}
    with Daemon(path, "a") as a:
        at_work(path)
        with pytest.raises(InputError, match="has not answered"):  # it waits for a round, which waits for b
            ask(path, "observe", sample, 2.0)
        assert ask(path, "predict", sample, LIMIT)["round"] == 0  # others are answered meanwhile
        with Daemon(path, "b", "--input", "-") as b:
            b.until("joined")
            told = ask(path, "observe", sample, LIMIT)
            kill(a)
            assert told["round"] == 2
            assert told["saved"] is True
            with Daemon(path, "a") as back:
                joined = back.until("joined", restored=True)
                assert (joined["taken"], joined["lost"]) == (2, 0)


LIMITED = pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="a process is limited from outside, by prlimit")


@contextmanager
def limited(node: Daemon, what: int, most: int) -> Iterator[None]:
    """Let a process have no more of something."""
    before = resource.prlimit(node.process.pid, what)
    resource.prlimit(node.process.pid, what, (most, before[1]))
    yield
    with suppress(ProcessLookupError):  # it has left
        resource.prlimit(node.process.pid, what, before)


@LIMITED
def test_what_is_not_saved_for_want_of_descriptors_is_acknowledged_when_there_are_some(tmp_path: Path) -> None:
    path = write_network(tmp_path, "a", tables=EACH)
    with Daemon(path, "a", *FED) as a:
        feed(a, 3)
        with limited(a, resource.RLIMIT_NOFILE, 3):
            a.write(as_json(samples(1)))
            assert "Too many open files" in a.until("unsaved", level="warning")["why"]
        acknowledged(a, 1)
        kill(a)
    with Daemon(path, "a", *FED) as a:
        joined = a.until("joined", restored=True)
        assert (joined["taken"], joined["lost"]) == (4, 0)


@LIMITED
def test_predictions_go_on_when_there_is_room_again(tmp_path: Path) -> None:
    path, written, most = write_network(tmp_path, "a"), tmp_path / "predictions", 4096
    with written.open("wb") as output, Daemon(path, "a", *FED, stdout=output) as a:
        a.until("joined")
        with limited(a, resource.RLIMIT_FSIZE, most):
            a.write(as_json(samples(240)))
            assert "File too large" in a.until("unwritten", level="warning")["why"]
            assert written.stat().st_size == most
        a.until("written")
        a.end_input()
        lines = iter(lambda: written.read_bytes().count(b"\n"), 240)
        until = time.monotonic() + LIMIT
        for _ in lines:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert a.stop()[1]["taken"] == 240
    assert [json.loads(line)["line"] for line in written.read_text().splitlines()] == list(range(1, 241))


@LIMITED
def test_what_is_learned_and_not_acknowledged_is_told_apart(tmp_path: Path) -> None:
    path, written = write_network(tmp_path, "a"), tmp_path / "predictions"
    with written.open("wb") as output, Daemon(path, "a", *FED, stdout=output) as a:
        a.until("joined")
        with limited(a, resource.RLIMIT_FSIZE, 4096):
            a.write(as_json(samples(240)))
            a.until("unwritten")
            code, told = a.stop()
    assert (code, told["unwritten"]) == (Exit.OK, told["lines"] - told["taken"])
    assert f"; {told['unwritten']} more are learned, and their predictions are not written" in told["message"]
    assert "that it had read" not in told["message"]


def test_a_second_word_while_it_leaves_changes_nothing(tmp_path: Path) -> None:
    with Daemon(write_network(tmp_path, "a", tables=CHECKPOINT), "a") as a:
        a.until("inputs")
        a.process.send_signal(signal.SIGTERM)
        a.until("left")
        a.process.send_signal(signal.SIGTERM)
        assert a.process.wait(LIMIT) == Exit.OK


@LIMITED
def test_a_log_for_which_there_is_no_room_stops_nothing(tmp_path: Path) -> None:
    path, written = write_network(tmp_path, "a"), tmp_path / "log"
    with written.open("wb") as log, Daemon(path, "a", *FED, stderr=log) as a:
        feed(a, 1)
        with limited(a, resource.RLIMIT_FSIZE, written.stat().st_size):
            a.write("bad\n")
            feed(a, 5)
            a.process.send_signal(signal.SIGTERM)
            assert a.process.wait(LIMIT) == Exit.OK
    assert json.loads(written.read_text().splitlines()[-1])["event"] == "inputs"


def test_a_log_that_nobody_reads_stops_nothing(tmp_path: Path) -> None:
    path, (reading, writing) = write_network(tmp_path, "a"), os.pipe()
    with Daemon(path, "a", *FED, stderr=writing) as a:
        text = b""
        while b'"inputs"' not in text:
            text += os.read(reading, 65536)
        while select.select([], [writing], [], 0)[1]:
            os.write(writing, b"." * select.PIPE_BUF)
        feed(a, 1)
        a.write("bad\n" * 10)
        feed(a, 5)
        a.process.send_signal(signal.SIGTERM)
        assert a.process.wait(LIMIT) == Exit.OK
    for end in (reading, writing):
        os.close(end)
