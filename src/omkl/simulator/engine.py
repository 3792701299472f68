"""Run a method on a whole network under many seeds: chunks of rounds, each one compiled scan.

Arrays are ``(J, S, ...)``: nodes first, so that mixing is one product with everything else folded into its columns;
seeds second. The projections of a chunk are one large matrix product ahead of the scan.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from omkl import noise
from omkl.algorithm import normalize
from omkl.arrays import Array
from omkl.errors import InputError
from omkl.methods import Method, Network, Round
from omkl.methods.protocol import MethodState
from omkl.simulator.waves import LIMIT, waves

CHUNK_BYTES = 8 * 2**20  # of projections held at a time: they should stay in the cache
UNROLL = 4

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the rounds done and the rounds in all."""


class DivergedError(InputError):
    """The run left the finite numbers."""


class Metrics(NamedTuple):
    """What is recorded of each round: means over nodes, ``(rounds, S)``; ``weights`` has P more."""

    loss: Array
    accuracy: Array
    disagreement: Array
    weights: Array


def run(
    method: Method,
    X: npt.NDArray[np.float32],
    y: npt.NDArray[np.float32],
    frequencies: npt.NDArray[np.float32],
    seeds: list[int],
    network: Network,
    progress: Progress | None = None,
) -> tuple[MethodState, Metrics]:
    """Return the state after the last round and the metrics of every round, as NumPy arrays.

    Parameters
    ----------
    X, y
        Inputs ``(T, J, d)`` and targets ``(T, J, C)``.
    frequencies
        ``(S, P, D, d)``, fresh for every seed.
    """
    rounds, nodes, _ = X.shape
    reach = np.linalg.norm(X, axis=-1).max() * np.linalg.norm(frequencies, axis=-1).max()
    base = noise.fold(noise.key(seeds, "quantizer"), np.arange(nodes)[:, None, None])
    key = noise.Key(jnp.asarray(base.low), jnp.asarray(base.high))
    V = jnp.asarray(frequencies)
    state = method.init(jnp, (nodes, len(seeds)), y.shape[-1])
    recorded = []
    for first, last in _chunks(rounds, 4 * nodes * frequencies[..., 0].size):
        times = jnp.arange(first, last, dtype=jnp.uint32)
        state, metrics = _chunk(
            method, bool(reach < LIMIT), state, times, X[first:last], y[first:last], V, key, network
        )
        recorded.append(jax.tree.map(np.asarray, metrics))
        _require_finite(recorded[-1].loss, first, seeds)
        if progress is not None:
            progress(last, rounds)
    return jax.tree.map(np.asarray, state), Metrics(*map(np.concatenate, zip(*recorded, strict=True)))


@partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _chunk(
    method: Method,
    near: bool,
    state: MethodState,
    times: Array,
    X: Array,
    y: Array,
    V: Array,
    key: noise.Key,
    network: Network,
) -> tuple[MethodState, Metrics]:
    shape = (len(method.kernels), y.shape[-1], 2 * method.features)

    def body(state: MethodState, inputs: tuple[Array, Array, Array]) -> tuple[MethodState, Metrics]:
        t, angles, targets = inputs
        sines = waves(angles) if near else jnp.concat([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        z = sines * method.features**-0.5
        uniforms = noise.dither(noise.fold(key, t), shape) if method.dithered else None
        # Inside a reduction's loop XLA computes them one by one; on their own they vectorize.
        z, uniforms = lax.optimization_barrier((z, uniforms))  # type: ignore[no-untyped-call]
        targets = targets[:, None, :]
        state, info = method.step(state, Round(z, targets, uniforms), network)
        theta, log_weights = method.models(state)
        spread = jnp.sum((theta - jnp.mean(theta, axis=0)) ** 2, axis=(-3, -2, -1))
        return state, Metrics(
            jnp.mean(info.loss, axis=0),
            jnp.mean(method.objective.score(info.output, targets), axis=0),
            jnp.sqrt(jnp.mean(spread, axis=0)),
            jnp.mean(normalize(log_weights), axis=0),
        )

    angles = jnp.tensordot(X, V, axes=((-1,), (-1,)), precision="highest")
    return lax.scan(body, state, (times, angles, y), unroll=min(UNROLL, len(times)))


def _chunks(rounds: int, bytes_per_round: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last); a length that divides the rounds where one is near, since every length is compiled."""
    most = max(1, min(rounds, CHUNK_BYTES // bytes_per_round))
    length = next((n for n in range(most, most // 2, -1) if rounds % n == 0), most)
    for first in range(0, rounds, length):
        yield first, min(first + length, rounds)


def _require_finite(loss: npt.NDArray[np.float32], first: int, seeds: list[int]) -> None:
    bad = np.argwhere(~np.isfinite(loss))
    if len(bad):
        t, s = bad[0]
        raise DivergedError(
            f"the loss is {loss[t, s]} at round {first + t} of seed {seeds[s]}; a run must stay finite; "
            "lower gamma or eta, or use a quantizer with a larger delta (see omkl explain)"
        )
