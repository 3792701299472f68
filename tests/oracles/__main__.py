"""``python -m tests.oracles NAME``: freeze anew what must not change, when it is meant to change. No test does so.

    api       public names and their parameters
    commands  exit codes of command lines and files
    digests   what happens under seeded faults
    files     checkpoints, models, runs and estimators, of a new version: those of the others stay
    losses    loss curves of the paper's preset
    wire      frames and contracts

Look at the difference in git before you commit it: it is what users will notice.
"""

import sys
from importlib import import_module

NAMES = ("api", "commands", "digests", "files", "losses", "wire")

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in NAMES:
        sys.exit(__doc__)
    import_module(f"tests.oracles.{sys.argv[1]}").freeze()
