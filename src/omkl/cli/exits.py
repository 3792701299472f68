"""What the exit codes of ``omkl`` mean, and the line that is told with them."""

import sys
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


def tell(line: str) -> None:
    """Print a line on standard error, if there is room: a full disk must not change the exit code."""
    try:
        print(f"omkl: {line}", file=sys.stderr, flush=True)
    except OSError:
        sys.stderr = None  # else Python would try again at its end, and exit with 120
