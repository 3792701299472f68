"""How often rounding flips a quantizer's level between NumPy and JAX, and how far the loss curves then lie apart.

Run from the repository's root: python -m benchmarks.flips
"""

import jax
import numpy as np
from benchmarks import report
from tests import numpy_run

import omkl
from omkl import topology
from omkl.data import Stream, as_stream
from omkl.simulator.networks import network

SETTINGS = {
    "paper's steps, QSGD M=7": omkl.Gossip(),
    "paper's steps, nearest 2.5": omkl.Gossip(quantizer=omkl.Nearest(2.5)),
    "eta=1, gamma=0.5, QSGD M=7 rescaled": omkl.Gossip(eta=1, gamma=0.5, quantizer=omkl.QSGD(3, rescale=True)),
    "eta=1, gamma=0.5, nearest 2.5": omkl.Gossip(eta=1, gamma=0.5, quantizer=omkl.Nearest(2.5)),
}


def row(method: omkl.Gossip, stream: Stream) -> report.Row:
    """Return how many levels differ when both take a round from the same state, and how far whole runs lie apart."""
    path = topology.build("path", stream.X.shape[1])
    mixing = network(path)
    step = jax.jit(lambda state, given: method.step(state, given, mixing)[0])
    flips, levels = numpy_run.count_flips(method, stream.X, stream.y, path, step)
    here = numpy_run.run(method, stream.X, stream.y, path, seed=3).loss.mean(axis=1)
    there = omkl.simulate(stream, "path", method=method, seed=3).loss[0]
    apart = {"loss apart at most": float(np.abs(here - there).max()), "in the mean": float(abs(np.mean(here - there)))}
    return {"flips": flips, "levels": levels} | apart


def main() -> None:
    stream, _ = as_stream("credit_card", 20, 0)
    rows = [{"setting": name} | row(method, stream) for name, method in SETTINGS.items()]
    report.finish("flips", rows, "Credit-Card, 20 nodes on a path.")


if __name__ == "__main__":
    main()
