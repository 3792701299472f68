from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omkl
from omkl import QSGD, Gossip, Local, features, gaussian, noise
from omkl.simulator import rounds
from omkl.simulator.engine import HERE
from omkl.simulator.measures import metrics, pooled_metrics
from omkl.simulator.networks import network
from omkl.topology import build

ROUNDS, NODES = 50, 5


def blobs(count: int, nodes: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(count, nodes, d)).astype(np.float32)
    return X, np.where(np.sin(2 * X[..., 0]) + 0.3 * rng.normal(size=(count, nodes)) > 0, 1, -1)


@given(count=st.integers(1, 400), every=st.integers(1, 450), most=st.integers(1, 450))
def test_chunks_are_all_rounds_once(count: int, every: int, most: int) -> None:
    parts = list(rounds.chunks(count, every, most))
    assert [t for first, last, *_ in parts for t in range(first, last)] == list(range(count))
    assert all(0 < last - first <= most and (last - first) % group == 0 for first, last, group, _ in parts)
    measured = [end for first, last, group, yes in parts if yes for end in range(first + group - 1, last, group)]
    assert measured == list(range(every - 1, count, every))


@pytest.mark.parametrize(
    ("count", "every", "most", "lengths"),
    [
        (50, 1, 50, [50]),
        (50, 1, 7, [5] * 10),  # of one length, a little shorter than might be
        (53, 1, 10, [10, 10, 10, 10, 10, 3]),  # a prime
        (50, 20, 45, [40, 10]),
        (50, 20, 8, [8, 8, 4, 8, 8, 4, 8, 2]),
    ],
)
def test_chunks_by_hand(count: int, every: int, most: int, lengths: list[int]) -> None:
    assert [last - first for first, last, *_ in rounds.chunks(count, every, most)] == lengths


def test_most_rounds_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "CHUNK_BYTES", 4 * 10 * 2 * 3 * 20 * 7 + 1)
    monkeypatch.setattr(rounds, "DEVICE_CHUNK_BYTES", 4 * 10 * 2 * 3 * 20 * 70 - 1)
    monkeypatch.setattr(rounds, "INPUT_BYTES", 4 * 10 * 4 * 5)
    shape = (2, 3, 20)
    assert rounds.most_rounds(10, 4, *shape) == 5  # whatever is made of them
    assert rounds.most_rounds(10, 4, 200, 3, 20) == 5
    assert rounds.most_rounds(10, 1, *shape) == 20
    assert rounds.most_rounds(1000, 4, *shape) == 1
    assert rounds.most_rounds(10, 5, *shape) == 7
    assert rounds.most_rounds(10, 500, *shape) == 7
    assert rounds.most_rounds(1000, 5, *shape) == 1
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert rounds.most_rounds(10, 5, *shape) == 69
    assert rounds.most_rounds(10, 4, *shape) == 5


@pytest.mark.parametrize("d", [3, 5])
@pytest.mark.parametrize(("most", "every"), [(50, 2), (50, 7), (50, 50), (6, 3), (6, 7), (6, 18), (1, 10), (8, 49)])
def test_recorded_rounds_are_those_of_a_full_run(
    most: int, every: int, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = partial(omkl.simulate, blobs(ROUNDS, NODES, d), "ring", method=Gossip(eta=0.5, gamma=0.3, quantizer=None))
    full = run()
    monkeypatch.setattr(rounds, "CHUNK_BYTES", most * 4 * NODES * 3 * 20)
    monkeypatch.setattr(rounds, "INPUT_BYTES", most * 4 * NODES * 3)
    told: list[int] = []
    thin = run(record_every=every, progress=lambda done, count: told.append(done))
    assert told == [last for _, last, *_ in rounds.chunks(ROUNDS, every, most)]
    assert thin.rounds.tolist() == list(range(every - 1, ROUNDS, every))
    for name in ("loss", "accuracy", "disagreement", "weights"):
        whole, part = (getattr(result, name) for result in (full, thin))
        np.testing.assert_allclose(part, whole[:, every - 1 :: every], atol=1e-6)
    np.testing.assert_allclose(thin.theta, full.theta, atol=1e-6)


@pytest.fixture
def problem() -> Any:
    """Return cases that share a pass."""
    method = Gossip(kernels=gaussian(1, 3), features=4, eta=0.5, gamma=0.3, quantizer=QSGD(bits=4))
    cases = [
        (method, network(build("ring", NODES))),
        (Local(kernels=gaussian(1), features=4), network(build("path", NODES))),
    ]
    key = noise.fold(noise.key([0, 1], "quantizer"), np.arange(NODES)[:, None, None])
    V = np.stack([features.draw(method.bank.kernels, 4, 3, seed) for seed in (0, 1)])
    methods, networks = zip(*cases, strict=True)
    return methods, rounds.Given(features.Features(V), key, networks)


def outcome(problem: Any, count: int, group: int, measured: bool = True, measure: Any = metrics) -> Any:
    """Return the states and records of a chunk, compiled anew."""
    methods, shared = problem
    X, y = blobs(count, NODES, 3)
    program = rounds.Program(HERE, methods, measure, True, group, measured)
    start = [method.init(jnp, (NODES, 2), 1) for method in methods]
    times = np.arange(count, dtype=np.uint32)
    return jax.jit(partial(rounds._placed, program))(start, times, X, y[..., None].astype(np.float32), shared)


@pytest.mark.parametrize(("count", "group", "together"), [(8, 1, 4), (7, 1, 1), (18, 3, 3)])
def test_rounds_measured_at_once(
    problem: Any, count: int, group: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one = outcome(problem, count, group)
    at_once: list[int] = []
    measured = rounds._measured

    def noted(program: Any, seen: list[Any]) -> list[Any]:
        at_once.append(len(seen))
        return measured(program, seen)

    monkeypatch.setattr(rounds, "UNROLL", 4)
    monkeypatch.setattr(rounds, "_measured", noted)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    states, records = outcome(problem, count, group)
    assert set(at_once) == {together}
    assert records[0].loss.shape == (count // group, 2)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), (states, records), one_by_one)


def test_other_measures_of_several_rounds(problem: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    one_by_one = outcome(problem, 4, 2, measure=pooled_metrics)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert one_by_one[1][0].pooled_loss.shape == (2, 2)
    at_once = outcome(problem, 4, 2, measure=pooled_metrics)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), at_once, one_by_one)


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_rounds_that_are_not_measured(problem: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, _ = outcome(problem, 5, 1)
    monkeypatch.setattr(rounds, "UNROLL", 3)  # and two more
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    states, records = outcome(problem, 5, 5, measured=False)
    assert records == []
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), states, measured)


def test_how_many_rounds_are_measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def most(count: int, group: int, held: int = 1000) -> int:
        program = rounds.Program(HERE, (), metrics, True, group, True)
        return rounds._together(program, [np.zeros((2, held // 8), np.float32)], count)

    monkeypatch.setattr(rounds, "TOGETHER_BYTES", 50_000)
    assert most(40, 1) == 1  # on a CPU
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert most(40, 1) == 10
    assert most(60, 3) == 10
    assert most(42, 1) == 7
    assert most(14, 1) == 7
    assert most(41, 1) == 1
    assert most(40, 1, 10_000) == 5
    assert most(42, 1, 10_000) == 3
    assert most(40, 1, 50_008) == 1
