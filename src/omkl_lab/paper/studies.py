"""What a study of regret leaves: arrays by case, length and seed, and the power of T fitted to them."""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from omkl.errors import InputError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Exponent(NamedTuple):
    """The power a of regret ~ T^a: mean over seeds and its 95 % interval."""

    mean: float
    low: float
    high: float


def fit_exponent(lengths: npt.ArrayLike, regret: npt.ArrayLike) -> Exponent:
    """Return the power of T in ``regret (S, T)``: a least-squares line in logarithms for every seed, then their mean.

    >>> round(fit_exponent([100, 200, 400], [[10, 20, 40], [3, 6, 12]]).mean, 6)
    1.0
    """
    x, values = np.log(np.asarray(lengths, dtype=np.float64)), np.asarray(regret, dtype=np.float64)
    if values.ndim != 2 or values.shape[1:] != x.shape or len(x) < 2:
        raise InputError(
            f"regret has shape {values.shape} for {x.shape} lengths; it must be (S, T), T >= 2; reshape it"
        )
    if not (values > 0).all():
        worst = values.min()
        raise InputError(f"a regret is {worst:.3g}; a power law needs positive values; use longer streams")
    x = x - x.mean()
    slopes = np.log(values) @ x / (x @ x)
    mean, seeds = float(slopes.mean()), len(slopes)
    if seeds == 1:
        return Exponent(mean, -np.inf, np.inf)
    half = float(stdtrit(seeds - 1, 0.975) * slopes.std(ddof=1) / seeds**0.5)
    return Exponent(mean, mean - half, mean + half)


@dataclass(frozen=True)
class Arrays:
    """A record of arrays that goes into an npz file and back."""

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the fields by name."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Any) -> Self:
        """Return the record of ``to_arrays``, of which ``numpy.load`` may have been the last reader."""
        return cls(**{one.name: np.asarray(arrays[one.name]) for one in fields(cls)})


@dataclass(frozen=True)
class PooledStudy(Arrays):
    """Regret of G cases at L lengths under S seeds.

    Attributes
    ----------
    cases, lengths, eta
        Names ``(G,)``, T ``(L,)`` and the rate at each.
    regret
        ``(G, L, S)``, per node and over all rounds.
    best, radius
        The comparator's mean loss L per sample and its |theta|, ``(L, S)``.
    """

    cases: npt.NDArray[np.str_]
    lengths: Integers
    eta: Floats
    regret: Floats
    best: Floats
    radius: Floats

    @property
    def exponents(self) -> dict[str, Exponent]:
        """The fitted power of T for every case."""
        return {
            str(case): fit_exponent(self.lengths, regret.T)
            for case, regret in zip(self.cases, self.regret, strict=True)
        }


@dataclass(frozen=True)
class TheoremStudy(PooledStudy):
    """The same with what the theorem and its lemmas bound.

    Attributes
    ----------
    terms
        The five terms of the bound, ``(G, L, 5)``, at Lemma 1's gamma; L = K + 2 lambda R, R the largest model seen.
    norm, loss
        The largest |theta_p| and the largest L(theta_p) seen, ``(G, L, S)``.
    hedge
        sum_t sum_p wbar_p L_p - min_p sum_t L_p at the worst node, ``(G, L, S)``.
    apart
        The largest r, with r^2 = sum_j |theta_j - mean|^2 + |theta_j - h_j|^2 for one kernel, ``(G, L, S)``.
    """

    terms: Floats
    norm: Floats
    loss: Floats
    hedge: Floats
    apart: Floats

    @property
    def bound(self) -> Floats:
        """The sum of the terms, ``(G, L)``."""
        return np.asarray(self.terms.sum(axis=-1))

    @property
    def vacuous(self) -> npt.NDArray[np.bool_]:
        """Whether the bound allows more regret than always predicting f = 0 can have, ``(G, L)``."""
        return np.asarray(self.bound >= self.lengths * np.log(2))
