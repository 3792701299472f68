"""Units and features from the first rows."""

from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl import calibration, features, landmarks
from omkl.features import Features
from omkl.landmarks import Landmarks
from omkl.methods import Bank, Method
from omkl.online.tracking import Tracking
from omkl.relevance import relevance, squared_distances, typical_distance
from omkl.scaling import Floats

FARTHEST = np.float32(5)  # deviations: beyond what the rows have shown, kernels see nothing
FARTHEST_ON_A_LINE = np.float32(10)  # deviations: a trend goes on; a typing error and a heavy tail are none
MOST_LANDMARKS = 384  # of the rows: more cost time when they calibrate
HUGE = 2.0**500  # of an input
MOST_LINES = 60  # directions of the columns that a line has, of most variance

Rows: TypeAlias = npt.NDArray[np.float32]
"""Standardized, ``(n, d)``."""


class Units(NamedTuple):
    """What numbers are centered at and divided by, ``(d,)`` each."""

    center: Floats
    scale: Floats


class Calibrated(NamedTuple):
    """What the kept rows say of the world."""

    rows: int
    method: Method
    features: Features
    inputs: Units
    targets: Units
    relevance: Floats | None = None
    """What standardized columns are multiplied by, ``(d,)``; None leaves them as they are."""
    directions: npt.NDArray[np.float32] | None = None
    """Those of the columns that are features too, ``(d, q)``, with a constant after them; None has no such features."""


def calibrate(method: Any, X: Floats, targets: Units, learned: Rows, seed: int) -> Calibrated:
    """Return what rows ``(n, d)`` say, with their targets as they are learned, ``(n, C)``.

    Columns are weighed where features are similarities to landmarks; where numbers are learned that way, features have
    a linear part.
    """
    inputs = units(X)
    sample, factors, directions = standardized(X, inputs), None, None
    if isinstance(method.bank.basis, Landmarks):
        count = min(len(sample), MOST_LANDMARKS)
        marks = np.arange(count) * len(sample) // count  # evenly spaced
        # By all rows, not by the landmarks alone: which columns matter is hard to see, and decided for long.
        factors = relevance(sample, np.clip(learned, -FARTHEST, FARTHEST))
        sample = sample[marks] * factors.astype(np.float32)
    method, made = calibrated(method, sample, seed)
    if isinstance(method, Tracking):
        # Of many classes the line is how often each comes: columns in it cost time, and errors on digits.
        most = 0 if method.is_bounded and learned.shape[1] > 1 else MOST_LINES
        directions, variance = _lines(sample, most)
        spectrum = np.concatenate([made.spectrum, variance[None]], axis=1)
        method, made = lined(method, made._replace(spectrum=spectrum), len(variance))
    return Calibrated(len(X), method, made, inputs, targets, factors, directions)


def lined(method: Tracking, made: Features, lines: int) -> tuple[Tracking, Features]:
    """Return the method for features of which the last are the columns themselves."""
    assert made.spectrum is not None
    rank = made.spectrum.shape[-1]
    return method.replace(lines=lines, basis=Landmarks(rank, max(2, rank))), made


def _lines(sample: Rows, most: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return so many directions of the columns ``(d, q)``, of mean square one, and their share of the variance.

    The constant comes last, with one.
    """
    if not most:
        return np.zeros((sample.shape[1], 0), np.float32), np.ones(1, np.float32)
    wide = sample.shape[1] > len(sample)  # the smaller matrix of products has the same eigenvalues
    products = (sample @ sample.T if wide else sample.T @ sample).astype(np.float64) / len(sample)
    values, vectors = np.linalg.eigh(products)
    kept = np.flatnonzero(values > max(1e-6 * values[-1], 1e-12))[::-1][:most]
    directions = vectors[:, kept] / np.sqrt(values[kept])
    if wide:
        directions = sample.T @ directions / np.sqrt(len(sample) * values[kept])
    return directions.astype(np.float32), np.append(values[kept] / (values.sum() or 1), 1).astype(np.float32)


def calibrated(method: Any, sample: Rows, seed: int) -> tuple[Any, Features]:
    """Return the features of standardized rows, and the method with the basis that they allow.

    Rows that are all in one place say nothing of how inputs vary. Bandwidths are then those of standard normal inputs,
    and the one coordinate is that of this place.
    """
    rows, inputs = sample.shape
    unit = typical_distance(squared_distances(sample))
    if method.bank.sigma == "median":
        kernels = tuple(
            replace(one, sigma=one.sigma * (unit or calibration.normal_median(inputs))) for one in method.bank.kernels
        )
        method = method.replace(kernels=kernels, sigma="given")
    if (basis := method.bank.basis) is not None:
        rank = min(basis.rank, rows) if unit else 1
        method = method.replace(basis=type(basis)(rank, max(rows, 2)))
    bank = method.bank
    if isinstance(bank.basis, Landmarks):
        return method, _placed(bank, sample if unit else sample[:1])
    if unit or bank.basis is None:
        return method, bank.draw(inputs, seed, sample)
    frequencies = features.draw(bank.kernels, bank.features, inputs, seed, orthogonal=bank.orthogonal)
    place = features.transform(sample[:1], Features(frequencies))[0]
    return method, Features(frequencies, place[..., None], np.ones((len(place), 1), np.float32))


def _placed(bank: Bank, sample: Rows) -> Features:
    """Return what ``landmarks.place`` does, in single precision and so sooner: no other machine has to come to it."""
    widths = np.array([kernel.sigma for kernel in bank.kernels], np.float32)
    middle = sample.mean(axis=0)
    far = FARTHEST * (sample.std(axis=0) if len(sample) > 1 else np.ones_like(middle))
    limits = np.stack([middle - far, middle + far])
    marks = np.clip(sample, *limits)
    directions = landmarks.largest_first(features.similarities(marks, marks, limits, widths))
    basis, spectrum = (np.ascontiguousarray(part[None]) for part in landmarks.whitened(*directions, bank.width))
    return Features(None, basis, spectrum, marks, limits, widths)


def units(table: Floats) -> Units:
    """Return mean and deviation of columns ``(n, d)``; what has not varied has scale 1, and nan is not counted.

    >>> units(np.array([[1.0, 5.0], [3.0, np.nan]]))
    Units(center=array([2., 5.]), scale=array([1.41421356, 1.        ]))
    """
    there = ~np.isnan(table)
    if np.abs(table, where=there, out=np.zeros(table.shape)).max(initial=0) > HUGE:  # whose squares are infinite
        center, scale = units(table / HUGE)
        return Units(center * HUGE, scale * HUGE)
    count = np.maximum(there.sum(axis=0), 1)
    center = np.where(there, table, 0).sum(axis=0) / count
    apart = np.where(there, table - center, 0)
    variance = (apart * apart).sum(axis=0) / np.maximum(count - 1, 1)
    # A column that is constant but for rounding has no unit either.
    varied = variance > (1e-12 * np.abs(center)) ** 2
    return Units(center, np.sqrt(np.where(varied, variance, 1.0)))


def table(rows: list[Floats]) -> Floats:
    """Return rows as a table, those that are shorter than the longest filled up with nan."""
    made = np.full((len(rows), max(map(len, rows))), np.nan)
    for k, row in enumerate(rows):
        made[k, : len(row)] = row
    return made


def described(X: Floats, made: Calibrated, dtype: Any = np.float32) -> npt.NDArray[Any]:
    """Return the features of rows ``(n, P, r)``, in single or double precision.

    In double precision predictions of a row do not depend on what others it is predicted with.
    """
    apart = _apart(_columns(X, made), made.inputs)
    factors = np.ones(apart.shape[1]) if made.relevance is None else made.relevance
    parts = made.features
    if dtype != np.float32:
        parts = Features(*(None if part is None else part.astype(dtype) for part in parts))
    near = np.clip(apart, -FARTHEST, FARTHEST).astype(np.float32) * factors.astype(np.float32)
    z = mapped(near.astype(dtype), parts)
    if made.directions is None:
        return z
    reach = line_reach(made.features)
    far = np.clip(apart, -reach, reach).astype(np.float32) * factors.astype(np.float32)
    line = far.astype(dtype) @ made.directions.astype(dtype)
    return np.concatenate([z, line[:, None], np.ones((len(X), 1, 1), dtype)], axis=-1)


def line_reach(made: Features) -> Rows:
    """Return how many deviations of a column a line goes on for, ``(d,)``: where landmarks were clipped, no farther.

    Such a column has a heavy tail, and what comes out there is no trend.
    """
    assert made.landmarks is not None
    assert made.limits is not None
    is_heavy = ((made.landmarks <= made.limits[0]) | (made.landmarks >= made.limits[1])).any(axis=0)
    return np.where(is_heavy, FARTHEST, FARTHEST_ON_A_LINE)


def mapped(x: npt.NDArray[Any], made: Features) -> npt.NDArray[Any]:
    """Return ``features.transform`` of rows ``(n, d)``, without a copy of the frequencies."""
    if made.landmarks is not None:
        return np.asarray(features.transform(x, made))
    kernels, count, inputs = made.frequencies.shape
    angles = x @ made.frequencies.reshape(kernels * count, inputs).T
    z = features.waves(angles.reshape(len(x), kernels, count))
    return np.asarray(z if made.basis is None else features.project(z, made.basis))


def _columns(X: Floats, made: Calibrated) -> Floats:
    """Return the columns that were calibrated; those that came later are left out, and others are missing."""
    width = len(made.inputs.center)
    return X[:, :width] if X.shape[1] >= width else table([*X, np.full(width, np.nan)])[:-1]


def _apart(X: Floats, units: Units) -> Floats:
    """Return how many deviations from the mean values are; what is missing is at it."""
    apart = (X - units.center) / units.scale
    apart[np.isnan(apart)] = 0
    return np.asarray(apart)


def standardized(X: Floats, units: Units) -> Rows:
    """Return rows in these units, none farther out than ``FARTHEST``; what is missing is at the mean."""
    return np.clip(_apart(X, units), -FARTHEST, FARTHEST).astype(np.float32)
