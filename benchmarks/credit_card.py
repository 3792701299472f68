"""The letter's Credit-Card setting: the simulator against the same in NumPy, vectorized over nodes and seeds.

Both run in one go on samples of the same shape (20 nodes, 23 inputs, 1500 rounds, 100 seeds); read the ratio, not the
seconds, which a noisy machine changes.
"""

import argparse
import json
import platform
import time

import jax
import numpy as np

import omkl
from omkl import features, noise
from omkl.methods import Neighbors, Round
from omkl.topology import build

NODES, INPUTS = 20, 23


def numpy_seconds(method: omkl.Gossip, X: np.ndarray, y: np.ndarray, seeds: int, rounds: int) -> float:
    ids, weights = build("path", NODES).neighbors()
    network = Neighbors(ids, weights.astype(np.float32))
    V = np.stack([features.draw(method.kernels, method.features, INPUTS, seed) for seed in range(seeds)])
    key = noise.fold(noise.key(range(seeds), "quantizer"), np.arange(NODES)[:, None, None])
    state = method.init(np, (NODES, seeds), 1)
    started = time.perf_counter()
    for t in range(rounds):
        uniforms = noise.dither(noise.fold(key, t), (len(method.kernels), 1, 2 * method.features))
        given = Round(features.transform(X[t], V), y[t][:, None, None], uniforms)
        state, _ = method.step(state, given, network)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--numpy-rounds", type=int, default=100, help="rounds that NumPy is timed on")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(options.rounds, NODES, INPUTS)).astype(np.float32)
    y = np.where(X[..., 0] + rng.normal(size=X.shape[:2]) > 0, 1.0, -1.0).astype(np.float32)
    method = omkl.Gossip()
    times = []
    for _ in range(4):
        started = time.perf_counter()
        omkl.simulate((X, y), "path", method=method, seeds=options.seeds)
        times.append(time.perf_counter() - started)
    plain = numpy_seconds(method, X, y, options.seeds, options.numpy_rounds) * options.rounds / options.numpy_rounds
    record = {
        "first call, s": times[0],
        "simulator, s": min(times[1:]),
        "vectorized NumPy, s": plain,
        "ratio": plain / min(times[1:]),
        "rounds x seeds per second": options.rounds * options.seeds / min(times[1:]),
    }
    for name, value in record.items():
        print(f"{name:<28} {value:12,.2f}")
    print(json.dumps(record | {"jax": jax.__version__, "machine": platform.machine(), "device": str(jax.devices()[0])}))


if __name__ == "__main__":
    main()
