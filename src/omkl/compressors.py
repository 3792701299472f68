"""Compressors the paper cites for its ingredients: top-k, rand-k and the scaled sign.

They run in the simulator like the quantizers, with stated sizes. Of them, only the sign has integer levels and can go
on the wire.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from omkl import registry
from omkl.arrays import Array, namespace
from omkl.errors import InputError, whole
from omkl.quantizers import QSGD, ROUNDING, STEP_BITS, Exact, Message, Nearest, Quantizer, round_up
from omkl.registry import Registry


@dataclass(frozen=True)
class Sign:
    """Send the sign of every element, and one scale, |v|_1 / n: one bit an element."""

    name: ClassVar[str] = "sign"
    dithered: ClassVar[bool] = False

    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        """Return levels of -1 and +1; zero for a zero vector."""
        xp = namespace(vector)
        step = round_up(xp.mean(xp.abs(vector), axis=-1, keepdims=True))
        signs = xp.where(vector >= 0, xp.ones_like(vector), -xp.ones_like(vector))
        return Message(xp.astype(xp.where(step > 0, signs, xp.zeros_like(signs)), xp.int16), step)

    def delta(self, n: int) -> float:
        """Return 1/n, less the rounding; for one vector it is |v|_1^2 / (n |v|_2^2), about .64 for noise."""
        return (1 - ROUNDING**2) / n

    def check(self, n: int) -> None:
        """Accept any length."""

    def size(self, n: int) -> int:
        """Return one bit for each element, and the bits of the step."""
        return n + STEP_BITS


@dataclass(frozen=True)
class _Few:
    """k elements, exact.

    Attributes
    ----------
    k
        Number of elements that are sent.
    """

    k: int = 4

    def __post_init__(self) -> None:
        whole("k", self.k)

    def delta(self, n: int) -> float:
        """Return k/n."""
        return self.k / n

    def check(self, n: int) -> None:
        """Refuse to keep more elements than there are."""
        if self.k > n:
            raise InputError(f"k is {self.k}; vectors have n = 2D = {n} elements; use k <= {n}")

    def _kept(self, vector: Array, order: Any) -> Message:
        """Return the vector with all but k elements zero, the first in this order."""
        xp = namespace(vector)
        rank = xp.argsort(xp.argsort(order, axis=-1), axis=-1)
        return Exact().quantize(xp.where(rank < self.k, vector, xp.zeros_like(vector)), None)


@dataclass(frozen=True)
class TopK(_Few):
    """Send the k largest elements, exactly."""

    name: ClassVar[str] = "topk"
    dithered: ClassVar[bool] = False

    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        """Return the vector with all but its k largest elements zero."""
        return self._kept(vector, -namespace(vector).abs(vector))

    def size(self, n: int) -> int:
        """Return the bits of k float32 and their places."""
        return self.k * (32 + math.ceil(math.log2(n)))


@dataclass(frozen=True)
class RandK(_Few):
    """Send k random elements, exactly. They are not scaled up, because that would be no contraction."""

    name: ClassVar[str] = "randk"
    dithered: ClassVar[bool] = True

    def quantize(self, vector: Array, uniforms: Array | None) -> Message:
        """Return the vector with all but k random elements zero."""
        return self._kept(vector, uniforms)

    def size(self, n: int) -> int:
        """Return the bits of k float32. Neighbors know the places from the sender's seed."""
        return self.k * 32


QUANTIZERS: Registry[type[Quantizer]] = Registry(
    "omkl.quantizers", {quantizer.name: quantizer for quantizer in (Exact, QSGD, Nearest, Sign, TopK, RandK)}
)


def named(quantizer: str | Quantizer | None) -> Quantizer:
    """Return the quantizer of that name, or the quantizer itself; None is exact."""
    if quantizer is None:
        return Exact()
    found: Quantizer = registry.named("quantizer", quantizer, QUANTIZERS, Quantizer, "omkl.QSGD(bits=3)")
    return found
