"""The features of all seeds of a run: one after another on threads of a CPU, or at once on an accelerator."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy.typing as npt

from omkl.blas import one_thread
from omkl.features import Features, stacked
from omkl.landmarks import Landmarks
from omkl.methods.bank import Bank
from omkl.process import cores
from omkl.simulator.engine import has_accelerator


def drawn(bank: Bank, X: npt.NDArray[Any], y: npt.NDArray[Any], seeds: Sequence[int], standardize: bool) -> Features:
    """Return the features of every seed, calibrated on its own rows of the stream where the bank asks for it.

    Those of a seed are what ``Bank.draw`` returns for it, whatever others there are.
    """
    dimension = X.shape[-1]
    if isinstance(bank.basis, Landmarks) and has_accelerator():
        from omkl.simulator.device import directions

        return bank.draw_all(dimension, seeds, X, standardize, y, directions)
    threads = cores() if bank.basis is not None else 1  # frequencies are drawn by Python
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        return stacked(list(pool.map(lambda seed: bank.draw(dimension, seed, X, standardize, y), seeds)))
