"""What is shipped for devices: certificates, the unit, the container file."""

import configparser
import shutil
import subprocess
from pathlib import Path

from omkl.node import certificates
from tests.certificates import DEPLOY, TLS, certify, files
from tests.node_processes import Daemon, as_json, samples, write_network


def test_certificates(tmp_path: Path) -> None:
    made = certify(tmp_path / "tls", "a", "b")
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
    files = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "tls").iterdir()}
    assert files == {
        f"{who}.{kind}": mode for who in ("ca", "a", "b") for kind, mode in (("pem", 0o644), ("key", 0o600))
    }
    authority = (tmp_path / "tls" / "ca.pem").read_bytes()
    assert certify(tmp_path / "tls", "c").returncode == 0
    assert (tmp_path / "tls" / "ca.pem").read_bytes() == authority
    again = certify(tmp_path / "tls", "a")
    assert (again.returncode, "exists; remove it" in again.stderr) == (2, True)
    assert certify(tmp_path / "tls").returncode == 2
    for name in ("ca", "a b", "a/../b", ""):
        wrong = certify(tmp_path / "tls", name)
        assert (wrong.returncode, wrong.stderr) == (2, f"no name: '{name}'; letters, digits, - and _, and not ca\n")


def test_half_an_authority_signs_nothing_and_is_not_replaced(tmp_path: Path) -> None:
    for name in ("ca.key", "ca.pem"):
        folder = tmp_path / name
        assert certify(folder, "a").returncode == 0
        before = {file.name: file.read_bytes() for file in folder.iterdir() if file.name != name}
        for spoil in ((folder / name).unlink, (folder / name).touch):
            spoil()
            made = certify(folder, "b")
            assert (made.returncode, made.stderr.count("\n")) == (2, 1)
            assert made.stderr.startswith(f"{folder / name} is missing or empty; it signs the others; copy it there")
            assert {file.name: file.read_bytes() for file in folder.iterdir() if file.name != name} == before


def test_a_certificate_has_the_name_it_was_made_for(tmp_path: Path) -> None:
    assert certify(tmp_path, "sensor-1").returncode == 0
    made = certificates.check(files(tmp_path, "sensor-1"))
    assert made.name == "sensor-1"
    assert 823 < certificates.days_left(made) <= 825


def test_a_certificate_is_made_out_to_the_host_too(tmp_path: Path) -> None:
    hosts = {"a": "192.168.1.11", "b": "sensor-b.local", "c": "fe80::1", "d": "127.host.x.y1"}
    assert certify(tmp_path, *(f"{name}={host}" for name, host in hosts.items()), "screen").returncode == 0
    told = {}
    for name in (*hosts, "screen"):
        shown = ["openssl", "x509", "-in", f"{tmp_path}/{name}.pem", "-noout", "-ext", "subjectAltName"]
        told[name] = subprocess.run(shown, capture_output=True, text=True, check=True).stdout.split("\n")[1].split()
        assert certificates.check(files(tmp_path, name)).name == name  # nodes go by it
    assert told["a"] == ["DNS:a,", "IP", "Address:192.168.1.11"]
    assert told["b"] == ["DNS:b,", "DNS:sensor-b.local"]
    assert told["c"] == ["DNS:c,", "IP", "Address:FE80:0:0:0:0:0:0:1"]
    assert told["d"] == ["DNS:d,", "DNS:127.host.x.y1"]
    assert told["screen"] == ["DNS:screen"]
    wrong = certify(tmp_path, "e=host,DNS:other")
    assert (wrong.returncode, wrong.stderr) == (2, "no host: 'host,DNS:other'; a name or an address\n")


def test_nodes_gossip_over_tls_and_a_stranger_stays_out(tmp_path: Path) -> None:
    assert certify(tmp_path / "tls", "a", "b").returncode == 0
    assert certify(tmp_path / "forged", "a", "b").returncode == 0
    path = write_network(tmp_path, scheme="tls", tables=TLS.format("tls"))
    forged = tmp_path / "forged.toml"
    forged.write_text(path.read_text().replace("tls/ca", "forged/ca").replace("tls/{id}", "forged/{id}"))
    with Daemon(path, "a", "--input", "-", "--predictions") as a:
        a.until("joined")
        with Daemon(forged, "b") as stranger:
            assert stranger.until("waiting")["peers"] == ["a"]
            assert "reached" not in [told["event"] for told in stranger.events]
        with Daemon(path, "b", "--input", "-") as b:
            assert "reached" not in [told["event"] for told in a.events]
            a.until("link", peer="b", after="synced")
            for node in (a, b):
                node.write(as_json(samples(3)))
            assert a.process.stdout
            assert [a.process.stdout.readline() != "" for _ in range(3)] == [True] * 3


def test_the_unit_runs_the_command_as_it_is(tmp_path: Path) -> None:
    text = (DEPLOY / "omkl-node@.service").read_text()
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    assert unit["Service"]["ExecStart"].split()[1:] == [
        "node",
        "--network",
        "/etc/omkl/network.toml",
        "--id",
        "%i",
        "$OMKL_FLAGS",
    ]
    assert unit["Service"]["Restart"] == "on-failure"
    assert "time-sync.target" in unit["Unit"]["After"]  # certificates are not valid before the clock is set
    if shutil.which("systemd-analyze"):
        copy = tmp_path / "omkl-node@.service"
        copy.write_text(text.replace("/opt/omkl/bin/omkl", "/bin/true").replace("User=omkl", "User=root"))
        checked = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_the_container_copies_what_there_is() -> None:
    copied = [line.split()[1:-1] for line in (DEPLOY / "Containerfile").read_text().splitlines() if line[:5] == "COPY "]
    assert [name for names in copied for name in names] == ["pyproject.toml", "README.md", "LICENSE", "src"]
    assert all((DEPLOY.parent / name).exists() for names in copied for name in names)
