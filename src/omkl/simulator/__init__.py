"""Whole networks: ``simulate``, its ``Result``, and ``load``."""

from omkl.errors import DivergedError
from omkl.simulator.comparison import Comparison
from omkl.simulator.result import Result, load
from omkl.simulator.simulation import compare, simulate

__all__ = ["Comparison", "DivergedError", "Result", "compare", "load", "simulate"]
