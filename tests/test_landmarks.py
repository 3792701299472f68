"""Landmarks: similarities and their basis, the same on every machine, in every file."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omkl
from omkl import config, features
from omkl.errors import InputError
from omkl.features import Features, gaussian, laplacian
from omkl.landmarks import Landmarks, centers, directions, marks, place, place_all
from omkl.methods import Gossip, tables
from omkl.model import load_model
from omkl.simulator import calibrating

BANK = gaussian(0.5, 1, 2)


@pytest.fixture
def X() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(60, 3))


def z_of(made: Features, x: np.ndarray) -> np.ndarray:
    return np.asarray(features.transform(x.astype(np.float32), made))[:, 0]


def test_two_landmarks_by_hand() -> None:
    made = place(gaussian(1), 1, 0, np.array([[0.0], [2.0]]), Landmarks(rank=2, rows=2))
    near = np.exp(-2.0)
    assert made.spectrum is not None
    np.testing.assert_allclose(made.spectrum[0], [(1 + near) / 2, (1 - near) / 2], rtol=1e-6)
    np.testing.assert_allclose(np.abs(z_of(made, np.array([[0.0], [2.0]]))), 1, rtol=1e-5)
    middle = 2 * np.exp(-0.5) / (1 + near)  # of both alike, in units of what they have of themselves and each other
    np.testing.assert_allclose(np.abs(z_of(made, np.array([[1.0]]))), [[middle, 0]], atol=1e-5)


def test_a_mean_of_gaussians_by_their_width() -> None:
    squares = np.array([0.0, 4.0])
    by_hand = (0.5 * np.exp(-squares / 0.5) + 2 * np.exp(-squares / 8)) / 2.5
    np.testing.assert_allclose(features.compare(squares, np.array([0.5, 2.0])), by_hand, rtol=1e-12)


def test_coordinates_are_white_at_the_landmarks_and_make_up_the_kernel(X: np.ndarray) -> None:
    made = place(gaussian(0.2, 0.5), 3, 0, X, Landmarks(rank=60, rows=60), sigma="median")
    z = z_of(made, X).astype(np.float64)
    np.testing.assert_allclose(z.T @ z / len(X), np.eye(60), atol=2e-3)
    marks, limits, widths = (np.asarray(part, dtype=np.float64) for part in made[3:6])
    similar = features.similarities(X, marks, limits, widths)
    assert made.spectrum is not None
    np.testing.assert_allclose((z * made.spectrum[0]) @ z.T, similar, atol=1e-4)


def test_what_lies_beyond_the_limits_counts_as_being_there(X: np.ndarray) -> None:
    made = place(BANK, 3, 0, X, Landmarks(rank=20), sigma="median")
    assert made.limits is not None
    low, high = made.limits
    np.testing.assert_allclose(high - low, 10 * X.std(axis=0), rtol=1e-5)
    far = np.array([[1e6, 0, 0], [0, -1e30, 0]])
    there = np.array([[high[0], 0, 0], [0, low[1], 0]])
    np.testing.assert_array_equal(z_of(made, far), z_of(made, there))


def test_far_from_zero_as_near_it(X: np.ndarray) -> None:
    here, there = (place(BANK, 3, 0, X + off, Landmarks(rank=10), sigma="median") for off in (0, 1000))
    np.testing.assert_allclose(z_of(there, X + 1000), z_of(here, X), atol=2e-2)  # float32 has three digits left there


@pytest.mark.parametrize("size", [4, 40])
def test_rotations_and_signs_of_the_solver_do_not_matter(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 2 * np.pi * np.arange(size) / size  # on a circle, where eigenvalues come in equal pairs
    circle = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    one = place(gaussian(1), 2, 0, circle, Landmarks(rank=3, rows=size))
    solve = np.linalg.eigh

    def other(matrices: np.ndarray) -> Any:
        values, vectors = (part[0] for part in solve(matrices))
        rng = np.random.default_rng(1)
        for first in range(len(values)):
            last = first + np.searchsorted(values[first:], values[first] + 1e-9)
            if last - first > 1:
                turn = np.linalg.qr(rng.normal(size=(last - first, last - first)))[0]
                vectors[:, first:last] = vectors[:, first:last] @ turn
        return values[None] + 1e-14, -vectors[None]

    monkeypatch.setattr(np.linalg, "eigh", other)
    two = place(gaussian(1), 2, 0, circle, Landmarks(rank=3, rows=size))
    np.testing.assert_allclose(np.asarray(two.basis), np.asarray(one.basis), atol=1e-5)


def test_a_seed_is_placed_alike_whatever_others_there_are() -> None:
    """On threads or on a device, beside other seeds or by itself."""
    X = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
    bank = omkl.recommended(basis=Landmarks(rank=30, rows=80)).bank
    together = calibrating.drawn(bank, X, X[:, :1], range(5), False)
    by_device = bank.draw_all(4, range(2, 4), X, False, X[:, :1], calibrating.directions)
    for seed in (2, 3):
        alone: Any = bank.draw(4, seed, X)
        parts: Any = zip(alone[1:6], together[1:6], by_device[1:6], strict=True)
        for one, other, there in parts:
            np.testing.assert_array_equal(other[seed], one)
            np.testing.assert_allclose(there[seed - 2], one, rtol=1e-6, atol=1e-6 * np.abs(one).max())


def test_a_device_turns_equal_eigenvalues_as_numpy_does() -> None:
    turns = 2 * np.pi * np.arange(12) / 12
    circle = np.stack([np.cos(turns), np.sin(turns)], axis=1).astype(np.float32)
    settings = Landmarks(rank=4, rows=12)
    made: list[Any] = [
        place_all(gaussian(1), [marks(2, 0, circle, settings)] * 2, settings, solve=solve)
        for solve in (directions, calibrating.directions)
    ]
    np.testing.assert_allclose(made[0].basis, made[1].basis, atol=1e-5)
    alone: Any = place(gaussian(1), 2, 0, circle, settings)
    np.testing.assert_array_equal(made[0].basis[0], alone.basis)


PROBE = """
import json, sys, numpy as np
from omkl import features, landmarks
from omkl.features import gaussian
X = np.random.default_rng(0).normal(size=(300, 5)).round(2)
made = landmarks.place(gaussian(0.35, 0.7, 1.4, 2.8, 5.6), 5, 0, X, landmarks.Landmarks(rank=100), "median")
z = features.transform(np.random.default_rng(1).normal(size=(20, 5)).astype(np.float32), made)
print(json.dumps(np.asarray(z, dtype=float).ravel().tolist()))
"""


def test_the_same_coordinates_on_two_kinds_of_processor() -> None:
    found = []
    for core in ("Prescott", "Haswell"):
        environment = os.environ | {"OPENBLAS_CORETYPE": core, "OPENBLAS_NUM_THREADS": "1"}
        ran = subprocess.run([sys.executable, "-c", PROBE], env=environment, capture_output=True, text=True, check=True)
        found.append(np.array(json.loads(ran.stdout)))
    np.testing.assert_allclose(found[0], found[1], atol=1e-3)  # coordinates are of mean square one


def test_directions_that_are_rounding_errors_stay_at_zero() -> None:
    made = place(gaussian(50), 1, 0, np.linspace(-1, 1, 30)[:, None], Landmarks(rank=20, rows=30))
    assert made.spectrum is not None
    kept = np.count_nonzero(made.spectrum)
    assert 1 <= kept < 5
    assert np.abs(z_of(made, np.linspace(-3, 3, 50)[:, None])[:, kept:]).max() == 0


def test_fewer_rows_than_coordinates(X: np.ndarray) -> None:
    made = place(BANK, 3, 0, X[:7], Landmarks(rank=20), sigma="median")
    assert made.spectrum is not None
    assert np.count_nonzero(made.spectrum) == 7
    assert made.basis is not None
    assert made.basis.shape == (1, 7, 20)


def test_centers_are_means_of_what_is_near() -> None:
    rng = np.random.default_rng(0)
    true = np.array([[0.0, 0], [10, 0], [0, 10]])
    X = true.repeat(50, axis=0) + rng.normal(size=(150, 2)) * 0.1
    found = min((centers(X, 3, seed) for seed in range(20)), key=lambda c: ((X[:, None] - c) ** 2).sum(-1).min(1).sum())
    assert sorted((found.round() + 0.0).tolist()) == sorted(true.tolist())
    np.testing.assert_array_equal(centers(X[:3], 5, 0), X[:3])


def test_normal_landmarks_need_no_sample() -> None:
    made, again, other = (
        place(BANK, 4, seed, None, Landmarks(rank=10, source="normal"), "median") for seed in (0, 0, 1)
    )
    assert made.landmarks is not None
    assert other.landmarks is not None
    np.testing.assert_array_equal(made.landmarks, again.landmarks)
    assert not np.array_equal(made.landmarks, other.landmarks)
    assert np.abs(made.landmarks.mean(axis=0)).max() < 0.3
    assert Gossip(basis=Landmarks(rank=10, source="normal")).bank.draw(4, 0).landmarks is not None


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: Landmarks(rank=600), "rank is 600; 500 rows"),
        (lambda: Landmarks(source="public"), "rows"),  # type: ignore[arg-type]
        (lambda: place(laplacian(1), 1, 0, np.zeros((3, 1)), Landmarks(rank=2)), "compared by Gaussians"),
        (lambda: place(BANK, 2, 0, np.zeros((3, 1)), Landmarks(rank=2)), "must be"),
        (lambda: place(BANK, 1, 0, np.array([[0.0], [np.nan]]), Landmarks(rank=2)), "non-finite value in row 1"),
        (lambda: place(BANK, 1, 0, np.zeros((9, 1)), Landmarks(rank=2)), "all equal"),
        (lambda: place(BANK, 1, 0, None, Landmarks(rank=2)), "no calibration sample"),
    ],
)
def test_refusals(wrong: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        wrong()


def test_the_table_of_a_file_says_which_basis() -> None:
    method = omkl.recommended()
    table = tables.as_table(method)
    assert table["basis"] == {"name": "landmarks", "rank": 120, "rows": 500, "source": "rows"}
    assert config.method(table | {"name": "gossip"}) == method
    old = config.method({"name": "gossip", "features": 50, "basis": {"rank": 9}})
    assert old.bank.basis == omkl.Basis(rank=9)


def test_models_and_runs_are_kept(tmp_path: Path) -> None:
    result = omkl.simulate("banana", "path", nodes=4, rounds=20, seeds=2)
    model = result.model(1, 2)
    X = np.random.default_rng(0).normal(size=(9, 2))
    model.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(load_model(tmp_path / "model.npz").decision_function(X), model.decision_function(X))
    again = omkl.load(result.save(tmp_path / "run"))
    np.testing.assert_array_equal(again.model(1, 2).decision_function(X), model.decision_function(X))
    assert model.theta.shape == (2, 1, 68)  # of two columns
    with pytest.raises(InputError, match="of shapes"):
        omkl.Model(None, model.theta, model.log_weights, model.loss)
