"""The bank: kernels, and the features that models are learned in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from omkl import calibration, landmarks, scaling
from omkl.arrays import Array
from omkl.calibration import SIGMA, Basis
from omkl.errors import InputError, pick, whole
from omkl.features import Features, Kernel, gaussian
from omkl.landmarks import Directions, Landmarks
from omkl.methods.composed import Part


@dataclass(frozen=True, kw_only=True)
class Bank(Part):
    """Kernels, and what inputs are described by.

    Attributes
    ----------
    kernels
        Families of kernels and their bandwidths, such as ``gaussian(1, 3, 5)``.
    features
        Number of random frequencies per kernel, D; a model has 2D coefficients.
    orthogonal
        Make each d frequencies of a radial kernel (Gaussian, Matérn) orthogonal; as many frequencies then estimate the
        kernel better. Frequencies of other kernels stay independent.
    basis
        What a model's coefficients stand for: with ``Landmarks(rank=120)`` similarities to unlabelled inputs, by all
        kernels at once, in one model; with ``Basis(rank=160)`` fewer directions of each kernel's random features. None
        learns the 2D coefficients of the random features.
    sigma
        The unit of the bandwidths: ``"given"`` is that of the inputs; ``"median"`` is the median distance between
        inputs, as ``omkl.calibration`` finds it.
    """

    kernels: tuple[Kernel, ...] = gaussian(1, 3, 5)
    features: int = 20
    orthogonal: bool = False
    basis: Basis | Landmarks | None = None
    sigma: Literal["given", "median"] = "given"

    def __post_init__(self) -> None:
        kernels = self.kernels if isinstance(self.kernels, Sequence) else (self.kernels,)
        if not kernels or not all(isinstance(kernel, Kernel) for kernel in kernels):
            raise InputError(f"kernels is {self.kernels!r}; a bank is one kernel or more; try omkl.gaussian(1, 3, 5)")
        object.__setattr__(self, "kernels", tuple(kernels))
        object.__setattr__(self, "features", whole("features", self.features))
        pick("sigma", self.sigma, SIGMA)
        if not isinstance(self.basis, Basis | Landmarks | None):
            raise InputError(
                f"basis is {self.basis!r}; it must say how many directions to keep; pass omkl.Landmarks(rank=120)"
            )
        if isinstance(self.basis, Basis) and self.basis.rank > 2 * self.features:
            raise InputError(
                f"basis.rank is {self.basis.rank}; {self.features} features span {2 * self.features} directions; lower "
                "the rank or raise features"
            )

    @property
    def members(self) -> int:
        """P, the number of models at a node: one for each kernel, or one on landmarks."""
        return 1 if isinstance(self.basis, Landmarks) else len(self.kernels)

    @property
    def width(self) -> int:
        """The number of coefficients of a model, for each output: 2D, or the rank of the basis."""
        return 2 * self.features if self.basis is None else self.basis.rank

    def labels(self, readings: Sequence[str]) -> list[str]:
        """Return names for the models, one for each reading of each model."""
        return labels([(kernel.name, kernel.sigma) for kernel in self.kernels], self.members, readings)

    def within(self, columns: int) -> Self:
        """Return the bank for inputs of so many columns: few columns need fewer coordinates on landmarks."""
        return replace(self, basis=self.basis.within(columns)) if isinstance(self.basis, Landmarks) else self

    def draw(
        self, dimension: int, seed: int, X: Array | None = None, standardize: bool = False, y: Array | None = None
    ) -> Features:
        """Return the features of a seed, calibrated on rows of the inputs X ``(..., d)`` if the settings ask for it.

        Only labelled landmarks use the targets y ``(..., C)``. With ``standardize``, give the inputs raw: the rows that
        are taken are standardized here, by their own mean and deviation.
        """
        sample, targets = self._rows(seed, X, standardize, y)
        if isinstance(self.basis, Landmarks):
            return landmarks.place(self.kernels, dimension, seed, sample, self.basis, self.sigma, targets)
        settings = self.basis, self.sigma, self.orthogonal
        return calibration.calibrate(self.kernels, self.features, dimension, seed, sample, *settings)

    def draw_all(
        self,
        dimension: int,
        seeds: Sequence[int],
        X: Array,
        standardize: bool,
        y: Array,
        solve: Callable[..., Directions],
    ) -> Features:
        """Return the features of several seeds on landmarks, ``(S, ...)``, by ``solve`` as ``landmarks.place_all``."""
        basis = self.basis
        assert isinstance(basis, Landmarks)
        rows = [self._rows(seed, X, standardize, y) for seed in seeds]
        every = [landmarks.marks(dimension, seed, one[0], basis, one[1]) for seed, one in zip(seeds, rows, strict=True)]
        return landmarks.place_all(self.kernels, every, basis, self.sigma, solve)

    def _rows(
        self, seed: int, X: Array | None, standardize: bool, y: Array | None
    ) -> tuple[Array | None, Array | None]:
        """Return the rows that a seed is calibrated on, and their targets where those count."""
        count = calibration.rows(self.basis, self.sigma)
        if X is None or not count:
            return None, None
        sample = calibration.sample(X, count, seed)
        labelled = isinstance(self.basis, Landmarks) and self.basis.source == "labelled"
        targets = calibration.sample(y, count, seed) if labelled and y is not None else None
        return scaling.standardize_rows(sample) if standardize else sample.astype(np.float32), targets

    def zeros(self, xp: Any, leading: tuple[int, ...], outputs: int) -> Array:
        """Return the models to start from, ``(J, ..., P, C, n)``."""
        return xp.zeros((*leading, self.members, outputs, self.width), dtype=xp.float32)


def labels(kernels: Sequence[tuple[str, float]], members: int, readings: Sequence[str]) -> list[str]:
    """Return names for so many models, one for each reading of each: kernels, or the readings of one model of them all.

    >>> labels([("gaussian", 1.0), ("gaussian", 3.0)], 2, []), labels([("gaussian", 1.0), ("gaussian", 3.0)], 1, [])
    (['gaussian 1', 'gaussian 3'], ['landmarks'])
    """
    names = [f"{family} {sigma:g}" for family, sigma in kernels]
    if members < len(names):
        return list(readings) or ["landmarks"]
    return [f"{kernel}, {one}" for kernel in names for one in readings] if len(readings) > 1 else names
