"""The simulator on one accelerator: the letter's settings under 100 seeds, and networks of up to ten million nodes.

Needs NumPy and JAX only. Samples are synthetic, of the right shape, and lie on the device; a run of the letter's
settings is the whole call, with all that is recorded, and a round of a large network is one of a chunk that is measured
once. First calls compile; steady times are the best of several.

Beside each time stands its floor. For the letter's settings it is the projections' operations at the rate of a large
product in full float32, and every round's models and hidden states moved once each way; for large networks the latter,
and for random graphs a read of every neighbor's hidden state, at the bandwidth of a copy.

Run from the repository's root: python -m benchmarks.device
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from benchmarks import report
from benchmarks.scale import GRAPHS

import omkl
from omkl import features, noise
from omkl.simulator import engine, tiles
from omkl.simulator.measures import metrics
from omkl.simulator.networks import network
from omkl.simulator.rounds import Given, Program, compiled
from omkl.topology import build

METHOD = omkl.Gossip()
SETTINGS = {"credit card": (1500, 23), "banana": (265, 2), "mnist": (3500, 784)}
ROUNDS = 40  # of a large network
NUMBERS = 2 * METHOD.features * len(METHOD.kernels)


def problem(rounds: int, nodes: int, inputs: int, seeds: int) -> engine.Problem:
    """Return samples on the device."""
    keys = jax.random.split(jax.random.key(0))
    X = jax.random.normal(keys[0], (rounds, nodes, inputs)) / inputs**0.5
    y = jnp.sign(jax.random.normal(keys[1], (rounds, nodes, 1)))
    V = np.stack([features.draw(METHOD.kernels, METHOD.features, inputs, seed) for seed in range(seeds)])
    return engine.Problem(X, y, features.Features(V), list(range(seeds)))  # type: ignore[arg-type]


def best(work: Callable[[], Any], times: int) -> tuple[float, float]:
    """Return the seconds of the first call and of the best of the next."""
    taken = []
    for _ in range(times + 1):
        started = time.perf_counter()
        jax.block_until_ready(work())
        taken.append(time.perf_counter() - started)
    return taken[0], min(taken[1:])


def bandwidth() -> float:
    """Return bytes read and written per second by a copy."""
    x = jnp.zeros(2**30, dtype=jnp.float32)
    copy = jax.jit(lambda a: a + 1)
    return 2 * x.nbytes / best(lambda: copy(x), 10)[1]


def rate() -> float:
    """Return operations per second of a product in full float32."""
    x = jnp.ones((8192, 8192), dtype=jnp.float32)
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    return 2 * 8192**3 / best(lambda: product(x), 5)[1]


def letter(name: str, bytes_per_second: float, per_second: float) -> report.Row:
    rounds, inputs = SETTINGS[name]
    given, case = problem(rounds, 20, inputs, 100), engine.Case(METHOD, network(build("path", 20)))
    first, steady = best(lambda: engine.run(given, [case], metrics), 5)
    moved = 4 * 4 * NUMBERS * 20 * 100 * rounds / bytes_per_second
    projected = rounds * 20 * 100 * inputs * NUMBERS / per_second
    floor = 1e3 * (moved + projected)
    return {"run": name, "first call, s": first, "steady, ms": 1e3 * steady, "floor, ms": floor}


def large(graph: str, nodes: int, bytes_per_second: float, tiled: bool) -> report.Row:
    """Return the milliseconds of a round, by the kernel of ``tiles`` or by what XLA makes of the engine's rounds."""
    X, y, V, seeds, _ = problem(ROUNDS, nodes, 2, 1)
    key = noise.fold(noise.key(seeds, "quantizer"), np.arange(nodes)[:, None, None])
    topology = build(GRAPHS[graph](nodes))
    given = Given(features.Features(jnp.asarray(V)), noise.Key(*map(jnp.asarray, key)), (network(topology),))
    program = Program(engine.HERE, (METHOD,), metrics, True, ROUNDS, True, tiled)
    times, states = jnp.arange(ROUNDS, dtype=jnp.uint32), [METHOD.init(jnp, (nodes, 1), 1)]

    def rounds() -> Any:
        nonlocal states
        states, records = compiled()(program, states, times, X, y, given)
        return records

    first, steady = best(rounds, 3)
    gathers = len(topology.graph.edges) * 2 if graph != "ring" else 0
    floor = 4 * NUMBERS * (4 * nodes + gathers) / bytes_per_second / 1e-3
    name = f"{graph} of {nodes:,}" + ("" if tiled else ", XLA alone")
    ms = 1e3 * steady / ROUNDS
    return {"run": name, "first call, s": first, "round, ms": ms, "floor, ms": floor, "times its floor": ms / floor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[10**5, 10**6, 10**7])
    options = parser.parse_args()
    tiles.ready()
    copied, multiplied = bandwidth(), rate()
    note = f"A copy moves {copied / 1e12:.2f} TB/s, a large float32 product {multiplied / 1e12:.1f} Tflop/s."
    rows = [letter(name, copied, multiplied) for name in SETTINGS]
    print(report.table(rows), flush=True)
    for nodes in options.nodes:
        for graph in ("ring", "regular"):
            rows.append(large(graph, nodes, copied, True))
            print(report.table(rows[-1:]), flush=True)
    rows += [large(graph, 10**6, copied, False) for graph in ("ring", "regular")]
    report.finish("device", rows, note)


if __name__ == "__main__":
    main()
