import re
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omkl
from omkl.data import (
    IID,
    PARTITIONS,
    Column,
    Dirichlet,
    Partition,
    Position,
    Quantity,
    Shards,
    Stream,
    as_stream,
    deal,
    partition,
)
from omkl.errors import InputError

ALL: list[Partition] = [IID(), Dirichlet(0.1), Dirichlet(50), Shards(2), Quantity(0.5), Column(1), Position()]


def table(n: int, classes: int, seed: int = 0) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * [3, 1]
    X[:, 0] = np.arange(n)  # a row is known by its first input
    return X, rng.integers(0, classes, n).astype(float)


@pytest.mark.parametrize("split", ALL, ids=repr)
@given(n=st.integers(12, 60), nodes=st.integers(1, 6), classes=st.integers(1, 4), seed=st.integers(0, 99))
def test_no_row_has_two_owners(split: Partition, n: int, nodes: int, classes: int, seed: int) -> None:
    X, y = table(n, classes, seed)
    own = split.rows(X, y, nodes)
    rows = np.concatenate(own)
    assert len(own) == nodes
    assert len(np.unique(rows)) == len(rows)
    assert set(rows.tolist()) <= set(range(n))
    if isinstance(split, Quantity):
        assert len(rows) == n
        assert min(map(len, own)) >= 1
    elif not isinstance(split, Shards):
        assert [len(some) for some in own] == [n // nodes] * nodes
    else:
        assert {len(some) for some in own} == {n // (nodes * split.each) * split.each}


@pytest.mark.parametrize("split", ALL, ids=repr)
def test_the_stream_has_the_rows_of_its_nodes(split: Partition) -> None:
    X, y = table(50, 3)
    own = split.rows(X, y, 4)
    stream, again = (deal(X, y, 4, shuffle=5, partition=split) for _ in range(2))
    assert len(stream.X) == max(map(len, own))
    for node, some in enumerate(own):
        assert set(stream.X[:, node, 0].astype(int).tolist()) == set(some.tolist())
        np.testing.assert_array_equal(stream.y[:, node], y[stream.X[:, node, 0].astype(int)])
    np.testing.assert_array_equal(stream.X, again.X)
    kept = deal(X, y, 4, shuffle=None, partition=split).X[: min(map(len, own)), :, 0]
    assert (np.diff(kept, axis=0) > 0).all()  # in the order of the table


def test_a_node_with_few_rows_sees_them_again() -> None:
    own = [np.array([4]), np.array([2, 0, 1])]
    assert partition.scheduled(own, None).tolist() == [[4, 0], [4, 1], [4, 2]]


def test_less_alpha_is_more_skew() -> None:
    X, y = table(4000, 10)

    def largest(split: Partition) -> float:
        own = split.rows(X, y, 20)
        return float(np.mean([np.bincount(y[some].astype(int)).max() / len(some) for some in own]))

    skew = [largest(Dirichlet(alpha)) for alpha in (0.01, 0.1, 1, 100)]
    assert sorted(skew, reverse=True) == skew
    assert skew[0] > 0.6
    assert skew[-1] < largest(IID()) + 0.05
    assert largest(Shards(1)) > 0.8


def test_seeds_differ_and_lead_to_the_same_rows_ever_after() -> None:
    X, y = table(40, 2)
    for kind in (IID, Dirichlet, Shards, Quantity):
        first, other = (kind(seed=seed).rows(X, y, 4) for seed in (0, 1))
        assert [some.tolist() for some in first] != [some.tolist() for some in other]
    assert [some.tolist() for some in IID().rows(X[:6], y[:6], 3)] == [[4, 0], [5, 2], [3, 1]]
    drawn = Dirichlet(0.1).rows(X[:9], np.arange(9) % 3, 3)
    assert [some.tolist() for some in drawn] == [[3, 1, 7], [0, 6, 4], [2, 8, 5]]


def test_gamma_variates_have_their_moments() -> None:
    shapes = np.repeat([0.05, 0.5, 1, 7.5], 20_000)
    drawn = np.exp(partition._log_gammas(shapes, 3)).reshape(4, -1)
    np.testing.assert_allclose(drawn.mean(axis=1), [0.05, 0.5, 1, 7.5], rtol=0.06)
    np.testing.assert_allclose(drawn.var(axis=1), [0.05, 0.5, 1, 7.5], rtol=0.12)


def test_slices_are_in_order() -> None:
    rng = np.random.default_rng(0)
    t = rng.normal(size=300)
    X = np.stack([t + 0.01 * rng.normal(size=300), 2 * t], axis=1)
    for split, along in ((Column(1), X[:, 1]), (Position(), t)):
        own = split.rows(X, np.ones(300), 5)
        means = [along[some].mean() for some in own]
        assert means == sorted(means)
    ends = [(X[some, 0].min(), X[some, 0].max()) for some in Column(0).rows(X, t, 5)]
    assert all(a[1] <= b[0] for a, b in pairwise(ends))


def test_shards_of_sorted_labels_by_hand() -> None:
    y = np.array([1.0, 0, 1, 0])
    own = Shards(1).rows(np.zeros((4, 1)), y, 2)
    assert sorted(sorted(some.tolist()) for some in own) == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Dirichlet(0), "alpha is 0; it must be positive"),
        (lambda: Quantity(-1), "alpha is -1; it must be positive"),
        (lambda: Shards(0), "each is 0"),
        (lambda: IID(seed=-1), "seed is -1"),
        (lambda: Column(2).rows(np.zeros((4, 2)), np.ones(4), 2), "column is 2; X has columns 0 ... 1"),
        (lambda: Shards(3).rows(np.zeros((4, 2)), np.ones(4), 2), "each is 3; 2 nodes have 2 rows each"),
        (lambda: Dirichlet().rows(np.zeros((2000, 1)), np.arange(2000), 2), "with 2000 values; label skew"),
        (lambda: as_stream((np.zeros((3, 2, 1)), np.ones((3, 2))), partition="iid"), "partition of a stream"),
        (lambda: deal(np.zeros((3, 1)), np.ones(3), 2, partition="dirichlets"), "did you mean 'dirichlet'"),
    ],
)
def test_refusals(make: Any, text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        make()


def test_names_stand_for_their_defaults() -> None:
    X, y = table(60, 3)
    for name, kind in PARTITIONS.items():
        assert kind.name == name
        named, made = (deal(X, y, 3, partition=one) for one in (name, kind()))
        np.testing.assert_array_equal(named.X, made.X)


def test_simulate_partitions_a_table() -> None:
    X, y = table(200, 2)
    X, y = X / X.std(axis=0), 2 * y - 1
    split = Dirichlet(0.1)
    result = omkl.simulate((X, y), "ring", 5, method=omkl.paper(), partition=split)
    taken = omkl.simulate(deal(X, y, 5, partition=split), "ring", method=omkl.paper())
    np.testing.assert_array_equal(result.loss, taken.loss)
    assert result.config["partition"] == {"name": "dirichlet", "alpha": 0.1, "seed": 0}
    assert isinstance(deal(X, y, 5, partition=split), Stream)
