"""Levels and steps of a block, as ``omkl.quantizers`` states them, and what they cost on the wire."""

import numpy as np

from omkl import compressors, quantizers
from omkl.compiled.arithmetic import HALF, ONE, TWO, ZERO, clear, dot, largest
from omkl.compiled.jit import Floats, inner, summed
from omkl.quantizers import Quantizer

QUANTIZERS: tuple[type[Quantizer], ...] = (quantizers.QSGD, quantizers.Nearest, quantizers.Exact, compressors.Sign)
QSGD, NEAREST, EXACT, SIGN = range(len(QUANTIZERS))

_SMALLEST, _LARGEST = np.float32(quantizers.SMALLEST_STEP), np.float32(quantizers.LARGEST_STEP)


@inner
def quantize(kind: int, most: np.float32, scale: np.float32, v: Floats, uniforms: Floats, levels: Floats) -> np.float32:
    """Write the levels of a block v, signed, and return its step.

    ``most`` is the largest level; ``scale`` is QSGD's tau, or the width of a level of Nearest in norms.
    """
    if kind == NEAREST:
        return _nearest(most, scale, v, levels)
    if kind == QSGD:
        return _qsgd(most, scale, v, uniforms, levels)
    if kind == SIGN:
        return _sign(v, levels)
    for i in range(len(v)):
        levels[i] = v[i] if abs(v[i]) >= _SMALLEST else ZERO
    return ONE


@inner
def _nearest(most: np.float32, scale: np.float32, v: Floats, levels: Floats) -> np.float32:
    # At twice the largest entry that entry still gets a level: never all zeros.
    width = min(np.sqrt(dot(v, v)) * scale, TWO * largest(v))
    width = width if width > ZERO else ONE
    for i in range(len(v)):
        level = min(np.floor(abs(v[i]) / width + HALF), most)
        levels[i] = -level if v[i] < ZERO else level
    step = round_up(dot(v, levels) / max(dot(levels, levels), ONE))
    if step == ZERO:
        clear(levels)
    return step


@inner
def _qsgd(most: np.float32, tau: np.float32, v: Floats, uniforms: Floats, levels: Floats) -> np.float32:
    step = round_up(np.sqrt(dot(v, v)) / (most * tau))
    width = (step if step > ZERO else ONE) * tau
    for i in range(len(v)):
        level = min(np.floor(abs(v[i]) / width + uniforms[i]), most)
        levels[i] = -level if v[i] < ZERO else level
    if step == ZERO:
        clear(levels)
    return step


@inner
def _sign(v: Floats, levels: Floats) -> np.float32:
    step = round_up(_magnitudes(v) / np.float32(len(v)))
    for i in range(len(v)):
        levels[i] = ZERO if step == ZERO else ONE if v[i] >= ZERO else -ONE
    return step


@summed
def _magnitudes(v: Floats) -> np.float32:
    total = ZERO
    for i in range(len(v)):
        total += abs(v[i])
    return total


@inner
def round_up(step: np.float32) -> np.float32:
    """Return ``quantizers.round_up(step)``: nine significant bits of a float32 are its upper half."""
    if step < _SMALLEST:
        return ZERO
    bits = np.float32(min(step, _LARGEST)).view(np.uint32)
    return np.uint32((bits + np.uint32(0x7FFF)) & np.uint32(0xFFFF8000)).view(np.float32)
