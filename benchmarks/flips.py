"""How often rounding flips a quantizer's level between NumPy and JAX, and how far the loss curves then lie apart.

Run from the repository's root: python -m benchmarks.flips
"""

import jax
import numpy as np
from tests import numpy_run

import omkl
from omkl import topology
from omkl.data import as_stream
from omkl.simulator.networks import network

SETTINGS = {
    "letter's steps, QSGD M=7": omkl.Gossip(),
    "letter's steps, nearest 2.5": omkl.Gossip(quantizer=omkl.Nearest(2.5)),
    "eta=1, gamma=0.5, QSGD M=7 rescaled": omkl.Gossip(eta=1, gamma=0.5, quantizer=omkl.QSGD(3, rescale=True)),
    "eta=1, gamma=0.5, nearest 2.5": omkl.Gossip(eta=1, gamma=0.5, quantizer=omkl.Nearest(2.5)),
}


def main() -> None:
    stream, _ = as_stream("credit_card", 20, 0)
    path = topology.build("path", 20)
    mixing = network(path)
    for name, method in SETTINGS.items():
        step = jax.jit(lambda state, given, method=method: method.step(state, given, mixing)[0])
        flips, levels = numpy_run.count_flips(method, stream.X, stream.y, path, step)
        here = numpy_run.run(method, stream.X, stream.y, path, seed=3).loss.mean(axis=1)
        there = omkl.simulate(stream, "path", method=method, seed=3).loss[0]
        apart, mean = np.abs(here - there).max(), abs(here.mean() - there.mean())
        print(f"{name:<38} {flips:4d} of {levels:,} levels; loss apart {apart:.1e} at most, {mean:.1e} in the mean")


if __name__ == "__main__":
    main()
