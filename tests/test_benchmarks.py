"""The benchmarks compare like with like: what the simulator is timed against computes the same curves."""

import ast
import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks import differ, drift, eager, naive, report, robust, scale, vectorized, way, weights

import omkl
from omkl import features, topology
from omkl.quantizers import Quantizer
from omkl.topology import build


@pytest.mark.parametrize("levels", [None, 7])
def test_baselines_compute_what_the_simulator_does(levels: int | None, rng: np.random.Generator) -> None:
    X = rng.standard_normal((30, 5, 3), dtype=np.float32)
    y = np.where(X[..., 0] > 0, 1, -1).astype(np.float32)
    method = omkl.Gossip(eta=0.5, gamma=0.5, quantizer=omkl.QSGD(bits=3) if levels else None)
    V = np.stack([features.draw(method.bank.kernels, method.bank.features, 3, seed) for seed in range(2)])
    laplacian = (build("path", 5).matrix() - np.eye(5)).astype(np.float32)
    result = omkl.simulate((X, y), "path", method=method, seeds=2)
    curves = vectorized.run(X, y, V, laplacian, levels, eta=0.5, gamma=0.5)
    loss = naive.run(X, y, V, laplacian, levels, eta=0.5, gamma=0.5)
    # Each draws its own dither, which moves the loss by 0.003; leaving out the mixing moves it by 0.1.
    tolerance = 2e-6 if levels is None else 0.01
    np.testing.assert_allclose(loss.T, result.loss, atol=tolerance)
    np.testing.assert_allclose(curves.loss.T, result.loss, atol=tolerance)
    np.testing.assert_allclose(np.moveaxis(curves.weights, 2, 0), result.weights, atol=tolerance)
    np.testing.assert_allclose(curves.disagreement.T, result.disagreement, atol=10 * tolerance)
    if levels is None:
        np.testing.assert_allclose(curves.accuracy.T, result.accuracy, atol=tolerance)


def small_stream(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    X = rng.standard_normal((30, 5, 3), dtype=np.float32)
    return X, np.where(X[..., 0] > 0, 1, -1).astype(np.float32)


@pytest.mark.parametrize(("quantizer", "pace"), [(omkl.Nearest(2.5), None), (omkl.QSGD(3, rescale=True), omkl.Pace(2))])
def test_rounds_in_numpy_are_the_simulators(
    quantizer: Quantizer, pace: omkl.Pace | None, rng: np.random.Generator
) -> None:
    X, y = small_stream(rng)
    method = omkl.recommended(basis=omkl.Landmarks(rank=12, rows=100))
    method = method.replace(quantizer=quantizer, pace=pace, sending=omkl.Triggered()).on(build("path", 5))
    made = method.bank.draw(3, 4, X)
    moments = eager.play(method, eager.mapped(X, made), y, eager.fixed(build("path", 5)), 4, made.spectrum)
    losses = [moment.info.loss.mean() for moment in moments]
    np.testing.assert_allclose(losses, omkl.simulate((X, y), "path", method=method, seed=4).loss[0], atol=0.01)


@pytest.mark.parametrize("pace", [None, omkl.Pace(8, until=2)])
def test_a_node_without_samples_mixes_and_learns_nothing(pace: omkl.Pace | None, rng: np.random.Generator) -> None:
    X, y = small_stream(rng)
    # Exact messages: a curvature that has moved little is a level of zero for many rounds.
    method = omkl.recommended(basis=omkl.Landmarks(rank=12, rows=100), pace=pace, quantizer=None)
    method = method.on(build("path", 5))
    made, seen = method.bank.draw(3, 0, X), np.ones((30, 5), dtype=bool)
    seen[:, 2] = False
    links = [eager.fixed(one) for one in (build("path", 5), topology.Topology(topology.path(5), np.zeros(4)))]
    heard, alone = (
        list(eager.play(method, eager.mapped(X, made), y, network, 0, made.spectrum, seen))[-1].state
        for network in links
    )
    assert heard.memory.own.tolist() == alone.memory.own.tolist() == [30, 30, 0, 30, 30]
    granted, told = (float(one.memory.log_curvature[2, 0]) for one in (alone, heard))
    assert (granted, told < -0.1) == (0, True)  # what others measured comes to it too
    assert not alone.theta[2].any()
    assert np.abs(heard.theta[2]).max() > 0.1


def test_a_combination_depends_on_its_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setattr(robust, "table", lambda name: (rng.normal(size=(2000, 3)), np.resize([1.0, 1, -1], 2000)))
    texts = [str(robust.drawn(number)) for number in range(40)]
    assert texts == [str(robust.drawn(number)) for number in range(40)]
    assert len(set(texts)) == 40
    first = robust.tried(0)[0]
    assert 0 < first.own < 2
    assert not robust.Loss(1, math.nan, 1).worst < math.inf


def test_rows_are_dealt_once(rng: np.random.Generator) -> None:
    owner = rng.integers(0, 3, 200)
    stream = differ.dealt(np.arange(200.0)[:, None], np.arange(200), owner, rng)
    assert len(stream.X) == max(stream.seen.sum(axis=0))
    assert sorted([*stream.y[stream.seen], *stream.held_y]) == list(range(200))
    assert (owner[stream.y] == np.arange(20))[stream.seen].all()
    mixed = stream.shuffled(0)
    assert sorted(mixed.y[stream.seen]) == sorted(stream.y[stream.seen])
    assert (mixed.X[..., 0] == mixed.y).all()


def test_a_table_has_a_column_for_every_key() -> None:
    rows: list[report.Row] = [{"nodes": 1000, "ns": 123.4}, {"nodes": 10, "ns": 0.5, "more": "x"}]
    assert report.table(rows).split("\n") == ["nodes   ns  more", "1,000  123      ", "   10  0.5     x"]


def test_a_benchmark_ends_with_what_ran_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["", "--nodes", "3"])
    report.finish("some", [{"a": 1}, {"b": 2}], "A note.")
    first, second, note, where = capsys.readouterr().out.strip().split("\n\n")
    assert (first, second, note) == ("a\n1", "b\n2", "A note.")
    assert where.startswith(report.machine())
    assert f"numpy {np.__version__}" in where
    record = json.loads((tmp_path / "out/bench/some.json").read_text())
    assert record["command"] == "python -m benchmarks.some --nodes 3"
    assert record["rows"] == [{"a": 1}, {"b": 2}]


def test_every_benchmark_of_the_docs_is_run_by_a_test() -> None:
    root = Path(__file__).parents[1]
    pages = [root / "README.md", *root.glob("docs/**/*.md"), *root.glob("src/**/*.md"), root / "Makefile"]
    named = {name for page in pages for name in re.findall(r"benchmarks[./]([a-z_]+)", page.read_text())} - {"md"}
    named.remove("release")  # it needs a package index, and fifteen minutes
    imports = [
        node
        for test in root.glob("tests/test_benchmarks*.py")
        for node in ast.walk(ast.parse(test.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "benchmarks"
    ]
    assert {"speed", "soak"} <= named <= {alias.name for node in imports for alias in node.names}


def test_graphs_of_a_million_are_what_they_are_called() -> None:
    regular, grown = scale.regular(2000), scale.preferential(2000)
    assert regular.degrees.mean() == pytest.approx(4, abs=0.02)
    assert grown.degrees.mean() == pytest.approx(4, abs=0.05)
    # Degrees of preferential attachment: half have the least, and P(k) = 2m(m+1) / (k(k+1)(k+2)) with m = 2.
    for k in (2, 3, 4, 6):
        assert np.mean(grown.degrees == k) == pytest.approx(12 / (k * (k + 1) * (k + 2)), abs=0.03)
    assert grown.degrees.max() > 50
    assert not grown.components.any()
    assert not regular.components.any()


def test_graphs_to_compare_weights_on() -> None:
    made = {name: make(20) for name, make in weights.FAMILIES.items()}
    assert not any(graph.components.any() for graph in made.values())
    assert len(made["tree"].edges) == 19
    assert len(made["dumbbell"].edges) == 2 * 45 + 1
    assert weights.cell(topology.metropolis, made["path"]) == "0.0062 (0.0082, 1.33) "
    assert weights.cell(topology.best_constant, made["star"]) == "0.0500 (0.0952, 1.90)*"
    assert weights.cell(topology.fmmc, topology.path(81)) == "-"


def test_a_learner_is_back_when_a_whole_window_is() -> None:
    before, after = np.full(2000, 0.2), np.concatenate([np.full(300, 1.0), np.full(1700, 0.2)])
    curve = np.concatenate([before, after])
    assert drift.earlier(curve) == pytest.approx(0.2)
    assert drift.back(curve, 0.21) == 399  # 100 samples, of which at most one is from before sample 300
    assert drift.back(curve, 0.19) == np.inf


@pytest.mark.parametrize("make", [drift.swapped, drift.turned])
def test_a_stream_changes_half_way(make: Callable[[int], drift.Table]) -> None:
    changed, given = make(3), drift.rows("banana", 3)
    half = len(given.y) // 2
    for part, whole in zip(changed, given, strict=True):
        np.testing.assert_array_equal(part[:half], whole[:half])
    assert (changed.X[half:] != given.X[half:]).any() != (changed.y[half:] != given.y[half:]).any()
    np.testing.assert_allclose(np.linalg.norm(changed.X, axis=1), np.linalg.norm(given.X, axis=1), rtol=1e-6)


def test_a_round_of_the_default_stays_in_few_files() -> None:
    """Who follows a round reads its own files, and those of the parts that are chosen; what is new belongs in one."""
    default, paper = way.round_of(omkl.recommended()), way.round_of(omkl.paper())
    assert default.files <= 13
    assert paper.files <= 11
    assert 25 <= paper.functions < default.functions


def test_a_round_of_a_node_stays_in_few_files() -> None:
    loops, arrays = (way.node_of(omkl.recommended(), compiled) for compiled in (True, False))
    assert 10 <= loops.files <= 13
    assert loops.files < arrays.files <= 26
    assert 40 <= loops.functions < arrays.functions
