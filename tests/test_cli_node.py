import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pytest
from benchmarks import fleet
from typer.testing import CliRunner, Result

import omkl
from omkl.cli.app import app
from omkl.cli.exits import Exit
from omkl.node.cluster import free_ports
from omkl.node.config import NetworkConfig, load
from omkl.node.feed import Patient, Reader
from omkl.node.neighbors import Send
from omkl.node.node import endpoints
from omkl.node.transports import Arrival
from omkl.node.transports.zenoh import ZenohTransport
from omkl.wire import write_hello
from tests import node_processes
from tests.certificates import TLS, certify
from tests.node_processes import CHECKPOINT, Daemon, as_csv, as_json, daemons, samples, write_network


def run(*args: Any) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="omkl")


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=20) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def flood_with_boots(config: NetworkConfig, id: str, frames: int) -> None:
    """Speak as a member that is another life of itself in every frame."""
    role, came = config.role(id), threading.Event()

    def note(arrival: Arrival) -> None:
        if arrival.came:
            came.set()

    with ZenohTransport(role, endpoints(config, id), note, lambda *_: None) as transport:
        assert came.wait(node_processes.LIMIT)
        for boot in range(frames):
            transport.send(Send(None, write_hello(boot, 0, role.contract(), None, bytes(8))))


def test_init_writes_a_file_that_check_explains(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    made = run("node", "init", path, "--nodes", 3, "--topology", "path", "--inputs", 4, "--name", "farm")
    assert (made.exit_code, made.stdout) == (Exit.OK, f"{path}: farm, 3 nodes: a, b, c\n")
    about = json.loads(run("node", "check", path, "--format", "json").stdout)
    assert (about["name"], about["inputs"]) == ("farm", 4)
    assert [one["connects_to"] for one in about["nodes"].values()] == [[], ["a"], ["b"]]
    assert about["nodes"]["b"]["weights"] == pytest.approx({"a": 1 / 3, "c": 1 / 3})
    assert about["contract"]["quantizer"] == "nearest step=2.5 block=None"
    page = run("node", "check", path).stdout
    assert all(one["listen"] in page for one in about["nodes"].values())
    again = run("node", "init", path)
    assert (again.exit_code, again.stderr.count("\n")) == (Exit.INPUT, 1)


def test_init_for_hosts(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    assert run("node", "init", path, "--host", "10.0.0.1", "--host", "10.0.0.2").exit_code == Exit.OK
    assert [member.listen for member in load(path).members] == ["tcp/10.0.0.1:7447", "tcp/10.0.0.2:7447"]


def test_what_init_writes_runs_as_it_stands_on_hosts_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(as_csv(samples(60)))
    path, (port,) = tmp_path / "network.toml", free_ports(1)
    made = run("node", "inputs", tmp_path / "rows.csv", tmp_path / "calibration.npz")
    assert made.stdout.startswith(f"{tmp_path / 'calibration.npz'}: 60 of 60 rows of u, v, without the label y\n")
    where = ("--host", "127.0.0.{n}", "--port", port, "--metrics", "none")
    what = ("--calibration", "calibration.npz", "--tls", "--ids", "x,y", "--topology", "path")
    assert run("node", "init", path, *where, *what).exit_code == Exit.OK
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    assert run("node", "certificates", "screen", "--network", path).stdout.endswith("made x, y, screen\n")
    assert run("node", "certificates", "--network", path).stdout.endswith("made none, all were there\n")
    (tmp_path / "certificates" / "x.pem").write_text("")
    assert run("node", "certificates", "--network", path).stdout.endswith("made x\n")
    with daemons(path, "x", "y", args=("--input", "-", "--predictions")) as nodes:
        for node in nodes:
            node.until("link", after="synced")
            node.write(as_json(samples(3)))
        for node in nodes:
            assert node.process.stdout
            assert [json.loads(node.process.stdout.readline())["line"] for _ in range(3)] == [1, 2, 3]


WRONG = {
    "unknown key": ('nam = "x"', "", "nam: unknown key"),
    "edge to nobody": ('links = [["a", "z"]]', 'topology = "path"', "links.0: unknown node 'z'; known: a, b, c"),
    "disconnected": ('links = [["a", "b"]]', 'topology = "path"', "the network falls into parts: a, b | c"),
    "duplicate id": ("", 'id = "c"', "nodes.2.id: 'b' is nodes.1 already; ids must differ"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_one_line_and_an_exit_code(tmp_path: Path, case: str) -> None:
    top, remove, says = WRONG[case]
    path = write_network(tmp_path, "abc", top=top)
    path.write_text(path.read_text().replace(remove, 'id = "b"' if case == "duplicate id" else ""))
    for command in (["--network", path, "--id", "a"], ["check", path]):
        result = run("node", *command)
        assert (result.exit_code, result.stdout) == (Exit.INPUT, "")
        (line,) = result.stderr.splitlines()
        assert line.startswith("omkl: error: ")
        assert says in line


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ([], "a node needs its network and its id"),
        (["--network", "none.toml", "--id", "a"], "none.toml is not a file"),
        (["--network", "network.toml", "--id", "q"], "unknown node 'q'; known: a, b"),
        (["--network", "network.toml", "--id", "a", "--input", "none.csv"], "none.csv is not a file"),
        (["--network", "network.toml", "--id", "a", "--until-end"], "no --input; "),
        (
            ["--network", "network.toml", "--id", "a", "--input", "rows.csv", "--until-end", "--export", "none/m.npz"],
            "none/m.npz is to be written, and none is no folder; make it first",
        ),
        (["init", "none/n.toml"], "none/n.toml is to be written, and none is no folder; make it first"),
        (["inputs", "rows.csv", "none/c.npz"], "none/c.npz is to be written, and none is no folder; make it first"),
        (["predict", "--network", "network.toml", "--id", "a", "--x", "1,b"], "x is '1,b'; it must be numbers"),
        (["predict", "--network", "network.toml", "--id", "a", "--x", "1,2", "--timeout", "0.2"], "is not reached in"),
    ],
)
def test_wrong_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], says: str) -> None:
    write_network(tmp_path)
    (tmp_path / "rows.csv").write_text(as_csv(samples(60)))
    monkeypatch.chdir(tmp_path)
    result = run("node", *(flags or ["--quiet"]))
    assert result.exit_code == Exit.INPUT
    (line,) = result.stderr.splitlines()
    assert says in line


@pytest.mark.parametrize(
    ("closed", "says"),
    [
        (0, "standard input is closed; --input - reads it; open it"),
        (1, "standard output is closed; --predictions writes there; open it"),
    ],
)
def test_what_is_closed_is_neither_read_nor_written(tmp_path: Path, closed: int, says: str) -> None:
    args = ["node", "--network", str(write_network(tmp_path, "a")), "--id", "a", "--input", "-", "--predictions"]
    code = f"import os, sys; os.close({closed}); os.execv(sys.executable, [sys.executable, '-c', *sys.argv[1:]])"
    done = subprocess.run([sys.executable, "-c", code, fleet.PLAIN, *args], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (Exit.INPUT, 1)
    assert says in done.stderr


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    path = write_network(tmp_path)
    listen = load(path).members[0].listen
    with socket.create_server(("127.0.0.1", int(listen.rpartition(":")[2]))):
        process = node_processes.omkl("node", "--network", path, "--id", "a", stderr=subprocess.PIPE)
        _, stderr = process.communicate(timeout=node_processes.LIMIT)
    assert process.returncode == Exit.INPUT
    *_, line = stderr.splitlines()
    assert line.startswith(f"omkl: error: {listen} cannot be listened on")
    assert "is the port taken?" in line


@pytest.mark.parametrize("served", [True, False])
def test_an_address_that_the_device_does_not_have_yet_may_be_had_later(tmp_path: Path, served: bool) -> None:
    path = write_network(tmp_path, metrics=True)
    member = load(path).members[0]
    address = member.metrics if served else member.listen.partition("/")[2]
    assert address is not None
    path.write_text(path.read_text().replace(address, f"203.0.113.9:{address.rpartition(':')[2]}"))
    process = node_processes.omkl("node", "--network", path, "--id", "a", plain=True, stderr=subprocess.PIPE)
    _, stderr = process.communicate(timeout=node_processes.LIMIT)
    assert process.returncode == Exit.DISK
    starts, line = stderr.splitlines()
    assert "a: starts, as node a of test" in starts
    assert "is it of this device?" in line


def test_a_neighbor_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    path = write_network(tmp_path, metrics=True)
    with Daemon(path, "b", "--input", "-") as b:
        assert b.until("neighbor", peer="a")["address"] == load(path).members[0].listen
        assert b.until("waiting")["peers"] == ["a"]
        address = load(path).members[1].metrics or ""
        assert get(address, "/healthz")[0] == 200
        status, links = get(address, "/readyz")
        assert (status, json.loads(links)["links"]) == (503, {"a": "connecting"})
        with Daemon(path, "a", "--input", "-") as a:
            b.until("reached", peer="a")
            b.until("link", peer="a", after="synced")
            assert get(address, "/readyz")[0] == 200
            a.write(as_json(samples(12)))
            b.write(as_json(samples(12, seed=1)))
            for node in (a, b):
                node.end_input()
            code, told = a.stop()
            assert code == Exit.OK
            assert told["why"] == "it was told to"
            b.until("link", peer="a", after="connecting")


@pytest.mark.parametrize(
    ("id", "says"),
    [
        ("x" * 65, "has 65 letters; a certificate takes 64 at most; take a shorter one"),
        ("ca", "is 'ca'; the files of the authority have that name; take another"),
    ],
)
def test_names_that_no_certificate_has_are_refused_where_they_are_given(tmp_path: Path, id: str, says: str) -> None:
    path, free = tmp_path / "network.toml", tmp_path / "free.toml"
    assert run("node", "init", path, "--nodes", 2, "--tls").exit_code == Exit.OK
    assert run("node", "init", free, "--ids", f"{id},b").exit_code == Exit.OK
    for args in (
        ["init", tmp_path / "other.toml", "--ids", f"{id},b", "--tls"],
        ["add", "--id", id, "--neighbors", "a", "--network", path],
        ["certificates", id, "--network", path],
        ["certificates", "--network", free],
    ):
        result = run("node", *args)
        (line,) = result.stderr.splitlines()
        assert (result.exit_code, line.endswith(says)) == (Exit.INPUT, True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["free.toml", "network.toml"]


def test_what_tls_lacks_is_told(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    assert run("node", "init", path, "--nodes", 2).exit_code == Exit.OK
    assert "predict is for: everyone in reach" in run("node", "check", path).stdout
    made = run("node", "certificates", "--network", path).stdout
    assert "add these lines at its end, and write tls/ for tcp/ in every listen" in made
    text = path.read_text().replace('"tcp/', '"tls/') + made[made.index("\n[tls]") :]
    path.write_text(text)
    told = " ".join(run("node", "check", path).stdout.split())
    assert "predict is for: everyone with a certificate of this authority" in told
    assert "not on this device" not in told
    by_flag = run("node", "check", "--network", path)
    assert (by_flag.exit_code, " ".join(by_flag.stdout.split())) == (Exit.OK, told)
    twice = run("node", "check", path, "--network", tmp_path / "other.toml")
    assert (twice.exit_code, "leave one of them out" in twice.stderr) == (Exit.INPUT, True)
    (tmp_path / "certificates" / "b.key").unlink()
    (tmp_path / "certificates" / "ca.pem").unlink()
    told = " ".join(run("node", "check", path).stdout.split())
    assert "ca.pem (a, b)" in told
    assert "b.key (b); a node needs" in told
    for file in (tmp_path / "certificates").iterdir():
        file.unlink()
    told = " ".join(run("node", "check", path).stdout.split())
    assert "not on this device: any certificate; a node needs tls.ca and its own two; omkl node certificates" in told


def test_what_was_read_and_not_taken_is_told(tmp_path: Path) -> None:
    for tables, says in (
        ("", "are lost; send them again"),
        (CHECKPOINT, "are in the checkpoint, and taken at the next"),
    ):
        (folder := tmp_path / str(len(tables))).mkdir()
        path = write_network(folder, tables=tables)
        with Daemon(path, "a", "--input", "-") as a:  # b is not there: a round waits for the deadline
            a.write(as_json(samples(200)))
            a.until("waiting")
            code, told = a.stop()
        assert code == Exit.OK
        assert told["lines"] > told["taken"] == 0
        assert f"; {told['lines']} more that it had read {says}" in told["message"]


@contextmanager
def input_pipe(blocks: bool) -> Iterator[tuple[int, TextIO]]:
    """Yield the two ends of a pipe; readers of one that does not block are to try again."""
    reading, writing = os.pipe()
    os.set_blocking(reading, blocks)
    try:
        with os.fdopen(writing, "w") as pipe:
            yield reading, pipe
    finally:
        os.close(reading)


def test_a_pipe_that_does_not_block_is_waited_for(tmp_path: Path) -> None:
    path, line = write_network(tmp_path, "a"), as_json(samples(1))
    flags = ("--input", "-", "--until-end", "--predictions")
    with input_pipe(blocks=False) as (reading, pipe), Daemon(path, "a", *flags, stdin=reading) as a:
        a.until("inputs")
        for k, part in enumerate((line + line[:9], line[9:])):
            pipe.write(part)
            pipe.flush()
            assert a.process.stdout
            assert json.loads(a.process.stdout.readline())["line"] == k + 1
        pipe.close()
        code, told = a.left()
    assert (code, told["lines"], told["taken"], told["refused"]) == (Exit.OK, 2, 2, 0)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_what_lay_in_the_pipe_is_told(tmp_path: Path) -> None:
    path = write_network(tmp_path, tables=CHECKPOINT)
    for blocks in (True, False):
        with input_pipe(blocks) as (reading, pipe), Daemon(path, "a", "--input", "-", stdin=reading) as a:
            pipe.write(as_json(samples(500)))
            pipe.flush()
            a.until("waiting")  # b is not there: a round waits for the deadline
            _, told = a.stop()
            assert os.get_blocking(reading) == blocks
        assert (told["lines"] > 0, told["left"]) == (True, 500 - told["lines"])
        assert told["message"].endswith(f"; {told['left']} that lay in the pipe are lost; send them again")
    (tmp_path / "a.jsonl").write_text(as_json(samples(500)))
    with Daemon(path, "a", "--input", tmp_path / "a.jsonl") as a:
        a.until("waiting")
        assert a.stop()[1]["left"] == 0  # a file is read again


@pytest.mark.skipif(sys.platform != "linux", reason="pipes differ")
def test_what_lies_in_a_pipe_is_measured(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with io.BufferedReader(Patient(reading)) as file, os.fdopen(writing, "wb") as pipe:
        reader = Reader.__new__(Reader)
        reader._file = file
        assert reader.piled() == 0
        pipe.write(b"x" * 1000)
        pipe.flush()
        assert reader.piled() == 1000
    assert reader.piled() == 0


def test_what_the_checkpoint_held_is_acknowledged_when_it_is_learned(tmp_path: Path) -> None:
    path, flags = write_network(tmp_path, tables=CHECKPOINT), ("--input", "-", "--predictions")
    with Daemon(path, "a", *flags) as a:  # b is not there: a round waits for the deadline
        a.write(as_json(samples(3)))
        a.until("waiting")
        assert a.stop()[1]["lines"] == 3
        assert a.process.stdout
        assert a.process.stdout.read() == ""
    with daemons(path, "a", "b", args=flags) as (a, b):
        a.write('{"x": [0.5, 1.0], "y": 1, "id": "m-4"}\n{"x": [0.5, 1.0], "id": 2.5}\n')
        assert a.process.stdout
        told = [json.loads(a.process.stdout.readline()) for _ in range(4)]
        assert "id is 2.5; it must be text or a whole number" in a.until("refused")["message"]
        assert a.stop()[1]["taken"] == 1
        b.stop()
    assert [one.get("kept") for one in told] == [1, 2, 3, None]
    assert [one["round"] for one in told] == [1, 2, 3, 4]
    assert (told[3]["line"], told[3]["id"]) == (1, "m-4")
    assert all("line" not in one for one in told[:3])


def test_a_stream_without_labels_is_told(tmp_path: Path) -> None:
    path = write_network(tmp_path, "a")
    for header, named in (("pressure,alarm\n", " (pressure, alarm)"), ("", "")):
        (tmp_path / "a.csv").write_text(header + "1,2\n" * 60)
        with Daemon(path, "a", "--input", tmp_path / "a.csv", "--until-end") as a:
            told = a.until("unlabelled", level="warning")
            a.left()
        assert [event["event"] for event in a.events].count("unlabelled") == 1
        assert told["message"].startswith("none of the first 50 lines has a label")
        assert f"takes 2 inputs{named}; if one of them is the label" in told["message"]


def test_who_else_answers_is_told(tmp_path: Path) -> None:
    path = write_network(tmp_path, "a")
    with Daemon(path, "a") as a:
        a.until("joined")
        for change, says in (
            (("inputs = 2", "inputs = 3"), "goes by another file than this: x has shape (3,)"),
            (('name = "test"', 'name = "other"'), "has not answered; a of network test is there"),
            (("tcp/", "tls/"), "does it speak TLS?"),
        ):
            other = tmp_path / "other.toml"
            text = path.read_text().replace(*change)
            if change[1] == "tls/":
                certify(tmp_path, "a")
                text += TLS.format(tmp_path)
            other.write_text(text)
            x = "1,2,3" if "inputs" in change[0] else "1,2"
            asked = run("node", "predict", "--network", other, "--id", "a", "--x", x, "--timeout", 1)
            assert asked.exit_code == Exit.INPUT
            assert says in asked.stderr
    asked = run("node", "predict", "--network", path, "--id", "a", "--x", "1,2,3")
    assert "the network's file says 2 finite numbers" in asked.stderr


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_streams_from_standard_input(tmp_path: Path, form: str) -> None:
    path, rows = write_network(tmp_path), samples(40)
    flags = ("--input", "-", "--format-in", form, "--until-end", "--predictions", "--export", tmp_path / "model.npz")
    text = as_csv(rows) if form == "csv" else as_json(rows)
    bad = {"csv": "1,oops,1\n", "jsonl": '{"x": [1]}\n'}[form]
    with Daemon(path, "a", *flags) as a, Daemon(path, "b", "--input", "-") as b:
        a.write(text + bad)
        b.end_input()
        assert b.until("ended")["lines"] == 0  # and it stays
        a.end_input()
        number = 42 if form == "csv" else 41
        assert a.until("refused")["message"].startswith(f"no observation, skipped: line {number}: ")
        code, told = a.left()
        assert (code, told["lines"], told["taken"]) == (Exit.OK, 40, 40)
        assert a.process.stdout
        predictions = [json.loads(line) for line in a.process.stdout]
        assert b.stop(signal.SIGINT)[0] == Exit.INTERRUPTED
    assert [one["line"] for one in predictions] == list(range(number - 40, number))
    assert [one["label"] for one in predictions] == [1 if one["output"][0] >= 0 else -1 for one in predictions]
    losses = [np.log1p(np.exp(-y * one["output"][0])) for (_, y), one in zip(rows, predictions, strict=True)]
    np.testing.assert_allclose([one["loss"] for one in predictions], losses, rtol=1e-5)
    assert omkl.load_model(tmp_path / "model.npz").predict([[0.5, 0.5]]) in (-1, 1)


def test_a_strict_stream_ends_at_a_bad_line(tmp_path: Path) -> None:
    path = write_network(tmp_path, "a")
    (tmp_path / "a.csv").write_text("u,v,y\n1,2,1\n1,2,7\n1,2,1\n")
    with Daemon(path, "a", "--input", tmp_path / "a.csv", "--strict", "--quiet") as a:
        _, stderr = a.process.communicate(timeout=node_processes.LIMIT)
    assert a.process.returncode == Exit.INPUT
    assert stderr.startswith("omkl: error: line 3: ")


def test_a_header_that_does_not_fit_ends_the_node(tmp_path: Path) -> None:
    path = write_network(tmp_path, "a")
    (tmp_path / "a.csv").write_text("u,v,w,y\n1,2,3,1\n")
    with Daemon(path, "a", "--input", tmp_path / "a.csv", "--quiet") as a:
        _, stderr = a.process.communicate(timeout=node_processes.LIMIT)
    assert (a.process.returncode, stderr.count("\n")) == (Exit.INPUT, 1)
    assert "a header of 4 columns" in stderr


def test_a_run_that_diverges_keeps_its_checkpoint(tmp_path: Path) -> None:
    path = write_network(tmp_path, "a", tables=CHECKPOINT)
    path.write_text(path.read_text().replace("eta = 1.0", 'eta = 2.5\nloss = "squared"'))
    (tmp_path / "a.jsonl").write_text(as_json(samples(2)) * 2000)
    with Daemon(path, "a", "--input", tmp_path / "a.jsonl") as a:
        told = a.until("diverged")
        assert a.process.wait() == Exit.DIVERGED
    assert "lower eta" in told["message"]
    (tmp_path / "none.jsonl").write_text("")
    with Daemon(path, "a", "--input", tmp_path / "none.jsonl", "--until-end") as a:
        joined = a.until("joined")
        assert joined["restored"]
        assert told["round"] - 5 <= joined["round"] <= told["round"]
        assert a.left()[0] == Exit.OK


def test_a_node_that_was_stopped_goes_on(tmp_path: Path) -> None:
    path = write_network(tmp_path, tables=CHECKPOINT)
    with daemons(path, "a", "b", args=("--input", "-", "--predictions")) as (a, b):
        for node in (a, b):
            node.until("joined", restored=False)
            node.write(as_json(samples(23)))
        for node in (a, b):
            assert node.process.stdout
            for _ in range(23):
                assert node.process.stdout.readline()
        code, told = a.stop()
        at = int(told["message"].removeprefix("left after round ").partition(":")[0])
        assert (code, 23 <= at <= 46) == (Exit.OK, True)  # it may have taken part in rounds of the other's samples
        b.until("link", peer="a", after="connecting")
        with Daemon(path, "a", "--input", "-", "--predictions") as again:
            assert again.until("joined", restored=True)["round"] == at
            again.until("link", peer="b", after="synced")
            b.until("link", peer="a", after="synced")
            for node in (again, b):
                node.write(as_json(samples(1)))
            assert again.process.stdout
            assert at < json.loads(again.process.stdout.readline())["round"] <= at + 2


def test_asked_over_zenoh(tmp_path: Path) -> None:
    path = write_network(tmp_path, "a", metrics=True)
    place = ("--network", path, "--id", "a")
    with Daemon(path, "a", "--input", "-", "--predictions", "--export", tmp_path / "kept.npz") as a:
        a.until("joined")
        a.write(as_json(samples(30)))
        assert a.process.stdout
        for _ in range(30):
            assert a.process.stdout.readline()
        told = json.loads(run("node", "predict", *place, "--x", "0.5,-1.0").stdout)
        assert run("node", "export", tmp_path / "m.npz", *place).exit_code == Exit.OK
        output = omkl.load_model(tmp_path / "m.npz").decision_function([[0.5, -1.0]])[0]
        np.testing.assert_allclose(told["output"], output, rtol=1e-6)
        assert (told["round"], told["label"]) == (30, 1 if output[0] >= 0 else -1)
        likely = 1 / (1 + np.exp(-output[0]))
        assert told["probabilities"] == pytest.approx({"-1": 1 - likely, "1": likely}, rel=1e-5)
        table = run("node", "predict", *place, "--x", "0.5,-1.0", "--format", "table").stdout.splitlines()
        assert table[0].split() == ["label", str(told["label"])]
        assert table[1].split() == ["probabilities", "-1:", f"{1 - likely:.2%},", "1:", f"{likely:.2%}"]
        assert [line.split()[0] for line in table] == ["label", "probabilities", "output", "round"]
        wrong = run("node", "predict", *place, "--x", "0.5")
        assert (wrong.exit_code, "the network's file says 2 finite numbers" in wrong.stderr) == (Exit.INPUT, True)
        if hasattr(signal, "SIGUSR1"):
            os.kill(a.process.pid, signal.SIGUSR1)
            a.until("export", path=str(tmp_path / "kept.npz"))
            assert (tmp_path / "kept.npz").read_bytes() == (tmp_path / "m.npz").read_bytes()
            (tmp_path / "kept.npz").unlink()
            (tmp_path / "kept.npz").mkdir()  # a model that cannot be written is no reason to leave
            os.kill(a.process.pid, signal.SIGUSR1)
            a.until("export", level="warning")
        page = get(load(path).members[0].metrics or "", "/metrics")[1]
        assert "omkl_rounds_total 30.0" in page
        assert 'omkl_observations_total{kind="labelled"} 30.0' in page


@pytest.mark.parametrize(
    ("loss", "label", "keys"),
    [("{name = 'softmax', classes = 3}", 2, {"0", "1", "2"}), ("'squared'", 2.0, None), ("'smoothed_hinge'", 1, None)],
)
def test_probabilities_are_told_where_the_loss_has_them(
    tmp_path: Path, loss: str, label: float, keys: set[str] | None
) -> None:
    path = write_network(tmp_path, "a")
    path.write_text(path.read_text().replace("eta = 1.0", f"eta = 0.1\nloss = {loss}"))
    with omkl.Node.join(path, "a") as node:
        for _ in range(5):
            node.observe([1.0, 2.0], label)
        node.wait(node_processes.LIMIT)
        place = ("node", "predict", "--network", path, "--id", "a", "--x", "1,2")
        told, table = json.loads(run(*place).stdout), run(*place, "--format", "table").stdout
    assert told["round"] == 5
    assert ("probabilities" in table) == ("probabilities" in told) == (keys is not None)
    if keys:
        chances = told["probabilities"]
        assert chances.keys() == keys
        assert sum(chances.values()) == pytest.approx(1)
        assert max(chances, key=chances.get) == str(told["label"]) == "2"
        f = np.array(told["output"])
        assert list(chances.values()) == pytest.approx((np.exp(f) / np.exp(f).sum()).tolist())


def test_metrics_of_a_link(tmp_path: Path) -> None:
    path = write_network(tmp_path, metrics=True)
    with daemons(path, "a", "b", args=("--input", "-", "--predictions")) as (a, b):
        for node in (a, b):
            node.until("link", after="synced")
            node.write(as_json(samples(10)))
        for node in (a, b):
            assert node.process.stdout
            for _ in range(10):
                assert node.process.stdout.readline()
        page = get(load(path).members[0].metrics or "", "/metrics")[1]
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in page.splitlines() if line[0] != "#"}
    assert values["omkl_rounds_total"] == values["omkl_round"] == 10
    assert 0 <= values["omkl_accuracy_ratio"] <= 1
    assert {"omkl_disagreement", "omkl_model_norm", "omkl_observations_waiting"} < set(values)
    assert values['omkl_peer_rounds_ahead{peer="b"}'] in (-1, 0, 1)
    assert values["omkl_round_duration_seconds_count"] == 9
    assert values['omkl_peer_up{peer="b"}'] == 1
    assert values['omkl_link_state{peer="b",state="synced"}'] == 1
    assert 100 < values['omkl_sent_bytes_total{peer="b"}'] < 1000
    assert 100 < values['omkl_received_bytes_total{peer="b"}'] < 1000


def test_metrics_of_a_device_by_a_flag(tmp_path: Path) -> None:
    path = write_network(tmp_path)
    (port,) = free_ports(1)
    with Daemon(path, "a", "--metrics", f"127.0.0.1:{port}") as a:
        a.until("waiting")  # it has begun
        assert get(f"127.0.0.1:{port}", "/healthz")[0] == 200
    refused = run("node", "--network", path, "--id", "a", "--metrics", "17447")
    assert (refused.exit_code, "it must be a host and a port" in refused.stderr) == (Exit.INPUT, True)


def test_a_hostile_neighbor_fills_no_log(tmp_path: Path) -> None:
    path = write_network(tmp_path)
    config = load(path)
    with Daemon(path, "a") as a:
        a.until("joined")
        flood_with_boots(config, "b", 2000)
        a.until("link", peer="b", after="connecting")
        a.process.terminate()
        assert a.process.stderr
        assert len(a.process.stderr.readlines()) < 200
        assert a.process.wait() == Exit.OK


def test_help_teaches_and_imports_no_zenoh() -> None:
    code = """
import sys
from omkl.cli import main
names = "init inputs certificates add remove check predict export".split()
for command in ([], *([name] for name in names)):
    sys.argv[1:] = ["node", *command, "--help"]
    try:
        main()
    except SystemExit as ended:
        print(f"ended with {ended.code}")
    assert "zenoh" not in sys.modules
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (Exit.OK, "")
    *pages, rest = result.stdout.split(f"ended with {Exit.OK:d}\n")
    assert (len(pages), rest) == (9, "")
    assert all("Example: omkl node" in page for page in pages)
