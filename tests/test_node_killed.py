"""Daemons that are killed, and what their next life knows of it."""

import shutil
import signal
from pathlib import Path

import pytest

from omkl.node.config import load
from tests.node_processes import CHECKPOINT, LIMIT, Daemon, as_json, daemons, samples, write_network
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
            assert told["round"] in (19, 20)  # killed at once after its word, its last message may not have left
            for node in (a, back):
                acknowledged(node, 5)
            for node in (a, back):
                assert node.stop()[0] == 0
