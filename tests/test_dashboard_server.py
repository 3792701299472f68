"""The dashboard's server: who is let in, what is served, runs that it starts, and real nodes that it asks."""

import http.client
import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn

import omkl
from omkl.dashboard import Recorder, events
from omkl.dashboard.guard import Guard
from omkl.dashboard.observer import Observer
from omkl.dashboard.runs import Runs
from omkl.dashboard.server import MOST_READERS, STATIC, application
from omkl.dashboard.sources import Memory
from omkl.node.config import load
from omkl.node.node import Node
from tests.node_processes import omkl as omkl_process
from tests.node_processes import write_network

TOKEN = "a-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Site:
    """A server that listens."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answer:
        """Return an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        if body is not None:
            sent.setdefault("Content-Type", "application/json")
        connection.request(method, path, data, sent)
        answer = connection.getresponse()
        read = Answer(answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read())
        connection.close()
        return read


@contextmanager
def serving(runs: Runs) -> Iterator[Site]:
    app = Guard(application(runs), TOKEN)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield Site(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
        runs.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    method = omkl.Gossip(features=1, kernels=omkl.gaussian(1))
    omkl.simulate("banana", "ring", 4, method, rounds=10, watch=Recorder(folder / "saved"))
    (folder.parent / "secret").mkdir()
    (folder.parent / "secret" / events.FILE).write_text('{"event":"network","title":"secret"}\n')
    return folder


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[Site]:
    with serving(Runs(folder)) as site:
        yield site


PATHS = ["/", "/static/app.js", "/static/plotly.js", "/api/runs", "/api/options", "/api/runs/saved/events", "/nothing"]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer another"}, {"Cookie": "omkl-0=x; omkl=y"}])
def test_without_the_token_nothing_is_served(site: Site, path: str, headers: dict[str, str]) -> None:
    status, answered, body = site.ask(path, **headers)
    assert status == 401
    assert b"the token is missing or another's" in body
    assert "set-cookie" not in answered


def test_a_wrong_token_sets_no_cookie(site: Site) -> None:
    assert site.ask("/?token=wrong")[0] == 401
    assert site.ask("/api/runs?token=" + TOKEN)[0] == 401  # it belongs to the page's address alone


def test_nothing_is_started_without_the_token(site: Site, folder: Path) -> None:
    assert site.ask("/api/runs", "POST", {})[0] == 401
    assert [path.name for path in folder.iterdir()] == ["saved"]


def test_the_token_opens_the_page_and_stays_in_a_cookie(site: Site) -> None:
    status, headers, _ = site.ask(f"/?token={TOKEN}")
    assert (status, headers["location"]) == (303, "/")
    cookie, *flags = headers["set-cookie"].split("; ")
    assert TOKEN not in cookie  # servers on other ports of this host are sent it too
    assert {"HttpOnly", "SameSite=strict"} <= set(flags)
    status, headers, body = site.ask("/", Cookie=cookie)
    assert status == 200
    assert b"<title>" in body
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe-eval" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": "https://127.0.0.1"},
        {"Origin": "http://127.0.0.1:1"},
        {"Host": "evil.example"},
        {"Host": "evil.example:8321", "Origin": "http://evil.example:8321"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "[::1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_sites_are_refused_with_the_token_too(site: Site, headers: dict[str, str], method: str) -> None:
    status, _, body = site.ask("/api/runs", method, {} if method == "POST" else None, **BEARER, **headers)
    assert status == 403
    assert b"this page alone may ask" in body or b"is not a name of this server" in body


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "localhost:{}", "localhost:9999", "[::1]:{}", "192.0.2.7:{}"])
def test_a_tunnel_may_have_a_port_of_its_own(site: Site, host: str) -> None:
    host = host.format(site.port)
    assert site.ask("/api/runs", Host=host, Origin=f"http://{host}", **BEARER)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../guard.py",
        "/static/%2e%2e/guard.py",
        "/static/..%2fguard.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/..\\guard.py",
        "/api/runs/../secret/events",
        "/api/runs/..%2fsecret/events",
        "/api/runs/%2e%2e%2fsecret/events",
        "/api/runs/..%5csecret/events",
        "/api/runs/../events",
        "/api/runs//events",
    ],
)
def test_no_way_leads_out_of_the_folders(site: Site, path: str) -> None:
    status, _, body = site.ask(path, **BEARER)
    assert status in (400, 404)
    assert not any(text in body for text in (b'"title"', b"class Guard", b"root:"))


def test_files_of_the_page_are_served(site: Site) -> None:
    for file in STATIC.iterdir():
        status, _, body = site.ask(f"/static/{file.name}", **BEARER)
        assert (status, body) == (200, file.read_bytes())
    status, headers, body = site.ask("/static/plotly.js", **BEARER)
    assert (status, headers["content-encoding"]) == (200, "gzip")
    assert len(body) < 2e6


def told(body: bytes) -> list[dict[str, Any]]:
    """Return the events of a stream that has ended."""
    *messages, last, rest = body.decode().split("\n\n")
    assert (last, rest) == ("event: close\ndata: ", "")
    messages = [message for message in messages if not message.startswith(":")]  # said while there is nothing to say
    assert all(message.startswith("data: ") for message in messages)
    return [json.loads(message.removeprefix("data: ")) for message in messages]


def test_a_saved_run_is_sent_whole(site: Site, folder: Path) -> None:
    status, headers, body = site.ask("/api/runs/saved/events", **BEARER)
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    lines = (folder / "saved" / events.FILE).read_text().splitlines()
    assert told(body) == [json.loads(line) for line in lines]
    assert json.loads(site.ask("/api/runs", **BEARER)[2])[-1] == {
        "name": "saved", "own": False, "source": "simulation",
        "title": "paper, kernels=gaussian(1), features=1 on banana: ring of 4 nodes", "live": False,
    }  # fmt: skip


def test_what_is_odd_in_the_folder_gives_no_error_of_the_server(site: Site, folder: Path) -> None:
    (folder / "odd").mkdir()
    (folder / "odd" / events.FILE).write_text('{"event":"network","title":NaN,"writer":["x",[]]}\n')
    try:
        assert site.ask("/api/runs", **BEARER)[0] == 200
        assert site.ask(f"/api/runs/{'x' * 300}/events", **BEARER)[0] == 400
    finally:
        (folder / "odd" / events.FILE).unlink()
        (folder / "odd").rmdir()


def test_so_many_read_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "endless").mkdir()
    (tmp_path / "endless" / events.FILE).write_text('{"event":"network","title":"t"')
    with serving(Runs(tmp_path)) as site, ExitStack() as stack:
        readers = [http.client.HTTPConnection("127.0.0.1", site.port, timeout=60) for _ in range(MOST_READERS + 20)]
        for reader in readers:
            stack.callback(reader.close)
            reader.request("GET", "/api/runs/endless/events", headers=BEARER)
        answers = [reader.getresponse() for reader in readers]
        assert sorted(answer.status for answer in answers) == [200] * MOST_READERS + [503] * 20
        assert len(json.loads(site.ask("/api/runs", **BEARER)[2])) == 1
        stack.close()
        for answer in answers:
            answer.close()
        left = (site.ask("/api/runs/none/events", **BEARER)[0] for _ in range(10))
        assert set(left) == {400}
        asked = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
        for _ in range(10_000):
            asked.request("GET", "/api/runs/endless/events", headers=BEARER)
            if (answer := asked.getresponse()).status == 200:
                break
            answer.read()
        assert answer.status == 200  # who has gone has made room
        asked.close()
        answer.close()


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"{", "application/json", "the body is not JSON"),
        (b"[" * 16_000, "application/json", "the body is not JSON"),
        (b"{}", "text/plain", "send it as application/json"),
        (b"x" * 20_000, "application/json", "a form takes less"),
        (b'{"nodes": 0}', "application/json", "nodes is 0; it must be a whole number from 1 to 200"),
        (b'{"rounds": 500}', "application/json", "rounds is 500; 5,300 samples are 265 rounds here"),
    ],
)
def test_forms_that_are_refused(site: Site, body: bytes, kind: str, text: str) -> None:
    status, _, answer = site.ask("/api/runs", "POST", body, Content_Type=kind, **BEARER)
    assert status == 400
    assert text in json.loads(answer)["error"]


def test_a_simulation_is_started_and_told(site: Site, folder: Path) -> None:
    form = {"topology": "ring", "nodes": 4, "method": "paper", "rounds": 12}
    status, _, body = site.ask("/api/runs", "POST", form, **BEARER)
    assert status == 201
    name = json.loads(body)["run"]
    first, *frames, last = told(site.ask(f"/api/runs/{name}/events", **BEARER)[2])
    assert first["title"] == "paper on banana: ring of 4 nodes"
    assert [frame["round"] for frame in frames] == list(range(1, 13))
    assert (last["event"], last["failed"]) == ("end", False)
    asked = (json.loads(site.ask("/api/runs", **BEARER)[2]) for _ in range(10_000))
    next(runs for runs in asked if not any(one["own"] for one in runs))  # the result is saved after the last event
    assert omkl.load(folder / name).loss.shape == (1, 12)  # a saved run as any other


def test_a_simulation_that_fails_says_why(site: Site) -> None:
    form = {"method": "paper", "learner": "shared", "nodes": 4}
    name = json.loads(site.ask("/api/runs", "POST", form, **BEARER)[2])["run"]
    (last,) = told(site.ask(f"/api/runs/{name}/events", **BEARER)[2])
    assert last["failed"]
    assert "basis" in last["text"]


def test_a_simulation_is_stopped(site: Site) -> None:
    name = json.loads(site.ask("/api/runs", "POST", {"nodes": 4}, **BEARER)[2])["run"]
    assert site.ask(f"/api/runs/{name}/stop", "POST", {}, **BEARER)[0] == 204
    last = told(site.ask(f"/api/runs/{name}/events", **BEARER)[2])[-1]
    assert (last["text"], last["failed"]) == ("stopped", False)
    status, _, body = site.ask("/api/runs/saved/stop", "POST", {}, **BEARER)
    assert (status, b"'saved' is not running here" in body) == (400, True)


def test_only_so_many_run_at_a_time(folder: Path) -> None:
    with serving(Runs(folder / "few")) as site:
        assert [site.ask("/api/runs", "POST", {}, **BEARER)[0] for _ in range(3)] == [201, 201, 400]


class Awaited(Memory):
    """A memory whose frames can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self._more = threading.Condition()

    def add(self, event: events.Event) -> None:
        super().add(event)
        with self._more:
            self.seen.append(event)
            self._more.notify_all()

    def frame(self, holds: Callable[[Any], bool]) -> Any:
        """Return the first frame of which something holds."""

        def found() -> Any:
            return next((one for one in self.seen if one["event"] == "frame" and holds(one)), None)

        self.wait(found)
        return found()

    def wait(self, holds: Callable[[], Any]) -> None:
        """Wait until something holds."""
        with self._more:
            assert self._more.wait_for(holds, timeout=60), self.seen


def test_real_nodes_are_seen_to_learn_and_to_go(tmp_path: Path) -> None:
    config = load(write_network(tmp_path, "abc", patience=0.1))
    memory = Awaited()
    observer = Observer(config, memory.add)
    with Node.join(config, "a") as a, Node.join(config, "b") as b:
        observer.start()
        try:
            with Node.join(config, "c") as c:
                for k in range(30):
                    for shift, node in enumerate((a, b, c)):
                        node.observe([k % 3 - shift, k % 5 - 2.0], 1 if k % 2 else -1)
                frame = memory.frame(lambda one: one["alive"] == 3 and one["node"]["round"] == [30] * 3)
                assert frame["edge"]["state"] == [0, 0]
                assert all(0 < loss < 2 for loss in frame["node"]["loss"])
                assert all(apart > 0 for apart in frame["node"]["disagreement"])
            frame = memory.frame(lambda one: one["node"]["alive"] == [1, 1, 0] and one["edge"]["state"][1] > 0)
            assert frame["edge"]["state"][0] == 0
            notes = [one["text"] for one in memory.seen if one["event"] == "note"]
            assert "c is gone" in notes
        finally:
            observer.close()
    assert json.loads(memory.read(0).lines[0])["ids"] == ["a", "b", "c"]


def test_the_page_follows_the_networks_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, memory = write_network(tmp_path, "abc"), Awaited()
    observer = Observer(load(file), memory.add, file=file)
    observer.start()
    try:
        memory.frame(lambda one: len(one["node"]["alive"]) == 3)
        cursor = memory.read(0).cursor
        file.write_text("nodes = 4")
        memory.wait(lambda: "has changed, and the page goes on with what it was" in caplog.text)
        write_network(tmp_path, "abcd")
        memory.frame(lambda one: len(one["node"]["alive"]) == 4)
    finally:
        observer.close()
    first, *rest = map(json.loads, memory.read(cursor).lines)
    assert first["ids"] == ["a", "b", "c", "d"]
    assert all(one["event"] != "frame" or len(one["node"]["alive"]) == 4 for one in rest)
    assert json.loads(memory.read(0).lines[0]) == first
    assert memory.read(memory.read(0).cursor).lines == []


def test_the_command_says_where_and_ends_what_it_started(tmp_path: Path) -> None:
    saved = tmp_path / "runs" / "endless"  # whoever reads it waits for more
    saved.mkdir(parents=True)
    (saved / events.FILE).write_text('{"event":"network","title":"t"}\n')
    flags = ("dashboard", "--port", 0, "--no-browser", "--out", tmp_path / "runs")
    with omkl_process(*flags, stderr=subprocess.PIPE) as process:
        assert process.stderr
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", process.stderr.readline())
        assert found
        site, bearer = Site(int(found[1])), {"Authorization": f"Bearer {found[2]}"}
        name = json.loads(site.ask("/api/runs", "POST", {}, **bearer)[2])["run"]
        reader = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
        reader.request("GET", "/api/runs/endless/events", headers=bearer)
        answer = reader.getresponse()
        assert answer.readline().startswith(b"data: ")
        process.terminate()
        assert process.wait(30) == 0
        assert process.stderr.read() == ""
        reader.close()
    last = (tmp_path / "runs" / name / events.FILE).read_text().splitlines()[-1]
    assert json.loads(last)["text"] == "stopped"


def test_a_port_that_is_taken(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    with omkl_process("dashboard", "--port", site.port, "--no-browser") as process:
        assert process.wait(60) == 2
    assert "cannot be listened on" in capfd.readouterr().err
