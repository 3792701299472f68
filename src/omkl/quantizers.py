"""Quantizers: they turn vectors into integer levels and a step, and back.

All neighbors must hold exactly the same hidden state, bit for bit, whatever library adds up its updates. So a message
is a step times whole levels. The step has at most nine significant bits and the levels have at most eight. Their
product is therefore exact in float32, and every machine computes the same sum. Such a step is also the upper half of a
float32 without its sign: two bytes on the wire.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from omkl.arrays import Array, namespace
from omkl.errors import InputError, real, whole

SMALLEST_STEP = 2.0**-60  # squares of anything larger neither underflow nor turn subnormal, which XLA flushes
LARGEST_STEP = 2.0**60
ROUNDING = 2.0**-8  # a step is rounded up by at most this fraction
MOST_LEVELS = 255  # eight bits
STEP_BITS = 16


class Message(NamedTuple):
    """What a node sends: ``levels`` of shape ``(..., n)`` in B blocks, and a ``step`` for each block, ``(..., B)``."""

    levels: Array
    step: Array


class Quantizer(Protocol):
    """What a quantizer must have, with E|Q(v) - v|^2 <= (1 - delta) |v|^2 for every v."""

    name: ClassVar[str]
    dithered: ClassVar[bool]

    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        """Return the message for ``vector (..., n)``; if ``dithered``, ``uniforms`` have the same shape."""

    def delta(self, n: int) -> float:
        """Return the delta that is guaranteed for vectors of length n."""

    def check(self, n: int) -> None:
        """Refuse a length n for which delta is not positive."""

    def size(self, n: int) -> int:
        """Return the bits of a vector of length n at fixed width, with steps and signs.

        Real messages are shorter, because the codec packs likely levels into fewer bits: see ``wire.message_bytes``.
        """


def restore(message: Message) -> Array:
    """Return the vector that a message stands for, exactly.

    >>> import numpy as np
    >>> restore(Message(np.asarray([3, -1], dtype=np.int16), np.asarray([0.5], dtype=np.float32)))
    array([ 1.5, -0.5], dtype=float32)
    """
    xp = namespace(message.step)
    levels = xp.astype(message.levels, xp.float32)
    if message.step.shape[-1] == 1:
        return message.step * levels
    return xp.reshape(message.step[..., None] * _blocks(levels, message.step.shape[-1]), levels.shape)


@dataclass(frozen=True)
class Exact:
    """Send exact float32 differences."""

    name: ClassVar[str] = "exact"
    dithered: ClassVar[bool] = False

    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        """Return the vector itself, with a step of one."""
        xp = namespace(vector)
        levels = xp.where(xp.abs(vector) < SMALLEST_STEP, xp.zeros_like(vector), vector)
        return Message(levels, xp.ones((*vector.shape[:-1], 1), dtype=vector.dtype))

    def delta(self, n: int) -> float:
        """Return one."""
        return 1.0

    def check(self, n: int) -> None:
        """Accept any length."""

    def size(self, n: int) -> int:
        """Return 32 bits per element."""
        return 32 * n


@dataclass(frozen=True)
class QSGD:
    """The paper's quantizer: M = 2^bits - 1 levels of |v_i|/|v|, rounded at random, and the sign.

    Attributes
    ----------
    bits
        Bits of a level's magnitude, 1 to 8; the paper's M = 7 is ``bits=3``.
    rescale
        Divide by tau = 1 + min(n/M^2, sqrt(n)/M). No longer unbiased, but a contraction for every n and M.
    block
        Quantize in blocks of this length, each with its own step; None takes the vector whole.

    Notes
    -----
    Levels are l = floor(M |v_i| / |v| + u), u uniform in (0, 1); the paper prints v_i for its magnitude. The step
    |v|/M is rounded up before the levels are drawn, so they stay unbiased, to 2^-17 of a step with sixteen bits of
    dither, and ``delta`` counts the rounding.
    """

    bits: int = 3
    rescale: bool = False
    block: int | None = None

    name: ClassVar[str] = "qsgd"
    dithered: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "bits", whole("bits", self.bits))
        if self.bits > 8:
            raise InputError(f"bits is {self.bits}; QSGD takes 1 to 8 bits per level; the paper's M=7 is bits=3")
        _check_block(self.block)

    @property
    def levels(self) -> int:
        """M, the largest level."""
        return (1 << self.bits) - 1

    def _variance(self, n: int) -> float:
        m = self.levels / (1 + ROUNDING)
        return min(n / m**2, math.sqrt(n) / m)

    def tau(self, n: int) -> float:
        """Return the number that levels are divided by, for vectors of length n."""
        return 1 + self._variance(n) if self.rescale else 1.0

    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        """Return levels that are rounded at random, and the step; zero for a zero vector."""
        assert uniforms is not None
        xp = namespace(vector)
        length = self.block or vector.shape[-1]
        v = _blocks(vector, vector.shape[-1] // length)
        tau = self.tau(length)
        step = round_up(_norm(xp, v) / (self.levels * tau))
        levels = xp.floor(xp.abs(v) / (_divisor(xp, step) * tau) + xp.reshape(uniforms, v.shape))
        return _message(xp, vector, v, xp.clip(levels, 0, self.levels), step)

    def delta(self, n: int) -> float:
        """Return 1 - min(n/M^2, sqrt(n)/M), or 1/tau when rescaled, for the block length, with M less the rounding."""
        length = self.block or n
        return 1 / self.tau(length) if self.rescale else 1 - self._variance(length)

    def check(self, n: int) -> None:
        """Refuse plain QSGD with delta <= 0, because gossip then diverges."""
        _check_divides(self.block, n)
        if self.delta(n) <= 0:
            raise InputError(
                f"plain QSGD with M={self.levels} on vectors of length {self.block or n} has "
                f"delta = {self.delta(n):.3f}; delta must be positive or gossip diverges; use rescale=True, "
                f"more bits, a smaller block, or Nearest()"
            )

    def size(self, n: int) -> int:
        """Return the bits of the level and the sign of every element, and of a step for every block."""
        return n * (self.bits + 1) + STEP_BITS * (n // (self.block or n))


@dataclass(frozen=True)
class Nearest:
    """The default's quantizer: round v_i / (step * rms) to the nearest integer. Nothing is random.

    Gossip needs a contraction, and not an unbiased quantizer. So the scale, which is sent anyway, is fitted to the
    levels by least squares, and the error is |v|^2 - (v.l)^2/(l.l) for every vector.

    Attributes
    ----------
    step
        Width of a level in units of the root mean square, the smaller the finer; 2.5 costs about one bit per element.
    block
        Quantize in blocks of this length, each with its own scale; None takes the vector whole.
    """

    step: float = 2.5
    block: int | None = None

    name: ClassVar[str] = "nearest"
    dithered: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", real("step", self.step))
        if not 0.1 <= self.step <= 10:
            raise InputError(f"step is {self.step}; Nearest takes a step of 0.1 to 10 root mean squares; try step=2.5")
        _check_block(self.block)

    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        """Return the nearest levels, and the step fitted to them; zero for a zero vector."""
        xp = namespace(vector)
        length = self.block or vector.shape[-1]
        v = _blocks(vector, vector.shape[-1] // length)
        magnitude = xp.abs(v)
        # At twice the largest entry that entry still gets a level: never all zeros.
        width = xp.minimum(_norm(xp, v) * (self.step / math.sqrt(length)), 2 * xp.max(magnitude, axis=-1))
        levels = xp.clip(xp.floor(magnitude / _divisor(xp, width) + 0.5), 0, self.most(length))
        fit = xp.sum(magnitude * levels, axis=-1) / xp.clip(xp.sum(levels**2, axis=-1), 1, None)
        step = round_up(fit)
        return _message(xp, vector, v, xp.where(step[..., None] > 0, levels, 0.0), step)

    def most(self, length: int) -> int:
        """Return the largest level, for vectors of this length."""
        return min(int(math.sqrt(length) / self.step + 0.5) or 1, MOST_LEVELS)

    def delta(self, n: int) -> float:
        """Return 1/n for the block length, less the rounding; on random vectors it is far larger (.64 at 2.5)."""
        return (1 - ROUNDING**2) / (self.block or n)

    def check(self, n: int) -> None:
        """Refuse a block that does not divide n."""
        _check_divides(self.block, n)

    def size(self, n: int) -> int:
        """Return the bits of every level with its sign, and of a step for every block."""
        length = self.block or n
        width = math.ceil(math.log2(2 * self.most(length) + 1))
        return n * width + STEP_BITS * (n // length)


def round_up(step: Array) -> Array:
    """Return the smallest step of nine significant bits that is at least ``step``; zero below the smallest step.

    It is computed from the bits of a float32, because logarithms differ between machines.
    """
    xp = namespace(step)
    if not hasattr(step, "view"):  # of another library than NumPy and JAX
        return xp.asarray(round_up(np.asarray(step)))
    bits = xp.minimum(step, LARGEST_STEP).astype(xp.float32).view(xp.uint32)
    rounded = (bits + xp.uint32(0x7FFF) & xp.uint32(0xFFFF8000)).view(xp.float32)
    return xp.where(step < SMALLEST_STEP, xp.float32(0), rounded)


def _blocks(vector: Array, count: int) -> Array:
    if count == 1:
        return vector[..., None, :]
    return namespace(vector).reshape(vector, (*vector.shape[:-1], count, vector.shape[-1] // count))


def _norm(xp: Array, v: Array) -> Array:
    return xp.sqrt(xp.sum(v * v, axis=-1))


def _divisor(xp: Array, width: Array) -> Array:
    return xp.where(width > 0, width, 1.0)[..., None]


def _message(xp: Array, vector: Array, v: Array, levels: Array, step: Array) -> Message:
    signed = xp.reshape(levels * xp.sign(v), vector.shape)
    return Message(xp.astype(signed, xp.int16), step)


def _check_block(block: int | None) -> None:
    if block is not None:
        whole("block", block)


def _check_divides(block: int | None, n: int) -> None:
    if block is not None and n % block:
        near = max(b for b in range(1, min(block, n) + 1) if n % b == 0)
        raise InputError(f"block {block} does not divide the vector length {n} = 2D; use a divisor such as {near}")
