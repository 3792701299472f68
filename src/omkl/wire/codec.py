"""A message to bytes and back, between two ends that know the shape of the models and the quantizer."""

import math
from array import array
from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.algorithm import absorb
from omkl.compressors import Sign
from omkl.errors import InputError, whole
from omkl.quantizers import QSGD, Exact, Message, Nearest, Quantizer
from omkl.wire import fixed, steps
from omkl.wire.coded import Coder
from omkl.wire.errors import WireError
from omkl.wire.tables import Coded, layout

Shape: TypeAlias = tuple[int, int, int]
Floats: TypeAlias = npt.NDArray[np.float32]


class Codec:
    """What both ends know: the shape ``(P, C, 2D)`` of the models and the quantizer.

    No message takes more than ``most_bytes``. ``levels`` makes what packs levels, ``omkl.compiled.coder`` has another
    that writes the same bytes in less time.

    >>> from omkl.quantizers import Nearest
    >>> codec = Codec((1, 1, 4), Nearest(step=1))
    >>> coded, body = codec.pack(codec.quantizer.quantize(np.array([[[0, -3, 0, 1]]], dtype=np.float32), None))
    >>> coded, body.hex(), codec.unpack(coded, body).levels.tolist()
    (True, '4f8566', [[[0, -2, 0, 1]]])
    """

    def __init__(
        self, shape: Shape, quantizer: Quantizer, levels: "Callable[[Shape, Coded], Body] | None" = None
    ) -> None:
        if len(shape) != 3:
            raise InputError(f"shape is {shape}; models have shape (P, C, 2D); pass (3, 1, 40), say")
        for name, size in zip(("P", "C", "2D"), shape, strict=True):
            whole(name, size)
        self.shape = shape
        self.quantizer = quantizer
        self._body = _body(shape, quantizer, levels or Levels)
        self.most_bytes = self._body.most_bytes

    def pack(self, message: Message) -> tuple[bool, bytes]:
        """Return whether steps and levels are coded, and their bytes: the shorter form of the two."""
        return self._body.pack(message)

    def unpack(self, coded: bool, body: bytes) -> Message:
        """Return the message, or raise ``WireError``."""
        return self._body.unpack(coded, body)

    def add(self, coded: bool, body: bytes, hidden: Floats) -> bool:
        """Add a message to a hidden state in place, or leave it if the sum is not finite; return which."""
        return self._body.add(coded, body, hidden)


def floats(shape: tuple[int, ...], body: bytes) -> Floats:
    """Return the finite float32 values that fill a shape; refuse any other bytes."""
    if len(body) != 4 * math.prod(shape):
        raise WireError(f"{len(body)} bytes of float32; shape {shape} takes {4 * math.prod(shape)}")
    values = np.frombuffer(body, dtype="<f4").astype(np.float32).reshape(shape)
    if not np.isfinite(values).all():
        raise WireError("a value is not finite; values must be")
    return values


class Body(Protocol):
    """What lies between the head of a gossip frame and its check, ``most_bytes`` at most."""

    most_bytes: int

    def pack(self, message: Message) -> tuple[bool, bytes]:
        """Return whether it is coded, and the bytes."""

    def unpack(self, coded: bool, body: bytes) -> Message:
        """Return the message, or refuse the bytes."""

    def add(self, coded: bool, body: bytes, hidden: Floats) -> bool:
        """Add a message to a hidden state, or leave it if the sum is not finite; return which."""
        message = self.unpack(coded, body)
        with np.errstate(over="ignore", invalid="ignore"):
            after = absorb(hidden, message)
            is_finite = math.isfinite(np.add.reduce(after, axis=None))
        if is_finite:
            hidden[...] = after
        return is_finite


class Values(Body):
    """Differences as they are, in float32."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.most_bytes = 4 * math.prod(shape)

    def pack(self, message: Message) -> tuple[bool, bytes]:
        """Return the values."""
        values = np.asarray(message.levels)
        if values.shape != self._shape or not np.isfinite(values).all():
            raise InputError(f"a message of shape {values.shape}; it must be {self._shape} and finite")
        return False, values.astype("<f4").tobytes()

    def unpack(self, coded: bool, body: bytes) -> Message:
        """Return the values, with a step of one."""
        if coded:
            raise WireError("a coded frame; exact values are not coded")
        return Message(floats(self._shape, body), np.ones((*self._shape[:2], 1), dtype=np.float32))


class Signs(Body):
    """Levels of -1 and +1 at one bit each, which no code can shorten."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._rows = Rows(shape, shape[2])
        self.most_bytes = 2 * self._rows.count + fixed.size(math.prod(shape), 2)

    def pack(self, message: Message) -> tuple[bool, bytes]:
        """Return steps, then a bit for every level of a row whose step is not zero."""
        codes, levels = self._rows.take(message)
        spoken = levels[np.array(codes) > 0]
        if np.abs(levels).sum() != spoken.size or (np.abs(spoken) != 1).any():
            raise InputError("signs are -1 or 1 where the step is not zero, and 0 elsewhere; use Sign.quantize")
        return False, steps.write(codes) + fixed.pack((spoken + 1) // 2, 2)

    def unpack(self, coded: bool, body: bytes) -> Message:
        """Return the message."""
        if coded:
            raise WireError("a coded frame; signs are not coded")
        codes, rest = steps.read(body, self._rows.count)
        spoken = self._rows.spoken(codes)
        return self._rows.fill(codes, 2 * fixed.unpack(rest, spoken, 2) - 1)


class Levels(Body):
    """Levels from -most to most, coded or at fixed width."""

    def __init__(self, shape: Shape, quantizer: Coded) -> None:
        length, self._most = layout(quantizer, shape[2])
        self._alphabet = 2 * self._most + 1
        self._rows = Rows(shape, length)
        self._coder = Coder(quantizer, self._rows.count, length)
        self.most_bytes = 2 * self._rows.count + fixed.size(math.prod(shape), self._alphabet)

    def pack(self, message: Message) -> tuple[bool, bytes]:
        """Return the coded form where it is shorter, the fixed one otherwise."""
        codes, levels = self._rows.take(message)
        body = self._coder.pack(codes, levels.tolist())
        if len(body) < self._fixed_size(codes):
            return True, body
        return False, steps.write(codes) + fixed.pack(levels[np.array(codes) > 0] + self._most, self._alphabet)

    def unpack(self, coded: bool, body: bytes) -> Message:
        """Return the message of either form; a coded one must be the shorter."""
        if coded:
            codes, levels = self._coder.unpack(body)
            if len(body) >= self._fixed_size(codes):
                raise WireError(f"{len(body)} coded bytes; at fixed width it is {self._fixed_size(codes)}, no longer")
            return self._rows.message(codes, np.frombuffer(array("h", levels), dtype=np.int16))
        codes, rest = steps.read(body, self._rows.count)
        symbols = fixed.unpack(rest, self._rows.spoken(codes), self._alphabet)
        return self._rows.fill(codes, symbols - self._most)

    def _fixed_size(self, codes: list[int]) -> int:
        return 2 * len(codes) + fixed.size(self._rows.spoken(codes), self._alphabet)


class Rows:
    """Blocks of one length, all those of a message."""

    def __init__(self, shape: Shape, length: int) -> None:
        self._shape = shape
        self._length = length
        self._steps = (*shape[:2], shape[2] // length)
        self.count = self._steps[0] * self._steps[1] * self._steps[2]

    def take(self, message: Message) -> tuple[list[int], npt.NDArray[np.int16]]:
        """Return the codes of the steps and the levels by block."""
        levels, step = message
        if levels.shape != self._shape or step.shape != self._steps:
            raise InputError(f"levels {levels.shape}, steps {step.shape}; they must be {self._shape}, {self._steps}")
        return steps.codes(step), levels.reshape(self.count, self._length)

    def spoken(self, codes: list[int]) -> int:
        """Return how many levels are sent: those of blocks whose step is not zero."""
        return self._length * (self.count - codes.count(0))

    def fill(self, codes: list[int], levels: npt.NDArray[np.int16]) -> Message:
        """Return the message of the levels that were sent."""
        every = np.zeros((self.count, self._length), dtype=np.int16)
        every[np.array(codes) > 0] = levels.reshape(-1, self._length)
        return self.message(codes, every)

    def message(self, codes: list[int], levels: npt.NDArray[np.int16]) -> Message:
        """Return the message of all levels."""
        return Message(levels.reshape(self._shape), steps.values(codes).reshape(self._steps))


def _body(shape: Shape, quantizer: Quantizer, levels: "Callable[[Shape, Coded], Body]") -> Body:
    if isinstance(quantizer, Exact):
        return Values(shape)
    if isinstance(quantizer, Sign):
        return Signs(shape)
    if isinstance(quantizer, QSGD | Nearest):
        return levels(shape, quantizer)
    raise InputError(f"{quantizer} stays in the simulator; the wire carries QSGD, Nearest, Sign and Exact; use one")
