"""Theory: spectral gap, contraction, regret bound, and what they say about a given network.

The bound below is our derivation, with the corrections of the letter's Theorem 1 (rho counts negative eigenvalues, the
consensus term has L^2, models and weights have rates of their own); the letter's own constants may differ. For every
kernel and every theta*, the loss L cumulated over T rounds, averaged over nodes, exceeds that of theta* by at most

    |theta*|^2 / (2 eta)  +  eta L^2 T / 2  +  (2 sqrt(2) / c) eta L^2 T  +  ln P / eta_w  +  eta_w T / 8

in expectation over the quantizer. With g_j the gradient at node j,

    mean_j L_j(theta_j) - L_j(theta*)  <=  <mean_j g_j, mean - theta*>  +  L mean_j |theta_j - mean|.

Gossip keeps the network's mean, which thus descends along mean_j g_j: the first product sums to terms one and two. For
the distance to the mean put r^2 = E sum_j |theta_j - mean|^2 + |theta_j - h_j|^2, after a round's messages. Mixing and
sending contract r^2 by 1 - c (Lemma 1, Koloskova et al. 2019), a gradient step adds at most sqrt(2J) eta L to r:
r_{t+1} <= sqrt(1-c) (r_t + sqrt(2J) eta L), so from r = 0 always r <= (2/c) sqrt(2J) eta L. The mean distance is at
most r / sqrt(J): term three. The last two are Hedge with P experts and losses in [0, 1] (Lemma 2), and convexity.
L bounds the gradient of C(theta.z, y) + lambda |theta|^2; since |z| = 1 it is K + 2 lambda R where |theta| <= R.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from omkl import losses
from omkl.errors import InputError
from omkl.methods.consensus_step import Tracking, seldom, stable_step, tracking
from omkl.topology import Topology, build

SMALLEST = 1e-12  # of a rate; zero learns nothing and has no bound


class Contraction(Protocol):
    """What theory asks of a quantizer."""

    def delta(self, n: int) -> float:
        """Return delta with E|Q(v) - v|^2 <= (1 - delta) |v|^2 for vectors of length n."""


class RegretTerms(NamedTuple):
    """The terms of the bound on the regret."""

    comparator: float
    gradient: float
    consensus: float
    kernels: float
    weights: float

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(self)


class Assumption(NamedTuple):
    """What the bound supposes; ``holds`` is None where it depends on the run."""

    statement: str
    holds: bool | None
    why: str


def spectral_gap(topology: Topology) -> float:
    """Return rho = 1 - max(|l_2|, |l_J|) of the gossip matrix; one node has rho = 1."""
    smallest, largest = topology.ends
    return 1.0 if topology.nodes == 1 else max(0.0, min(smallest, 2 - largest))


def beta(topology: Topology) -> float:
    """Return |I - W|_2, the largest eigenvalue of I - W; one node has 0."""
    return topology.ends[1]


def consensus_step(rho: float, beta: float, delta: float) -> float:
    """Return gamma*, the step of Lemma 1 as printed; zero where the lemma gives none.

    Its companion c fits gamma*/rho: at gamma* itself the slowest direction of a graph with a small gap contracts by
    less than c promises (see ``omkl_lab.paper.lemmas``).

    >>> consensus_step(rho=1, beta=1, delta=1)
    0.06666666666666667
    """
    _check(rho=(rho, 0, 1), beta=(beta, 0, 2), delta=(delta, 0, 1))
    if rho == 0:
        return 0.0
    return rho**2 * delta / (16 * rho + rho**2 + 4 * beta**2 + 2 * rho * beta**2 - 8 * rho * delta)


def contraction(rho: float, delta: float) -> float:
    """Return c of Lemma 1: a round is to multiply the expected squared disagreement by at most 1 - c; see gamma*."""
    _check(rho=(rho, 0, 1), delta=(delta, 0, 1))
    return rho**2 * delta / 82


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
    radius: float = 1.0,
    kernels: int = 1,
    weight_rate: float | None = None,
) -> RegretTerms:
    """Return the terms of the regret bound, for a comparator with |theta*| = ``radius``.

    ``weight_rate`` is Hedge's; None takes ``eta``, as the letter does. A single kernel has no weights to learn.
    """
    rate = eta if weight_rate is None else weight_rate
    _check(nodes=(nodes, 1, math.inf), rounds=(rounds, 1, math.inf), kernels=(kernels, 1, math.inf), c=(c, 0, 1))
    _check(eta=(eta, SMALLEST, math.inf), weight_rate=(rate, SMALLEST, math.inf), radius=(radius, 0, math.inf))
    apart = consensus_bound(nodes, eta, lipschitz, c) / math.sqrt(nodes)
    return RegretTerms(
        comparator=radius**2 / (2 * eta),
        gradient=eta * lipschitz**2 * rounds / 2,
        consensus=apart * lipschitz * rounds if nodes > 1 else 0.0,
        kernels=math.log(kernels) / rate,
        weights=rate * rounds / 8 if kernels > 1 else 0.0,
    )


@dataclass(frozen=True)
class Explanation:
    """The numbers of the theory for one setting; ``str()`` gives a page in plain words.

    Attributes
    ----------
    nodes, links, weights
        The network and the rule of its gossip weights.
    rho, beta, delta, gamma_star, c
        Spectral gap, |I - W|, the quantizer's contraction, and what Lemma 1 makes of them.
    gamma, halving
        The step used, and the rounds it takes to halve the disagreement where nothing disturbs it.
    rounds, lipschitz, radius, terms
        T, L, R, and the bound on the regret.
    trivial
        What the predictor f = 0 loses in all rounds; nan where that depends on the data.
    beyond
        What the setting has that the bound does not know; where there is something, its terms are nan.
    assumptions
        What the bound supposes, and whether it is so.
    """

    nodes: int
    links: int
    weights: str
    rho: float
    beta: float
    delta: float
    gamma_star: float
    c: float
    gamma: float
    halving: float
    rounds: int
    lipschitz: float
    radius: float
    terms: RegretTerms
    trivial: float
    beyond: tuple[str, ...]
    assumptions: tuple[Assumption, ...]

    @property
    def vacuous(self) -> bool:
        """Whether the bound allows more regret than always predicting f = 0 can have."""
        return not self.terms.total < (math.inf if math.isnan(self.trivial) else self.trivial)

    def __str__(self) -> str:
        marks = {True: "yes", False: "NO", None: "depends"}
        told = [f"  {marks[one.holds]:<8} {one.statement}: {one.why}" for one in self.assumptions]
        return "\n".join([*self._network(), "", *self._bound(), "", "Assumptions", *told])

    def _network(self) -> list[str]:
        if self.nodes == 1:
            return ["Network: one node; there is nothing to agree on, and nothing is sent."]
        halves = f"about {max(1, round(self.halving)):,}" if math.isfinite(self.halving) else "no number of"
        mixing = f"disagreement halves in {halves} rounds where nothing disturbs it; there are {self.rounds:,}"
        return [
            f"Network: {self.nodes:,} nodes, {self.links:,} links, {self.weights} weights",
            f"  rho     {self.rho:<9.3g} spectral gap: 1 agrees in one exact round, near 0 hardly ever",
            f"  beta    {self.beta:<9.3g} |I - W|: how hard one round of mixing pulls",
            f"  delta   {self.delta:<9.3g} the share of a message's energy that surely arrives: 1 is exact",
            f"  gamma*  {self.gamma_star:<9.3g} the step of Lemma 1, as printed",
            f"  c       {self.c:<9.3g} the share of squared disagreement a round is to remove; it fits gamma*/rho",
            f"  gamma   {self.gamma:<9.3g} the step used: {mixing}",
        ]

    def _bound(self) -> list[str]:
        if self.beyond:
            return [f"There is no regret bound for this setting: the theory knows no {', no '.join(self.beyond)}."]
        names = {
            "comparator": "|theta*|^2 / (2 eta), the way from zero to the comparator",
            "gradient": "eta L^2 T / 2, gradient steps of a fixed size",
            "consensus": "(2 sqrt(2) / c) eta L^2 T, nodes that have not agreed",
            "kernels": "ln P / eta_w, finding the best kernel",
            "weights": "eta_w T / 8, weights that keep moving",
        }
        terms = [f"  {value:<9.3g} {names[name]}" for name, value in self.terms._asdict().items()]
        head = f"Regret bound over T = {self.rounds:,} rounds, L = {self.lipschitz:.4g}, |theta*| <= {self.radius:g}"
        return [head, *terms, f"  {self.terms.total:<9.3g} in all", self._verdict()]

    def _verdict(self) -> str:
        if math.isinf(self.lipschitz):
            return "There is no bound: the gradient of this loss is not bounded (a Lipschitz loss has one: logistic)."
        if math.isinf(self.terms.total):
            cause = "rho is zero" if self.rho == 0 else "delta is not positive"
            return f"The bound is vacuous: {cause}, so Lemma 1 does not promise that nodes ever agree."
        if self.vacuous:
            less = f"always predicting f = 0 loses {self.trivial:.4g} in these rounds, less than the regret it allows"
            return f"The bound is vacuous: {less}. It says nothing about this run, good or bad."
        share = f"{self.terms.total / self.trivial:.2g} of the {self.trivial:.4g} that always predicting f = 0 loses"
        return f"The bound says something, if its assumptions hold: the regret is at most {share}."


def explain(
    topology: Any,
    nodes: int | None = None,
    *,
    weights: str = "metropolis",
    quantizer: Contraction | float | None = None,
    features: int = 20,
    kernels: int = 3,
    rounds: int = 1000,
    eta: float = 0.01,
    gamma: float | Literal["auto"] = 0.009,
    momentum: float = 0.0,
    weight_rate: float | None = None,
    regularization: float = 1e-3,
    loss: "str | losses.Loss" = "logistic",
    radius: float = 1.0,
    sent: int | None = None,
    share: float = 1.0,
    beyond: Sequence[str] = (),
) -> Explanation:
    """Return what the theory says of a network, a quantizer and a setting; print it for a page in plain words.

    Parameters
    ----------
    topology, nodes, weights
        As in ``omkl.topology.build``.
    quantizer
        Anything with ``delta(n)``, or delta itself; None is exact.
    features
        D; vectors of length 2D are quantized, if ``sent`` does not say otherwise.
    kernels, rounds, eta, gamma, momentum, weight_rate, regularization, loss
        P, T and the settings of the method; ``weight_rate=None`` takes ``eta``.
    radius
        |theta*| of the comparator, and the R within which models are taken to stay.
    sent
        How many numbers are sent of a model; None is 2D.
    share
        In what share of the rounds the kernel is sent that is sent least.
    beyond
        Names of what else the setting has, such as a basis, for which there is no bound.

    Examples
    --------
    >>> page = explain("path", 20, quantizer=0.184)
    >>> f"{page.rho:.4f} {page.gamma_star:.1e} {page.c:.1e} {page.vacuous}"
    '0.0082 1.7e-06 1.5e-07 True'
    """
    network, loss = build(topology, nodes, weights), losses.named(loss)
    given: Any = 1.0 if quantizer is None else quantizer
    _check(features=(features, 1, math.inf), regularization=(regularization, 0, math.inf), momentum=(momentum, 0, 1))
    n = 2 * features if sent is None else sent
    delta = given if isinstance(given, (int, float)) else given.delta(n)
    # Of a quantizer with a delta alone it is taken that it shrinks.
    shrinking = Tracking(delta, (1 - delta) / max(delta, SMALLEST))
    followed = tracking(given, n) if delta > 0 and hasattr(given, "quantize") else shrinking
    auto = stable_step(network, seldom(followed, share), momentum)
    gamma = auto if gamma == "auto" else gamma
    _check(gamma=(gamma, 0, 1))
    rho, pull, usable = spectral_gap(network), beta(network), max(0.0, delta)
    gamma_star, c = consensus_step(rho, pull, usable), contraction(rho, usable)
    lipschitz = loss.lipschitz + 2 * regularization * radius
    terms = regret_terms(nodes=network.nodes, rounds=rounds, eta=eta, lipschitz=lipschitz, c=c, radius=radius,
                         kernels=kernels, weight_rate=weight_rate)  # fmt: skip
    terms = RegretTerms(*[math.nan] * len(terms)) if beyond else terms
    start = _start(loss)
    consensus = () if network.nodes == 1 else _consensus_assumptions(network, rho, delta, gamma, gamma_star, auto)
    return Explanation(
        network.nodes, len(network.graph.edges), network.rule, rho, pull, delta, gamma_star, c, gamma,
        _halving(network, gamma, momentum), rounds, lipschitz, radius, terms, rounds * start, tuple(beyond),
        consensus + _loss_assumptions(loss, start, regularization, radius),
    )  # fmt: skip


def _check(**values: tuple[float, float, float]) -> None:
    for name, (value, low, high) in values.items():
        if not low <= value <= high:
            span = f"at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
            raise InputError(f"{name} is {value}; it must be {span}; correct {name}")


def _halving(network: Topology, gamma: float, momentum: float) -> float:
    """Return the rounds in which x += v, v = momentum v + gamma (W - I) x halves the distance to the mean."""

    def slowest(end: float) -> float:  # the larger root of z^2 - (1 + m - gamma end) z + m
        half = abs(1 + momentum - gamma * end) / 2
        return half + math.sqrt(half**2 - momentum) if half**2 > momentum else math.sqrt(momentum)

    factor = max(slowest(end) for end in network.ends)
    return math.inf if factor >= 1 else math.log(2) / -math.log(max(factor, 1e-300))


def _start(loss: losses.Loss) -> float:
    """Return C(0, y) where it is the same for every y, else nan."""
    if math.isinf(loss.lipschitz):
        return math.nan
    outputs = getattr(loss, "classes", 1)
    if outputs is None:
        raise InputError("softmax without its number of classes; the bound needs it; pass loss=Softmax(classes=10)")
    return float(loss.value(np.zeros(outputs), np.eye(outputs)[0]))


def _consensus_assumptions(
    network: Topology, rho: float, delta: float, gamma: float, gamma_star: float, auto: float
) -> tuple[Assumption, ...]:
    lowest = float(min(network.weights.min(), network.self_weights.min()))
    smallest, largest = network.ends
    gap = f"l_2 = {1 - smallest:.4g}, l_J = {1 - largest:.4g}" + ("" if rho > 0 else "; use metropolis weights")
    sent = f"delta = {delta:.3g}" + ("" if delta > 0 else "; rescale it, take more levels, or quantize in blocks")
    step = f'gamma = {gamma:.3g}, gamma* = {gamma_star:.3g}; "auto" is {auto:.2g}, stable in experiment, without proof'
    return (
        Assumption("the network is connected", True, "checked when it was built"),
        Assumption("W is symmetric and its rows sum to one", True, "by construction"),
        Assumption("W has no negative entry", lowest > -1e-12, f"the smallest on a link or the diagonal: {lowest:.3g}"),
        Assumption("the spectral gap is positive", rho > 0, gap),
        Assumption("the quantizer is a contraction", delta > 0, sent),
        Assumption("the step is Lemma 1's", gamma_star > 0 and math.isclose(gamma, gamma_star, rel_tol=0.01), step),
    )


def _loss_assumptions(loss: losses.Loss, start: float, regularization: float, radius: float) -> tuple[Assumption, ...]:
    bounded = math.isfinite(loss.lipschitz)
    highest = start + loss.lipschitz * radius + regularization * radius**2
    known = type(loss) in losses.LOSSES.own.values()
    gradient = {
        False: f"the {loss.name} loss has no Lipschitz constant",
        True: "K alone: there is no regularization",
        None: f"it needs |theta| <= {radius:g}, and nothing projects theta there",
    }
    gradient_holds = None if bounded and regularization > 0 else bounded
    inside = None if math.isnan(start) or start <= 1 < highest else highest <= 1
    start_text = "depends on the data" if math.isnan(start) else f"starts at {start:.3g}"
    range_text = f"{start_text}, at most {highest:.3g} for |theta| <= {radius:g}" if bounded else start_text
    name = loss.name if known else f"{loss.name}, not one of ours"
    return (
        Assumption("the loss is convex in theta", known or None, name),
        Assumption("gradients are bounded by L", gradient_holds, gradient[gradient_holds]),
        Assumption("losses lie in [0, 1] (Lemma 2, Hedge)", inside, range_text),
    )
