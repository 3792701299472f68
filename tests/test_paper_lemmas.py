import numpy as np
import pytest

from omkl import theory
from omkl.topology import build
from omkl_lab.paper.lemmas import consensus_rate, lemmas
from omkl_lab.paper.regret import QUANTIZER, Study


@pytest.mark.parametrize("start", ["random", "slowest"])
def test_lemma_1_on_a_small_ring(start: str) -> None:
    ring = build("ring", 5)
    rho, delta = theory.spectral_gap(ring), QUANTIZER.delta(40)
    gamma = theory.consensus_step(rho, theory.beta(ring), delta)
    rate = consensus_rate(ring, gamma, start, trials=10)
    assert rate > theory.contraction(rho, delta)
    if start == "slowest":
        assert rate == pytest.approx(2 * gamma * rho, rel=0.02)


def test_lemma_1_fails_at_its_own_step_where_the_gap_is_small() -> None:
    path = build("path", 20)
    rho, delta = theory.spectral_gap(path), QUANTIZER.delta(40)
    c = theory.contraction(rho, delta)
    gamma = theory.consensus_step(rho, theory.beta(path), delta)
    assert consensus_rate(path, gamma, "slowest", trials=3) < c / 4
    assert consensus_rate(path, gamma / rho, "slowest", trials=3) > c


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
    assert all(check.holds and not check.covered for check in hedge)
    assert not lemmas(study._replace(hedge=1e3 * each), trials=2)[-1].holds
