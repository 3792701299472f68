"""The simulator on one accelerator: the letter's settings under 100 seeds, and rings of up to ten million nodes.

Needs NumPy and JAX only, on synthetic samples of the right shape. First calls compile; steady times are the best of
three. Rounds of a large network are timed as the difference of two runs, which takes out what is done once.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import omkl
from omkl import features
from omkl.simulator import engine
from omkl.simulator.measures import metrics
from omkl.simulator.networks import network
from omkl.topology import build

KERNELS = omkl.gaussian(1, 3, 5)


def problem(rounds: int, nodes: int, inputs: int, seeds: int) -> engine.Problem:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rounds, nodes, inputs)).astype(np.float32) / inputs**0.5
    y = np.sign(rng.normal(size=(rounds, nodes, 1))).astype(np.float32)
    V = np.stack([features.draw(KERNELS, 20, inputs, seed) for seed in range(seeds)])
    return engine.Problem(X, y, V, list(range(seeds)))


def best(work: Callable[[], Any], times: int = 3) -> tuple[float, float]:
    """Return the seconds of the first call and of the best of the next."""
    taken = []
    for _ in range(times + 1):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return taken[0], min(taken[1:])


def bandwidth() -> float:
    """Return bytes read and written per second by a copy."""
    x = jnp.zeros(2**28, dtype=jnp.float32)
    copy = jax.jit(lambda a: a + 1)
    return 2 * x.nbytes / best(lambda: copy(x).block_until_ready(), 10)[1]


def large(nodes: int, bytes_per_second: float) -> dict[str, float]:
    """Return the milliseconds of a round on a ring, and what moving theta and h in and out once would take."""
    ring = engine.Case(omkl.Gossip(), network(build("ring", nodes)))
    short, long = (problem(rounds, nodes, 2, 1) for rounds in (4, 12))
    taken = [best(lambda p=p: engine.run(p, [ring], metrics), 2)[1] for p in (short, long)]  # type: ignore[misc]
    return {"round, ms": 1e3 * (taken[1] - taken[0]) / 8, "floor, ms": 1e3 * 4 * 4 * 120 * nodes / bytes_per_second}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[10**5, 10**6, 10**7])
    options = parser.parse_args()
    record: dict[str, Any] = {"device": str(jax.devices()[0]), "jax": jax.__version__, "bandwidth, B/s": bandwidth()}
    path = network(build("path", 20))
    for name, rounds, inputs in (("credit card", 1500, 23), ("banana", 265, 2), ("mnist", 3500, 784)):
        given = problem(rounds, 20, inputs, 100)
        first, steady = best(lambda: engine.run(given, [engine.Case(omkl.Gossip(), path)], metrics))  # noqa: B023
        record[name] = {"first call, s": first, "steady, s": steady}
        print(name, record[name], flush=True)
    for nodes in options.nodes:
        record[f"ring of {nodes}"] = large(nodes, record["bandwidth, B/s"])
        print(nodes, record[f"ring of {nodes}"], flush=True)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
