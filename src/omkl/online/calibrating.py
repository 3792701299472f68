"""Units and features from the first rows."""

from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl import calibration, features
from omkl.features import Features
from omkl.landmarks import Landmarks
from omkl.methods import Method
from omkl.scaling import Floats

FARTHEST = np.float32(
    5
)  # deviations: units are of the first rows, and beyond what those have shown kernels see nothing

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
    wide: Features
    """The same in float64: predictions of a row do not depend on what others it is predicted with."""
    inputs: Units
    targets: Units


def calibrated(method: Any, sample: Rows, seed: int) -> tuple[Any, Features]:
    """Return the features of standardized rows, and the method with the basis that they allow.

    Rows that are all in one place say nothing of how inputs vary. Bandwidths are then those of standard normal inputs,
    and the one coordinate is that of this place.
    """
    rows, inputs = sample.shape
    unit = spread(sample)
    if method.sigma == "median":
        bank = tuple(
            replace(one, sigma=one.sigma * (unit or calibration.normal_median(inputs))) for one in method.kernels
        )
        method = replace(method, kernels=bank, sigma="given")
    if method.basis is not None:
        rank = min(method.basis.rank, rows) if unit else 1
        method = replace(method, basis=type(method.basis)(rank, max(rows, 2)))
    if unit or method.basis is None:
        return method, method.draw(inputs, seed, sample)
    if isinstance(method.basis, Landmarks):
        widths = np.array([kernel.sigma for kernel in method.kernels], np.float32)
        limits = np.concatenate([sample[:1] - FARTHEST, sample[:1] + FARTHEST])
        one = np.ones((1, 1, 1), np.float32)
        return method, Features(None, one, one[0], sample[:1], limits, widths)
    frequencies = features.draw(method.kernels, method.features, inputs, seed, orthogonal=method.orthogonal)
    place = features.transform(sample[:1], Features(frequencies))[0]
    return method, Features(frequencies, place[..., None], np.ones((len(place), 1), np.float32))


def spread(sample: Rows) -> float:
    """Return the median distance between rows, or a fourth of its root mean square where most rows are alike."""
    apart = np.concatenate([np.linalg.norm(sample[k + 1 :] - row, axis=1) for k, row in enumerate(sample)])
    if not apart.size:
        return 0.0
    return max(float(np.median(apart)), float(np.sqrt(np.mean(apart.astype(np.float64) ** 2))) / 4)


def widened(made: Features) -> Features:
    """Return the features in float64."""
    return Features(*(None if part is None else part.astype(np.float64) for part in made))


def units(table: Floats) -> Units:
    """Return mean and deviation of columns ``(n, d)``; what has not varied has scale 1, and nan is not counted.

    >>> units(np.array([[1.0, 5.0], [3.0, np.nan]]))
    Units(center=array([2., 5.]), scale=array([1.41421356, 1.        ]))
    """
    there = ~np.isnan(table)
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


def mapped(x: npt.NDArray[Any], made: Features) -> npt.NDArray[Any]:
    """Return ``features.transform`` of rows ``(n, d)``, without a copy of the frequencies."""
    if made.landmarks is not None:
        return np.asarray(features.transform(x, made))
    kernels, count, inputs = made.frequencies.shape
    angles = x @ made.frequencies.reshape(kernels * count, inputs).T
    z = features.waves(angles.reshape(len(x), kernels, count))
    return np.asarray(z if made.basis is None else features.project(z, made.basis))


def scaled(X: Floats, made: Calibrated) -> Rows:
    """Return rows in the units of the calibrated columns; columns that came later are left out."""
    width = len(made.inputs.center)
    X = X[:, :width] if X.shape[1] >= width else table([*X, np.full(width, np.nan)])[:-1]
    return standardized(X, made.inputs)


def standardized(X: Floats, units: Units) -> Rows:
    """Return rows in these units, none farther out than ``FARTHEST``; what is missing is at the mean."""
    apart = (X - units.center) / units.scale
    apart[np.isnan(apart)] = 0
    return np.clip(apart, -FARTHEST, FARTHEST, out=apart).astype(np.float32)
