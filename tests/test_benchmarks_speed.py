"""Benchmarks of speed run, at small size; what they time is not tested."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import compile as compiling
from benchmarks import device, network, report, scale, speed, where, wire

import omkl
from omkl.blas import one_thread

ROOT = Path(__file__).parents[1]
SMALL = speed.Shape(rounds=1, inputs=2)  # all have the programs of this shape and one seed
ABSENT = ("joblib", "networkx", "numba", "pydantic", "river", "sklearn", "threadpoolctl", "typer", "zenoh")


def are_measured(row: report.Row) -> bool:
    """Return whether all numbers of a row are finite and positive."""
    return all(np.isfinite(value) and value > 0 for value in row.values() if not isinstance(value, str))


def test_the_default_stands_beside_the_papers_preset() -> None:
    default, preset, ratio = speed.side_by_side(SMALL, seeds=1, turns=1)
    assert [row["method"] for row in (default, preset, ratio)] == ["default", "paper's preset", "default / paper's"]
    assert all(map(are_measured, (default, preset, ratio)))
    for what in ("first call, s", "call, s", "products alone, s", "calibrating a seed, ms"):
        assert ratio[what] == default[what] / preset[what]
    assert default["call / products"] == default["call, s"] / default["products alone, s"]


def test_products_are_those_of_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    monkeypatch.setattr(speed, "CHUNK", 20)
    monkeypatch.setattr(speed, "multiply", lambda a, b: shapes.append((a.shape, b.shape)))
    X, _ = scale.stream(10, 5, 3)
    speed.products(scale.drawn(omkl.recommended(), X, 1), X)
    assert shapes[:2] == [((20, 3), (3, 50)), ((20, 50), (50, 120))]
    assert shapes[-1] == ((10, 50), (50, 120))
    assert len(shapes) == 6


def test_the_parts_of_a_call_add_up() -> None:
    row = where.simulation("default", SMALL, turns=1)
    first, second, *others = [value for value in row.values() if not isinstance(value, str)]
    assert first == pytest.approx(second + sum(others))
    assert are_measured({name: value for name, value in row.items() if name in ("calibrating", "products")})


def test_the_papers_preset_stands_beside_numpy() -> None:
    row = speed.against_numpy(SMALL, seeds=1, turns=1)
    assert are_measured(row)
    assert row["same / sim."] == row["same in NumPy, s"] / row["simulator, s"]


def test_a_first_process_keeps_what_it_compiles(tmp_path: Path) -> None:
    setting = compiling.Setting("paper's preset", (700, 3, 2), "path", 1)  # too many rounds for NumPy
    row = compiling.in_process(setting, 1, str(tmp_path / "xla"), str(tmp_path / "numba"))
    assert row["loops compiled"] > 0
    assert (row["reloaded"], row["stderr, lines"]) == (0, 0)
    assert row["first - steady, s"] == row["first call, s"] - row["steady, s"]
    assert row["compiled for other steps"] >= 0


def test_only_the_second_process_finds_something_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(setting: compiling.Setting, calls: int, cache: str, numba: str) -> report.Row:
        found = 0 if cache == "off" else len(list(Path(cache).iterdir()))
        Path(numba, "kept").touch()
        return {"found": found}

    monkeypatch.setattr(compiling, "in_process", seen)
    rows = compiling.in_turn("some", compiling.SETTINGS["README's example"], 1)
    found = [(row["method"], row["process"], row["found"]) for row in rows]
    assert found == [("default", "none kept", 0), ("default", "first", 0), ("default", "second", 1)]


def test_of_several_turns_the_quickest_first_call_counts() -> None:
    turns = [[{"first call, s": 3.0}, {"first call, s": 1.0}], [{"first call, s": 2.0}, {"first call, s": 4.0}]]
    assert compiling.best(turns) == [{"first call, s": 2.0}, {"first call, s": 1.0}]


def test_an_accelerator_needs_the_simulator_alone(tmp_path: Path) -> None:
    runs = tuple((preset, "banana", SMALL.rounds, SMALL.inputs) for preset in scale.PRESETS)
    sizes = device.Sizes(
        runs, seeds=1, graphs=("regular",), nodes=(20,), rounds=SMALL.rounds, copied=1000, multiplied=8
    )
    code = f"import sys; sys.modules.update(dict.fromkeys({ABSENT}))\n"
    code += f"from benchmarks.device import Sizes, main; main({sizes})"
    settings = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ | settings, check=True)
    rows = json.loads((tmp_path / "out/bench/device.json").read_text())["rows"]
    assert [row["run"] for row in rows] == [
        "default, banana", "paper's preset, banana", "default, regular of 20", "paper's preset, regular of 20",
    ]  # fmt: skip
    assert all(map(are_measured, rows))
    assert {"call, ms", "rounds, ms"} < rows[0].keys()
    assert {"round, ms", "times its floor"} < rows[2].keys()


def test_a_node_costs_what_its_round_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def here(method: str, graph: str, nodes: int, turns: int) -> report.Row:
        return {"graph": graph, "nodes": nodes} | scale.point(scale.PRESETS[method](), graph, nodes, turns, work=200)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scale, "in_process", here)
    monkeypatch.setattr("sys.argv", ["", "--nodes", "100", "--graphs", "ring", "--turns", "1"])
    scale.main()
    record = json.loads((tmp_path / "out/bench/scale.json").read_text())
    (row,) = record["rows"]
    assert {"ns / node-round", "CPU ns", "system ns", "graph, s"} < row.keys()
    assert all(np.isfinite(value) for value in row.values() if not isinstance(value, str))
    assert record["note"].endswith("no such point.")


def test_costs_are_compared_from_a_thousand_nodes_on() -> None:
    costs = {100: 9.0, 1000: 2.0, 10_000: 3.0}
    rows: list[report.Row] = [{"graph": "ring", "nodes": nodes, "CPU ns": cost} for nodes, cost in costs.items()]
    assert scale.spreads(rows).endswith("largest over smallest: ring 1.50.")


def test_a_round_is_timed_as_a_whole_and_by_its_parts() -> None:
    with one_thread():
        rows = list(network.one_round(nodes=3, rounds=10, repeat=1, names=["default", "paper", "exact"]))
    assert [row["method"] for row in rows] == ["default", "default", "paper", "paper", "exact", "exact"]
    assert [row["text"] for row in rows] == ["loops", "arrays"] * 3
    for row in rows:
        del row["the rest: protocol"], row["predict, weigh, learn"]  # differences of what is clocked at two times
    assert all(map(are_measured, rows))
    assert list(network.METHODS)[:2] == ["default", "paper"]


@pytest.mark.parametrize("quantizer", [omkl.QSGD(3), omkl.Exact()])
def test_a_frame_is_weighed_and_clocked(quantizer: omkl.QSGD | omkl.Exact) -> None:
    method = omkl.Gossip(eta=1, gamma=0.5, quantizer=quantizer)
    clocked = wire.clock(method, number=1, repeat=1)
    assert are_measured(clocked)
    if isinstance(quantizer, omkl.Exact):
        assert clocked["bytes"] == 4 + 4 * 3 * 40
        return
    row = wire.weigh(method, rounds=20)
    assert row["all-in"] == pytest.approx(sum(row[part] for part in (*wire.HEADER, "steps", "levels")))
    assert 4 < row["all-in"] <= row["most"] <= 47
