"""What a message costs on the wire, without packing it: for the simulator, which charges it a million times."""

import math
from functools import cache
from typing import Any, NamedTuple

from omkl.arrays import Array, namespace
from omkl.compressors import Sign
from omkl.quantizers import QSGD, Message, Nearest, Quantizer
from omkl.wire import coded, fixed, steps
from omkl.wire.frames import HEADER_BYTES
from omkl.wire.tables import TOTAL, Coded, frequencies, layout

SMALL_TABLE = 16  # levels up to which comparing with each is cheaper than looking up
TYPICAL_STEP = 2.0**-8  # of runs; two thousand times more or less makes a quarter of a bit
BARE = 8.5  # bits a number of no step loses until its symbols cost what they should, measured


class Costs(NamedTuple):
    """Bits in the coded form: a number of m bits takes ceil(m / 8) bytes, m the sum over its blocks less ``start``."""

    levels: tuple[float, ...]
    """Of a level of magnitude 0, 1, ..., in a block whose step is not zero."""
    last: float
    """Of the step of the last block in a number."""
    near: float
    """Of any other step from half the next step that is not zero, on, to below twice that."""
    far: float
    """Of any other step."""
    silent: float
    """Of a block whose step is zero, where one follows in its number that is not; else it is free."""
    start: float
    """What the first step of a number saves, since a step is seldom the largest there is."""
    width: int
    """Of a level at fixed width, where a step takes 16."""


def costs(quantizer: Coded, n: int) -> Costs:
    """Return the bits of QSGD or Nearest for vectors of length n, or those that a quantizer brings along itself."""
    brought: Costs | None = getattr(quantizer, "costs", None)
    return brought or _costs(quantizer, n)


@cache
def _costs(quantizer: Coded, n: int) -> Costs:
    length, most = layout(quantizer, n)
    step = math.log2(steps.COUNT)
    return Costs(
        levels=tuple(math.log2(TOTAL / frequency) for frequency in frequencies(quantizer, length)),
        last=_bits(coded.LAST) + step,
        near=_bits(coded.NEAR) + coded.NEAR_BITS,
        far=_bits(coded.FAR) + step,
        silent=_bits(coded.SILENT),
        start=step - math.log2(steps.code(TYPICAL_STEP) - steps.FIRST),
        width=fixed.width(2 * most + 1),
    )


def message_bytes(message: Message, quantizer: Quantizer) -> Array:
    """Return the bytes of every message's gossip frame, all-in.

    For levels of shape ``(..., P, C, 2D)`` the result is ``(...)``, whole numbers as float32. Exact, but for the coded
    form: there each number is as long as its symbols' costs say, right on average and seldom off by a byte.
    """
    xp = namespace(message.step)
    *leading, kernels, outputs, n = message.levels.shape
    if isinstance(quantizer, QSGD | Nearest):
        table = costs(quantizer, n)
        return HEADER_BYTES + xp.minimum(_coded(xp, message, table), _fixed(xp, message, table.width))
    if isinstance(quantizer, Sign):
        return HEADER_BYTES + _fixed(xp, message, 1)
    total = HEADER_BYTES + math.ceil(kernels * outputs * quantizer.size(n) / 8)
    return xp.full(tuple(leading), float(total), dtype=xp.float32)


def _bits(interval: tuple[int, int, int]) -> float:
    return math.log2(TOTAL / interval[0])


def _fixed(xp: Any, message: Message, width: int) -> Array:
    spoken = xp.astype(message.step > 0, xp.float32)
    length = message.levels.shape[-1] // spoken.shape[-1]
    rows = math.prod(spoken.shape[-3:])
    return 2 * rows + xp.ceil(xp.sum(spoken, axis=(-3, -2, -1)) * (width * length / 8))


def _coded(xp: Any, message: Message, table: Costs) -> Array:
    """Return the bytes of all numbers, each ``together`` blocks or one of the ``pieces`` of a block."""
    *leading, kernels, outputs, n = message.levels.shape
    count = kernels * outputs * message.step.shape[-1]
    length = kernels * outputs * n // count
    together, pieces = min(count, coded.ELEMENTS // length or 1), -(-length // coded.ELEMENTS)
    step = _fill(xp, xp.reshape(message.step, (*leading, count)), together)
    levels = xp.reshape(_look_up(xp, message.levels, table.levels), (*leading, count, length))
    levels = xp.sum(_fill(xp, levels, coded.ELEMENTS) if pieces > 1 else levels[..., None, :], axis=-1)
    levels = xp.stack([_fill(xp, levels[..., piece], together) for piece in range(pieces)], axis=-1)
    spoken = xp.astype(step > 0, xp.float32)
    bits = xp.sum(levels * spoken[..., None], axis=-2)
    first = xp.ceil((bits[..., 0] + xp.sum(block_bits(xp, step, count, table), axis=-1) - table.start) / 8)
    others = xp.ceil((bits[..., 1:] + BARE) / 8) * spoken[..., :1]
    whole = xp.sum(xp.clip(first, 0, None), axis=-1) + xp.sum(others, axis=(-2, -1))
    return whole + 2 * (pieces * step.shape[-2] - 1)


def block_bits(xp: Any, step: Array, count: int, table: Costs) -> Array:
    """Return what every block costs beside its levels; steps are ``(..., numbers, together)``."""
    numbers, together = step.shape[-2:]
    following = _shift(xp, step, 1)
    for reach in (1 << power for power in range((together - 1).bit_length())):
        following = xp.where(following > 0, following, _shift(xp, following, reach))
    near = (2 * step >= following) & (step < 2 * following)
    ends = [index % together == together - 1 or index == count - 1 for index in range(numbers * together)]
    far = xp.reshape(xp.asarray([table.last if end else table.far for end in ends], dtype=xp.float32), (numbers, -1))
    silent = xp.astype(following > 0, xp.float32) * table.silent
    return xp.where(step > 0, xp.where(near, table.near, far), silent)


def _fill(xp: Any, array: Array, size: int) -> Array:
    """Return the last axis cut into pieces of a size, the last one filled up with zeros."""
    *leading, length = array.shape
    zeros = xp.zeros((*leading, -length % size), dtype=array.dtype)
    return xp.reshape(xp.concat([array, zeros], axis=-1), (*leading, -1, size))


def _shift(xp: Any, array: Array, by: int) -> Array:
    zeros = xp.zeros_like(array[..., :by])
    return xp.concat([array[..., by:], zeros], axis=-1)


def _look_up(xp: Any, levels: Array, table: tuple[float, ...]) -> Array:
    magnitude = xp.abs(levels)
    if len(table) > SMALL_TABLE:
        flat = xp.astype(xp.reshape(magnitude, (-1,)), xp.int32)
        return xp.reshape(xp.take(xp.asarray(table, dtype=xp.float32), flat, axis=0), levels.shape)
    found = xp.full(levels.shape, table[0], dtype=xp.float32)
    for level, cost in enumerate(table[1:], start=1):
        found = xp.where(magnitude == level, cost, found)
    return found
