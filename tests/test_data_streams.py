from typing import Any

import numpy as np
import pytest

from omkl import data, notes
from omkl.data.partition import permutation
from omkl.errors import InputError

X = np.arange(12.0).reshape(6, 2)
y = np.array([0, 1, 0, 1, 0, 1])


def test_deal_gives_row_tJ_plus_j_to_node_j_at_round_t() -> None:
    table = np.arange(23.0)[:, None]
    stream = data.deal(table, table[:, 0], nodes=5, shuffle=None)
    assert (stream.X.shape, stream.y.shape, stream.X.dtype.name) == ((4, 5, 1), (4, 5), "float32")
    np.testing.assert_array_equal(stream.y, np.arange(20).reshape(4, 5))


def test_deal_keeps_rows_and_labels_together() -> None:
    stream = data.deal(np.arange(40.0).reshape(20, 2), np.arange(20) * 4 + 1, nodes=3)
    np.testing.assert_array_equal(stream.X.sum(axis=-1), stream.y)
    assert len(np.unique(stream.y)) == 18


@pytest.mark.parametrize("seed", range(20))
def test_sorted_input_comes_out_mixed(seed: int) -> None:
    n = 2000
    order = permutation(n, seed)
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    # Rank correlation with the input and between neighbors: standard deviation n**-0.5, bound at four of them.
    assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < 4 * n**-0.5
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 4 * n**-0.5
    # Runs of two equal classes: mean n/2 + 1, standard deviation sqrt(n)/2.
    classes = order < n // 2
    assert abs(1 + np.sum(classes[1:] != classes[:-1]) - (n / 2 + 1)) < 2 * n**0.5


def test_every_node_sees_both_classes_of_sorted_data() -> None:
    labels = np.repeat([-1.0, 1.0], 500)
    share = (data.deal(labels[:, None], labels, nodes=10).y == 1).mean(axis=0)
    assert np.all(abs(share - 0.5) < 0.2)


def test_the_order_depends_on_size_and_seed_alone() -> None:
    np.testing.assert_array_equal(permutation(6, 3), permutation(6, 3))
    assert not np.array_equal(permutation(100, 3), permutation(100, 4))
    one, two = data.deal(X, y, 2, shuffle=3), data.deal(X * 0, X[:, 0], 3, shuffle=3)
    np.testing.assert_array_equal(one.X[..., 0].ravel(), two.y.ravel())


def test_the_order_is_the_same_forever() -> None:
    assert permutation(10, 0).tolist() == [0, 6, 4, 9, 1, 8, 3, 5, 2, 7]


def test_all_orders_are_equally_likely() -> None:
    counts = np.zeros((4, 4))
    for seed in range(4000):
        counts[permutation(4, seed), np.arange(4)] += 1
    # Binomial(4000, 1/4): standard deviation 27.4, bound at 4.5 of them.
    assert np.all(abs(counts - 1000) < 124)


def test_one_node_gets_everything() -> None:
    assert data.deal(X, y, 1).X.shape == (6, 1, 2)


def test_several_targets_are_dealt_too() -> None:
    assert data.deal(X, X, nodes=3).y.shape == (2, 3, 2)


@pytest.mark.parametrize("node", [["b", "a", "b", "b", "a", "b"], [7, 3, 7, 7, 3, 7]])
def test_by_node_keeps_each_order_and_cuts_to_the_shortest(node: list[Any]) -> None:
    stream = data.by_node(X, np.arange(6), node)
    np.testing.assert_array_equal(stream.y, [[1, 0], [4, 2]])
    np.testing.assert_array_equal(stream.X[..., 0], [[2, 0], [8, 4]])


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ([1, 2], r"node has shape \(2,\)"),
        ([1, 2, np.nan, 1, 2, 1], "node is missing at row 2"),
        (["a", "b", "", "a", "b", "a"], "node is missing at row 2"),
        (np.array(["a", None, "b", "a", "b", "a"], dtype=object), "node is missing at row 1"),
    ],
)
def test_by_node_refuses_bad_nodes(node: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        data.by_node(X, y, node)


def test_a_name_brings_its_loss() -> None:
    pytest.importorskip("sklearn")
    stream, loss = data.as_stream("digits", nodes=10)
    assert (stream.X.shape, stream.y.shape, loss) == ((179, 10, 64), (179, 10), "logistic")
    again, loss = data.as_stream(data.load("digits"), nodes=10)
    np.testing.assert_array_equal(again.X, stream.X)
    assert loss == "logistic"


def test_a_table_has_no_loss_and_becomes_float32() -> None:
    stream, loss = data.as_stream((X.tolist(), y.tolist()), nodes=2, shuffle=None)
    assert (stream.X.dtype.name, stream.y.dtype.name, loss) == ("float32", "float32", None)
    np.testing.assert_array_equal(stream.X, X.reshape(3, 2, 2))


def test_a_stream_passes_through() -> None:
    given = data.Stream(np.ones((3, 2, 4), np.float32), np.ones((3, 2), np.float32))
    for nodes in (None, 2):
        stream, _ = data.as_stream(given, nodes)
        np.testing.assert_array_equal(stream.X, given.X)
    stream, _ = data.as_stream((given.X, np.ones((3, 2, 5))))
    assert stream.y.shape == (3, 2, 5)


BAD: list[tuple[Any, Any, str]] = [
    ("banan", 2, "unknown data set 'banan'"),
    (X, 2, r"data is a ndarray; .* pass data=\(X, y\)"),
    ((X,), 2, "data is a tuple"),
    ((X, y), None, "nodes is not given"),
    ((X, y), 0, "nodes is 0; .* from 1 to the 6 rows"),
    ((X, y), 7, "nodes is 7; .* from 1 to the 6 rows"),
    ((X, y), 2.5, "nodes is 2.5; it must be a whole number"),
    ((X, y[:5]), 2, r"y has shape \(5,\) and X \(6, 2\)"),
    ((X, y.reshape(3, 2, 1)), 2, r"y has shape \(3, 2, 1\)"),
    ((X[:, 0], y), 2, r"X has shape \(6,\); it must be \(n, d\)"),
    ((X.reshape(3, 2, 2), y), 2, r"y has shape \(6,\) and X \(3, 2, 2\)"),
    ((X.reshape(3, 2, 2), np.ones((3, 2, 1, 1))), 2, r"y has shape \(3, 2, 1, 1\)"),
    ((X.reshape(3, 2, 2), y.reshape(3, 2)), 3, "nodes is 3; these rows belong to 2 nodes; drop --nodes"),
    ((X.reshape(3, 2, 1, 2), y), 2, r"X has shape \(3, 2, 1, 2\)"),
    ((np.empty((0, 2)), np.empty(0)), 1, r"X is empty, of shape \(0, 2\)"),
    ((np.empty((6, 0)), y), 1, r"X is empty, of shape \(6, 0\)"),
    ((np.where(X == 5, np.nan, X), y), 2, r"X holds nan at index \(2, 1\)"),
    ((np.where(X == 5, -np.inf, X), y), 2, r"X holds -inf at index \(2, 1\)"),
    ((np.where(X == 5, 1e39, X), y), 2, r"X holds 1e\+39 at index \(2, 1\); values must fit float32"),
    ((X, np.where(y == 1, np.nan, 0)), 2, r"y holds nan at index \(1,\)"),
    ((X, ["a"] * 6), 2, "y has type <U1; it must hold real numbers"),
    ((X * 1j, y), 2, "X has type complex128"),
    (([[1, 2], [3]], [0, 1]), 2, "X is not an array of numbers"),
    ((np.array([["a", 1]] * 6, dtype=object), y), 2, "X is not an array of numbers"),
]


@pytest.mark.parametrize(("source", "nodes", "message"), BAD)
def test_bad_data_is_refused(source: Any, nodes: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        data.as_stream(source, nodes)


@pytest.mark.parametrize(
    "source",
    [
        (X.reshape(3, 2, 2), y.reshape(3, 2)),
        data.Table(X, y, np.array(list("ababab"))),
        data.Table(X, y, is_ordered=True),
    ],
)
def test_an_order_for_rows_that_keep_theirs_is_refused(source: Any) -> None:
    with pytest.raises(InputError, match="shuffle is 1; these rows keep the order that they have"):
        data.as_stream(source, 2, shuffle=1)
    one, other = (data.as_stream(source, 2, shuffle=order)[0] for order in (0, None))
    np.testing.assert_array_equal(one.X, other.X)


@pytest.mark.parametrize(
    ("rows", "nodes", "says"),
    [
        (10, 6, ["6 nodes in 1 round: 4 of 10 rows are left out, and nothing that is learned in the only round"]),
        (6, 6, ["6 nodes in 1 round: nothing that is learned"]),
        (23, 6, ["6 nodes in 3 rounds: 5 of 23 rows are left out"]),
        (400, 6, []),
    ],
)
def test_rows_that_are_in_no_round_are_told(
    rows: int, nodes: int, says: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    notes.forget()
    data.deal(np.zeros((rows, 1)), np.zeros(rows), nodes)
    assert len(caplog.messages) == len(says)
    assert all(part in told for part, told in zip(says, caplog.messages, strict=True))


def test_deal_refuses_a_stream() -> None:
    with pytest.raises(InputError, match=r"a table must be \(n, d\)"):
        data.deal(X.reshape(3, 2, 2), y, 2)
