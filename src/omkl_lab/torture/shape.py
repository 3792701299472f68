"""The network that a seed draws: its nodes, links, method and streams of observations."""

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from omkl import topology
from omkl.calibration import Basis
from omkl.features import gaussian
from omkl.landmarks import Landmarks
from omkl.learners import Pooled, Shared
from omkl.losses import Loss, Softmax, Squared
from omkl.methods import Gossip
from omkl.node.config import Member, NetworkConfig
from omkl.node.settings import Checkpoint, Timing
from omkl.node.transports.memory import Conditions
from omkl.reach import Reach
from omkl.sending import Budget, Pace, Sampled, Triggered
from omkl.topology import Graph

DEADLINE = 4.0
TIMINGS = (Timing(deadline=DEADLINE, patience=0.5), Timing(mode="timer", deadline=DEADLINE, period=0.5))
EVERY: tuple[Any, ...] = (5, 5, 20, 20, 20, 20, "observation")
# Consensus steps with which mixing alone brings nodes together, in networks of this size.
QUANTIZERS: tuple[tuple[Any, float], ...] = ((None, 0.8), ("nearest", 0.4), ("qsgd", 0.3), ("sign", 0.15))
MORE = ("basis", "reach", "momentum", "common_weights", "pace", "sending", "clip")  # that is told of a method
LOSSES = ("logistic", Softmax(classes=3), Squared(outputs=2))
PACES = (None, Budget(60, samples=4), Pace(2, until=4), Pace(0.5), Pace(8, until=8, least=1))
SENDING = (None, None, Sampled(1.5, floor=0.4), Triggered())
CALIBRATED: dict[str, Any] = {
    "kernels": gaussian(0.5, 1),
    "sigma": "median",
    "features": 8,
    "basis": Basis(rank=6, rows=30),
    "learner": Shared(),
    "regularization": 0.0,
    "weight_rate": 1.0,
}
"""What makes a small model of the kind that 0.1 recommended."""
PLACED: dict[str, Any] = {
    "kernels": gaussian(0.5, 1),
    "sigma": "median",
    "basis": Landmarks(rank=6, rows=30),
    "learner": Pooled(),
    "reach": Reach(),
    "regularization": 0.0,
    "weight_rate": 1.0,
    "common_weights": True,
}
"""What makes one of the recommended kind."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A network as it is drawn, before any fault.

    Attributes
    ----------
    conditions
        How every message is delayed or lost on its way, faults aside.
    periods
        Seconds between the samples of each node.
    ends
        When the stream of each node ends.
    unlabeled
        The share of the samples that have no label.
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
        config, method = self.config, self.config.method
        links = len(config.topology.graph.edges)
        more = [name for name in MORE if method.settings()[name]]
        return (
            f"{len(config.ids)} nodes, {links} links, {config.timing.mode}, {method.channel.quantizer.name}, "
            f"{' '.join([method.objective.name, *more])}, checkpoints by {self.checkpoint.every}"
        )


def draw(random: Random, seconds: float) -> Shape:
    """Return a network for a run of so many seconds."""
    nodes = random.randint(3, 8)
    members = tuple(Member(id="abcdefgh"[k], listen=f"tcp/h:{k + 1}") for k in range(nodes))
    quantizer, gamma = random.choice(QUANTIZERS)
    method = Gossip(kernels=gaussian(1, 3), features=3, eta=0.2, gamma=gamma, quantizer=quantizer)
    seed, network, timing = random.randrange(2**16), topology.build(_graph(random, nodes)), random.choice(TIMINGS)
    own = Random(seed)
    config = NetworkConfig(
        name="torture",
        inputs=2,
        method=_varied(method, own, timing).on(network),
        seed=seed,
        topology=network,
        members=members,
        timing=timing,
        calibration=np.array([[own.gauss(0, 1), own.gauss(0, 1)] for _ in range(CALIBRATED["basis"].rows)]),
    )
    return Shape(
        config=config,
        conditions=Conditions(delay=0.01, jitter=random.choice((0.0, 0.02, 0.2)), ordered=random.random() < 0.7),
        periods={id: random.choice((0.3, 0.5, 0.5, 2.0)) for id in config.ids},
        ends={id: random.choice((seconds / 2, 2 * seconds, 2 * seconds)) for id in config.ids},
        unlabeled=random.choice((0.0, 0.2)),
        checkpoint=Checkpoint(folder=Path(), every=random.choice(EVERY)),
    )


def label(loss: Loss, x: list[float]) -> Any:
    """Return the right label for an input x, in the form that the loss takes."""
    if isinstance(loss, Softmax):
        return int(x[0] > 0) + int(x[1] > 0)
    if isinstance(loss, Squared):
        return [x[0], x[0] * x[1]]
    return 1 if x[0] * x[1] > 0 else -1


def _varied(method: Gossip, random: Random, timing: Timing) -> Gossip:
    """Return the method, sometimes with parts that the paper's method does not have."""
    if random.random() < 0.4:
        return method
    more: dict[str, Any] = {
        "loss": random.choice(LOSSES),
        "momentum": random.choice((0.0, 0.0, 0.4, 0.7)),
        "common_weights": random.random() < 0.5,
        "pace": random.choice(PACES) if timing.mode == "lockstep" else None,
        "sending": random.choice(SENDING),
        "clip": random.choice((None, None, 0.3)),
    }
    kind = random.random()
    if kind < 0.25 and more["clip"]:
        more["clip"] = 6.0  # a learner without an eta has the paper's, a twentieth of this network's
    return method.replace(gamma="auto", **(more | (CALIBRATED if kind < 0.25 else PLACED if kind < 0.5 else {})))


def _graph(random: Random, nodes: int) -> Graph:
    kind = random.choice(("path", "ring", "star", "tree"))
    if kind == "tree":
        return Graph(nodes, np.array([(random.randrange(k), k) for k in range(1, nodes)]))
    return topology.GRAPHS[kind](nodes)
