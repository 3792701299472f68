"""Frames: a head, a body by kind, a check of two bytes. FORMAT.md beside this file is the specification."""

import struct
import zlib
from binascii import crc_hqx
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.errors import InputError
from omkl.quantizers import Message
from omkl.wire.codec import Codec, Shape, floats
from omkl.wire.errors import CheckError, VersionError, WireError

VERSION = 2
FRAME_BYTES = 9  # kind and version 1, boot 2, round 4, check 2
HEADER_BYTES = 4  # of gossip: kind and version 1, lowest byte of the round 1, check 2
SETTINGS_BYTES = 8
MOST_CONTRACT = 4096  # bytes; a contract is a few lines, and whoever connects may send one
_HEAD = struct.Struct("<BHI")
_GOSSIP_HEAD = 2
_COPY = struct.Struct("<HI")
_FLOAT = np.dtype("<f4")

Copy: TypeAlias = tuple[int, int]
"""How far one end knows the other: boot and round."""


class Kind(IntEnum):
    """What a frame is; CODED and FIXED are gossip, in two forms."""

    HELLO = 1
    ASK = 2
    SNAPSHOT = 3
    CODED = 4
    FIXED = 5
    KEPT = 6

    __hash__ = int.__hash__  # Enum's is a call into Python, for every frame


_KINDS = {VERSION << 4 | kind: kind for kind in Kind}
GOSSIP = (Kind.CODED, Kind.FIXED)
UNTOLD = -1


class Header(NamedTuple):
    """Who speaks: the sender's boot, and its round; in KEPT those of a hidden state of the receiver's.

    Gossip tells no boot, and the lowest byte of its round: the receiver knows the rest, and the check covers it.
    """

    kind: Kind
    boot: int
    round: int


class Hello(NamedTuple):
    """What a node says of itself."""

    contract: str
    """Line by line, what both ends must agree on."""
    known: Copy | None
    """How far it knows the receiver."""
    settings: bytes
    """A digest of its settings, and its step towards the receiver; zeros where it does not tell."""


def peek(data: bytes) -> Header:
    """Return the header of a frame whose check is still to be verified."""
    kind = _KINDS.get(data[0]) if data else None
    if kind is None and data and data[0] >> 4 != VERSION:
        raise VersionError(f"version {data[0] >> 4}; this node speaks {VERSION}; run the same omkl on both")
    if kind is None and data:
        raise WireError(f"kind {data[0] & 15}; the kinds are {', '.join(f'{kind} {kind.name}' for kind in Kind)}")
    least = HEADER_BYTES if kind in GOSSIP or kind is None else FRAME_BYTES
    if kind is None or len(data) < least:
        raise WireError(f"{len(data)} bytes; a frame of its kind has at least {least}")
    return Header(kind, UNTOLD, data[1]) if kind in GOSSIP else Header(kind, *_HEAD.unpack_from(data)[1:])


def is_whole(data: bytes) -> bool:
    """Return whether the check of a frame fits, of any version: it is the same in all, and gossip is seeded in all."""
    return len(data) >= FRAME_BYTES and not crc_hqx(data, 0)


def nearest(low: int, near: int) -> int:
    """Return the number with this lowest byte that is nearest to another.

    >>> nearest(1, 255), nearest(255, 257), nearest(0, 0)
    (257, 255, 0)
    """
    return near + (low - near + 128) % 256 - 128


def digest(hidden: npt.NDArray[np.float32]) -> int:
    """Return sixteen bits of a hidden state: two copies that differ rarely share them."""
    return zlib.crc32(np.ascontiguousarray(hidden, dtype=_FLOAT).data) & 0xFFFF


def write_gossip(codec: Codec, boot: int, round: int, message: Message, seed: int) -> bytes:  # noqa: A002
    """Return a message's frame; ``seed`` is the digest of the sender's hidden state before it absorbs the message."""
    coded, body = codec.pack(message)
    whole = _write(Kind.CODED if coded else Kind.FIXED, boot, round, body, seed)
    return bytes([whole[0], round & 255]) + whole[_HEAD.size :]


def read_gossip(codec: Codec, data: bytes, sender: Copy, seed: int) -> Message:
    """Return the message; ``seed`` is the digest of the copy that is to absorb it, ``sender`` its boot and round."""
    kind = _verify_gossip(data, sender, seed)
    return codec.unpack(kind == Kind.CODED, data[_GOSSIP_HEAD:-2])


def add_gossip(codec: Codec, data: bytes, sender: Copy, copy: npt.NDArray[np.float32]) -> bool:
    """Add a message to the copy of its sender's hidden state, or leave it if the sum is not finite; return which."""
    kind = _verify_gossip(data, sender, digest(copy))
    return codec.add(kind == Kind.CODED, data[_GOSSIP_HEAD:-2], copy)


def write_hello(
    boot: int,
    round: int,  # noqa: A002
    contract: str,
    known: Copy | None = None,
    settings: bytes = bytes(SETTINGS_BYTES),
) -> bytes:
    """Return the frame that opens a link; see ``Hello``."""
    if len(contract) > MOST_CONTRACT or not contract.isascii() or not _plain(contract.encode("ascii")):
        raise InputError(f"a contract of {len(contract)} characters; at most {MOST_CONTRACT}, printable ASCII in lines")
    if len(settings) != SETTINGS_BYTES:
        raise InputError(f"a digest of {len(settings)} bytes; it must have {SETTINGS_BYTES}")
    copy = _write_copy(known)
    return _write(Kind.HELLO, boot, round, bytes([len(copy)]) + copy + settings + contract.encode("ascii"))


def read_hello(data: bytes) -> Hello:
    """Return what the sender says of itself."""
    _verify(data, 0, Kind.HELLO)
    body = data[_HEAD.size : -2]
    size = body[0] if body else 1
    if size not in (0, _COPY.size) or len(body) < 1 + size + SETTINGS_BYTES:
        raise WireError(
            f"a hello of {len(body)} bytes that begins with {body[:1].hex() or 'nothing'}; it says 0 or {_COPY.size} "
            f"bytes of us, and {SETTINGS_BYTES} of its settings"
        )
    settings, contract = body[1 + size : 1 + size + SETTINGS_BYTES], body[1 + size + SETTINGS_BYTES :]
    if len(contract) > MOST_CONTRACT or not _plain(contract):
        raise WireError(f"a contract of {len(contract)} bytes; at most {MOST_CONTRACT}, printable ASCII in lines")
    return Hello(contract.decode("ascii"), _read_copy(body[1 : 1 + size]), settings)


def write_ask(boot: int, round: int, have: Copy | None) -> bytes:  # noqa: A002
    """Return the frame that asks for what lacks; ``have`` is the boot and round of the copy the asker holds."""
    return _write(Kind.ASK, boot, round, _write_copy(have))


def read_ask(data: bytes) -> Copy | None:
    """Return the boot and round of the copy the asker holds, or None for none."""
    _verify(data, 0, Kind.ASK)
    body = data[_HEAD.size : -2]
    if len(body) not in (0, _COPY.size):
        raise WireError(f"{len(body)} bytes in an ask; it holds {_COPY.size}, or none")
    return _read_copy(body)


def write_snapshot(boot: int, round: int, hidden: npt.NDArray[np.float32]) -> bytes:  # noqa: A002
    """Return the frame of a whole hidden state, as it is after ``round``."""
    return _write_hidden(Kind.SNAPSHOT, boot, round, hidden)


def read_snapshot(shape: Shape, data: bytes) -> npt.NDArray[np.float32]:
    """Return the hidden state."""
    return _read_hidden(Kind.SNAPSHOT, shape, data)


def write_kept(boot: int, round: int, hidden: npt.NDArray[np.float32]) -> bytes:  # noqa: A002
    """Return the frame that gives a hidden state back: what its receiver's was, at that boot and round of its own."""
    return _write_hidden(Kind.KEPT, boot, round, hidden)


def read_kept(shape: Shape, data: bytes) -> npt.NDArray[np.float32]:
    """Return the hidden state that was kept."""
    return _read_hidden(Kind.KEPT, shape, data)


def _write_hidden(kind: Kind, boot: int, round_: int, hidden: npt.NDArray[np.float32]) -> bytes:
    if not np.isfinite(hidden).all():
        raise InputError("a hidden state is not finite; the model has diverged; lower eta or gamma")
    values = hidden.astype("<f4", copy=False).tobytes()
    return _write(kind, boot, round_, values + zlib.crc32(values).to_bytes(4, "little"))


def _read_hidden(kind: Kind, shape: Shape, data: bytes) -> npt.NDArray[np.float32]:
    _verify(data, 0, kind)
    values, crc = data[_HEAD.size : -6], data[-6:-2]
    hidden = floats(shape, values)
    if zlib.crc32(values).to_bytes(4, "little") != crc:
        raise CheckError("a hidden state's CRC-32 is wrong; it was damaged on the way; ask again")
    return hidden


def _write(kind: Kind, boot: int, round_: int, body: bytes, seed: int = 0) -> bytes:
    frame = _fill(_HEAD, VERSION << 4 | kind, boot, round_) + body
    return frame + crc_hqx(frame, seed).to_bytes(2, "big")


def _write_copy(copy: Copy | None) -> bytes:
    return b"" if copy is None else _fill(_COPY, *copy)


def _read_copy(body: bytes) -> Copy | None:
    return _COPY.unpack(body) if body else None


def _fill(layout: struct.Struct, *fields: int) -> bytes:
    try:
        return layout.pack(*fields)
    except struct.error:
        boot, round_ = fields[-2:]
        raise InputError(f"boot {boot}, round {round_}; a boot is 0 to 2^16 - 1, a round 0 to 2^32 - 1") from None


def _verify(data: bytes, seed: int, kind: Kind) -> None:
    if (found := peek(data).kind) is not kind:
        raise WireError(f"a frame of kind {found.name}; expected {kind.name}")
    _require(crc_hqx(data, seed))


def _verify_gossip(data: bytes, sender: Copy, seed: int) -> Kind:
    kind = _KINDS.get(data[0]) if len(data) >= HEADER_BYTES else None
    if kind not in GOSSIP:  # it is peek that says what is wrong with a head
        raise WireError(f"a frame of kind {peek(data).kind.name}; expected {' or '.join(one.name for one in GOSSIP)}")
    _require(crc_hqx(data[_GOSSIP_HEAD:], crc_hqx(_HEAD.pack(data[0], *sender), seed)) | (data[1] ^ sender[1] & 255))
    return kind


def _require(rest: int) -> None:
    """Refuse a frame that leaves a rest: over a frame and its own check the CRC comes to zero."""
    if rest:
        raise CheckError("the check is wrong; damaged on the way, or the copies of the hidden state differ; resync")


def _plain(text: bytes) -> bool:
    return all(32 <= character < 127 or character == 10 for character in text)
