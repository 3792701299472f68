"""The wire format: what nodes say to each other, to the byte. FORMAT.md in this folder is the specification."""

from omkl.wire.codec import Codec
from omkl.wire.errors import CheckError, VersionError, WireError
from omkl.wire.frames import (
    HEADER_BYTES,
    MOST_CONTRACT,
    VERSION,
    Header,
    Kind,
    digest,
    is_whole,
    peek,
    read_ask,
    read_gossip,
    read_hello,
    read_kept,
    read_snapshot,
    write_ask,
    write_gossip,
    write_hello,
    write_kept,
    write_snapshot,
)
from omkl.wire.sizes import Costs, costs, message_bytes

__all__ = [
    "HEADER_BYTES",
    "MOST_CONTRACT",
    "VERSION",
    "CheckError",
    "Codec",
    "Costs",
    "Header",
    "Kind",
    "VersionError",
    "WireError",
    "costs",
    "digest",
    "is_whole",
    "message_bytes",
    "peek",
    "read_ask",
    "read_gossip",
    "read_hello",
    "read_kept",
    "read_snapshot",
    "write_ask",
    "write_gossip",
    "write_hello",
    "write_kept",
    "write_snapshot",
]
