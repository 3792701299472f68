"""The numbers of the theory: the step at which nodes surely agree, and two bounds on the regret, with their proofs.

One round. Theta holds the nodes' models as rows, G the gradients at them, h the hidden states after the round's
messages, A = I - W. Then Theta+ = Theta - eta G - gamma A h. Each node's next message has E|Q(v) - v|^2 <=
(1 - delta) |v|^2. beta is the largest eigenvalue of A. L bounds the gradient of C(theta.z, y) + lambda |theta|^2: as
|z| = 1, it is the loss's Lipschitz constant and 2 lambda R where |theta| <= R. All is in expectation over the
quantizer, cumulated over T rounds and averaged over nodes. The last two terms of both bounds are Hedge's, for P experts
whose losses lie in [0, 1].

**How nodes agree.** Put r^2 = E sum_j |theta_j - mean|^2 + |theta_j - h_j|^2. Without gradients, r^2 falls by a factor
1 - rho gamma / 2 a round, for every gamma <= gamma*. Mixing and sending give, by |a + b|^2 <= (1 + s) |a|^2 +
(1 + 1/s) |b|^2 with s = rho gamma / 2 for the first part of r^2 and s = delta / 2 for the second,

    of the first   (1 - rho gamma)^2 (1 + rho gamma / 2) + (1 - delta) gamma^2 beta^2 (1 + 2 / delta)
    of the second  (1 - delta) (1 + gamma beta)^2 (1 + delta / 2) + gamma^2 beta^2 (1 + 2 / (rho gamma))

The second is at most (1 - delta/2) + gamma (2 beta^2 / rho + beta^2 + 8 - 4 delta), as beta <= 2. That is 1 -
rho gamma / 2 where gamma = gamma*, and less below; the first is smaller there. The paper prints gamma* with one more
rho in the numerator, and takes for the contraction what fits ours: rho gamma* / 2 >= rho^2 delta / 82.

**A bound by agreement.** The loss of a node exceeds that of theta* by at most <g_j, theta_j - theta*>, in the mean
<mean g, mean - theta*> + L mean_j |theta_j - mean|. Gossip keeps the mean, which descends along the mean gradient:
terms one and two. A gradient step adds at most sqrt(2J) eta L to r, so r <= (2/c) sqrt(2J) eta L with c =
rho gamma / 2, and the mean distance is at most r / sqrt(J):

    |theta*|^2 / (2 eta) + eta L^2 T / 2 + (2 sqrt(2) / c) eta L^2 T + ln P / eta_w + eta_w T / 8

**A bound without spectral gap**, ours. With D = Theta - 1 theta*, E = h - Theta, U = A^(1/2) D, F = A^(1/2) E and the
move M = eta G + gamma A (D + E), where A theta* = 0 as rows of W sum to one,

    |D+|^2 = |D|^2 - 2 eta <G, D> - 2 gamma <D, A (D + E)> + |M|^2
    -2 gamma <D, A (D + E)> = -gamma |U|^2 - gamma |U + F|^2 + gamma |F|^2

Before the next message the copies are off by E + M, so |E+| <= sqrt(1 - delta) |E + M| in the mean square; summed over
rounds, sum |E|^2 <= kappa sum |M|^2 with kappa = (1 - delta) / (1 - sqrt(1 - delta))^2, and |F|^2 <= beta |E|^2. So
2 eta sum <G, D> <= |D_0|^2 + sum (a |M|^2 - gamma |U + F|^2), a = 1 + gamma beta kappa. The gossip part N = M - eta G
of the move has |N|^2 <= gamma^2 beta |U + F|^2, so each summand is at most a |eta G + N|^2 - |N|^2 / (gamma beta), and
over all N at most a |eta G|^2 / (1 - s), s = gamma beta a, if s < 1. With |G|^2 <= J L^2 and |D_0|^2 = J |theta*|^2:

    |theta*|^2 / (2 eta) + f eta L^2 T / 2 + ln P / eta_w + eta_w T / 8,   f = a / (1 - s)

It is for the samples that a node sees itself, and says how little gossip can harm, not how much it helps.
"""

import math
from typing import NamedTuple, Protocol

from omkl.errors import InputError
from omkl.topology import Topology

SMALLEST = 1e-12  # of a rate; zero learns nothing and has no bound


class Contraction(Protocol):
    """What theory asks of a quantizer."""

    def delta(self, n: int) -> float:
        """Return delta with E|Q(v) - v|^2 <= (1 - delta) |v|^2 for vectors of length n."""


class RegretTerms(NamedTuple):
    """The terms of a bound on the regret."""

    comparator: float
    gradient: float
    consensus: float
    kernels: float
    weights: float

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(self)


def spectral_gap(topology: Topology) -> float:
    """Return rho = 1 - max(|l_2|, |l_J|) of the gossip matrix; one node has rho = 1."""
    smallest, largest = topology.ends
    return 1.0 if topology.nodes == 1 else max(0.0, min(smallest, 2 - largest))


def beta(topology: Topology) -> float:
    """Return |I - W|_2, the largest eigenvalue of I - W; one node has 0."""
    return topology.ends[1]


def consensus_step(rho: float, beta: float, delta: float) -> float:
    """Return gamma*, the largest step with a proof that nodes agree; zero where there is none.

    The paper prints rho^2 in the numerator; the proof gives rho (see the module's head).

    >>> consensus_step(rho=1, beta=1, delta=1)
    0.06666666666666667
    """
    check(rho=(rho, 0, 1), beta=(beta, 0, 2), delta=(delta, 0, 1))
    if rho == 0:
        return 0.0
    return rho * delta / (16 * rho + rho**2 + 4 * beta**2 + 2 * rho * beta**2 - 8 * rho * delta)


def contraction(rho: float, beta: float, delta: float, gamma: float | None = None) -> float:
    """Return c: a round surely multiplies the expected squared disagreement by at most 1 - c.

    It is rho gamma / 2 up to gamma*, and zero beyond, where nothing is proved. None stands for gamma* itself.

    >>> contraction(rho=1, beta=1, delta=1)
    0.03333333333333333
    >>> contraction(rho=1, beta=1, delta=1, gamma=0.5)
    0.0
    """
    largest = consensus_step(rho, beta, delta)
    step = largest if gamma is None else gamma
    check(gamma=(step, 0, 1))
    return rho * step / 2 if step <= largest else 0.0


def gossip_factor(beta: float, delta: float, gamma: float) -> float:
    """Return f, by which gossip multiplies the gradient term at most, whatever the spectral gap; infinite if s >= 1.

    It is (1 + gamma beta kappa) / (1 - s) with s = gamma beta (1 + gamma beta kappa) and kappa = (1 - delta) /
    (1 - sqrt(1 - delta))^2; ours, with its proof at the module's head.

    >>> gossip_factor(beta=1, delta=1, gamma=0.5)
    2.0
    """
    check(beta=(beta, 0, 2), delta=(delta, 0, 1), gamma=(gamma, 0, 1))
    if delta == 0:
        return 1.0 if gamma * beta == 0 else math.inf
    missed = math.sqrt(1 - delta)
    grown = 1 + gamma * beta * (missed / (1 - missed)) ** 2
    left = 1 - gamma * beta * grown
    return grown / left if left > 0 else math.inf


def consensus_bound(nodes: int, eta: float, lipschitz: float, c: float) -> float:
    """Return the bound (2/c) sqrt(2J) eta L on the disagreement r; infinite at c = 0, zero for one node."""
    if nodes == 1:
        return 0.0
    return 2 / c * math.sqrt(2 * nodes) * eta * lipschitz if c > 0 else math.inf


def regret_terms(
    *,
    nodes: int,
    rounds: int,
    eta: float,
    lipschitz: float,
    c: float,
    factor: float = math.inf,
    radius: float = 1.0,
    kernels: int = 1,
    weight_rate: float | None = None,
) -> RegretTerms:
    """Return the terms of the regret bound, for a comparator with |theta*| = ``radius``.

    The consensus term is the smaller of two: that by agreement, of ``contraction``'s c, and that of
    ``gossip_factor``'s ``factor``. ``weight_rate`` is Hedge's; None takes ``eta``, as the paper does. A single kernel
    has no weights to learn.
    """
    rate = eta if weight_rate is None else weight_rate
    check(nodes=(nodes, 1, math.inf), rounds=(rounds, 1, math.inf), kernels=(kernels, 1, math.inf), c=(c, 0, 1))
    check(eta=(eta, SMALLEST, math.inf), weight_rate=(rate, SMALLEST, math.inf), radius=(radius, 0, math.inf))
    check(factor=(factor, 1, math.inf))
    apart = consensus_bound(nodes, eta, lipschitz, c) / math.sqrt(nodes)
    gradient = eta * lipschitz**2 * rounds / 2
    return RegretTerms(
        comparator=radius**2 / (2 * eta),
        gradient=gradient,
        consensus=min(apart * lipschitz * rounds, (factor - 1) * gradient) if nodes > 1 else 0.0,
        kernels=math.log(kernels) / rate,
        weights=rate * rounds / 8 if kernels > 1 else 0.0,
    )


def printed_terms(
    *, nodes: int, rounds: int, eta: float, lipschitz: float, rho: float, delta: float, radius: float, kernels: int
) -> RegretTerms:
    """Return the terms of the paper's Theorem 1 as printed, to read beside ours.

    It is for the paper's gamma*, c = rho^2 delta / 82 and one rate eta, summed over nodes there and divided by their
    number here: |theta*|^2 / (2 eta) + eta L^2 T / 2 + sqrt(12) eta L T / c + ln P / eta + eta T. Its proof gives L^2
    in the third term, and has a step that does not hold.
    """
    ours = regret_terms(nodes=nodes, rounds=rounds, eta=eta, lipschitz=lipschitz, c=0, radius=radius, kernels=kernels)
    c = rho**2 * delta / 82
    apart = (math.sqrt(12) * eta * lipschitz * rounds / c if c > 0 else math.inf) if nodes > 1 else 0.0
    return ours._replace(consensus=apart, weights=8 * ours.weights)


def check(**values: tuple[float, float, float]) -> None:
    """Refuse values outside their range, given as ``name=(value, low, high)``."""
    for name, (value, low, high) in values.items():
        if not low <= value <= high:
            span = f"at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            raise InputError(f"{name} is {value}; it must be {span}; correct {name}")
