"""Steps in two bytes: the upper bits of a float32 without its sign, nine significant bits of which one is implied."""

import struct
from array import array

import numpy as np
import numpy.typing as npt

from omkl.errors import InputError
from omkl.quantizers import LARGEST_STEP, SMALLEST_STEP
from omkl.wire.errors import WireError

DROPPED = 15  # bits of a float32 below the nine


def code(step: float) -> int:
    """Return the two bytes of a step.

    >>> code(1.5)
    32640
    """
    bits: int = struct.unpack("<I", struct.pack("<f", step))[0]
    return bits >> DROPPED


FIRST = code(SMALLEST_STEP)
LAST = code(LARGEST_STEP)
COUNT = LAST - FIRST + 1


def codes(steps: npt.NDArray[np.float32]) -> list[int]:
    """Return the codes of all steps, in order; zero is zero."""
    bits: list[int] = np.ascontiguousarray(steps, dtype=np.float32).view(np.uint32).reshape(-1).tolist()
    found = [value >> DROPPED for value in bits]
    for value, short in zip(bits, found, strict=True):
        if value and (not FIRST <= short <= LAST or value != short << DROPPED):
            raise InputError("a step is neither 0 nor 2^-60 to 2^60 in nine bits; use quantizers.round_up")
    return found


def values(codes: list[int]) -> npt.NDArray[np.float32]:
    """Return the steps of valid codes."""
    return np.frombuffer(array("I", [code << DROPPED for code in codes]), dtype=np.float32)


def write(codes: list[int]) -> bytes:
    """Return two bytes for every code."""
    return struct.pack(f"<{len(codes)}H", *codes)


def read(body: bytes, count: int) -> tuple[list[int], bytes]:
    """Return ``count`` codes, and the bytes after them; refuse what is neither zero nor the code of a step."""
    if len(body) < 2 * count:
        raise WireError(f"{len(body)} bytes; {count} steps alone take {2 * count}")
    found = list(struct.unpack_from(f"<{count}H", body))
    for short in found:
        if short and not FIRST <= short <= LAST:
            raise WireError(f"step code {short}; it must be 0, or {FIRST} to {LAST} for 2^-60 to 2^60")
    return found, body[2 * count :]
