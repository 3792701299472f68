"""Methods whose rates are carried in the state, and seeds whose streams differ: one program for a whole study.

A method is a constant of the program compiled for it, so that a rate of its own for every length would compile one for
each. Here the rate is an array among others, left out when methods are compared, and the lengths share a program.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from omkl.arrays import Array, namespace
from omkl.learners import Memory, Sample
from omkl.methods import Gossip, Info, Local, Round
from omkl.methods.ensemble import Ensemble


@dataclass(frozen=True)
class Pace:
    """Gradient steps at the rate ``eta``, which two equal learners need not share."""

    eta: float = field(compare=False)

    name: ClassVar[str] = "pace"
    has_prior: ClassVar[bool] = False

    def init(self, theta: Array, spectrum: Array | None = None) -> Memory:
        """Return the rate."""
        return (namespace(theta).asarray(self.eta, dtype=theta.dtype),)

    def update(self, theta: Array, memory: Memory, gradient: Array, z: Array, sample: Sample) -> tuple[Array, Memory]:
        """Return the models a step further, and the rate."""
        return theta - memory[0] * gradient, memory


class Paced(Ensemble):
    """Kernel weights at the rate of the models, from the state too; ``weight_rate`` must be one."""

    def observe(
        self, theta: Array, log_weights: Array, memory: Memory, inputs: Round
    ) -> tuple[Array, Array, Memory, Info]:
        """Return what ``Ensemble.observe`` does, the weights moved by the rate's share."""
        theta, weighed, memory, info = super().observe(theta, log_weights, memory, inputs)
        paced = log_weights + memory * (weighed - log_weights)
        # The level that weigh() takes out would otherwise be carried on, and grow where the rate is above two.
        return theta, paced - namespace(paced).max(paced, axis=-1, keepdims=True), memory, info


class PacedGossip(Paced, Gossip):
    """Gossip at the rate of its ``Pace``."""


class PacedLocal(Paced, Local):
    """Learning alone at the rate of its ``Pace``."""


def side_by_side(frequencies: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return frequencies ``(S, P, D, S d)`` that let seed s see only the s-th of S samples joined into one input.

    The simulator gives all seeds the same samples; so every seed gets a stream of its own.
    """
    seeds, kernels, count, d = frequencies.shape
    wide = np.zeros((seeds, kernels, count, seeds, d), dtype=np.float32)
    wide[np.arange(seeds), :, :, np.arange(seeds)] = frequencies
    return wide.reshape(seeds, kernels, count, seeds * d)
