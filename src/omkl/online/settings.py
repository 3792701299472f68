"""How the estimators learn unless told otherwise: their defaults, in one place."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from omkl.calibration import Basis
from omkl.errors import InputError, pick
from omkl.features import Kernel, gaussian
from omkl.learners import LEARNERS, Learner, Shared
from omkl.methods import Local, Method, recommended

CLASSES = Shared(prior=30, c=0.05)
NUMBERS = Shared(prior=30, c=0.01)  # steps that fall off later: values drift more than classes do


@dataclass(frozen=True)
class Settings:
    """How to learn: the defaults of all estimators.

    Attributes
    ----------
    kernels
        Bandwidths are in units of the median distance between inputs.
    features
        D, spectral samples of a kernel.
    rank
        Directions of the 2D features that are learned; fewer while fewer rows are known. None learns all as they are.
    learner
        The update rule; that of classes, here. For numbers it is ``NUMBERS``.
    weight_rate
        Rate of the kernel weights.
    warmup
        Rows to calibrate on.
    """

    kernels: tuple[Kernel, ...] = gaussian(0.35, 0.8, 2, 5)
    features: int = 384
    rank: int | None = 240
    learner: Learner = CLASSES
    weight_rate: float = 1.0
    warmup: int = 512

    sigmas: ClassVar[tuple[float, ...]] = tuple(kernel.sigma for kernel in kernels)
    """The bandwidths of the default kernels."""

    @classmethod
    def of(
        cls,
        kernels: Sequence[float | Kernel] | float | Kernel,
        features: int,
        rank: int | None,
        learner: Learner | str,
        weight_rate: float,
        warmup: int,
    ) -> Self:
        """Return settings as users give them: bandwidths for Gaussian kernels, and learners by name."""
        given = [kernels] if isinstance(kernels, int | float | Kernel) else kernels
        bank = tuple(kernel if isinstance(kernel, Kernel) else Kernel("gaussian", kernel) for kernel in given)
        rule = pick("learner", learner, LEARNERS)() if isinstance(learner, str) else learner
        if isinstance(rule, type) or not hasattr(rule, "update"):
            raise InputError(f"learner is {learner!r}; it must be a name or an object; try omkl.Newton(prior=10)")
        if rank is None and isinstance(rule, Shared):
            raise InputError(f"rank is None; {rule} needs the basis of some rank; give one, or learner='newton'")
        return cls(bank, features, rank, rule, weight_rate, warmup)

    def method(self, nodes: int = 1) -> Method:
        """Return the method of one node, or the recommended gossip of several."""
        basis = None if self.rank is None else Basis(self.rank, rows=max(self.rank, 2))
        own: dict[str, Any] = {"kernels": self.kernels, "features": self.features, "basis": basis, "sigma": "median"}
        own |= {"learner": self.learner, "weight_rate": self.weight_rate, "regularization": 0.0}
        return Local(**own) if nodes == 1 else replace(recommended(), **own)
