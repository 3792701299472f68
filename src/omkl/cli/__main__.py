"""``python -m omkl.cli`` is ``omkl``."""

from omkl.cli import main

main()
