import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from pyarrow import parquet
from typer.testing import CliRunner, Result

import omkl
from omkl.cli.app import app
from omkl.cli.exits import Exit
from omkl.data import reading
from omkl.errors import InputError
from omkl.metrics import half_interval
from omkl_lab import sweeps
from omkl_lab.cli.grid import expand
from omkl_lab.cli.sweep import _print
from omkl_lab.sweeps.points import BLANK, as_rows
from omkl_lab.sweeps.work import Queue

BASE = """
data = {file = "t.csv", target = "y"}
nodes = 3
[method]
name = "gossip"
kernels = {gaussian = [1]}
features = 2
gamma = 0.2
loss = "squared"
quantizer = {bits = 4}
"""
DIVERGES = 'method = {name = "gossip", eta = 1e30, regularization = 1e3, quantizer = "exact"}'
LONG = 120.0  # seconds that a subprocess may take on a busy machine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).standard_normal((24, 2))
    lines = [f"{a},{b},{1 if a > 0 else -1}\n" for a, b in rows.tolist()]
    (tmp_path / "t.csv").write_text("a,b,y\n" + "".join(lines))
    return tmp_path


def write(folder: Path, text: str, name: str = "grid.toml") -> Path:
    (folder / name).write_text(BASE + text)
    return folder / name


def run(*args: Any) -> Result:
    return CliRunner().invoke(app, ["sweep", *map(str, args)], prog_name="omkl")


def program(*args: Any) -> "subprocess.Popen[str]":
    script = "import sys; from omkl.cli import main; main()"
    command = [sys.executable, "-c", script, "sweep", *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def rows_in(out: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(out / "results.parquet").to_pylist()
    return rows


def test_grid_is_a_product_whatever_the_way_keys_are_written(folder: Path) -> None:
    dotted = write(folder, '[grid]\n"method.eta" = [0.1, 1]\ntopology = ["path", "ring"]\nseed = [0, 100]\n')
    nested = write(folder, "[grid]\nseed = [100, 0]\ntopology = ['ring', 'path']\nmethod.eta = [1.0, 0.1]\n", "b.toml")
    points = list(expand(dotted))
    found = {(p.settings["method"]["eta"], p.settings["topology"], p.settings["seed"]) for p in points}
    assert found == {(eta, graph, seed) for eta in (0.1, 1.0) for graph in ("path", "ring") for seed in (0, 100)}
    assert {p.id for p in points} == {p.id for p in expand(nested)}
    assert len({p.program for p in points}) == 2


def test_settings_of_the_method_go_by_their_own_names_in_a_grid(folder: Path) -> None:
    short = write(folder, "[grid]\neta = [0.1, 1]\nbits = [3, 4]\n")
    full = write(folder, "[grid]\nmethod.eta = [0.1, 1]\nmethod.quantizer.bits = [3, 4]\n", "b.toml")
    assert [p.id for p in expand(short)] == [p.id for p in expand(full)]
    with pytest.raises(InputError, match=r"method\.eta is given twice"):
        list(expand(write(folder, "[grid]\nmethod.eta = [0.1]\neta = [1]\n", "c.toml")))


def test_listed_points_are_laid_over_the_spec_and_crossed_with_the_grid(folder: Path) -> None:
    text = '[grid]\nseed = [0, 1]\n[[point]]\nmethod = "local"\n[[point]]\nmethod = {quantizer = "nearest"}\n'
    points = [p.settings for p in expand(write(folder, text))]
    assert [(p["method"]["name"], p["seed"]) for p in points] == [
        ("local", 0),
        ("local", 1),
        ("gossip", 0),
        ("gossip", 1),
    ]
    assert "gamma" not in points[0]["method"]
    assert points[2]["method"]["quantizer"]["name"] == "nearest"
    assert points[2]["method"]["gamma"] == 0.2


def test_names_come_before_their_settings(folder: Path) -> None:
    text = '[grid]\n"topology.p" = [0.5, 1.0]\ntopology = ["erdos_renyi"]\nmethod.name = ["choco"]\n'
    points = [p.settings for p in expand(write(folder, text))]
    assert [p["topology"] for p in points] == [{"name": "erdos_renyi", "p": p} for p in (0.5, 1.0)]
    assert {p["method"]["name"] for p in points} == {"choco"}


def test_faults_go_on_a_grid(folder: Path) -> None:
    text = "[grid]\nfaults.links = [0.0, 0.9]\nfaults.nodes = [0.1]\n"
    out = folder / "out"
    assert run(write(folder, text), "--out", out, "--jobs", 1, "--quiet").exit_code == Exit.OK
    few, many = (row["bits_per_node_round"] for row in sorted(rows_in(out), key=lambda row: -row["faults.links"]))
    assert few < many


def test_id_is_that_of_the_settings_not_of_how_they_are_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here,) = expand(write(folder, "eta = 1\nregularization = 1e-3\n"))
    (other,) = expand(write(folder, "regularization = 0.001\neta = 1.0\nweigh_first = false\n", "b.toml"))
    monkeypatch.chdir(folder)
    (inside,) = expand(Path("b.toml"))
    assert here.id == other.id == inside.id
    (folder / "t.csv").write_text((folder / "t.csv").read_text() + "0,0,1\n")
    (changed,) = expand(Path("b.toml"))
    assert changed.id != here.id


def test_data_files_are_beside_the_grid_and_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_csv = Mock(wraps=reading.read)
    monkeypatch.setattr(reading, "read", read_csv)
    text = '[grid]\ndata = ["banana", {file = "t.csv", target = "y"}]\nseed = [0, 1]\n[[point]]\n[[point]]\nseeds = 2\n'
    assert (len(list(expand(write(folder, text)))), read_csv.call_count) == (8, 1)


def test_nodes_of_a_listed_file_tell_their_number(folder: Path) -> None:
    (folder / "u.csv").write_text("a,y,s\n1,1,p\n2,1,p\n1,-1,q\n3,1,q\n")
    (folder / "v.toml").write_text(
        '[[point]]\ndata = {file = "u.csv", target = "y", node = "s"}\ntopology = {name = "geometric", radius = 2.0}\n'
    )
    (own,) = expand(folder / "v.toml")
    assert own.experiment.topology.nodes == 2
    assert own.settings["data"] | {"sha256": ""} == {"name": "u.csv", "target": "y", "node": "s", "sha256": ""}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[grid]\nmethod.eta = [1, -1]\nseed = [0]\n", "method.eta = -1, seed = 0: method.eta: eta is -1.0; a"),
        ("[grid]\nmethod.etta = [1]\n", "method.etta = 1: method.etta: unknown key; did you mean 'eta'?"),
        ("[grid]\ntopology = ['ring', 'rng']\n", "topology = \"rng\": topology: unknown topology 'rng'"),
        ("[grid]\nseed = 3\n", "grid.seed: 3 given; it must be a list"),
        ("[grid]\nseed = []\n", "grid.seed: [] given; it must be a list"),
        ("[grid]\nnodes.x = [1]\n", "nodes.x: the spec holds 3 on the way there"),
        ("[[point]]\n[[point]]\nseeds = 0\n", "[[point]] 2: seeds: seeds is 0"),
        ("[grid]\nmethod = [3]\n", "method = 3: method: 3 given; it must be a name or a table"),
        ("[[point]]\nmethod.quantizer = 3\n", "[[point]] 1: method.quantizer: 3 given; it must be a name or a table"),
        ("[point]\nseeds = 0\n", "point: it must be a list of tables"),
        ("etta = 1\n", "its only point: method.etta: unknown key"),
    ],
)  # fmt: skip
def test_every_point_is_checked_before_any_work(folder: Path, text: str, message: str) -> None:
    result = run(write(folder, text), "--out", folder / "out")
    assert (result.exit_code, result.stdout) == (Exit.INPUT, "")
    *told, error = result.stderr.splitlines()
    assert message in error
    assert told in ([], ["omkl: t.csv: inputs: a, b"])
    assert not (folder / "out").exists()


def test_failures_do_not_stop_the_rest_and_run_again_on_demand_only(folder: Path) -> None:
    out = folder / "out"
    grid = write(folder, f"[grid]\nseed = [0, 1]\n[[point]]\n{DIVERGES}\n[[point]]\n[[point]]\nnodes = 25\n")
    assert run(grid, "--out", out, "--dry-run").stdout == "6 points, 0 recorded\n"
    result = run(grid, "--out", out, "--quiet", "--jobs", 1)
    assert result.exit_code == Exit.INPUT, result.stderr
    assert "3 settings, 6 points, 4 failed" in result.stdout
    rows = rows_in(out)
    assert [row["failure"] for row in rows] == ["diverged", "diverged", None, None, "input", "input"]
    assert [row["seed"] for row in rows] == [0, 1, 0, 1, 0, 1]
    assert rows[0]["error"].startswith("the loss is ")
    assert rows[0]["final_loss"] is None
    columns = list(rows[0])
    assert columns[0] == "id"
    assert columns[columns.index("loss") :] == [
        *sweeps.MEASURES[:-1],
        "final_losses",
        "seconds",
        "failure",
        "error",
    ]
    assert (rows[2]["method"], rows[2]["method.quantizer"], rows[2]["method.quantizer.bits"]) == ("gossip", "qsgd", 4)
    before = stamps(out)
    again = run(grid, "--out", out, "--format", "json")
    assert json.loads(again.stdout)["ran"] == 0
    assert stamps(out) == before
    again = run(grid, "--out", out, "--retry", "--format", "json", "--jobs", 1)
    assert (again.exit_code, json.loads(again.stdout)["ran"]) == (Exit.INPUT, 4)
    ran = {row["id"] for row in rows if row["failure"]}
    assert {name for name, stamp in stamps(out).items() if stamp != before[name]} == ran
    assert run(grid, "--out", out, "--dry-run").stdout == "6 points, 6 recorded, 4 failed\n"


def stamps(out: Path) -> dict[str, int]:
    return {path.stem: path.stat().st_mtime_ns for path in (out / "points").glob("*.json")}


def test_rows_are_what_simulate_gives(folder: Path) -> None:
    X, y, _ = omkl.data.read_table(folder / "t.csv", "y")
    methods = [omkl.Local(features=2), omkl.Gossip(features=2, gamma=0.2)]
    points: list[dict[str, Any]] = [
        {"data": (X, y), "topology": omkl.topology.ring(3), "nodes": 3, "method": m, "seeds": 2} for m in methods
    ]
    seen: list[tuple[int, int, int]] = []
    rows = sweeps.sweep(points * 2, folder / "out", jobs=1, progress=lambda *args: seen.append(args))
    assert seen == [(1, 2, 0), (2, 2, 0)]
    for row, arguments in zip(rows, points, strict=True):
        expected = omkl.simulate(**arguments).summary()
        assert {key: row[key] for key in expected if key != "final_accuracy"} == pytest.approx(
            {key: value for key, value in expected.items() if key != "final_accuracy"}, rel=1e-5
        )
    pooled = sweeps.sweep([points[1] | {"pooled": True}], folder / "out", jobs=1)
    assert pooled[0]["pooled_loss"] > 0


def test_a_setting_is_one_row_with_its_mean_over_all_seeds(folder: Path) -> None:
    out, measures = folder / "out", ("loss", "final_loss", "bits_per_node_round")
    grid = write(folder, '[grid]\n"method.eta" = [0.5, 0.1]\nseed = [0, 2]\nseeds = [2]\n')
    printed = run(grid, "--out", out, "--quiet", "--jobs", 1).stdout
    assert "± is half a 95 % interval over the seeds" in printed
    assert "2 settings, 4 points" in printed
    assert len(rows_in(out)) == 4
    settings = json.loads(run(grid, "--out", out, "--format", "json").stdout)["settings"]
    assert [row["method.eta"] for row in settings] == [0.5, 0.1]
    for row, point in zip(settings, list(expand(grid))[::2], strict=True):
        result = replace(point.experiment, seeds=4).run()
        assert {key: row[key] for key in measures} == pytest.approx(
            {key: result.summary()[key] for key in measures}, rel=1e-5
        )
        half = float(half_interval(result.last(result.loss)))
        assert (row["seeds"], row["failed"], row["final_loss_half"]) == (4, 0, pytest.approx(half, rel=1e-4))
        assert f"{row['final_loss']:.5g} ± {half:.2g}" in printed


def made(seed: int, final: float | None, seeds: int = 1, **change: Any) -> dict[str, Any]:
    """A row of a sweep, as far as averages look."""
    row = dict.fromkeys(sweeps.MEASURES[:-1], final) | {"final_loss_stderr": None if seeds == 1 else 0.0}
    return {"id": f"{seed}", "topology": "ring", "seed": seed, "seeds": seeds} | row | {"failure": None} | change


def test_averages_of_points_that_failed_that_overlap_and_that_stand_alone() -> None:
    (one,) = sweeps.averaged([made(0, 0.5)])
    assert (one["seeds"], one["final_loss"], one["final_loss_half"]) == (1, 0.5, None)
    (some,) = sweeps.averaged([made(0, 0.5), made(1, None, failure="diverged")])
    assert (some["seeds"], some["failed"], some["final_loss"]) == (1, 1, 0.5)
    (none,) = sweeps.averaged([made(0, None, failure="died"), made(1, None, failure="diverged")])
    assert (none["seeds"], none["failed"], none["final_loss"], none["final_loss_half"]) == (0, 2, None, None)
    (apart,) = sweeps.averaged([made(0, 9.0), made(0, 0.4, seeds=3), made(2, 9.0, seeds=2), made(3, 0.8)])
    assert (apart["seeds"], apart["final_loss"]) == (4, pytest.approx(0.5))
    (unclear,) = sweeps.averaged([made(0, 0.5, final_accuracy=None), made(1, 0.5)])
    assert (unclear["final_accuracy"], unclear["final_loss_half"]) == (None, 0.0)
    assert len(sweeps.averaged([made(0, 0.5), made(1, 0.5, shuffle=1) | {"topology": "path"}])) == 2
    assert sweeps.averaged([]) == []


def test_settings_are_compared_with_the_best_seed_by_seed() -> None:
    rows = [made(0, 0.5, 2, final_losses=[0.3, 0.7]), made(2, 0.9, final_losses=[0.9])]
    rows += [made(0, 0.6, 3, final_losses=[0.31, 0.73, 0.76]) | {"topology": "path"}]
    rows += [made(7, 0.9, final_losses=[0.9]) | {"topology": "star"}, made(0, 0.9) | {"topology": "grid"}]
    ring, path, star, grid = sweeps.averaged(rows)  # means .633, .6, .9: the path is the best
    assert (path["minus_best"], path["minus_best_half"]) == (0.0, 0.0)
    apart = [0.3 - 0.31, 0.7 - 0.73, 0.9 - 0.76]
    assert ring["minus_best"] == pytest.approx(sum(apart) / 3)
    assert ring["minus_best_half"] == pytest.approx(float(half_interval(apart)))
    assert (star["minus_best"], star["minus_best_half"]) == (None, None)
    assert (grid["minus_best"], grid["minus_best_half"]) == (None, None)


def test_the_table_tells_graphs_by_their_names_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"topology.sha256": name * 3, "topology.names": f'["{name}"]'}
        | made(seed, loss, final_losses=[loss + seed / 100])
        | {"topology": name}
        for seed in (0, 1)
        for name, loss in (("ring", 0.3), ("path", 0.4))
    ]
    _print(rows, sweeps.averaged(rows), folder)
    head, best, other, *_ = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == "topology seeds final_loss minus the best final_accuracy bits_per_node_round"
    assert best.split()[:2] == ["ring", "2"]
    assert "+0.1 ± " in other
    same = [row | {"topology": "mine"} for row in rows]
    _print(same, sweeps.averaged(same), folder)
    assert capsys.readouterr().out.split()[0] == "topology.sha256"


def test_names_of_nodes_stay_readable() -> None:
    one = sweeps.Point(omkl.Experiment(data="banana"), {"topology": {"names": ["Évora", "Faro"]}})
    (row,) = as_rows([one], {one.id: BLANK})
    assert row["topology.names"] == '["Évora", "Faro"]'


def test_a_setting_that_failed_once_comes_last(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [made(0, 0.1), made(1, None, failure="diverged", error="too large")]
    rows += [made(seed, 0.3) | {"topology": "path"} for seed in (0, 1)]
    _print(rows, sweeps.averaged(rows), folder)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines[:5]] == ["topology", "path", "ring", "±", "failed:"]
    assert lines[2][1:4] == ["1", "0.1", "0.1"]
    assert lines[4] == ["failed:", "topology=ring,", "seed=1:", "too", "large"]


def test_torn_and_foreign_records_are_run_again(folder: Path) -> None:
    grid, out = write(folder, "[grid]\nseed = [0, 1, 2]\n"), folder / "out"
    first = json.loads(run(grid, "--out", out, "--format", "json", "--jobs", 1).stdout)["points"]
    torn, foreign, whole = (out / "points" / f"{row['id']}.json" for row in first)
    torn.write_text(torn.read_text()[:-40])
    foreign.write_text(whole.read_text())
    assert json.loads(run(grid, "--out", out, "--format", "json", "--dry-run").stdout)["recorded"] == 1
    second = json.loads(run(grid, "--out", out, "--format", "json", "--jobs", 1).stdout)
    assert second["ran"] == 2
    strip = [{key: row[key] for key in row if key != "seconds"} for row in first]
    assert [{key: row[key] for key in row if key != "seconds"} for row in second["points"]] == strip


def test_json_lines_without_pyarrow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid, out = write(folder, "[grid]\nseed = [0, 1]\n"), folder / "out"
    run(grid, "--out", out, "--jobs", 1)
    expected = rows_in(out)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run(grid, "--out", out)
    assert f"table: {out / 'results.jsonl'}" in result.stdout
    assert [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()] == expected
    assert not (out / "results.parquet").exists()


class Deadly(omkl.Gossip):
    """A method that takes its process down, as running out of memory does."""

    def check(self, topology: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies_costs_its_own_point_only(folder: Path) -> None:
    X, y, _ = omkl.data.read_table(folder / "t.csv", "y")
    base = {"data": (X, y), "nodes": 3}
    methods = [Deadly(features=2), omkl.Local(features=2)]
    rows = sweeps.sweep([base | {"method": m, "seed": s} for m in methods for s in (0, 1)], folder / "out", jobs=1)
    assert [row["failure"] for row in rows] == ["died", "died", None, None]


def test_a_setting_without_a_lasting_name_is_refused() -> None:
    kernel = omkl.Kernel("mine", spectrum=lambda rng, d: rng.standard_normal(d))
    with pytest.raises(InputError, match="lasting name"):
        sweeps.point({"data": "banana", "method": omkl.Local(kernels=(kernel,))})


def test_queue_keeps_programs_together() -> None:
    points = [sweeps.Point(omkl.Experiment(data="banana"), {"method": m, "seed": s}) for s in range(3) for m in "ab"]
    queue, order = Queue(points), []
    one, two = queue.take(""), queue.take("")
    assert one.program != two.program
    while queue:
        order.append(queue.take(one.program).settings["method"])
    assert order == ["a", "a", "b", "b"]


def test_jobs_and_cluster_are_either_or(folder: Path) -> None:
    grid = write(folder, "")
    assert "leave out --jobs" in run(grid, "--jobs", 2, "--cluster", "tcp://127.0.0.1:1").stderr
    assert "jobs is 0" in run(grid, "--jobs", 0, "--out", folder / "out").stderr


def test_resume_after_kill_9(folder: Path) -> None:
    etas = ", ".join(str(0.05 * k) for k in range(1, 7))
    grid, out = write(folder, f"[grid]\nmethod.eta = [{etas}]\nseed = [0, 1, 2, 3]\n"), folder / "out"
    sweep = program(grid, "--out", out)
    wait_for(lambda: len(stamps(out)) >= 8 if out.exists() else False)
    os.killpg(sweep.pid, signal.SIGKILL)
    sweep.communicate()
    before = stamps(out)
    assert 8 <= len(before) < 24
    sweep = program(grid, "--out", out, "--format", "json")
    printed, logged = sweep.communicate(timeout=LONG)
    assert sweep.returncode == Exit.OK, logged
    after = stamps(out)
    assert {name: after[name] for name in before} == before
    assert json.loads(printed)["ran"] == 24 - len(before)
    names = [row["id"] for row in rows_in(out)]
    assert len(names) == len(set(names)) == 24
    assert set(names) == set(after)


def wait_for(happened: Any) -> None:
    end = time.monotonic() + LONG
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """The address of a Dask scheduler with two workers, each a process of its own."""
    place, started = tmp_path / "scheduler.json", []

    def start(*args: str) -> None:
        command, null = [sys.executable, "-m", "dask", *args], subprocess.DEVNULL
        started.append(subprocess.Popen(command, stdout=null, stderr=null, cwd=tmp_path))

    try:
        start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(place))
        wait_for(lambda: place.exists() and place.read_text().endswith("}"))
        address = json.loads(place.read_text())["address"]
        for _ in range(2):
            start("worker", address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard")
        yield address
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()


def test_a_dask_cluster_gives_the_same(folder: Path, scheduler: str) -> None:
    grid = write(folder, f'[grid]\ntopology = ["path", "ring"]\nseed = [0, 1]\n[[point]]\n[[point]]\n{DIVERGES}\n')
    there = program(grid, "--out", folder / "there", "--cluster", scheduler, "--quiet")
    _, logged = there.communicate(timeout=LONG)
    assert there.returncode == Exit.DIVERGED, logged
    assert run(grid, "--out", folder / "here", "--quiet", "--jobs", 1).exit_code == Exit.DIVERGED
    here, over = rows_in(folder / "here"), rows_in(folder / "there")
    assert [row.pop("seconds") for row in here + over]
    assert here == over
    assert [row["failure"] for row in here] == [None] * 4 + ["diverged"] * 4
