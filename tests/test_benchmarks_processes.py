"""Benchmarks of real processes run, with few nodes for a short time."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks import cut, dashboard, eavesdrop, endure, kills, membership, network, newcomer, soak, wiped
from benchmarks.namespaces import Denied

from omkl.node import cluster
from omkl.node.config import NetworkConfig
from omkl.node.recovery import Recovery
from omkl.node.settings import Timing


def test_a_ring_is_timed_beside_a_bare_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = np.zeros(0, dtype=np.float32)

    def run(config: NetworkConfig, X: np.ndarray, y: np.ndarray) -> list[cluster.Outcome]:
        assert X.shape == (21, 3, 2)
        assert y.shape == (21, 3)
        ends = (5.0, 6.0, 5.5)
        return [cluster.Outcome(y[:, 0], nothing, nothing, {}, 0, 0, end - 4, end, 0.042) for end in ends]

    monkeypatch.setattr(cluster, "run", run)
    bare, row = network.ring(nodes=3, rounds=21, turns=1, names=["default"])
    assert (bare["method"], row["method"]) == ("bare exchange", "default")
    assert bare["rounds/s"] > 0
    assert row["rounds/s"] == 20 / (6 - 2)  # from the last to begin to the last to end
    assert row["of the bare"] == row["rounds/s"] / bare["rounds/s"]
    assert row["us of CPU a node and round"] == pytest.approx(2000)


def test_processes_are_compared_with_memory_and_simulator() -> None:
    (row,) = network.equal(nodes=2, rounds=20, names=["exact"])
    assert (row["as in memory"], row["copies"], row["equal"]) == (2, 2, 2)
    assert row["bytes a sample"] == pytest.approx(row["simulated"], rel=0.02)
    assert row["loss within"] < 1e-5
    assert row["theta within"] < 1e-4


def test_kills_lose_no_observation_and_no_copy() -> None:
    (row,) = kills.compared(nodes=2, rounds=8, kills=(1,))
    assert (row["kills"], row["acknowledged"], row["lost"]) == (2, 16, 0)
    assert (row["copies"], row["equal"]) == (2, 2)
    assert 0 < row["loss"] < 2


def test_wiped_nodes_come_back() -> None:
    given = wiped.trials(2, 0.5, "paper", Timing(deadline=2.0, patience=0.5), warm=3.0, wait=15.0)
    *_, row = wiped.wiped(given, processes=1)
    assert (row["wiped"], row["back"], row["not back after"]) == (2, 2, "-")


def test_a_newcomer_begins_with_its_neighbors_models(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(200, 2)).astype(np.float32)
    banana = SimpleNamespace(X=X, y=np.where(X[:, 0] > 0, 1, -1))
    monkeypatch.setattr(newcomer, "load", lambda _: banana)
    for name, count in {"AFTER": 60, "SAMPLES": 2, "HELD_OUT": 50}.items():
        monkeypatch.setattr(newcomer, name, count)
    with_models = newcomer.losses("paper", 0)
    monkeypatch.setattr(Recovery, "_adopt", lambda *_: None)
    assert with_models[0] < newcomer.losses("paper", 0)[0]
    assert len(with_models) == 2


def test_a_network_endures_kills_and_keeps_what_it_acknowledged_in_both_ways() -> None:
    row, held = endure.endured(nodes=2, seconds=10.0, rate=4.0, kills=1, compiled=False)
    assert (row["kills"], row["of each, at least"]) == (2, 1)
    assert (row["lost, by rounds"], row["by number"], row["told"]) == (0, 0, 0)
    assert row["copies"] == row["equal"] == 2
    assert 0 < row["over zenoh"] < row["in all"]
    assert [one["quarter"] for one in held] == [1, 2, 3, 4]
    assert all(min(one["RSS MiB"], one["descriptors"], one["threads"]) > 0 for one in held)


def test_a_node_is_added_and_one_removed_by_the_steps_of_the_page(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    before, added, removed, rest = membership.changed(tmp_path, "abcdl", 10, 0.02, compiled=False)
    assert (before["nodes"], added["nodes"], removed["nodes"]) == (5, 6, 5)
    assert (added["restarted"], removed["restarted"]) == ("c d", "b l")
    assert (rest["copies"], rest["level"]) == (12, 12)


def test_a_network_is_cut_in_two_and_joined(tmp_path: Path) -> None:
    try:
        rows = list(cut.cut(tmp_path, "banana", 0.5, ids="ab", rate=20, counted=10, warm=10))
    except Denied as error:
        pytest.skip(f"no network namespaces here: {error}")
    assert [(row[""], row["after samples"]) for row in rows] == [
        ("cut", 10),
        ("joined", 20),
        ("cut", 30),
        ("joined", 40),
    ]
    for row in rows:
        assert float(row["ratio"]) == pytest.approx(float(row["loss"]) / float(row["alone"]), abs=1e-3)
        assert 0 < float(row["loss"]) < 2 * float(row["alone"])


@pytest.mark.parametrize(("what", "nodes"), [("network", 2), ("simulation", 3)])
def test_the_dashboards_server_is_measured(what: str, nodes: int) -> None:
    row = getattr(dashboard, what)(0.5, nodes)
    assert (row["what"], row["nodes"]) == (what, nodes)
    assert min(row["rounds/s"], row["frames/s"], row["kB/s"]) > 0
    assert np.isfinite(row["% of a core"])


def test_a_soak_ends_with_every_copy_its_owners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--nodes", "4", "--processes", "2", "--rounds", "1000", "--warm-up", "20", "--every", "0.1"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["", *flags])
    monkeypatch.setattr(soak, "LOOK", 0.02)
    soak.main()
    out = capsys.readouterr().out
    assert "1,000 rounds" in out
    assert "8 of 8 copies are their owner's" in out
    lines = (tmp_path / "out/bench/soak.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["round"] == 1000


def test_a_relay_reads_what_is_not_encrypted(tmp_path: Path) -> None:
    row = eavesdrop.relayed(tmp_path, False, samples=3)
    assert row["read"] == row["frames"] > 3
    assert row["greeting read"] == row["stranger gets the model"] == row["and the hidden state"] == "True"


def test_lengths_of_records_tell_lengths_of_frames() -> None:
    heard = bytes([22, 3, 3, 0, 2, 0, 0, 23, 3, 3, 0, 3, 1, 2, 3, 23, 3, 3, 0, 1, 9])
    assert eavesdrop.records(heard) == [3, 1]
    assert eavesdrop.in_order([5, 3, 1], [5, 9, 3, 2]) == 2
