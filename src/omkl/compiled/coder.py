"""The bodies of gossip frames by loops that Numba compiles, big integers as limbs: the same bytes in less time.

What the loops find wrong, or longer than at fixed width, is left to ``wire.codec``, which says or does what is due.
"""

from typing import Any

import numpy as np

from omkl.compiled.jit import brief, inner
from omkl.quantizers import Message
from omkl.wire import fixed, steps
from omkl.wire.codec import Floats, Levels, Shape
from omkl.wire.coded import NEAR_BITS, OCTAVE, RARE, most_bytes, plan
from omkl.wire.tables import PRECISION, TOTAL, Coded, intervals, layout

LIMB = 32  # bits; times a factor of fifteen they fit a word
_FULL, _MASK = (1 << LIMB) - 1, TOTAL - 1
_COUNT, _FIRST, _LAST, _DROPPED = steps.COUNT, steps.FIRST, steps.LAST, steps.DROPPED
NO_BODY = -1
_KINDS = np.dtype(np.int16), np.dtype(np.float32)


class CompiledLevels(Levels):
    """Levels from -most to most, coded or at fixed width."""

    def __init__(self, shape: Shape, quantizer: Coded) -> None:
        super().__init__(shape, quantizer)
        length, most = layout(quantizer, shape[2])
        blocks, numbers = self._rows.count, list(plan(self._rows.count, length))
        found = intervals(quantizer, length).values()
        self._shapes = shape, (*shape[:2], shape[2] // length)
        self._starts = np.array([*(start for _, _, start in found), TOTAL])
        self._parts = np.array([part for parts in numbers for part in parts], dtype=np.int64)
        self._numbers = np.array([[len(parts), most_bytes(parts)] for parts in numbers])
        self._room = int(self._numbers[:, 1].sum()) + 16 * len(numbers)
        limits = [2 * blocks + fixed.size(length * spoken, 2 * most + 1) for spoken in range(blocks + 1)]
        self._limits = np.array(limits, dtype=np.int64)
        body = self.pack(Message(np.zeros(shape, np.int16), np.zeros(self._shapes[1], np.float32)))
        self.unpack(*body)
        self.add(*body, np.zeros(shape, np.float32))  # compiled now

    def pack(self, message: Message) -> tuple[bool, bytes]:
        """Return the coded form where it is shorter, the fixed one otherwise."""
        levels, step = message
        if (levels.shape, step.shape) == self._shapes and (levels.dtype, step.dtype) == _KINDS:
            body = np.empty(self._room, dtype=np.uint8)
            spoken, size = pack(levels, step, self._parts, self._numbers, self._starts, body)
            if spoken >= 0 and size < self._limits[spoken]:
                return True, body[:size].tobytes()
        return super().pack(message)

    def unpack(self, coded: bool, body: bytes) -> Message:
        """Return the message of either form; a coded one must be the shorter."""
        if coded:
            shape, rows = self._shapes
            message = Message(np.empty(shape, dtype=np.int16), np.empty(rows, dtype=np.float32))
            data = np.frombuffer(body, dtype=np.uint8)
            if unpack(data, self._parts, self._numbers, self._starts, self._limits, *message):
                return message
        return super().unpack(coded, body)

    def add(self, coded: bool, body: bytes, hidden: Floats) -> bool:
        """Add a message to a hidden state, or leave it if the sum is not finite; return which."""
        if coded and hidden.shape == self._shapes[0]:
            data = np.frombuffer(body, dtype=np.uint8)
            outcome = add(data, self._parts, self._numbers, self._starts, self._limits, hidden)
            if outcome != NO_BODY:
                return bool(outcome)
        return super().add(coded, body, hidden)


@brief
def pack(levels: Any, steps: Any, parts: Any, numbers: Any, starts: Any, body: Any) -> tuple[Any, Any]:
    """Write the coded body; return how many blocks have a step, and its bytes. Less than none: it cannot be coded."""
    codes = np.empty(steps.size, dtype=np.int64)
    spoken = _encode(steps.reshape(-1).view(np.uint32), codes)
    rows, size, begin = levels.reshape((len(codes), -1)), 0, 0
    for k in range(len(numbers)):
        count, limit = numbers[k]
        x = np.zeros(limit // 4 + 4, dtype=np.int64)
        n = _push_all(parts[begin : begin + count], codes, rows, starts, x)
        if spoken < 0 or n < 0:
            return -1, 0
        head = 0 if k == len(numbers) - 1 else 2
        length = _write(x, n, body[size + head :])
        if head:
            body[size], body[size + 1] = length & 255, length >> 8
        size += head + length
        begin += count
    return spoken, size


@brief
def unpack(body: Any, parts: Any, numbers: Any, starts: Any, limits: Any, levels: Any, steps: Any) -> Any:
    """Write levels and steps; return whether this is a coded body, and shorter than at fixed width."""
    spoken = _unpack(body, parts, numbers, starts, levels, steps)
    return spoken >= 0 and len(body) < limits[spoken]


@brief
def add(body: Any, parts: Any, numbers: Any, starts: Any, limits: Any, hidden: Any) -> Any:
    """Add a message to a hidden state and return 1; leave it and return 0 if the sum is not finite, or ``NO_BODY``."""
    levels, steps = np.empty(hidden.shape, dtype=np.int16), np.empty(len(limits) - 1, dtype=np.float32)
    if not unpack(body, parts, numbers, starts, limits, levels, steps):
        return NO_BODY
    rows, total = levels.reshape((len(steps), -1)), np.float32(0)
    after = hidden.copy().reshape(rows.shape)
    for k in range(len(steps)):
        for i in range(rows.shape[1]):
            after[k, i] += steps[k] * np.float32(rows[k, i])
            total += after[k, i]
    if not np.isfinite(total):
        return 0
    hidden[:] = after.reshape(hidden.shape)
    return 1


@inner
def _unpack(body: Any, parts: Any, numbers: Any, starts: Any, levels: Any, steps: Any) -> Any:
    """Write levels and steps; return how many blocks have a step, less than none if this is no coded body."""
    codes, flat = np.zeros(steps.size, dtype=np.int64), levels.reshape(-1)
    at = begin = 0
    for k in range(len(numbers)):
        count, limit = numbers[k]
        size = len(body)
        if k < len(numbers) - 1:
            if size < 2:
                return -1
            size = int(body[0]) + 256 * int(body[1])
            body = body[2:]
        if size > min(limit, len(body)) or (size and not body[size - 1]):
            return -1
        at = _pop_all(body[:size], parts[begin : begin + count], starts, codes, flat, at)
        if at < 0:
            return -1
        body = body[size:]
        begin += count
    return _decode(codes, steps.reshape(-1).view(np.uint32))


@inner
def _encode(bits: Any, codes: Any) -> Any:
    """Write the codes of steps, and return how many are not zero."""
    spoken = 0
    for k in range(len(bits)):
        value = np.int64(bits[k])
        codes[k] = value >> _DROPPED
        if value:
            spoken += 1
            if codes[k] < _FIRST or codes[k] > _LAST or codes[k] << _DROPPED != value:
                return -1
    return spoken


@inner
def _decode(codes: Any, bits: Any) -> Any:
    spoken = 0
    for k in range(len(bits)):
        bits[k] = codes[k] << _DROPPED
        spoken += codes[k] != 0
    return spoken


@inner
def _push_all(parts: Any, codes: Any, levels: Any, starts: Any, x: Any) -> Any:
    """Push steps and levels on x and return its limbs; -1 for a level that has no interval."""
    n = following = 0
    most = len(starts) // 2 - 1
    for k in range(len(parts) - 1, -1, -1):
        block, first, stop, last = parts[k]
        code, start, frequency = codes[block], 0, RARE
        if code and not first:
            apart = code - following
            if -OCTAVE <= apart < OCTAVE:
                n = _multiply(x, n, 1 << NEAR_BITS, apart + OCTAVE)
                start, frequency = 2 * RARE, TOTAL - 2 * RARE
            else:
                n = _multiply(x, n, _COUNT, code - _FIRST)
                start, frequency = RARE, TOTAL - RARE if last else RARE
            following = code
        for i in range(stop - 1, first - 1, -1):
            symbol = levels[block, i] + most
            if symbol < 0 or symbol > 2 * most or (not code and symbol != most):
                return -1
            if code:
                n = _push(x, n, starts[symbol], starts[symbol + 1] - starts[symbol])
        if not first:
            n = _push(x, n, start, frequency)
    return n


@inner
def _pop_all(number: Any, parts: Any, starts: Any, codes: Any, levels: Any, at: Any) -> Any:
    """Write codes, and levels from ``at`` on, and return where they end; -1 if this is no number of these parts."""
    x, near = np.zeros(len(number) // 4 + 2, dtype=np.int64), np.zeros(len(parts), dtype=np.bool_)
    n, most = _read(number, x), len(starts) // 2 - 1
    for k in range(len(parts)):
        block, first, stop, last = parts[k]
        silent = first > 0 and codes[block] == 0
        if not first:
            remainder = x[0] & _MASK
            silent, near[k] = remainder < RARE, remainder >= 2 * RARE and not last
            start = 0 if silent else 2 * RARE if near[k] else RARE
            n = _pop(x, n, start, TOTAL - start if near[k] or (last and not silent) else RARE)
        for _ in range(stop - first):
            symbol = most
            if not silent:
                symbol = _find(starts, x[0] & _MASK)
                n = _pop(x, n, starts[symbol], starts[symbol + 1] - starts[symbol])
            levels[at] = symbol - most
            at += 1
        if not first and not silent:
            n, place = _divide(x, n, 2 * OCTAVE if near[k] else _COUNT)
            codes[block] = place + 1  # until all are told; zero says that there is none
    return at if n == 0 and _resolve(parts, near, codes) else -1


@inner
def _resolve(parts: Any, near: Any, codes: Any) -> Any:
    following = 0
    for k in range(len(parts) - 1, -1, -1):
        block, first = parts[k, 0], parts[k, 1]
        if first or not codes[block]:
            continue
        place = codes[block] - 1
        code = following + place - OCTAVE if near[k] else _FIRST + place
        if near[k] != (-OCTAVE <= code - following < OCTAVE) or not _FIRST <= code <= _LAST:
            return False
        codes[block] = following = code
    return True


@inner
def _find(starts: Any, remainder: Any) -> Any:
    """Return the symbol whose interval a remainder lies in."""
    low, high = 0, len(starts) - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if starts[middle] <= remainder:
            low = middle
        else:
            high = middle
    return low


@inner
def _push(x: Any, n: Any, start: Any, frequency: Any) -> Any:
    """Replace x by (x div f) F + c + x mod f, and return how many limbs it has."""
    n, remainder = _divide(x, n, frequency)
    return _multiply(x, n, TOTAL, start + remainder)


@inner
def _pop(x: Any, n: Any, start: Any, frequency: Any) -> Any:
    """Replace x by (x div F) f + x mod F - c."""
    carry = (x[0] & _MASK) - start
    for i in range(n):
        product = (x[i] >> PRECISION | (x[i + 1] & _MASK) << (LIMB - PRECISION)) * frequency + carry
        x[i], carry = product & _FULL, product >> LIMB
    while n and not x[n - 1]:
        n -= 1
    return n


@inner
def _multiply(x: Any, n: Any, by: Any, plus: Any) -> Any:
    for i in range(n):
        product = x[i] * by + plus
        x[i], plus = product & _FULL, product >> LIMB
    if plus:
        x[n] = plus
        n += 1
    return n


@inner
def _divide(x: Any, n: Any, by: Any) -> Any:
    remainder = 0
    for i in range(n - 1, -1, -1):
        rest = remainder << LIMB | x[i]
        x[i], remainder = rest // by, rest % by
    while n and not x[n - 1]:
        n -= 1
    return n, remainder


@inner
def _read(number: Any, x: Any) -> Any:
    for i in range(len(number)):
        x[i >> 2] |= np.int64(number[i]) << (8 * (i & 3))
    return (len(number) + 3) >> 2


@inner
def _write(x: Any, n: Any, number: Any) -> Any:
    size = 0
    for i in range(4 * n):
        number[i] = x[i >> 2] >> (8 * (i & 3)) & 255
        if number[i]:
            size = i + 1
    return size
