"""A learner for nodes that are averaged: steps count for all who are heard, curvature is measured, priors are hedged.

Averaging divides every step by the number of nodes. So a network that has seen J t samples moves as if it had seen t.
Here each step is multiplied by alpha, the number of nodes that a sample has reached (``omkl.reach``). With exact
averaging over J nodes and alpha = J, this is a step of one learner in one place that is given J samples at once.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from omkl.arrays import Array, namespace
from omkl.errors import InputError, positive, real
from omkl.learners.rules import LOGISTIC, STEEPEST, Sample, forgetting, length, no_samples, white
from omkl.losses import Loss

FIRST_COUNT = 16.0  # samples of the largest curvature that the loss has, which are taken for granted before any
OWN_FIRST = 3.0  # samples after which a node's own and all that it has learned for count alike, in a harmonic mean
RECENT = 0.25  # weight of a sample in how alike samples are
USUAL = 0.5  # curvature of a sample, of the largest that the loss has, where a length is wanted and none was measured
FLOOR = 0.01  # below which no sample's curvature counts: one that is surely wrong has next to none


class PooledMemory(NamedTuple):
    """What ``Pooled`` keeps."""

    own: Array
    """The number of samples that a node has learned, ``(...)``."""
    count: Array
    """The number of samples, its own and others', that its steps counted for, ``(...)``."""
    spectrum: Array
    """m, the eigenvalues of the basis, ``(..., P, n)``."""
    log_curvature: Array
    """Logarithm of the mean curvature at the samples, ``(..., P)``, in units of the loss's largest curvature."""
    last: Array
    """The features z of the last sample, ``(..., P, n)``."""
    alike: Array
    """How alike successive samples are, beyond chance, ``(..., P)``, from 0 to 1."""


@dataclass(frozen=True)
class Pooled:
    """The default's learner: one curvature for all nodes, and steps that count for all whom a node hears.

    In whitened coordinates, E z z^T = I, the curvature after n samples is diagonal: S_i = 1 / (1/(prior m_i) + c n).

    - c is the mean curvature of the loss at the samples. Nodes measure it and gossip it.
    - n is at first the number of the node's own samples, while news from others is still on its way. Later each sample
      counts alpha times.
    - A sample does theta' = theta - alpha r S z C'(f, y). r lies in (0, 1], so that a step with alpha = 1 never
      overshoots.
    - If successive samples are alike, as in a time series, or if neighbors say the same, r is chosen for that number of
      equal samples at once. Otherwise all nodes would make the same step, and the sum would overshoot. With a loss
      whose slope has no bound, the first samples are assumed to be alike.

    Attributes
    ----------
    priors
        Variances of a coefficient before any sample, the largest first, for the logistic loss; for a loss that curves
        more they shrink in proportion. The model is learned with the first. For each of the others it is also read as
        if that had been the prior, with weak coordinates shrunk, and the outputs are weighed as those of kernels are.
        Noisy data choose a smaller prior. Each costs one more weight in a message, and no learning.
    forget
        Each sample multiplies the count of earlier samples by this number; 1 forgets nothing.
    """

    priors: tuple[float, ...] = (400.0, 20.0)
    forget: float = 1.0

    name: ClassVar[str] = "pooled"
    has_prior: ClassVar[bool] = True

    def __post_init__(self) -> None:
        given = tuple(self.priors) if isinstance(self.priors, tuple | list) else (self.priors,)
        priors = tuple(positive("priors", real("priors", one), "try (400, 20)") for one in given)
        if not priors or list(priors) != sorted(set(priors), reverse=True):
            raise InputError(f"priors are {given}; the largest comes first, and no two are equal; try (400, 20)")
        object.__setattr__(self, "priors", priors)
        object.__setattr__(self, "forget", forgetting(self.forget))

    @property
    def views(self) -> int:
        """How many readings of a model there are: one for each prior."""
        return len(self.priors)

    def init(self, theta: Array, spectrum: Array | None = None) -> PooledMemory:
        """Return a memory with no samples, the spectrum, and the loss's largest curvature."""
        xp, spread = namespace(theta), white(theta, spectrum, self.name)
        largest, alike = (xp.zeros(theta.shape[:-2], dtype=theta.dtype) for _ in range(2))
        return PooledMemory(no_samples(theta), no_samples(theta), spread, largest, xp.zeros_like(spread), alike)

    def read(self, memory: PooledMemory) -> Array:
        """Return the factors of the coordinates in every reading of a model, ``(..., P, V, n)``.

        The first reading has factors of one. With curvature c n I, the best coefficients under two priors differ by one
        factor for each coordinate.
        """
        xp = namespace(memory.spectrum)
        seen = _curved(memory.own, memory.count)[..., None] * xp.exp(memory.log_curvature)
        seen = seen * LOGISTIC  # the bound of the loss cancels
        variance = seen[..., None] * memory.spectrum
        first = self.priors[0]
        readings = [(one / first) * (1 + first * variance) / (1 + one * variance) for one in self.priors]
        return xp.stack(readings, axis=-2)

    def told(self, memory: PooledMemory) -> Array:
        """Return the numbers that are gossiped with a model, ``(..., P, 1)``."""
        return memory.log_curvature[..., None]

    def hear(self, memory: PooledMemory, numbers: Array) -> PooledMemory:
        """Return the memory with these numbers after mixing."""
        return memory._replace(log_curvature=numbers[..., 0])

    def stride(self, spectrum: Array, own: Array, count: Array, alpha: Array | float, loss: Loss) -> Array:
        """Return how far a typical sample with slope 1 moves a model: the farthest of the P models.

        It is that after ``own`` samples of the node that counted for ``count``, each with half of the largest
        curvature; ``spectrum (..., P, n)``.
        """
        xp, bound = namespace(spectrum), min(loss.smoothness, STEEPEST)
        variance = self.priors[0] * LOGISTIC / bound * spectrum
        shared = variance / (1 + USUAL * bound * _curved(own, count) * variance)
        length = 1 / (1 + bound * xp.sum(shared, axis=-1))
        return xp.max(alpha * length * xp.sqrt(xp.sum(shared * shared, axis=-1)), axis=-1)

    def update(
        self, theta: Array, memory: PooledMemory, gradient: Array, z: Array, sample: Sample
    ) -> tuple[Array, PooledMemory]:
        """Return theta - alpha r S * gradient, and the memory with one more sample."""
        xp = namespace(theta)
        weight = 1 if sample.weight is None else sample.weight
        heard = 1 if sample.reach is None else sample.reach
        bound = min(sample.loss.smoothness, STEEPEST)
        own = self.forget * memory.own + weight
        count = self.forget * memory.count + heard * weight
        before = xp.exp(memory.log_curvature)
        curvature = before + (weight / (FIRST_COUNT + own))[..., None] * (_curvature(sample, bound) - before)
        prior = self.priors[0] * LOGISTIC / bound
        variance = prior * memory.spectrum
        seen = _curved(own, count)[..., None] * curvature
        shared = variance / (1 + bound * seen[..., None] * variance)
        energy = xp.sum(shared * z * z, axis=-1, keepdims=True)
        steepest = bound if sample.weight is None else bound * sample.weight[..., None, None]
        alike, last = _alike(memory, shared, z, energy), xp.zeros_like(memory.last) + z
        taken = alike if sample.alike is None else xp.maximum(alike, sample.alike * sample.alike)
        if not math.isfinite(sample.loss.lipschitz):
            taken = xp.maximum(taken, (0.5**own)[..., None])
        crowd = 1.0 if sample.reach is None else (1 + (sample.reach[..., None] - 1) * taken)[..., None]
        step = length(sample, energy * crowd, steepest)[..., None]
        step = step if sample.reach is None else sample.reach[..., None, None, None] * step
        learned = theta - step * shared[..., None, :] * gradient
        return learned, PooledMemory(own, count, memory.spectrum, xp.log(curvature), last, alike)


def _curved(own: Array, count: Array) -> Array:
    """Return how many samples count as curvature: at first a node's own, later all that it has learned for, ``(...)``.

    When a node has few samples, what the others have learned has yet to arrive: a step that is as short as if it had
    would come too late.
    """
    xp = namespace(own)
    others = count / xp.where(own > 0, own, 1.0) - 1
    return count / (1 + xp.clip(others, 0, None) * OWN_FIRST / (OWN_FIRST + own))


def _alike(memory: PooledMemory, shared: Array, z: Array, energy: Array) -> Array:
    """Return how alike samples are that follow each other, after one more: squared cosines in the metric of S.

    Those of independent samples are one over the effective number of coordinates in the mean, which is taken off.
    """
    xp = namespace(shared)
    before = xp.sum(shared * memory.last * memory.last, axis=-1)
    product = xp.sum(shared * memory.last * z, axis=-1)
    both = before * energy[..., 0]
    cosine = product * product / xp.where(both > 0, both, 1.0)
    total = xp.sum(shared, axis=-1)
    chance = xp.sum(shared * shared, axis=-1) / xp.where(total > 0, total * total, 1.0)
    beyond = (cosine - chance) / xp.where(chance < 1, 1 - chance, 1.0)
    return xp.clip(memory.alike + RECENT * (beyond - memory.alike), 0, 1)


def _curvature(sample: Sample, bound: float) -> Array:
    """Return a sample's curvature, mean over outputs, in units of the bound and above the floor, ``(..., P)``."""
    found = sample.curvature()
    outputs = found.shape[-1]
    trace = sum(found[..., k, k] for k in range(outputs)) / (outputs * bound)
    return namespace(found).clip(trace, FLOOR / LOGISTIC, None)
