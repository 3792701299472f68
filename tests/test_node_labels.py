"""Labels 0 and 1 are two classes too, and a stream that gives nothing to learn from is told."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omkl import Softmax, Squared
from omkl.cli.exits import Exit
from omkl.errors import InputError
from omkl.losses import Logistic, SmoothedHinge
from omkl.node import config
from omkl.node.labels import Labels
from omkl.node.node import Node
from tests import node_processes
from tests.node_processes import Daemon, samples, write_network


@pytest.mark.parametrize("loss", [Logistic(), SmoothedHinge()])
def test_two_classes_may_be_0_and_1(loss: Any) -> None:
    labels = Labels(loss)
    assert [labels.encode([y]).item() for y in (1, 0, False, True)] == [1, -1, -1, 1]
    with pytest.raises(InputError, match="label -1 given after 0; two classes are 0 and 1, or -1 and 1"):
        labels.encode([-1])
    np.testing.assert_array_equal(labels.encode([0, 1])[:, 0], [-1, 1])
    assert [Labels(loss).encode([y]).item() for y in (1, -1)] == [1, -1]
    with pytest.raises(InputError, match="label -1 given after 0"):
        Labels(loss).encode([1, 0, -1])
    with pytest.raises(InputError, match=r"label 2; labels of .* loss are 0 and 1, or -1 and 1; take loss softmax"):
        labels.encode([2])


def test_other_losses_take_0_as_it_is() -> None:
    assert Labels(Squared()).encode([0.0]).tolist() == [[0.0]]
    assert Labels(Softmax(2)).encode([0]).tolist() == [[1.0, 0.0]]


def test_a_node_learns_0_as_minus_1(tmp_path: Path) -> None:
    found = []
    for lower in (0, -1):
        (folder := tmp_path / str(lower)).mkdir()
        with Node.join(write_network(folder, "a"), "a") as node:
            for x, y in samples(30):
                node.observe(x, max(y, lower))
            node.wait()
            found.append(node.decision_function([0.5, 0.5]))
            with pytest.raises(InputError, match=f"label {-1 - lower} given after {lower}"):
                node.observe([0.5, 0.5], -1 - lower)
    np.testing.assert_array_equal(found[0], found[1])


def test_a_file_of_calibration_may_have_0_and_1(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(120, 2))
    contracts = []
    for lower in (0, -1):
        np.savez(tmp_path / "calibration.npz", X=X, y=np.where(X[:, 0] > 0, 1, lower))
        table = {
            "name": "n", "inputs": 2, "nodes": [{"id": "a", "listen": "tcp/127.0.0.1:7447"}],
            "learning": {"topology": "path"}, "calibration": {"file": "calibration.npz"},
        }  # fmt: skip
        contracts.append(config.parse(table, tmp_path).role("a").contract())
    assert contracts[0] == contracts[1]
    assert " labels=" in contracts[0]


@pytest.mark.parametrize(("lines", "flags"), [(20, ()), (3, ("--until-end",))])
def test_a_stream_of_which_nothing_is_taken_ends_the_node(tmp_path: Path, lines: int, flags: tuple[str, ...]) -> None:
    path = write_network(tmp_path, "a")
    (tmp_path / "a.jsonl").write_text('{"x": [1, 2], "y": 7}\n' * lines)
    with Daemon(path, "a", "--input", tmp_path / "a.jsonl", "--quiet", *flags) as a:
        _, stderr = a.process.communicate(timeout=node_processes.LIMIT)
    assert a.process.returncode == Exit.INPUT
    assert f"omkl: error: none of {'' if flags else 'the first '}{lines} lines was taken" in stderr


def test_a_node_that_refuses_most_is_not_ready(tmp_path: Path) -> None:
    with Node.join(write_network(tmp_path, "a", metrics=True), "a") as node:
        assert node._metrics is not None
        pages = node._pages(node._metrics)
        for k in range(30):
            node.observe([0.5, 0.5], 1)
            if k == 9:
                node.wait()
                assert pages["/readyz"]().status == 200
            for _ in range(2 * (k >= 10)):
                node.refuse("label 7")
        node.wait()
        page = pages["/readyz"]()
    assert (page.status, json.loads(page.body)["refused"]) == (503, 40)
