import math
from functools import partial
from typing import Any

import numpy as np
import pytest

from omkl import theory
from omkl.errors import InputError
from omkl.losses import Softmax
from omkl.topology import Topology, build

explain = partial(theory.explain, method="paper", quantizer=1.0)
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
    assert theory.consensus_step(0.5, 2, 0.5) == pytest.approx(0.25 / 26.25)  # 8 + .25 + 16 + 4 - 2
    assert theory.contraction(1, 1, 1) == pytest.approx(1 / 30)
    assert theory.contraction(0.5, 2, 0.5, 0.004) == pytest.approx(0.001)
    assert theory.contraction(0.5, 2, 0.5, 0.01) == 0  # above gamma* = .0095


def test_the_recursion_behind_gamma_star_contracts() -> None:
    rng, n = np.random.default_rng(0), 4000
    pull, delta = rng.uniform(0.01, 1.99, n), np.exp(rng.uniform(np.log(1e-4), 0, n))
    rho = np.exp(rng.uniform(np.log(1e-5), 0, n)).clip(max=np.minimum(pull, 2 - pull))
    largest = np.array([theory.consensus_step(*one) for one in zip(rho, pull, delta, strict=True)])
    for gamma in (largest, 0.5 * largest, 0.01 * largest):
        first = (1 - rho * gamma) ** 2 * (1 + rho * gamma / 2)
        first += (1 - delta) * gamma**2 * pull**2 * (1 + 2 / delta)
        second = (1 - delta) * (1 + gamma * pull) ** 2 * (1 + delta / 2)
        second += gamma**2 * pull**2 * (1 + 2 / (rho * gamma))
        assert (np.maximum(first, second) <= 1 - rho * gamma / 2 + 1e-15).all()
    assert (rho * largest / 2 >= rho**2 * delta / 82).all()
    # The slowest mode, all that is left where messages are exact: one rho more does not contract by as much.
    refuted = -np.expm1(2 * np.log1p(-(rho**2) * largest)) < rho**2 * delta / 82
    assert 0.5 < refuted.mean() < 0.8
    assert not (-np.expm1(2 * np.log1p(-rho * largest)) < rho * largest / 2).any()


def test_the_paper_on_the_path() -> None:
    page = explain("path", 20, quantizer=Sends())
    assert page.delta == pytest.approx(DELTA)
    assert page.gamma_star == pytest.approx(2.1e-4, rel=0.03)
    assert page.c == 0  # nothing is proved at .009
    assert page.halving == pytest.approx(math.log(2) / (0.009 * page.rho), rel=1e-3)
    assert page.terms.total == pytest.approx(171, rel=0.02)
    assert page.printed.total == pytest.approx(2.3e8, rel=0.02)
    assert "at most 0.25 of the 693.1 that always predicting 0 loses" in str(page)
    assert "disagreement halves in about 9,383 rounds" in str(page)
    assert explain("path", 20, quantizer=DELTA) == page


def test_theorem_1_is_true_at_its_own_step_by_the_bound_without_spectral_gap() -> None:
    rng = np.random.default_rng(0)
    for pull, small, delta in zip(rng.uniform(0.01, 1.99, 300), *np.exp(rng.uniform(-12, 0, (2, 300))), strict=True):
        rho = min(small, pull, 2 - pull)
        factor = theory.gossip_factor(pull, delta, rho * theory.consensus_step(rho, pull, delta))
        assert (factor - 1) / 2 < 1e-3 * math.sqrt(12) * 82 / (rho**2 * delta)


def test_only_a_step_up_to_gamma_star_surely_agrees() -> None:
    def agrees(**setting: Any) -> bool | None:
        page = explain("ring", 5, quantizer=0.5, **setting)
        return next(one for one in page.assumptions if "surely agree" in one.statement).holds

    largest = explain("ring", 5, quantizer=0.5).gamma_star
    assert agrees(gamma=largest)
    assert agrees(gamma=largest / 10)
    assert not agrees(gamma=1.01 * largest)
    assert not agrees(gamma=largest, momentum=0.5)
    assert not agrees(gamma=largest, beyond=["sending"])
    assert agrees(gamma=largest, beyond=["basis"])  # whatever is learned


def test_factor_by_hand() -> None:
    assert theory.gossip_factor(1, 1, 0.25) == pytest.approx(4 / 3)  # kappa = 0
    assert theory.gossip_factor(1, 0.75, 0.25) == pytest.approx(1.25 / (1 - 0.3125))  # kappa = (.5 / .5)^2
    assert theory.gossip_factor(2, 1, 0.5) == theory.gossip_factor(1, 0, 0.1) == math.inf
    assert theory.gossip_factor(1, 0.1, 0) == 1
    page = explain("path", 20, quantizer=0.177)
    assert math.isfinite(theory.gossip_factor(page.beta, 0.177, 0.999 * page.largest))
    assert theory.gossip_factor(page.beta, 0.177, 1.001 * page.largest) == math.inf


def test_the_smaller_of_two_consensus_terms_counts() -> None:
    setting: dict[str, Any] = {"nodes": 4, "rounds": 10, "eta": 0.1, "lipschitz": 1.0}
    gradient = 0.5
    assert theory.regret_terms(c=0, factor=3, **setting).consensus == pytest.approx(2 * gradient)
    assert theory.regret_terms(c=0.5, factor=50, **setting).consensus == pytest.approx(4 * math.sqrt(2))
    assert theory.regret_terms(c=0.5, **setting).consensus == pytest.approx(4 * math.sqrt(2))
    at_once = explain("complete", 5, gamma=0.05)
    assert "(f - 1) eta L^2 T / 2" in str(at_once)


def test_theorem_1_as_printed_by_hand() -> None:
    terms = theory.printed_terms(
        nodes=7, rounds=100, eta=0.1, lipschitz=2, rho=0.5, delta=0.5, radius=3, kernels=3
    )  # fmt: skip
    expected = (45, 20, math.sqrt(12) * 0.1 * 2 * 100 / (0.125 / 82), math.log(3) / 0.1, 10)
    assert terms == pytest.approx(expected)


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
    assert page.terms.consensus == page.printed.consensus == math.inf
    assert math.isfinite(page.terms.gradient)
    assert "There is no bound: gamma is above gamma*, and f is finite only for steps below 0.5" in str(page)
    assert math.isfinite(explain("ring", 20, weights="max_degree", gamma=0.4).terms.total)  # it needs no gap
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
    page = explain("path", 1, rounds=100_000, loss=loss, quantizer=1.0)
    assert (page.rho, page.beta, page.terms.consensus) == (1, 0, 0)
    assert "one node" in str(page)
    assert len(page.assumptions) == 3
    assert theory.consensus_bound(1, 0.1, 1, 0) == 0
    assert page.vacuous == (loss == "squared")


def test_a_bound_that_says_something() -> None:
    page = explain("complete", 4, rounds=10**9, eta=1e-4, weight_rate=0.01)
    assert not page.vacuous
    assert "The bound says something, if its assumptions hold: the regret is at most 0.0019 of" in str(page)


def test_squared_loss_has_no_bound() -> None:
    page = explain("ring", 5, loss="squared", quantizer=1.0)
    assert page.vacuous
    assert math.isnan(page.trivial)
    assert "There is no bound" in str(page)


def test_losses_and_the_unit_interval() -> None:
    def inside(**setting: Any) -> bool | None:
        return explain("ring", 5, quantizer=1.0, **setting).assumptions[-1].holds

    assert inside() is None  # logistic starts at ln 2 and can leave
    assert inside(radius=0.1) is True
    assert inside(loss=Softmax(classes=10)) is False
    assert explain("ring", 5, loss=Softmax(classes=10), quantizer=1.0).trivial == pytest.approx(1000 * math.log(10))


def test_gradient_bound_counts_the_regularization() -> None:
    page = explain("ring", 5, regularization=0.1, radius=2)
    assert page.lipschitz == pytest.approx(1.4)
    assert page.assumptions[-2].holds is None
    assert explain("ring", 5, regularization=0).assumptions[-2].holds is True


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"eta": 0}, "eta is 0.0; a learning rate must be positive"),
        ({"gamma": 2}, "gamma is 2.0; the consensus step must lie in"),
        ({"kernels": 0}, "kernels is 0; it must be at least 1"),
        ({"method": "alone"}, "the theory is of gossip; take recommended, frugal, paper or gossip"),
        ({"quantizer": 1.5}, "delta is 1.5; it must be from 0 to 1"),
        ({"rounds": 0}, "rounds is 0; it must be at least 1"),
        ({"radius": math.nan}, "radius is nan"),
        ({"loss": "softmax"}, "softmax without its number of classes"),
    ],
)
def test_refusals(setting: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        explain("ring", 5, **setting)


@pytest.mark.parametrize(
    ("name", "weights", "p"),
    [("complete", "metropolis", 0.5), ("complete", "metropolis", 1.0), ("ring", "metropolis", 0.3),
     ("star", "best_constant", 0.5)],
)  # fmt: skip
def test_nodes_agree_as_proved(name: str, weights: str, p: float) -> None:
    network = build(name, 5, weights)
    rho = theory.spectral_gap(network)
    pulled = theory.beta(network)
    gamma, c = theory.consensus_step(rho, pulled, p), theory.contraction(rho, pulled, p)
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
    pulled = theory.beta(network)
    gamma, c = theory.consensus_step(rho, pulled, p), theory.contraction(rho, pulled, p)
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


def worst(network: Topology, delta: float, gamma: float, period: int, rounds: int = 400) -> float:
    """Return the regret, over that of learning alone, against an adversary whose messages miss as much as they may.

    Gradients of size one point to both sides of the network's fastest mode, and turn round after every ``period``.
    """
    pull, eta = np.eye(network.nodes) - network.matrix(), 0.3
    across = np.sign(np.linalg.eigh(pull)[1][:, -1] + 1e-9)
    theta, hidden = np.zeros((2, network.nodes))
    lost = total = 0.0
    for t in range(rounds):
        G = across if t // period % 2 else -across
        lost, total = lost + float(G @ theta) / network.nodes, total + float(G.mean())
        theta = theta - eta * G - gamma * pull @ hidden
        hidden = theta + math.sqrt(1 - delta) * (theta - hidden)  # more than was to be sent
    # Against every theta* at once: of them the best has |theta*| = eta |sum of the mean gradients|.
    return (lost + eta * total**2 / 2) / (eta * rounds / 2)


@pytest.mark.parametrize("name", ["path", "complete"])
@pytest.mark.parametrize("delta", [0.2, 0.6, 1.0])
def test_no_adversary_beats_the_bound_without_spectral_gap(name: str, delta: float) -> None:
    network = build(name, 6)
    page = explain(network, quantizer=delta)
    for share in (0.1, 0.6, 0.95):
        gamma = min(1.0, share * page.largest)
        found = max(worst(network, delta, gamma, period) for period in (1, 2, 10, 200))
        assert 1 < found <= theory.gossip_factor(page.beta, delta, gamma)
        if share > 0.5 and delta < 1:  # what messages miss counts
            assert found > theory.gossip_factor(page.beta, 1.0, gamma)
