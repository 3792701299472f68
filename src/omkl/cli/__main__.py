"""``python -m omkl.cli`` is ``omkl``."""

from omkl_start import main

main()
