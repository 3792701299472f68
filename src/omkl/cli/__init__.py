"""The command line: ``omkl``, one file per command."""

import sys
from importlib.util import find_spec

from omkl.cli.exits import Exit
from omkl.errors import MissingExtraError


def main() -> None:
    """Run ``omkl``, or say in one line what it takes to run it."""
    for package in ("typer", "rich", "pydantic"):
        if find_spec(package) is None:
            print(f"omkl: error: {MissingExtraError(package, 'cli')}", file=sys.stderr)
            sys.exit(Exit.MISSING)
    from omkl.cli.app import app

    app(prog_name="omkl")
