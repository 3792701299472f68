"""Who is let in, and what each may say: real sessions, real certificates."""

import json
import logging
import queue
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zenoh
from typer.testing import CliRunner

from omkl.cli.app import app
from omkl.cli.exits import Exit
from omkl.errors import InputError
from omkl.node import certificates, client
from omkl.node.config import NetworkConfig, load
from omkl.node.links import LinkState
from omkl.node.node import Node
from omkl.node.settings import Access
from omkl.node.transports import Arrival
from omkl.node.transports.rules import access_control
from omkl.node.transports.zenoh import Endpoints, ask
from tests.certificates import ROOT, TLS, certify, certify_between, files
from tests.doc_pages import blocks
from tests.node_processes import LIMIT, Daemon, samples, write_network

PRESENT = 20.0  # seconds in which a node that is there answers
ABSENT = 2.0
NOBODY = "nobody listens there; is it running, or does its own file say another port?"
X = b'{"x": [1, 2], "y": 1}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the network's certificates, of which ``old`` has expired, and a stranger's in ``forged``."""
    place = tmp_path_factory.mktemp("tls")
    assert certify(place, "a", "b", "c", "screen", "feeder", "mallory").returncode == 0
    certify_between(place, "old", 2020, 2021)
    assert certify(place / "forged", "a", "b").returncode == 0
    return place


def network(path: Path, folder: Path, ids: str = "ab", access: str = "") -> NetworkConfig:
    return load(write_network(path, ids, scheme="tls", tables=TLS.format(folder) + access))


@contextmanager
def session(config: NetworkConfig, to: str, files: dict[str, str] | None) -> Iterator[zenoh.Session]:
    """Open a session with a node of the network that knows no rules."""
    settings = zenoh.Config()
    settings.insert_json5("connect/endpoints", json.dumps([config.members[config.index(to)].listen]))
    settings.insert_json5("listen/endpoints", "[]")
    for kind in ("multicast", "gossip"):
        settings.insert_json5(f"scouting/{kind}/enabled", "false")
    if files is not None:
        tls: dict[str, Any] = {"root_ca_certificate": files["ca"], "enable_mtls": True, "verify_name_on_connect": False}
        tls |= {"connect_certificate": files["certificate"], "connect_private_key": files["key"]}
        settings.insert_json5("transport/link/tls", json.dumps(tls))
    with zenoh.open(settings) as opened:
        yield opened


def answers(session: zenoh.Session, key: str) -> list[bytes]:
    return [reply.ok.payload.to_bytes() for reply in session.get(key, timeout=ABSENT) if reply.ok]


class Heard:
    """What a node's thread takes in."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self._queue: queue.SimpleQueue[Arrival] = queue.SimpleQueue()

    def __call__(self, item: Any, _: Any) -> None:
        if isinstance(item, Arrival):
            self._queue.put(item)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for an arrival after which something holds."""
        while not holds():
            self.arrivals.append(self._queue.get(timeout=LIMIT))


@pytest.mark.parametrize(
    ("certificate", "key", "ca", "why"),
    [
        ("old", "old", "", r"old\.pem: certificate has expired; neighbors would refuse it; make another"),
        (
            "forged/a",
            "forged/a",
            "",
            r"forged/a\.pem: it is not of this authority \(tls\.ca\); neighbors would refuse it",
        ),
        ("a", "b", "", r"a\.pem: the key beside it is another's; neighbors would refuse it"),
        ("b", "b", "", r"b\.pem: the certificate of 'b'; a needs one with the common name a; copy it here"),
        ("a", "a", "forged/", r"a\.pem: it is not of this authority"),
        ("index.txt", "a", "", "no certificate and key that can be read"),
    ],
)
def test_a_node_refuses_to_start_with_files_that_neighbors_would_refuse(
    tmp_path: Path, folder: Path, certificate: str, key: str, ca: str, why: str
) -> None:
    own = certificate if "." in certificate else f"{certificate}.pem"
    table = f'[tls]\nca = "{folder}/{ca}ca.pem"\ncertificate = "{folder}/{own}"\nkey = "{folder}/{key}.key"\n'
    config = load(write_network(tmp_path, scheme="tls", tables=table))
    with pytest.raises(InputError, match=why):
        Node(config, "a")


def test_a_certificate_that_is_not_valid_yet_may_be_another_time(tmp_path: Path) -> None:
    """As on a device without a battery for its clock, before it has the time from the network."""
    tls = tmp_path / "tls"
    assert certify(tls, "b").returncode == 0
    certify_between(tls, "a", 2040, 2041)
    path = write_network(tmp_path, scheme="tls", tables=TLS.format(tls))
    started = CliRunner().invoke(app, ["node", "--network", str(path), "--id", "a"])
    assert started.exit_code == Exit.DISK
    assert re.search(r"a\.pem: not valid yet at .* UTC; compare this device's clock\n$", started.stderr)


def test_why_a_neighbor_is_not_reached(tmp_path: Path, folder: Path) -> None:
    config, forged = network(tmp_path, folder), folder / "forged"
    place = config.members[0].listen
    assert certificates.diagnose(place, "a", files(folder, "b")) == NOBODY
    with Node(config, "a"):
        why = [
            certificates.diagnose(place, "a", files(forged, "b")),
            certificates.diagnose(place, "a", files(forged, "b", ca=folder)),
            certificates.diagnose(place, "a", files(folder, "old")),
            certificates.diagnose(place, "c", files(folder, "b")),
            certificates.diagnose(place, "a", files(folder, "b")),
            certificates.diagnose(place, "a", None),
        ]
    assert why[0] == "its certificate is not of this node's authority; compare tls.ca on both"
    assert why[1].startswith("it refuses this node's certificate (")
    assert why[2].startswith("it refuses this node's certificate (certificate expired); compare tls.ca, the dates")
    assert why[3] == "the certificate there is that of 'a', so nothing it says is heard; is the address right?"
    assert why[4] == why[5] == "its port answers; is it a node of this network, with this one among its neighbors?"
    assert "is the address right?" in certificates.diagnose("tcp/no.such.host.invalid:1", "a", None)


@pytest.mark.parametrize("who", ["forged/b", "old", "a with the key of b", None, "plain"])
def test_who_has_no_certificate_of_the_network_is_not_let_in(
    tmp_path: Path, folder: Path, who: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    config = network(tmp_path, folder, "a")
    place, settings = config.members[0].listen, zenoh.Config()
    shown: dict[str, Any] = {"root_ca_certificate": str(folder / "ca.pem"), "verify_name_on_connect": False}
    if who not in (None, "plain"):
        name, _, key = str(who).partition(" with the key of ")
        shown |= {"connect_certificate": f"{folder}/{name}.pem", "connect_private_key": f"{folder}/{key or name}.key"}
    endpoint = place.replace("tls/", "tcp/") if who == "plain" else place
    given = {"mode": "client", "connect/endpoints": [endpoint], "connect/timeout_ms": 1500}
    given |= {"scouting/multicast/enabled": False, "transport/link/tls": shown | {"enable_mtls": who is not None}}
    for setting, value in given.items():
        settings.insert_json5(setting, json.dumps(value))
    with caplog.at_level(logging.INFO), Node.join(config, "a") as a:
        with pytest.raises(zenoh.ZError), zenoh.open(settings):
            pass
        assert list(a.transport.session.info.links()) == []
    assert [text for text in caplog.messages if "certificate of" in text] == []


def test_a_daemon_says_why_it_does_not_reach_a_neighbor(tmp_path: Path, folder: Path) -> None:
    path = write_network(tmp_path, scheme="tls", tables=TLS.format(folder))
    forged = tmp_path / "forged.toml"
    forged.write_text(path.read_text().replace(str(folder), str(folder / "forged")))
    with Daemon(path, "a") as a, Daemon(forged, "b") as b:
        assert a.until("waiting")["message"].startswith("waits for b (which connects here")
        told = b.until("unreached")
    assert told["peer"] == "a"
    assert told["why"] == "its certificate is not of this node's authority; compare tls.ca on both"
    assert "reached" not in [event["event"] for event in (*a.events, *b.events)]


def test_no_member_speaks_as_another(tmp_path: Path, folder: Path) -> None:
    config, heard = network(tmp_path, folder, "bac"), Heard()  # b - a - c, and c is hostile
    with ExitStack() as stack:
        a = stack.enter_context(Node(config, "a", taps=[heard]).start())
        b = stack.enter_context(Node.join(config, "b"))
        link = a.protocol.links["b"]
        heard.until(lambda: link.state is LinkState.SYNCED)
        b.observe([0, 1], 1)
        heard.until(lambda: link.have == 1)
        before, at = link.copy.copy(), link.round
        heard.arrivals.clear()
        c = stack.enter_context(session(config, "a", files(folder, "c")))
        token = c.liveliness().declare_token("omkl/test/b/alive")
        other = c.declare_queryable("omkl/test/b/ask/*", lambda query: query.reply(query.key_expr, b"lie"))
        for key in ("omkl/test/b/gossip", "omkl/test/*/gossip", "omkl/**", "omkl/test/a/gossip"):
            c.put(key, b"as another", congestion_control=zenoh.CongestionControl.BLOCK)
        assert answers(c, "omkl/test/a/ask/b") == answers(c, "omkl/test/a/ask/*") == []
        token.undeclare()  # type: ignore[no-untyped-call]
        c.put("omkl/test/c/gossip", b"as itself", congestion_control=zenoh.CongestionControl.BLOCK)
        heard.until(lambda: ("c", b"as itself") in [one[:2] for one in heard.arrivals])  # all before it came before it
        assert [arrival for arrival in heard.arrivals if arrival.peer == "b"] == []
        assert (link.reachable, link.round) == (True, at)
        assert np.array_equal(link.copy, before)
        assert b"lie" not in answers(a.transport.session, "omkl/test/b/ask/a")
        del other


def test_what_nodes_say_is_for_neighbors(tmp_path: Path, folder: Path) -> None:
    config = network(tmp_path, folder, "a")
    with Node.join(config, "a") as a, session(config, "a", files(folder, "screen")) as screen:
        heard: list[str] = []
        spy = screen.declare_subscriber("omkl/**", lambda sample: heard.append(str(sample.key_expr)))
        assert len(answers(screen, "omkl/test/a/model")) == 1  # the session stands
        for x, y in samples(5):
            a.observe(x, y)
        a.wait(LIMIT)
        assert len(answers(screen, "omkl/test/a/model")) == 1
        assert heard == []
        del spy


def test_services_are_for_those_who_are_named(tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = '[access]\npredict = ["screen"]\nobserve = ["feeder"]\nmodel = []\nstatus = ["feeder"]\n'
    config = network(tmp_path, folder, "a", table)
    place = config.members[0].listen

    def asked(name: str, service: str, timeout: float) -> Any:
        return ask("test", "a", service, X, Endpoints(connect=[place], tls=files(folder, name)), timeout)

    with caplog.at_level(logging.INFO), Node.join(config, "a") as a:
        assert json.loads(asked("screen", "predict", PRESENT))["output"] == [0.0]
        assert json.loads(client.predict(config, "a", [1, 2], PRESENT, "screen"))["output"] == [0.0]
        assert json.loads(asked("feeder", "observe", PRESENT)) == {"waiting": 0}
        assert json.loads(asked("feeder", "status", PRESENT))["taken"] == 1
        guest = client.guest(config, ABSENT, "feeder")  # who looks on: connects to all, and asks again and again
        standing = next(filter(None, (guest.ask(["a"], "status") for _ in range(100))))
        assert json.loads(standing["a"])["round"] == 1
        assert guest.ask(["a"], "model") == {}
        guest.close()
        refused = [("mallory", "predict"), ("feeder", "predict"), ("screen", "observe"), ("screen", "status")]
        for name, service in [*refused, ("a", "model")]:
            with pytest.raises(
                InputError, match=rf"has not answered .* does its .access. let '{name}' {service}\? --as shows another"
            ):
                asked(name, service, ABSENT)
        a.wait(LIMIT)
        assert a.protocol.round == 1
    told = [text for text in caplog.messages if "certificate of" in text]
    assert any("'screen' connects" in text and text.endswith("it may ask for predict") for text in told)
    assert any(
        "'mallory' connects" in text and text.endswith("neither neighbor nor in [access], not heard") for text in told
    )


def test_a_feeder_as_the_page_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert certify(tmp_path / "certificates", "a=127.0.0.1", "feeder").returncode == 0
    table = '[access]\npredict = []\nobserve = ["feeder"]\nmodel = []\n'
    table += '[checkpoint]\nfolder = "kept"\nevery = "observation"\n'
    config = network(tmp_path, tmp_path / "certificates", "a", table)
    (code,) = (block.text for block in blocks(ROOT / "docs" / "deploy.md") if block.language == "python")
    code = code.replace("tls/sensor-a.local:7447", config.members[0].listen).replace("sensors/a", "test/a")
    code = code.replace("certificates/", f"{tmp_path}/certificates/")
    with Node.join(config, "a") as a:
        exec(code, {"__name__": "page"})
        assert a.protocol.taken == 2
        assert capsys.readouterr().out == ""
        exec(code.replace("([-0.3, 0.8], -1)", "([-0.3, 0.8], 5), ([-0.3, 0.8], 1)"), {"__name__": "page"})
        assert a.protocol.taken == 4  # what is never taken keeps no other from its turn
    assert re.fullmatch(r'not saved: \{"error": "label 5; .*", "retry": false\}\n', capsys.readouterr().out)
    (tmp_path / "certificates" / "a.pem").unlink()
    assert certify(tmp_path / "certificates", "a").returncode == 0  # does not name the host
    with Node.join(config, "a"), pytest.raises(zenoh.ZError):
        exec(code, {"__name__": "page"})


def test_without_tls_a_service_is_everyones_or_nobodys(tmp_path: Path) -> None:
    config = load(write_network(tmp_path, "a", tables='[access]\npredict = ["*"]\nobserve = ["*"]\nmodel = []\n'))
    place = Endpoints(connect=[config.members[0].listen])
    with Node.join(config, "a"):
        assert json.loads(ask("test", "a", "predict", X, place, PRESENT))["output"] == [0.0]
        with pytest.raises(InputError, match="has not answered"):
            ask("test", "a", "model", b"", place, ABSENT)


def test_the_rules_of_a_node() -> None:
    rules = access_control("n", "a", ["b"], Access(predict=["screen", "b"], observe=[], model=["*"]))
    allowed: dict[str, set[str]] = {subject["id"]: set() for subject in rules["subjects"]}
    named = {rule["id"]: rule for rule in rules["rules"]}
    for policy in rules["policies"]:
        for rule in (named[id] for id in policy["rules"]):
            if rule["flows"] == ["ingress"]:
                allowed[policy["subjects"][0]].add(f"{rule['messages'][0]} {rule['key_exprs'][0]}")
    assert rules["default_permission"] == "deny"
    assert list(allowed) == ["b", "screen", "*"]  # zenoh takes the first that fits
    assert [subject.get("cert_common_names") for subject in rules["subjects"]] == [["b"], ["screen"], None]
    assert allowed["*"] == {"query omkl/n/a/model"}
    assert allowed["screen"] == {"query omkl/n/a/model", "query omkl/n/a/predict"}
    assert allowed["b"] == allowed["screen"] | {
        "put omkl/n/b/gossip",
        "liveliness_token omkl/n/b/alive",
        "declare_subscriber omkl/n/a/gossip",
        "declare_liveliness_subscriber omkl/n/a/alive",
        "query omkl/n/a/ask/b",
        "declare_queryable omkl/n/b/ask/*",
        "reply omkl/n/b/ask/a",
    }
