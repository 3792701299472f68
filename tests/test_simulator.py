import json
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import omkl
from omkl import QSGD, Gossip, Local, Nearest, algorithm, features, topology, wire
from omkl.data import Data, as_stream, load
from omkl.errors import InputError
from omkl.methods import Method, Neighbors
from omkl.quantizers import Message
from omkl.simulator import engine, rounds, scans
from omkl.simulator.networks import Dense, Edges, Lists, network
from omkl.simulator.watching import Begun, Plan
from tests import numpy_run
from tests.conftest import assert_same_but_for_flips
from tests.executors import SCANS, by


def blobs(rounds: int, nodes: int, d: int = 5, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rounds, nodes, d)).astype(np.float32)
    margin = np.sin(2 * X[..., 0]) + X[..., 1] * X[..., 2] + 0.3 * rng.normal(size=(rounds, nodes))
    return X, np.where(margin > 0, 1, -1)


@pytest.fixture
def in_jax() -> Iterator[None]:
    """Let all runs be JAX's, whatever suits them."""
    with by(SCANS):
        yield


@pytest.mark.parametrize(("eta", "gamma"), [(0.01, 0.009), (1.0, 0.5)])
def test_equals_numpy_without_quantizer(eta: float, gamma: float) -> None:
    X, y = blobs(1500, 8)
    method = Gossip(eta=eta, gamma=gamma, quantizer=None)
    here = numpy_run.run(method, X, y, topology.build("path", 8), seed=3)
    there = omkl.simulate((X, y), "path", method=method, seed=3)
    distance = np.linalg.norm(here.state.theta - there.theta[:, 0], axis=-1)
    assert (distance <= 1e-4 * np.linalg.norm(here.state.theta, axis=-1)).all()
    np.testing.assert_allclose(there.loss[0], here.loss.mean(axis=1), atol=1e-5)


@pytest.mark.parametrize("name", ["path", "star", "complete"])
def test_equals_numpy_where_neighbors_are_clipped(name: str) -> None:
    X, y = blobs(300, 40)
    method = Gossip(eta=1.0, gamma=0.5, quantizer=None, clip=0.2)
    here = numpy_run.run(method, X, y, topology.build(name, 40), seed=3)
    cases = {"clipped": (method, name), "free": (method.replace(clip=None), name)}
    there, free = omkl.compare((X, y), cases, seed=3).values()
    distance = np.linalg.norm(here.state.theta - there.theta[:, 0], axis=-1)
    assert (distance <= 1e-4 * np.linalg.norm(here.state.theta, axis=-1)).all()
    np.testing.assert_allclose(there.loss[0], here.loss.mean(axis=1), atol=1e-5)
    assert there.disagreement.mean() > 1.02 * free.disagreement.mean()
    assert there.config["method"]["clip"] == 0.2


def test_a_radius_that_nobody_reaches_changes_nothing() -> None:
    X, y = blobs(100, 8)
    free, wide = (
        omkl.simulate((X, y), "path", method=Gossip(eta=1.0, gamma=0.5, quantizer=None, clip=clip), seeds=8)
        for clip in (None, float("inf"))
    )
    np.testing.assert_allclose(wide.loss, free.loss, atol=1e-5)


@pytest.mark.parametrize("quantizer", [QSGD(bits=3), Nearest()], ids=str)
def test_equals_numpy_in_loss_with_quantizer(quantizer: object) -> None:
    X, y = blobs(1500, 8)
    method = Gossip(quantizer=quantizer)
    here = numpy_run.run(method, X, y, topology.build("path", 8), seed=3)
    there = omkl.simulate((X, y), "path", method=method, seed=3)
    np.testing.assert_allclose(there.loss[0], here.loss.mean(axis=1), atol=1e-4)


def test_dither_is_the_stated_one() -> None:
    # Coarse levels and large steps: another dither at any node, round or seed moves theta by far more than rounding.
    X, y = blobs(12, 6)
    method = Gossip(eta=1, gamma=0.3, quantizer=QSGD(bits=1, rescale=True))
    many = omkl.simulate((X, y), "path", method=method, seed=3, seeds=4)
    for k, seed in enumerate((3, 4, 5, 6)):
        here = numpy_run.run(method, X, y, topology.build("path", 6), seed)
        np.testing.assert_allclose(many.theta[:, k], here.state.theta, atol=1e-5)


@pytest.mark.parametrize("quantizer", [QSGD(bits=3), Nearest()], ids=str)
def test_from_the_same_state_almost_every_level_is_the_same(quantizer: Any) -> None:
    X, y = blobs(300, 8)
    method = Gossip(quantizer=quantizer, eta=0.5, gamma=0.1)
    net = network(topology.build("path", 8))
    step = jax.jit(lambda state, round_: method.step(state, round_, net)[0])
    flips, levels = numpy_run.count_flips(method, X, y, topology.build("path", 8), step)
    assert levels > 200_000
    assert flips <= 1e-4 * levels


@pytest.mark.parametrize("method", [Gossip(eta=0.5, gamma=0.3), Local(eta=0.5)], ids=["gossip", "local"])
def test_a_run_depends_on_its_seed_alone(method: Method) -> None:
    X, y = blobs(60, 6)
    many = omkl.simulate((X, y), "ring", method=method, seeds=4, seed=10)
    one = omkl.simulate((X, y), "ring", method=method, seed=12)
    np.testing.assert_allclose(many.loss[2], one.loss[0], atol=1e-6)
    np.testing.assert_allclose(many.theta[:, 2], one.theta[:, 0], atol=1e-5)
    again = omkl.simulate((X, y), "ring", method=method, seeds=4, seed=10)
    np.testing.assert_array_equal(many.theta, again.theta)
    assert not np.allclose(many.loss[1], many.loss[2], atol=1e-4)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch, in_jax: None) -> None:
    X, y = blobs(50, 6)
    whole = omkl.simulate((X, y), "ring", method=Gossip(eta=0.5))
    monkeypatch.setattr(rounds, "CHUNK_BYTES", 7 * 4 * 6 * 3 * 20)
    done: list[tuple[int, int]] = []
    parts = omkl.simulate((X, y), "ring", method=Gossip(eta=0.5), progress=lambda *p: done.append(p))
    np.testing.assert_allclose(whole.loss, parts.loss, atol=1e-6)
    assert done == [(min(7 * k, 50), 50) for k in range(1, 9)]
    thin = omkl.simulate((X, y), "ring", method=Gossip(eta=0.5), record_every=20)
    np.testing.assert_allclose(thin.loss, whole.loss[:, 19::20], atol=1e-6)
    assert thin.rounds.tolist() == [19, 39]


def test_threads_do_not_matter(monkeypatch: pytest.MonkeyPatch, in_jax: None) -> None:
    X, y = blobs(40, 5)
    cases = {"gossip": (Gossip(eta=0.5), "ring"), "complete": (omkl.Complete(eta=0.5), "complete")}
    monkeypatch.setattr(scans, "cores", lambda: 1)
    one = omkl.compare((X, y), cases, seeds=5)
    monkeypatch.setattr(scans, "cores", lambda: 3)
    three = omkl.compare((X, y), cases, seeds=5)
    for name in cases:
        np.testing.assert_allclose(one[name].loss, three[name].loss, atol=1e-5)
        np.testing.assert_allclose(one[name].theta, three[name].theta, atol=1e-3)


def test_an_interrupt_stops_all_threads(monkeypatch: pytest.MonkeyPatch, in_jax: None) -> None:
    def interrupt(done: int, rounds: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(scans, "cores", lambda: 2)
    monkeypatch.setattr(rounds, "CHUNK_BYTES", 1)
    with pytest.raises(KeyboardInterrupt):
        omkl.simulate(blobs(50, 5), "ring", method=omkl.paper(), seeds=2, progress=interrupt)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPoolExecutor")]


def test_a_second_interrupt_waits_for_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def interrupted(work: object) -> None:
        calls.append(work)
        if len(calls) < 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(scans, "wait", interrupted)
    scans._await([])
    assert len(calls) == 3


def test_divergence_in_any_thread_is_reported(monkeypatch: pytest.MonkeyPatch, in_jax: None) -> None:
    monkeypatch.setattr(scans, "cores", lambda: 3)
    with pytest.raises(omkl.DivergedError):
        omkl.simulate(blobs(50, 4), "ring", method=Gossip(eta=1e30, regularization=1e3, loss="squared"), seeds=3)


@pytest.mark.parametrize("name", ["path", "ring", "star", "grid", "complete"])
def test_all_ways_to_mix_are_the_algorithms(name: str) -> None:
    rng = np.random.default_rng(0)
    built = topology.build(name, 12)
    theta, hidden = (rng.normal(size=(12, 2, 3, 1, 8)).astype(np.float32) for _ in range(2))
    index, weights = built.neighbors()
    stated = Neighbors(index, weights.astype(np.float32)).mix(theta, hidden, 0.7)
    clipped = Neighbors(index, weights.astype(np.float32)).mix(theta, hidden, 0.7, 3.0)
    assert np.abs(clipped - stated).max() > 0.1
    both = np.concatenate([built.graph.edges, built.graph.edges[:, ::-1]])
    edge_weights = np.tile(built.weights, 2).astype(np.float32)
    order = np.argsort(both[:, 0], kind="stable")
    for fast in (
        Dense(jnp.asarray(built.matrix() - np.eye(12), dtype=jnp.float32)),
        Lists(jnp.asarray(index), jnp.asarray(weights, dtype=jnp.float32)),
        Edges(*(jnp.asarray(a[order]) for a in (both[:, 0], both[:, 1], edge_weights))),
    ):
        mix = jax.jit(fast.mix, static_argnums=(2, 3))
        np.testing.assert_allclose(mix(theta, hidden, 0.7), stated, atol=2e-6)
        if not isinstance(fast, Dense):
            np.testing.assert_allclose(mix(theta, hidden, 0.7, 3.0), clipped, atol=2e-6)
    for known in (network(built), Neighbors(index, weights)):
        np.testing.assert_array_equal(known.degrees(12), built.degrees)
        np.testing.assert_allclose(known.weight(12), 1 - built.self_weights, atol=1e-7)


@pytest.mark.parametrize(
    "kernels", [omkl.laplacian(0.01, 1), omkl.cauchy(0.1), omkl.gaussian(1e-4), omkl.matern(0.1, 1, nu=0.5)], ids=str
)
def test_heavy_tails_and_narrow_kernels_equal_numpy(kernels: tuple[omkl.Kernel, ...]) -> None:
    X, y = blobs(100, 4)
    method = Gossip(kernels=kernels, eta=0.5, gamma=0.3, quantizer=None)
    here = numpy_run.run(method, X, y, topology.build("path", 4), seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        there = omkl.simulate((X, y), "path", method=method, seed=3)
    np.testing.assert_allclose(there.loss[0], here.loss.mean(axis=1), atol=0.02)


def test_orthogonal_features_are_drawn_where_asked_for() -> None:
    X, y = blobs(40, 4)
    method = Gossip(kernels=omkl.matern(1) + omkl.gaussian(2), eta=0.5, gamma=0.3, orthogonal=True)
    there = omkl.simulate((X, y), "path", method=method, seed=3)
    drawn = features.draw(method.bank.kernels, method.bank.features, X.shape[-1], 3, orthogonal=True)
    np.testing.assert_array_equal(there.frequencies[0], drawn)
    assert there.config["method"]["orthogonal"] is True
    here = numpy_run.run(method, X, y, topology.build("path", 4), seed=3)
    np.testing.assert_allclose(there.loss[0], here.loss.mean(axis=1), atol=1e-3)


def test_the_way_to_mix_suits_the_network() -> None:
    assert isinstance(network(topology.build("complete", 200)).links, Dense)
    assert isinstance(network(topology.build("complete", 20)).links, Dense)
    assert isinstance(network(topology.build("ring", 1000)).links, Lists)
    assert isinstance(network(topology.build("star", 1000)).links, Edges)
    assert isinstance(network(topology.build("complete", 200), clips=True).links, Edges)
    assert isinstance(network(topology.build("complete", 20), clips=True).links, Lists)
    assert isinstance(network(topology.build("star", 1000), clips=True).links, Edges)


@pytest.mark.parametrize("name", ["ring", "star"])
def test_large_networks_learn_alike(name: str, monkeypatch: pytest.MonkeyPatch, in_jax: None) -> None:
    X, y = blobs(20, 70)
    sparse = omkl.simulate((X, y), name, method=Gossip(eta=1, gamma=0.5, quantizer=None))
    monkeypatch.setattr("omkl.simulator.layout.DENSE_NODES", 100)
    dense = omkl.simulate((X, y), name, method=Gossip(eta=1, gamma=0.5, quantizer=None))
    np.testing.assert_allclose(sparse.theta, dense.theta, atol=1e-5)


def test_banana_at_the_papers_settings() -> None:
    quantized = omkl.simulate("banana", "path", 20, Gossip(), seeds=20)
    exact = omkl.simulate("banana", "path", 20, Gossip(quantizer=None), seeds=20)
    assert quantized.loss.shape == (20, 265)
    assert quantized.summary()["final_loss"] == pytest.approx(0.686, abs=0.001)
    assert quantized.summary()["final_loss"] == pytest.approx(exact.summary()["final_loss"], abs=1e-5)
    np.testing.assert_allclose(quantized.loss[:, 0], np.log(2), rtol=1e-6)


def test_bits_and_links() -> None:
    X, y = blobs(3, 5)
    message = 8 * (4 + 3 * 40 * 4)
    path = omkl.simulate((X, y), "path", method=Gossip(quantizer=None))
    assert (path.bits == 5 * message).all()
    assert (path.link_bits == 8 * message).all()
    star = omkl.simulate((X, y), "star", method=Gossip(quantizer=None))
    assert (star.link_bits == path.link_bits).all()
    everyone = omkl.simulate((X, y), "complete", method=omkl.Complete(quantizer=None))
    assert (everyone.bits == 5 * (message + 3 * 32)).all()  # a broadcast counts once
    assert (everyone.link_bits == 20 * (message + 3 * 32)).all()
    assert not omkl.simulate((X, y), "path", method=Local()).bits.any()


@pytest.mark.parametrize("quantizer", [QSGD(bits=3), QSGD(bits=8, block=8), Nearest(), "sign", None], ids=str)
@pytest.mark.parametrize(("eta", "gamma"), [(0.01, 0.009), (0.5, 0.3)])
def test_bits_are_what_the_codec_packs(quantizer: Any, eta: float, gamma: float) -> None:
    X, y = blobs(60, 6)
    method = Gossip(eta=eta, gamma=gamma, quantizer=quantizer)
    star, codec = topology.build("star", 6), wire.Codec((3, 1, 40), method.channel.quantizer)
    before, packed = method.init(np, (6,), 1), np.zeros((60, 6))
    for t, (after, info, given) in enumerate(numpy_run.play(method, X, y, star, seed=0)):
        levels, step = algorithm.emit(info.theta, before.hidden, method.channel.quantizer, given.uniforms)
        packed[t] = [len(wire.write_gossip(codec, 0, t, Message(levels[j], step[j]), 0)) for j in range(6)]
        before = after
    found = omkl.simulate((X, y), star, method=method)
    assert found.bits.mean() == pytest.approx(8 * packed.sum(axis=1).mean(), rel=0.01)
    assert found.link_bits.mean() == pytest.approx(8 * (packed @ star.degrees).mean(), rel=0.01)
    # A byte in some of the messages: the codec's rounding, or a level that another library's rounding flipped.
    assert np.abs(found.bits[0] - 8 * packed.sum(axis=1)).max() <= 8 * 6


def test_one_node_learns_alone_for_nothing() -> None:
    X, y = blobs(100, 1)
    gossip = omkl.simulate((X, y), "path", method=Gossip(eta=0.5))
    local = omkl.simulate((X, y), "path", method=Local(eta=0.5))
    np.testing.assert_allclose(gossip.theta, local.theta, atol=1e-6)
    assert not gossip.bits.any()
    assert not gossip.disagreement.any()


def test_gossip_brings_nodes_together() -> None:
    X, y = blobs(200, 8)
    together = omkl.simulate((X, y), "complete", method=Gossip(eta=0.5, gamma=0.9, quantizer=None))
    apart = omkl.simulate((X, y), "complete", method=Local(eta=0.5))
    assert together.disagreement[0, -1] < 0.2 * apart.disagreement[0, -1]
    earlier = omkl.simulate((X[:-1], y[:-1]), "complete", method=Local(eta=0.5)).theta[:, 0]
    spread = ((earlier - earlier.mean(axis=0)) ** 2).sum(axis=(1, 2, 3))
    assert apart.disagreement[0, -1] == pytest.approx(np.sqrt(spread.mean()), rel=1e-5)
    np.testing.assert_allclose(apart.weights.sum(axis=-1), 1, rtol=1e-5)


def test_save_and_load(tmp_path: Path) -> None:
    X, y = blobs(30, 4)
    result = omkl.simulate((X, y), "ring", method=Gossip(eta=0.5), seeds=2, seed=4, record_every=3)
    loaded = omkl.load(result.save(tmp_path / "run"))
    for name in ("seeds", "rounds", "loss", "accuracy", "disagreement", "bits", "link_bits", "weights", "theta"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(result, name))
        assert getattr(loaded, name).dtype == getattr(result, name).dtype
    assert loaded.config == json.loads(json.dumps(result.config))
    assert loaded.config["method"]["quantizer"] == {"name": "qsgd", "bits": 3, "rescale": False, "block": None}
    assert loaded.config["seed"] == 4
    assert loaded.config["versions"]["jax"] == jax.__version__
    np.testing.assert_array_equal(loaded.model(5, 2).predict(X[0]), result.model(5, 2).predict(X[0]))


def test_save_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    X, y = blobs(10, 3)
    result = omkl.simulate((X, y), "ring", method=Local(), seeds=2)
    loaded = omkl.load(result.save(tmp_path))
    assert (tmp_path / "metrics.jsonl").exists()
    np.testing.assert_array_equal(loaded.loss, result.loss)
    np.testing.assert_array_equal(loaded.weights, result.weights)


def test_curves_in_parquet_are_refused_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    omkl.simulate(blobs(10, 3), "ring", method=Local()).save(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(omkl.MissingExtraError, match=r"pip install 'omkl\[results\]'"):
        omkl.load(tmp_path)


def test_a_model_survives_its_file(tmp_path: Path) -> None:
    data = load("banana")
    result = omkl.simulate("banana", "ring", 20, Gossip(eta=1, gamma=0.5, quantizer="nearest"))
    model = result.model(node=3)
    model.save(tmp_path / "m.npz")
    loaded = omkl.load_model(tmp_path / "m.npz")
    np.testing.assert_array_equal(loaded.decision_function(data.X), model.decision_function(data.X))
    assert (loaded.predict(data.X) == data.y).mean() > 0.75
    assert set(np.unique(loaded.predict(data.X))) == {-1, 1}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"topology": "paht"}, "did you mean 'path'"),
        ({"method": "gosip"}, "did you mean 'gossip'"),
        ({"weights": "metropolys"}, "did you mean 'metropolis'"),
        ({"data": "bananas"}, "did you mean 'banana'"),
        ({"nodes": 0}, "nodes is 0"),
        ({"nodes": 6000}, "6000"),
        ({"seeds": 0}, "seeds is 0"),
        ({"seeds": 2.5}, "seeds is 2.5"),
        ({"seeds": True}, "seeds is True"),
        ({"seed": 2**63}, "seeds are 64-bit"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"shuffle": False}, "shuffle is False"),
        ({"method": Gossip}, r"pass Gossip\(\)"),
        ({"record_every": 0}, "record_every is 0"),
        ({"record_every": 266}, "record_every is 266; the stream has 265 rounds"),
        ({"method": Gossip(loss="softmax")}, "label -1"),
        ({"topology": np.ones((3, 3)) / 3, "nodes": 4}, "4"),
    ],
)
def test_bad_input_is_refused_before_work(change: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "run", lambda *args: pytest.fail("computation was started"))
    settings: dict[str, Any] = {"data": "banana", "topology": "path", "nodes": 20} | change
    with pytest.raises(InputError, match=text):
        omkl.simulate(**settings)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["X", "y"])
def test_non_finite_data_is_refused(bad: float, where: str) -> None:
    X, y = blobs(10, 3)
    y = y.astype(float)
    (X if where == "X" else y)[4, 1] = bad
    with pytest.raises(InputError, match=rf"{where}.*(nan|inf).*4, 1|4, 1.*{where}"):
        omkl.simulate((X, y), "path")


def test_labels_of_the_wrong_shape_are_refused() -> None:
    X, y = blobs(10, 3)
    with pytest.raises(InputError, match="y has shape"):
        omkl.simulate((X, np.stack([y, y], axis=-1)), "path")


def test_a_bad_label_is_named_by_its_row() -> None:
    X, y = blobs(10, 3)
    table, labels = X.reshape(-1, 5), y.reshape(-1).copy()
    labels[7] = 0
    with pytest.raises(InputError, match=r"label 0 at index \(7,\)"):
        omkl.simulate((table, labels), "path", nodes=3)


def test_divergence_is_reported_not_returned() -> None:
    X, y = blobs(200, 4)
    with pytest.raises(omkl.DivergedError, match=r"loss is (nan|inf) at round \d+ of seed 0; .* lower gamma or eta"):
        omkl.simulate((X, y), "ring", method=Gossip(eta=1e30, regularization=1e3, loss="squared"))


def test_inputs_far_beyond_the_bandwidths_warn() -> None:
    X, y = blobs(10, 3)
    with pytest.warns(UserWarning, match="standardize the inputs"):
        omkl.simulate((1000 * X, y), "path", method=omkl.paper())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        omkl.simulate((X, y), "path", method=omkl.paper())


def test_a_saved_result_is_not_replaced_by_accident(tmp_path: Path) -> None:
    result, other = (omkl.simulate(blobs(5, 3), "path", method=omkl.paper(), seed=seed) for seed in (0, 1))
    result.save(tmp_path)
    with pytest.raises(InputError, match=r"holds a result already; it is kept; .* overwrite=True"):
        other.save(tmp_path)
    assert omkl.load(tmp_path).config["seed"] == 0
    assert omkl.load(other.save(tmp_path, overwrite=True)).config["seed"] == 1


@pytest.mark.parametrize("damage", ["torn", "json", "other"])
def test_damaged_files_are_refused(damage: str, tmp_path: Path) -> None:
    result = omkl.simulate(blobs(5, 3), "path", method=omkl.paper())
    result.save(tmp_path)
    result.model().save(tmp_path / "m.npz")
    for name in ("final.npz", "m.npz"):
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[: len(whole) // 2] if damage == "torn" else whole)
    if damage == "json":
        (tmp_path / "run.json").write_text("[1")
        np.savez(tmp_path / "m.npz", header=np.array("[]"))
    if damage == "other":
        (tmp_path / "final.npz").unlink()
        np.save(tmp_path / "m.npy", np.zeros(3))
        (tmp_path / "m.npy").rename(tmp_path / "m.npz")
    with pytest.raises(InputError, match="is damaged"):
        omkl.load(tmp_path)
    with pytest.raises(InputError, match="is not an omkl model"):
        omkl.load_model(tmp_path / "m.npz")


def test_a_graph_of_ones_own_is_recorded() -> None:
    graph = nx.cycle_graph(4)
    config = omkl.simulate(blobs(3, 4), graph, method=omkl.paper()).config
    assert config["topology"]["edges"] == [[0, 1], [0, 3], [1, 2], [2, 3]]
    assert config["topology"]["weights"] == "metropolis"


def test_a_seed_outside_the_run_is_refused() -> None:
    X, y = blobs(5, 3)
    result = omkl.simulate((X, y), "path", method=omkl.paper(), seeds=2, seed=7)
    with pytest.raises(InputError, match=r"seed is 0; this run has seeds 7 \.\.\. 8"):
        result.model(seed=0)
    with pytest.raises(InputError, match=r"node is 3; this run has nodes 0 \.\.\. 2"):
        result.model(node=3)
    with pytest.raises(InputError, match=r"this model takes \(n, 5\)"):
        result.model().predict(np.zeros((2, 4)))
    with pytest.raises(InputError, match="non-finite value in row 1"):
        result.model().predict(np.array([[0.0] * 5, [np.nan] * 5]))


def test_a_table_is_dealt_out_and_a_stream_taken_as_it_is() -> None:
    stream, _ = as_stream("banana", 20, 1)
    dealt = omkl.simulate("banana", "path", 20, omkl.paper(), shuffle=1)
    taken = omkl.simulate((stream.X, stream.y), "path", method=omkl.paper())
    np.testing.assert_array_equal(dealt.loss, taken.loss)


def test_bare_import_is_light() -> None:
    code = "import sys, omkl; print([m for m in ('jax', 'networkx', 'scipy', 'matplotlib') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_cases_in_one_pass_equal_cases_apart() -> None:
    X, y = blobs(60, 5)
    cases: dict[str, tuple[Method, str]] = {
        "ring": (Gossip(eta=0.5, gamma=0.3), "ring"),
        "path": (Gossip(eta=0.5, gamma=0.3, quantizer="nearest"), "path"),
        "one kernel": (omkl.Choco(eta=0.5, gamma=0.3), "ring"),
        "complete": (omkl.Complete(eta=0.5), "complete"),
        "alone": (Local(eta=0.5), "ring"),
    }
    together = omkl.compare((X, y), cases, seeds=2)
    assert list(together) == list(cases)
    for name, (method, graph) in cases.items():
        apart = omkl.simulate((X, y), graph, method=method, seeds=2)
        np.testing.assert_allclose(together[name].loss, apart.loss, atol=2e-4)
        np.testing.assert_array_equal(together[name].frequencies, apart.frequencies)
        assert_same_but_for_flips(together[name].bits, apart.bits)
        assert together[name].config == apart.config


def test_cases_that_cannot_share_a_pass_run_in_several_on_the_same_samples_and_seeds() -> None:
    X, y = blobs(30, 4)
    base = {"eta": 0.5, "gamma": 0.3}
    marks = omkl.Landmarks(rank=8, rows=20)
    cases: dict[str, tuple[Method, str]] = {
        "first": (Gossip(kernels=omkl.gaussian(1), **base), "ring"),
        "fewer features": (Gossip(features=10, **base), "path"),
        "long": (Gossip(**base), "ring"),
        "orthogonal": (Gossip(orthogonal=True, **base), "ring"),
        "another kernel": (omkl.Choco(kernels=omkl.gaussian(3), **base), "ring"),
        "landmarks": (Gossip(basis=marks, **base), "ring"),
        "landmarks, one width": (Gossip(basis=marks, kernels=omkl.gaussian(1), **base), "ring"),
    }
    told: list[tuple[int, int]] = []
    together = omkl.compare((X, y), cases, seeds=2, progress=lambda *now: told.append(now))
    assert list(together) == list(cases)
    assert told == sorted(told)
    assert told[-1] == (30, 30)
    for name, (method, graph) in cases.items():
        apart = omkl.simulate((X, y), graph, method=method, seeds=2)
        np.testing.assert_allclose(together[name].loss, apart.loss, atol=2e-4)
        assert together[name].config == apart.config


def test_the_default_is_compared_with_the_paper_and_with_nodes_alone() -> None:
    cases = {name: (name, "ring") for name in ("recommended", "paper", "alone")}
    results = omkl.compare("banana", cases, nodes=20, rounds=40, seeds=2)
    assert [row["case"] for row in results.rows()] == list(cases)
    losses = [row["loss"] for row in results.rows()]
    assert losses[0] < losses[2] < losses[1]
    assert all(row["difference_half"] > 0 for row in results.rows()[1:])


def test_the_first_case_is_watched_whatever_passes_there_are() -> None:
    seen: list[Any] = []

    class Eyes:
        def begin(self, run: Begun) -> Plan:
            seen.append(run.config["label"])
            return Plan(nodes=(0,), every=1)

        def see(self, look: Any) -> None:
            seen.append(look.rounds)

    cases = {"few": (Gossip(features=5), "path"), "many": (Gossip(features=8), "path")}
    omkl.compare(blobs(5, 3), cases, watch=Eyes())
    assert seen[0].startswith("paper, features=5")
    assert len(seen) > 1


def test_nodes_that_drift_apart_are_warned_of() -> None:
    method = Gossip(kernels=omkl.gaussian(1), eta=1.0, gamma=0.5, momentum=0.8, quantizer=Nearest(2.5))
    with pytest.warns(UserWarning, match=r'disagreement grew .* below 0\.5, or "auto"$') as told:
        omkl.simulate("banana", nodes=20, method=method, rounds=100)
    assert told[0].filename == __file__
    for calm in (method.replace(gamma="auto"), omkl.paper(), Local(eta=1.0)):
        omkl.simulate("banana", nodes=20, method=calm, rounds=100)  # a warning would be an error


def test_cases_of_different_losses_are_refused() -> None:
    cases = {"a": (Gossip(), "path"), "b": (Gossip(loss="squared"), "path")}
    with pytest.raises(InputError, match=r"losses .* cannot be subtracted; give all cases one loss"):
        omkl.compare(blobs(5, 3), cases)


@pytest.mark.parametrize("cases", [{}, [Gossip()], {"a": Gossip()}])
def test_odd_cases_are_refused(cases: Any) -> None:
    with pytest.raises(InputError, match="named pairs of a method and a topology"):
        omkl.compare(blobs(5, 3), cases)


def test_pooled_loss_scores_every_model_on_every_sample() -> None:
    X, y = blobs(40, 4)
    result = omkl.simulate((X, y), "ring", method=Local(eta=0.5), pooled=True, seeds=2)
    assert result.pooled_loss is not None
    for seed in (0, 1):
        before = omkl.simulate((X[:-1], y[:-1]), "ring", method=Local(eta=0.5), seed=seed)
        losses = [
            np.log1p(np.exp(-y[-1] * before.model(node=node).decision_function(X[-1])[:, 0])) for node in range(4)
        ]
        assert result.pooled_loss[seed, -1] == pytest.approx(np.mean(losses), rel=1e-5)


def test_pooled_loss_survives_its_file(tmp_path: Path) -> None:
    result = omkl.simulate(blobs(10, 3), "ring", method=omkl.paper(), pooled=True)
    np.testing.assert_array_equal(omkl.load(result.save(tmp_path)).pooled_loss, result.pooled_loss)


def test_complete_wants_the_complete_graph() -> None:
    with pytest.raises(InputError, match="4 edges between 5 nodes; Complete needs all of them"):
        omkl.simulate(blobs(5, 5), "path", method="complete")


def test_a_set_brings_its_loss() -> None:
    pytest.importorskip("sklearn")
    ten = omkl.simulate("digits10", "ring", 20, method=omkl.paper())
    assert ten.config["method"]["loss"] == {"name": "softmax", "classes": 10}
    assert ten.theta.shape[3] == 10
    own = omkl.simulate("digits", "ring", 20, omkl.Gossip(loss="squared"))
    assert own.config["method"]["loss"]["name"] == "squared"
    with pytest.raises(InputError, match="logistic loss takes labels -1 and \\+1"):
        omkl.simulate("digits10", "ring", 20, omkl.Gossip(loss="logistic"))


def test_a_set_brings_its_graph(rng: np.random.Generator) -> None:
    graph = topology.star(4)
    streamed = Data(rng.normal(size=(5, 4, 2)).astype(np.float32), np.ones((5, 4), np.float32), "logistic", graph)
    own, given = (omkl.simulate(streamed, graph, method=omkl.paper()) for graph in (None, "ring"))
    assert own.config["topology"]["edges"] == graph.edges.tolist()
    assert given.config["topology"] == "ring"
    table = omkl.simulate((streamed.X, streamed.y), method=omkl.paper())
    assert table.config["topology"] == "path"


def test_files_and_folders_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "model.npz").write_bytes(b"")
    with pytest.raises(
        InputError, match=r"model\.npz holds no run\.json; .* for the file of a model take omkl\.load_model"
    ):
        omkl.load(tmp_path / "model.npz")
    with pytest.raises(InputError, match=r"is a folder; .* of a saved run take omkl\.load\(folder\)\.model\(node=0\)"):
        omkl.load_model(tmp_path)
