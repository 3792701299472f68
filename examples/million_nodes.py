"""A million nodes on one GPU, each with three hundred samples of its own, learn one model.

Every node hears four others, wherever they are, and some fifty bytes from each in a round. Samples are drawn on the
device, new ones in every round. On a CPU there are fewer nodes, unless their number is given:

    python examples/million_nodes.py [NODES [FOLDER]]

With a folder, ``omkl dashboard FOLDER`` shows a piece of the network, and curves of all, meanwhile or afterwards.
"""

import resource
import sys
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import omkl
from omkl.dashboard import Recorder
from omkl.topology import Graph

ROUNDS, EVERY = 300, 10
KERNELS = omkl.gaussian(0.7, 1, 1.5)
TOGETHER = omkl.Gossip(kernels=KERNELS, eta=1.0, gamma=0.5, quantizer=omkl.QSGD(bits=3, rescale=True))
ALONE = omkl.Local(kernels=KERNELS, eta=1.0)
WRONG = 0.1  # of all labels


def random_graph(nodes: int) -> Graph:
    """Return the union of two random cycles: four neighbors each, but for the few links they share."""
    rng = np.random.default_rng(0)
    cycles = [rng.permutation(nodes) for _ in range(2)]
    return Graph(nodes, np.concatenate([np.stack([cycle, np.roll(cycle, -1)], axis=1) for cycle in cycles]))


@partial(jax.jit, static_argnums=(0, 1))
def samples(nodes: int, rounds: int) -> tuple[jax.Array, jax.Array]:
    """Return places in a field, and whether they are warm: a wavy patch of it is, and a sensor may err."""
    turn, out, error = jax.random.split(jax.random.key(0), 3)
    angle = 2 * jnp.pi * jax.random.uniform(turn, (rounds, nodes))
    radius = 2 * jnp.sqrt(jax.random.uniform(out, (rounds, nodes)))
    right = jax.random.bernoulli(error, 1 - WRONG, (rounds, nodes))
    warm = (radius < 1.3 + 0.5 * jnp.sin(3 * angle)) == right
    X = radius[..., None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)
    return X, jnp.where(warm, 1.0, -1.0)


class Watch:
    """Notes when how many rounds were done; of several chunks the first, which is compiled, does not count."""

    def __init__(self) -> None:
        self.notes = [(time.perf_counter(), 0)]

    def __call__(self, done: int, rounds: int) -> None:
        self.notes.append((time.perf_counter(), done))

    @property
    def rounds_per_second(self) -> float:
        (start, first), (end, last) = self.notes[1 if len(self.notes) > 2 else 0], self.notes[-1]
        return (last - first) / (end - start)


def peak_memory() -> float:
    """Return the most that was in use so far, in GB: of the device, or of this process on a CPU."""
    stats = jax.devices()[0].memory_stats()
    return (stats["peak_bytes_in_use"] if stats else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1e9


def main(nodes: int | None = None, folder: str | None = None, rounds: int = ROUNDS) -> tuple[omkl.Result, omkl.Result]:
    """Print how a network learns and how fast; return its result, and that of as many nodes that are alone."""
    nodes = nodes or (50_000 if jax.default_backend() == "cpu" else 1_000_000)
    graph, watch = random_graph(nodes), Watch()
    X, y = (np.asarray(part) for part in samples(nodes, rounds))
    links = len(graph.edges)
    print(f"{nodes:,} nodes, {links:,} links, on {jax.devices()[0].device_kind}; every label is wrong in one of ten.")
    recorder = None if folder is None else Recorder(folder)
    together = omkl.simulate((X, y), graph, method=TOGETHER, record_every=EVERY, progress=watch, watch=recorder)
    memory, speed = peak_memory(), watch.rounds_per_second
    alone = omkl.simulate((X, y), graph, method=ALONE, record_every=EVERY)
    print("\n round   loss   correct   alone: loss   correct")
    for k in np.unique(np.geomspace(1, len(together.rounds), 8).round().astype(int)) - 1:
        ours, theirs = ((result.loss[0, k], result.accuracy[0, k]) for result in (together, alone))
        print(f"{(k + 1) * EVERY:6d} {ours[0]:6.3f} {ours[1]:9.1%} {theirs[0]:13.3f} {theirs[1]:9.1%}")
    bits = together.summary()["bits_per_node_round"]
    print(f"\nA constant guess loses {np.log(2):.3f}; at best {1 - WRONG:.0%} are correct.")
    print(f"{speed:,.1f} rounds/s, that is {speed * nodes:.3g} nodes x rounds/s; {memory:.2f} GB at most.")
    print(
        f"{bits:.0f} bits from a node in a round; {bits / 8 * nodes * rounds / 1e9:.2f} GB from all in {rounds} rounds."
    )
    return together, alone


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else None, sys.argv[2] if len(sys.argv) > 2 else None)
