import re
from typing import Any

import numpy as np
import pytest

from omkl.data import Stream, abrupt, gradual, recurring, relabeled, switched
from omkl.errors import InputError


def constant(value: float, rounds: int = 12, nodes: int = 3) -> Stream:
    """A stream whose labels tell the source, and whose inputs the round and node."""
    X = np.arange(rounds * nodes, dtype=np.float32).reshape(rounds, nodes, 1)
    return Stream(X, np.full((rounds, nodes), value, np.float32))


A, B, C = constant(0), constant(1), constant(2)


def test_abrupt() -> None:
    assert abrupt([A, B, C]).y[:, 0].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    drifting = abrupt([A, B], at=[5])
    assert (drifting.y == np.repeat([0, 1], [5, 7])[:, None]).all()
    np.testing.assert_array_equal(drifting.X, A.X)


def test_recurring() -> None:
    assert recurring([A, B], 2).y[:, 1].tolist() == [0, 0, 1, 1] * 3
    assert recurring([A, B, C], 1).y[:, 2].tolist() == [0, 1, 2] * 4


def test_gradual() -> None:
    long = [constant(k, 3000, 4) for k in (0, 1)]
    drifting = gradual(long, 1000, 2000)
    assert (drifting.y[:1000] == 0).all()
    assert (drifting.y[2000:] == 1).all()
    shares = drifting.y[1000:2000].reshape(4, 250 * 4).mean(axis=1)
    np.testing.assert_allclose(shares, [0.125, 0.375, 0.625, 0.875], atol=0.05)
    np.testing.assert_array_equal(gradual(long, 1000, 2000).y, drifting.y)
    assert (gradual(long, 1000, 2000, seed=1).y != drifting.y).any()
    assert not np.array_equal(drifting.y[:, 0], drifting.y[:, 1])
    assert (gradual([A, B], 5, 5).y == abrupt([A, B], [5]).y).all()


def test_switched_takes_what_is_at_the_same_place() -> None:
    other = Stream(-A.X, B.y)
    which = np.zeros((12, 3), int)
    which[7, 2] = 1
    mixed = switched([A, other], which)
    assert mixed.X[7, 2, 0] == -A.X[7, 2, 0]
    assert (mixed.X < 0).sum() == mixed.y.sum() == 1


def test_labels_are_swapped_at_once() -> None:
    stream = A._replace(y=np.arange(36, dtype=np.float32).reshape(12, 3) % 3)
    swapped = relabeled(stream, {0: 2, 2: 0})
    np.testing.assert_array_equal(swapped.y, 2 - stream.y)
    assert stream.y[0, 0] == 0  # and the given one stays


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: abrupt([A, constant(1, 11)]), "they must be one or more of one shape"),
        (lambda: abrupt([]), "they must be one or more of one shape"),
        (lambda: abrupt([A, B], [3, 4]), "at is [3, 4]; 2 sources change 1 times"),
        (lambda: abrupt([A, B, C], [5, 4]), "at is [5, 4]"),
        (lambda: gradual([A], 1, 2), "1 sources"),
        (lambda: gradual([A, B], 3, 2), "from 3 to 2"),
        (lambda: recurring([A, B], 0), "period is 0"),
    ],
)
def test_refusals(make: Any, text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        make()
