"""Mixing: how a node moves towards its neighbors' hidden states."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from omkl import algorithm
from omkl.algorithm import Velocity
from omkl.arrays import Array, is_exactly, namespace
from omkl.errors import InputError, real
from omkl.methods.composed import Part
from omkl.methods.consensus_step import Tracking, stable_step
from omkl.methods.protocol import Network
from omkl.registry import Registry
from omkl.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Mixing(Part):
    """theta = theta' + gamma * sum_i w_ij (h_i - h_j), line 8, with a share of the last move carried on.

    Attributes
    ----------
    gamma
        How far a node moves towards its neighbors in a round, in (0, 1]; ``"auto"`` takes about half of the largest
        step that is stable on the network at hand, as ``methods/consensus_step.py`` tells.
    momentum
        Share of a round's move that mixing repeats in the next round, in [0, 1); zero is the paper's. It costs no bit
        and spreads what nodes learn faster along a path or a ring. The coarser the quantizer, the less of it is stable.
    clip
        Bound on what one neighbor can do to a node's model, whatever it sends: its state counts as at most a radius
        away from the node's own, kernel by kernel, as ``methods/clipping.py`` tells. None, the paper's, trusts every
        neighbor. If you do not trust all of them, 0.1 suits ``omkl.recommended()`` and 0.3 the paper's steps; nodes
        that see different data need more.
    """

    gamma: float | Literal["auto"] = 0.009
    momentum: float = 0.0
    clip: float | None = None

    name: ClassVar[str] = "heavy_ball"

    def __post_init__(self) -> None:
        if self.gamma != "auto":
            object.__setattr__(self, "gamma", real("gamma", self.gamma))
            if not 0 < self.step <= 1:
                other = "for nodes that never talk take omkl.alone() (--method alone)"
                usual = other if is_exactly(self.gamma, 0) else "the paper uses 0.009"
                raise InputError(f"gamma is {self.gamma}; the consensus step must lie in (0, 1], or be 'auto'; {usual}")
        object.__setattr__(self, "momentum", real("momentum", self.momentum))
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum is {self.momentum}; it must lie in [0, 1); zero is the paper's, else try 0.5")
        if self.clip is not None:
            object.__setattr__(self, "clip", real("clip", self.clip))
            if not 0 < self.clip <= math.inf:
                raise InputError(f"clip is {self.clip}; it must be positive; None trusts every neighbor, else try 0.1")

    @property
    def step(self) -> float:
        """gamma, a number."""
        if isinstance(self.gamma, str):
            raise InputError("gamma is 'auto' on no network; it follows from one; call method.on(topology) first")
        return self.gamma

    def step_in(self, round_: Array | int) -> Array | float:
        """Return the consensus step in a round, counted from zero. Here it is gamma in every round.

        ``round_`` is an int at a node, and an array of whole numbers in the simulator.
        """
        return self.step

    @property
    def pull(self) -> float:
        """How far one pull moves a node in the long run: gamma / (1 - momentum)."""
        return self.step / (1 - self.momentum)

    def on(self, topologies: Sequence[Topology], followed: Tracking) -> Self:
        """Return the same with a gamma that is stable on these networks; several take turns."""
        return replace(self, gamma=min(stable_step(one, followed, self.momentum) for one in topologies))

    def start(self, own: Array) -> Velocity:
        """Return the velocity before the first round: zeros in the shape of what is mixed; () without momentum."""
        return namespace(own).zeros_like(own) if self.momentum else ()

    def carried(self, own: Array, velocity: Velocity) -> Array:
        """Return what a node would have after mixing if no neighbor pulled it."""
        return own if is_exactly(self.momentum, 0) else own + self.momentum * velocity

    def mix(
        self,
        own: Array,
        velocity: Velocity,
        hidden: Array,
        network: Network,
        round_: Array | int,
        radius: Array | float | None = None,
        share: Array | None = None,
    ) -> tuple[Array, Velocity]:
        """Return what every node has after mixing with these hidden states, and the velocity.

        A neighbor farther away than ``radius`` is treated as being at that distance. ``share (J, ..., P)`` is the share
        of rounds in which each model is sent, and slows its mixing by as much.
        """

        def pulled(start: Array) -> Array:
            mixed = network.mix(start, hidden, self.step_in(round_), radius)
            return mixed if share is None else start + share[..., None, None] * (mixed - start)

        return algorithm.heavy_ball(own, velocity, self.momentum, pulled)


MIXING: Registry[type[Mixing]] = Registry("omkl.mixing", {rule.name: rule for rule in (Mixing,)})
