from collections.abc import Callable
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pytest

import omkl
from omkl import QSGD, Choco, Complete, Faults, Gossip, Local, Nearest, Sign, gaussian, noise, quantizers
from omkl.learners import SGD
from omkl.simulator import engine, lanes
from omkl.simulator.networks import Dense, Edges, Lists, network
from omkl.topology import Schedule, build

numba = pytest.importorskip("numba")

from omkl.simulator import fused  # noqa: E402

SEEDS = 11  # no multiple of the lanes


class Both(NamedTuple):
    """Results by the engine's own rounds and by the compiled loops."""

    engine: dict[str, omkl.Result]
    fused: dict[str, omkl.Result]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_threads", lambda: 1)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let runs of any size take the compiled loops, and note those that do."""
    taken: list[Any] = []
    run = lanes.run
    monkeypatch.setattr(lanes, "LEAST_WORK", 0)
    monkeypatch.setattr(lanes, "run", lambda *args: (taken.append(args), run(*args))[1])
    return taken


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> Callable[..., Both]:
    def run(data: Any, cases: Any, **options: Any) -> Both:
        options = {"seeds": SEEDS, **options}
        loops = omkl.compare(data, cases, **options)
        assert len(calls) == len(cases)
        with monkeypatch.context() as patch:
            patch.setattr(lanes, "suits", lambda *args: False)
            return Both(omkl.compare(data, cases, **options), loops)

    return run


def blobs(rounds: int, nodes: int, d: int = 5, loss: str = "logistic") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rounds, nodes, d)).astype(np.float32)
    margin = np.sin(2 * X[..., 0]) + X[..., -1] + 0.3 * rng.normal(size=(rounds, nodes))
    labels = {"logistic": np.sign(margin), "squared": margin, "softmax": np.clip(np.floor(margin + 1.5), 0, 2)}
    return X, labels[loss]


def assert_same(results: Both, theta: float = 1e-5, rows: float = 1e-5) -> None:
    for name, here in results.engine.items():
        there = results.fused[name]
        assert there.theta.shape == here.theta.shape
        np.testing.assert_array_equal(there.rounds, here.rounds)
        np.testing.assert_allclose(there.loss, here.loss, atol=rows)
        np.testing.assert_allclose(there.weights, here.weights, atol=rows)
        np.testing.assert_allclose(there.disagreement, here.disagreement, rtol=1e-3, atol=rows)
        # A score is decided by a sign: an output that is zero but for rounding may fall on either side.
        np.testing.assert_allclose(there.accuracy, here.accuracy, atol=1.01 / here.theta.shape[0])
        assert np.linalg.norm(there.theta - here.theta) <= theta * np.linalg.norm(here.theta)


@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax"])
@pytest.mark.parametrize("eta", [0.01, 0.5])
def test_exact_gossip_is_the_engines(both: Callable[..., Both], loss: str, eta: float) -> None:
    method = Gossip(quantizer=None, eta=eta, gamma=0.3, loss=loss)
    assert_same(both(blobs(150, 6, loss=loss), {"": (method, "ring")}))


@pytest.mark.parametrize("quantizer", [QSGD(bits=3), QSGD(bits=2, rescale=True), Nearest(), Nearest(step=0.5)], ids=str)
@pytest.mark.parametrize("loss", ["logistic", "squared", "softmax"])
def test_quantized_gossip_is_the_engines(both: Callable[..., Both], quantizer: Any, loss: str) -> None:
    # At the letter's steps a flipped level moves the loss by less than rounding does.
    method = Gossip(quantizer=quantizer, loss=loss)
    assert_same(both(blobs(300, 6, loss=loss), {"": (method, "path")}), theta=1e-3)


@pytest.mark.parametrize("quantizer", [QSGD(bits=1, rescale=True), Nearest()], ids=str)
def test_at_large_steps_levels_are_the_engines(both: Callable[..., Both], quantizer: Any) -> None:
    # Few rounds, so that no level flips: another dither, level or step anywhere moves theta by far more than this.
    method = Gossip(quantizer=quantizer, eta=1, gamma=0.3)
    assert_same(both(blobs(10, 6), {"": (method, "path")}), theta=1e-5)


@pytest.mark.parametrize(
    ("topology", "nodes", "kind"),
    [("path", 2, Dense), ("complete", 7, Dense), ("ring", 200, Lists), ("star", 300, Edges)],
)
@pytest.mark.parametrize("quantizer", [None, QSGD(bits=3)], ids=["exact", "qsgd"])
def test_networks(both: Callable[..., Both], topology: str, nodes: int, kind: type, quantizer: Any) -> None:
    assert isinstance(network(build(topology, nodes)), kind)
    method = Gossip(quantizer=quantizer, gamma=0.5)
    assert_same(both(blobs(30, nodes), {"": (method, topology)}), theta=1e-5 if quantizer is None else 1e-3)


def test_a_node_without_neighbors(both: Callable[..., Both]) -> None:
    graph = nx.path_graph(4)
    graph.add_node(4)
    assert_same(both(blobs(40, 5), {"": (Gossip(quantizer=None, gamma=0.5, eta=0.5), graph)}))


@pytest.mark.parametrize("rounds", [1, 30])
def test_one_node(both: Callable[..., Both], rounds: int) -> None:
    assert_same(both(blobs(rounds, 1), {"": (Gossip(eta=0.5), nx.empty_graph(1))}))


def test_zero_inputs_and_no_regularization(both: Callable[..., Both]) -> None:
    X, y = blobs(40, 4)
    assert_same(both((np.zeros_like(X), y), {"": (Gossip(regularization=0, eta=0.5), "ring")}), theta=1e-3)


@pytest.mark.parametrize("d", [1, 3, 4, 23, 63, 64, 70])
def test_inputs_of_any_length(both: Callable[..., Both], d: int) -> None:
    assert_same(both(blobs(21, 3, d), {"": (Gossip(quantizer=None, eta=0.5, features=7), "path")}), theta=2e-5)


def test_large_angles(both: Callable[..., Both]) -> None:
    # Their reduction must not be rearranged. Angles of 2000 have last digits of 1e-4.
    X, y = blobs(20, 3, 1)
    assert 1000 < lanes.reach(500 * X, np.full((1, 1, 1, 1), 1.0, np.float32)) < lanes.LIMIT
    with pytest.warns(UserWarning, match="bandwidth"):
        assert_same(both((500 * X, y), {"": (Gossip(quantizer=None, eta=0.5), "path")}), theta=1e-5)


@pytest.mark.parametrize(("every", "angles"), [(1, 1), (7, 1), (7, 5), (4, 6), (50, 3), (20, 1000)])
def test_records_whatever_the_chunks(
    both: Callable[..., Both], monkeypatch: pytest.MonkeyPatch, every: int, angles: int
) -> None:
    monkeypatch.setattr(lanes, "ANGLE_BYTES", angles * 4 * 5 * 3 * 20 * 16)
    results = both(blobs(50, 5), {"": (Gossip(quantizer=None, eta=0.5), "ring")}, record_every=every)
    assert results.fused[""].rounds.tolist() == list(range(every - 1, 50, every))
    assert_same(results)


def test_cases_of_several_banks(both: Callable[..., Both]) -> None:
    bank = {"kernels": gaussian(1, 3, 5), "quantizer": None}
    cases = {
        "three": (Gossip(**bank, weight_rate=2.0), "ring"),
        "one": (Gossip(kernels=gaussian(1), quantizer=None), "ring"),
        "choco": (Choco(quantizer=None, gamma=0.5), "path"),
    }
    assert_same(both(blobs(60, 5), cases))


def test_progress_and_threads(both: Callable[..., Both], monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    X, y = blobs(40, 5)
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(lanes, "ANGLE_BYTES", 20 * 4 * 5 * 3 * 20 * 16)
    cases = {"a": (Gossip(), "ring"), "b": (Gossip(), "path")}
    one = omkl.compare((X, y), cases, seeds=16, progress=lambda *now: told.append(now))
    assert told == [(10, 40), (20, 40), (30, 40), (40, 40)]
    monkeypatch.setattr(engine, "_threads", lambda: 2)
    two = omkl.compare((X, y), cases, seeds=16)
    assert len(calls) == 2 + 4
    np.testing.assert_array_equal(one["b"].theta, two["b"].theta)


def test_divergence_names_its_round(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    def message() -> str:
        with pytest.raises(omkl.DivergedError) as raised:
            omkl.simulate(blobs(60, 4), "ring", method=Gossip(eta=1e6, loss="squared"), seeds=SEEDS)
        return str(raised.value)

    loops = message()
    assert len(calls) == 1
    monkeypatch.setattr(lanes, "suits", lambda *args: False)
    assert loops.split(";")[0].split("at round")[1] == message().split(";")[0].split("at round")[1]


def test_a_stopped_run_returns_nothing(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupt(Exception):
        pass

    def interrupt(done: int, rounds: int) -> None:
        raise Interrupt

    with pytest.raises(Interrupt):
        omkl.simulate(blobs(60, 4), "ring", seeds=SEEDS, progress=interrupt)
    *args, passed, stop = calls[0]
    stop.set()
    assert lanes.run(*args, lambda *now: pytest.fail("a chunk was run"), stop) is None


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (Gossip(), {"faults": Faults(links=0.1)}),
        (Gossip(), {"pooled": True}),
        (Gossip(), {"seeds": 7}),
        (Gossip(), {"topology": Schedule(["ring", "path"])}),
        (Gossip(quantizer=QSGD(bits=3, block=8)), {}),
        (Gossip(quantizer=Nearest(block=8)), {}),
        (Gossip(quantizer=Sign()), {}),
        (Gossip(weigh_first=True), {}),
        (Gossip(learner=type("Mine", (SGD,), {})(0.1)), {}),
        (Choco(fresh=True), {}),
        (Local(), {}),
        (Complete(), {"topology": "complete"}),
    ],
)
def test_other_runs_keep_to_the_engine(calls: list[Any], method: Any, options: dict[str, Any]) -> None:
    omkl.simulate(blobs(4, 4), **{"topology": "ring", "method": method, "seeds": SEEDS, **options})
    assert not calls


def test_far_inputs_and_small_runs_keep_to_the_engine(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = blobs(4, 4)
    with pytest.warns(UserWarning, match="bandwidth"):
        omkl.simulate((X * 1e5, y), "ring", seeds=SEEDS)
    monkeypatch.setattr(lanes, "LEAST_WORK", 4 * 4 * SEEDS * 3 * 40 + 1)
    omkl.simulate((X, y), "ring", seeds=SEEDS)
    assert not calls
    monkeypatch.setattr(lanes, "LEAST_WORK", 4 * 4 * SEEDS * 3 * 40)
    omkl.simulate((X, y), "ring", seeds=SEEDS)
    assert len(calls) == 1


def test_without_numba_the_engine_serves(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes.importlib.util, "find_spec", lambda name: None)
    omkl.simulate(blobs(4, 4), "ring", seeds=SEEDS)
    assert not calls


@pytest.mark.parametrize("rows", [1, 2, 7])
@pytest.mark.parametrize("d", [1, 3, 4, 7, 23, 80])
def test_projections(rng: np.random.Generator, d: int, rows: int) -> None:
    X = rng.normal(size=(rows, d)).astype(np.float32)
    V = np.pad(rng.normal(size=(d, 96)).astype(np.float32), ((0, -d % 4), (0, 0)))
    angles = np.full((rows, 1, 2, 48), np.nan, np.float32)
    lanes._project(X, V, 16, angles)
    np.testing.assert_allclose(angles.reshape(rows, -1), X.astype(np.float64) @ V[:d], atol=1e-5)


def loop(function: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return a compiled function of a number as one of arrays, compiled as the loops are."""

    @numba.njit  # type: ignore[untyped-decorator]
    def along(x: Any, out: Any) -> None:
        for m in range(len(x)):
            out[m] = function(x[m])

    def call(x: np.ndarray) -> np.ndarray:
        out = np.empty_like(x)
        along(x, out)
        return out

    return call


def units(value: np.ndarray, exact: np.ndarray) -> float:
    """Return the largest distance in units of the last place."""
    return float((np.abs(value - exact) / np.spacing(exact.astype(np.float32))).max())


def test_exponentials(rng: np.random.Generator) -> None:
    exp = loop(fused._exp)
    x = np.concatenate([-rng.uniform(0, 87, 100_000), -(10.0 ** rng.uniform(-40, 0, 1000)), [-0.0, 0.0]])
    x = x.astype(np.float32)
    assert units(exp(x), np.exp(x.astype(np.float64))) <= 2
    assert (exp(np.array([-0.0, 0.0], np.float32)) == 1).all()
    assert (exp(np.array([-88, -200, -np.inf], np.float32)) < 2e-38).all()
    assert np.isnan(exp(np.array([np.nan], np.float32))).all()


def test_logarithms(rng: np.random.Generator) -> None:
    x = np.concatenate([rng.uniform(0, 1, 100_000), 10.0 ** rng.uniform(-37, 0, 1000), [1.0]]).astype(np.float32)
    log1p = loop(fused._log1p)
    assert units(log1p(x), np.log1p(x.astype(np.float64))) <= 3
    assert log1p(np.array([0.0], np.float32)) == 0
    assert np.isnan(log1p(np.array([np.nan], np.float32))).all()


def test_steps_are_rounded_as_quantizers_do(rng: np.random.Generator) -> None:
    ends = [0, 1e-45, 1e-38, 2**-60, np.nextafter(np.float32(2**-60), np.float32(0)), 2**60, 2.0**61, 3e38, np.inf]
    edges = np.outer(2.0 ** np.arange(-60, 60), [1, 1 + 2**-8, 1 + 2**-8 + 2**-23, 2 - 2**-8, 2 - 2**-23]).ravel()
    x = np.concatenate([ends, edges, 10 ** rng.uniform(-25, 25, 100_000)]).astype(np.float32)
    np.testing.assert_array_equal(loop(fused._round_up)(x), quantizers.round_up(x))


@pytest.mark.parametrize("t", [0, 1, 10**6])
def test_dither_is_that_of_noise(t: int) -> None:
    @numba.njit  # type: ignore[untyped-decorator]
    def write(low: Any, high: Any, t: Any, keys: Any, halves: Any) -> None:
        fused._dither(low, high, t, keys, halves)

    key = noise.key(list(range(16)), "quantizer")
    room = fused.scratch(3, 10, 16, 3)
    write(key.low[:, 0], key.high[:, 0], t, room.keys, room.halves)
    np.testing.assert_array_equal(np.moveaxis(room.uniforms, -1, 0), noise.dither(noise.fold(key, t), (3, 10)))


def test_links_are_the_networks() -> None:
    topology = build("star", 300)
    links = lanes._links(network(topology), 300)  # type: ignore[arg-type]
    matrix = np.zeros((300, 300), np.float32)
    np.add.at(matrix, (np.repeat(np.arange(300), np.diff(links.start))[:, None], links.ids), links.weights)
    expected = topology.matrix().astype(np.float32)
    np.testing.assert_array_equal(matrix * (1 - np.eye(300)), expected * (1 - np.eye(300)))
