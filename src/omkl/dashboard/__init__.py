"""A page to look at networks: simulations, real ones, and saved runs. ``Recorder`` writes what it shows."""

from omkl.dashboard.recorder import Recorder

__all__ = ["Recorder"]
