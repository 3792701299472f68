"""What targets are: class numbers or values, as the loss wants them and back."""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from omkl import losses
from omkl.errors import InputError, pick
from omkl.losses import LOSSES, Logistic, Loss, Softmax
from omkl.online.calibrating import Units, units
from omkl.scaling import Floats

ABSURD = 20.0  # interquartile ranges from the median
LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Classification:
    """Targets are class numbers; two classes have one output, more have one each."""

    classes: int = 2

    @property
    def loss(self) -> Loss:
        """The loss of so many classes."""
        return Logistic() if self.classes <= 2 else Softmax(self.classes)

    @property
    def outputs(self) -> int:
        """C."""
        return 1 if self.classes <= 2 else self.classes

    def units(self, y: Floats) -> Units:
        """Return units in which class numbers are as they are."""
        return Units(np.zeros(1), np.ones(1))

    def target(self, y: Floats, units: Units) -> npt.NDArray[np.float32]:
        """Return the targets ``(..., C)`` of class numbers ``(..., 1)``."""
        if self.classes <= 2:
            return (2 * y - 1).astype(np.float32)
        return np.asarray(np.arange(self.classes) == y, dtype=np.float32)


@dataclass(frozen=True)
class Regression:
    """Targets are numbers, brought to mean 0 and deviation 1 by the calibration rows."""

    outputs: int = 1
    given: Loss | str = "squared"

    def __post_init__(self) -> None:
        if isinstance(self.given, str):
            pick("loss", self.given, {name: kind for name, kind in LOSSES.items() if hasattr(kind, "outputs")})
        elif isinstance(self.given, type) or not hasattr(self.given, "outputs"):
            raise InputError(f"loss is {self.given!r}; numbers have squared or huber loss; try omkl.Huber(delta=1)")

    @property
    def loss(self) -> Loss:
        """The loss of so many outputs."""
        return replace(losses.named(self.given), outputs=self.outputs)  # type: ignore[type-var]

    def units(self, y: Floats) -> Units:
        """Return mean and deviation of every output, of targets that are not absurd.

        One that is twenty interquartile ranges from the median counts as being there.
        """
        low, middle, high = np.quantile(y, [0.25, 0.5, 0.75], axis=0)
        far = np.where(high > low, ABSURD * (high - low), np.inf)
        return units(np.clip(y, middle - far, middle + far))

    def target(self, y: Floats, units: Units) -> npt.NDArray[np.float32]:
        """Return the targets of numbers ``(..., C)``; one beyond the largest float32 is as absurd as that."""
        return np.clip((y - units.center) / units.scale, -LARGEST, LARGEST).astype(np.float32)


Task: TypeAlias = Classification | Regression


def probabilities(outputs: Floats) -> Floats:
    """Return the probabilities of the classes, ``(n, C)``, two of them where there is one output."""
    outputs = outputs * [-0.5, 0.5] if outputs.shape[1] == 1 else outputs
    parts = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return np.asarray(parts / parts.sum(axis=1, keepdims=True))
