"""Features calibrated on inputs without labels: bandwidths in units of their distances, and a basis of few coordinates.

A kernel has 2D features, but real inputs use few of their directions. Let G = E z z^T = U diag(m) U^T over a sample.
Models are learned in z' = diag(m)^(-1/2) U_r^T z: the r directions of largest m, each scaled to mean square one. A
model has r coefficients, and these are sent. The curvature that all nodes share is diagonal in this basis.

Everything depends only on the settings, the seed and the sample, so all nodes come to the same basis.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.arrays import Array, namespace
from omkl.errors import InputError, pick, whole
from omkl.features import Features, Floats, Kernel, draw, transform

ROWS = 300  # that bandwidths are calibrated on where there is no basis to say it
SMALLEST = 1e-6  # of the largest m: below it a direction is left at zero, being made of rounding errors
ROUNDED = 1e-13  # of the largest squared length: a squared distance below it is none, made of rounding errors
SIGMA = dict.fromkeys(("given", "median"))
SOURCES = dict.fromkeys(("sample", "normal"))

Sample = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Basis:
    """How many directions of the random features to keep, and how they are found.

    Attributes
    ----------
    rank
        r, the number of coefficients of a model, at most 2D. Coefficients beyond the rows of a small sample stay zero.
    rows
        The largest number of inputs to calibrate on; they are drawn at random. No labels are used.
    source
        ``"sample"``: inputs that all nodes hold; a simulation draws them from its stream. ``"normal"``: no sample, but
        the formula for standard normal inputs, which suits standardized ones.
    """

    rank: int = 160
    rows: int = ROWS
    source: Literal["sample", "normal"] = "sample"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", whole("rank", self.rank))
        object.__setattr__(self, "rows", whole("rows", self.rows, 2))
        pick("source", self.source, SOURCES)
        if self.source == "sample" and self.rank > self.rows:
            raise InputError(f"rank is {self.rank}; {self.rows} rows span no more directions; lower it or raise rows")

    @property
    def sampled(self) -> int:
        """How many inputs are needed."""
        return self.rows if self.source == "sample" else 0


def rows(basis: Any, sigma: str) -> int:
    """Return the largest number of inputs that these settings are calibrated on; zero if they need none."""
    if basis is not None:
        return int(basis.sampled)
    return ROWS if sigma == "median" else 0


def sample(X: npt.ArrayLike, count: int, seed: int) -> Sample:
    """Return ``count`` rows of X ``(..., d)``, or all if there are fewer.

    Which rows are taken depends only on the seed and on the number of rows. They keep their order, so a sample of a
    sample is the same sample.
    """
    table = np.asarray(X)
    table = table.reshape(-1, table.shape[-1])
    return table[_some(len(table), min(count, len(table)), seed)]


def calibrate(
    kernels: Sequence[Kernel],
    features: int,
    dimension: int,
    seed: int,
    sample: npt.ArrayLike | None = None,
    basis: Basis | None = None,
    sigma: str = "given",
    orthogonal: bool = False,
) -> Features:
    """Return the features of a bank of kernels: frequencies ``(P, D, d)`` and, if asked for, their basis.

    Examples
    --------
    >>> import omkl
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> made = calibrate(omkl.gaussian(0.5, 1), 64, 3, 0, X, Basis(rank=20), sigma="median")
    >>> made.frequencies.shape, made.basis.shape, made.spectrum.shape
    ((2, 64, 3), (2, 128, 20), (2, 20))
    """
    inputs = checked(sample, dimension) if rows(basis, sigma) else None
    if sigma == "median":
        unit = normal_median(dimension) if inputs is None else median_distance(inputs)
        kernels = [replace(kernel, sigma=kernel.sigma * unit) for kernel in kernels]
    frequencies = draw(kernels, features, dimension, seed, orthogonal=orthogonal)
    if basis is None:
        return Features(frequencies)
    if basis.rank > 2 * features:
        raise InputError(f"rank is {basis.rank}; {features} features span {2 * features} directions; lower it")
    fitted = [_whitened(*_directions(V, inputs), basis.rank) for V in frequencies.astype(np.float64)]
    # In one order of memory always: another one rounds products otherwise.
    return Features(
        frequencies, *(np.stack(parts).astype(np.float32, order="C") for parts in zip(*fitted, strict=True))
    )


def median_distance(inputs: Floats) -> float:
    """Return the median distance between two rows; refuse a distance of zero."""
    median = float(middle_distance(squared_distances(inputs - inputs.mean(axis=0))))
    require_unit(median, len(inputs))
    return median


def require_unit(median: float, rows: int) -> None:
    """Refuse a median distance of zero; ``rows`` is for the message."""
    if not median > 0:
        raise InputError(
            f"the median distance between {rows} calibration rows is {median:g}; it must be positive to measure "
            'bandwidths by; give rows that differ, or sigma="given"'
        )


def squared_distances(rows: Array) -> Array:
    """Return |x_i - x_j|^2 for all rows ``(..., n, d)``, shape ``(..., n, n)``; rounding errors become zero.

    It is computed by one matrix product, so center the rows first: they should be about as long as they are apart.
    """
    xp = namespace(rows)
    lengths = xp.sum(rows * rows, axis=-1, keepdims=True)
    left, right = (
        xp.concat(parts, axis=-1)
        for parts in ([rows, lengths, xp.ones_like(lengths)], [-2 * rows, xp.ones_like(lengths), lengths])
    )
    squares = xp.matmul(left, xp.matrix_transpose(right))
    return xp.where(squares > ROUNDED * xp.max(lengths, axis=-2, keepdims=True), squares, 0.0)


def middle_distance(squares: Array) -> Array:
    """Return the median distance of two different rows, from all squared distances ``(..., n, n)``."""
    xp = namespace(squares)
    return xp.median(xp.sqrt(squares[..., *np.triu_indices(squares.shape[-1], 1)]), axis=-1)


def normal_median(dimension: int) -> float:
    """Return the median distance between two standard normal inputs: their squared distance is 2 chi^2_d.

    >>> round(normal_median(2), 9) == round(math.sqrt(4 * math.log(2)), 9)
    True
    """
    a, low, high = dimension / 2, 0.0, dimension / 2  # the median of chi^2_d / 2 lies below its mean
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _gamma_share(a, middle) < 0.5 else (low, middle)
    return math.sqrt(2 * 2 * high)


def _gamma_share(a: float, x: float) -> float:
    """Return the regularized incomplete gamma function P(a, x) by its series, for x up to a."""
    term = total = math.exp(a * math.log(x) - x - math.lgamma(a + 1))
    k = 0
    while term > 1e-17 * total:
        k += 1
        term *= x / (a + k)
        total += term
    return total


def _some(count: int, wanted: int, seed: int) -> npt.NDArray[np.int64]:
    """Return ``wanted`` different numbers below ``count``, in order: the first that are drawn."""
    key, tries = noise.key(int(seed), "calibration"), 2 * wanted
    while True:
        low, high = noise.words(key, 2 * tries).reshape(tries, 2).T.astype(np.uint64)
        drawn, first = np.unique((low << np.uint64(32) | high) % np.uint64(count), return_index=True)
        if len(drawn) >= wanted:
            return np.sort(drawn[np.argsort(first)[:wanted]]).astype(np.int64)
        tries *= 2


def checked(sample: npt.ArrayLike | None, dimension: int, sigma: str = "given") -> Floats:
    """Return a sample as float64; refuse a sample that these settings cannot be calibrated on."""
    if sample is None:
        raise InputError(
            "no calibration sample; these settings are calibrated on unlabelled inputs; give some rows, or "
            'Basis(source="normal") for standardized ones'
        )
    inputs = np.asarray(sample, dtype=np.float64)
    if inputs.ndim != 2 or inputs.shape[1] != dimension:
        raise InputError(f"the calibration sample has shape {inputs.shape}; it must be (n, {dimension}); reshape it")
    if not np.isfinite(inputs).all():
        row = int(np.argwhere(~np.isfinite(inputs))[0][0])
        raise InputError(f"the calibration sample has a non-finite value in row {row}; fill or drop it")
    if len(inputs) < 2 or (inputs == inputs[:1]).all():
        raise InputError(
            f"the calibration sample has {len(inputs)} rows, all equal; it must show how inputs vary; give rows that "
            "differ"
        )
    if sigma == "median":
        median_distance(inputs)
    return inputs


def _directions(V: Floats, inputs: Floats | None) -> tuple[Floats, Floats]:
    """Return the eigenvalues of G, largest first, and its eigenvectors as columns."""
    if inputs is None:
        values, vectors = np.linalg.eigh(normal_moments(V))
        return values[::-1], vectors[:, ::-1]
    z = transform(inputs, Features(V)) / math.sqrt(len(inputs))
    if len(z) >= z.shape[1]:
        _, scales, rows = np.linalg.svd(z, full_matrices=False)
        return scales**2, rows.T
    # Of few rows their products are the smaller matrix, with the same eigenvalues; it takes half of the time.
    values, vectors = np.linalg.eigh(z @ z.T)
    values = np.maximum(values[::-1], np.finfo(np.float64).tiny)
    return values, z.T @ vectors[:, ::-1] / np.sqrt(values)


def normal_moments(V: Floats) -> Floats:
    """Return E z z^T for standard normal inputs and frequencies ``(D, d)``.

    Notes
    -----
    E[cos a.x cos b.x] = (e^(-|a-b|^2/2) + e^(-|a+b|^2/2)) / 2, E[sin a.x sin b.x] the same with a minus, and
    E[sin a.x cos b.x] = 0.
    """
    squares, products = np.sum(V * V, axis=1), V @ V.T
    lengths = squares[:, None] + squares
    minus, plus = (np.exp(-np.maximum(lengths + sign * 2 * products, 0) / 2) / 2 for sign in (-1, 1))
    nothing = np.zeros_like(minus)
    return np.block([[minus - plus, nothing], [nothing, minus + plus]]) / len(V)


def _whitened(values: Floats, vectors: Floats, rank: int) -> tuple[Floats, Floats]:
    """Return the first directions scaled to mean square one, and their spectrum; rounding errors and none are zero.

    Libraries choose the signs of eigenvectors differently: here the largest entry is positive.
    """
    missing = max(0, rank - len(values))
    values, vectors = np.pad(values[:rank], (0, missing)), np.pad(vectors[:, :rank], ((0, 0), (0, missing)))
    largest = np.argmax(np.abs(vectors), axis=0)
    signs = np.sign(vectors[largest, np.arange(rank)])
    kept = values > SMALLEST * values[0]
    scales = np.where(kept, signs / np.sqrt(np.where(kept, values, 1)), 0)
    return vectors * scales, np.where(kept, values, 0)
