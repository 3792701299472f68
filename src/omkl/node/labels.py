"""Labels as sensors write them: two classes are -1 and 1, or 0 and 1."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from omkl.errors import InputError
from omkl.losses import Loss, TwoClasses


class Labels:
    """Makes targets of the labels of one source.

    If a loss has two classes, the labels 0 and 1 count as -1 and 1. A source that has 0 and -1 has three classes, or
    two meanings: whichever of both comes second is refused.
    """

    def __init__(self, loss: Loss) -> None:
        self._loss = loss
        self._lower: int | None = None

    def encode(self, labels: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return targets ``(..., C)``; refuse labels that the loss does not take."""
        given = np.asarray(labels)
        if not isinstance(self._loss, TwoClasses) or given.dtype.kind not in "biuf":
            return self._loss.encode(given)
        if (strange := given[~np.isin(given, (-1, 0, 1))]).size:
            raise InputError(
                f"label {strange[0]:g}; labels of {self._loss.name} loss are 0 and 1, or -1 and 1; take loss softmax "
                "for more classes, squared for numbers"
            )
        targets = self._loss.encode(np.where(given == 0, -1.0, given))
        for label in (0, -1):
            if (given == label).any():
                self._keep(label)
        return targets

    def _keep(self, label: int) -> None:
        self._lower = label if self._lower is None else self._lower
        if label != self._lower:
            raise InputError(
                f"label {label} given after {self._lower}; two classes are 0 and 1, or -1 and 1; write them one way "
                "throughout, or take loss softmax for three"
            )


class Observed(NamedTuple):
    """A sample as it was given, and the labels of its source."""

    x: npt.ArrayLike
    y: npt.ArrayLike | None
    labels: Labels
