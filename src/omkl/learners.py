"""Local update rules: what a node does with the gradient of its own sample."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from omkl.arrays import Array
from omkl.errors import InputError, real

Memory: TypeAlias = Any
"""Whatever a learner carries from round to round: a tuple of arrays, empty for the letter's rule."""


Curvature: TypeAlias = Callable[[], Array]


class Learner(Protocol):
    """What the algorithm asks of an update rule."""

    name: ClassVar[str]

    def init(self, theta: Array) -> Memory:
        """Return the memory to start with."""

    def update(
        self, theta: Array, memory: Memory, gradient: Array, z: Array, curvature: Curvature
    ) -> tuple[Array, Memory]:
        """Return the new theta and memory.

        ``gradient`` is that of the regularized loss in theta, ``(..., P, C, 2D)``; ``z`` the features it came from,
        ``(..., P, 2D)``, and ``curvature()`` that of the loss in the outputs, ``(..., P, C, C)``: a function, so that
        only rules of second order pay for it.
        """


@dataclass(frozen=True)
class SGD:
    """The letter's rule: theta' = theta - eta grad L(theta)."""

    eta: float = 0.01

    name: ClassVar[str] = "sgd"

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta", real("eta", self.eta))
        if not 0 < self.eta < float("inf"):
            raise InputError(f"eta is {self.eta}; a learning rate must be positive and finite; the letter uses 0.01")

    def init(self, theta: Array) -> Memory:
        """Return nothing: the rule has no memory."""
        return ()

    def update(
        self, theta: Array, memory: Memory, gradient: Array, z: Array, curvature: Curvature
    ) -> tuple[Array, Memory]:
        """Return theta - eta * gradient."""
        return theta - self.eta * gradient, memory
