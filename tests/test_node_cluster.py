"""Real processes over zenoh against protocol objects in memory, and both against the simulator."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import omkl
from omkl import features, topology
from omkl.data import Stream, as_stream
from omkl.node import cluster
from omkl.node.config import NetworkConfig
from omkl.node.halves import Arrays
from omkl.node.settings import Member, Timing
from omkl.node.transports import memory
from omkl.quantizers import Quantizer
from tests.test_node_protocol import one_by_one


def network(nodes: int, quantizer: Quantizer | None, graph: str = "path") -> NetworkConfig:
    return NetworkConfig(
        name="test",
        inputs=2,
        method=omkl.Gossip(eta=0.5, gamma=0.3, quantizer=quantizer),
        seed=3,
        topology=topology.build(graph, nodes),
        members=tuple(Member(id=f"n{j}", listen=f"tcp/127.0.0.1:{j + 1}") for j in range(nodes)),
        timing=Timing(deadline=60.0, patience=30.0),
    )


def stream(nodes: int, rounds: int) -> Stream:
    X, y = as_stream("banana", nodes)[0]
    return Stream(X[:rounds], y[:rounds])


@pytest.mark.parametrize("quantizer", [omkl.QSGD(bits=3), omkl.Nearest(2.5), None], ids=str)
def test_processes_equal_memory_bit_for_bit(quantizer: Quantizer | None) -> None:
    config, samples = network(4, quantizer), stream(4, 80)
    outcomes = cluster.run(cluster.on_loopback(config), *samples)
    expected = memory.run(config, *samples)
    for id, one in zip(config.ids, outcomes, strict=True):
        state = expected.nodes[id].learning.state
        np.testing.assert_array_equal(one.theta, state.theta)
        np.testing.assert_array_equal(one.hidden, state.hidden)
        for peer, copy in one.copies.items():
            np.testing.assert_array_equal(copy, outcomes[config.index(peer)].hidden)
        assert len(one.losses) == 80
        assert one.resyncs == 0


@pytest.mark.parametrize(
    ("quantizer", "graph", "tolerance"),
    [(None, "path", 2e-6), (omkl.Nearest(2.5), "ring", 1e-4), (omkl.QSGD(bits=3, rescale=True), "star", 1e-4)],
    ids=str,
)
def test_memory_equals_the_simulator(
    quantizer: Quantizer | None, graph: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One text and one order of sums for both: where features differ in their last digit, a level may flip.
    monkeypatch.setattr("omkl.node.learning.halves", lambda *given: Arrays(*given[:4]))
    monkeypatch.setattr(features, "transform", one_by_one)
    config, samples = network(6, quantizer, graph), stream(6, 120)
    nodes = memory.run(config, *samples).nodes
    result = omkl.simulate(tuple(samples), config.topology, method=config.method, seed=config.seed)
    mine = np.stack([nodes[id].learning.state.theta for id in config.ids])
    np.testing.assert_allclose(mine, result.theta[:, 0], atol=tolerance * np.abs(mine).max())


def test_a_cluster_whose_node_ends_says_so() -> None:
    config = cluster.on_loopback(network(2, None))
    elsewhere = replace(config.members[1], listen="tcp/192.0.2.1:7447")  # no address of this machine
    with pytest.raises(omkl.InputError, match=r"node 1 has ended after 0 of 5 rounds"):
        cluster.run(replace(config, members=(config.members[0], elsewhere)), *stream(2, 5))


def test_the_command_compares_with_the_simulator(tmp_path: Any) -> None:
    flags = ["--data", "banana", "--nodes", "3", "--topology", "ring", "--method", "paper", "--rounds", "40"]
    flags += ["--format", "json", "--quiet"]
    command = [sys.executable, "-c", "from omkl.cli import main; main()", "cluster", *flags, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["copies_equal"] == summary["copies"] == 6
    assert summary["largest_difference"] < 1e-4
    assert summary["rounds"] == 40
    assert 40 < summary["bytes_per_node_round"] < 52
    with np.load(tmp_path / "cluster.npz") as saved:
        assert saved["losses"].shape == (3, 40)
        assert saved["losses"].mean() == pytest.approx(summary["loss"], abs=1e-6)
