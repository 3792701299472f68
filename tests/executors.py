"""Runs by one executor of the simulator, whatever would suit them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import omkl
from omkl.simulator import engine

ARRAYS, LOOPS, SCANS = "eager", "loops", "scans"


@contextmanager
def by(name: str) -> Iterator[list[str]]:
    """Let runs take this executor, where it can; the list says which modules ran."""
    from omkl.simulator import eager, loops, scans

    ran: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "is_small", lambda *_: name == ARRAYS)
        if name == SCANS:
            patch.setattr(engine, "compiled_loops", lambda: None)
        for module in (eager, loops, scans):
            patch.setattr(module, "run", _noted(module.run, module.__name__.rpartition(".")[2], ran))
        yield ran


def _noted(run: Any, name: str, ran: list[str]) -> Any:
    def noted(*given: Any) -> Any:
        ran.append(name)
        return run(*given)

    return noted


def compare(name: str, data: Any, cases: Any, **options: Any) -> dict[str, omkl.Result]:
    """Return the results of cases by an executor, which all of them must suit."""
    with by(name) as ran:
        found = omkl.compare(data, cases, **options)
    assert ran == [name]
    return found


def blobs(rounds: int, nodes: int, d: int = 5, loss: str = "logistic") -> tuple[np.ndarray, np.ndarray]:
    """Return samples ``(T, J, d)`` and targets that suit a loss."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rounds, nodes, d)).astype(np.float32)
    margin = np.sin(2 * X[..., 0]) + X[..., -1] + 0.3 * rng.normal(size=(rounds, nodes))
    if loss == "softmax":
        return X, np.clip(np.floor(margin + 1.5), 0, 2)
    return X, margin if loss in ("squared", "huber") else np.sign(margin)


# Landmarks: a direction in which the sample hardly spreads is stretched to unit length, and its rounding with it.
ROUNDED, ROUNDED_LANDMARKS = 5e-6, 2e-4
MOVED = 4e-3  # by how much all levels that flip in a few rounds move a loss, of many


def assert_same(there: omkl.Result, here: omkl.Result, flipped: float = 0.0) -> None:
    """Compare all that is recorded, and the models but for the share of them that a flipped level may have moved."""
    rounded = ROUNDED if here.landmarks is None else ROUNDED_LANDMARKS
    atol = max(rounded, flipped * MOVED)
    np.testing.assert_array_equal(there.rounds, here.rounds)
    np.testing.assert_allclose(there.loss, here.loss, atol=atol)
    np.testing.assert_allclose(there.weights, here.weights, atol=atol)
    np.testing.assert_allclose(there.disagreement, here.disagreement, rtol=max(1e-3, flipped / 10), atol=atol)
    # A score is decided by a sign: an output that is zero but for rounding may fall on either side.
    np.testing.assert_allclose(there.accuracy, here.accuracy, atol=1.01 / len(here.theta))
    apart, size = (np.linalg.norm(one, axis=(-2, -1)) for one in (there.theta - here.theta, here.theta))
    assert (apart > rounded * size + 1e-8).mean() <= flipped
    for ours, theirs in ((there.bits, here.bits), (there.link_bits, here.link_bits)):
        np.testing.assert_allclose(ours, theirs, rtol=0.05)
        assert ours.mean() == pytest.approx(theirs.mean(), rel=1e-3)
