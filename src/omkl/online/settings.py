"""How the estimators learn unless told otherwise: their defaults, in one place.

They are those of the network's default, ``omkl.recommended()``: the kernels, the rank, the learner. What differs is
beside it. In one place nothing is sent, so that models of several rates of forgetting cost nothing but time;
and targets are there when rows calibrate, so that columns can be weighed by what they say of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from omkl import learners
from omkl.errors import InputError, whole
from omkl.features import Kernel
from omkl.landmarks import Landmarks
from omkl.learners import Learner, Pooled
from omkl.learners.rules import forgetting
from omkl.methods import Local, Method, recommended
from omkl.online.tracking import Tracking

_NETWORK = recommended()
LEARNER = replace(_NETWORK.learner, priors=(600.0, 20.0))  # type: ignore[type-var]
"""The network's, with a prior that learns clean data sooner, digits .048 for .050: here nothing of it is sent."""

STAKES = 0.3, 0.1, 0.6
"""Of what forgets nothing, what forgets and the line: with more for what forgets, data that stand still pay for it."""
SHARPER = 1.75
"""Models that forget nothing are less sure than they could be: others would be preferred for being surer alone."""


@dataclass(frozen=True)
class Settings:
    """How to learn: the defaults of all estimators.

    Attributes
    ----------
    kernels
        Bandwidths are in units of the median distance between inputs.
    rank
        Directions of the similarities that are learned; fewer while fewer rows are known.
    learner
        The update rule. ``Pooled`` is hedged over rates of forgetting; others learn one model.
    forget
        One rate of forgetting, or several to choose from; None has those of ``Tracking`` in one place, and the
        learner's own in a network, where every model more would be sent.
    weight_rate
        Rate of the weights.
    warmup
        Rows to calibrate on. They are landmarks, of which the network's default has as many.
    """

    kernels: tuple[Kernel, ...] = _NETWORK.bank.kernels
    rank: int = _NETWORK.bank.basis.rank  # type: ignore[union-attr]
    learner: Learner = LEARNER
    forget: tuple[float, ...] | None = None
    weight_rate: float = _NETWORK.hedge_rate
    warmup: int = 512

    sigmas: ClassVar[tuple[float, ...]] = tuple(kernel.sigma for kernel in kernels)
    """The bandwidths of the default kernels."""

    @classmethod
    def of(
        cls,
        kernels: Sequence[float | Kernel] | float | Kernel = sigmas,
        rank: int = rank,
        learner: Learner | str | None = None,
        forget: float | Sequence[float] | None = None,
        weight_rate: float = weight_rate,
        warmup: int = warmup,
    ) -> Self:
        """Return settings as users give them: bandwidths for Gaussian kernels, and learners by name."""
        given = [kernels] if isinstance(kernels, int | float | Kernel) else kernels
        bank = tuple(kernel if isinstance(kernel, Kernel) else Kernel("gaussian", kernel) for kernel in given)
        rule = cls.learner if learner is None else learners.named(learner)
        several = forget if forget is None or isinstance(forget, Sequence) else (forget,)
        rates = None if several is None else tuple(sorted({forgetting(one) for one in several}, reverse=True))
        if rates is not None and not isinstance(rule, Pooled):
            raise InputError(f"forget is {forget}; {rule} is another learner; give its own, as in Newton(forget=0.99)")
        return cls(bank, whole("rank", rank, usual=cls.rank), rule, rates, weight_rate, warmup)

    def method(self, nodes: int = 1) -> Method:
        """Return the method of one node, or the recommended gossip of several."""
        basis = Landmarks(self.rank, rows=max(self.rank, 2))
        own: dict[str, Any] = {"kernels": self.kernels, "basis": basis, "sigma": "median"}
        own |= {"learner": self.learner, "weight_rate": self.weight_rate, "regularization": 0.0}
        if nodes > 1:
            return _NETWORK.replace(**own | {"learner": self._of_a_network()})
        if not isinstance(self.learner, Pooled):
            return Local(**own)
        own_rate = (self.learner.forget,) if self.learner.forget < 1 else None
        return Tracking(**own, rates=self.forget or own_rate, stakes=STAKES, sharper=SHARPER)

    def _of_a_network(self) -> Learner:
        learner = _NETWORK.learner if self.learner == LEARNER else self.learner
        if self.forget is None:
            return learner
        if len(self.forget) > 1:
            raise InputError(f"forget is {self.forget}; nodes of a network forget at one rate; give one, as in 0.99")
        return replace(learner, forget=self.forget[0])  # type: ignore[type-var]
