"""The command line: ``omkl``, one file per command."""

import signal
import sys
from importlib.util import find_spec

from omkl.cli.exits import Exit, tell
from omkl.errors import MissingExtraError


def main() -> None:
    """Run ``omkl``, or say in one line what it takes to run it."""
    try:
        for package in ("typer", "rich", "pydantic"):
            if find_spec(package) is None:
                tell(f"error: {MissingExtraError(package, 'cli')}")
                sys.exit(Exit.MISSING)
        from omkl.cli.app import app

        app(prog_name="omkl")
    except SystemExit as end:
        if end.code == Exit.INTERRUPTED:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would tear the libraries down half way
        raise
