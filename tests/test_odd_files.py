"""Files that are damaged, absurd or hostile: each is refused in one line with the exit code of bad input."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from omkl.cli import app as application
from omkl.cli.app import app
from omkl.cli.exits import Exit
from omkl.node.cluster import free_ports
from tests.node_processes import omkl

NETWORK = """
name = "{name}"
inputs = {inputs}
{top}
[[nodes]]
id = "a"
listen = "{listen}"
{node}
[[nodes]]
id = "b"
listen = "{other}"
[learning]
{learning}
[learning.method]
name = "gossip"
{method}
{tables}
"""
ELSEWHERE = """
name = "n"
inputs = 2
learning = {}
[[nodes]]
id = "a"
listen = "tcp/127.0.0.1:7447"
"""


def network(**changed: str) -> bytes:
    """Return a file with something in it."""
    plain = {"name": "n", "inputs": "2", "listen": "tcp/127.0.0.1:7447", "other": "tcp/127.0.0.1:7448"}
    plain |= dict.fromkeys(("top", "node", "method", "tables"), "") | {"learning": 'topology = "path"'}
    return NETWORK.format(**plain | changed).encode()


def of(method: str) -> bytes:
    return network(method=method)


BILLIONS = 10**12
BEYOND = 10**30
ENDLESS = "1" + "0" * 400  # more than a float holds
LONG = "x" * 5000  # for a file's name
NUL = '"\\u0000"'

NETWORKS: dict[str, bytes] = {
    # no TOML, or TOML that no reader takes
    "NUL": b"\0",
    "NUL in a text": network(top='key = "a\0b"'),
    "not UTF-8": b'name = "\xff"',
    "any bytes": bytes(range(256)) * 20,
    "nothing": b"",
    "a deep list": b"a = " + b"[" * 20_000 + b"]" * 20_000,
    "deep tables": b"a = " + b"{a=" * 5000 + b"1" + b"}" * 5000,
    "a deep key": b".".join([b"a"] * 2000) + b" = 1",
    "too many digits": network(inputs="9" * 5000),
    "too large": b"#" * (2**22 + 1),
    # sizes for which there is no memory
    "inputs": network(inputs=f"{BILLIONS}"),
    "inputs beyond 64 bits": network(inputs=f"{BEYOND}"),
    "infinite inputs": network(inputs="inf"),
    "features": of(f"features = {BILLIONS}"),
    "features beyond 64 bits": of(f"features = {BEYOND}"),
    "kernels": of(f"features = 1000\nkernels = {{gaussian = [{'1,' * 10**5}]}}"),
    "rank": of(f'basis = {{rank = {BILLIONS}, source = "normal"}}'),
    "rank and features": of('features = 1000000\nbasis = {rank = 1000000, source = "normal"}'),
    "landmarks": of(f'basis = {{name = "landmarks", rank = 9, rows = {BILLIONS}, source = "normal"}}'),
    "classes": of(f'loss = {{name = "softmax", classes = {BILLIONS}}}'),
    "outputs": of(f'loss = {{name = "squared", outputs = {BEYOND}}}'),
    "bits": of(f'quantizer = {{name = "qsgd", bits = {BEYOND}}}'),
    "nodes": network(learning=f'topology = "path"\nnodes = {BILLIONS}'),
    # numbers that nothing is made for
    "sigma": of("kernels = {gaussian = [nan]}"),
    "eta": of(f"eta = {ENDLESS}"),
    "gamma": of("gamma = nan"),
    "step": of('quantizer = {name = "nearest", step = 1e300}'),
    "clip": of("clip = nan"),
    "deadline": network(tables="[timing]\ndeadline = 1e300"),
    "deadline beyond floats": network(tables=f"[timing]\ndeadline = {ENDLESS}"),
    "matrix of nan": network(learning="topology = [[nan, nan], [nan, nan]]"),
    "matrix of large": network(learning="topology = [[1e308, 1e308], [1e308, 1e308]]"),
    "matrix of parts": network(learning="topology = [[1], [0.5, 0.5]]"),
    "position": network(node=f"position = [{ENDLESS}, 1]"),
    # names and paths
    "listen": network(listen="tcp/\\u0000:1"),
    "id": network().replace(b'id = "a"', b'id = "a\\n"'),
    "a name that no file can have": network(name="n" * 129),
    "a key of lines and colors": network(top='"a\\nb\\u001b[31m" = 1'),
    "a long key": network(top=f'"{"k" * 10**6}" = 1'),
    "a long name": network(name="n" * 10**6 + " "),
    "checkpoints at NUL": network(tables=f"[checkpoint]\nfolder = {NUL}"),
    "calibration at NUL": network(method="basis = {rank = 4}", tables=f"[calibration]\nfile = {NUL}"),
    "calibration without end": network(method="basis = {rank = 4}", tables='[calibration]\nfile = "/dev/zero"'),
    "calibration nowhere": network(method="basis = {rank = 4}", tables=f'[calibration]\nfile = "{LONG}"'),
    "TLS at NUL": network(
        listen="tls/127.0.0.1:7447",
        other="tls/127.0.0.1:7448",
        tables=f'[tls]\nca = {NUL}\ncertificate = "x"\nkey = "y"',
    ),
    "learning at NUL": f'name = "n"\ninputs = 2\nnodes = []\nlearning = {NUL}'.encode(),
    "learning nowhere": b'name = "n"\ninputs = 2\nlearning = "%s"\n[[nodes]]\nid = "a"\nlisten = "tcp/h:1"'
    % LONG.encode(),
    "links in links": network(top='links = [[["a"], "b"]]', learning=""),
    "a link a thousand times": network(top="links = [" + '["a", "b"],' * 1000 + "]", learning=""),
}


def refused(*args: Any) -> str:
    """Return the line in which a command refuses something."""
    done = CliRunner().invoke(app, [str(arg) for arg in args], prog_name="omkl")
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == Exit.INPUT
    line, end = done.stderr[:-1], done.stderr[-1:]
    assert (end, line.isprintable(), line[:13]) == ("\n", True, "omkl: error: "), done.stderr[:2000]
    assert len(line) < application.LONGEST + 20
    return line


@pytest.mark.parametrize("odd", NETWORKS)
def test_networks_that_are_absurd_are_refused_in_a_line(odd: str, tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_bytes(NETWORKS[odd])
    line = refused("node", "check", path)
    assert refused("node", "--network", path, "--id", "a") == line


def test_the_file_that_they_are_made_of_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_bytes(network())
    assert CliRunner().invoke(app, ["node", "check", str(path)]).exit_code == Exit.OK


@pytest.mark.parametrize(
    "changed",
    [
        {"tables": f'[checkpoint]\nfolder = "{LONG}"'},
        {"tables": '[checkpoint]\nfolder = "network.toml"'},
        {"listen": f"tcp/{'a' * 70_000}:1"},
    ],
)
def test_what_shows_only_when_a_node_starts(changed: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_bytes(network(**changed))
    refused("node", "--network", path, "--id", "a", "--quiet")


LINES = [
    b"", b"7", b"null", b"[]", b"{}", b"\xff\xfe", b"\0", b"[" * 100_000, b'{"x":' * 50_000, b"x" * (2**20 + 5),
    b'{"x": 1}', b'{"x": [1]}', b'{"x": [1, 2, 3]}', b'{"x": [[1, 2]]}', b'{"x": [[1], 2]}', b'{"x": ["1", "b"]}',
    b'{"x": [1, null]}', b'{"x": [true, {}]}', b'{"x": [NaN, 1]}', b'{"x": [Infinity, 1]}', b'{"x": [1e400, 1]}',

    b'{"x": [1e39, 1]}', b'{"x": [1%s, 1]}' % (b"0" * 400), b'{"x": [1%s, 1]}' % (b"0" * 5000),
    b'{"x": [1, 2], "z": 1}',
    b'{"x": [1, 2], "y": "up"}', b'{"x": [1, 2], "y": []}', b'{"x": [1, 2], "y": {}}', b'{"x": [1, 2], "y": [1, 1]}',
    b'{"x": [1, 2], "y": NaN}', b'{"x": [1, 2], "y": 1e400}', b'{"x": [1, 2], "y": 1%s}' % (b"0" * 400),
    b'{"x": [1, 2], "y": 0.5}', b'{"x": [1, 2], "y": 7}', b'{"x": [1, 2], "y": [[1]]}', b'{"x": [1, 2]', b"1,2,1",
]  # fmt: skip


def test_lines_that_are_odd_are_skipped_and_the_others_learned(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    path, stream = tmp_path / "network.toml", tmp_path / "lines.jsonl"
    whole = network(listen=f"tcp/127.0.0.1:{port}", method='loss = "logistic"').decode()
    path.write_text(whole.replace('[[nodes]]\nid = "b"\nlisten = "tcp/127.0.0.1:7448"\n', ""))
    good = b'{"x": [1, 2], "y": 1}'  # the second one shows that odd lines since the first have done no harm
    stream.write_bytes(b"\n".join([good, *LINES, good]) + b"\n")
    flags = ("--network", path, "--id", "a", "--input", stream, "--until-end", "--quiet")
    process = omkl("node", *flags, "--predictions", plain=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    told, trouble = process.communicate(timeout=60)
    assert process.returncode == Exit.OK, trouble
    assert [json.loads(line)["line"] for line in told.splitlines()] == [1, len(LINES) + 2]
    for odd in (LINES[1], LINES[5], LINES[7]):
        stream.write_bytes(odd + b"\n")
        assert "line 1: " in refused("node", *flags, "--strict")
