"""What a seed makes of a network: its nodes and links, what they learn, and their streams."""

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from omkl import topology
from omkl.features import gaussian
from omkl.methods import Gossip
from omkl.node.config import Member, NetworkConfig
from omkl.node.settings import Checkpoint, Timing
from omkl.node.transports.memory import Conditions
from omkl.topology import Graph

DEADLINE = 4.0
TIMINGS = (Timing(deadline=DEADLINE, patience=0.5), Timing(mode="timer", deadline=DEADLINE, period=0.5))
EVERY: tuple[Any, ...] = (5, 5, 20, 20, 20, 20, "observation")
# Consensus steps with which mixing alone brings nodes together, in networks of this size.
QUANTIZERS: tuple[tuple[Any, float], ...] = ((None, 0.8), ("nearest", 0.4), ("qsgd", 0.3), ("sign", 0.15))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A network before anything has happened to it.

    Attributes
    ----------
    conditions
        What every message meets on its way.
    periods
        Seconds between the samples of each node.
    ends
        When the stream of each node ends.
    unlabeled
        Part of the samples that have no label.
    checkpoint
        How often each node saves.
    """

    config: NetworkConfig
    conditions: Conditions
    periods: dict[str, float]
    ends: dict[str, float]
    unlabeled: float
    checkpoint: Checkpoint

    def describe(self) -> str:
        """Return the network in a line."""
        config = self.config
        links = len(config.topology.graph.edges)
        return (
            f"{len(config.ids)} nodes, {links} links, {config.timing.mode}, {config.method.channel.name}, "
            f"checkpoints by {self.checkpoint.every}"
        )


def draw(random: Random, seconds: float) -> Shape:
    """Return a network for a run of so many seconds."""
    nodes = random.randint(3, 8)
    members = tuple(Member(id="abcdefgh"[k], listen=f"tcp/h:{k + 1}") for k in range(nodes))
    quantizer, gamma = random.choice(QUANTIZERS)
    method = Gossip(kernels=gaussian(1, 3), features=3, eta=0.2, gamma=gamma, quantizer=quantizer)
    config = NetworkConfig(
        name="torture",
        inputs=2,
        method=method,
        seed=random.randrange(2**16),
        topology=topology.build(_graph(random, nodes)),
        members=members,
        timing=random.choice(TIMINGS),
    )
    return Shape(
        config=config,
        conditions=Conditions(delay=0.01, jitter=random.choice((0.0, 0.02, 0.2)), ordered=random.random() < 0.7),
        periods={id: random.choice((0.3, 0.5, 0.5, 2.0)) for id in config.ids},
        ends={id: random.choice((seconds / 2, 2 * seconds, 2 * seconds)) for id in config.ids},
        unlabeled=random.choice((0.0, 0.2)),
        checkpoint=Checkpoint(folder=Path(), every=random.choice(EVERY)),
    )


def _graph(random: Random, nodes: int) -> Graph:
    kind = random.choice(("path", "ring", "star", "tree"))
    if kind == "tree":
        return Graph(nodes, np.array([(random.randrange(k), k) for k in range(1, nodes)]))
    return topology.GRAPHS[kind](nodes)
