"""Benchmarks of what is learned run, at small size, and come out as they must."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import (
    columns,
    differ,
    drift,
    eager,
    eavesdrop,
    estimators,
    estimators_adapt,
    flips,
    frontier,
    learner,
    per_bit,
    poison,
    regret_rates,
    report,
    robust,
    stability,
    ten_classes,
    units,
    weights,
    without,
)  # fmt: skip

import omkl
from omkl import topology
from omkl.blas import one_thread
from omkl.data import Stream, load
from omkl_lab.paper import regret
from omkl_lab.paper.frontier.data_sent import WIDTHS
from omkl_lab.paper.frontier.study import FAMILIES
from tests.test_paper_regret import small

LN2 = float(np.log(2))


@pytest.fixture(autouse=True)
def in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have benchmarks write here, and run in this process what they deal out to others, with one thread each."""

    def here(work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        return map(work, items)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(eager, "in_processes", here)
    with one_thread():
        yield


def written(name: str) -> list[report.Row]:
    """Return the rows that a benchmark has written."""
    rows: list[report.Row] = json.loads(Path(f"out/bench/{name}.json").read_text())["rows"]
    return rows


def test_gossip_beats_no_communication_and_the_paper() -> None:
    rows = {row[""]: row for row in per_bit.alike(1, ["banana"], count=2, rounds=36)}
    assert list(rows) == ["paper", "recommended", "no communication"]
    paper, best, alone = (float(row["loss"]) for row in rows.values())
    assert best < alone < paper < 1.01 * LN2
    sent = {way: float(row["bytes"]) for way, row in rows.items()}
    assert 0 == sent["no communication"] < 9 < sent["paper"] < 52 < sent["recommended"]
    for row in rows.values():
        assert float(row["of constant"]) == pytest.approx(float(row["loss"]) / per_bit.constant("banana"), abs=1e-3)


def test_nodes_that_see_one_label_learn_from_others() -> None:
    rows = list(per_bit.sorted_(1, ["banana"], rows=800))
    found = {(row["order"], row[""]): float(row["of alike"]) for row in rows}
    assert len(found) == 12
    assert found["shuffled", "recommended"] == 1
    for order in ("by_label", "by_position"):
        assert found[order, "no communication"] > 1.5 * found[order, "recommended"]
    assert all(float(row["worst node"]) > float(row["of alike"]) for row in rows)


def test_an_ingredient_is_left_out() -> None:
    names = ["nothing", "shared curvature: SGD"]
    full, less = without.alike(2, ["banana"], names, rows=400)
    assert (full["without"], less["without"]) == tuple(names)
    assert ", 0.0 ± 0.0 %, " in full["banana"]
    assert float(less["banana"].split()[0]) > float(full["banana"].split()[0])
    rows = {(row["order"], row["without"]): row["banana"] for row in without.sorted_(1, ["banana"], names, rows=400)}
    assert len(rows) == 6
    assert ", 1.000 (" in rows["shuffled", "nothing"]


def test_the_default_beside_the_one_before() -> None:
    rows = list(learner.streams(1, ["banana"], orders=2, rounds=40))
    assert [row[""] for row in rows] == ["0.1", "recommended", "frugal"]
    before, best, less = (float(row["loss"]) for row in rows)
    assert best < min(less, before)  # in forty samples frugal, at a tenth of the bytes, does as 0.1
    assert max(less, before) < LN2
    assert rows[0]["to 0.1"] == ""
    assert float(rows[1]["to 0.1"]) == pytest.approx(best - before, abs=2e-4)  # of numbers that were rounded
    sent = [float(row["bytes"]) for row in rows]
    assert 16 < sent[2] < 30 < sent[1] < 70 < 120 < sent[0]


def test_links_that_all_fail_leave_a_node_alone() -> None:
    rows = {row[""]: float(row["loss"]) for row in learner.links(1, ["banana"], rounds=30)}
    assert rows["all links down"] == pytest.approx(rows["Local"], rel=1e-3)
    assert rows["recommended"] < rows["Faults(0.3, 0.05)"] < rows["Local"]


def test_a_hundred_nodes_and_a_thousand() -> None:
    rows = {(row["graph"], row[""]): float(row["loss"]) for row in learner.graphs(1, ["banana"], nodes=10, rounds=20)}
    assert len(rows) == 6
    assert rows["4-regular", "recommended"] < rows["4-regular", "0.1"]
    last = {(row["nodes"], row[""]): float(row["last loss"]) for row in learner.many(1, (200,), 20, (1, 20))}
    assert last[200, "recommended"] < last[200, "0.1"] < last[200, "Local"] < LN2
    assert last[1, "one place, 20 samples in place of one"] < last[1, "one place, 1 samples in place of one"]


@pytest.mark.parametrize("which", ["digits", "unequal"])
def test_nodes_that_differ(which: str) -> None:
    rows = {(row["nodes"], row[""]): row for row in differ.compared(which, 1, rows=300)}
    assert list(rows) == differ.CASES[which]
    for name in {name for name, _ in rows}:
        assert rows[name, "alike"]["of alike"] == 1
        assert rows[name, "alike"]["worst node"] > 1
        if (name, "no communication") in rows:
            assert rows[name, "no communication"]["loss"] > rows[name, "recommended"]["loss"]


def test_a_station_learns_from_others(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = rng.normal(size=(600, 3, 13)).astype(np.float32)
    hours[..., 0] = differ.LIMIT + 50 * hours[..., 1]
    hours[rng.random((600, 3)) < 0.1, 5] = np.nan
    monkeypatch.setattr(differ, "stations", lambda: (hours, topology.path(3)))
    rows = {row[""]: row for row in differ.compared("beijing", 1, rows=480)}
    assert list(rows) == list(differ.EVERY_WAY)
    assert all(0 < row["loss"] < LN2 for row in rows.values())
    joining = differ.joining(1, rows=480)
    assert [row["rounds after"] for row in joining] == ["0", "1", "2", "4", "8", "16", "the last"]
    assert joining[0]["on all"] == pytest.approx(LN2)  # nothing learned and nothing heard
    assert joining[-1]["on all"] < 0.9 * LN2


def test_ten_classes_are_learned() -> None:
    data = load("digits10")
    X, y = np.asarray(data.X), np.asarray(data.y)
    rows = list(ten_classes.rows((X[:1200], y[:1200]), (X[1200:], y[1200:]), [8], 1, ["ring"]))
    assert [row["learner"] for row in rows] == ["ring"]
    mean, worst = float(rows[0]["test accuracy"].split()[0]), float(rows[0]["worst node"])
    assert 0.5 < worst <= mean < 1
    assert 0.2 < float(rows[0]["bits a coefficient"]) < 4
    assert list(ten_classes.methods(20)) == ["ring", "one place", "Newton", "no communication"]


def test_labels_of_landmarks_tell_which_columns_matter() -> None:
    columns.main("1", "40", columns.FIFTY)
    (row,) = written("columns")
    assert row["rounds"] == 40
    assert float(row["weighed"]) < 0.95 * float(row["loss"])


def test_raw_inputs_are_brought_to_units() -> None:
    rows = {(row["inputs"], row["order"]): row for row in units.rows(1, count=800, held=80)}
    assert len(rows) == 15
    stream = {name: float(row["stream"]) for (name, order), row in rows.items() if order == "shuffled"}
    assert stream["raw, standardize"] < stream["raw"]
    assert stream["raw, standardize"] < 1.5 * stream["as the data set has them"]
    assert all(0 < float(row["held out"]) < 3 for row in rows.values())


def test_learners_are_timed_after_a_change() -> None:
    drift.main(2, ["SEA"], count=400)
    rows = written("drift")
    rules = [*drift.RULES, drift.FOREST]
    assert [row[""] for row in rows] == 2 * rules
    losses, errors = rows[: len(rules)], rows[len(rules) :]
    assert all(0 < row["before"] < 1 for row in losses)
    assert all(0 < row["before"] < 0.5 for row in errors)
    assert Path("out/bench/drift.png").stat().st_size > 10_000


def test_estimators_beside_others() -> None:
    estimators.main("60", "60", "banana")
    rows = written("estimators")
    assert [row["learner"] for row in rows] == list(estimators.learners(estimators.table("banana", 2)))
    assert {row["rows"] for row in rows} == {60}
    assert all(0 < float(row["error"]) < 1 for row in rows)
    assert {row["omkl's on these"] for row in rows} == {rows[0]["error"]}


def test_estimators_of_numbers_beside_others(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    X = rng.normal(size=(60, 3))
    made = estimators.Table(X, X[:, 0] + 0.1 * rng.normal(size=60), 0)
    monkeypatch.setattr(estimators, "table", lambda name, rows: made)
    rows = list(estimators.rows(("air",), 60, 60.0))
    assert len(rows) == 5
    assert all(0 < float(row["error"]) < 3 for row in rows)


def test_estimators_that_adapt_beside_others() -> None:
    estimators_adapt.main("0.1", "SEA, four variants", "Friedman")
    streams, costs = written("estimators_adapt")[:2], written("estimators_adapt")[2:]
    rivals = ["omkl", "forest", "adaptive tree", "neighbors", "linear"]
    assert [row["error"] for row in streams] == ["SEA, four variants", "Friedman"]
    assert all(0 < float(row[one]) < 2 for row in streams for one in [*rivals, "boosting"])
    assert all(" us, " in row[one] for row in costs for one in rivals)


def test_cases_of_one_thing_each_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    few = estimators.Table(np.zeros((40, 2)), np.arange(40) % 2, 2)
    for case in ("fifty_columns", "moons"):
        monkeypatch.setattr(estimators_adapt, case, lambda *given: few)
    rows = estimators_adapt.single_rows()
    assert len(rows) == 4
    assert all(0 <= float(row["omkl"]) <= 1 for row in rows)


def test_ridge_beside_the_estimators_by_hand() -> None:
    data = estimators.Table(np.array([[1.0], [2.0]]), np.array([3.0, 4.0]), 0)
    assert np.allclose(estimators_adapt.ridge(data), [0, 3])  # one row: coefficients (1, 1) of column and constant


def test_the_frontier_has_all_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Simulated:
        def __init__(self, method: Any, seeds: int) -> None:
            self.loss = np.full((seeds, 3), 1 / method.eta, dtype=np.float32)
            self.bits = np.full((seeds, 3), 160 * method.bank.width)

    def compare(data: str, cases: Any, nodes: int, *, seeds: int, **rest: Any) -> dict[str, Simulated]:
        return {case: Simulated(method, seeds) for case, (method, _) in cases.items()}

    def line(*args: Any) -> dict[str, np.ndarray]:
        return {"what": np.array("some"), "loss": np.array(0.3), "half": np.array(0.01)}

    def flooded(data: str, method: Any, nodes: int, shuffle: int, share: range, tell: Any) -> dict[str, np.ndarray]:
        return {f"{what}:{value}": np.full(len(share), 0.2) for what in WIDTHS for value in ("loss", "bytes")}

    study = "omkl_lab.paper.frontier.study."
    stand_ins = {"compare": compare, "flooded": flooded, "tuned_sgd": line, "batch_optimum": line}
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(study + name, stand_in)
    frontier.main(5, tmp_path / "paper", "banana", [])
    rows = written("frontier")
    families = ["paper", *FAMILIES, "data", "recommended", "alone", "complete", "central", "sgd", "batch"]
    assert list(dict.fromkeys(row["family"] for row in rows)) == list(dict.fromkeys(families))
    assert (rows[0]["bytes"], rows[0]["loss"]) == ("40.0", "100.0000")
    assert len(list((tmp_path / "paper/runs").iterdir())) > 50


def test_the_power_of_regret_falls_with_the_rate() -> None:
    before = regret.ETA_0
    slow, fast = regret_rates.rows((5.0, 20.0), {"own": lambda: small.__wrapped__(False)})
    assert [(row["eta_0"], row["samples"]) for row in (slow, fast)] == [(5.0, "own"), (20.0, "own")]
    assert all(0 < float(fast[case]) < float(slow[case]) < 1 for case in ("alone", "ring", "complete"))
    assert before == regret.ETA_0


def test_gamma_auto_is_tried_on_what_is_drawn(monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    table = rng.normal(size=(2000, 3)), np.resize([1.0, 1, -1], 2000)
    monkeypatch.setattr(robust, "table", lambda name: table)
    monkeypatch.setattr("sys.argv", ["", "--count", "3", "--gammas", "2", "--rounds", "20"])
    robust.main()
    record = json.loads(Path("out/bench/robust.json").read_text())
    assert record["note"].startswith("0 of 3 diverged")
    lost = [row["loss at auto / best"] for row in record["rows"]]
    assert lost[0] >= 1
    assert lost == sorted(lost)


def test_gamma_auto_is_stable() -> None:
    (row,) = stability.table([omkl.Sign()], [40], ["path", "star"], rounds=200)
    assert (row["quantizer"], row["n"]) == ("Sign()", 40)
    assert all(margin >= 1 for margin in row["least margin"].values())
    assert all(row["median margin"][momentum] >= least for momentum, least in row["least margin"].items())


def test_weights_are_compared_on_every_graph() -> None:
    rows = weights.rows(6)
    assert [row["graph"] for row in rows] == list(weights.FAMILIES)
    assert all(row.keys() == {"graph", *topology.WEIGHTS} for row in rows)
    path = rows[0]
    gap = {rule: float(path[rule].partition("(")[2].partition(",")[0]) for rule in topology.WEIGHTS}
    assert gap["metropolis"] < gap["fmmc"] <= gap["fdla"]


@pytest.mark.parametrize("setting", ["recommended", "eta=1, gamma=.5, nearest"])
def test_a_liar_is_bounded_by_clipping(setting: str) -> None:
    honest, huge = poison.lied("banana", setting, "path", ["nobody", "huge"], seeds=1, nodes=4, rounds=20)
    assert (honest["liar"], honest["no clip, %"], honest["no clip, halted"]) == ("nobody", "0", 0)
    assert float(huge["no clip, %"]) > 1e6 or huge["no clip, halted"]
    assert float(huge["clip, %"]) < 100
    assert huge["clip, halted"] == 0


def test_clipping_costs_the_honest_little() -> None:
    row = poison.cost_of("banana", "eta=1, gamma=.5, nearest", "path", rounds=30)
    assert 0 < row["loss"] < LN2
    assert -2 < float(row["cost, %"]) <= float(row["worst"]) < 10


def test_clipping_costs_nodes_of_one_label_more() -> None:
    poison.labels(["path"], [None, 0.3], seeds=1)
    free, clipped = written("poison")
    assert 0 < free["pooled loss"] <= clipped["pooled loss"] < 5


def test_rounding_flips_few_levels(rng: np.random.Generator) -> None:
    X = rng.standard_normal((30, 5, 3), dtype=np.float32)
    y = np.where(X[..., 0] > 0, 1, -1).astype(np.float32)
    row = flips.row(omkl.Gossip(eta=0.5, gamma=0.5, quantizer=omkl.QSGD(bits=3)), Stream(X, y))
    assert row["levels"] == 30 * 5 * 3 * 40
    assert row["flips"] < 1e-3 * row["levels"]
    assert row["in the mean"] <= row["loss apart at most"] < 0.02


def test_a_listener_has_the_models_and_finds_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eavesdrop, "SEARCHED", 1)
    monkeypatch.setattr(eavesdrop, "WINDOWS", (1, 2))
    rows = eavesdrop.rows_of("banana", 0, nodes=4, samples=12, fresh=60)
    stages = {"sample 1": (0, 1), "later": (6, 10)}
    for name in ("paper", "default"):
        told = dict(eavesdrop.attack(name, rows, 0, stages))
        assert told["from the start"]["hidden states"] == "to the bit"
        assert told["from the middle"]["hidden states"] == "not known"
        assert told["from the start"]["alike"] > 0.7 > told["from the start"]["apart"]
        assert told["sample 1"]["seen"] > 0.95
        assert told["sample 1"]["label"] == 1
        assert told["sample 1"]["known"] > 0.8
        assert told["later"]["seen"] > 0.8
    assert told["later, other landmarks"]["seen"] < told["later"]["seen"]


def test_quantized_rows_are_found_less_well_from_sums() -> None:
    rows = eavesdrop.rows_of("banana", 0, nodes=4, samples=18, fresh=60)
    seen = {}
    for name in ("default", "default, 8 samples a message"):
        method = eavesdrop.METHODS[name]
        config = eavesdrop.config_of(method, rows, 0)
        network = eavesdrop.run(config, rows)
        node = network.nodes["n0"]
        heard = eavesdrop.decode(network, config)
        listener = eavesdrop.Listener(node.role.method, node.learning.features, heard)
        assert listener.samples >= 16
        seen[name] = float(eavesdrop.picked(listener, rows, 0, 8, 0)["seen"])
    assert seen["default, 8 samples a message"] < seen["default"]


def test_who_speaks_first_has_taken_an_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eavesdrop, "SAMPLES", 6)
    monkeypatch.setattr(eavesdrop, "NODES", 5)
    lockstep, timer, lengths = eavesdrop.times(8, 1)
    assert lockstep["first to speak"] == 1
    assert timer["first to speak"] < 0.8
    assert 0 <= lengths["surprise"] <= 1


def test_landmarks_that_are_rows_tell_them() -> None:
    rows = {row["landmarks"]: float(row["told from fresh rows"].split()[0]) for row in eavesdrop.shared(2, ("banana",))}
    assert rows["rows"] == 1
    assert 0.55 < rows["centers"] < 0.95
    assert rows["normal"] == pytest.approx(0.5, abs=0.1)
