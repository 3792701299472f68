"""The memory a run takes, known before it starts."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omkl.errors import InputError
from omkl.landmarks import Landmarks
from omkl.methods import Method
from omkl.methods.clipping import clips
from omkl.simulator.description import device
from omkl.simulator.engine import has_accelerator
from omkl.simulator.layout import best
from omkl.storage import leaves
from omkl.topology import Topology

WORK = 3  # arrays as large as all nodes' models that a round holds besides the state: features, dither, mixed models
FLOAT = 4
TOLD = 2**30  # bytes from which on a run's size is told
AHEAD = 8 * 2**20  # what is computed ahead of the rounds, at a time, where a round has less

log = logging.getLogger(__name__)


class Size(NamedTuple):
    """The bytes of a run, by what holds them."""

    state: int
    """Models, hidden states, weights and learners' memory, of all cases."""
    rounds: int
    """What is held within a chunk of rounds: projections, features, dither, neighbors' copies."""
    inputs: int
    """Samples and targets."""
    records: int
    """Curves."""
    features: int
    """Frequencies and bases."""
    network: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(self)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {_text(count)}" for name, count in self._asdict().items())
        return f"{_text(self.total)} ({parts})"


def size(
    shape: tuple[int, int, int],
    outputs: int,
    methods: Sequence[Method],
    graphs: Sequence[Topology],
    seeds: int,
    pooled: bool = False,
    every: int = 1,
) -> Size:
    """Return the size of a run on inputs of shape ``(T, J, d)`` with C outputs, each method on its graph.

    Examples
    --------
    >>> import omkl
    >>> print(size((1000, 10**6, 2), 1, [omkl.Gossip()], [omkl.topology.build("ring", 10**6)], 1))
    13.7 GiB (state 927.0 MiB, rounds 1.6 GiB, inputs 11.2 GiB, records 78.1 KiB, features 480 B, network 22.9 MiB)
    """
    rounds, nodes, dimension = shape
    kernels, bank = max(method.bank.members for method in methods), methods[0].bank
    features, basis = bank.features, bank.basis
    rank = 0 if basis is None else basis.rank
    if isinstance(basis, Landmarks):
        features = basis.rows
    row = FLOAT * seeds * kernels * outputs * bank.width  # all models of a node
    given = FLOAT * nodes * seeds * kernels * (3 * features + rank if rank else features)  # a round's, computed ahead
    clipped = [clips(method) for method in methods]
    copies = max(_copied(graph, each) for graph, each in zip(graphs, clipped, strict=True)) * row
    record = 2 * FLOAT * (5 + kernels) + 16  # as recorded and as joined; bits
    answers = 2 * FLOAT * nodes**2 * seeds * outputs if pooled else 0  # of every model to every sample; losses
    return Size(
        state=seeds * sum(_state(method, nodes, outputs) for method in methods),
        rounds=WORK * nodes * row + min(rounds * given, max(given, AHEAD)) + copies + answers,
        inputs=FLOAT * rounds * nodes * (dimension + outputs),
        records=len(methods) * (rounds // every) * seeds * record,
        features=FLOAT * seeds * kernels * (features * dimension + (2 * features + 1) * rank),
        network=sum(24 * len(graph.graph.edges) for graph in graphs),
    )


def _state(method: Method, nodes: int, outputs: int) -> int:
    """Return the bytes of the state of all nodes under one seed: what they have in common, and what each has."""
    kernels, basis = method.bank.members, method.bank.basis
    spectrum = None if basis is None else np.zeros((1, kernels, basis.rank), dtype=np.float32)
    one, two = (sum(leaf.nbytes for leaf in leaves(method.init(np, (count, 1), outputs, spectrum))) for count in (1, 2))
    return int(one + (nodes - 1) * (two - one))


def _copied(graph: Topology, clips: bool) -> int:
    """Return how many nodes' models are copied to mix a graph: those of all links, where these are held one by one.

    To be clipped a copy is measured first: one for every node at a time, or all where there are edges.
    """
    return {"matrix": 0, "lists": graph.nodes if clips else 0, "edges": 2 * len(graph.graph.edges)}[best(graph, clips)]


def require_room(size: Size, devices: int = 1) -> None:
    """Refuse a run that is larger than what its devices have free."""
    log.log(logging.INFO if size.total > TOLD else logging.DEBUG, "this run holds %s", size)
    needed, free = size.total - size.inputs, room(devices)
    if free is not None and needed > free:
        raise InputError(
            f"this run holds {size}; besides the inputs it must fit the {_text(free)} that {devices} x "
            f"{device()} have; use fewer seeds a run (seed= goes on where the last ended), fewer features, or "
            "more devices"
        )


def room(devices: int = 1) -> int | None:
    """Return the bytes that devices have for a run; None where the system does not tell. Those of a CPU share it."""
    if has_accelerator():
        import jax

        limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
        return None if limit is None else devices * limit
    info = Path("/proc/meminfo")
    lines = info.read_text().splitlines() if info.exists() else []
    available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)
    if available is None and {"SC_AVPHYS_PAGES", "SC_PAGE_SIZE"} <= getattr(os, "sysconf_names", {}).keys():
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return available


def _text(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, 4)
    return f"{count / 1024**power:,.1f} {'KMGT'[power - 1]}iB"
