"""Sums, products and elementary functions of float32 vectors, in forms that compile to vector instructions."""

import math

import numpy as np

from omkl.compiled.jit import Floats, Words, inner, summed

ZERO, HALF, ONE, TWO = (np.float32(value) for value in (0, 0.5, 1, 2))
UNIT = np.float32(2.0**-16)

# exp r = 1 + r + r^2 (1/2 + r E(r)) on |r| <= ln(2)/2, interpolated at Chebyshev nodes.
_E0, _E1, _E2, _E3 = (np.float32(value) for value in (0.16666576, 0.041666556, 0.008363179, 0.0013926184))
_LOG2E, _LN2_HIGH, _LN2_LOW = (np.float32(value) for value in (1 / math.log(2), 0.693359375, -2.12194440e-4))
_THIRD, _FIFTH, _SEVENTH, _NINTH, _ELEVENTH, _THIRTEENTH, _FIFTEENTH = (np.float32(1 / k) for k in range(3, 17, 2))
_LEAST = np.float32(-87)  # whose exponential is a normal float32


@inner
def exp(x: np.float32) -> np.float32:
    """Return exp(x) of x <= 0, within two units of the last place: 2^k e^r, the power put together from bits."""
    clipped = max(x, _LEAST)
    k = np.floor(clipped * _LOG2E + HALF)
    r = (clipped - k * _LN2_HIGH) - k * _LN2_LOW
    power = np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)
    return (ONE + r + r * r * (HALF + r * (_E0 + r * (_E1 + r * (_E2 + r * _E3))))) * power


@inner
def log1p(e: np.float32) -> np.float32:
    """Return ln(1 + e) for 0 <= e <= 1: twice the inverse hyperbolic tangent of e / (2 + e), by its series."""
    s = e / (TWO + e)
    u = s * s
    high = _NINTH + u * (_ELEVENTH + u * (_THIRTEENTH + u * _FIFTEENTH))
    return TWO * s * (ONE + u * (_THIRD + u * (_FIFTH + u * (_SEVENTH + u * high))))


@inner
def subtract(one: Floats, other: Floats, to: Floats) -> None:
    """Write a difference."""
    for i in range(len(to)):
        to[i] = one[i] - other[i]


@inner
def add(sums: Floats, factor: np.float32, vector: Floats) -> None:
    """Add a multiple of a vector."""
    for i in range(len(sums)):
        sums[i] += factor * vector[i]


@summed
def dot(one: Floats, other: Floats) -> np.float32:
    """Return the inner product."""
    total = ZERO
    for i in range(len(one)):
        total += one[i] * other[i]
    return total


@inner
def clear(vector: Floats) -> None:
    """Write zeros."""
    for i in range(len(vector)):
        vector[i] = ZERO


@inner
def copy(vector: Floats, to: Floats) -> None:
    """Write a vector somewhere else."""
    for i in range(len(vector)):
        to[i] = vector[i]


@inner
def highest(vector: Floats) -> np.float32:
    """Return the largest element."""
    most = vector[0]
    for i in range(1, len(vector)):
        most = max(most, vector[i])
    return most


@summed
def total(vector: Floats) -> np.float32:
    """Return the sum: not finite where an element is not."""
    sums = ZERO
    for i in range(len(vector)):
        sums += vector[i]
    return sums


@inner
def largest(vector: Floats) -> np.float32:
    """Return the largest magnitude; by the bits of the numbers, whose order is theirs and that of whole numbers."""
    bits, most = vector.view(np.uint32), np.uint32(0)
    for i in range(len(bits)):
        most = max(most, np.uint32(bits[i] & np.uint32(0x7FFFFFFF)))
    return np.uint32(most).view(np.float32)


@inner
def scramble(counter: np.uint32, low: np.uint32, high: np.uint32) -> np.uint32:
    """Return ``noise.scramble``."""
    x = np.uint32(counter * np.uint32(0x9E3779B9) + low)
    x = np.uint32((x ^ (x >> np.uint32(17))) * np.uint32(0xED5AD4BB))
    x = np.uint32((x ^ (x >> np.uint32(11)) ^ high) * np.uint32(0xAC4C1B51))
    x = np.uint32((x ^ (x >> np.uint32(15))) * np.uint32(0x31848BAB))
    return np.uint32(x ^ (x >> np.uint32(14)))


@inner
def dither(key: Words, round_: int, uniforms: Floats) -> None:
    """Write ``noise.dither`` of a round: the upper halves of the words follow the lower ones."""
    low = scramble(np.uint32(round_), key[0], key[1])
    high = scramble(np.uint32(round_), key[1], np.uint32(~key[0]))
    half = (len(uniforms) + 1) // 2
    for i in range(half):
        uniforms[i] = (np.float32(np.int32(scramble(np.uint32(i), low, high) & np.uint32(0xFFFF))) + HALF) * UNIT
    for i in range(len(uniforms) - half):
        uniforms[half + i] = (np.float32(np.int32(scramble(np.uint32(i), low, high) >> np.uint32(16))) + HALF) * UNIT
