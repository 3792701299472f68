import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import omkl
from omkl import Basis, calibration, features
from omkl.calibration import calibrate, median_distance, normal_median, normal_moments, sample
from omkl.config import experiment
from omkl.errors import InputError
from omkl.features import Features, gaussian, laplacian
from omkl.learners import Shared
from omkl.methods import Choco, Complete, Gossip, Local
from omkl.model import Model, load_model
from omkl.node.config import NetworkConfig, load
from omkl.quantizers import Nearest
from omkl.simulator.size import size
from omkl.topology import build
from tests import numpy_run
from tests.conftest import Library
from tests.node_cluster import config, run, stream

BANK = gaussian(0.5, 1)
BASIS = Basis(rank=12, rows=60)
METHOD = Gossip(
    kernels=BANK, sigma="median", features=40, basis=BASIS, quantizer=Nearest(step=2.5), gamma=0.5, eta=0.05
)


@pytest.fixture
def X(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(60, 3)).astype(np.float32)


def fitted(X: np.ndarray, **more: Any) -> Features:
    settings: dict[str, Any] = {"features": 40, "dimension": 3, "seed": 1, "basis": BASIS, "sigma": "median"}
    return calibrate(BANK, sample=X, **settings | more)


def test_features_of_the_sample_are_white(X: np.ndarray) -> None:
    z = features.transform(X, fitted(X))
    assert z.shape == (60, 2, 12)
    for p in range(2):
        np.testing.assert_allclose(z[:, p].T @ z[:, p] / 60, np.eye(12), atol=2e-4)


def test_the_spectrum_turns_them_back_into_the_kernel(X: np.ndarray) -> None:
    """All directions there are: what is left out are eigenvalues below a millionth of the largest."""
    made = fitted(X, basis=Basis(rank=60, rows=60), sigma="given", features=200)
    assert made.spectrum is not None
    z, plain = features.transform(X, made), features.transform(X, Features(made.frequencies))
    for p in range(2):
        gram = (z[:, p] * made.spectrum[p]) @ z[:, p].T
        np.testing.assert_allclose(gram, plain[:, p] @ plain[:, p].T, atol=1e-4)
    apart = np.sum((X[:, None] - X) ** 2, axis=-1)
    assert np.abs(gram - np.exp(-apart / 2)).mean() < 0.05


def test_the_spectrum_is_that_of_the_second_moments(X: np.ndarray) -> None:
    made = fitted(X)
    z = features.transform(X.astype(np.float64), Features(made.frequencies.astype(np.float64)))
    for p in range(2):
        values = np.linalg.eigvalsh(z[:, p].T @ z[:, p] / 60)[::-1]
        np.testing.assert_allclose(made.spectrum[p], values[:12], rtol=1e-5)  # type: ignore[index]


def test_rounding_errors_are_no_directions(X: np.ndarray) -> None:
    few = np.concatenate([X[:5]] * 12)
    made = fitted(few)
    assert made.basis is not None
    assert made.spectrum is not None
    assert np.count_nonzero(made.spectrum, axis=-1).tolist() == [5, 5]
    assert not made.basis[..., 5:].any()
    assert np.isfinite(features.transform(X, made)).all()


@given(st.integers(0, 2**32), st.integers(1, 400), st.integers(1, 300))
def test_which_rows_are_taken_depends_on_seed_and_number_alone(seed: int, rows: int, count: int) -> None:
    table = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    taken = sample(table, count, seed)
    which = (taken[:, 0] / 2).astype(int).tolist()
    assert len(which) == min(count, rows) == len(set(which))
    assert which == sorted(which)
    np.testing.assert_array_equal(sample(np.zeros((rows, 1)) + table, count, seed), taken)
    np.testing.assert_array_equal(sample(taken, count, seed + 1), taken)  # all there are
    np.testing.assert_array_equal(sample(table.reshape(rows, 1, 2), count, seed), taken)


def test_rows_are_taken_alike() -> None:
    counts = np.zeros(50)
    for seed in range(400):
        counts[sample(np.arange(50)[:, None], 10, seed)[:, 0].astype(int)] += 1
    assert stats.chisquare(counts).pvalue > 1e-3


def test_a_seed_gives_the_same_features_always(X: np.ndarray) -> None:
    one, same, other = fitted(X), fitted(X.copy()), fitted(X, seed=2)
    for a, b in zip(one, same, strict=True):
        np.testing.assert_array_equal(a, b)
    assert one.basis is not None
    assert other.basis is not None
    assert one.basis.flags.c_contiguous
    assert not np.array_equal(one.basis, other.basis)
    largest = np.argmax(np.abs(one.basis), axis=-2, keepdims=True)
    assert (np.take_along_axis(one.basis, largest, axis=-2) > 0).all()


def test_rounding_in_the_sample_hardly_shows(X: np.ndarray) -> None:
    """As libraries round differently, and nodes have different ones."""
    one, other = fitted(X.astype(np.float64)), fitted(X.astype(np.float64) * (1 + 1e-13))
    np.testing.assert_allclose(features.transform(X, one), features.transform(X, other), atol=1e-5)


def test_a_basis_in_every_array_library(library: Library, X: np.ndarray) -> None:
    made = fitted(X)
    expected = features.transform(X, made)
    np.testing.assert_allclose(library.call(features.transform, X, made), expected, atol=3e-5)
    np.testing.assert_allclose(library.call(features.transform, X[0], made), expected[0], atol=3e-5)
    stacked = jax.tree.map(lambda part: np.stack([part, part[::-1]]), made)
    both = library.call(features.transform, X.reshape(6, 10, 3), stacked)
    assert both.shape == (6, 10, 2, 2, 12)
    np.testing.assert_allclose(both[:, :, 0].reshape(60, 2, 12), expected, atol=3e-5)
    np.testing.assert_allclose(both[:, :, 1].reshape(60, 2, 12), expected[:, ::-1], atol=3e-5)


def test_second_moments_of_normal_inputs(rng: np.random.Generator) -> None:
    V = rng.normal(size=(6, 3))
    z = features.transform(rng.normal(size=(200_000, 3)), Features(V))
    np.testing.assert_allclose(normal_moments(V), z.T @ z / len(z), atol=4 / 6 / math.sqrt(len(z)))


def test_the_closed_form_is_white_on_normal_inputs(rng: np.random.Generator) -> None:
    made = calibrate(BANK, 40, 3, 1, None, Basis(rank=8, source="normal"), "median")
    z = features.transform(rng.normal(size=(100_000, 3)).astype(np.float32), made)
    for p in range(2):
        np.testing.assert_allclose(z[:, p].T @ z[:, p] / len(z), np.eye(8), atol=0.05)


@pytest.mark.parametrize("d", [1, 2, 3, 10, 784, 5000])
def test_the_median_distance_of_normal_inputs(d: int) -> None:
    assert normal_median(d) == pytest.approx(math.sqrt(2 * stats.chi2.median(d)), rel=1e-12)


def test_bandwidths_are_in_units_of_the_median(X: np.ndarray) -> None:
    apart = [float(np.linalg.norm(a - b)) for k, a in enumerate(X.astype(float)) for b in X[k + 1 :]]
    unit = median_distance(X.astype(np.float64))
    assert unit == pytest.approx(np.median(apart))
    made = calibrate(laplacian(0.5, 2), 8, 3, 0, X, sigma="median")
    assert made.basis is None
    np.testing.assert_array_equal(made.frequencies, features.draw(laplacian(0.5 * unit, 2 * unit), 8, 3, 0))
    np.testing.assert_allclose(calibrate(BANK, 8, 3, 0, 7 * X, sigma="median").frequencies * 7,
                               calibrate(BANK, 8, 3, 0, X, sigma="median").frequencies, rtol=1e-6)  # fmt: skip


def test_without_calibration_nothing_changes() -> None:
    made = calibrate(BANK, 8, 3, 5)
    assert set(made[1:]) == {None}
    np.testing.assert_array_equal(made.frequencies, features.draw(BANK, 8, 3, 5))
    np.testing.assert_array_equal(Gossip(kernels=BANK, features=8).bank.draw(3, 5).frequencies, made.frequencies)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (None, "no calibration sample; .*; give some rows, or Basis"),
        (np.ones((60, 4)), r"shape \(60, 4\); it must be \(n, 3\)"),
        (np.ones((60, 3)), "60 rows, all equal; .*; give rows that differ"),
        (np.ones((1, 3)), "1 rows, all equal"),
        (np.zeros((0, 3)), "0 rows, all equal"),
        (np.full((60, 3), np.nan), "non-finite value in row 0; fill or drop it"),
        (np.arange(180).reshape(60, 3) // 162, "median distance between 60 calibration rows is 0; .*; give rows"),
    ],
)
def test_samples_that_tell_nothing_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted(rows)


def test_a_small_sample_leaves_coordinates_at_zero() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 3))
    z, few = (features.transform(rows, fitted(rows, basis=Basis(rank=rank))) for rank in (12, 5))
    np.testing.assert_allclose(z[..., :5], few, atol=1e-5)  # products of other shapes round differently
    assert not z[..., 5:].any()
    spectrum = fitted(rows).spectrum
    assert spectrum is not None
    assert ((spectrum > 0) == (np.arange(12) < 5)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Basis(rank=0), "rank is 0; it must be a whole number from 1 on"),
        (lambda: Basis(rank=301), "rank is 301; 300 rows span no more directions; lower it or raise rows"),
        (lambda: Basis(source="smaple"), "did you mean 'sample'"),  # type: ignore[arg-type]
        (lambda: Gossip(features=20, basis=Basis(rank=41)), "basis.rank is 41; 20 features span 40 directions; lower"),
        (lambda: Gossip(basis=40), "basis is 40; .*; pass omkl.Landmarks"),
        (lambda: Gossip(sigma="mean"), "unknown sigma 'mean'"),
        (lambda: Gossip(features=100, basis=Basis(rank=20), quantizer=Nearest(block=30)), "block"),
        (lambda: calibrate(BANK, 4, 3, 0, np.eye(3), Basis(rank=9, rows=9, source="normal")), "span 8 directions"),
    ],
)
def test_settings_that_cannot_be(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_width_is_what_a_model_has() -> None:
    assert (Gossip(features=20).bank.width, METHOD.bank.width) == (40, 12)
    assert METHOD.init(np, (2,), 1).theta.shape == (2, 2, 1, 12)
    with pytest.raises(InputError, match="vectors of length 80"):
        Gossip(features=40)
    Gossip(features=40, basis=Basis(rank=40))  # it is the width that a quantizer must suit


@pytest.mark.parametrize("learner", [None, Shared()])
@pytest.mark.parametrize("d", [2, 6])
def test_the_simulator_learns_in_the_basis(learner: Any, d: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(30, 4, d)).astype(np.float32)
    y = np.sign(x[..., 0] * x[..., 1])
    method = METHOD.replace(quantizer=None, learner=learner, basis=Basis(rank=12, rows=60))
    result = omkl.simulate((x, y), "ring", method=method, seeds=8)
    for s in (0, 5):
        alone = numpy_run.run(method, x, y, build("ring", 4), s)
        np.testing.assert_allclose(result.loss[s], alone.loss.mean(axis=1), atol=2e-4)
        np.testing.assert_allclose(result.theta[:, s], alone.state.theta, atol=2e-3)
    one = omkl.simulate((x, y), "ring", method=method, seed=5)
    np.testing.assert_array_equal(one.basis[0], result.basis[5])  # type: ignore[index]
    np.testing.assert_allclose(one.loss[0], result.loss[5], atol=1e-5)


def test_methods_share_a_basis_or_run_apart() -> None:
    x, y = stream(4, 20)
    cases: dict[str, Any] = {
        "gossip": (METHOD, "complete"),
        "local": (Local(kernels=BANK, sigma="median", features=40, basis=BASIS), "ring"),
        "one": (Choco(kernels=BANK[:1], sigma="median", features=40, basis=BASIS, quantizer=None), "ring"),
        "all": (Complete(kernels=BANK, sigma="median", features=40, basis=BASIS, quantizer=None), "complete"),
    }
    results = omkl.compare((x, y), cases, seeds=2)
    assert results["one"].theta.shape == (4, 2, 1, 1, 12)
    assert results["one"].basis.shape == (2, 1, 80, 12)  # type: ignore[union-attr]
    np.testing.assert_array_equal(results["gossip"].basis, results["local"].basis)
    for other in (METHOD.replace(basis=Basis(rank=11)), METHOD.replace(sigma="given")):
        both = omkl.compare((x, y), {"a": (METHOD, "ring"), "b": (other, "ring")}, seeds=2)
        for name, method in (("a", METHOD), ("b", other)):
            alone = omkl.simulate((x, y), "ring", method=method, seeds=2)
            np.testing.assert_allclose(both[name].loss, alone.loss, atol=1e-5)


def test_a_saved_result_predicts_the_same(tmp_path: Path) -> None:
    x, y = stream(4, 20)
    result = omkl.simulate((x, y), "ring", method=METHOD, seeds=2)
    back = omkl.load(result.save(tmp_path))
    assert back.config["method"]["basis"] == {"name": "Basis", "rank": 12, "rows": 60, "source": "sample"}
    ours, theirs = (one.model(seed=1, node=2) for one in (result, back))
    np.testing.assert_array_equal(theirs.decision_function(x[0]), ours.decision_function(x[0]))
    ours.save(tmp_path / "model.npz")
    np.testing.assert_array_equal(
        load_model(tmp_path / "model.npz").decision_function(x[0]), ours.decision_function(x[0])
    )


def test_a_model_without_a_basis_is_written_as_ever(tmp_path: Path) -> None:
    V = features.draw(BANK, 4, 2, 0)
    model = Model(V, np.zeros((2, 1, 8), np.float32), np.zeros(2, np.float32), Gossip().objective)
    model.save(tmp_path / "plain.npz")
    with np.load(tmp_path / "plain.npz") as file:
        assert set(file) == {"header", "frequencies", "theta", "log_weights"}
        assert '"omkl_model": 1' in str(file["header"])


def test_a_basis_of_another_shape_is_refused() -> None:
    V, weights = features.draw(BANK, 4, 2, 0), np.zeros(2, np.float32)
    with pytest.raises(InputError, match=r"basis has shape \(2, 6, 3\); for these frequencies give \(2, 8, r\)"):
        Model(V, np.zeros((2, 1, 3), np.float32), weights, Gossip().objective, np.zeros((2, 6, 3), np.float32))
    with pytest.raises(InputError, match=r"give \(P, D, d\), \(P, C, 3\), \(P,\)"):
        Model(V, np.zeros((2, 1, 8), np.float32), weights, Gossip().objective, np.zeros((2, 8, 3), np.float32))


def test_the_size_of_a_run_counts_the_basis() -> None:
    graph = [build("path", 3)]
    found = size((5, 3, 6), 1, [METHOD], graph, 2)
    assert found.features == 4 * 2 * 2 * (40 * 6 + 81 * 12)
    assert found.rounds == 4 * 2 * 2 * (3 * 3 * 12 + 5 * 3 * (3 * 40 + 12))
    assert found.state == 4 * 2 * 2 * 3 * (2 * 12 + 1)
    shared = size((5, 3, 6), 1, [replace(METHOD, learner=Shared())], graph, 2)
    assert shared.state - found.state == 4 * 2 * 3 * (2 * 12 + 1)


def calibrated(nodes: int, x: np.ndarray, **method: Any) -> NetworkConfig:
    settings: dict[str, Any] = {"kernels": BANK, "sigma": "median", "features": 40, "basis": BASIS}
    return config(nodes, "path", calibration=x.reshape(-1, 2), **settings | method)


@pytest.mark.parametrize("learner", [None, Shared()])
def test_nodes_compute_what_the_simulator_does(learner: Any) -> None:
    x, y = stream(4, 40)
    network = calibrated(4, x, learner=learner, quantizer=None)
    cluster = run(network, x, y)
    cluster.check_copies()
    simulated = omkl.simulate((x, y), network.topology, method=network.method, seed=network.seed)
    for j, node in enumerate(cluster.nodes.values()):
        learning = node.learning
        np.testing.assert_array_equal(learning.features.basis, simulated.basis[0])  # type: ignore[index]
        np.testing.assert_allclose(learning.state.theta, simulated.theta[j, 0], atol=2e-3)
        model = simulated.model(node=j)
        np.testing.assert_allclose(learning.predict(x[0]), model.decision_function(x[0]), atol=2e-3)
        np.testing.assert_allclose(learning.model().decision_function(x[0]), learning.predict(x[0]), atol=1e-4)


def test_neighbors_with_other_samples_differ() -> None:
    x, _ = stream(4, 40)
    contracts = [
        network.role("a").contract()
        for network in (
            calibrated(4, x),
            calibrated(4, x + np.float32(1e-3)),
            calibrated(4, x, sigma="given"),
            calibrated(4, x, basis=Basis(rank=11, rows=60)),
            calibrated(4, x, basis=Basis(rank=12, rows=60, source="normal")),
        )
    ]
    assert len(set(contracts)) == 5
    line = contracts[0].splitlines()[2]
    assert " D=40 d=2 seed=3 sigma=median basis=12:sample sample=" in line
    assert contracts[4].splitlines()[2].endswith(" seed=3 sigma=median basis=12:normal")
    assert config(2).role("a").contract().splitlines()[2].endswith("D=4 d=2 seed=3")


NETWORK = """
name = "n"
inputs = 2
nodes = [{id = "a", listen = "tcp/h:1"}, {id = "b", listen = "tcp/h:2"}]

[learning]
seed = 3
[learning.method]
name = "gossip"
features = 40
sigma = "median"
kernels = {gaussian = [0.5, 1]}
[learning.method.basis]
rank = 12
rows = 60

[calibration]
file = "calibration.npz"
"""


def test_a_file_brings_its_sample(tmp_path: Path) -> None:
    x, _ = stream(4, 40)
    (tmp_path / "network.toml").write_text(NETWORK)
    np.savez(tmp_path / "calibration.npz", X=x.reshape(-1, 2).astype(np.float64))
    network = load(tmp_path / "network.toml")
    assert network.method.bank.basis == BASIS
    rows = network.role("a").calibration
    np.testing.assert_array_equal(rows, sample(x, 60, 3))
    assert rows is not None
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(replace(network, name="m").calibration, rows)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (None, "calibration.file: .*calibration.npz cannot be read .*; write it by np.savez"),
        ({"Y": np.ones((60, 2))}, "calibration.file: .*cannot be read .*X"),
        ({"X": np.ones((60, 3))}, r"calibration: the calibration sample has shape \(60, 3\); it must be \(n, 2\)"),
        ({"X": np.ones((60, 2))}, "calibration: .* all equal"),
        ({"X": np.full((60, 2), np.inf)}, "calibration.* must be finite"),
        ({"X": np.array(["a"])}, "calibration: X has type"),
    ],
)
def test_a_file_without_a_sample_is_refused(tmp_path: Path, arrays: Any, message: str) -> None:
    (tmp_path / "network.toml").write_text(NETWORK)
    if arrays is not None:
        np.savez(tmp_path / "calibration.npz", **arrays)
    with pytest.raises(InputError, match=message):
        load(tmp_path / "network.toml")


def test_nodes_without_a_sample_are_told_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "network.toml").write_text(NETWORK.partition("[calibration]")[0])
    with pytest.raises(InputError, match=r"^calibration: missing; .* write \[calibration\], file = "):
        load(tmp_path / "network.toml")


def test_a_spec_names_the_basis() -> None:
    method = {"name": "gossip", "sigma": "median", "features": 100, "basis": {"rank": 30, "source": "normal"}}
    spec = experiment({"data": "banana", "method": method})
    assert spec.method == Gossip(sigma="median", features=100, basis=Basis(rank=30, source="normal"))
    assert calibration.rows(spec.method.bank.basis, spec.method.bank.sigma) == 0
    for wrong, message in (
        ({"rank": 400}, r"^method.basis.rank: rank is 400; 300 rows span"),
        ({"ranks": 4}, r"^method.basis.ranks: unknown key; did you mean 'rank'"),
        ({"source": "norml"}, r"^method.basis.source: 'norml' given"),
    ):
        with pytest.raises(InputError, match=message):
            experiment({"data": "banana", "method": {"name": "gossip", "features": 512, "basis": wrong}})
    with pytest.raises(InputError, match=r"^method.sigma: 'mean' given"):
        experiment({"data": "banana", "method": {"sigma": "mean"}})
