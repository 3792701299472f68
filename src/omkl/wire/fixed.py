"""Levels at fixed width: what any machine can read without arithmetic, and never longer than it says."""

import numpy as np
import numpy.typing as npt

from omkl.wire.errors import WireError

Integers = npt.NDArray[np.int16]


def size(count: int, alphabet: int) -> int:
    """Return the bytes of ``count`` symbols."""
    return (count * width(alphabet) + 7) // 8


def width(alphabet: int) -> int:
    """Return the bits of one symbol."""
    return (alphabet - 1).bit_length()


def pack(symbols: Integers, alphabet: int) -> bytes:
    """Return symbols in 0 ... alphabet - 1 as bits, the lowest first."""
    bits = np.unpackbits(symbols.astype("<u2").view(np.uint8).reshape(-1, 2), axis=1, bitorder="little")
    return np.packbits(bits[:, : width(alphabet)], bitorder="little").tobytes()


def unpack(body: bytes, count: int, alphabet: int) -> Integers:
    """Return ``count`` symbols; refuse any other length, symbols beyond the alphabet, and padding that is not zero."""
    if len(body) != size(count, alphabet):
        raise WireError(f"{len(body)} bytes of levels; {count} levels take {size(count, alphabet)}")
    bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8), bitorder="little")
    used = count * width(alphabet)
    if bits[used:].any():
        raise WireError("bits after the last level are not zero; padding must be")
    symbols = bits[:used].reshape(count, width(alphabet)) @ (1 << np.arange(width(alphabet), dtype=np.int16))
    if count and symbols.max() >= alphabet:
        raise WireError(f"level number {symbols.max()}; the quantizer has {alphabet}, counted from 0")
    return symbols
