from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import omkl
from omkl import scaling
from omkl.calibration import Basis
from omkl.config import experiment
from omkl.errors import InputError
from omkl.features import gaussian
from omkl.methods import Gossip
from omkl.model import load_model
from omkl.node.config import NetworkConfig, load
from omkl.node.events import Moved
from omkl.node.links import LinkState
from omkl.node.persistence import checkpoint
from omkl.node.protocol import Protocol
from omkl_lab.torture import campaign, shape
from tests import node_cluster
from tests.node_cluster import Cluster, config, run

RAW = Gossip(features=8, eta=0.5, gamma=0.5, quantizer=None)
CALIBRATED: dict[str, Any] = {
    "kernels": gaussian(0.5, 1), "sigma": "median", "features": 40, "basis": Basis(rank=12, rows=60),
}  # fmt: skip
Streams = st.builds(
    lambda X, offset, unit: unit * (X + offset),
    arrays(
        np.float64, st.tuples(st.integers(1, 12), st.integers(1, 3), st.integers(1, 3)), elements=st.integers(-9, 9)
    ),
    st.sampled_from([0, 5, -(2**20), 2**30]),
    st.sampled_from([1.0, 2.0**-20, 2.0**30]),
)


def stream(nodes: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = node_cluster.stream(nodes, rounds)
    return x.astype(np.float64), y


def moments(X: np.ndarray) -> scaling.Moments:
    found = scaling.start(*X.shape[1:])
    for x in X:
        found = scaling.update(found, x)
    return found


def raw(X: np.ndarray) -> np.ndarray:
    """The same in other units: pascals beside degrees."""
    return np.asarray(X * [1000.0, 0.01] + [101325.0, 20.0])


@given(Streams)
def test_moments_are_those_of_all_samples(X: np.ndarray) -> None:
    found = moments(X)
    center, scale = found.units
    assert found.seen == len(X)
    spread = np.ptp(X, axis=0)
    np.testing.assert_allclose(center, X.mean(axis=0), rtol=1e-15)
    expected = np.where(spread > 0, X.std(axis=0, ddof=1), 1) if len(X) > 1 else np.ones_like(center)
    np.testing.assert_allclose(scale, expected, rtol=1e-6)


@given(Streams, st.integers(0, 11))
def test_a_stream_is_what_each_node_computes_and_never_looks_ahead(X: np.ndarray, at: int) -> None:
    made, after = scaling.standardize_stream(X)
    for j in range(X.shape[1]):
        own = scaling.start(X.shape[2])
        for t, x in enumerate(X[:, j]):
            np.testing.assert_array_equal(made[t, j], scaling.standardize(x, *own.units))
            own = scaling.update(own, x)
        for part, whole in zip(own[1:], after[1:], strict=True):
            np.testing.assert_array_equal(part, whole[j])
    changed = X.copy()
    changed[at:] += 1e6
    np.testing.assert_array_equal(scaling.standardize_stream(changed)[0][:at], made[:at])


def test_a_stream_by_hand() -> None:
    X = np.array([[3.0, 7.0], [5.0, 7.0], [4.0, 7.0], [400.0, 8.0]])[:, None]
    made, after = scaling.standardize_stream(X)
    # Before two samples the center is what was seen and the scale 1; then mean 4 and deviation sqrt(2), then 1.
    np.testing.assert_array_equal(made[:, 0], [[3, 7], [2, 0], [0, 0], [10, 1]])
    np.testing.assert_allclose(after.units[0][0], [103, 7.25])


@given(Streams)
def test_units_do_not_matter_once_a_column_has_varied(X: np.ndarray) -> None:
    one, other = (scaling.standardize_stream(given)[0] for given in (X, 1024 * X))
    varied = np.maximum.accumulate(X, axis=0) > np.minimum.accumulate(X, axis=0)
    np.testing.assert_array_equal(one[1:][varied[:-1]], other[1:][varied[:-1]])
    assert np.abs(one).max() <= scaling.CLIP


def plain(X: np.ndarray) -> scaling.Moments:
    """Return the moments of Welford, whatever comes."""
    seen, mean, squares = scaling.start(*X.shape[1:])
    for x in X:
        apart = x - mean
        seen, mean = seen + 1, mean + apart / (seen + 1)
        squares = squares + apart * (x - mean)
    return scaling.Moments(seen, mean, squares)


@pytest.mark.parametrize("glitch", [1e6, -1e30])
def test_a_glitch_leaves_the_units_nearly_as_they_were(glitch: float) -> None:
    X = np.random.default_rng(0).normal(size=(500, 2))
    before, after = moments(X), moments(np.vstack([X, [[glitch, 0.5]]]))
    (center, scale), (center_after, scale_after) = before.units, after.units
    np.testing.assert_allclose(center_after, center, atol=0.03)
    np.testing.assert_allclose(scale_after, scale, rtol=0.12)
    near = center[0] + np.sign(glitch) * scaling.CLIP * scale[0]
    expected = scaling.update(before, np.array([near, 0.5]))
    np.testing.assert_allclose(after.mean, expected.mean)
    np.testing.assert_array_equal(after.mean[1], plain(np.vstack([X, [[0, 0.5]]])).mean[1])  # to the bit


def test_samples_that_are_not_absurd_count_as_they_are() -> None:
    X = np.random.default_rng(1).standard_t(2, size=(400, 3))
    X[60:, 1] += 30  # a change of level, and one of a column that had not varied
    X[:100, 2] = 7
    X[100:, 2] = 1e6 * X[100:, 2]
    for one, other in zip(moments(X)[1:], plain(X)[1:], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("before", [60, 500])
def test_a_change_of_level_for_good_is_learned(before: int) -> None:
    X = np.random.default_rng(2).normal(size=(before + 300, 1, 1))
    X[before:] += 1e6
    made, after = scaling.standardize_stream(X)
    assert abs(made[before, 0, 0]) == scaling.CLIP
    assert np.abs(made[-1]).max() < 5
    (center, scale), (whole, deviation) = after.units, plain(X).units
    np.testing.assert_allclose(center, whole, rtol=0.8)
    np.testing.assert_allclose(scale, deviation, rtol=0.3)


def test_a_billion_and_one() -> None:
    x = np.random.default_rng(0).normal(size=(500, 1, 2))
    near, far = (scaling.standardize_stream(x + offset)[0] for offset in (0.0, 1e9))
    np.testing.assert_allclose(far[2:], near[2:], atol=1e-5)


def test_a_constant_column_is_zero_from_the_second_sample_on() -> None:
    made, after = scaling.standardize_stream(np.full((50, 2, 1), 0.1 + 1e9))
    assert made[0].tolist() == [[10], [10]]
    assert not made[1:].any()
    assert after.units[1].tolist() == [[1], [1]]


def test_rows_are_in_units_of_all_of_them() -> None:
    rows = scaling.standardize_rows(raw(np.random.default_rng(1).normal(size=(300, 2))))
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(rows.std(axis=0, ddof=1), 1, rtol=1e-6)


def test_a_simulation_learns_the_standardized_stream() -> None:
    x, y = stream(4, 60)
    X = raw(x)
    made, after = scaling.standardize_stream(X)
    result = omkl.simulate((X, y), "ring", method=RAW, standardize=True, seeds=2)
    expected = omkl.simulate((made, y), "ring", method=RAW, seeds=2)
    np.testing.assert_array_equal(result.loss, expected.loss)
    assert (result.config["standardize"], expected.config["standardize"]) == (True, False)
    model = result.model(seed=1, node=2)
    seen = scaling.standardize(X[5], after.units[0][2], after.units[1][2])
    np.testing.assert_array_equal(model.decision_function(X[5]), expected.model(1, 2).decision_function(seen))


def test_a_simulation_keeps_double_precision(tmp_path: Path) -> None:
    x, y = stream(3, 40)
    table = (x + 1e9).reshape(-1, 2)
    result = omkl.simulate((table, y.reshape(-1)), "ring", nodes=3, method=RAW, standardize=True, shuffle=None)
    assert result.scale is not None
    np.testing.assert_allclose(result.scale, x.std(axis=0, ddof=1), rtol=1e-5)
    node = np.tile(["a", "b", "c"], 40)
    rows = [f"{u!r},{v!r},{name},{label}" for (u, v), name, label in zip(table.tolist(), node, y.flat, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["u,v,node,y", *rows]))
    spec = {"data": {"file": str(tmp_path / "t.csv"), "target": "y", "node": "node"}, "standardize": True}
    again = replace(experiment(spec), topology="ring", method=RAW).run()
    np.testing.assert_array_equal(again.scale, result.scale)
    np.testing.assert_array_equal(again.loss, result.loss)


def test_every_case_of_a_pass_is_standardized() -> None:
    x, y = stream(4, 30)
    cases: dict[str, Any] = {"a": (RAW, "ring"), "b": (RAW.replace(gamma=0.1), "path")}
    for name, result in omkl.compare((raw(x), y), cases, standardize=True).items():
        method, graph = cases[name]
        alone = omkl.simulate((raw(x), y), graph, method=method, standardize=True)
        np.testing.assert_allclose(result.loss, alone.loss, atol=1e-6)
        np.testing.assert_array_equal(result.center, alone.center)


def test_others_samples_have_no_units() -> None:
    x, y = stream(3, 5)
    with pytest.raises(InputError, match=r"^pooled with standardize; .*; leave out one of them, or score result.model"):
        omkl.simulate((x, y), "ring", standardize=True, pooled=True)


def test_files_keep_the_units(tmp_path: Path) -> None:
    x, y = stream(4, 40)
    X = raw(x)
    result = omkl.simulate((X, y), "ring", method=Gossip(**CALIBRATED), standardize=True)
    back = omkl.load(result.save(tmp_path))
    ours, theirs = (one.model(node=2) for one in (result, back))
    ours.save(tmp_path / "m.npz")
    for one in (theirs, load_model(tmp_path / "m.npz")):
        np.testing.assert_array_equal(one.decision_function(X[0]), ours.decision_function(X[0]))
    with np.load(tmp_path / "m.npz") as file:
        assert set(file) == {"header", "frequencies", "theta", "log_weights", "basis", "center", "scale"}
        assert '"omkl_model": 3' in str(file["header"])
        assert file["center"].dtype == np.float64
    plain = replace(ours, center=None, scale=None)
    assert np.abs(plain.decision_function(X[0]) - ours.decision_function(X[0])).max() > 1e-3
    with pytest.raises(InputError, match=r"^center and scale of shapes \[None, \(2,\)\]; give \(2,\) for both, or"):
        replace(ours, center=None)


def network(nodes: int, x: np.ndarray, **method: Any) -> NetworkConfig:
    return config(nodes, "path", calibration=x.reshape(-1, 2), standardize=True, **CALIBRATED | method)


@pytest.mark.parametrize("at", [raw, lambda x: x + 1e9], ids=["units", "offset"])
def test_nodes_compute_what_the_simulator_does(at: Callable[[np.ndarray], np.ndarray]) -> None:
    x, y = stream(4, 40)
    X = at(x)
    made = network(4, X, quantizer=None)
    cluster = run(made, X, y)
    cluster.check_copies()
    simulated = omkl.simulate((X, y), made.topology, method=made.method, seed=made.seed, standardize=True)
    for j, node in enumerate(cluster.nodes.values()):
        learning, model = node.learning, simulated.model(node=j)
        np.testing.assert_array_equal(learning.features.basis, simulated.basis[0])  # type: ignore[index]
        own = learning.model()
        np.testing.assert_array_equal(own.center, model.center)
        np.testing.assert_array_equal(own.scale, model.scale)
        np.testing.assert_allclose(learning.state.theta, simulated.theta[j, 0], atol=2e-3)
        np.testing.assert_allclose(node.predict(X[0, j]), own.decision_function(X[0, [j]])[0], atol=1e-4)


def test_a_calibration_sample_is_kept_as_it_came(tmp_path: Path) -> None:
    x, _ = stream(4, 40)
    made = network(4, x + 1e9)
    assert made.calibration is not None
    np.testing.assert_array_equal(replace(made, name="m").calibration, made.calibration)
    assert len({network(4, x + 1e9 + change).role("a").contract() for change in (0, 1e-6)}) == 2


def test_what_is_predicted_is_what_is_scored_and_leaves_no_trace() -> None:
    x, y = stream(1, 20)
    node = Protocol(config(1, standardize=True).role("a"), 1, 0.0)
    for sample, label in zip(raw(x[:, 0]), y[:, 0], strict=True):
        before = node.learning.moments
        expected = node.predict(sample)
        assert node.learning.moments is before
        scored = node.observe(sample, label, 0.0)[-1]
        np.testing.assert_allclose(scored.output, expected, atol=1e-5)  # type: ignore[union-attr]
    np.testing.assert_array_equal(node.learning.model().center, moments(raw(x[:, 0])).units[0])


def test_a_sample_without_a_label_tells_of_the_inputs() -> None:
    node = Protocol(config(1, standardize=True).role("a"), 1, 0.0)
    for sample in ([3.0, 7.0], [5.0, 7.0]):
        node.observe(sample, None, 0.0)
    center, scale = node.learning.model().center, node.learning.model().scale
    assert center is not None
    assert scale is not None
    assert (center.tolist(), scale.tolist()) == ([4, 7], [2**0.5, 1])
    assert not node.learning.state.theta.any()


@settings(max_examples=20)
@given(st.integers(0, 19), st.booleans())
def test_moments_and_waiting_samples_are_in_the_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, stop: int, clean: bool
) -> None:
    path = tmp_path_factory.mktemp("c") / "a.npz"
    x, y = stream(1, 20)
    node, straight = (Protocol(config(1, standardize=True).role("a"), 1, 0.0) for _ in range(2))
    for t, sample in enumerate(x[:, 0] + 1e9):
        if t == stop:
            node.waiting.append((node.learning.inputs(sample), node.learning.targets(y[t, 0])))
            checkpoint.save(path, node, clean)
            node = checkpoint.restore(path, node.role, 7, 0.0)
            node.wake(0.0)
        else:
            node.observe(sample, y[t, 0], 0.0)
        straight.observe(sample, y[t, 0], 0.0)
    for one, other in zip(node.learning.moments, straight.learning.moments, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(node.learning.state.theta, straight.learning.state.theta)


@pytest.mark.parametrize("seed", range(4))
def test_nodes_under_faults_standardize_as_the_algorithm_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "NetworkConfig", partial(NetworkConfig, standardize=True))
    assert campaign.run(seed, 40).violation is None


def test_neighbors_that_do_not_standardize_are_refused() -> None:
    one, other = config(2, standardize=True), config(2)
    assert one.role("a").contract() == other.role("a").contract() + "inputs standardized clip=10\n"
    cluster = Cluster(one)
    cluster.stop("b")
    cluster.add(Protocol(other.role("b"), 9, cluster.network.now))
    cluster.network.run(1.0)
    refused = [event.why for _, event in cluster.of(Moved) if event.after is LinkState.REFUSED]
    assert any("inputs here is standardized clip=10, there as they come" in why for why in refused)


def test_a_networks_file_says_it_where_its_simulation_does(tmp_path: Path) -> None:
    text = (
        'name = "n"\ninputs = 2\nnodes = [{id = "a", listen = "tcp/h:1"}]\n[learning]\ntopology = "path"\n'
        'standardize = true\n[learning.method]\nname = "paper"\n'
    )
    (tmp_path / "network.toml").write_text(text)
    assert load(tmp_path / "network.toml").role("a").standardize
    (tmp_path / "network.toml").write_text(text.replace("true", '"yes"'))
    with pytest.raises(InputError, match=r"^learning.standardize: 'yes' given; it must be true or false"):
        load(tmp_path / "network.toml")
