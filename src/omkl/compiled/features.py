"""z(x): waves of random frequencies, and similarities to landmarks, as ``omkl.features`` states them.

Products of many rows at once are left to BLAS (``transform``). One row at a time, or rows that must come out as they
would one by one, go through ``describe``: sums run over inputs and landmarks in order, never over rows.
"""

import math

import numpy as np

from omkl.compiled.arithmetic import HALF, ONE, ZERO, add, copy, exp, largest
from omkl.compiled.jit import Floats, brief, entry, inner

TOGETHER = 8  # rows that share what is read of landmarks and basis
LIMIT = np.float32(8192)  # angles beyond which the reduction by pi/2 loses digits
FAINT = np.float32(1e-8)  # similarities below are nothing: numbers next to zero take many times as long

# pi/2 in three parts; a whole number below 2^13 times either of the first two is exact.
_HIGH, _MIDDLE, _LOW = (np.float32(part) for part in (1.5703125, 0.0004838705062866211, -4.371139006309477e-08))
_QUARTERS = np.float32(2 / math.pi)
# sin r = r + r^3 S(r^2) and cos r = 1 - r^2/2 + r^4 C(r^2) on |r| <= pi/4, interpolated at Chebyshev nodes.
_S0, _S1, _S2 = (np.float32(value) for value in (-0.16666664, 0.0083327247, -0.00019582831))
_C0, _C1, _C2 = (np.float32(value) for value in (0.041666664, -0.0013888279, 0.000024542871))


@inner
def _waves(angles: Floats, scale: np.float32, sines: Floats, cosines: Floats) -> None:
    """Write the sines and cosines of angles, times a scale."""
    if largest(angles) >= LIMIT:
        for i in range(len(angles)):
            sines[i], cosines[i] = np.sin(angles[i]) * scale, np.cos(angles[i]) * scale
        return
    for i in range(len(angles)):
        turns = np.floor(angles[i] * _QUARTERS + HALF)
        r = ((angles[i] - turns * _HIGH) - turns * _MIDDLE) - turns * _LOW
        u = r * r
        sine = r + r * u * (_S0 + u * (_S1 + u * _S2))
        cosine = ONE - HALF * u + u * u * (_C0 + u * (_C1 + u * _C2))
        quarter = np.int32(turns)
        odd = (quarter & 1) == 1
        s, c = (cosine if odd else sine), (sine if odd else cosine)
        sines[i] = (-s if (quarter & 2) == 2 else s) * scale
        cosines[i] = (-c if ((quarter + 1) & 2) == 2 else c) * scale


@entry
def waves(angles: Floats, z: Floats) -> None:
    """Write the D sines and D cosines of angles ``(rows, P, D)``, times D^(-1/2), to z ``(rows, P, 2D)``.

    Several rows at a time: vectors of 20 angles would leave most of a processor's lanes empty.
    """
    _, kernels, count = angles.shape
    scale = ONE / np.sqrt(np.float32(count))
    room = np.empty((2, TOGETHER * kernels * count), np.float32)
    for first in range(0, len(angles), TOGETHER):
        some = angles[first : first + TOGETHER]
        sines, cosines = room[0, : some.size], room[1, : some.size]
        _waves(some.reshape(-1), scale, sines, cosines)
        for k in range(len(some)):
            for p in range(kernels):
                start, to = (k * kernels + p) * count, z[first + k, p]
                copy(sines[start : start + count], to[:count])
                copy(cosines[start : start + count], to[count:])


@entry
def compare(squares: Floats, shares: Floats, exponents: Floats, doubles: bool) -> None:
    """Write the mean of Gaussians in the place of squared distances ``(rows, L)``; those below zero are rounding.

    The widest Gaussian comes first. Where widths double, that of half the width is the fourth power: one exponential
    serves them all.
    """
    values = np.empty(squares.shape[1], np.float32)
    means = np.empty(squares.shape[1], np.float32)
    for k in range(len(squares)):
        row = squares[k]
        _gaussian(row, exponents[0], shares[0], values, means)
        for b in range(1, len(shares)):
            if doubles:
                _fourth_power(shares[b], values, means)
            else:
                _gaussian(row, exponents[b], shares[b], values, values)
                add(means, ONE, values)
        copy(means, row)


@inner
def _gaussian(squares: Floats, exponent: np.float32, share: np.float32, values: Floats, shared: Floats) -> None:
    """Write Gaussians, and their share of the mean."""
    for i in range(len(values)):
        value = exp(exponent * max(squares[i], ZERO))
        value = value if value >= FAINT else ZERO
        values[i] = value
        shared[i] = share * value


@inner
def _fourth_power(share: np.float32, values: Floats, means: Floats) -> None:
    """Write the fourth powers of values, and add their share to the mean."""
    for i in range(len(values)):
        value = values[i] * values[i]
        value = value * value
        value = value if value >= FAINT else ZERO
        values[i] = value
        means[i] += share * value


@entry
def measure(X: Floats, limits: Floats, landmarks: Floats, squares: Floats) -> None:
    """Add squared distances of rows ``(n, d)``, within the limits, to landmarks ``(d, L)`` to squares ``(n, L)``."""
    for start in range(0, len(X), TOGETHER):
        rows = range(start, min(start + TOGETHER, len(X)))
        for i in range(X.shape[1]):
            if limits[1, i] > limits[0, i]:  # where not, all inputs count as the landmarks, which are alike
                for k in rows:
                    _add_squares(squares[k], min(max(X[k, i], limits[0, i]), limits[1, i]), landmarks[i])


@inner
def _add_squares(sums: Floats, value: np.float32, column: Floats) -> None:
    for j in range(len(sums)):
        apart = value - column[j]
        sums[j] += apart * apart


@entry
def project(given: Floats, basis: Floats, z: Floats) -> None:
    """Add rows ``(n, L)`` times a basis ``(L, r)`` to the first columns of z ``(n, ...)``."""
    length, rank = basis.shape
    for start in range(0, len(z), TOGETHER):
        rows = range(start, min(start + TOGETHER, len(z)))
        for i in range(0, length - 3, 4):
            for k in rows:
                _add_four(z[k, :rank], given[k, i : i + 4], basis[i : i + 4])
        for i in range(length - length % 4, length):
            for k in rows:
                add(z[k, :rank], given[k, i], basis[i])


@inner
def _add_four(sums: Floats, factors: Floats, vectors: Floats) -> None:
    one, two, three, four = factors[0], factors[1], factors[2], factors[3]
    for j in range(len(sums)):
        sums[j] += (one * vectors[0, j] + two * vectors[1, j]) + (three * vectors[2, j] + four * vectors[3, j])


@brief
def describe(
    X: Floats, limits: Floats, landmarks: Floats, shares: Floats, exponents: Floats, doubles: bool, basis: Floats
) -> Floats:
    """Return the features ``(n, r)`` of inputs ``(n, d)``, each as if it were alone."""
    length, rank = basis.shape
    similar, z = np.zeros((len(X), length), np.float32), np.zeros((len(X), rank), np.float32)
    measure(X, limits, landmarks, similar)
    compare(similar, shares, exponents, doubles)
    project(similar, basis, z)
    return z
