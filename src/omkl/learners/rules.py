"""Local update rules: what a node does with the gradient of its own sample.

``SGD`` and ``AdaGrad`` are first-order rules: they follow the gradient of the regularized loss. ``Newton`` and
``Shared`` are second-order rules: they have a prior instead of lambda, and follow the gradient of the sample alone.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from omkl.arrays import Array, is_exactly, is_nowhere, namespace
from omkl.errors import InputError, positive, real, whole
from omkl.losses import Loss

Memory: TypeAlias = tuple[Array, ...]
"""What a learner keeps from round to round: a tuple of arrays; empty for the paper's rule."""

FLOOR = 0.01  # of the curvature: a logistic sample that is surely wrong has next to none, and would be overshot
LOGISTIC = 0.25  # the largest curvature of the logistic loss, for which the settings of Shared are meant
TINY = 1e-20  # of z.Sz, where z is next to nothing
STEEPEST = 1e3  # curvature of a loss that states no bound
HALVINGS = 8  # of the logarithm of a step's length; with the interpolation after them it is right to a percent
NARROW = 1.02  # interval of that length which is halved no more: interpolation is as good as after all halvings


class Sample(NamedTuple):
    """A sample as second-order rules see it: its loss as a function of the outputs."""

    outputs: Array
    """f_p, ``(..., P, C)``."""
    y: Array
    """The target, ``(..., 1, C)``."""
    loss: Loss
    weight: Array | None = None
    """How many samples this one counts as, ``(...)``; None is one. The gradient already contains the weight."""
    reach: Array | None = None
    """How many nodes' samples a step counts for, ``(...)``; None is one, the node's own."""
    alike: Array | None = None
    """How alike those samples are, ``(..., P)``, from 0 to 1; None is 0, not at all."""

    def derivative(self, outputs: Array) -> Array:
        """Return C' at these outputs, ``(..., P, C)``, times the weight."""
        slope = self.loss.derivative(outputs, self.y)
        return slope if self.weight is None else self.weight[..., None, None] * slope

    def curvature(self) -> Array:
        """Return C'' at the outputs of the sample, ``(..., P, C, C)``, without the weight."""
        return self.loss.curvature(self.outputs, self.y)


M = TypeVar("M", bound=Memory)


class Rule(Protocol[M]):
    """What an update rule must have. Its memory is a NamedTuple of arrays, or a tuple."""

    name: ClassVar[str]
    has_prior: ClassVar[bool]
    """Whether the rule has a prior instead of lambda. The gradient is then that of the sample's loss alone."""

    def init(self, theta: Array, spectrum: Array | None = None) -> M:
        """Return the first memory; ``spectrum`` has the eigenvalues of a calibrated basis, ``(..., P, n)``."""

    def update(self, theta: Array, memory: M, gradient: Array, z: Array, sample: Sample) -> tuple[Array, M]:
        """Return the new theta and memory.

        ``gradient`` is the gradient of the loss in theta, ``(..., P, C, n)``; ``z`` are the features of the sample,
        ``(..., P, n)``.
        """


Learner: TypeAlias = Rule[Any]
"""An update rule with any memory."""


@dataclass(frozen=True)
class SGD:
    """The paper's rule: theta' = theta - eta grad L(theta).

    Attributes
    ----------
    eta
        The learning rate.
    decay
        ``"none"`` keeps the rate, as the paper does; ``"sqrt"`` takes eta / sqrt(t) for a node's sample t.
    """

    eta: float = 0.01
    decay: Literal["none", "sqrt"] = "none"

    name: ClassVar[str] = "sgd"
    has_prior: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta", positive("eta", self.eta, "the paper uses 0.01", "a learning rate"))
        if self.decay not in ("none", "sqrt"):
            raise InputError(f"decay is {self.decay!r}; it must be 'none' or 'sqrt'; the paper's is 'none'")

    def init(self, theta: Array, spectrum: Array | None = None) -> Memory:
        """Return a count of zero samples; nothing if the rate is constant."""
        return () if self.decay == "none" else (no_samples(theta),)

    def update(self, theta: Array, memory: Memory, gradient: Array, z: Array, sample: Sample) -> tuple[Array, Memory]:
        """Return theta - eta * gradient, or theta - eta / sqrt(t) * gradient."""
        if self.decay == "none":
            return theta - self.eta * gradient, memory
        count = memory[0] + 1
        rate = self.eta / namespace(theta).sqrt(count[..., None, None, None])
        return theta - rate * gradient, (count,)


@dataclass(frozen=True)
class AdaGrad:
    """A rate for every coefficient: theta' = theta - eta g / sqrt(sum of all g^2 so far, this one's included).

    Attributes
    ----------
    eta
        The learning rate before it is divided by what each coefficient has seen.

    References
    ----------
    J. Duchi, E. Hazan, Y. Singer, "Adaptive subgradient methods for online learning and stochastic optimization", JMLR
    12 (2011).
    """

    eta: float = 1.0

    name: ClassVar[str] = "adagrad"
    has_prior: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta", positive("eta", self.eta, "try 1", "a learning rate"))

    def init(self, theta: Array, spectrum: Array | None = None) -> Memory:
        """Return the sum of squares, zero."""
        return (namespace(theta).zeros_like(theta),)

    def update(self, theta: Array, memory: Memory, gradient: Array, z: Array, sample: Sample) -> tuple[Array, Memory]:
        """Return the models after a step; a coefficient with no gradient other than zero so far stays."""
        xp = namespace(theta)
        squares = memory[0] + gradient * gradient
        return theta - self.eta * gradient / xp.sqrt(xp.where(squares > 0, squares, xp.ones_like(squares))), (squares,)


class NewtonMemory(NamedTuple):
    """What ``Newton`` keeps."""

    root: Array
    """R with S = R R^T, in B blocks, ``(..., P, C, B, b, b)``."""
    trace: Array
    """The trace of S at the start, ``(..., P, C)``."""


@dataclass(frozen=True)
class Newton:
    """Online Newton steps, kernel by kernel: learns fast, where nodes see similar data.

    It is an extended Kalman filter on theta. S starts as prior * I. With s = C''(f, y), each sample does
    a = 1 / (1 + s z.Sz), theta' = theta - a C' S z, and S' = S - a s (Sz)(Sz)^T. Under the squared loss theta is the
    ridge solution of all samples so far.

    Each node measures a curvature of its own. Where nodes see different data, their models settle away from the common
    optimum; ``Shared`` and ``Pooled`` do not have this problem.

    Attributes
    ----------
    prior
        Variance of a coefficient before any sample, in the place of lambda: ridge's is 1 / (2 lambda).
    forget
        What is known along a sample's direction is multiplied by this before the sample is learned, so that old samples
        fade. 1 forgets nothing; for data that change abruptly, try 0.9 to 0.97.
    block
        Keep S as blocks of this many coefficients, if n x n numbers a kernel are too many; None keeps it whole.

    Notes
    -----
    The memory is R with S = R R^T, in Potter's form: R' = R - a s / (1 + sqrt(a)) (R r) r^T with r = R^T z. So S stays
    symmetric and has no negative eigenvalue, in float32 too. Each output has its own S. Its curvature is the sum of the
    magnitudes in its row of C'': this diagonal is an upper bound of C'', and is C'' itself for one output. Curvature
    has a floor of 0.01.

    Forgetting adds (1/forget - 1) (Sz)(Sz)^T / z.Sz to S. This makes 1 / z.Sz smaller by that much, and changes nothing
    else. If all of S were divided, directions that samples seldom show would soon be forgotten, and most directions of
    a kernel's features are such. If the trace of S exceeds that of the prior, all of S shrinks.

    References
    ----------
    R. Kulhavy, "Restricted exponential forgetting in real-time identification", Automatica 23 (1987).
    """

    prior: float = 10.0
    forget: float = 1.0
    block: int | None = None

    name: ClassVar[str] = "newton"
    has_prior: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", positive("prior", self.prior, "try 10"))
        object.__setattr__(self, "forget", forgetting(self.forget))
        if self.block is not None:
            object.__setattr__(self, "block", whole("block", self.block))

    def init(self, theta: Array, spectrum: Array | None = None) -> NewtonMemory:
        """Return R for S = prior * I, or for prior * diag(spectrum), which is the same thing in a calibrated basis."""
        xp, length = namespace(theta), theta.shape[-1]
        block = self.block or length
        if length % block:
            raise InputError(f"block is {block}; a model has {length} coefficients; use a divisor of them")
        variance = xp.full(theta.shape, self.prior, dtype=theta.dtype)
        if spectrum is not None:
            variance = variance * xp.asarray(spectrum, dtype=theta.dtype)[..., None, :]
        diagonal = xp.reshape(xp.sqrt(variance), (*theta.shape[:-1], length // block, block))
        return NewtonMemory(diagonal[..., None] * xp.eye(block, dtype=theta.dtype), xp.sum(variance, axis=-1))

    def update(
        self, theta: Array, memory: NewtonMemory, gradient: Array, z: Array, sample: Sample
    ) -> tuple[Array, NewtonMemory]:
        """Return theta - a S * gradient, and R after the sample."""
        xp = namespace(theta)
        root = memory.root
        rows = root.shape[:-1]
        z = xp.reshape(xp.broadcast_to(z[..., None, :], theta.shape), rows)
        seen = xp.sum(root * z[..., None], axis=-2)
        slope = xp.sum(root * xp.reshape(gradient, rows)[..., None], axis=-2)
        step = xp.reshape(xp.sum(root * slope[..., None, :], axis=-1), theta.shape)
        s = _diagonal(xp, sample.curvature())
        if sample.weight is not None:
            s = sample.weight[..., None, None, None] * s
        energy = xp.sum(seen * seen, axis=-1)
        total = xp.sum(energy, axis=-1, keepdims=True)
        a = 1 / (self.forget + s * total)
        keeps = is_exactly(self.forget, 1)
        shown = s * a if keeps else a * (s - (1 - self.forget) / xp.clip(total, TINY, None))
        # Blocks get the diagonal blocks of S'. With one of them what is left of its direction is a, but for rounding.
        left = xp.maximum(1 - shown * energy, xp.clip(a, None, 1))
        gain = (shown / (1 + xp.sqrt(left)))[..., None, None]
        moved = xp.sum(root * seen[..., None, :], axis=-1)
        root = root - gain * moved[..., :, None] * seen[..., None, :]
        return theta - a * step, NewtonMemory(root if keeps else _bounded(root, memory.trace), memory.trace)


def _bounded(root: Array, most: Array) -> Array:
    """Return R, or less of it where the trace of S would exceed that of the start."""
    xp = namespace(root)
    trace = xp.sum(root * root, axis=(-3, -2, -1))
    share = xp.clip(most / xp.where(trace > 0, trace, xp.ones_like(trace)), None, 1)
    return root * xp.sqrt(share)[..., None, None, None]


class SharedMemory(NamedTuple):
    """What ``Shared`` keeps."""

    count: Array
    """t, the number of samples that a node has learned, ``(...)``; it may differ between nodes."""
    spectrum: Array
    """m, the eigenvalues of the basis, ``(..., P, n)``."""


@dataclass(frozen=True)
class Shared:
    """The same curvature at every node, known in advance from a calibrated basis. Nothing is sent for it.

    In whitened coordinates, E z z^T = I, the curvature is diagonal and grows with the number of samples t alone:
    S_i = 1 / (1/(prior m_i) + c t). A sample does theta' = argmin C(theta'.z, y) + |theta' - theta|^2 / 2 in the metric
    of 1/S. This is a step along S z that never overshoots. Nodes with equal S settle at the common optimum, even where
    they see different data.

    Attributes
    ----------
    prior
        Variance of a coefficient of the features before any sample, in the place of lambda.
    c
        Curvature of a sample, on average; the rule counts on it and does not measure it.
    forget
        Each sample multiplies the count of earlier samples by this, so that steps never get smaller than those after
        1 / (1 - forget) samples. 1 forgets nothing; use less for data that drift.

    Notes
    -----
    The step is theta' = theta - r S z C'(f, y). r lies in (0, 1] and is found by halving; for a quadratic loss r is
    1 / (1 + C'' z.Sz). With several outputs, r is the best along that direction. c is meant for the logistic loss, with
    a curvature of at most 1/4; for a loss that curves more, c grows in proportion. A coordinate with eigenvalue zero
    never moves.
    """

    prior: float = 100.0
    c: float = 0.05
    forget: float = 1.0

    name: ClassVar[str] = "shared"
    has_prior: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, usual in (("prior", "try 100"), ("c", "try 0.05")):
            object.__setattr__(self, name, positive(name, getattr(self, name), usual))
        object.__setattr__(self, "forget", forgetting(self.forget))

    def init(self, theta: Array, spectrum: Array | None = None) -> SharedMemory:
        """Return a count of zero samples, and the spectrum."""
        return SharedMemory(no_samples(theta), white(theta, spectrum, self.name))

    def update(
        self, theta: Array, memory: SharedMemory, gradient: Array, z: Array, sample: Sample
    ) -> tuple[Array, SharedMemory]:
        """Return theta - r S * gradient, and the memory with one more sample."""
        count = self.forget * memory.count + (1 if sample.weight is None else sample.weight)
        bound = min(sample.loss.smoothness, STEEPEST)
        variance = self.prior * memory.spectrum
        shared = variance / (1 + self.c * max(1.0, bound / LOGISTIC) * count[..., None, None] * variance)
        energy = namespace(theta).sum(shared * z * z, axis=-1, keepdims=True)
        steepest = bound if sample.weight is None else bound * sample.weight[..., None, None]
        step = length(sample, energy, steepest)[..., None]
        return theta - step * shared[..., None, :] * gradient, SharedMemory(count, memory.spectrum)


def length(sample: Sample, energy: Array, bound: Array | float) -> Array:
    """Return the r that minimizes C(f - r q C') + r^2 q |C'|^2 / 2 for q = z.Sz, ``(..., P, 1)``.

    Its derivative rises in r; with a curvature of at most ``bound`` it is negative at 1 / (1 + bound q), and at 1 it is
    not, C being convex.
    """
    xp, slope = namespace(energy), sample.derivative(sample.outputs)
    squares = xp.sum(slope * slope, axis=-1, keepdims=True)

    def rise(length: Array) -> Array:
        there = sample.derivative(sample.outputs - length * energy * slope)
        return length * squares - xp.sum(slope * there, axis=-1, keepdims=True)

    low, high = 1 / (1 + bound * energy), xp.ones_like(energy)
    for _ in range(HALVINGS):
        wide, middle = high >= NARROW * low, xp.sqrt(low * high)
        if is_nowhere(wide):
            break
        beyond = rise(middle) >= 0
        low, high = xp.where(wide & ~beyond, middle, low), xp.where(wide & beyond, middle, high)
    below, above = -rise(low), rise(high)
    total = below + above
    share = below / xp.where(total > 0, total, 1.0)
    return low + xp.clip(share, 0, 1) * (high - low)


def forgetting(value: float) -> float:
    """Return a rate of forgetting; refuse one that is none."""
    rate = real("forget", value)
    if not 0.5 <= rate <= 1:
        raise InputError(f"forget is {rate}; it must lie in [0.5, 1]; 1 forgets nothing, else try 0.999")
    return rate


def white(theta: Array, spectrum: Array | None, learner: str) -> Array:
    """Return the eigenvalues of a basis for every model, ``(..., P, n)``; refuse features that have none."""
    if spectrum is None:
        raise InputError(
            f"the features have no spectrum; the {learner} learner needs a calibrated basis, whose coordinates are "
            "white; use Landmarks or Basis, or the learner Newton"
        )
    xp = namespace(theta)
    shape = (*theta.shape[:-2], theta.shape[-1])
    return xp.zeros(shape, dtype=theta.dtype) + xp.asarray(spectrum, dtype=theta.dtype)


def no_samples(theta: Array) -> Array:
    """Return zero samples for every node; beyond 2^24 of them float32 counts no further, which no rule here minds."""
    return namespace(theta).zeros(theta.shape[:-3], dtype=theta.dtype)


def _diagonal(xp: Any, curvature: Array) -> Array:
    """Return a diagonal that the curvature ``(..., P, C, C)`` does not exceed, above the floor, ``(..., P, C, 1)``."""
    return xp.clip(xp.sum(xp.abs(curvature), axis=-1, keepdims=True), FLOOR, None)
