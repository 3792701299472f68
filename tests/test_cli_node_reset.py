"""``omkl node reset``: a node that is to start anew."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from omkl.cli.app import app
from omkl.cli.exits import Exit
from omkl.node.config import load
from omkl.node.node import Node
from tests.node_processes import LIMIT, samples, write_network

KEPT = '[checkpoint]\nfolder = "kept"\nevery = 1\n'


def run(*args: Any) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="omkl")


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A network of one, whose node has left a checkpoint and the one before it."""
    path = write_network(tmp_path, "a", tables=KEPT)
    with Node.join(path, "a") as node:
        for x, y in samples(3):
            node.observe(x, y)
        node.wait(LIMIT)
    assert {file.name for file in (tmp_path / "kept").iterdir()} == {"a.npz", "a.npz.last", "a.count", "a.lock"}
    return path


def test_a_node_whose_network_changed_starts_anew_as_its_error_says(network: Path) -> None:
    network.write_text(network.read_text().replace("step = 2.5", "step = 2"))
    started = run("node", "--network", network, "--id", "a")
    assert started.exit_code == Exit.INPUT
    command = started.stderr.partition("or start anew: omkl ")[2].split()
    assert command == ["node", "reset", "--network", str(network), "--id", "a"]
    done = run(*command)
    assert (done.exit_code, done.stderr) == (Exit.OK, "")
    assert all(name in done.stdout for name in ("a.npz", "a.npz.last", "a.count"))
    with Node.join(network, "a") as node:
        assert (node.restored, node.protocol.round, node.protocol.lost) == (False, 0, 0)


def test_a_command_that_is_printed_leaves_out_the_usual_name_of_the_file(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(network.parent)
    for file in (network.parent / "kept").glob("a.npz*"):
        file.write_bytes(b"torn")
    started = run("node", "--network", "network.toml", "--id", "a")
    assert started.stderr.endswith("bring back a good one, or start anew: omkl node reset --id a\n")


def test_a_checkpoint_that_the_disk_does_not_give_is_another_exit_code(network: Path) -> None:
    """One after which a service is started again: the disk may give it then."""
    (network.parent / "kept" / "a.npz").rename(network.parent / "elsewhere")
    (network.parent / "kept" / "a.npz").mkdir()
    started = run("node", "--network", network, "--id", "a")
    assert (started.exit_code, "cannot be read" in started.stderr) == (Exit.DISK, True)
    (network.parent / "kept" / "a.npz").rmdir()
    (network.parent / "elsewhere").rename(network.parent / "kept" / "a.npz")
    with Node.join(network, "a") as node:
        assert node.restored


def test_a_link_to_a_disk_that_is_not_there_is_no_new_node(network: Path, tmp_path: Path) -> None:
    file = tmp_path / "kept" / "a.npz"
    (tmp_path / "mounted").mkdir()
    file.rename(tmp_path / "mounted" / "a.npz")
    file.symlink_to(tmp_path / "mounted" / "a.npz")
    (tmp_path / "mounted").rename(tmp_path / "away")
    started = run("node", "--network", network, "--id", "a")
    assert started.exit_code == Exit.DISK
    assert "cannot be read (a link to" in started.stderr
    assert started.stderr.count("\n") == 1
    assert file.is_symlink()
    (tmp_path / "away").rename(tmp_path / "mounted")
    with Node.join(network, "a") as node:
        assert node.restored


def test_a_node_that_runs_is_not_reset(network: Path) -> None:
    with Node(load(network), "a"):
        done = run("node", "reset", "--network", network, "--id", "a")
        assert done.exit_code == Exit.INPUT
        assert "a.lock is held by another process" in done.stderr
    with Node.join(network, "a") as node:
        assert node.restored


def test_there_may_be_nothing_to_remove(network: Path) -> None:
    for says in ("a.npz", "nothing"):
        done = run("node", "reset", "--network", network, "--id", "a")
        assert done.exit_code == Exit.OK
        assert says in done.stdout
    network.write_text(network.read_text().replace(KEPT, ""))
    done = run("node", "reset", "--network", network, "--id", "a")
    assert done.exit_code == Exit.INPUT
    assert "no [checkpoint]" in done.stderr
