"""Sines and cosines side by side, in elementwise operations that XLA fuses and vectorizes.

XLA's own sine and cosine, and joining their results, cost more on a CPU than all the rest of a round.
"""

import jax.numpy as jnp
from jax import Array

LIMIT = 8192.0  # beyond this the reduction by pi/2 loses digits

# pi/2 in three parts; a whole number below 2^13 times either of the first two is exact.
HIGH, MIDDLE, LOW = 1.5703125, 0.0004838705062866211, -4.371139006309477e-08

# sin r = r + r^3 S(r^2) and cos r = 1 - r^2/2 + r^4 C(r^2) on |r| <= pi/4, interpolated at Chebyshev nodes.
SINE = (-0.16666664, 0.0083327247, -0.00019582831)
COSINE = (0.041666664, -0.0013888279, 0.000024542871)
# The same for the sine on |r| <= pi/2.
ARCH = (-0.16666666, 0.0083332425, -0.00019822732, 0.0000026347327)


def waves(angles: Array) -> Array:
    """Return [sin(angles) cos(angles)] along the last axis, within 2e-7 for float32 angles up to LIMIT."""
    # cos(x) is sin(x) a quarter turn on.
    both = half_wave(angles[..., None, :], jnp.arange(2, dtype=jnp.int32)[:, None])
    return both.reshape(*angles.shape[:-1], 2 * angles.shape[-1])


def half_wave(angles: Array, quarters: Array) -> Array:
    """Return the sine of angles that many quarter turns on, broadcast against each other."""
    ahead = 0.5 * quarters.astype(angles.dtype)
    turns = jnp.floor(angles * (1 / jnp.pi) + ahead + 0.5)
    half = 2 * (turns - ahead)
    r = ((angles - half * HIGH) - half * MIDDLE) - half * LOW
    u = r * r
    value = r + r * u * (ARCH[0] + u * (ARCH[1] + u * (ARCH[2] + u * ARCH[3])))
    return jnp.where((turns.astype(jnp.int32) & 1) == 1, -value, value)
