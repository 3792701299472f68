"""Features z(x): random ones, of kernels by their spectra, and similarities to landmarks.

A shift-invariant kernel is the Fourier transform of a probability density, its spectrum. With frequencies
``v_1 ... v_D`` drawn from it, ``z(x).z(x')`` is an unbiased estimate of the kernel, with variance of order 1/D. Where
there are landmarks, inputs that all nodes hold, the kernel itself is computed, at each of them.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.arrays import Array, namespace, products
from omkl.errors import InputError, real, unknown
from omkl.registry import Registry

Floats: TypeAlias = npt.NDArray[np.float64]
Spectrum: TypeAlias = Callable[[np.random.Generator, int], Floats]
"""A user's own spectrum: ``spectrum(rng, d)`` draws one frequency vector of length d."""


def _normal(u: Floats) -> Floats:
    return np.asarray(np.sqrt(-2 * np.log(u[..., 0])) * np.cos(2 * np.pi * u[..., 1]))


def _cauchy(u: Floats) -> Floats:
    return np.asarray(np.tan(np.pi * (u[..., 0] - 0.5)))


def _laplace(u: Floats) -> Floats:
    return np.asarray(-np.sign(u[..., 1] - 0.5) * np.log(u[..., 0]))


def _student(u: Floats, degrees: int) -> Floats:
    """Return the multivariate t with these degrees of freedom: normals over the root of a mean of squares of others."""
    normals = _normal(u)
    shared = np.mean(normals[..., -degrees:] ** 2, axis=-1, keepdims=True)
    return np.asarray(normals[..., :-degrees] / np.sqrt(shared))


# The degrees of freedom 2 nu of Matérn kernels: one more pair of uniforms each, after those of the d entries.
DEGREES = {"matern12": 1, "matern32": 3, "matern52": 5}
NARROWEST, WIDEST = 1e-17, 1e17  # bandwidths: their squares, and frequencies, must be numbers of float32

# The spectrum of each kernel at sigma = 1, as a transform of two uniforms per entry.
SPECTRA: Registry[Callable[[Floats], Floats]] = Registry(
    "omkl.kernels",
    {"gaussian": _normal, "laplacian": _cauchy, "cauchy": _laplace}
    | {name: partial(_student, degrees=degrees) for name, degrees in DEGREES.items()},
)
RADIAL = ("gaussian", *DEGREES)
"""Kernels of |x-x'|. The directions of their frequencies are uniform and independent of the lengths."""


@dataclass(frozen=True)
class Kernel:
    """A shift-invariant kernel with bandwidth ``sigma``, given by its spectrum.

    Attributes
    ----------
    name
        ``"gaussian"``, ``"laplacian"``, ``"cauchy"``, ``"matern12"``, ``"matern32"``, ``"matern52"``; or a name of your
        own, together with ``spectrum``.
    sigma
        Bandwidth. A Gaussian kernel is exp(-|x-x'|^2 / (2 sigma^2)), that is scikit-learn's gamma = 1/(2 sigma^2).
    spectrum
        A function ``spectrum(rng, d)`` that draws one frequency vector at sigma = 1. Only for kernels of your own.
    """

    name: str
    sigma: float = 1.0
    spectrum: Spectrum | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", real("sigma", self.sigma))
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise InputError(f"sigma is {self.sigma}; a bandwidth must be positive and finite; try sigma=1")
        if not NARROWEST <= self.sigma <= WIDEST:
            rule = f"a bandwidth must lie between {NARROWEST:g} and {WIDEST:g}, for features are float32"
            raise InputError(f"sigma is {self.sigma:g}; {rule}; scale the inputs to sizes near 1")
        if self.spectrum is not None and not callable(self.spectrum):
            raise InputError(f"spectrum is {self.spectrum!r}; it must be a function of (rng, d) that draws d numbers")
        if self.spectrum is None and self.name not in SPECTRA:
            raise InputError(unknown("kernel", self.name, SPECTRA) + "; or give a spectrum of your own")


class Features(NamedTuple):
    """What z(x) is computed with."""

    frequencies: Array
    """``(..., P, D, d)``; None where there are landmarks."""
    basis: Array | None = None
    """Directions to keep, of the 2D ``(..., P, 2D, r)``, or of L similarities ``(..., 1, L, r)``; None keeps them all.

    See ``omkl.calibration`` and ``omkl.landmarks``.
    """
    spectrum: Array | None = None
    """The mean square of z along each direction before it was scaled to one, ``(..., P, r)``."""
    landmarks: Array | None = None
    """The inputs that others are compared with, ``(..., L, d)``."""
    limits: Array | None = None
    """The lowest and highest value of every column, ``(..., 2, d)``; values beyond are moved to the limit."""
    bandwidths: Array | None = None
    """The bandwidths of the Gaussians that compare inputs, ``(..., B)``."""
    relevance: Array | None = None
    """Factors of the columns, applied before comparing, ``(..., d)``; landmarks and limits already contain them."""

    def of(self, seed: Any) -> "Features":
        """Return the features of one seed, or of several, from features ``(S, ...)``."""
        return Features(*(None if part is None else part[seed] for part in self))

    @property
    def inputs(self) -> int:
        """The length of an input."""
        return int((self.frequencies if self.landmarks is None else self.landmarks).shape[-1])


def stacked(every: Sequence[Features]) -> Features:
    """Return the features of several seeds as one object, ``(S, ...)``."""
    parts = zip(*every, strict=True)
    return Features(*(None if part[0] is None else np.stack(part) for part in parts))


def gaussian(*sigmas: float) -> tuple[Kernel, ...]:
    """Return Gaussian kernels exp(-|x-x'|^2 / (2 sigma^2)), one for each bandwidth.

    >>> [kernel.sigma for kernel in gaussian(1, 3, 5)]
    [1.0, 3.0, 5.0]
    """
    return tuple(Kernel("gaussian", sigma) for sigma in sigmas)


def laplacian(*sigmas: float) -> tuple[Kernel, ...]:
    """Return Laplacian kernels exp(-|x-x'|_1 / sigma), one for each bandwidth."""
    return tuple(Kernel("laplacian", sigma) for sigma in sigmas)


def cauchy(*sigmas: float) -> tuple[Kernel, ...]:
    """Return Cauchy kernels, the product over i of 1/(1 + (x_i-x'_i)^2/sigma^2), one for each bandwidth."""
    return tuple(Kernel("cauchy", sigma) for sigma in sigmas)


def matern(*sigmas: float, nu: float = 1.5) -> tuple[Kernel, ...]:
    """Return Matérn kernels of smoothness ``nu``, one for each bandwidth: 1/2, 3/2 or 5/2, rough to smooth.

    With s = sqrt(2 nu) |x-x'| / sigma they are exp(-s), (1 + s) exp(-s) and (1 + s + s^2/3) exp(-s). Their names are
    ``"matern12"``, ``"matern32"`` and ``"matern52"``, also in a file.

    >>> matern(1, 3, nu=2.5)[1].name
    'matern52'
    """
    names = {degrees / 2: name for name, degrees in DEGREES.items()}
    if (nu := real("nu", nu)) not in names:
        raise InputError(f"nu is {nu}; the Matérn kernels here have nu = 0.5, 1.5 or 2.5; try nu=1.5")
    return tuple(Kernel(names[nu], sigma) for sigma in sigmas)


def draw(
    kernels: Sequence[Kernel], features: int, dimension: int, seed: int, *, orthogonal: bool = False
) -> npt.NDArray[np.float32]:
    """Return frequencies of shape ``(P, D, d)``.

    Row i of kernel p depends only on (seed, p, i) and the kernel. So a larger D, or more kernels, keeps the rows that
    were there. Rows are drawn in float64 and rounded once, so that every node gets the same ones.

    With ``orthogonal``, each d rows of a radial kernel are orthogonal to each other (Yu et al. 2016), and row i depends
    on the rows before it in its block. Each row alone still has the kernel's spectrum, so the estimate stays unbiased.
    """
    rows = [_draw_one(kernel, features, dimension, noise.fold(noise.key(seed, "features"), p))
            for p, kernel in enumerate(kernels)]  # fmt: skip
    if orthogonal:
        rows = [_orthogonal(one) if _is_radial(kernel) else one for one, kernel in zip(rows, kernels, strict=True)]
    return np.stack(rows).astype(np.float32)


def transform(x: Array, features: Features) -> Array:
    """Return z(x), shape ``x.shape[:-1] + (..., P, 2D)``, or ``x.shape[:-1] + (..., P, r)`` in a basis.

    Notes
    -----
    z(x) = D^(-1/2) [sin(v_1.x) ... sin(v_D.x)  cos(v_1.x) ... cos(v_D.x)], so that |z(x)| = 1. With landmarks, z(x) are
    the similarities in their basis.
    """
    if features.landmarks is not None:
        assert features.limits is not None
        assert features.bandwidths is not None
        assert features.basis is not None
        similar = similarities(x, features.landmarks, features.limits, features.bandwidths, features.relevance)
        return project(similar[..., None, :], features.basis)
    z = waves(namespace(x).tensordot(x, features.frequencies, axes=((-1,), (-1,))))
    return z if features.basis is None else project(z, features.basis)


def similarities(x: Array, landmarks: Array, limits: Array, bandwidths: Array, relevance: Array | None = None) -> Array:
    """Return the similarities k(x, l) to landmarks ``(..., L, d)``, shape ``x.shape[:-1] + (..., L)``.

    Inputs are first brought within the limits. k is a mean of Gaussians exp(-|x-l|^2 / (2 sigma^2)), weighed in
    proportion to their bandwidths: narrow Gaussians tell near inputs apart, and are mostly noise where few landmarks
    are near.
    """
    xp = namespace(x)
    low, high = limits[..., 0, :], limits[..., 1, :]
    center = (low + high) / 2  # squares of what is far from zero would cancel
    x = xp.reshape(x, (*x.shape[:-1], *(1,) * (low.ndim - 1), x.shape[-1]))
    x = x if relevance is None else x * relevance
    x = xp.minimum(xp.maximum(x, low), high) - center
    landmarks = landmarks - center[..., None, :]
    rows = xp.moveaxis(xp.reshape(x, (-1, *x.shape[-low.ndim :])), 0, -2)
    near = xp.moveaxis(products(rows, landmarks), -2, 0)
    lengths = xp.sum(x * x, axis=-1)[..., None] + xp.sum(landmarks * landmarks, axis=-1)
    return compare(xp.clip(lengths - 2 * xp.reshape(near, lengths.shape), 0, None), bandwidths)


def compare(squares: Array, bandwidths: Array) -> Array:
    """Return the weighted mean of Gaussians with bandwidths ``(..., B)``, at squared distances ``(..., L)``."""
    xp, sums = namespace(squares), 0
    for b in range(bandwidths.shape[-1]):  # one at a time: all at once would be many times what there is to read
        sigma = bandwidths[..., b, None]
        sums = sums + sigma * xp.exp(squares / (-2 * sigma * sigma))
    return sums / xp.sum(bandwidths, axis=-1, keepdims=True)


def waves(angles: Array) -> Array:
    """Return z(x), shape ``(..., 2D)``, for the angles v_i.x, shape ``(..., D)``."""
    xp = namespace(angles)
    return xp.concat([xp.sin(angles), xp.cos(angles)], axis=-1) * (angles.shape[-1] ** -0.5)


def project(z: Array, basis: Array) -> Array:
    """Return the features z ``(..., P, 2D)`` in a basis ``(P, 2D, r)``: shape ``(..., P, r)``."""
    xp = namespace(z)
    rows = xp.reshape(z, (-1, *z.shape[1 - basis.ndim :]))
    projected = xp.matmul(xp.moveaxis(rows, 0, -2), basis)  # kernel by kernel, one product for all rows
    return xp.reshape(xp.moveaxis(projected, -2, 0), (*z.shape[:-1], basis.shape[-1]))


def _draw_one(kernel: Kernel, features: int, dimension: int, key: noise.Key) -> Floats:
    if kernel.spectrum is None:
        rows = noise.fold(key, np.arange(features)[:, None])
        u = noise.uniforms(rows, 2 * (dimension + DEGREES.get(kernel.name, 0))).reshape(features, -1, 2)
        return SPECTRA[kernel.name](u) / kernel.sigma
    seeds = noise.words(noise.fold(key, np.arange(features)[:, None]), 4)
    drawn = np.array([kernel.spectrum(np.random.Generator(np.random.PCG64(s)), dimension) for s in seeds])
    if drawn.shape != (features, dimension) or not np.isfinite(drawn).all():
        raise InputError(
            f"the spectrum of kernel {kernel.name!r} gave an array of shape {drawn.shape[1:]} or a non-finite value; "
            f"spectrum(rng, d) must return {dimension} finite numbers for d={dimension}"
        )
    return drawn / kernel.sigma


def _is_radial(kernel: Kernel) -> bool:
    return kernel.spectrum is None and kernel.name in RADIAL


def _orthogonal(rows: Floats) -> Floats:
    """Return rows of the same lengths, each freed of its part along those before it in its block of d.

    A row's length says nothing of its direction, so it is as good as a fresh draw from the radial law.
    """
    count, d = rows.shape
    unit = np.zeros((-(-count // d), min(count, d), d))
    for k in range(unit.shape[1]):
        row = rows[k::d, None]  # of every block that has a row k
        before = unit[: len(row), :k]
        for _ in range(2):  # the second time takes what rounding left
            row = row - row @ before.swapaxes(1, 2) @ before
        unit[: len(row), k] = (row / np.linalg.norm(row, axis=-1, keepdims=True))[:, 0]
    return np.asarray(unit.reshape(-1, d)[:count] * np.linalg.norm(rows, axis=-1, keepdims=True))
