"""What every method here shares: a bank of kernels, a loss, a learner, and the local half of a round."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from omkl import algorithm, calibration, compressors, landmarks, losses, scaling
from omkl.arrays import Array, namespace
from omkl.calibration import SIGMA, Basis
from omkl.errors import InputError, pick, real, whole
from omkl.features import Features, Kernel, gaussian
from omkl.landmarks import Landmarks
from omkl.learners import SGD, Learner, Memory
from omkl.losses import Loss
from omkl.methods.protocol import Info, Method, Round
from omkl.quantizers import QSGD, Message, Quantizer
from omkl.wire import message_bytes

M = TypeVar("M", bound=Method)


@dataclass(frozen=True, kw_only=True)
class Ensemble:
    """A weighted ensemble of random-feature kernel models.

    Attributes
    ----------
    kernels
        The bank, such as ``gaussian(1, 3, 5)``.
    features
        D, spectral samples per kernel; a model has 2D coefficients.
    orthogonal
        Whether each d frequencies of a radial kernel (Gaussian, Matérn) are orthogonal: a better estimate of the kernel
        from as many. Those of other kernels are independent either way.
    basis
        Learn in a basis of fewer coordinates: ``Landmarks(rank=120)``, similarities to unlabelled inputs by all kernels
        at once, of which there is then one model; or ``Basis(rank=160)``, of each kernel's random features; None learns
        the 2D coefficients.
    sigma
        What the bandwidths of the kernels are in: ``"given"``, the units of the inputs, or ``"median"``, the median
        distance between inputs, as ``omkl.calibration`` finds it.
    eta
        Learning rate of the models.
    regularization
        lambda, the weight of |theta|^2 in the loss that is learned.
    loss
        ``"logistic"``, ``"smoothed_hinge"``, ``"softmax"``, ``"squared"``, ``"huber"``, or an object; None is the one
        that suits a data set known by name, and logistic otherwise.
    weight_rate
        Rate of the kernel weights; None takes ``eta``, as the letter does.
    learner
        The local update rule; None is the letter's gradient step at rate ``eta``.
    weigh_first
        Score the ensemble with weights that have already seen the sample, in the order the letter prints. For
        comparison only: the score is then no longer a prediction.
    """

    endures_faults: ClassVar[bool] = True

    kernels: tuple[Kernel, ...] = gaussian(1, 3, 5)
    features: int = 20
    orthogonal: bool = False
    basis: Basis | Landmarks | None = None
    sigma: Literal["given", "median"] = "given"
    eta: float = 0.01
    regularization: float = 1e-3
    loss: Loss | str | None = None
    weight_rate: float | None = None
    learner: Learner | None = None
    weigh_first: bool = False

    def __post_init__(self) -> None:
        kernels = self.kernels if isinstance(self.kernels, Sequence) else (self.kernels,)
        if not kernels or not all(isinstance(kernel, Kernel) for kernel in kernels):
            raise InputError(f"kernels is {self.kernels!r}; a bank is one kernel or more; try omkl.gaussian(1, 3, 5)")
        object.__setattr__(self, "kernels", tuple(kernels))
        object.__setattr__(self, "features", whole("features", self.features))
        self._check_basis()
        for name in ("eta", "regularization", "weight_rate"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None and name == "weight_rate" else real(name, value))
        if not 0 <= self.regularization < math.inf:
            raise InputError(f"regularization is {self.regularization}; lambda must be >= 0 and finite; try 1e-3")
        if self.weight_rate is not None and not 0 <= self.weight_rate < math.inf:
            raise InputError(f"weight_rate is {self.weight_rate}; it must be >= 0 and finite; None takes eta")
        SGD(self.eta)
        _ = self.objective

    def _check_basis(self) -> None:
        pick("sigma", self.sigma, SIGMA)
        if self.basis is None:
            return
        if not isinstance(self.basis, Basis | Landmarks):
            raise InputError(
                f"basis is {self.basis!r}; it must say how many directions to keep; pass omkl.Landmarks(rank=120)"
            )
        if isinstance(self.basis, Basis) and self.basis.rank > 2 * self.features:
            raise InputError(
                f"basis.rank is {self.basis.rank}; {self.features} features span {2 * self.features} directions; lower "
                "the rank or raise features"
            )

    @property
    def members(self) -> int:
        """P, the models of a node: one for each kernel, or one on landmarks."""
        return 1 if isinstance(self.basis, Landmarks) else len(self.kernels)

    @property
    def views(self) -> int:
        """In how many ways a model is read, and weighed."""
        return int(getattr(self.rule, "views", 1))

    @property
    def labels(self) -> list[str]:
        """What the weights are of: kernels, or priors on landmarks."""
        bank = [f"{kernel.name} {kernel.sigma:g}" for kernel in self.kernels]
        readings = [f"prior {one:g}" for one in getattr(self.rule, "priors", ())]
        if self.members < len(bank):
            return readings or ["landmarks"]
        return [f"{kernel}, {one}" for kernel in bank for one in readings] if self.views > 1 else bank

    @property
    def width(self) -> int:
        """The coefficients of one model and output: 2D, or the rank of the basis."""
        return 2 * self.features if self.basis is None else self.basis.rank

    @property
    def objective(self) -> Loss:
        """The loss C."""
        return losses.named("logistic" if self.loss is None else self.loss)

    @property
    def rule(self) -> Learner:
        """The local update rule."""
        return SGD(self.eta) if self.learner is None else self.learner

    @property
    def hedge_rate(self) -> float:
        """The rate of the kernel weights."""
        return self.eta if self.weight_rate is None else self.weight_rate

    @property
    def most_apart(self) -> float | None:
        """How much more than the best one a kernel can lose by a sample, for its weight; None sets no bound."""
        return None

    @property
    def has_bounded_slope(self) -> bool:
        """Whether a single sample moves weights by so much at most."""
        return math.isfinite(self.objective.lipschitz)

    @property
    def sent(self) -> int:
        """The numbers that are sent of a model."""
        return self.width

    def draw(
        self, dimension: int, seed: int, X: Array | None = None, standardize: bool = False, y: Array | None = None
    ) -> Features:
        """Return the features of a seed, calibrated on rows of inputs X ``(..., d)`` where asked for.

        Their targets y ``(..., C)`` are looked at by labelled landmarks alone.
        Those that nodes standardize are given as they come, and standardized here: the rows that are taken, by
        themselves.
        """
        basis = self.basis
        count = calibration.rows(basis, self.sigma)
        sample = None if X is None or not count else calibration.sample(X, count, seed)
        if sample is not None:
            sample = scaling.standardize_rows(sample) if standardize else sample.astype(np.float32)
        if isinstance(basis, Landmarks):
            targets = None if y is None or not count else calibration.sample(y, count, seed)
            return landmarks.place(self.kernels, dimension, seed, sample, basis, self.sigma, targets)
        settings = basis, self.sigma, self.orthogonal
        return calibration.calibrate(self.kernels, self.features, dimension, seed, sample, *settings)

    def zeros(self, xp: Any, leading: tuple[int, ...], outputs: int) -> Array:
        """Return the models to start from, ``(J, ..., P, C, 2D)``."""
        return xp.zeros((*leading, self.members, outputs, self.width), dtype=xp.float32)

    def equal_weights(self, theta: Array) -> Array:
        """Return the log weights to start from, ``(J, ..., P V)``."""
        return namespace(theta).zeros((*theta.shape[:-3], self.members * self.views), dtype=theta.dtype)

    def readings(self, memory: Memory) -> Array | None:
        """Return what coefficients are multiplied by in every reading, ``(J, ..., P, V, n)``; None if there is one."""
        return self.rule.read(memory) if self.views > 1 else None  # type: ignore[attr-defined]

    def read(self, theta: Array, memory: Memory) -> Array:
        """Return the models as they are weighed, each in all its readings, ``(J, ..., P V, C, n)``."""
        readings = self.readings(memory)
        if readings is None:
            return theta
        every = theta[..., None, :, :] * readings[..., None, :]
        return namespace(theta).reshape(every, (*theta.shape[:-3], -1, *theta.shape[-2:]))

    def observe(
        self, theta: Array, log_weights: Array, memory: Memory, inputs: Round
    ) -> tuple[Array, Array, Memory, Info]:
        """Return models, log weights, memory and info after predicting, weighing and learning one sample."""
        loss, lam = self.objective, self.regularization
        readings = self.readings(memory)
        output, outputs = algorithm.predict(theta, log_weights, inputs.z, readings)
        if readings is None:
            losses = algorithm.kernel_losses(theta, outputs, inputs.y, loss, lam)
        else:
            losses = loss.value(outputs, inputs.y[..., None, :])
        if inputs.weight is not None:
            losses = inputs.weight[..., None] * losses
        weighed = algorithm.weigh(log_weights, losses, self.hedge_rate, self.most_apart)
        if self.weigh_first:
            told = algorithm.predict(theta, weighed, inputs.z, readings).output
            info = self.score(told, theta, weighed, inputs.y)
        else:
            info = self.score(output, theta, log_weights, inputs.y)
        info = info._replace(readings=readings)
        own = outputs[..., :: self.views, :]  # of the models as they are learned, the first reading of each
        given = own, inputs.z, inputs.y, loss, lam, self.rule, inputs.weight, inputs.reach, inputs.alike
        theta, memory = algorithm.learn(theta, memory, *given)
        return theta, weighed, memory, info

    def score(self, output: Array, theta: Array, log_weights: Array, y: Array) -> Info:
        """Return the prediction of every node and its loss; nothing is sent."""
        loss = self.objective.value(output, y)
        return Info(output, loss, theta, log_weights, namespace(loss).zeros_like(loss))


@dataclass(frozen=True, kw_only=True)
class Quantized(Ensemble):
    """An ensemble whose nodes send each other quantized vectors.

    Attributes
    ----------
    quantizer
        ``QSGD(bits=3)`` is the letter's; None sends exact float32.
    """

    quantizer: Quantizer | str | None = field(default=QSGD(bits=3))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.channel.check(self.sent)

    @property
    def channel(self) -> Quantizer:
        """The quantizer in use."""
        return compressors.named(self.quantizer)

    @property
    def dithered(self) -> bool:
        """Whether the quantizer needs uniforms."""
        return self.channel.dithered

    def charge(self, info: Info, message: Message) -> Info:
        """Return the info with the size of the messages that were sent."""
        return info._replace(message_bytes=message_bytes(message, self.channel))


def for_inputs(method: M, columns: int) -> M:
    """Return the method for inputs of so many columns: where they are few, landmarks have fewer coordinates."""
    if not isinstance(method, Ensemble) or not isinstance(method.basis, Landmarks):
        return method
    return replace(method, basis=method.basis.within(columns))


def suited(method: Method, loss: Loss | str | None) -> Method:
    """Return the method with a loss that suits the data, where it has none of its own."""
    unsaid = isinstance(method, Ensemble) and method.loss is None and loss is not None
    return replace(method, loss=loss) if unsaid else method  # type: ignore[type-var]
