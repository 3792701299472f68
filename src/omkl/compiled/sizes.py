"""What a message costs on the wire, as ``omkl.wire.sizes`` states it."""

import math
from typing import NamedTuple

import numpy as np

from omkl import wire
from omkl.compiled.arithmetic import ONE, TWO, ZERO
from omkl.compiled.jit import Floats, inner, summed
from omkl.compressors import Sign
from omkl.quantizers import QSGD, Nearest, Quantizer
from omkl.wire.coded import ELEMENTS
from omkl.wire.sizes import BARE

_EIGHTH, _BARE = np.float32(1 / 8), np.float32(BARE)


class Prices(NamedTuple):
    """Bits of the parts of a message, as in ``wire.Costs``, and bytes of the rest."""

    is_coded: bool
    is_fixed: bool
    """Whether levels could go at fixed width; where neither, all messages are of one size."""
    levels: Floats
    """Of a level by its magnitude."""
    last: np.float32
    near: np.float32
    far: np.float32
    silent: np.float32
    start: np.float32
    together: int
    """Blocks in a number."""
    pieces: int
    """Numbers that a long block is cut into."""
    lengths: np.float32
    """Bytes that tell where numbers end."""
    block: np.float32
    """Bytes of the levels of a block at fixed width."""
    steps: np.float32
    """Bytes of all steps at fixed width."""
    frame: np.float32
    """Bytes of the rest of the frame."""


def prices(quantizer: Quantizer, rows: int, n: int) -> Prices:
    """Return what ``wire.message_bytes`` charges for messages of so many vectors of length n."""
    length = getattr(quantizer, "block", None) or n
    blocks = rows * n // length
    costs, frame, width = wire.Costs((0.0,), 0, 0, 0, 0, 0, 0), float(wire.HEADER_BYTES), 0
    if isinstance(quantizer, QSGD | Nearest):
        costs = wire.costs(quantizer, n)
        width = costs.width
    elif isinstance(quantizer, Sign):
        width = 1
    else:
        frame += math.ceil(rows * quantizer.size(n) / 8)
    together, pieces = min(blocks, ELEMENTS // length or 1), -(-length // ELEMENTS)
    return Prices(
        is_coded=isinstance(quantizer, QSGD | Nearest),
        is_fixed=width > 0,
        levels=np.array(costs.levels, np.float32),
        last=np.float32(costs.last),
        near=np.float32(costs.near),
        far=np.float32(costs.far),
        silent=np.float32(costs.silent),
        start=np.float32(costs.start),
        together=together,
        pieces=pieces,
        lengths=np.float32(2 * (pieces * -(-blocks // together) - 1)),
        block=np.float32(width * length / 8),
        steps=np.float32(2 * blocks),
        frame=np.float32(frame),
    )


@summed
def level_bits(levels: Floats, costs: Floats) -> np.float32:
    """Return what levels cost."""
    total = ZERO
    for i in range(len(levels)):
        total += costs[np.int64(abs(levels[i]))]
    return total


@inner
def message_bytes(steps: Floats, bits: Floats, s: Prices) -> np.float32:
    """Return the bytes of a frame with steps ``(blocks,)``, whose levels take so many bits ``(blocks, pieces)``."""
    fixed = s.steps + np.ceil(_spoken(steps) * s.block)
    if s.is_coded:
        return s.frame + min(_coded(steps, bits, s), fixed)
    return s.frame + (fixed if s.is_fixed else ZERO)


@inner
def _spoken(steps: Floats) -> np.float32:
    count = ZERO
    for step in steps:
        count += ONE if step > ZERO else ZERO
    return count


@inner
def _coded(steps: Floats, bits: Floats, s: Prices) -> np.float32:
    """Return the bytes of all numbers; the blocks of each go from the last to the first."""
    count, whole = len(steps), s.lengths
    for first in range(0, count, s.together):
        last = min(first + s.together, count) - 1
        number, following = -s.start, ZERO
        for k in range(last, first - 1, -1):
            step = steps[k]
            if step > ZERO:
                near = TWO * step >= following and step < TWO * following
                number += bits[k, 0] + (s.near if near else s.last if k == last else s.far)
                following = step
            elif following > ZERO:
                number += s.silent
        whole += max(np.ceil(number * _EIGHTH), ZERO)
        if steps[first] > ZERO:
            for piece in range(1, s.pieces):
                whole += np.ceil((bits[first, piece] + _BARE) * _EIGHTH)
    return whole
