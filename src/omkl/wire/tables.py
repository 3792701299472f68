"""Integer frequencies of the levels: the same on every machine, from the quantizer and the vector length alone.

An entropy coder needs at both ends the same integers to the last unit. So nothing is measured and no float is trusted:
the entries of a vector v of length n are taken as |v| N(0, 1/n), the probabilities follow from the quantizer's
rule, and ``decimal`` computes them to forty digits.
"""

import math
from array import array
from decimal import Decimal, localcontext
from functools import cache
from typing import TypeAlias

from omkl.errors import InputError
from omkl.quantizers import QSGD, Nearest

Coded: TypeAlias = QSGD | Nearest
"""The quantizers whose levels are worth coding."""

PRECISION = 12
TOTAL = 1 << PRECISION  # frequencies sum to this
DIGITS = 40
TAIL = 12  # standard deviations beyond which nothing is left: less than 2e-33
ROOT_TWO_PI = Decimal("2.506628274631000502415765284811045253006986740609938316629923576342")


def layout(quantizer: Coded, n: int) -> tuple[int, int]:
    """Return the length of a block in vectors of length n, and the largest magnitude of a level."""
    length = quantizer.block or n
    if n % length:
        raise InputError(f"block {length} does not divide the vector length {n} = 2D; use a divisor")
    return length, quantizer.levels if isinstance(quantizer, QSGD) else quantizer.most(length)


@cache
def frequencies(quantizer: Coded, length: int) -> tuple[int, ...]:
    """Return the frequencies of |level| = 0, 1, ..., most, for blocks of this length; both signs have the same.

    >>> frequencies(Nearest(step=2.5), 40)
    (3228, 432, 1, 1)
    """
    with localcontext() as context:
        context.prec = DIGITS
        if isinstance(quantizer, QSGD):
            one_sided = _qsgd(quantizer.levels, length)
        else:
            one_sided = _nearest(Decimal(quantizer.step), quantizer.most(length))
        room = TOTAL - 2 * len(one_sided) - 1
        scaled = [1 + math.floor(room * max(probability, Decimal(0))) for probability in one_sided]
    return TOTAL - 2 * sum(scaled), *scaled


@cache
def intervals(quantizer: Coded, length: int) -> dict[int, tuple[int, int, int]]:
    """Return for every level its frequency f, F - f, and where its interval starts; from the lowest level up."""
    by_magnitude = frequencies(quantizer, length)
    found, start = {}, 0
    for level in range(1 - len(by_magnitude), len(by_magnitude)):
        frequency = by_magnitude[abs(level)]
        found[level] = (frequency, TOTAL - frequency, start)
        start += frequency
    return found


@cache
def lookup(quantizer: Coded, length: int) -> tuple["array[int]", list[tuple[int, int, int]]]:
    """Return how to pop the levels of vectors of this length, in small tables: a node wakes with its cache cold.

    For every remainder the place of its level among entries, which have, of every level from the lowest, itself, F less
    its frequency, and where its interval starts.
    """
    found = intervals(quantizer, length).items()
    entries = [(level, rest, start) for level, (_, rest, start) in found]
    places = (place for place, (_, (frequency, _, _)) in enumerate(found) for _ in range(frequency))
    return array("H", places), entries


def _qsgd(most: int, length: int) -> list[Decimal]:
    """Return P(level = 1 ... M): the mean of 1 - |a - l| where positive, a = M v_i/|v|; M takes what is beyond.

    The second antiderivative of a normal density is in closed form, and a triangle's mean is its second difference.
    """
    deviation = most / Decimal(length).sqrt()
    excess = [_excess(Decimal(level) / deviation) * deviation for level in range(most + 1)]
    inner = [excess[level - 1] - 2 * excess[level] + excess[level + 1] for level in range(1, most)]
    return [*inner, excess[most - 1] - excess[most]]


def _nearest(step: Decimal, most: int) -> list[Decimal]:
    """Return P(level = 1 ... most): what a standard normal has within half a step of it; the last takes the tail."""
    above = [_above((level + Decimal("0.5")) * step) for level in range(most)]
    return [lower - upper for lower, upper in zip(above, [*above[1:], Decimal(0)], strict=True)]


def _density(z: Decimal) -> Decimal:
    return (-z * z / 2).exp() / ROOT_TWO_PI


def _above(z: Decimal) -> Decimal:
    """Return the chance that a standard normal exceeds z >= 0: 1/2 - phi(z) (z + z^3/3 + z^5/(3 5) + ...)."""
    if z > TAIL:
        return Decimal(0)
    term = total = z
    odd = 1
    while term > total * Decimal(10) ** -DIGITS:
        odd += 2
        term = term * z * z / odd
        total += term
    return Decimal("0.5") - _density(z) * total


def _excess(z: Decimal) -> Decimal:
    """Return the mean of max(0, N - z) for a standard normal N and z >= 0."""
    return Decimal(0) if z > TAIL else _density(z) - z * _above(z)
