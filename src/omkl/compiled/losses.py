"""Losses C(f, y), their slopes and curvatures, as ``omkl.losses`` states them; a loss is its place in a list."""

import numpy as np

from omkl import losses
from omkl.compiled.arithmetic import HALF, ONE, TWO, ZERO, dot, exp, highest, log1p
from omkl.compiled.jit import Floats, inner
from omkl.losses import Loss

LOSSES: tuple[type[Loss], ...] = (losses.Logistic, losses.Squared, losses.Softmax, losses.SmoothedHinge, losses.Huber)
LOGISTIC, SQUARED, SOFTMAX, HINGE, HUBER = range(len(LOSSES))


@inner
def value(kind: int, delta: np.float32, f: Floats, y: Floats) -> np.float32:
    """Return C(f, y); ``delta`` is Huber's."""
    total = ZERO
    if kind == SOFTMAX:
        top = highest(f)
        for k in range(len(f)):
            total += exp(f[k] - top)
        return np.log(total) + top - dot(f, y)
    for k in range(len(f)):
        if kind == LOGISTIC:
            margin = -y[k] * f[k]
            total += max(margin, ZERO) + log1p(exp(-abs(margin)))
        elif kind == HINGE:
            short = max(ONE - y[k] * f[k], ZERO)
            total += HALF * short * short if short <= ONE else short - HALF
        else:
            far = abs(f[k] - y[k])
            near = far if kind == SQUARED else min(far, delta)
            total += near * (TWO * far - near)
    return total


@inner
def derivative(kind: int, delta: np.float32, f: Floats, y: Floats, slope: Floats) -> None:
    """Write C'(f, y); ``slope`` may be f itself."""
    if kind == SOFTMAX:
        softmax(f, slope)
        for k in range(len(f)):
            slope[k] -= y[k]
        return
    for k in range(len(f)):
        if kind == LOGISTIC:
            margin = y[k] * f[k]
            e = exp(-abs(margin))
            slope[k] = -y[k] * (e if margin >= 0 else ONE) / (ONE + e)
        elif kind == HINGE:
            slope[k] = -y[k] * min(max(ONE - y[k] * f[k], ZERO), ONE)
        else:
            far = f[k] - y[k]
            slope[k] = TWO * (far if kind == SQUARED else min(max(far, -delta), delta))


@inner
def curvatures(kind: int, delta: np.float32, f: Floats, y: Floats, bent: Floats) -> None:
    """Write the diagonal of C''(f, y)."""
    if kind == SOFTMAX:
        softmax(f, bent)
        for k in range(len(f)):
            bent[k] *= ONE - bent[k]
        return
    for k in range(len(f)):
        if kind == LOGISTIC:
            e = exp(-abs(f[k]))
            bent[k] = e / ((ONE + e) * (ONE + e))
        elif kind == HINGE:
            margin = y[k] * f[k]
            bent[k] = ONE if ZERO < margin < ONE else ZERO
        else:
            bent[k] = TWO if kind == SQUARED or abs(f[k] - y[k]) <= delta else ZERO


@inner
def softmax(f: Floats, shares: Floats) -> None:
    """Write shares in proportion to the exponentials, which add up to one."""
    top, total = highest(f), ZERO
    for k in range(len(f)):
        shares[k] = exp(f[k] - top)
        total += shares[k]
    for k in range(len(f)):
        shares[k] /= total


@inner
def score(kind: int, f: Floats, y: Floats) -> np.float32:
    """Return 1.0 where the decision is the target's, else 0.0; nan in regression."""
    if kind == SQUARED or kind == HUBER:  # noqa: SIM109 - for which a tuple is compiled
        return np.float32(np.nan)
    if kind == SOFTMAX:
        best = target = 0
        for k in range(1, len(f)):
            best = k if f[k] > f[best] else best
            target = k if y[k] > y[target] else target
        return ONE if best == target else ZERO
    return (ONE + np.sign(y[0] * f[0])) * HALF
