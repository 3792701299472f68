"""Counter-based random numbers from named streams, the same words in NumPy and JAX.

A number depends on its key and its counter alone, never on what was drawn before it. A key starts from a seed and the
name of a stream (``"features"``, ``"quantizer"``, ...) and is folded with coordinates: run, node, round. Only 32-bit
integer operations are used, so every array library gives the same words.

Key arrays end in an axis of length one, along which the counters run.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from omkl.arrays import Array, namespace


class Key(NamedTuple):
    """Sixty-four bits of key in two uint32 arrays of shape ``(..., 1)``."""

    low: Array
    high: Array


def key(seed: int | Sequence[int], stream: str) -> Key:
    """Return the NumPy key of a named stream: shape ``(1,)``, or ``(len(seed), 1)`` for several seeds."""
    if isinstance(seed, int):
        return Key(*(half[0] for half in key([seed], stream)))
    digests = b"".join(hashlib.blake2b(f"{stream}:{int(one)}".encode(), digest_size=8).digest() for one in seed)
    halves = np.frombuffer(digests, dtype="<u4").astype(np.uint32).reshape(-1, 2, 1)
    return Key(halves[:, 0], halves[:, 1])


def fold(key: Key, coordinate: Array | int) -> Key:
    """Return the key of one coordinate, or of an array of them broadcast against ``key``."""
    xp = namespace(key.low)
    if isinstance(coordinate, int):
        coordinate = xp.asarray([coordinate], dtype=xp.uint32)
    coordinate = xp.astype(coordinate, xp.uint32)
    return Key(scramble(xp, coordinate, key.low, key.high), scramble(xp, coordinate, key.high, ~key.low))


def words(key: Key, count: int) -> Array:
    """Return ``count`` uint32 words for every key, shape ``(..., count)``."""
    xp = namespace(key.low)
    return scramble(xp, xp.arange(count, dtype=xp.uint32), key.low, key.high)


def dither(key: Key, shape: tuple[int, ...]) -> Array:
    """Return float32 uniforms in (0, 1), sixteen bits each, shape ``(..., *shape)``.

    Sixteen bits make two numbers of one word; half a unit is added so that their mean is one half exactly.
    """
    xp = namespace(key.low)
    count = int(np.prod(shape))
    half = (count + 1) // 2
    index = xp.arange(count, dtype=xp.uint32)
    # Each word is computed twice rather than split and concatenated, which would keep XLA from fusing it.
    word = scramble(xp, index % _word(xp, half), key.low, key.high)
    sixteen = (word >> (index // _word(xp, half) * _word(xp, 16))) & _word(xp, 0xFFFF)
    return xp.reshape((xp.astype(sixteen, xp.float32) + 0.5) * 2.0**-16, (*word.shape[:-1], *shape))


def uniforms(key: Key, count: int) -> Array:
    """Return ``count`` NumPy float64 uniforms in (0, 1) for every key, thirty-two bits each."""
    return (words(key, count).astype(np.float64) + 0.5) * 2.0**-32


def scramble(xp: Any, counter: Array, low: Array, high: Array) -> Array:
    """Return the words of counters under a key, broadcast against each other.

    Wellons' three-round integer hash ("triple32"), the second half of the key entering between its rounds.
    """
    x = counter * _word(xp, 0x9E3779B9) + low
    x = (x ^ (x >> _word(xp, 17))) * _word(xp, 0xED5AD4BB)
    x = (x ^ (x >> _word(xp, 11)) ^ high) * _word(xp, 0xAC4C1B51)
    x = (x ^ (x >> _word(xp, 15))) * _word(xp, 0x31848BAB)
    return x ^ (x >> _word(xp, 14))


def _word(xp: Any, value: int) -> Array:
    return xp.asarray(value, dtype=xp.uint32)
