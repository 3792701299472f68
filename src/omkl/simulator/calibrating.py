"""The features of all seeds of a run: one after another on threads of a CPU, or at once on an accelerator."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy.typing as npt

from omkl import landmarks
from omkl.arrays import Array
from omkl.blas import one_thread
from omkl.features import Features, stacked
from omkl.landmarks import Directions, Landmarks
from omkl.methods.bank import Bank
from omkl.process import cores
from omkl.simulator.engine import has_accelerator

TOGETHER = 256  # seeds at once on a device: each takes some matrices of all pairs of landmarks in double precision


def drawn(bank: Bank, X: npt.NDArray[Any], y: npt.NDArray[Any], seeds: Sequence[int], standardize: bool) -> Features:
    """Return the features of every seed, calibrated on its own rows of the stream where the bank asks for it.

    Those of a seed are what ``Bank.draw`` returns for it, whatever others there are.
    """
    dimension = X.shape[-1]
    if isinstance(bank.basis, Landmarks) and has_accelerator():
        return bank.draw_all(dimension, seeds, X, standardize, y, directions)
    threads = cores() if bank.basis is not None else 1  # frequencies are drawn by Python
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        return stacked(list(pool.map(lambda seed: bank.draw(dimension, seed, X, standardize, y), seeds)))


def directions(points: Array, limits: Array, widths: Array, rank: int, is_median: bool) -> Directions:
    """Return what ``landmarks.directions`` does, computed by JAX, in double precision there too."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        every = [slice(k, k + TOGETHER) for k in range(0, len(points), TOGETHER)]
        parts = [_compiled()(points[some], limits[some], widths, rank=rank, is_median=is_median) for some in every]
        made = Directions(*map(jnp.concat, zip(*parts, strict=True))) if len(parts) > 1 else parts[0]
    for part in (made.basis, made.spectrum):
        part.copy_to_host_async()  # where they are asked for when the rounds are done
    return made


@cache
def _compiled() -> Any:
    import jax

    return jax.jit(landmarks.directions, static_argnames=("rank", "is_median"))
