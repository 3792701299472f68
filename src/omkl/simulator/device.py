"""Calibration on an accelerator, of many seeds at once."""

import jax
import jax.numpy as jnp

from omkl import landmarks
from omkl.arrays import Array
from omkl.landmarks import Directions

TOGETHER = 256  # seeds at once: each takes some matrices of all pairs of landmarks in double precision

_compiled = jax.jit(landmarks.directions, static_argnames=("rank", "is_median"))


def directions(points: Array, limits: Array, widths: Array, rank: int, is_median: bool) -> Directions:
    """Return what ``landmarks.directions`` does, in double precision there too."""
    with jax.enable_x64(True):
        cuts = range(0, len(points), TOGETHER)
        parts = [
            _compiled(points[k : k + TOGETHER], limits[k : k + TOGETHER], widths, rank=rank, is_median=is_median)
            for k in cuts
        ]
        made = parts[0] if len(parts) == 1 else Directions(*map(jnp.concat, zip(*parts, strict=True)))
    for part in (made.basis, made.spectrum):
        part.copy_to_host_async()  # where they are asked for when the rounds are done
    return made
