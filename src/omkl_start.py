"""Where the command ``omkl`` begins: outside the package, since Ctrl-C may come while that is being loaded."""

import sys


def main() -> None:
    """Run ``omkl``; Ctrl-C while it loads ends it without a word."""
    try:
        from omkl.cli import main as run

        run()
    except KeyboardInterrupt:  # the application tells of a later one itself
        sys.exit(130)  # omkl.cli.exits.Exit.INTERRUPTED, which is not loaded yet
