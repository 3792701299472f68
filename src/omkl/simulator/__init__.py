"""Whole networks in JAX: ``simulate``, its ``Result``, ``load``, and ``tune``."""

from omkl.errors import DivergedError
from omkl.simulator.result import Result, load
from omkl.simulator.simulation import compare, simulate
from omkl.simulator.tuning import Tuned, tune

__all__ = ["DivergedError", "Result", "Tuned", "compare", "load", "simulate", "tune"]
