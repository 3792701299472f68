"""Steps and levels in big integers: an asymmetric numeral system whose state is never cut.

A symbol of frequency f out of F, its interval starting at c, is pushed on the state by x -> (x div f) F + c + x mod f,
and popped by looking at x mod F. The map is a bijection between pairs (x, symbol) and whole numbers: what was pushed
comes off in reverse, and a number that does not end at zero was written by nobody.

Two things save bytes. A block's step is pushed before its levels, so that a number starts with fifteen bits that had to
be sent anyway: from a bare zero it takes as many bits as the tables are precise until symbols cost what they should.
And a step within an octave of the next block's is told by their difference: features have the same norm for every
kernel, so steps are alike.
"""

from collections.abc import Iterator
from typing import NamedTuple

from omkl.errors import InputError
from omkl.wire import steps
from omkl.wire.errors import WireError
from omkl.wire.tables import PRECISION, TOTAL, Coded, intervals, lookup

ELEMENTS = 512  # at most, in one number: big integers cost quadratic time
RARE = 64  # frequency of a block without a step, and of a step that is not near the next
NEAR_BITS = 9
OCTAVE = 1 << NEAR_BITS - 1  # steps from one power of two to the next

SILENT = (RARE, TOTAL - RARE, 0)  # frequency, the rest of F, start of the interval: the step is zero
FAR = (RARE, TOTAL - RARE, RARE)
NEAR = (TOTAL - 2 * RARE, 2 * RARE, 2 * RARE)
LAST = (TOTAL - RARE, RARE, RARE)  # of the last block that begins in a number: nothing to be near to


class Part(NamedTuple):
    """Elements ``first`` to ``stop`` of a block, the ``last`` in its number or not; with element 0 comes the step."""

    block: int
    first: int
    stop: int
    last: bool


class Coder:
    """Steps and levels of a number of blocks, all of one length, to bytes and back."""

    def __init__(self, quantizer: Coded, blocks: int, length: int) -> None:
        self._blocks = blocks
        self._plan = list(plan(blocks, length))
        self._limits = [most_bytes(parts) for parts in self._plan]
        self._intervals = intervals(quantizer, length)
        self._lookup = lookup(quantizer, length)

    def pack(self, codes: list[int], levels: list[list[int]]) -> bytes:
        """Return the shortest bytes of every number, all but the last after their length."""
        *before, last = [self._push(parts, codes, levels) for parts in self._plan]
        return b"".join(len(number).to_bytes(2, "little") + number for number in before) + last

    def unpack(self, body: bytes) -> tuple[list[int], list[int]]:
        """Return the code of every step, and all levels in one list."""
        codes = [0] * self._blocks
        levels: list[int] = []
        for parts, number in zip(self._plan, self._split(body), strict=True):
            self._pop(parts, number, codes, levels)
        return codes, levels

    def _push(self, parts: list[Part], codes: list[int], levels: list[list[int]]) -> bytes:
        x = following = 0
        for block, first, stop, last in reversed(parts):
            code, kind = codes[block], SILENT
            if code and not first:
                x, kind = _push_step(x, code, following, last)
                following = code
            if code:
                x = self._push_levels(x, levels[block][first:stop])
            elif any(levels[block]):
                raise InputError(f"block {block} has a zero step and levels that are not; they must be zero too")
            if not first:
                x += x // kind[0] * kind[1] + kind[2]
        return x.to_bytes((x.bit_length() + 7) // 8, "little")

    def _push_levels(self, x: int, levels: list[int]) -> int:
        table = self._intervals
        try:
            for level in reversed(levels):
                frequency, rest, start = table[level]
                x += x // frequency * rest + start  # (x div f) F + c + x mod f
        except KeyError:
            raise InputError(f"level {level}; this quantizer's reach from {min(table)} to {max(table)}") from None
        return x

    def _pop(self, parts: list[Part], number: bytes, codes: list[int], levels: list[int]) -> None:
        x, mask, append = int.from_bytes(number, "little"), TOTAL - 1, levels.append
        symbols, entries = self._lookup
        told: list[tuple[int, int, bool]] = []
        for block, first, stop, last in parts:
            kind = SILENT if first and not codes[block] else FAR
            if not first:
                kind = _kind(x & mask, last)
                x = (x >> PRECISION) * kind[0] + (x & mask) - kind[2]
            if kind is SILENT:
                levels += [0] * (stop - first)
                continue
            for _ in range(stop - first):
                level, rest, start = entries[symbols[x & mask]]
                x -= (x >> PRECISION) * rest + start  # (x div F) f + x mod F - c
                append(level)
            if not first:
                x, place = divmod(x, 2 * OCTAVE if kind is NEAR else steps.COUNT)
                told.append((block, place, kind is NEAR))
        if x:
            raise WireError(f"{len(number)} bytes hold more than the levels of the frame; what is left must be zero")
        _resolve(told, codes)

    def _split(self, body: bytes) -> list[bytes]:
        numbers = []
        for limit in self._limits[:-1]:
            size = int.from_bytes(body[:2], "little")
            if len(body) < 2 + size or size > limit:
                raise WireError(f"a number of {size} bytes, {len(body)} left; it must fit, and have at most {limit}")
            numbers.append(body[2 : 2 + size])
            body = body[2 + size :]
        if len(body) > self._limits[-1]:
            raise WireError(f"a number of {len(body)} bytes; at most {self._limits[-1]} can be needed")
        for number in (*numbers, body):
            if number and not number[-1]:
                raise WireError("a number's last byte is zero; numbers take as few bytes as they can")
        return [*numbers, body]


def plan(blocks: int, length: int) -> Iterator[list[Part]]:
    """Yield what is in every number: as many blocks as have 512 elements, or 512 elements of a longer block."""
    together = max(1, ELEMENTS // length)
    for start in range(0, blocks, together):
        stop = min(start + together, blocks)
        for first in range(0, length, ELEMENTS):
            end = min(first + ELEMENTS, length)
            yield [Part(block, first, end, block == stop - 1) for block in range(start, stop)]


def most_bytes(parts: list[Part]) -> int:
    """Return the bytes no number of these parts exceeds: pushing one of m symbols takes x + 1 to at most m (x + 1)."""
    begun = sum(part.first == 0 for part in parts)
    symbols = begun + sum(part.stop - part.first for part in parts)
    return (PRECISION * symbols + steps.COUNT.bit_length() * begun + 7) // 8


def _push_step(x: int, code: int, following: int, last: bool) -> tuple[int, tuple[int, int, int]]:
    apart = code - following
    if -OCTAVE <= apart < OCTAVE:
        return (x << NEAR_BITS) + apart + OCTAVE, NEAR
    return x * steps.COUNT + code - steps.FIRST, LAST if last else FAR


def _kind(remainder: int, last: bool) -> tuple[int, int, int]:
    if remainder < RARE:
        return SILENT
    if last:
        return LAST
    return FAR if remainder < 2 * RARE else NEAR


def _resolve(told: list[tuple[int, int, bool]], codes: list[int]) -> None:
    """Write down the codes, from the last block to the first: each may be told by the one that follows."""
    following = 0
    for block, place, near in reversed(told):
        code = following + place - OCTAVE if near else steps.FIRST + place
        if near != (-OCTAVE <= code - following < OCTAVE) or not steps.FIRST <= code <= steps.LAST:
            raise WireError(f"step code {code} beside {following}; codes within an octave, and only they, are near")
        codes[block] = following = code
