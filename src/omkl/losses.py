"""Losses C(f, y) of the outputs f: value, derivative, curvature, and their constants.

Outputs and targets have shape ``(..., C)``. ``encode`` turns a user's labels into targets and refuses labels outside
the loss's domain.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from omkl import registry
from omkl.arrays import Array, namespace
from omkl.errors import InputError, positive, whole
from omkl.registry import Registry

MOST_CLASSES = 1000  # that are inferred from labels: a larger one is more likely an identifier


class Loss(Protocol):
    """What a loss must have.

    A loss of classes may also have ``probabilities``, as ``Logistic`` and ``Softmax`` do; a node's answers tell them.

    ``lipschitz`` is K, the bound on the derivative's norm, and ``smoothness`` the bound on the curvature; ``inf`` where
    there is none.
    """

    name: ClassVar[str]
    smoothness: ClassVar[float]

    @property
    def lipschitz(self) -> float:
        """K."""

    def encode(self, labels: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return targets ``(..., C)`` for a user's labels."""

    def value(self, f: Array, y: Array) -> Array:
        """Return C(f, y), shape ``(...)``."""

    def derivative(self, f: Array, y: Array) -> Array:
        """Return the gradient in f, shape ``(..., C)``."""

    def curvature(self, f: Array, y: Array) -> Array:
        """Return the Hessian in f, shape ``(..., C, C)``."""

    def decide(self, f: Array) -> Array:
        """Return the label that outputs f stand for, shape ``(...)``, or ``(..., C)`` in regression."""

    def score(self, f: Array, y: Array) -> Array:
        """Return 1.0 where the decision is the target's, else 0.0; nan in regression."""


class TwoClasses:
    """Labels -1 and +1, and outputs whose sign decides."""

    name: ClassVar[str]

    def encode(self, labels: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return labels -1 and +1 as targets ``(..., 1)``."""
        labels = _numeric(labels)
        rule = f"{self.name} loss takes labels -1 and +1; for 0 and 1 pass 2*y-1, else try loss softmax or squared"
        _refuse(labels, np.isin(labels, (-1, 1)), rule)
        return labels[..., None].astype(np.float32)

    def decide(self, f: Array) -> Array:
        """Return +1 where f >= 0, else -1."""
        xp = namespace(f)
        return 2 * xp.astype(f[..., 0] >= 0, xp.int32) - 1

    def score(self, f: Array, y: Array) -> Array:
        """Return 1.0 where y f > 0; an output of zero decides nothing and counts one half."""
        xp = namespace(f)
        return (1 + xp.sign(y[..., 0] * f[..., 0])) / 2


@dataclass(frozen=True)
class Logistic(TwoClasses):
    """Two classes, labels -1 and +1: C(f, y) = ln(1 + exp(-y f)), summed over outputs."""

    name: ClassVar[str] = "logistic"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25

    def probabilities(self, f: npt.ArrayLike) -> dict[int, float]:
        """Return the probability of each label, for the output ``(1,)`` of one input.

        >>> Logistic().probabilities([0.0])
        {-1: 0.5, 1: 0.5}
        """
        margin = float(np.asarray(f, dtype=np.float64)[0])
        return {label: float(_sigmoid(np, label * margin)) for label in (-1, 1)}

    def value(self, f: Array, y: Array) -> Array:
        """Return ln(1 + exp(-y f)), without overflow at any margin."""
        xp = namespace(f)
        return xp.sum(_softplus(xp, -y * f), axis=-1)

    def derivative(self, f: Array, y: Array) -> Array:
        """Return -y / (1 + exp(y f))."""
        return -y * _sigmoid(namespace(f), -y * f)

    def curvature(self, f: Array, y: Array) -> Array:
        """Return s(1-s) with s = 1/(1 + exp(-f)), on the diagonal."""
        xp = namespace(f)
        e = xp.exp(-xp.abs(f))
        return _diagonal(xp, e / ((1 + e) * (1 + e)))


@dataclass(frozen=True)
class SmoothedHinge(TwoClasses):
    """Two classes, labels -1 and +1: the hinge max(0, 1 - y f), rounded off by a parabola between margins 0 and 1.

    References
    ----------
    J. D. M. Rennie, "Smooth hinge classification", 2005.
    """

    name: ClassVar[str] = "smoothed_hinge"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 1.0

    def value(self, f: Array, y: Array) -> Array:
        """Return (1 - m)^2 / 2 for margins m = y f from 0 to 1, 1/2 - m below, and nothing above."""
        xp = namespace(f)
        short = xp.clip(1 - y * f, 0, None)
        return xp.sum(xp.where(short <= 1, short * short / 2, short - 0.5), axis=-1)

    def derivative(self, f: Array, y: Array) -> Array:
        """Return -y times what the margin lacks of one, at most one."""
        return -y * namespace(f).clip(1 - y * f, 0, 1)

    def curvature(self, f: Array, y: Array) -> Array:
        """Return 1 for margins between 0 and 1, else 0."""
        xp, margin = namespace(f), y * f
        return _diagonal(xp, xp.astype((margin > 0) & (margin < 1), f.dtype))


@dataclass(frozen=True)
class Softmax:
    """Several classes, labels 0 ... C-1: C(f, y) = ln sum_k exp(f_k) - f_y, targets one-hot.

    Attributes
    ----------
    classes
        Number of classes, C. None takes the largest label plus one; real nodes need the number.
    """

    classes: int | None = None

    name: ClassVar[str] = "softmax"
    lipschitz: ClassVar[float] = math.sqrt(2)
    smoothness: ClassVar[float] = 0.5

    def __post_init__(self) -> None:
        if self.classes is not None:
            object.__setattr__(self, "classes", whole("classes", self.classes, 2))

    def encode(self, labels: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return class numbers as one-hot targets ``(..., C)``; C is ``classes`` or the largest label plus one."""
        labels = _numeric(labels)
        classes = self.classes or int(np.clip(labels.max(initial=0) + 1, 2, MOST_CLASSES))
        rule = f"softmax loss takes whole labels 0 ... {classes - 1}; number the classes from 0, or set classes="
        _refuse(labels, (labels >= 0) & (labels < classes) & (labels == np.floor(labels)), rule)
        return np.asarray(np.eye(classes, dtype=np.float32)[labels.astype(int)])

    def probabilities(self, f: npt.ArrayLike) -> dict[int, float]:
        """Return the probability of each label, for the outputs ``(C,)`` of one input."""
        return dict(enumerate(_softmax(np, np.asarray(f, dtype=np.float64)).tolist()))

    def value(self, f: Array, y: Array) -> Array:
        """Return ln sum_k exp(f_k) - f_y, without overflow."""
        xp = namespace(f)
        top = xp.max(f, axis=-1, keepdims=True)
        return xp.log(xp.sum(xp.exp(f - top), axis=-1)) + top[..., 0] - xp.sum(f * y, axis=-1)

    def derivative(self, f: Array, y: Array) -> Array:
        """Return softmax(f) - y."""
        return _softmax(namespace(f), f) - y

    def curvature(self, f: Array, y: Array) -> Array:
        """Return diag(s) - s s^T with s = softmax(f)."""
        xp = namespace(f)
        s = _softmax(xp, f)
        return _diagonal(xp, s) - s[..., :, None] * s[..., None, :]

    def decide(self, f: Array) -> Array:
        """Return the class of the largest output."""
        return namespace(f).argmax(f, axis=-1)

    def score(self, f: Array, y: Array) -> Array:
        """Return 1.0 where the largest output is the target's."""
        xp = namespace(f)
        return xp.astype(xp.argmax(f, axis=-1) == xp.argmax(y, axis=-1), xp.float32)


@dataclass(frozen=True)
class _Regression:
    """Real targets, one output or several, which are the decision themselves.

    Attributes
    ----------
    outputs
        Number of values that are predicted.
    """

    outputs: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", whole("outputs", self.outputs))

    def encode(self, labels: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Return real targets ``(..., C)``; for one output the axis is added, for several it is there already."""
        labels = _numeric(labels)
        if self.outputs == 1:
            labels = labels[..., None]
        elif labels.shape[-1] != self.outputs:
            raise InputError(
                f"targets have shape {labels.shape}; {type(self).__name__}(outputs={self.outputs}) needs a last axis "
                "of as many; stack them"
            )
        return labels.astype(np.float32)

    def decide(self, f: Array) -> Array:
        """Return the outputs themselves, the last axis dropped where there is one output."""
        return f[..., 0] if f.shape[-1] == 1 else f

    def score(self, f: Array, y: Array) -> Array:
        """Return nan: accuracy has no meaning in regression."""
        xp = namespace(f)
        return xp.full(f.shape[:-1], xp.nan, dtype=xp.float32)


@dataclass(frozen=True)
class Squared(_Regression):
    """Regression on one output or several: C(f, y) = |f - y|^2."""

    name: ClassVar[str] = "squared"
    lipschitz: ClassVar[float] = math.inf
    smoothness: ClassVar[float] = 2.0

    def value(self, f: Array, y: Array) -> Array:
        """Return |f - y|^2."""
        return namespace(f).sum((f - y) ** 2, axis=-1)

    def derivative(self, f: Array, y: Array) -> Array:
        """Return 2 (f - y)."""
        return 2 * (f - y)

    def curvature(self, f: Array, y: Array) -> Array:
        """Return twice the identity."""
        xp = namespace(f)
        return _diagonal(xp, 2 * xp.ones_like(f))


@dataclass(frozen=True)
class Huber(_Regression):
    """Regression that outliers move little: squared errors up to ``delta``, and beyond it their tangent.

    C(f, y) is the sum over outputs of r^2, or 2 delta |r| - delta^2 where |r| = |f - y| exceeds ``delta``: a delta
    without bound is ``Squared``.

    Attributes
    ----------
    delta
        The error beyond which the loss grows linearly; 1 suits targets of deviation 1.
    """

    delta: float = 1.0

    name: ClassVar[str] = "huber"
    smoothness: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "delta", positive("delta", self.delta, "1 suits targets of deviation 1"))

    @property
    def lipschitz(self) -> float:
        """2 delta for one output; more of them, as their root."""
        return 2 * self.delta * math.sqrt(self.outputs)

    def value(self, f: Array, y: Array) -> Array:
        """Return the sum over outputs of r^2, or 2 delta |r| - delta^2."""
        xp = namespace(f)
        far = xp.abs(f - y)
        near = xp.clip(far, None, self.delta)
        return xp.sum(near * (2 * far - near), axis=-1)

    def derivative(self, f: Array, y: Array) -> Array:
        """Return 2 (f - y), within 2 delta."""
        return 2 * namespace(f).clip(f - y, -self.delta, self.delta)

    def curvature(self, f: Array, y: Array) -> Array:
        """Return 2 on the diagonal for errors of at most delta, and 0 beyond."""
        xp = namespace(f)
        return _diagonal(xp, 2 * xp.astype(xp.abs(f - y) <= self.delta, f.dtype))


LOSSES: Registry[type[Loss]] = Registry(
    "omkl.losses", {loss.name: loss for loss in (Logistic, SmoothedHinge, Softmax, Squared, Huber)}
)


def named(loss: str | Loss) -> Loss:
    """Return the loss of that name, or the loss itself."""
    found: Loss = registry.named("loss", loss, LOSSES, Loss, "omkl.Softmax(classes=3)")
    return found


def guess(loss: Loss) -> float | None:
    """Return what always guessing all classes alike loses; None in regression, or where the classes are not known.

    >>> round(guess(Logistic()), 2), round(guess(Softmax(4)), 2), guess(Squared())
    (0.69, 1.39, None)
    """
    classes = getattr(loss, "classes", 1)
    nothing = np.zeros(classes or 1, dtype=np.float32)
    if classes is None or isinstance(loss, _Regression) or math.isnan(float(loss.score(nothing, nothing))):
        return None
    return float(loss.value(nothing, np.asarray(loss.encode([1]))[0]))


def _numeric(labels: npt.ArrayLike) -> npt.NDArray[np.float64]:
    try:
        values = np.asarray(labels, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"labels of type {np.asarray(labels).dtype}; labels must be numbers; encode them first"
        ) from None
    _refuse(values, np.isfinite(values), "labels must be finite; drop or fill these rows")
    return values


def _refuse(labels: npt.NDArray[np.float64], good: npt.NDArray[np.bool_], rule: str) -> None:
    if not good.all():
        where = tuple(int(i) for i in np.argwhere(~good)[0])
        raise InputError(f"label {labels[where]:g} at index {where}; {rule}")


def _softplus(xp: Array, m: Array) -> Array:
    return xp.maximum(m, 0.0) + xp.log1p(xp.exp(-xp.abs(m)))


def _sigmoid(xp: Array, m: Array) -> Array:
    e = xp.exp(-xp.abs(m))
    return xp.where(m >= 0, 1.0, e) / (1 + e)


def _softmax(xp: Array, f: Array) -> Array:
    e = xp.exp(f - xp.max(f, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def _diagonal(xp: Array, values: Array) -> Array:
    outputs = values.shape[-1]
    return values[..., None] if outputs == 1 else values[..., None] * xp.eye(outputs, dtype=values.dtype)
