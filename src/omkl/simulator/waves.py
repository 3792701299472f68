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


def waves(angles: Array) -> Array:
    """Return [sin(angles) cos(angles)] along the last axis, within 2e-7 for float32 angles up to LIMIT."""
    turns = jnp.round(angles * (2 / jnp.pi))
    r = ((angles - turns * HIGH) - turns * MIDDLE) - turns * LOW
    u = r * r
    sine = r + r * u * (SINE[0] + u * (SINE[1] + u * SINE[2]))
    cosine = 1 - 0.5 * u + u * u * (COSINE[0] + u * (COSINE[1] + u * COSINE[2]))
    # cos(x) is sin(x) a quarter turn on, so row one of the new axis counts one quarter more.
    quarters = turns.astype(jnp.int32)[..., None, :] + jnp.arange(2, dtype=jnp.int32)[:, None]
    value = jnp.where((quarters & 1) == 1, cosine[..., None, :], sine[..., None, :])
    signed = jnp.where((quarters & 2) == 2, -value, value)
    return signed.reshape(*angles.shape[:-1], 2 * angles.shape[-1])
