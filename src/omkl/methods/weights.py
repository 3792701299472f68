"""The weights of the models of a node, by which their outputs are combined."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from omkl.errors import InputError, real
from omkl.methods.composed import Part


@dataclass(frozen=True, kw_only=True)
class Weights(Part):
    """Multiplicative weights, ln w_p = ln w_p - rate * L(theta_p).

    Attributes
    ----------
    rate
        How fast the kernel weights follow the losses of the kernels. None takes the eta of gradient steps, as the paper
        does, and 0.01 for other learners. A method calls it ``weight_rate``.
    first
        Update the kernel weights before the sample is scored, in the order the paper prints. Use it for comparisons
        only: the score is then no longer a prediction. A method calls it ``weigh_first``.
    """

    rate: float | None = None
    first: bool = False

    aliases: ClassVar[Mapping[str, str]] = {"rate": "weight_rate", "first": "weigh_first"}

    def __post_init__(self) -> None:
        if self.rate is None:
            return
        object.__setattr__(self, "rate", real("weight_rate", self.rate))
        if not 0 <= self.rate < math.inf:
            raise InputError(f"weight_rate is {self.rate}; it must be >= 0 and finite; None takes eta")


@dataclass(frozen=True, kw_only=True)
class GossipedWeights(Weights):
    """Weights that all nodes may have in common.

    Attributes
    ----------
    common
        Gossip the kernel weights too, so that all nodes come to the same ones. It adds one number to each message, and
        what else the learner has to tell. Without it, as in the paper, each node prefers the kernel that suits its own
        samples, which misleads where nodes see different data. A method calls it ``common_weights``.
    """

    common: bool = False

    aliases: ClassVar[Mapping[str, str]] = {**Weights.aliases, "common": "common_weights"}
