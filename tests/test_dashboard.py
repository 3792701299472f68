"""What the page is told: of simulations, of networks, of saved runs."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omkl
from omkl import topology
from omkl.dashboard import Recorder, events, layout, recorder, sources
from omkl.dashboard.form import flags
from omkl.dashboard.observer import STRANGE, Changes, Observer, described, understood
from omkl.dashboard.runs import Runs
from omkl.dashboard.saved import Saved
from omkl.dashboard.sources import File, Memory
from omkl.errors import InputError
from omkl.node.config import Access, Member, NetworkConfig
from tests.conftest import assert_same_but_for_flips

SMALL = omkl.Gossip(features=1, kernels=omkl.gaussian(1), quantizer=None)


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / events.FILE).read_text().splitlines()]


def frames(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in told if event["event"] == "frame"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[omkl.Result, Path]:
    folder = tmp_path_factory.mktemp("run")
    method = omkl.Gossip(eta=1.0, gamma=0.5, quantizer=omkl.Nearest())
    return omkl.simulate("banana", "ring", 6, method, rounds=60, watch=Recorder(folder, "mine")), folder


def test_a_run_is_told_as_it_was(run: tuple[omkl.Result, Path]) -> None:
    result, folder = run
    told = read(folder)
    assert [event["event"] for event in told] == ["network", *["frame"] * 60, "end"]
    assert told[0]["title"] == "mine on banana: ring of 6 nodes"
    assert told[0]["states"] == ["up"]
    assert told[0]["window"] == "mean over the last 25 rounds, about"
    assert told[-1]["text"] == f"60 rounds; final loss {result.summary()['final_loss']:.4g} over the last tenth"
    assert told[0]["edges"] == topology.ring(6).edges.tolist()
    assert told[0]["kernels"] == ["gaussian 1", "gaussian 3", "gaussian 5"]
    shown = frames(told)
    assert [frame["round"] for frame in shown] == list(range(1, 61))
    np.testing.assert_allclose([frame["disagreement"] for frame in shown], result.disagreement[0], rtol=1e-3)
    np.testing.assert_allclose([frame["weights"] for frame in shown], result.weights[0], rtol=1e-3)
    np.testing.assert_allclose([6 * frame["bits"] for frame in shown], result.bits[0], rtol=1e-3)
    assert shown[-1]["total"] == result.bits[0].sum()


def test_losses_are_running_means_and_so_is_their_spread(run: tuple[omkl.Result, Path]) -> None:
    result, folder = run
    mean, shown = 0.0, frames(read(folder))
    for t, loss in enumerate(result.loss[0]):
        mean += (float(loss) - mean) / min(t + 1, recorder.RECENT)
        assert shown[t]["loss"] == pytest.approx(mean, rel=1e-3)
        assert np.mean(shown[t]["node"]["loss"]) == pytest.approx(mean, rel=1e-3)
        assert shown[t]["spread"] == pytest.approx(np.percentile(shown[t]["node"]["loss"], [10, 90]), rel=1e-3)


def test_to_watch_a_run_changes_nothing(run: tuple[omkl.Result, Path]) -> None:
    result, _ = run
    method = omkl.Gossip(eta=1.0, gamma=0.5, quantizer=omkl.Nearest())
    alone = omkl.simulate("banana", "ring", 6, method, rounds=60)
    np.testing.assert_allclose(alone.loss, result.loss, atol=1e-6)
    assert_same_but_for_flips(alone.bits, result.bits)


def test_faults_are_those_of_the_run(tmp_path: Path) -> None:
    faults = omkl.Faults(links=0.3, nodes=0.1)
    result = omkl.simulate("banana", "ring", 6, SMALL, rounds=40, faults=faults, watch=Recorder(tmp_path))
    told = read(tmp_path)
    up = [6 - sum(frame["edge"]["state"]) for frame in frames(told)]
    size = result.link_bits[0].sum() / (2 * sum(up))
    assert (2 * size * np.array(up)).tolist() == result.link_bits[0].tolist()  # exact messages have one length
    asleep = sum(6 - frame["alive"] for frame in frames(told))
    assert 10 < asleep < 40  # 24 are expected of 240
    notes = [event for event in told if event["event"] == "note"]
    assert [note["round"] for note in notes] == [t + 1 for t in range(40) if up[t] < 6]
    assert all(frame["edge"]["bits"][e] == 0 for frame in frames(told) for e in np.flatnonzero(frame["edge"]["state"]))


def test_graphs_in_turn_show_who_can_talk(tmp_path: Path) -> None:
    schedule = topology.Schedule(["path", "star"])
    omkl.simulate("banana", schedule, 5, SMALL, rounds=4, watch=Recorder(tmp_path))
    told = read(tmp_path)
    for t, frame in enumerate(frames(told)):
        there = [edge for edge, state in zip(told[0]["edges"], frame["edge"]["state"], strict=True) if state == 0]
        assert there == (topology.path(5) if t % 2 == 0 else topology.star(5)).edges.tolist()
    assert told[0]["states"] == ["up", "not used in this round"]


def test_faults_given_round_by_round(tmp_path: Path) -> None:
    down = np.zeros((5, 4), dtype=bool)
    down[2, 1] = True
    omkl.simulate("banana", "path", 5, SMALL, rounds=5, faults=omkl.Faults(links=down), watch=Recorder(tmp_path))
    assert [frame["edge"]["state"] for frame in frames(read(tmp_path))] == down.astype(int).tolist()


def test_a_large_run_is_a_sample_and_aggregates(tmp_path: Path, rng: np.random.Generator) -> None:
    X = rng.standard_normal((450, 2000, 1), dtype=np.float32)
    result = omkl.simulate((X, np.sign(X[..., 0])), "ring", method=SMALL, record_every=3, watch=Recorder(tmp_path))
    told = read(tmp_path)
    assert told[0]["nodes"] == 2000
    assert len(told[0]["ids"]) == len(frames(told)[0]["node"]["loss"]) == recorder.MOST_DRAWN
    assert len(told[0]["edges"]) == recorder.MOST_DRAWN - 1  # a piece of the ring
    assert len(frames(told)) == 150  # every third round is recorded
    assert frames(told)[-1]["round"] == 450
    assert frames(told)[-1]["total"] == 3 * result.bits[0].sum()
    assert max(map(len, (tmp_path / events.FILE).read_text().splitlines())) < 12_000


def test_frames_are_bounded_however_many_rounds(tmp_path: Path, rng: np.random.Generator) -> None:
    X = rng.standard_normal((5000, 2, 1), dtype=np.float32)
    omkl.simulate((X, np.sign(X[..., 0])), "path", method=SMALL, watch=Recorder(tmp_path))
    assert 200 < len(frames(read(tmp_path))) <= recorder.MOST_FRAMES


def test_a_run_that_fails_says_so(tmp_path: Path) -> None:
    with pytest.raises(omkl.DivergedError), Recorder(tmp_path) as watch:
        omkl.simulate("banana", "ring", 4, omkl.Local(eta=1e30), rounds=100, watch=watch)
    last = read(tmp_path)[-1]
    assert (last["event"], last["failed"]) == ("end", True)
    assert "a run must stay finite" in last["text"]


def test_a_saved_result_has_its_curves(run: tuple[omkl.Result, Path], tmp_path: Path) -> None:
    result, _ = run
    told = replayed(result.save(tmp_path / "r"))
    assert [event["event"] for event in told] == ["network", *["frame"] * 60, "end"]
    np.testing.assert_allclose([one["disagreement"] for one in frames(told)], result.disagreement[0], rtol=1e-3)
    last = frames(told)[-1]
    apart = np.linalg.norm((result.theta - result.theta.mean(axis=0)).reshape(6, -1), axis=1)
    np.testing.assert_allclose(last["node"]["disagreement"], apart, rtol=1e-3)
    assert last["total"] == result.bits[0].sum()
    assert last["total"] / 60 / 6 == pytest.approx(result.summary()["bits_per_node_round"])


def test_a_result_that_cannot_be_read_ends_with_the_reason(
    run: tuple[omkl.Result, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    result, _ = run
    result.save(tmp_path)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyarrow", None)
        (told,) = replayed(tmp_path)
    assert (told["event"], told["failed"]) == ("end", True)
    assert "pip install 'omkl[results]'" in told["text"]
    (tmp_path / "final.npz").write_bytes(b"torn")
    (told,) = replayed(tmp_path)
    assert "simulate it again" in told["text"]


def replayed(folder: Path) -> list[dict[str, Any]]:
    told, cursor, ended, saved = [], 0, False, Saved(folder)
    while not ended:
        lines, cursor, ended = saved.read(cursor)
        told += [json.loads(line) for line in lines]
    return told


@pytest.mark.parametrize("method", ["recommended", omkl.paper(eta=2.0)])
def test_a_saved_result_is_called_as_the_same_run_with_events(method: Any, tmp_path: Path) -> None:
    result = omkl.simulate("banana", "ring", 4, method, rounds=20, watch=Recorder(tmp_path))
    watched, saved = read(tmp_path), replayed(result.save(tmp_path / "r"))
    assert saved[0]["title"].startswith(result.config["label"])
    for key in ("title", "kernels", "states", "window", "loss"):
        assert saved[0][key] == watched[0][key], key
    assert len(saved[0]["kernels"]) == result.weights.shape[2]
    assert watched[0]["settings"].items() <= saved[0]["settings"].items()
    assert saved[0]["settings"]["seed"] == "0"
    assert ("features" in saved[0]["settings"]) == (method != "recommended")  # which has landmarks in their place
    assert saved[-1]["text"] == watched[-1]["text"]


def test_a_saved_result_of_many_seeds_says_which(tmp_path: Path) -> None:
    result = omkl.simulate("banana", "ring", 4, SMALL, rounds=20, seeds=2, seed=3)
    assert replayed(result.save(tmp_path / "r"))[0]["settings"]["seed"] == "3 to 4, their mean"


@pytest.mark.parametrize("graph", [topology.ring(9), topology.grid(12), topology.star(7), topology.path(8)])
def test_places_keep_links_short(graph: topology.Graph) -> None:
    places = layout.spread_out(graph.nodes, graph.edges)
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    assert apart[np.triu_indices(graph.nodes, 1)].min() > 0.2
    assert apart[tuple(graph.edges.T)].max() < 1.5 < apart.max()


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_places_of_what_is_hardly_a_network(nodes: int) -> None:
    places = layout.spread_out(nodes, np.empty((0, 2), dtype=np.int64))
    assert places.shape == (nodes, 2)
    assert len(np.unique(places.round(6), axis=0)) == nodes


def test_a_piece_hangs_together() -> None:
    graph = topology.grid(400)
    nodes = layout.piece(graph, 30)
    edges = layout.within(graph, nodes)
    assert len(nodes) == 30
    assert not topology.Graph(30, edges).components.any()
    assert graph.positions is not None
    assert np.abs(graph.positions[nodes].mean(axis=0) - graph.positions.mean(axis=0)).max() < 2


def network(places: bool = False) -> NetworkConfig:
    members = tuple(
        Member(id=id, listen=f"tcp/127.0.0.1:{k + 1}", position=(k, 2.0 * k) if places else None)
        for k, id in enumerate("abc")
    )
    graph = topology.build("path", 3)
    return NetworkConfig(name="net", inputs=2, method=omkl.Gossip(), seed=0, topology=graph, members=members)


def status(id: str, at: int, **changed: Any) -> dict[str, Any]:
    peers = {"a": "b", "b": "ac", "c": "b"}[id]
    link = {"state": "synced", "sent_bytes": 10.0 * at, "resyncs": 0.0, "frames_dropped": 0.0}
    standing = {"round": at, "boot": 1, "diverged": False, "loss": 0.5, "disagreement": 0.1, "weights": [0.25, 0.75]}
    return standing | {"gossip_bytes": 10.0 * at, "links": {peer: dict(link) for peer in peers}} | changed


def notes(told: list[Any]) -> list[tuple[str, str]]:
    return [(event["kind"], event["text"]) for event in told if event["event"] == "note"]


def test_what_becomes_of_nodes_and_links_is_noted() -> None:
    changes = Changes(network())
    all_of = {id: status(id, 1) for id in "abc"}
    first = changes.events(all_of, 0.5)
    assert notes(first) == [
        ("info", "a is there"), ("info", "b is there"), ("info", "c is there"),
        ("info", "a - b is synced"), ("info", "b - c is synced"),
    ]  # fmt: skip
    assert notes(changes.events(all_of, 1.0)) == []
    without = {id: status(id, 3) for id in "ab"}
    without["b"]["links"]["c"]["state"] = "left out"
    lost = changes.events(without, 1.5)
    assert notes(lost) == [("fault", "c is gone"), ("fault", "b - c is left out")]
    assert lost[-1]["node"]["alive"] == [1, 1, 0]
    assert lost[-1]["edge"]["state"] == [0, 3]
    back = {id: status(id, 5) for id in "ab"} | {"c": status("c", 5, boot=2)}
    back["b"]["links"]["c"]["resyncs"] = 1.0
    assert notes(changes.events(back, 2.0)) == [
        ("recovered", "c is back"), ("recovered", "b - c is synced"), ("resync", "b took 1 snapshot of c"),
    ]  # fmt: skip
    assert notes(changes.events(back | {"a": status("a", 5, diverged=True)}, 2.5)) == [
        ("fault", "the model of a is not finite")
    ]


def test_bits_are_those_since_the_last_answer() -> None:
    changes = Changes(network())
    assert changes.events({id: status(id, 4) for id in "abc"}, 0.0)[-1]["bits"] is None
    frame = changes.events({id: status(id, 6) for id in "abc"}, 0.5)[-1]
    assert frame["bits"] == 80  # ten bytes a round
    assert frame["total"] == 3 * 6 * 80
    assert frame["edge"]["bits"] == [160, 160]
    assert frame["weights"] == [0.25, 0.75]
    anew = {id: status(id, 8, boot=2) for id in "abc"}  # its counts begin at zero
    assert changes.events(anew, 1.0)[-1]["total"] == 3 * 6 * 80 + 3 * 8 * 80


def test_a_network_nobody_answers_for() -> None:
    frame = Changes(network()).events({}, 0.0)[-1]
    assert (frame["alive"], frame["loss"], frame["spread"], frame["round"]) == (0, None, None, 0)
    assert frame["edge"]["state"] == [2, 2]


def test_nodes_with_another_file_than_the_page_are_told_of_and_the_others_go_on() -> None:
    changes = Changes(network())
    all_of = {id: status(id, 1) for id in "abc"}
    changes.events(all_of, 0.5)
    grown = status("c", 2)
    grown["links"] = {"d": grown["links"]["b"]}  # as where d is put between b and c
    for told in (True, False):
        made = changes.events({"a": status("a", 2), "b": status("b", 2), "c": grown}, 1.0)
        text = "c has links to d, by this page's file to b; open the page with its file"
        assert (("fault", text) in notes(made)) == told
        assert made[-1]["node"]["round"] == [2, 2, 2]
        assert made[-1]["edge"]["state"] == [0, 2]
    back = changes.events(all_of | {"c": status("c", 3)}, 1.5)
    assert ("recovered", "c is as this page's file has it") in notes(back)


DEEP = b"[" * 10_000 + b"]" * 10_000
WHOLE = status("a", 7, frames=1) | {"loss": None}


CHANGED: list[dict[str, Any]] = [
    {"round": "7"}, {"round": None}, {"round": 1e300}, {"round": float("nan")}, {"round": -1}, {"boot": [1]},
    {"gossip_bytes": float("inf")}, {"gossip_bytes": 10**400}, {"links": []}, {"links": {"b": {}}},
    {"links": {"b": {"state": "asleep"}}}, {"links": {"b": {"state": ["synced"]}}},
    {"links": {"b": {"state": "synced", "resyncs": "x"}}}, {"weights": 1}, {"weights": [1, 2, 3]},
    {"weights": [[1], 2]}, {"loss": "low"}, {"loss": [0]}, {"disagreement": {}},
]  # fmt: skip
NO_STATUS = [b"", b"\xff", b"[]", b"7", b"null", b"{}", DEEP, b'{"round": ' + DEEP + b"}"]
NO_STATUS += [json.dumps(WHOLE | changed).encode() for changed in CHANGED]


@pytest.mark.parametrize("answer", NO_STATUS)
def test_an_answer_that_is_no_status_is_told_and_the_page_goes_on(answer: bytes) -> None:
    changes = Changes(network())
    for told in (True, False):
        made = changes.events({"a": understood(answer, 2), "b": status("b", 2)}, 1.0)
        assert (("fault", f"a {STRANGE}") in notes(made)) == told
        assert made[-1]["node"]["round"] == [None, 2, None]
        events.line(made[-1])


def test_a_status_is_understood() -> None:
    assert understood(json.dumps(WHOLE).encode(), 2) == {key: WHOLE[key] for key in WHOLE if key != "frames"}
    odd = WHOLE | {"loss": float("nan"), "weights": [float("nan"), 0.5]}
    frame = Changes(network()).events({"a": understood(json.dumps(odd).encode(), 2)}, 0.0)[-1]
    assert json.loads(events.line(frame))["node"]["loss"] == [None] * 3


def test_nodes_are_drawn_where_they_are() -> None:
    assert described(network(places=True))["positions"] == [[0, 0], [1, 2], [2, 4]]
    assert len(described(network())["positions"]) == 3


def test_a_network_is_shown_by_its_preset_and_beside_a_guess() -> None:
    for loss, guess in (("logistic", np.log(2)), (omkl.Softmax(2), np.log(2)), ("squared", None)):
        shown = described(replace(network(), method=omkl.paper(loss=loss)))
        assert shown["settings"]["method"] == "paper"
        assert shown["guess"] == (guess and pytest.approx(guess))


def test_a_file_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / events.FILE
    source = File(path)
    assert source.read(0) == ([], 0, False)
    header = json.dumps({"event": "network", "title": "t", "writer": [socket.gethostname(), os.getpid()]})
    path.write_text(header + '\n{"event":"fra')
    lines, cursor, ended = source.read(0)
    assert (lines, ended) == ([header], False)
    assert source.about()["live"] is True
    with path.open("a") as file:
        file.write('me"}\n{"event":"end"}\n')
    assert source.read(cursor) == (['{"event":"frame"}', '{"event":"end"}'], len(path.read_bytes()), True)
    assert source.about() == {"title": "t", "source": "simulation", "live": False}


def header(**odd: Any) -> str:
    return json.dumps({"event": "network"} | odd) + "\n"


ODD = ["", "{", "[]\n", '{"event":"frame"}\n', "\x00\n", "[" * 10_000 + "\n", "7\n", "null\n", '"x"\n', "[[]]\n"]
TITLES: list[Any] = [None, 7, float("nan"), [], {}]
ODD += [header(title=title) for title in TITLES]
ODD += ['{"event":"end"}\n', '{"event":"end","text":7}\n', '{"event":[]}\n']


@pytest.mark.parametrize("text", ODD)
def test_files_that_hold_no_run_do_not_spoil_the_list(text: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / events.FILE).write_text(text)
    (told,) = Runs(tmp_path).about()
    assert told["live"] is not text.endswith("\n")
    assert told["title"] == ("a run that begins" if told["live"] else "a damaged events.jsonl")


PROCESSES: list[Any] = ["x", 2**70, -1, 0, None, []]
WRITERS: list[Any] = [[socket.gethostname(), process] for process in PROCESSES]
WRITERS += [7, [], ["x"], ["x", "y"], {"a": 1, "b": 2}, [[], []], "ab"]
HEADERS: list[dict[str, Any]] = [{"writer": writer} for writer in WRITERS]
HEADERS += [{"title": title} for title in ("\ud800", "x" * 10**6, "<script>")]
HEADERS += [{"source": source} for source in (7, float("nan"), "\ud800")]


@pytest.mark.parametrize("odd", HEADERS)
def test_odd_headers_are_listed_in_a_short_line_that_can_be_sent(odd: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / events.FILE).write_text(header(**{"title": "t"} | odd))
    (told,) = Runs(tmp_path).about()
    assert len(json.dumps(told, allow_nan=False, ensure_ascii=False).encode()) < 1000


def test_a_line_without_end_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_LINE", 2**18)
    path = tmp_path / events.FILE
    path.write_text('{"event":"network","title":"' + "x" * 2**20)
    lines, _, ended = File(path).read(0)
    assert (len(lines), ended, File(path).about()["live"]) == (1, True, False)


def test_a_file_elsewhere_is_not_served_by_a_link_to_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text('{"event":"network","title":"secret"}\n')
    for name in (events.FILE, "run.json"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / name).symlink_to(secret)
    runs = Runs(tmp_path / "runs")
    assert runs.about() == []
    with pytest.raises(InputError, match="no run has the name"):
        runs.source(events.FILE)


def test_folders_that_come_and_go_and_cannot_be_named_do_not_spoil_the_list(tmp_path: Path) -> None:
    for name in (b"whole", b"gone", b"no\xffutf"):
        folder = tmp_path / os.fsdecode(name)
        folder.mkdir()
        (folder / events.FILE).write_text('{"event":"network","title":"t"}\n')
    runs = Runs(tmp_path)

    def source(name: str) -> Any:
        if name == "gone":
            raise InputError("it was there a moment ago")
        return Runs.source(runs, name)

    runs.source = source  # type: ignore[method-assign]
    assert [one["name"] for one in runs.about()] == ["whole"]


def test_a_run_whose_process_is_gone_has_ended(tmp_path: Path) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    header = {"event": "network", "title": "t", "writer": [socket.gethostname(), process.pid]}
    (tmp_path / events.FILE).write_text(json.dumps(header) + '\n{"event":"frame"}\n')
    source = File(tmp_path / events.FILE)
    lines, cursor, ended = source.read(0)
    assert (len(lines), ended, source.about()["live"]) == (2, False, False)
    (last,), _, ended = source.read(cursor)
    assert ended
    assert json.loads(last)["text"] == sources.LEFT
    for writer in ([socket.gethostname(), os.getpid()], ["elsewhere", process.pid]):
        (tmp_path / events.FILE).write_text(json.dumps(header | {"writer": writer}) + "\n")
        assert source.about()["live"]


def test_a_line_longer_than_a_block_comes_whole(tmp_path: Path) -> None:
    path = tmp_path / events.FILE
    long = json.dumps({"event": "network", "title": "x" * 3 * sources.MOST_BYTES})
    path.write_text(long + '\n{"event":"frame"}\n')
    lines, cursor, _ = File(path).read(0)
    assert lines[0] == long
    assert cursor <= len(path.read_bytes())


def test_what_is_kept_of_a_network_is_bounded() -> None:
    memory = Memory()
    memory.add({"event": "network", "title": "t"})
    for k in range(5000):
        memory.add({"event": "frame", "round": k})
        if k % 2:
            memory.add(events.note(k, 0.0, "fault", "x"))
    lines, cursor, ended = memory.read(0)
    rounds = [json.loads(line)["round"] for line in lines[1:] if '"frame"' in line]
    assert lines[0].startswith('{"event":"network"')
    assert not ended
    assert sources.MOST_FRAMES / 2 < len(rounds) <= sources.MOST_FRAMES
    assert sources.MOST_NOTES / 2 <= len(lines) - 1 - len(rounds) <= sources.MOST_NOTES
    assert rounds == sorted(rounds)
    assert rounds[0] == 0
    assert rounds[-100:] == list(range(4900, 5000))
    memory.add({"event": "frame", "round": 5000})
    assert memory.read(cursor).lines == ['{"event":"frame","round":5000}']


def test_a_form_becomes_flags() -> None:
    form = {"data": "banana", "topology": "ring", "nodes": 5, "bits": 3, "links": 0.25, "eta": None, "gamma": 0.5}
    assert flags(form) == [
        "--data", "banana", "--topology", "ring", "--nodes", "5", "--seed", "0", "--faults", "{links = 0.25}",
        "--method", '{gamma = 0.5, name = "recommended", quantizer = {name = "qsgd", bits = 3, rescale = true}}',
    ]  # fmt: skip
    stations = flags({"data": "beijing_stations", "nodes": 5, "topology": "ring"})
    assert stations[:4] == ["--data", "beijing_stations", "--nodes", "12"]
    sgd = '{learner = {name = "sgd", eta = 2}, name = "recommended"}'
    assert flags({"learner": "sgd", "eta": 2})[-2:] == ["--method", sgd]
    assert flags({"method": "paper", "eta": 2})[-1] == '{eta = 2, name = "paper"}'


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ([], "a list given; a simulation is described by an object"),
        ({"nodes": 5000}, "nodes is 5000; it must be a whole number from 1 to 200"),
        ({"nodes": True}, "nodes is True; it must be a whole number"),
        ({"nodes": 5.0}, "nodes is 5.0; it must be a whole number"),
        ({"gamma": float("nan")}, "gamma is nan; it must be a number from 0.0001 to 1"),
        ({"gamma": 0}, "gamma is 0; it must be a number"),
        ({"eta": 1}, "method.eta: 1.0 given; recommended learns by a rule that has no such rate"),
        ({"eta": 1, "method": "paper", "learner": "newton"}, "method.learner.eta: unknown key"),
        ({"rounds": 266}, "rounds is 266; 5,300 samples are 265 rounds here"),
        ({"data": '{file="/etc/passwd"}'}, "unknown data"),
        ({"out": "/tmp"}, "unknown setting 'out'"),
    ],
)
def test_forms_that_are_refused(form: Any, text: str) -> None:
    with pytest.raises(InputError, match=text.replace("(", r"\(").replace("{", r"\{")):
        flags(form)


@pytest.mark.parametrize(
    "name", ["..", ".", "a/../b", "../b", "", "b\x00", "%2e%2e", "nothing", "..\\b", "x" * 300, "é" * 128, "\ud800"]
)
def test_runs_are_those_of_the_folder(name: str, tmp_path: Path) -> None:
    for folder in (tmp_path / "b", tmp_path / "runs" / "a"):
        folder.mkdir(parents=True)
        (folder / events.FILE).write_text('{"event":"network","title":"t"}\n')
    runs = Runs(tmp_path / "runs")
    assert [one["name"] for one in runs.about()] == ["a"]
    with pytest.raises(InputError, match="no run has the name"):
        runs.source(name)


def test_a_run_may_have_any_name_and_a_new_one_has_none_that_is_taken(tmp_path: Path) -> None:
    for name in ("my run", "große", "<b>x", "run-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / events.FILE).write_text('{"event":"network","title":"t"}\n')
    runs = Runs(tmp_path / "new", {"run-1": File(tmp_path / "run-1" / events.FILE)})
    assert runs.start({"nodes": 2}) == "run-2"
    runs.close()
    assert {one["name"] for one in Runs(tmp_path).about()} == {"my run", "große", "<b>x", "run-1"}
    assert Runs(tmp_path).source("my run").about()["title"] == "t"


def test_whom_nodes_would_not_tell_is_told_before() -> None:
    config = replace(network(), access=Access(predict=["*"], observe=["*"], model=["*"]))
    with pytest.raises(InputError, match=r"access.status does not name a; .* write status = ..\*.. there"):
        Observer(config, Memory().add)


def test_a_page_that_ends_before_it_asks_ends_quietly() -> None:
    Observer(network(), Memory().add).close()
