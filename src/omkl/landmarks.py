"""Landmarks: inputs without labels that all nodes hold, and features that are similarities to them.

Let k(x) be the similarities of an input to L landmarks, and U diag(L m) U^T those of the landmarks among themselves. An
input is described by z(x) = L^(-1/2) diag(m)^(-1) U_r^T k(x): the r directions of largest m, each with mean square one
over the landmarks. These are the principal components of the kernel by Nystroem's method. They are exact at the
landmarks, where random features only estimate the kernel. A model has r coefficients, and these are sent. m is the
spectrum of the curvature that all nodes share.

Everything depends only on the settings and the landmarks. Processors round differently, and for equal eigenvalues any
rotation of the eigenvectors is as good. So the rotation is computed from what all nodes have in common, and nodes on
different machines come to the same coordinates, up to rounding.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.arrays import Array, namespace
from omkl.calibration import checked, middle_distance, require_unit, squared_distances
from omkl.errors import InputError, pick, whole
from omkl.features import Features, Floats, Kernel, compare
from omkl.relevance import Real, relevance

SOURCES = dict.fromkeys(("rows", "centers", "normal", "labelled"))
EQUAL = 1e-5  # of an eigenvalue: neighbors that differ by less are taken for equal, and their eigenvectors for a plane
SMALLEST = 1e-5  # of the largest eigenvalue: below it a direction is left at zero, being made of rounding errors
FARTHEST = 5.0  # deviations of a column beyond which inputs count as being there
PER_COLUMN = 34  # directions at most: with one column or two there are hardly more above ``SMALLEST``; more cost bytes
PASSES = 20  # of k-means


@dataclass(frozen=True)
class Landmarks:
    """The number of landmarks, where they come from, and how many coordinates to keep.

    Attributes
    ----------
    rank
        r, the largest number of coefficients of a model. There are at most 34 for each column of the inputs, because
        with few columns the similarities vary in fewer directions. Coefficients beyond what the landmarks span stay
        zero.
    rows
        The largest number of landmarks; they are drawn at random from the inputs.
    source
        ``"rows"``: inputs that all nodes hold; a simulation draws them from its stream. ``"centers"``: centers of
        clusters of ten times as many inputs, for a simulation without any shared input; give real nodes the centers as
        rows. ``"normal"``: standard normal vectors, so that nothing is shared; for standardized inputs.
        ``"labelled"``: inputs and their labels, which weigh the columns as ``omkl.relevance`` does. Labels are then
        shared too: a simulation takes them from its stream, and nodes take them from ``y`` in the file of
        ``[calibration]``.
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
        """Return the same for inputs with this number of columns."""
        return replace(self, rank=min(self.rank, PER_COLUMN * inputs))

    @property
    def sampled(self) -> int:
        """How many inputs are needed."""
        return {"centers": 10, "normal": 0}.get(self.source, 1) * self.rows


class Marks(NamedTuple):
    """Landmarks before their similarities are known, in single precision: the same on every machine."""

    landmarks: npt.NDArray[np.float32]
    limits: npt.NDArray[np.float32]
    relevance: npt.NDArray[np.float32] | None


class Directions(NamedTuple):
    """What similarities among landmarks vary in, of every seed, found in double precision; NumPy or JAX."""

    unit: Array
    """What bandwidths are multiples of, ``(S,)``."""
    values: Array
    """The eigenvalues ``(S, L)``, the largest first."""
    vectors: Array
    """The eigenvectors as columns, ``(S, L, L)``, in signs that follow from what they span."""
    basis: Array
    """Those that are kept, scaled to mean square one over the landmarks, ``(S, L, r)``."""
    spectrum: Array
    """Their share of what there is, ``(S, r)``."""


def place(
    kernels: Sequence[Kernel],
    dimension: int,
    seed: int,
    sample: npt.ArrayLike | None,
    settings: Landmarks,
    sigma: str = "given",
    targets: Real | None = None,
) -> Features:
    """Return features on landmarks: the landmarks, the bandwidths of the kernels, and the basis of the similarities.

    ``source="labelled"`` needs ``targets (n, C)`` too.

    Examples
    --------
    >>> import omkl
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> made = place(omkl.gaussian(0.5, 1), 3, 0, X, Landmarks(rank=20), sigma="median")
    >>> made.landmarks.shape, made.basis.shape, made.spectrum.shape
    ((100, 3), (1, 100, 20), (1, 20))
    """
    _require_gaussians(kernels)
    return place_all(kernels, [marks(dimension, seed, sample, settings, targets)], settings, sigma).of(0)


def marks(
    dimension: int, seed: int, sample: npt.ArrayLike | None, settings: Landmarks, targets: Real | None = None
) -> Marks:
    """Return the landmarks of a seed, and the limits within which inputs are told apart."""
    found = _normal(settings.rows, dimension, seed) if settings.source == "normal" else checked(sample, dimension)
    middle, spread = found.mean(axis=0), FARTHEST * found.std(axis=0)
    limits = np.stack([middle - spread, middle + spread]).astype(np.float32)
    found = np.clip(found, *limits)
    factors = weighed(found, targets) if settings.source == "labelled" else None
    if factors is not None:
        found, limits = found * factors, limits * factors
    if settings.source == "centers":
        found = centers(found, settings.rows, seed)
    return Marks(found.astype(np.float32), limits, factors)


def place_all(
    kernels: Sequence[Kernel],
    every: Sequence[Marks],
    settings: Landmarks,
    sigma: str = "given",
    solve: Callable[..., Directions] | None = None,
) -> Features:
    """Return the features of several seeds, ``(S, ...)``.

    ``solve`` is ``directions``, or does the same elsewhere: on a device, for many seeds at once.
    """
    _require_gaussians(kernels)
    points, limits = (np.stack(part) for part in list(zip(*every, strict=True))[:2])
    widths = np.array([kernel.sigma for kernel in kernels])
    found = (solve or directions)(points, limits, widths, settings.rank, sigma == "median")
    units = np.asarray(found.unit)
    for unit in units[:, None]:
        require_unit(float(unit[0]), points.shape[1])
    basis = _turned(found.basis, np.asarray(found.values), found.vectors)
    weights = [one.relevance for one in every if one.relevance is not None]
    factors = np.stack(weights) if weights else None
    bandwidths = (widths * units[:, None]).astype(np.float32)
    return Features(None, basis[:, None], found.spectrum[:, None], points, limits, bandwidths, factors)


def _require_gaussians(kernels: Sequence[Kernel]) -> None:
    if others := [kernel.name for kernel in kernels if kernel.name != "gaussian"]:
        raise InputError(f"kernel {others[0]!r}; landmarks are compared by Gaussians; use gaussian(...), or a Basis")


def directions(points: Array, limits: Array, widths: Array, rank: int, is_median: bool) -> Directions:
    """Return what similarities among landmarks ``(S, L, d)`` vary in.

    In double precision, of what all have in single: the basis is then the same to the digits it is kept in. Each seed
    is by itself, so that it comes out the same whatever others there are.
    """
    xp = namespace(points)
    exact = [xp.astype(part, xp.float64) for part in (points, limits)]
    squares = squared_distances(exact[0] - xp.mean(exact[1], axis=-2)[..., None, :])
    unit = middle_distance(squares) if is_median else xp.ones(points.shape[0], dtype=xp.float64)
    bandwidths = xp.astype(xp.astype(widths * unit[:, None], xp.float32), xp.float64)
    values, vectors = largest_first(compare(squares, bandwidths[:, None]))
    most = min(rank, values.shape[-1])
    towards = xp.sum(vectors[..., :most] * xp.asarray(_probes(values.shape[-1], most)), axis=-2)
    signed = vectors[..., :most] * xp.sign(towards)[..., None, :]
    kept = (xp.astype(part, xp.float32) for part in whitened(values, signed, rank))
    return Directions(unit, values, vectors, *kept)


def weighed(inputs: Floats, targets: Real | None) -> npt.NDArray[np.float32]:
    """Return the factors of the columns, ``(d,)``.

    They are computed in double precision and rounded to three digits, so that all nodes get the same numbers.
    """
    if targets is None or len(targets) != len(inputs):
        raise InputError(
            f'source is "labelled", without a label for each of {len(inputs)} calibration rows; labels tell which '
            'columns matter; give y beside X, or take "rows"'
        )
    return relevance(inputs, np.asarray(targets, np.float64)).round(3).astype(np.float32)


def largest_first(similar: Real) -> tuple[Real, Real]:
    """Return the eigenvalues of matrices of similarities, the largest first, and the eigenvectors as columns."""
    values, vectors = namespace(similar).linalg.eigh(similar)
    return values[..., ::-1], vectors[..., ::-1]


def whitened(values: Real, vectors: Real, rank: int) -> tuple[Real, Real]:
    """Return the first ``rank`` directions, scaled to mean square one over the landmarks, and their spectrum."""
    xp, count, values = namespace(values), values.shape[-1], values[..., :rank]
    scales = _scales(values, count)
    missing = [(0, 0)] * (values.ndim - 1) + [(0, rank - values.shape[-1])]
    basis = vectors[..., : values.shape[-1]] * scales[..., None, :]
    return xp.pad(basis, [(0, 0), *missing]), xp.pad(xp.where(scales > 0, values / count, 0), missing)


def _scales(values: Array, count: int) -> Array:
    """Return what brings directions to mean square one; zero where they are rounding errors."""
    xp = namespace(values)
    kept = values > SMALLEST * values[..., :1]
    return xp.where(kept, math.sqrt(count) / xp.where(kept, values, 1), 0)


def _turned(basis: Array, values: Real, vectors: Array) -> Array:
    """Return a basis in which eigenvectors of equal eigenvalues, for which any rotation is as good, follow from others.

    They are projections of fixed random vectors on the space that they span, one after the other.
    """
    count, rank = values.shape[-1], basis.shape[-1]
    if not (spaces := _spaces(values, min(rank, count))):
        return basis
    made = np.array(basis)
    for s, first, last in spaces:
        space, kept = np.asarray(vectors[s, :, first:last]), slice(first, min(last, rank))
        turned, upper = np.linalg.qr(space.T @ _probes(count, last)[:, first:last])
        space = space @ (turned * np.sign(np.diag(upper)))
        made[s, :, kept] = space[:, : kept.stop - first] * _scales(values[s], count)[kept]
    return made


def _spaces(values: Real, rank: int) -> list[tuple[int, int, int]]:
    """Return which of the first ``rank`` eigenvalues of every seed are taken for equal: from where, up to where."""
    before = values[:, :-1]
    near = (before - values[:, 1:] < EQUAL * before) & (before > SMALLEST * values[:, :1])
    found: list[tuple[int, int, int]] = []
    for s, k in np.argwhere(near).tolist():
        if found and found[-1][0] == s and found[-1][2] == k + 1:
            found[-1] = s, found[-1][1], k + 2
        elif k < rank:
            found.append((s, k, k + 2))
    return found


def centers(inputs: Floats, count: int, seed: int) -> Floats:
    """Return the centers of ``count`` clusters of inputs, by k-means that starts from rows drawn by the seed.

    Compute them once, where the inputs are, and share the result: on another processor an input between two centers may
    go to the other one.

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


@cache
def _probes(count: int, most: int) -> Floats:
    return _normal(count, most, 0)


def _normal(count: int, dimension: int, seed: int) -> Floats:
    """Return standard normal rows of a seed."""
    rows = noise.fold(noise.key(int(seed), "landmarks"), np.arange(count)[:, None])
    u = noise.uniforms(rows, 2 * dimension).reshape(count, dimension, 2)
    return np.asarray(np.sqrt(-2 * np.log(u[..., 0])) * np.cos(2 * np.pi * u[..., 1]), dtype=np.float64)
