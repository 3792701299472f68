import numpy as np
import pytest

from omkl import theory
from omkl.topology import build
from omkl_lab.paper.lemmas import consensus_rate, held_apart, lemmas
from omkl_lab.paper.regret import QUANTIZER, Study


@pytest.mark.parametrize("start", ["random", "slowest"])
def test_nodes_of_a_small_ring_agree(start: str) -> None:
    ring = build("ring", 5)
    rho, delta = theory.spectral_gap(ring), QUANTIZER.delta(40)
    gamma = theory.consensus_step(rho, theory.beta(ring), delta)
    rate = consensus_rate(ring, gamma, start, trials=10)
    assert rate > theory.contraction(rho, theory.beta(ring), delta)
    if start == "slowest":
        assert rate == pytest.approx(2 * gamma * rho, rel=0.02)


def test_one_rho_too_many_breaks_the_proof_where_the_gap_is_small() -> None:
    path = build("path", 20)
    rho, pull, delta = theory.spectral_gap(path), theory.beta(path), QUANTIZER.delta(40)
    gamma, printed = theory.consensus_step(rho, pull, delta), rho**2 * delta / 82
    assert consensus_rate(path, rho * gamma, "slowest", trials=3) < printed / 4
    assert consensus_rate(path, gamma, "slowest", trials=3) > theory.contraction(rho, pull, delta)
    exact = theory.consensus_step(rho, pull, 1.0)
    assert held_apart(path, rho * exact) / (12 / (rho**2 / 82) ** 2) == pytest.approx(7.6, abs=0.05)
    assert held_apart(path, exact) < 12 / theory.contraction(rho, pull, 1.0) ** 2


def test_an_adversary_holds_two_nodes_apart_by_hand() -> None:
    pair = build("complete", 2)  # I - W = [[.5, -.5], [-.5, .5]]; .5 * 2 x * gamma = 1 for theta = (x, -x)
    assert held_apart(pair, 0.1) == pytest.approx(100)


def test_lemmas_of_a_study() -> None:
    lengths, each = np.array([80, 160]), np.ones((4, 2, 1))
    study = Study(
        cases=np.array(["alone", "path", "ring", "complete"]), lengths=lengths, eta=10 / lengths**0.5,
        regret=each, best=each[0], radius=each[0], terms=np.ones((4, 2, 5)),
        norm=each, loss=1.5 * each, hedge=each,
    )  # fmt: skip
    found = lemmas(study, trials=2)
    hedge = [check for check in found if check.claim == "hedge"]
    assert len(hedge) == 8
    assert all(check.holds and check.covered == "outside the lemma" for check in hedge)
    failed = {
        (check.claim, check.case, check.covered) for check in found if not check.holds and check.start != "random"
    }
    assert failed == {(claim, "path", "the paper's gamma*") for claim in ("consensus", "apart")} | {
        ("consensus", "ring", "the paper's gamma*")
    }
    assert not lemmas(study._replace(hedge=1e3 * each), trials=2)[-1].holds
