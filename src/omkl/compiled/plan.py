"""Which methods the compiled loops know, and the numbers that they take of one."""

import math
from typing import Any

import numpy as np

from omkl.arrays import Array
from omkl.compiled import learners, rounds
from omkl.compiled.learners import LEARNERS
from omkl.compiled.losses import LOSSES
from omkl.compiled.quantizers import QUANTIZERS
from omkl.compiled.sizes import prices
from omkl.learners import Pooled, Shared
from omkl.learners.rules import LOGISTIC, STEEPEST
from omkl.losses import Huber
from omkl.methods import Choco, Gossip, Local, Method, Mixing
from omkl.methods.ensemble import Ensemble
from omkl.quantizers import QSGD, Nearest


def unknown_part(method: Method) -> str | None:
    """Return which part of a method has no compiled text; None where the loops know them all."""
    if type(method) not in (Gossip, Choco, Local) or getattr(method, "fresh", False):
        return f"method {method.name}"
    assert isinstance(method, Ensemble)
    if method.weights.first:
        return "weigh_first"
    for part, known in ((method.learner, LEARNERS), (method.objective, LOSSES)):
        if type(part) not in known:
            return type(part).__name__
    return _unknown_talk(method) if isinstance(method, Gossip) else None


def _unknown_talk(method: Gossip) -> str | None:
    """Return which part of what nodes say to each other has no compiled text."""
    if type(method.mixing) is not Mixing:
        return f"mixing {method.mixing.name}"
    if method.channel.sending is not None:
        return f"sending {method.channel.sending.name}"
    quantizer = method.channel.quantizer
    return None if type(quantizer) in QUANTIZERS else type(quantizer).__name__


def gossiping(method: Ensemble) -> Gossip:
    """Return the method that learns alike and could gossip: of one that does not, the loops run no such rounds."""
    if isinstance(method, Gossip):
        return method
    parts = {name: getattr(method, name) for name in ("bank", "loss", "regularization", "learner")}
    return Gossip(**parts, weight_rate=method.hedge_rate, quantizer=None)


def rule(method: Any, spectrum: Array | None) -> learners.Rule:
    """Return the numbers of a method's learner and loss, for features of this spectrum ``(P, n)``."""
    learner, loss, f = method.learner, method.objective, np.float32
    bound = min(loss.smoothness, STEEPEST)
    prior = learner.priors[0] * LOGISTIC / bound if isinstance(learner, Pooled) else getattr(learner, "prior", 0.0)
    spread = np.zeros((0, 0), f) if spectrum is None else f(prior) * np.asarray(spectrum, f)
    priors = np.array(getattr(learner, "priors", (1.0,)), f)
    return learners.Rule(
        kind=LEARNERS.index(type(learner)),
        loss=LOSSES.index(type(loss)),
        delta=f(loss.delta if isinstance(loss, Huber) else 0),
        bound=f(bound),
        is_bounded=math.isfinite(loss.lipschitz),
        eta=f(getattr(learner, "eta", 0)),
        decays=getattr(learner, "decay", "none") == "sqrt",
        regularization=f(method.regularization),
        forget=f(getattr(learner, "forget", 1)),
        curvature=f(learner.c * max(1.0, bound / LOGISTIC) if isinstance(learner, Shared) else 0),
        variance=spread,
        priors=priors / priors[0],
    )


def numbers(given: Ensemble, outputs: int, spectrum: Array | None) -> rounds.Method:
    """Return what the loops take of a method, for models of so many outputs."""
    method = gossiping(given)
    channel, f, m = method.channel.quantizer, np.float32, method.sent
    length = getattr(channel, "block", None) or m
    most, scale = 0.0, 1.0
    if isinstance(channel, QSGD):
        most, scale = channel.levels, channel.tau(length)
    elif isinstance(channel, Nearest):
        most, scale = channel.most(length), channel.step / math.sqrt(length)
    cap = given.loss_gap_cap
    return rounds.Method(
        kernels=method.members,
        outputs=outputs,
        n=method.bank.width,
        m=m,
        is_common=method.weights.common,
        tells=method.told > 0,
        gamma=f(method.mixing.step),
        momentum=f(method.mixing.momentum),
        quantizer=QUANTIZERS.index(type(channel)),
        most=f(most),
        scale=f(scale),
        block=length,
        has_reach=method.reach is not None,
        knots=np.array((1.0,) if method.reach is None else method.reach.knots, f),
        hedge_rate=f(method.hedge_rate),
        loss_gap_cap=f(math.inf if cap is None else cap),
        rule=rule(method, spectrum),
        prices=prices(channel, method.members * outputs, m),
    )
