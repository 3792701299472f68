"""Landmarks: unlabelled inputs that all nodes hold, and features that are similarities to them.

With k(x) the similarities of an input to L landmarks, and those of the landmarks among themselves U diag(L m) U^T, an
input is described by z(x) = L^(-1/2) diag(m)^(-1) U_r^T k(x), the r directions of largest m, each of mean square one
over the landmarks: principal components of the kernel by Nystroem's method, exact at the landmarks, where random
features only estimate it. A model has r coefficients, which are what is sent; m is the spectrum of the curvature that
all nodes share.

Everything depends on the settings and the landmarks alone. Processors round differently, and where eigenvalues are
equal any rotation of their eigenvectors is as good: the one that is taken follows from what all have in common, so that
nodes on different machines come to the same coordinates, up to rounding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.calibration import checked, median_distance
from omkl.errors import InputError, pick, whole
from omkl.features import Features, Floats, Kernel, similarities
from omkl.relevance import Real, relevance

SOURCES = dict.fromkeys(("rows", "centers", "normal", "labelled"))
EQUAL = 1e-5  # of an eigenvalue: neighbors that differ by less are taken for equal, and their eigenvectors for a plane
SMALLEST = 1e-5  # of the largest eigenvalue: below it a direction is left at zero, being made of rounding errors
FARTHEST = 5.0  # deviations of a column beyond which inputs count as being there
PER_COLUMN = 34  # directions at most: with one column or two there are hardly more above ``SMALLEST``; more cost bytes
PASSES = 20  # of k-means


@dataclass(frozen=True)
class Landmarks:
    """How many landmarks there are, where they come from, and how many coordinates to keep.

    Attributes
    ----------
    rank
        r, the coefficients of a model, at most: inputs of few columns have no more than 34 for each, for similarities
        to them vary in fewer directions. Those beyond what the landmarks span stay zero.
    rows
        Landmarks, at most: so many are drawn of the inputs there are.
    source
        ``"rows"``: inputs that all nodes hold; a simulation draws them from its stream. ``"centers"``: as many centers
        of clusters of ten times as many inputs, to see in a simulation what it costs to share those and no input; real
        nodes are given the centers as rows. ``"normal"``: standard normal vectors, which suit standardized inputs, so
        that nothing is shared. ``"labelled"``: inputs and their labels, by which columns are weighed as
        ``omkl.relevance`` does. Labels are then shared too: a simulation takes them from its stream, and nodes from
        ``y`` in the file of ``[calibration]``.
    """

    rank: int = 120
    rows: int = 500
    source: Literal["rows", "centers", "normal", "labelled"] = "rows"

    name: ClassVar[str] = "landmarks"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", whole("rank", self.rank))
        object.__setattr__(self, "rows", whole("rows", self.rows, 2))
        pick("source", self.source, SOURCES)
        if self.rank > self.rows:
            raise InputError(f"rank is {self.rank}; {self.rows} rows span no more directions; lower it or raise rows")

    def within(self, inputs: int) -> Self:
        """Return the same for inputs of so many columns."""
        return replace(self, rank=min(self.rank, PER_COLUMN * inputs))

    @property
    def sampled(self) -> int:
        """How many inputs are asked for."""
        return {"centers": 10, "normal": 0}.get(self.source, 1) * self.rows


def place(
    kernels: Sequence[Kernel],
    dimension: int,
    seed: int,
    sample: npt.ArrayLike | None,
    settings: Landmarks,
    sigma: str = "given",
    targets: Real | None = None,
) -> Features:
    """Return landmarks, the bandwidths of the kernels, and the basis of their similarities.

    Landmarks with labels have their ``targets (n, C)`` too.

    Examples
    --------
    >>> import omkl
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> made = place(omkl.gaussian(0.5, 1), 3, 0, X, Landmarks(rank=20), sigma="median")
    >>> made.landmarks.shape, made.basis.shape, made.spectrum.shape
    ((100, 3), (1, 100, 20), (1, 20))
    """
    if others := [kernel.name for kernel in kernels if kernel.name != "gaussian"]:
        raise InputError(f"kernel {others[0]!r}; landmarks are compared by Gaussians; use gaussian(...), or a Basis")
    marks = _normal(settings.rows, dimension, seed) if settings.source == "normal" else checked(sample, dimension)
    middle, spread = marks.mean(axis=0), FARTHEST * marks.std(axis=0)
    limits = np.stack([middle - spread, middle + spread]).astype(np.float32)
    marks = np.clip(marks, *limits)
    factors = weighed(marks, targets) if settings.source == "labelled" else None
    if factors is not None:
        marks, limits = marks * factors, limits * factors
    if settings.source == "centers":
        marks = centers(marks, settings.rows, seed)
    unit = median_distance(marks) if sigma == "median" else 1.0
    bandwidths = (np.array([kernel.sigma for kernel in kernels]) * unit).astype(np.float32)
    marks = marks.astype(np.float32)
    # In double precision, of what all have in single: the basis is then the same to the digits it is kept in.
    exact = (part.astype(np.float64) for part in (marks, limits, bandwidths))
    values, vectors = largest_first(similarities(marks.astype(np.float64), *exact))
    basis, spectrum = whitened(values, _settled(values, vectors, settings.rank), settings.rank)
    rounded = [part.astype(np.float32, order="C")[None] for part in (basis, spectrum)]
    return Features(None, rounded[0], rounded[1], marks, limits, bandwidths, factors)


def weighed(inputs: Floats, targets: Real | None) -> npt.NDArray[np.float32]:
    """Return what columns are multiplied by, ``(d,)``.

    In double precision, and then to three digits: so that all nodes come to the same numbers.
    """
    if targets is None or len(targets) != len(inputs):
        raise InputError(
            f'source is "labelled", without a label for each of {len(inputs)} calibration rows; labels tell which '
            'columns matter; give y beside X, or take "rows"'
        )
    return relevance(inputs, np.asarray(targets, np.float64)).round(3).astype(np.float32)


def largest_first(similar: Real) -> tuple[Real, Real]:
    """Return the eigenvalues of a matrix of similarities, the largest first, and its eigenvectors as columns."""
    values, vectors = np.linalg.eigh(similar)
    return values[::-1], vectors[:, ::-1]


def whitened(values: Real, vectors: Real, rank: int) -> tuple[Real, Real]:
    """Return the first of these directions, scaled to mean square one over the landmarks, and their spectrum."""
    count = len(values)
    missing = max(0, rank - count)
    values, vectors = np.pad(values[:rank], (0, missing)), np.pad(vectors[:, :rank], ((0, 0), (0, missing)))
    kept = values > SMALLEST * values[0]
    scales = np.where(kept, math.sqrt(count) / np.where(kept, values, 1), 0)
    return vectors * scales, np.where(kept, values / count, 0)


def _settled(values: Real, vectors: Real, rank: int) -> Real:
    """Return eigenvectors in signs and rotations that depend on the spaces they span alone.

    Those of equal eigenvalues are replaced by projections of fixed random vectors, one after the other.
    """
    count, made = len(values), vectors.copy()
    spaces = _spaces(values, min(rank, count))
    probes = _normal(count, spaces[-1][1], 0)
    made[:, : spaces[-1][1]] *= np.sign(np.sum(vectors[:, : spaces[-1][1]] * probes, axis=0))
    for first, last in spaces:
        if last > first + 1:
            space = vectors[:, first:last]
            turned, upper = np.linalg.qr(space.T @ probes[:, first:last])
            made[:, first:last] = space @ (turned * np.sign(np.diag(upper)))
    return made


def _spaces(values: Real, rank: int) -> list[tuple[int, int]]:
    """Return where the eigenvalues begin and end that are taken for equal, until there are ``rank`` of them."""
    found, last = [], 0
    while last < rank:
        first, last = last, last + 1
        while last < len(values) and values[last - 1] - values[last] < EQUAL * values[last - 1]:
            last += 1
        found.append((first, last))
    return found


def centers(inputs: Floats, count: int, seed: int) -> Floats:
    """Return the centers of so many clusters of inputs, by k-means from rows that the seed draws.

    To be computed where the inputs are, once, and shared in their place: on another processor an input between two
    centers may go to the other one.

    >>> centers(np.array([[0.0], [1.0], [10.0], [11.0]]), 2, 0).tolist()
    [[0.5], [10.5]]
    """
    if len(inputs) <= count:
        return inputs
    order = np.argsort(noise.uniforms(noise.key(int(seed), "landmarks"), len(inputs)), kind="stable")
    made = inputs[np.sort(order[:count])]
    for _ in range(PASSES):
        apart = (made**2).sum(1) - 2 * inputs @ made.T
        nearest = apart.argmin(axis=1)
        sizes = np.bincount(nearest, minlength=count)
        sums = np.zeros_like(made)
        np.add.at(sums, nearest, inputs)
        moved = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], made)
        if np.array_equal(moved, made):
            break
        made = moved
    return made


def _normal(count: int, dimension: int, seed: int) -> Floats:
    """Return standard normal rows of a seed."""
    rows = noise.fold(noise.key(int(seed), "landmarks"), np.arange(count)[:, None])
    u = noise.uniforms(rows, 2 * dimension).reshape(count, dimension, 2)
    return np.asarray(np.sqrt(-2 * np.log(u[..., 0])) * np.cos(2 * np.pi * u[..., 1]), dtype=np.float64)
