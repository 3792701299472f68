"""What the exit codes of ``omkl`` mean."""

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    UNEXPECTED = 1
    INPUT = 2
    MISSING = 3
    DIVERGED = 4
    DISK = 5
    INTERRUPTED = 130
    UNREAD = 141


MEANINGS = {
    Exit.OK: "ok",
    Exit.UNEXPECTED: "unexpected error",
    Exit.INPUT: "bad input or usage, or a port that is taken",
    Exit.MISSING: "a missing extra",
    Exit.DIVERGED: "a run that diverged",
    Exit.DISK: "a disk that fails or is full, or an address or a time that the device does not have, yet",
    Exit.INTERRUPTED: "interrupted",
    Exit.UNREAD: "nobody reads what is printed, as after head",
}
