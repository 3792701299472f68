from pathlib import Path

import numpy as np
import pytest

from omkl.data import Stream, as_stream
from omkl.features import Features, transform
from omkl.landmarks import Landmarks
from omkl.methods import Neighbors, Round, recommended
from omkl.simulator import simulate
from omkl.wire import HEADER_BYTES
from omkl_lab.paper.experiments import Store
from omkl_lab.paper.frontier import data_sent
from omkl_lab.paper.frontier.data_sent import WIDTHS, coarse, flooded, heard, learned, mean_bytes, samples_sent
from omkl_lab.paper.frontier.study import DATA, Study, alone

METHOD = alone(recommended(basis=Landmarks(rank=8, rows=30)))


def stream(rounds: int, nodes: int, rng: np.random.Generator) -> Stream:
    X = rng.normal(size=(rounds, nodes, 2)).astype(np.float32)
    return Stream(X, np.where(X[..., 0] * X[..., 1] > 0, 1, -1).astype(np.float32))


def arrived(t: int, nodes: int) -> list[set[tuple[int, int]]]:
    """What each node hears in a round: pairs of a node and a round."""
    new: list[set[tuple[int, int]]] = [set() for _ in range(nodes)]
    for source, first in heard(t, nodes):
        for node in range(nodes):
            if first[node] >= 0:
                new[node].add((int(source[node]), int(first[node])))
    return new


def test_who_has_heard_what_on_a_path_of_three() -> None:
    assert arrived(0, 3) == [set(), set(), set()]
    assert arrived(1, 3) == [{(1, 0)}, {(0, 0), (2, 0)}, {(1, 0)}]
    # What the ends had in round 0 went on through the middle.
    assert arrived(2, 3) == [{(1, 1), (2, 0)}, {(0, 1), (2, 1)}, {(1, 1), (0, 0)}]


def test_bytes_on_a_path_of_three() -> None:
    # In the second round the one in the middle sends its own sample and one of each end; the ends pass on nothing.
    assert samples_sent(2, 3).tolist() == [[1, 1, 1], [1, 3, 1]]
    # Two inputs of 3 bits and a label are 7 bits, three of them 21: one byte and three, with a frame around.
    assert mean_bytes(2, 3, 2, 3) == pytest.approx(HEADER_BYTES + (5 * 1 + 3) / 6)
    assert mean_bytes(2, 1, 2, 3) == 0


@pytest.mark.parametrize("nodes", [2, 3, 6])
def test_each_sample_is_heard_once_and_sent_as_often_as_need_be(nodes: int) -> None:
    rounds = 12
    news = [arrived(t, nodes) for t in range(rounds)]
    for node in range(nodes):
        every = [pair for new in news for pair in new[node]]
        assert len(every) == len(set(every))
        assert set(every) == {(i, t) for i in range(nodes) if i != node for t in range(rounds - abs(i - node))}
        onward = [sum(1 for i, _ in new[node] if (node > 0 if i > node else node < nodes - 1)) for new in news]
        assert samples_sent(rounds, nodes)[:, node].tolist() == [1 + count for count in onward]


def test_levels_are_even_in_the_range_of_the_landmarks() -> None:
    made = Features(None, landmarks=np.array([[0.0, 5.0], [7.0, 5.0], [3.0, 5.0]], dtype=np.float32))
    X = np.array([[-1.0, 5.0], [3.4, 6.0], [3.6, 4.0], [9.0, 5.0]], dtype=np.float32)
    np.testing.assert_array_equal(coarse(X, made, 3), [[0, 5], [3, 5], [4, 5], [7, 5]])
    np.testing.assert_array_equal(coarse(X, made, 1), [[0, 5], [0, 5], [7, 5], [7, 5]])


def test_alone_it_is_the_learner_in_one_place(rng: np.random.Generator) -> None:
    given = stream(60, 1, rng)
    one_place = simulate(given, "path", 1, METHOD, seed=3)
    np.testing.assert_allclose(learned(METHOD, given, 3, (2, 8)), one_place.loss.mean(), rtol=1e-5)


def test_three_nodes_by_hand(rng: np.random.Generator) -> None:
    """Each node by itself, given what it has seen and heard one after the other."""
    given = stream(15, 3, rng)
    made = METHOD.bank.draw(2, 0, given.X)
    sent, total, nobody = coarse(given.X, made, 4), 0.0, Neighbors(np.zeros((1, 0), np.int64), np.zeros((1, 0)))
    orders = ((1, 2), (2, 0), (0, 1))
    for node in range(3):
        state = METHOD.init(np, (1,), 1, made.spectrum)
        for t in range(15):
            late = [(t - abs(i - node), i) for i in orders[node] if t >= abs(i - node)]
            for x, at in [*((sent[at], at) for at in late), (given.X[t, node], (t, node))]:
                sample = Round(transform(x[None], made), METHOD.objective.encode(given.y[at][None]), None)
                state, info = METHOD.step(state, sample, nobody)
            total += float(info.loss[0])
    assert learned(METHOD, given, 0, (4,)) == pytest.approx(total / 45, rel=1e-5)


def test_points_are_stored_and_are_means_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, told = as_stream("banana", 20, 0), list[tuple[str, int, int]]()
    monkeypatch.setattr(data_sent, "as_stream", lambda *a: (Stream(whole[0].X[:12], whole[0].y[:12]), whole[1]))
    study = Study(Store(tmp_path), "banana", 2, lambda *a: told.append(a))
    points = study.data_sent()
    assert [(p.family, p.what) for p in points] == [(DATA, what) for what in WIDTHS]
    runs = flooded("banana", alone(recommended()), 20, 0, range(2), lambda *a: None)
    assert [p.loss for p in points] == pytest.approx([runs[f"{what}:loss"].mean() for what in WIDTHS])
    assert [p.bytes for p in points] == [mean_bytes(12, 20, 2, bits) for bits in WIDTHS.values()]
    assert told[-1] == ("frontier-banana-data-0", 24, 24)
    monkeypatch.setattr(data_sent, "as_stream", None)
    assert study.data_sent() == points
