import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import omkl
from omkl import QSGD, Choco, Complete, Faults, Gossip, Local, Nearest, Sign, gaussian, noise, quantizers, wire
from omkl.learners import SGD
from omkl.simulator import engine, lanes, rounds
from omkl.simulator.networks import Dense, Hubs, Lists, network
from omkl.simulator.waves import LIMIT
from omkl.topology import Schedule, build
from tests.conftest import frames

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
    run: Any = lanes.run
    monkeypatch.setattr(lanes, "LEAST_WORK", 0)

    def noted(*args: Any) -> Any:
        taken.append(args)
        return run(*args)

    monkeypatch.setattr(lanes, "run", noted)
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


def assert_same(results: Both, atol: float = 1e-5, flipped: float = 0.0) -> None:
    """Compare all that is recorded, and the models but for the share of them that a flipped level may have moved."""
    for name, here in results.engine.items():
        there = results.fused[name]
        np.testing.assert_array_equal(there.rounds, here.rounds)
        np.testing.assert_allclose(there.loss, here.loss, atol=atol)
        np.testing.assert_allclose(there.weights, here.weights, atol=atol)
        np.testing.assert_allclose(there.disagreement, here.disagreement, rtol=1e-3, atol=atol)
        # A score is decided by a sign: an output that is zero but for rounding may fall on either side.
        np.testing.assert_allclose(there.accuracy, here.accuracy, atol=1.01 / len(here.theta))
        apart, size = (np.linalg.norm(one, axis=(-2, -1)) for one in (there.theta - here.theta, here.theta))
        assert (apart > 1e-5 * size + 1e-9).mean() <= flipped
        assert_same_bits(there, here, flipped)


def assert_same_bits(there: omkl.Result, here: omkl.Result, flipped: float) -> None:
    """Compare what was sent: the same to the bit, but for levels that flipped."""
    for ours, theirs in ((there.bits, here.bits), (there.link_bits, here.link_bits)):
        np.testing.assert_allclose(ours, theirs, rtol=0.05 if flipped else 0)
        assert ours.mean() == pytest.approx(theirs.mean(), rel=5e-4)


@pytest.mark.parametrize(("eta", "loss"), [(0.01, "logistic"), (0.5, "logistic"), (0.5, "squared"), (0.5, "softmax")])
def test_exact_gossip_is_the_engines(both: Callable[..., Both], loss: str, eta: float) -> None:
    method = Gossip(quantizer=None, eta=eta, gamma=0.3, loss=loss)
    assert_same(both(blobs(150, 6, loss=loss), {"": (method, "ring")}))


@pytest.mark.parametrize(
    ("quantizer", "loss", "atol"),
    [
        (QSGD(bits=3), "logistic", 1e-5),
        (QSGD(bits=3), "softmax", 3e-5),
        (QSGD(bits=3), "squared", 5e-4),
        (QSGD(bits=2, rescale=True), "logistic", 1e-5),
        (Nearest(), "logistic", 2e-5),
    ],
    ids=str,
)
def test_losses_are_the_engines_at_the_letters_steps(
    both: Callable[..., Both], quantizer: Any, loss: str, atol: float
) -> None:
    # Over 300 rounds some level of most models flips; only the squared loss, up to 5 here, is much moved by that.
    method = Gossip(quantizer=quantizer, loss=loss)
    assert_same(both(blobs(300, 6, loss=loss), {"": (method, "path")}), atol, flipped=1)


@pytest.mark.parametrize(
    ("quantizer", "loss"),
    [
        (QSGD(bits=1, rescale=True), "logistic"),
        (QSGD(bits=8), "softmax"),
        (Nearest(), "softmax"),
        (Nearest(step=0.5), "squared"),
    ],
    ids=str,
)
def test_levels_are_the_engines(both: Callable[..., Both], quantizer: Any, loss: str) -> None:
    # Large steps, few rounds: another dither, level or step would move every model, a flipped level moves a few.
    method = Gossip(quantizer=quantizer, eta=0.3, gamma=0.3, loss=loss)
    assert_same(both(blobs(6, 6, loss=loss), {"": (method, "path")}), atol=1e-4, flipped=0.05)


@pytest.mark.parametrize(
    ("topology", "nodes", "kind", "quantizer"),
    [
        ("path", 2, Dense, QSGD(bits=3)),
        ("complete", 7, Dense, None),
        ("ring", 200, Lists, QSGD(bits=3)),
        ("star", 300, Hubs, None),
        ("star", 300, Hubs, QSGD(bits=3)),
    ],
)
def test_networks(both: Callable[..., Both], topology: str, nodes: int, kind: type, quantizer: Any) -> None:
    assert isinstance(network(build(topology, nodes)), kind)
    method = Gossip(quantizer=quantizer, gamma=0.5)
    # A level that flips at a hub moves all nodes, of that kernel and seed: few rounds, and one such in five.
    rounds, flipped = (10, 0.2) if topology == "star" else (30, 0.1)
    assert_same(both(blobs(rounds, nodes), {"": (method, topology)}), flipped=0.0 if quantizer is None else flipped)


@pytest.mark.parametrize("quantizer", [QSGD(bits=3), QSGD(bits=5), Nearest()], ids=str)
@pytest.mark.parametrize(("rows", "n"), [(1, 40), (3, 40), (30, 40), (5, 300), (2, 512)])
def test_frames_are_counted_as_the_wire_counts(quantizer: Any, rows: int, n: int) -> None:
    message, bits, steps = frames(quantizer, rows, n)
    prices, body = lanes._prices(quantizer, rows, n), fused._body.py_func  # type: ignore[attr-defined]
    found = prices.frame + np.array([body(m, steps, bits, prices) for m in range(steps.shape[1])])
    expected = wire.message_bytes(message, quantizer)
    assert (found != expected).mean() <= 0.002
    np.testing.assert_allclose(found, expected, atol=1)  # a sum may fall on either side of a whole byte


@pytest.mark.parametrize("quantizer", [QSGD(bits=3), QSGD(bits=1, rescale=True), Nearest(), Nearest(1)], ids=str)
def test_the_curve_goes_through_the_costs(quantizer: Any) -> None:
    prices = lanes._prices(quantizer, 3, 40)
    curve = fused._curve.py_func(np.arange(len(prices.levels), dtype=np.float32), prices.curve)  # type: ignore[attr-defined]
    np.testing.assert_allclose(curve, prices.levels, atol=2e-4)
    assert prices.few


def test_nodes_without_neighbors() -> None:
    # No topology has them, but a matrix may: links of weight zero are none.
    links = lanes._links(Dense(jnp.zeros((3, 3))), 3)
    assert links.start.tolist() == [0, 1, 2, 3]
    assert links.ids.tolist() == [[0, 0], [1, 1], [2, 2]]
    assert not links.weights.any()
    assert not links.degrees.any()


@pytest.mark.parametrize("rounds", [1, 30])
def test_one_node(both: Callable[..., Both], rounds: int) -> None:
    assert_same(both(blobs(rounds, 1), {"": (Gossip(eta=0.5), nx.empty_graph(1))}))


def test_zero_inputs_and_no_regularization(both: Callable[..., Both]) -> None:
    X, y = blobs(40, 4)
    assert_same(both((np.zeros_like(X), y), {"": (Gossip(regularization=0, eta=0.5), "ring")}), flipped=0.05)


@pytest.mark.parametrize("d", [1, 23, 57, 70])
def test_inputs_of_any_length(both: Callable[..., Both], d: int) -> None:
    assert_same(both(blobs(21, 3, d), {"": (Gossip(quantizer=None, eta=0.5, features=7), "path")}))


def test_large_angles(both: Callable[..., Both]) -> None:
    # Their reduction must not be rearranged. Angles of 2000 have last digits of 1e-4.
    X, y = blobs(20, 3, 1)
    assert 1000 < rounds.reach(500 * X, np.full((1, 1, 1, 1), 1.0, np.float32)) < LIMIT
    with pytest.warns(UserWarning, match="bandwidth"):
        assert_same(both((500 * X, y), {"": (Gossip(quantizer=None, eta=0.5), "path")}))


@pytest.mark.parametrize(("every", "angles"), [(1, 1), (7, 1), (7, 5), (4, 6), (50, 3), (20, 1000)])
def test_records_whatever_the_chunks(
    both: Callable[..., Both], monkeypatch: pytest.MonkeyPatch, every: int, angles: int
) -> None:
    monkeypatch.setattr(lanes, "ANGLE_BYTES", angles * 4 * 5 * 3 * 20 * 16)
    results = both(blobs(50, 5), {"": (Gossip(quantizer=None, eta=0.5), "ring")}, record_every=every)
    assert results.fused[""].rounds.tolist() == list(range(every - 1, 50, every))
    assert_same(results)


def test_cases_of_several_banks(both: Callable[..., Both]) -> None:
    cases = {
        "three": (Gossip(quantizer=None, weight_rate=2.0), "ring"),
        "one": (Gossip(kernels=gaussian(1), quantizer=None), "ring"),
        "choco": (Choco(quantizer=None, gamma=0.5), "path"),
    }
    assert_same(both(blobs(60, 5), cases))


def test_sums_over_many_nodes_keep_their_digits(calls: list[Any]) -> None:
    X, y = blobs(2, 30_000, 1)
    result = omkl.simulate((X, y), "ring", method=Gossip(kernels=omkl.gaussian(1, 2), features=1), seeds=8)
    assert len(calls) == 1
    np.testing.assert_allclose(result.loss[:, 0], math.log(2), rtol=2e-7)
    np.testing.assert_allclose(result.weights.sum(axis=-1), 1, rtol=2e-7)


def test_progress_and_threads(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    X, y = blobs(40, 5)
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(lanes, "ANGLE_BYTES", 20 * 4 * 5 * 3 * 20 * 16)
    cases = {"a": (Gossip(), "ring"), "b": (Gossip(), "path")}
    one = omkl.compare((X, y), cases, seeds=16, progress=lambda *now: told.append(now))
    assert told == [(10, 40), (20, 40), (30, 40), (40, 40)]
    monkeypatch.setattr(engine, "_threads", lambda: 2)
    two = omkl.compare((X, y), cases, seeds=16)
    assert len(calls) == 2 + 4
    np.testing.assert_allclose(one["b"].theta, two["b"].theta, atol=1e-4)  # products of other shapes


def test_divergence_names_its_round(monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> None:
    def message() -> str:
        with pytest.raises(omkl.DivergedError) as raised:
            omkl.simulate(blobs(60, 4), "ring", method=Gossip(eta=1e6, loss="squared"), seeds=SEEDS)
        return str(raised.value)

    loops = message()
    assert len(calls) == 1
    monkeypatch.setattr(lanes, "suits", lambda *args: False)
    assert loops.split(";")[0].split("at round")[1] == message().split(";")[0].split("at round")[1]


def test_a_stopped_run_returns_nothing(calls: list[Any]) -> None:
    class Interrupt(Exception):
        pass

    def interrupt(done: int, rounds: int) -> None:
        raise Interrupt

    with pytest.raises(Interrupt):
        omkl.simulate(blobs(60, 4), "ring", method=omkl.letter(), seeds=SEEDS, progress=interrupt)
    *args, _, stop = calls[0]
    run: Any = lanes.run
    stop.set()
    assert run(*args, lambda *now: pytest.fail("a chunk was run"), stop) is None


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
        (Gossip(quantizer=Nearest(), features=257), {}),
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
        omkl.simulate((X * 1e5, y), "ring", method=omkl.letter(), seeds=SEEDS)
    monkeypatch.setattr(lanes, "LEAST_WORK", 4 * 4 * SEEDS * 3 * 40 + 1)
    omkl.simulate((X, y), "ring", method=omkl.letter(), seeds=SEEDS)
    assert not calls
    monkeypatch.setattr(lanes, "LEAST_WORK", 4 * 4 * SEEDS * 3 * 40)
    omkl.simulate((X, y), "ring", method=omkl.letter(), seeds=SEEDS)
    assert len(calls) == 1


def test_without_numba_the_engine_serves(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "loads", lambda: False)
    omkl.simulate(blobs(4, 4), "ring", method=omkl.letter(), seeds=SEEDS)
    assert not calls


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
