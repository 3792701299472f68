from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omkl
from omkl import QSGD, Gossip, Local, Nearest, Pace, features, gaussian, noise
from omkl.simulator import engine, rounds, scans
from omkl.simulator.measures import metrics, pooled_metrics
from omkl.simulator.networks import network
from omkl.simulator.numbers import split_all
from omkl.simulator.scans import HERE
from omkl.topology import build

ROUNDS, NODES = 50, 5


@pytest.fixture(autouse=True)
def by_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "is_small", lambda *_: False)
    monkeypatch.setattr(engine, "compiled_loops", lambda: None)


def blobs(count: int, nodes: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(count, nodes, d)).astype(np.float32)
    return X, np.where(np.sin(2 * X[..., 0]) + 0.3 * rng.normal(size=(count, nodes)) > 0, 1, -1)


@given(
    count=st.integers(1, 400),
    every=st.integers(1, 450),
    most=st.integers(1, 450),
    steady=st.none() | st.integers(0, 450),
)
def test_chunks_are_all_rounds_once(count: int, every: int, most: int, steady: int | None) -> None:
    parts = rounds.chunks(count, every, most, steady)
    assert [t for one in parts for t in range(one.first, one.last)] == list(range(count))
    assert all(0 < one.last - one.first <= most for one in parts)
    blocks = [one for one in parts if one.in_blocks]
    assert len({one.last - one.first for one in blocks}) <= 1
    assert all(steady is not None and one.first >= steady for one in blocks)
    measured: list[int] = []
    for one in parts:
        if one.in_blocks:  # as many whole groups, or none
            assert (one.first % every == one.last % every == 0) or one.first // every == one.last // every
            measured += range(one.first + every - 1, one.last, every)[: (one.last - one.first) // every]
        else:
            ends = [one.first + end for end in rounds.segments(one, every)]
            assert ends == sorted(set(ends))
            assert ends[-1] == one.last
            measured += [end - 1 for end in ends if end % every == 0]
    assert measured == list(range(every - 1, count, every))


@pytest.mark.parametrize(
    ("count", "every", "most", "steady", "lengths"),
    [
        (50, 1, 50, None, [50]),
        (50, 1, 7, None, [7] * 7 + [1]),
        (53, 1, 10, None, [9] * 5 + [8]),  # about as long as each other: all are filled up to the longest
        (50, 20, 45, None, [40, 10]),
        (50, 20, 8, None, [8, 8, 4, 8, 8, 4, 8, 2]),
        (53, 1, 30, 0, [20, 20, 13]),  # two blocks of a multiple of ten, and the rest
        (53, 1, 30, 5, [5, 20, 20, 8]),
        (50, 20, 9, 0, [9, 9, 2, 9, 9, 2, 9, 1]),
    ],
)
def test_chunks_by_hand(count: int, every: int, most: int, steady: int | None, lengths: list[int]) -> None:
    assert [one.last - one.first for one in rounds.chunks(count, every, most, steady)] == lengths


def test_most_rounds_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "CHUNK_BYTES", 4 * 10 * 2 * 3 * 20 * 7 + 1)
    monkeypatch.setattr(rounds, "device_bytes", lambda: rounds.DEVICE_SHARE * (4 * 10 * 2 * 3 * 20 * 70 - 1))
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
    assert rounds.most_rounds(10, 4, *shape) == 262


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
    assert told == [one.last for one in rounds.chunks(ROUNDS, every, most)]
    assert thin.rounds.tolist() == list(range(every - 1, ROUNDS, every))
    for name in ("loss", "accuracy", "disagreement", "weights"):
        whole, part = (getattr(result, name) for result in (full, thin))
        np.testing.assert_allclose(part, whole[:, every - 1 :: every], atol=1e-6)
    np.testing.assert_allclose(thin.theta, full.theta, atol=1e-6)


@pytest.fixture
def problem() -> Any:
    """Return cases that share a pass."""
    method = Gossip(kernels=gaussian(1, 3), features=4, eta=0.5, gamma=0.3, quantizer=QSGD(bits=4))
    paced = method.replace(pace=Pace(4, until=3, least=1), quantizer=Nearest(2.0))
    cases = [
        (method, network(build("ring", NODES))),
        (Local(kernels=gaussian(1), features=4), network(build("path", NODES))),
        (paced, network(build("path", NODES))),
    ]
    key = noise.fold(noise.key([0, 1], "quantizer"), np.arange(NODES)[:, None, None])
    V = np.stack([features.draw(method.bank.kernels, 4, 3, seed) for seed in (0, 1)])
    methods, networks = zip(*cases, strict=True)
    skeletons, numbers = split_all(methods)
    return methods, skeletons, rounds.Given(features.Features(V), key, networks, numbers)


def samples(methods: Any, first: int, count: int) -> rounds.Samples:
    X, y = blobs(60, NODES, 3)
    starts = tuple(scans._starts(method, 60) for method in methods)
    whole = rounds.Samples(np.arange(60, dtype=np.uint32), starts, X, y[..., None].astype(np.float32))
    return jax.tree.map(lambda part: part[first : first + count], whole)  # type: ignore[no-any-return]


def outcome(
    problem: Any, count: int, group: int, in_blocks: bool = False, measure: Any = metrics, first: int = 30
) -> Any:
    """Return the states and records of a chunk, compiled anew; there is one round of gossip with each of its samples.

    What runs is filled up with rounds that are not taken.
    """
    methods, skeletons, given = problem
    program = rounds.Program(HERE, skeletons, measure, group if in_blocks else int(group == 1), in_blocks)
    more = 0 if in_blocks else 5
    ends = [*range(group, count + 1, group)] if count >= group else [count]
    span = rounds.Span(np.int32(len(ends)), np.array([*ends, *[0] * more], np.int32), np.uint32(group))
    start = scans._start(methods, (NODES, 2), 1, None)
    running, records = jax.jit(partial(rounds._placed, program))(
        start, span, samples(methods, first, count + more), given
    )
    return running, jax.tree.map(lambda part: part[: count // group], records)


@pytest.mark.parametrize(("count", "group", "together"), [(8, 1, 4), (7, 1, 1), (18, 3, 3)])
def test_rounds_measured_at_once(
    problem: Any, count: int, group: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_by_one = outcome(problem, count, group)
    monkeypatch.setattr(rounds, "UNROLL", 4)
    assert rounds._together(rounds.Program(HERE, (), metrics, group, True), one_by_one[0], count) == together
    running, records = outcome(problem, count, group, True)
    assert records[0].loss.shape == (count // group, 2)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), (running, records), one_by_one)


def test_other_measures_of_several_rounds(problem: Any) -> None:
    one_by_one, at_once = (outcome(problem, 4, 2, blocks, pooled_metrics) for blocks in (False, True))
    assert one_by_one[1][0].pooled_loss.shape == (2, 2)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), at_once, one_by_one)


def test_rounds_that_are_not_measured(problem: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, _ = outcome(problem, 5, 1)
    monkeypatch.setattr(rounds, "UNROLL", 3)  # and two more
    running, records = outcome(problem, 5, 6, True)
    assert records == []
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), running.states, measured.states)
    np.testing.assert_array_equal(running.sent[2] > 0, True)  # to be told with the rest of the group


def test_blocks_equal_segments_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an accelerator: gossip that fades at first, then blocks, and what is left over."""
    method = Gossip(eta=0.5, gamma=0.3, quantizer=None, pace=Pace(2, until=5, least=1))
    run = partial(omkl.simulate, blobs(ROUNDS, NODES, 3), "ring", method=method, record_every=2)
    segments = run()
    monkeypatch.setattr(rounds, "UNROLL", 4)
    made = rounds.chunks(ROUNDS, 2, 1000, 20)
    assert [one.in_blocks for one in made] == [False, True, False]
    monkeypatch.setattr(scans, "chunks", lambda *_: made)
    blocks = run()
    for name in ("loss", "disagreement", "weights", "theta", "bits"):
        np.testing.assert_allclose(getattr(blocks, name), getattr(segments, name), atol=1e-6)


def test_how_many_rounds_are_measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def most(count: int, group: int, held: int = 1000) -> int:
        program = rounds.Program(HERE, (), metrics, group, True)
        return rounds._together(program, rounds.Running([(np.zeros((2, held // 8), np.float32),)], []), count)

    monkeypatch.setattr(rounds, "TOGETHER_BYTES", 50_000)
    assert most(40, 1) == 10
    assert most(60, 3) == 10
    assert most(42, 1) == 7
    assert most(14, 1) == 7
    assert most(41, 1) == 1
    assert most(40, 1, 10_000) == 5
    assert most(42, 1, 10_000) == 3
    assert most(40, 1, 50_008) == 1


def test_when_each_sample_has_one_round_of_gossip() -> None:
    starts = [scans._starts(omkl.recommended(basis=omkl.Landmarks(rank)), 500) for rank in (30, 120)]
    for one in starts:
        assert one is not None
        last = scans._steady([one, None], 500)
        assert 0 < last < 500
        assert one[1][last - 1] - one[0][last - 1] != 1
        assert (one[1][last:] - one[0][last:] == 1).all()
    assert scans._steady([None], 500) == 0
    assert scans._steady([scans._starts(omkl.frugal(), 500)], 500) > 450
