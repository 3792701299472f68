"""Columns that matter: found from labels, and weighed in networks whose landmarks have some."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omkl
from omkl.errors import InputError
from omkl.features import gaussian, transform
from omkl.landmarks import Landmarks, place
from omkl.model import load_model
from omkl.node.config import NetworkConfig, load
from omkl.node.protocol import Protocol
from omkl.node.role import differences
from omkl.relevance import relevance

WEIGHED = Landmarks(rank=30, rows=100, source="labelled")


def test_columns_that_do_not_matter_are_found(rng: np.random.Generator) -> None:
    X = rng.normal(size=(300, 8)).astype(np.float32)
    factors = relevance(X, np.sin(2 * X[:, [2]]) + X[:, [5]] ** 2)
    assert set(np.argsort(factors)[-2:]) == {2, 5}
    assert factors[[0, 1, 3, 4, 6, 7]].max() < 0.3 * factors[[2, 5]].min()
    assert np.mean(factors**2) == pytest.approx(1)


@given(seed=st.integers(0, 100), count=st.integers(1, 40), columns=st.integers(1, 5))
def test_relevance_is_finite_whatever_the_rows(seed: int, count: int, columns: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 2, size=(count, columns)).astype(np.float32)
    factors = relevance(X, rng.integers(0, 2, size=(count, 1)).astype(np.float32))
    assert factors.shape == (columns,)
    assert np.isfinite(factors).all()
    assert (factors >= 0).all()
    assert (relevance(X, np.ones((count, 1), np.float32)) == 1).all()


def table(count: int, columns: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs of which the first two columns tell the class."""
    X = np.random.default_rng(seed).normal(size=(count, columns))
    return X, np.where(np.sin(2 * X[:, 0]) + X[:, 1] > 0, 1, -1)


# Networks


def test_features_are_those_of_inputs_whose_columns_were_multiplied_before() -> None:
    X, y = table(80)
    made = place(gaussian(0.5, 1), 6, 0, X, WEIGHED, "median", y[:, None])
    factors = made.relevance
    assert factors is not None
    assert factors[:2].min() > 3 * factors[2:].max()
    by_hand = place(gaussian(0.5, 1), 6, 0, X * factors, replace(WEIGHED, source="rows"), "median")
    x, _ = table(9, seed=1)
    own, other = (transform(one.astype(np.float32), each) for one, each in ((x, made), (x * factors, by_hand)))
    np.testing.assert_allclose(own, other, atol=1e-3)


PROBE = """
import json, numpy as np
from omkl import landmarks
from omkl.features import gaussian
X = np.random.default_rng(0).normal(size=(300, 5)).round(2)
settings = landmarks.Landmarks(rank=100, source="labelled")
y = np.sin(X[:, :1]) + X[:, 1:2] ** 2
made = landmarks.place(gaussian(0.35, 0.7, 1.4), 5, 0, X, settings, "median", y)
print(json.dumps([np.asarray(part, dtype=float).ravel().tolist() for part in (made.relevance, made.basis)]))
"""


def test_the_same_coordinates_on_two_kinds_of_processor() -> None:
    found = []
    for core in ("Prescott", "Haswell"):
        environment = os.environ | {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "1"}
        ran = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=True)
        found.append([np.array(part) for part in json.loads(ran.stdout)])
    np.testing.assert_array_equal(found[0][0], found[1][0])
    np.testing.assert_allclose(found[0][1], found[1][1], atol=1e-4 * np.abs(found[0][1]).max())


def test_a_network_learns_more_where_columns_do_not_matter(tmp_path: Path) -> None:
    X, y = table(1200, 20)
    method = omkl.recommended(basis=Landmarks(rank=40, rows=200))
    weighed = method.replace(basis=Landmarks(rank=40, rows=200, source="labelled"))
    plain, better = (omkl.simulate((X, y), "path", nodes=6, method=one, seeds=2) for one in (method, weighed))
    assert better.loss.mean() < 0.8 * plain.loss.mean()
    assert better.relevance is not None
    assert better.relevance.shape == (2, 20)
    assert not np.array_equal(*better.relevance)  # each seed has rows of its own
    model = better.model(1, 2)
    model.save(tmp_path / "model.npz")
    told = model.decision_function(X[:9])
    np.testing.assert_array_equal(load_model(tmp_path / "model.npz").decision_function(X[:9]), told)
    again = omkl.load(better.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.model(1, 2).decision_function(X[:9]), told)
    with pytest.raises(InputError, match="of shapes"):
        replace(model, relevance=np.ones(3, np.float32))


NETWORK = """
name = "n"
inputs = 6
nodes = [{id = "a", listen = "tcp/h:1"}, {id = "b", listen = "tcp/h:2"}]
[learning]
seed = 3
[learning.method]
name = "recommended"
basis = {rank = 30, rows = 100}
[calibration]
file = "calibration.npz"
"""


def network(folder: Path, text: str = NETWORK, **arrays: Any) -> NetworkConfig:
    (folder / "network.toml").write_text(text)
    np.savez(folder / "calibration.npz", **arrays)
    return load(folder / "network.toml")


def test_nodes_have_the_features_of_the_simulation(tmp_path: Path) -> None:
    X, y = table(300)
    config = network(tmp_path, X=X, y=y)
    assert config.method.bank.basis == WEIGHED
    role = replace(config, name="m").role("a")  # rows of rows, and labels of labels, are the same
    node = Protocol(role, 1, 0.0).learning
    method = omkl.recommended(basis=WEIGHED)
    simulated = omkl.simulate((X, y), "path", nodes=2, method=method, seed=3, shuffle=None, rounds=150).features(0)
    for ours, theirs in zip(node.features[3:], simulated[3:], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_nodes_with_labels_and_without_refuse_each_other(tmp_path: Path) -> None:
    X, y = table(120)
    with_, other = (network(tmp_path, X=X, y=one).role("a") for one in (y, -y))
    without = network(tmp_path, X=X).role("a")
    assert "labels=" in with_.contract()
    assert "labels" not in without.contract()
    assert differences(with_.contract(), other.contract()).startswith("features here is")
    assert with_.settings != without.settings


@pytest.mark.parametrize(
    ("text", "arrays", "told"),
    [
        (NETWORK.replace("rows = 100", 'rows = 100, source = "labelled"'), {}, "^calibration: no labels; .* y=y"),
        (NETWORK, {"y": np.ones(7)}, "^calibration: 7 labels y for 120 rows X"),
        (NETWORK, {"y": np.full(120, 3.0)}, "^calibration: label 3; labels of logistic loss are 0 and 1"),
    ],
)
def test_refusals_of_nodes(text: str, arrays: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told):
        network(tmp_path, text, X=table(120)[0], **arrays)


def test_refusals() -> None:
    with pytest.raises(InputError, match="without a label for each of 9"):
        place(gaussian(1), 6, 0, table(9)[0], WEIGHED)


def test_labels_of_a_network_that_is_not_calibrated_on_rows_are_left_alone(tmp_path: Path) -> None:
    X, y = table(120)
    config = network(tmp_path, NETWORK.replace("rows = 100", 'source = "normal"'), X=X, y=y)
    assert (config.labels, config.role("a").targets) == (None, None)
