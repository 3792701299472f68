"""How far ``gamma="auto"`` is from the largest stable consensus step: ``python -m benchmarks.stability``.

Rounds of mixing without samples, for graphs x weights x quantizers x lengths x momenta, at multiples of gamma auto.
Quantizers scale with what they are given, so that a run is brought back to size in every round, and its growth is what
was taken out: stable is what shrinks.
"""

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from omkl import topology
from omkl.arrays import Array
from omkl.compressors import RandK, Sign, TopK
from omkl.methods.consensus_step import Tracking, stable_step, tracking
from omkl.quantizers import QSGD, Exact, Nearest, Quantizer, restore
from omkl.topology import Topology

NODES, ROUNDS = 20, 600
GRAPHS = ("path", "ring", "grid", "star", "complete", "erdos_renyi")
WEIGHTS = ("metropolis", "best_constant")
LENGTHS = (40, 160)
MOMENTA = (0.0, 0.5, 0.7, 0.8, 0.9)
MULTIPLES = (1, 1.4, 2, 2.8, 4, 5.6, 8, 11)
NOISE = 1e-4  # of the growth a round
QUANTIZERS: tuple[Quantizer, ...] = (
    Exact(), QSGD(3), QSGD(4), QSGD(3, rescale=True), QSGD(1, rescale=True), Nearest(1), Nearest(2), Nearest(2.5),
    Nearest(3), Nearest(2.5, block=20), Sign(), TopK(8), RandK(8),
)  # fmt: skip


@partial(jax.jit, static_argnums=(0, 1, 2))
def growth(quantizer: Quantizer, n: int, rounds: int, laplacian: Array, gammas: Array, momenta: Array) -> Array:
    """Return the logarithm by which disagreement grows in a round, for each pair of gamma and momentum."""
    nodes, lanes = laplacian.shape[0], gammas.shape[0]
    gamma, momentum = gammas[:, None], momenta[:, None]

    def step(carry: tuple[Array, ...], t: Array) -> Any:
        x, h, v = carry
        v = momentum * v - gamma * jnp.tensordot(laplacian, h, axes=1)
        x = x + v
        x, h, v = x - x.mean(axis=0), h - x.mean(axis=0), v - v.mean(axis=0)  # what rounding adds to the mean
        key = jax.random.fold_in(jax.random.key(1), t)
        uniforms = jnp.broadcast_to(jax.random.uniform(key, (nodes, 1, n)), x.shape) if quantizer.dithered else None
        h = h + restore(quantizer.quantize(x - h, uniforms))
        size = jnp.sqrt(jnp.sum(x**2 + (x - h) ** 2 + v**2, axis=(0, 2), keepdims=True))
        return (x / size, h / size, v / size), jnp.log(size[0, :, 0])

    x = jnp.broadcast_to(jax.random.normal(jax.random.key(0), (nodes, 1, n)), (nodes, lanes, n))
    grown = lax.scan(step, (x, jnp.zeros_like(x), jnp.zeros_like(x)), jnp.arange(rounds))[1]
    return grown[rounds // 2 :].mean(axis=0)


def margins(
    quantizer: Quantizer, n: int, followed: Tracking, network: Topology, rounds: int
) -> list[tuple[float, float]]:
    """Return gamma auto and the largest multiple of it that is stable, below which all are, for each momentum."""
    autos = [stable_step(network, followed, momentum) for momentum in MOMENTA]
    gammas = np.outer(autos, MULTIPLES)
    laplacian = np.eye(network.nodes) - network.matrix()
    lanes = (gammas.ravel(), np.repeat(MOMENTA, len(MULTIPLES)))
    given = (jnp.asarray(part, dtype=jnp.float32) for part in (laplacian, *lanes))
    stable = (np.asarray(growth(quantizer, n, rounds, *given)) < NOISE).reshape(gammas.shape)
    best = [MULTIPLES[len(row) - 1 if row.all() else row.argmin() - 1] if row[0] else 0 for row in stable]
    return list(zip(autos, best, strict=True))


def table(
    quantizers: Sequence[Quantizer], lengths: Sequence[int], graphs: Sequence[str] = GRAPHS, rounds: int = ROUNDS
) -> Iterator[dict[str, Any]]:
    """Yield, for each quantizer and length, the least margin over graphs and weights, momentum by momentum."""
    networks = [topology.build(name, NODES, rule) for name, rule in itertools.product(graphs, WEIGHTS)]
    for quantizer, n in itertools.product(quantizers, lengths):
        if quantizer.delta(n) <= 0:  # gossip refuses it
            continue
        delta, lag = followed = tracking(quantizer, n)
        found = np.array([margins(quantizer, n, followed, network, rounds) for network in networks])
        yield {
            "quantizer": str(quantizer),
            "n": n,
            "delta": round(delta, 3),
            "lag": round(lag, 2),
            "auto on the path": dict(zip(MOMENTA, found[0, :, 0].tolist(), strict=True)),
            "least margin": dict(zip(MOMENTA, found[:, :, 1].min(axis=0).tolist(), strict=True)),
            "median margin": dict(zip(MOMENTA, np.median(found[:, :, 1], axis=0).tolist(), strict=True)),
        }


def main() -> None:
    """Print a line of JSON for every quantizer and length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="quantizers whose text contains this", default="")
    only = parser.parse_args().only
    for row in table(tuple(one for one in QUANTIZERS if only in str(one)), LENGTHS):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
