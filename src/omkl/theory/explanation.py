"""What the theory says of a given network, as a page in plain words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from omkl import losses
from omkl.display import counted
from omkl.errors import InputError
from omkl.methods import Gossip, named
from omkl.methods.consensus_step import TRIAL, Tracking, drifts, seldom, stable_step, tracking
from omkl.theory.bounds import (
    SMALLEST,
    Contraction,
    RegretTerms,
    beta,
    consensus_step,
    contraction,
    gossip_factor,
    printed_terms,
    regret_terms,
    spectral_gap,
)
from omkl.topology import Topology, build

BEYOND = {
    "basis": "a basis",
    "learner": "a learner other than plain gradient steps",
    "common_weights": "kernel weights that nodes share",
    "reach": "steps that count for several nodes",
    "momentum": "momentum",
    "clip": "clipping",
    "pace": "a pace of gossip",
    "sending": "a rule of sending",
}  # by setting: what the theory does not cover
ROUNDS = 1000  # where nothing says how many
TAKEN = "take recommended, frugal, paper or gossip"  # of the methods
UNPROVED = ("momentum", "clip", "sending")  # mixing of another kind, of which no contraction is proved


class Assumption(NamedTuple):
    """What a bound supposes; ``holds`` is None where it depends on the run."""

    statement: str
    holds: bool | None
    why: str


@dataclass(frozen=True)
class Explanation:
    """The numbers of the theory for one setting; ``str()`` gives a page in plain words.

    Attributes
    ----------
    nodes, links, weights
        The network and the rule of its gossip weights.
    rho, beta, delta, gamma_star
        Spectral gap, |I - W|, the quantizer's contraction, and the largest step with a proof that nodes agree.
    gamma, c, factor
        The step used, the share of squared disagreement that it surely removes a round, zero where nothing is proved,
        and the factor by which it multiplies the gradient term at most, whatever the spectral gap.
    halving
        The rounds it takes to halve the disagreement where nothing disturbs it.
    rounds, lipschitz, radius, terms
        T, L, R, and the bound on the regret.
    printed
        The terms of the paper's Theorem 1 as printed, for its own step.
    trivial
        What the predictor f = 0 loses in all rounds; nan where that depends on the data.
    beyond
        What the setting has that the bound does not know; where there is something, its terms are nan.
    assumptions
        What the bound supposes, and whether it is so.
    auto
        The step that ``gamma="auto"`` takes.
    drifts
        Whether nodes drifted apart at this step in a trial of mixing without samples; None if it was not tried, as on
        large networks and with clipping or a rule of sending.
    assumed
        Whether nothing said how many rounds there are.
    """

    nodes: int
    links: int
    weights: str
    rho: float
    beta: float
    delta: float
    gamma_star: float
    gamma: float
    c: float
    factor: float
    halving: float
    rounds: int
    lipschitz: float
    radius: float
    terms: RegretTerms
    printed: RegretTerms
    trivial: float
    beyond: tuple[str, ...]
    assumptions: tuple[Assumption, ...]
    auto: float
    drifts: bool | None = None
    assumed: bool = False

    @property
    def largest(self) -> float:
        """The step below which f is finite."""
        missed = math.sqrt(1 - self.delta) if self.delta > 0 else 1.0
        kappa = (missed / (1 - missed)) ** 2 if missed < 1 else math.inf
        # The root of s = x (1 + kappa x) = 1, x = gamma beta.
        return 2 / (1 + math.sqrt(1 + 4 * kappa)) / self.beta if self.beta > 0 else math.inf

    @property
    def vacuous(self) -> bool:
        """Whether the bound allows more regret than always predicting 0 can have."""
        return not self.terms.total < (math.inf if math.isnan(self.trivial) else self.trivial)

    def __str__(self) -> str:
        marks = {True: "yes", False: "NO", None: "depends"}
        told = [f"  {marks[one.holds]:<8} {one.statement}: {one.why}" for one in self.assumptions]
        return "\n".join([self._answer(), "", *self._network(), "", *self._bound(), "", "Assumptions", *told])

    def _answer(self) -> str:
        """Return what it comes to, in one sentence or two."""
        if math.isnan(self.terms.total):
            regret = "No bound on what they lose is known for this method."
        elif self.vacuous:
            regret = "The bound on what they lose is too large to say anything."
        else:
            regret = "What they lose is bounded."
        if self.nodes == 1:
            return regret.replace("they lose", "it loses")
        if self.delta <= 0:
            told = f"delta is {self.delta:.3g} and must be positive, or gossip diverges"
            return f"A simulation refuses this setting: {told}."
        if self.drifts:
            return f"{self._too_large()} {regret}"
        agree = "It is proved that these nodes agree" if self.c else "Nothing is proved about whether these nodes agree"
        mixing = f"disagreement halves in {self._halves()} rounds where nothing disturbs it"
        return f"{agree}; by the graph, {mixing}. {regret}"

    def _too_large(self) -> str:
        trial = f"in a trial of {TRIAL} rounds without samples these nodes drifted apart"
        trial += f" ({self._own_rounds()})" if self.rounds < TRIAL and not self.assumed else ""
        return f'gamma = {self.gamma:.3g} is too large: {trial}; take a smaller one, "auto" is {self.auto:.2g}.'

    def _own_rounds(self) -> str:
        return f"you have {counted(self.rounds, 'round')}"

    def _halves(self) -> str:
        return f"about {max(1, round(self.halving)):,}" if math.isfinite(self.halving) else "no number of"

    def _network(self) -> list[str]:
        if self.nodes == 1:
            return ["Network: one node; there is nothing to agree on, and nothing is sent."]
        mixing = f"disagreement halves in {self._halves()} rounds where nothing disturbs it"
        mixing += f"; {self.rounds:,} rounds assumed (--rounds, rounds=)" if self.assumed else f"; {self._own_rounds()}"
        if self.delta <= 0:
            mixing = "refused, as delta is not positive"
        elif self.drifts is not None:
            trial = f"in a trial of {TRIAL} rounds without samples"
            mixing = (
                f"too large, nodes drifted apart {trial}" if self.drifts else f"{mixing}; nodes stayed together {trial}"
            )
        without = _names(_unproved(self.beyond))
        largest = "the largest step with a proof that nodes agree"
        largest += f" without {without}; with it no step has one" if without else ""
        surely = "the share of squared disagreement that a round surely removes"
        harm = "gossip multiplies the gradient term by at most this, whatever rho is"
        harm = harm if math.isfinite(self.factor) else "what gossip costs has no bound at this step"
        auto = f'  auto    {self.auto:<9.3g} the step of gamma = "auto": stable in experiment, without proof'
        return [
            f"Network: {self.nodes:,} nodes, {self.links:,} links, {self.weights} weights",
            f"  rho     {self.rho:<9.3g} spectral gap: 1 agrees in one exact round, near 0 hardly ever",
            f"  beta    {self.beta:<9.3g} |I - W|: how hard one round of mixing pulls",
            f"  delta   {self.delta:<9.3g} the share of a message's energy that surely arrives: 1 is exact",
            f"  gamma*  {self.gamma_star:<9.3g} {largest}",
            f"  gamma   {self.gamma:<9.3g} the step used: {mixing}",
            *([auto] if self.delta > 0 else []),
            f"  c       {self.c:<9.3g} {surely}" + ("" if self.c else "; nothing is proved at this step"),
            f"  f       {self.factor:<9.3g} {harm}",
        ]

    def _bound(self) -> list[str]:
        if self.beyond:
            return [f"There is no regret bound for this setting: the theory does not cover {_names(self.beyond)}."]
        by_factor = (self.factor - 1) * self.terms.gradient <= self.terms.consensus
        names = {
            "comparator": "|theta*|^2 / (2 eta): the way from zero to the comparator",
            "gradient": "eta L^2 T / 2: gradient steps of a fixed size",
            "consensus": "(f - 1) eta L^2 T / 2: what gossip may cost"
            if by_factor
            else "(2 sqrt(2) / c) eta L^2 T: nodes that have not agreed",
            "kernels": "ln P / eta_w: finding the best kernel",
            "weights": "eta_w T / 8: weights that keep moving",
        }
        ours, printed = self.terms._asdict(), self.printed._asdict()
        rows = [f"  {ours[name]:<9.3g} {printed[name]:<9.3g} {text}" for name, text in names.items()]
        head = f"Regret bound over T = {self.rounds:,} rounds, L = {self.lipschitz:.4g}, |theta*| <= {self.radius:g}"
        columns = "  ours      printed   printed: the paper's Theorem 1 at its own step; a part of its proof fails"
        total = f"  {self.terms.total:<9.3g} {self.printed.total:<9.3g} in all"
        return [head, columns, *rows, total, self._verdict()]

    def _verdict(self) -> str:
        if math.isinf(self.lipschitz):
            return "There is no bound: the gradient of this loss is not bounded (a Lipschitz loss has one: logistic)."
        if math.isinf(self.terms.total):
            cause = (
                "delta is not positive"
                if self.delta <= 0
                else f"gamma is above gamma*, and f is finite only for steps below {self.largest:.2g}"
            )
            return f"There is no bound: {cause}."
        if self.vacuous:
            less = f"always predicting 0 loses {self.trivial:.4g} in these rounds, less than the regret it allows"
            return f"The bound is vacuous: {less}. It says nothing about this run, good or bad."
        share = f"{self.terms.total / self.trivial:.2g} of the {self.trivial:.4g} that always predicting 0 loses"
        return f"The bound says something, if its assumptions hold: the regret is at most {share}."


def explain(
    topology: Any,
    nodes: int | None = None,
    *,
    weights: str = "metropolis",
    quantizer: Contraction | float | None = None,
    features: int | None = None,
    kernels: int | None = None,
    rounds: int | None = None,
    eta: float | None = None,
    gamma: float | Literal["auto"] | None = None,
    momentum: float | None = None,
    weight_rate: float | None = None,
    regularization: float | None = None,
    loss: "str | losses.Loss | None" = None,
    radius: float = 1.0,
    sent: int | None = None,
    share: float | None = None,
    beyond: Sequence[str] = (),
    method: Any = None,
) -> Explanation:
    """Return what the theory says of a network and a method; print it for a page in plain words.

    Without a method it is about the default method. Settings change the method, as on the command line.

    Parameters
    ----------
    topology, nodes, weights
        As in ``omkl.topology.build``.
    quantizer
        Anything with ``delta(n)``, or delta itself, where 1 is exact; None is the method's.
    features, eta, gamma, momentum, weight_rate, regularization, loss
        Settings of the method that differ.
    kernels, rounds
        P and T; without them as many kernels as the method has, and a thousand rounds.
    radius
        |theta*| of the comparator, and the R within which models are taken to stay.
    sent
        How many numbers are sent of a model, if not those of the method.
    share
        In what share of the rounds the kernel is sent that is sent least, if not in that of the method.
    beyond
        Names of what else the setting has, for which there is no bound.
    method
        A ``Gossip``, or the name of a preset; None is the default.

    Examples
    --------
    >>> f"{explain('ring', 20).halving:.0f} rounds halve the disagreement"
    '20 rounds halve the disagreement'
    >>> page = explain("path", 20, method="paper", quantizer=0.184)
    >>> f"{page.rho:.4f} {page.gamma_star:.1e} {page.c:.1e} {page.vacuous}"
    '0.0082 2.1e-04 0.0e+00 False'
    """
    own = {"features": features, "eta": eta, "gamma": gamma, "momentum": momentum, "weight_rate": weight_rate,
           "regularization": regularization}  # fmt: skip
    method = named(method)
    if type(method) is not Gossip:
        raise InputError(f"method: {method.name} given; the theory is of gossip; {TAKEN}")
    method = method.replace(**{name: value for name, value in own.items() if value is not None})
    gamma, momentum, regularization = method.mixing.gamma, method.mixing.momentum, method.regularization
    network, loss = build(topology, nodes, weights), losses.named(loss or method.objective)
    given: Any = method.channel.quantizer if quantizer is None else quantizer
    kernels = method.members if kernels is None else kernels
    share = method.channel.least_share(method.members) if share is None else share
    n = method.sent if sent is None else sent
    length = ROUNDS if rounds is None else rounds
    beyond = (*(name for name in BEYOND if method.settings()[name]), *beyond)
    delta = given if isinstance(given, (int, float)) else given.delta(n)
    # Of a quantizer with a delta alone it is taken that it shrinks.
    shrinking = Tracking(delta, (1 - delta) / max(delta, SMALLEST))
    followed = tracking(given, n) if delta > 0 and hasattr(given, "quantize") else shrinking
    auto = stable_step(network, seldom(followed, share), momentum)
    gamma = auto if gamma == "auto" else gamma
    rho, pull, usable = spectral_gap(network), beta(network), max(0.0, delta)
    proved = not _unproved(beyond)
    c = contraction(rho, pull, usable, gamma) if proved else 0.0
    factor = gossip_factor(pull, usable, gamma) if proved else math.inf
    lipschitz = loss.lipschitz + 2 * regularization * radius
    setting: Any = {"nodes": network.nodes, "rounds": length, "eta": method.eta, "lipschitz": lipschitz,
                    "radius": radius, "kernels": kernels}  # fmt: skip
    terms = regret_terms(c=c, factor=factor, weight_rate=method.weights.rate, **setting)
    start = _start(loss)
    page = Explanation(
        network.nodes, len(network.graph.edges), network.rule, rho, pull, delta, consensus_step(rho, pull, usable),
        gamma, c, factor, _halving(network, gamma, momentum), length, lipschitz, radius,
        RegretTerms(*[math.nan] * len(terms)) if beyond else terms, printed_terms(rho=rho, delta=usable, **setting),
        length * start, beyond, _loss_assumptions(loss, start, regularization, radius), auto,
        assumed=rounds is None,
    )  # fmt: skip
    if network.nodes == 1:
        return page
    tried = delta > 0 and hasattr(given, "quantize") and not {"clip", "sending"} & set(beyond)
    return replace(
        page,
        assumptions=_consensus_assumptions(network, page) + page.assumptions,
        drifts=drifts(network, given, n, gamma, momentum) if tried and not c else None,
    )


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


def _unproved(beyond: Sequence[str]) -> list[str]:
    """Return of what a setting has beyond the theory that with which no step has a proof that nodes agree."""
    return [name for name in UNPROVED if name in beyond]


def _names(beyond: Sequence[str]) -> str:
    return ", ".join(BEYOND.get(name, name) for name in beyond)


def _consensus_assumptions(network: Topology, page: Explanation) -> tuple[Assumption, ...]:
    smallest, largest = network.ends
    gap = f"l_2 = {1 - smallest:.4g}, l_J = {1 - largest:.4g}" + ("" if page.rho > 0 else "; use metropolis weights")
    sent = f"delta = {page.delta:.3g}"
    sent += "" if page.delta > 0 else "; rescale it, take more levels, or quantize in blocks"
    step = f"gamma = {page.gamma:.3g}, gamma* = {page.gamma_star:.3g}"
    low = f"gamma = {page.gamma:.3g}, f is finite below {page.largest:.3g}"
    unproved = _unproved(page.beyond)
    other = f"no proof with {_names(unproved)}"
    return (
        Assumption("the network is connected", True, "checked when it was built"),
        Assumption("W is symmetric and its rows sum to one", True, "by construction"),
        Assumption("the spectral gap is positive", page.rho > 0, gap),
        Assumption("the quantizer is a contraction", page.delta > 0, sent),
        Assumption("nodes surely agree: the step is at most gamma*", page.c > 0, other if unproved else step),
        Assumption(
            "gossip surely does little harm: f is finite", math.isfinite(page.factor), other if unproved else low
        ),
    )


def _loss_assumptions(loss: losses.Loss, start: float, regularization: float, radius: float) -> tuple[Assumption, ...]:
    bounded = math.isfinite(loss.lipschitz)
    highest = start + loss.lipschitz * radius + regularization * radius**2
    known = type(loss) in losses.LOSSES.own.values()
    gradient = {
        False: f"the {loss.name} loss has no Lipschitz constant",
        True: "there is no regularization",
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
        Assumption("losses lie in [0, 1] (for Hedge, Lemma 2)", inside, range_text),
    )
