import io
from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize

from omkl import features
from omkl.algorithm import normalize
from omkl.errors import InputError
from omkl.features import Features, gaussian
from omkl.methods import Gossip, Local, Method
from omkl.topology import build
from omkl_lab.paper import regret
from omkl_lab.paper.regret import GAMMA, LAMBDA, QUANTIZER, Streams, Study, fit_exponent, own_scores, pooled_scores
from tests import numpy_run

LENGTHS = (3, 5)


def synthetic(rng: np.random.Generator, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Return two overlapping rings."""
    y = np.where(rng.random(n) < 0.5, 1, -1)
    angle, radius = rng.uniform(0, 2 * np.pi, n), 1.5 + 0.7 * y + 0.4 * rng.normal(size=n)
    X = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return X.astype(np.float32), y.astype(np.float32)


@cache
def small(pooled: bool) -> Study:
    X, y = synthetic(np.random.default_rng(1))
    halves = np.where(np.arange(6) < 3, 1, -1)
    classes = np.tile(halves, (640, 1)) if pooled else y[np.random.default_rng(2).integers(0, len(y), (640, 6))]
    streams = Streams(X, y, classes, (160, 320, 640), seeds=4)
    graphs = {name: build(name, 6) for name in ("ring", "complete")}
    return streams.study(graphs, pooled_scores if pooled else own_scores)


def test_power_law_is_recovered(rng: np.random.Generator) -> None:
    lengths = np.array([100, 200, 400, 800])
    noisy = 3 * lengths**0.6 * np.exp(0.05 * rng.normal(size=(20, 4)))
    fit = fit_exponent(lengths, noisy)
    assert fit.low < 0.6 < fit.high
    assert 0.005 < fit.high - fit.low < 0.06


def test_interval_covers_nineteen_times_in_twenty(rng: np.random.Generator) -> None:
    lengths = np.array([100, 200, 400])
    fits = [fit_exponent(lengths, lengths**0.5 * np.exp(0.1 * rng.normal(size=(8, 3)))) for _ in range(500)]
    covered = np.mean([fit.low < 0.5 < fit.high for fit in fits])
    assert 0.92 < covered < 0.98


def test_refusals() -> None:
    with pytest.raises(InputError, match="positive"):
        fit_exponent([1, 2], [[1, -1]])


def by_hand(method: Method, X: np.ndarray, y: np.ndarray, seed: int, nodes: int, pooled: bool) -> float:
    """Return what the nodes lose in L, on their own samples or on all of them, in a plain loop."""
    lost = 0.0
    for _, info, given in numpy_run.play(method, X, y, build("path", nodes), seed):
        weights = normalize(info.log_weights)
        for j in range(nodes):
            penalty = LAMBDA * sum(weights[j, p] * (info.theta[j, p] ** 2).sum() for p in range(3))
            for i in range(nodes) if pooled else [j]:
                f = sum(weights[j, p] * (info.theta[j, p, 0] @ given.z[i, p]) for p in range(3))
                lost += (np.log1p(np.exp(-given.y[i, 0] * f)) + penalty) / (nodes**2 if pooled else nodes)
    return lost


def best_by_scipy(X: np.ndarray, y: np.ndarray, seed: int) -> float:
    V = features.draw(gaussian(1, 3, 5), 20, 2, seed).astype(float)
    Z = features.transform(X.reshape(-1, 2).astype(float), Features(V))

    def mean(theta: np.ndarray, z: np.ndarray) -> float:
        return float(np.log1p(np.exp(-y.ravel() * (z @ theta))).mean() + LAMBDA * theta @ theta)

    return float(min(minimize(mean, np.zeros(40), args=(Z[:, p],), tol=1e-10).fun for p in range(3)))


@pytest.mark.parametrize("pooled", [False, True])
def test_regret_by_brute_force(rng: np.random.Generator, pooled: bool) -> None:
    X, y = synthetic(rng, 30)
    classes = np.array([[1, -1], [-1, -1], [1, 1], [-1, 1], [1, -1]])
    streams = Streams(X, y, classes, LENGTHS, seeds=2)
    study = streams.study({"path": build("path", 2)}, pooled_scores if pooled else own_scores)
    rows, _ = streams.draw()
    np.testing.assert_array_equal(y[rows], np.broadcast_to(classes[..., None], rows.shape))
    for k, rounds in enumerate(LENGTHS):
        eta = regret.ETA_0 / rounds**0.5
        methods: list[Method] = [
            Local(eta=eta, regularization=LAMBDA),
            Gossip(eta=eta, gamma=GAMMA, quantizer=QUANTIZER, regularization=LAMBDA),
        ]
        for s in range(2):
            seen, labels = X[rows[:rounds, :, s]], classes[:rounds]
            comparator = rounds * best_by_scipy(seen, labels, s)
            for case, method in enumerate(methods):
                expected = by_hand(method, seen, labels, s, 2, pooled) - comparator
                assert study.regret[case, k, s] == pytest.approx(expected, abs=2e-4 * rounds)


def test_streams_begin_alike_and_seeds_differ(rng: np.random.Generator) -> None:
    X, y = synthetic(rng)
    classes = np.ones((50, 3))
    long, _ = Streams(X, y, classes, (50,), seeds=2).draw()
    short, _ = Streams(X, y, classes[:20], (20,), seeds=2).draw()
    np.testing.assert_array_equal(long[:20], short)
    assert (long[..., 0] != long[..., 1]).mean() > 0.9
    assert (y[long] == 1).all()


@pytest.mark.parametrize("pooled", [False, True])
def test_studies_survive_a_file(pooled: bool) -> None:
    study, file = small(pooled), io.BytesIO()
    np.savez(file, allow_pickle=False, **study.arrays())
    file.seek(0)
    again = Study(**np.load(file, allow_pickle=False))
    for name, value in study.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], value)
    assert again.exponents == study.exponents


def test_own_regret_is_sublinear_and_within_its_bound() -> None:
    study = small(pooled=False)
    assert study.regret.shape == (3, 3, 4)
    assert study.terms.shape == (3, 3, 5)
    for fit in study.exponents.values():
        assert 0.3 < fit.mean < 0.75
    bound = study.terms.sum(axis=-1)
    assert (study.regret.max(axis=-1) < bound).all()
    assert (bound[1:] > np.log(2) * study.lengths).all()  # it says nothing of gossip


def test_alone_pooled_regret_is_linear_and_gossip_is_not() -> None:
    exponents = small(pooled=True).exponents
    assert exponents["alone"].low > 0.9
    for graph in ("ring", "complete"):
        assert exponents[graph].high < exponents["alone"].low - 0.1


def test_hedge_is_within_its_bound() -> None:
    study = small(pooled=False)
    assert (study.hedge.max(axis=-1) < np.log(3) / study.eta + study.eta * study.lengths / 8).all()
