import math
from typing import Any

import numpy as np
import pytest

from omkl import theory
from omkl.errors import InputError
from omkl.losses import Softmax
from omkl.theory import explain
from omkl.topology import build

DELTA = 1 - 40 / 49  # QSGD, M = 7, n = 40


class Sends:
    def delta(self, n: int) -> float:
        return 1 - n / 49


@pytest.mark.parametrize(
    ("name", "metropolis", "best"), [("path", 0.0082, 0.0123), ("ring", 0.0326, 0.0478), ("grid", 0.086, 0.103)]
)
def test_known_gaps_of_twenty_nodes(name: str, metropolis: float, best: float) -> None:
    assert theory.spectral_gap(build(name, 20)) == pytest.approx(metropolis, rel=0.01)
    assert theory.spectral_gap(build(name, 20, "best_constant")) == pytest.approx(best, rel=0.01)


def test_gap_and_beta_by_hand() -> None:
    complete = build("complete", 4)  # W = 11^T/4
    assert theory.spectral_gap(complete) == pytest.approx(1)
    assert theory.beta(complete) == pytest.approx(1)
    path = build("path", 3)  # I - W has eigenvalues 0, 1/3, 1
    assert theory.spectral_gap(path) == pytest.approx(1 / 3)
    assert theory.beta(path) == pytest.approx(1)
    low = build([[0.1, 0.9], [0.9, 0.1]])  # eigenvalues 1, -0.8: the negative one counts
    assert theory.spectral_gap(low) == pytest.approx(0.2)
    assert theory.beta(low) == pytest.approx(1.8)


def test_step_and_contraction_by_hand() -> None:
    assert theory.consensus_step(1, 1, 1) == pytest.approx(1 / 15)  # 1 / (16 + 1 + 4 + 2 - 8)
    assert theory.consensus_step(0.5, 2, 0.5) == pytest.approx(0.125 / 26.25)  # 8 + .25 + 16 + 4 - 2
    assert theory.contraction(0.5, 0.5) == pytest.approx(0.125 / 82)


def test_the_letter_on_the_path() -> None:
    page = explain("path", 20, quantizer=Sends())
    assert page.delta == pytest.approx(DELTA)
    assert page.gamma_star == pytest.approx(1.7e-6, rel=0.03)
    assert page.c == pytest.approx(1.5e-7, rel=0.03)
    assert page.halving == pytest.approx(math.log(2) / (0.009 * page.rho), rel=1e-3)
    assert page.vacuous
    assert "The bound is vacuous: always predicting f = 0 loses 693.1" in str(page)
    assert "disagreement halves in about 9,383 rounds" in str(page)
    assert explain("path", 20, quantizer=DELTA) == page


def test_terms_by_hand() -> None:
    terms = theory.regret_terms(
        nodes=7, rounds=100, eta=0.1, lipschitz=2, c=0.5, radius=3, kernels=3, weight_rate=0.2
    )  # fmt: skip
    expected = (45, 20, 2 * math.sqrt(2) / 0.5 * 0.1 * 4 * 100, math.log(3) / 0.2, 2.5)
    assert terms == pytest.approx(expected)
    assert terms.total == pytest.approx(sum(expected))


def test_consensus_term_is_quadratic_in_the_gradient() -> None:
    setting: dict[str, Any] = {"nodes": 4, "rounds": 10, "eta": 0.1, "c": 0.1}
    one, two = (theory.regret_terms(lipschitz=bound, **setting) for bound in (1.0, 2.0))
    assert two.consensus == pytest.approx(4 * one.consensus)
    assert two.gradient == pytest.approx(4 * one.gradient)
    assert two.comparator == one.comparator
    assert one.kernels == one.weights == 0  # a single kernel


def test_zero_gap_is_not_divided_by() -> None:
    page = explain("ring", 20, weights="max_degree", gamma=0.5)
    assert (page.rho, page.gamma_star, page.c) == (0, 0, 0)
    assert page.beta == 2
    assert page.terms.consensus == math.inf
    assert math.isfinite(page.terms.gradient)
    assert "rho is zero" in str(page)
    assert page.halving < 100  # eigenvalue -1 is damped at gamma = 0.5, whatever the lemma says
    gap = next(a for a in page.assumptions if "gap" in a.statement)
    assert gap.holds is False
    assert "l_J = -1" in gap.why


def test_no_contraction_no_bound() -> None:
    page = explain("ring", 5, quantizer=-0.2)
    assert page.terms.total == math.inf
    assert "delta is not positive" in str(page)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_one_node_has_nothing_to_agree_on(loss: str) -> None:
    page = explain("path", 1, rounds=100_000, loss=loss)
    assert (page.rho, page.beta, page.terms.consensus) == (1, 0, 0)
    assert "one node" in str(page)
    assert len(page.assumptions) == 3
    assert theory.consensus_bound(1, 0.1, 1, 0) == 0
    assert page.vacuous == (loss == "squared")


def test_a_bound_that_says_something() -> None:
    page = explain("complete", 4, rounds=10**9, eta=1e-4, weight_rate=0.01)
    assert not page.vacuous
    assert "The bound says something, if its assumptions hold: the regret is at most 0.035 of" in str(page)


def test_squared_loss_has_no_bound() -> None:
    page = explain("ring", 5, loss="squared")
    assert page.vacuous
    assert math.isnan(page.trivial)
    assert "There is no bound" in str(page)


def test_losses_and_the_unit_interval() -> None:
    def inside(**setting: Any) -> bool | None:
        return explain("ring", 5, **setting).assumptions[-1].holds

    assert inside() is None  # logistic starts at ln 2 and can leave
    assert inside(radius=0.1) is True
    assert inside(loss=Softmax(classes=10)) is False
    assert explain("ring", 5, loss=Softmax(classes=10)).trivial == pytest.approx(1000 * math.log(10))


def test_gradient_bound_counts_the_regularization() -> None:
    page = explain("ring", 5, regularization=0.1, radius=2)
    assert page.lipschitz == pytest.approx(1.4)
    assert page.assumptions[-2].holds is None
    assert explain("ring", 5, regularization=0).assumptions[-2].holds is True


def test_negative_weights_are_told() -> None:
    page = explain("star", 10, weights="best_constant")
    told = next(a for a in page.assumptions if "negative" in a.statement)
    assert told.holds is False
    assert "-0.636" in told.why  # 1 - 9 * 2/11


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"eta": 0}, "eta is 0; it must be at least"),
        ({"gamma": 2}, "gamma is 2; it must be from 0 to 1"),
        ({"quantizer": 1.5}, "delta is 1.5; it must be from 0 to 1"),
        ({"rounds": 0}, "rounds is 0; it must be at least 1"),
        ({"radius": math.nan}, "radius is nan"),
        ({"loss": "softmax"}, "softmax without its number of classes"),
    ],
)
def test_refusals(setting: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        explain("ring", 5, **setting)


@pytest.mark.parametrize(("name", "p"), [("complete", 0.5), ("complete", 1.0), ("ring", 0.3)])
def test_lemma_1_holds_in_simulation(name: str, p: float) -> None:
    network = build(name, 5)
    rho = theory.spectral_gap(network)
    gamma, c = theory.consensus_step(rho, theory.beta(network), p), theory.contraction(rho, p)
    rng, runs, rounds = np.random.default_rng(0), 400, 300
    pull = network.matrix() - np.eye(5)
    x = rng.standard_normal((runs, 5, 3))
    h = np.zeros_like(x)
    mean = x.mean(axis=1, keepdims=True)

    def energy() -> float:
        return float(((x - mean) ** 2 + (x - h) ** 2).sum() / runs)

    start = energy()
    for t in range(1, rounds + 1):
        x = x + gamma * pull @ h
        h = h + (rng.random((runs, 5, 1)) < p) * (x - h)  # sent whole with probability p: delta = p exactly
        assert energy() <= start * (1 - c) ** t
    np.testing.assert_allclose(x.mean(axis=1, keepdims=True), mean, atol=1e-12)


def test_consensus_bound_holds_in_simulation() -> None:
    network, p, eta = build("complete", 4), 0.7, 0.1
    rho = theory.spectral_gap(network)
    gamma, c = theory.consensus_step(rho, theory.beta(network), p), theory.contraction(rho, p)
    rng, runs = np.random.default_rng(0), 200
    x = h = np.zeros((runs, 4, 2))
    push = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])  # unit gradients that pull the nodes apart
    largest = 0.0
    for _ in range(2000):
        x = x - eta * push
        x = x + gamma * (network.matrix() - np.eye(4)) @ h
        h = h + (rng.random((runs, 4, 1)) < p) * (x - h)
        spread = ((x - x.mean(axis=1, keepdims=True)) ** 2 + (x - h) ** 2).sum(axis=(1, 2))
        largest = max(largest, float(np.sqrt(spread.mean())))
    assert 1 < largest <= theory.consensus_bound(4, eta, 1.0, c)
