"""What every method here shares: a bank of kernels, a loss, a learner, and the local half of a round."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

from omkl import algorithm, learners, losses
from omkl.arrays import Array, namespace
from omkl.errors import InputError, real
from omkl.learners import SGD, Learner, Memory
from omkl.losses import Logistic, Loss
from omkl.methods.bank import Bank
from omkl.methods.composed import Composed
from omkl.methods.protocol import Info, Method, Round
from omkl.methods.weights import Weights
from omkl.settings import Setting, brief
from omkl.topology import Topology

M = TypeVar("M", bound=Method)

USUAL_ETA = 0.01  # the paper's; what stands for eta where a learner has none


@dataclass(frozen=True, init=False, repr=False)
class Ensemble(Composed):
    """A weighted ensemble of kernel models.

    Attributes
    ----------
    bank
        Kernels and features: ``kernels``, ``features``, ``orthogonal``, ``basis``, ``sigma``; see ``Bank``.
    loss
        The loss that is learned and reported: a name, or an object such as ``omkl.Softmax(classes=3)``. None is the
        loss that suits a data set known by name, and logistic otherwise.
    regularization
        Weight of |theta|^2 in the loss that is learned, lambda.
    learner
        How a node learns from its own sample. None is the paper's gradient step, whose rate is ``eta``.
    weights
        How models are weighed: ``weight_rate``, ``weigh_first``; see ``Weights``.
    """

    endures_faults: ClassVar[bool] = True
    only_sgd: ClassVar[str] = ""
    """Why a method takes only gradient steps and no other learner; empty if it takes any."""

    bank: Bank = Bank()  # noqa: RUF009 - parts are frozen
    loss: Loss | None = None
    regularization: float = 1e-3
    learner: Learner = SGD(USUAL_ETA)  # noqa: RUF009
    weights: Weights = Weights()  # noqa: RUF009

    def _routed(self, made: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """Return the parts with eta: the rate of gradient steps, or of a learner that has one and is otherwise usual.

        Beside any other learner it is the rate of the weights, as in files of 0.1.
        """
        usual = type(self).learner
        learner: Any = usual if made["learner"] is None else learners.named(made["learner"])
        made["learner"] = learner
        if "eta" not in given:
            return made
        eta, own = given.pop("eta"), getattr(learner, "eta", USUAL_ETA)
        if learner == usual or (eta != USUAL_ETA and hasattr(learner, "eta") and learner == type(learner)()):
            made["learner"] = replace(learner, eta=eta)
        elif eta != own and made["weights"].rate is None:
            given.setdefault("weight_rate", eta)
        elif eta not in (own, USUAL_ETA):  # files of 0.1 spell the usual one out where it has no effect
            raise InputError(
                f"eta is {eta}; {brief(learner)} is a rule that has no such rate; leave eta out, or take another: "
                "learner=omkl.SGD(eta=1.0), or learner=None"
            )
        return made

    def replace(self, **changes: Any) -> Self:
        """Return the same with other parts or settings: ``omkl.recommended().replace(gamma=0.2)``."""
        if "eta" in changes and "learner" not in changes and isinstance(self.learner, SGD):
            changes["learner"] = replace(self.learner, eta=changes.pop("eta"))
        return super().replace(**changes)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "regularization", real("regularization", self.regularization))
        if not 0 <= self.regularization < math.inf:
            raise InputError(f"regularization is {self.regularization}; lambda must be >= 0 and finite; try 1e-3")
        if self.loss is not None:
            object.__setattr__(self, "loss", losses.named(self.loss))
        if self.only_sgd and self.learner != SGD(self.eta):
            raise InputError(f"learner is {self.learner}; {self.only_sgd}; leave learner out")

    @classmethod
    @cache
    def known(cls) -> Mapping[str, Setting]:
        """Return all settings by the names that files and flags give them."""
        found = dict(super().known())
        eta: float = cls.learner.eta  # type: ignore[attr-defined]
        found["eta"] = Setting("eta", float, eta, "Learning rate of gradient steps.")
        found["learner"] = found["learner"]._replace(hint=Learner | None, default=None)
        return {name: one for name, one in found.items() if name != "learner" or not cls.only_sgd}

    def _settings(self) -> Iterator[tuple[str, Any]]:
        for name, value in super()._settings():
            if name != "learner":
                yield name, value
            elif self.only_sgd:
                yield "eta", self.eta
            elif type(value) is SGD and value.decay == "none":
                yield from {"eta": value.eta, "learner": None}.items()
            else:
                yield from {"eta": self.eta, "learner": value}.items()

    @property
    def members(self) -> int:
        """P, the models of a node."""
        return self.bank.members

    @property
    def views(self) -> int:
        """In how many ways a model is read, and weighed."""
        return int(getattr(self.learner, "views", 1))

    @property
    def labels(self) -> list[str]:
        """What the weights are of: kernels, or priors on landmarks."""
        return self.bank.labels([f"prior {one:g}" for one in getattr(self.learner, "priors", ())])

    @property
    def objective(self) -> Loss:
        """The loss C."""
        return Logistic() if self.loss is None else self.loss

    @property
    def eta(self) -> float:
        """The rate of the learner, the paper's where it has none."""
        eta: float = getattr(self.learner, "eta", USUAL_ETA)
        return eta

    @property
    def hedge_rate(self) -> float:
        """The rate of the kernel weights."""
        if self.weights.rate is not None:
            return self.weights.rate
        return self.eta if isinstance(self.learner, SGD) else USUAL_ETA

    @property
    def loss_gap_cap(self) -> float | None:
        """How much more than the best one a kernel can lose by a sample, for its weight; None sets no bound."""
        return None

    @property
    def has_bounded_slope(self) -> bool:
        """Whether a single sample moves weights by so much at most."""
        return math.isfinite(self.objective.lipschitz)

    @property
    def sent(self) -> int:
        """The numbers that are sent of a model."""
        return self.bank.width

    @property
    def dithered(self) -> bool:
        """Whether ``step`` needs uniforms."""
        return False

    def check(self, topology: Topology) -> None:
        """Accept any network."""

    def equal_weights(self, theta: Array) -> Array:
        """Return the log weights to start from, ``(J, ..., P V)``."""
        return namespace(theta).zeros((*theta.shape[:-3], self.members * self.views), dtype=theta.dtype)

    def readings(self, memory: Memory) -> Array | None:
        """Return what coefficients are multiplied by in every reading, ``(J, ..., P, V, n)``; None if there is one."""
        return self.learner.read(memory) if self.views > 1 else None  # type: ignore[attr-defined]

    def read(self, theta: Array, memory: Memory) -> Array:
        """Return the models as they are weighed, each in all its readings, ``(J, ..., P V, C, n)``."""
        readings = self.readings(memory)
        if readings is None:
            return theta
        every = theta[..., None, :, :] * readings[..., None, :]
        return namespace(theta).reshape(every, (*theta.shape[:-3], -1, *theta.shape[-2:]))

    def models(self, state: Any) -> tuple[Array, Array]:
        """Return every node's models and log weights."""
        return self.read(state.theta, state.memory), state.log_weights

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
        weighed = algorithm.weigh(log_weights, losses, self.hedge_rate, self.loss_gap_cap)
        if self.weights.first:
            told = algorithm.predict(theta, weighed, inputs.z, readings).output
            info = self.score(told, theta, weighed, inputs.y)
        else:
            info = self.score(output, theta, log_weights, inputs.y)
        info = info._replace(readings=readings)
        own = outputs[..., :: self.views, :]  # of the models as they are learned, the first reading of each
        given = own, inputs.z, inputs.y, loss, lam, self.learner, inputs.weight, inputs.reach, inputs.alike
        theta, memory = algorithm.learn(theta, memory, *given)
        return theta, weighed, memory, info

    def score(self, output: Array, theta: Array, log_weights: Array, y: Array) -> Info:
        """Return the prediction of every node and its loss; nothing is sent."""
        loss = self.objective.value(output, y)
        return Info(output, loss, theta, log_weights, namespace(loss).zeros_like(loss))


def for_inputs(method: M, columns: int) -> M:
    """Return the method for inputs of so many columns: where they are few, landmarks have fewer coordinates."""
    return method.replace(bank=method.bank.within(columns)) if isinstance(method, Ensemble) else method


def suited(method: Method, loss: Loss | str | None) -> Method:
    """Return the method with a loss that suits the data, where it has none of its own."""
    unsaid = isinstance(method, Ensemble) and method.loss is None and loss is not None
    return method.replace(loss=loss) if unsaid else method
