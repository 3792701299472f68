"""Gossiped and quantized online multi-kernel learning: the letter's method."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from omkl import algorithm
from omkl.algorithm import State, Velocity
from omkl.arrays import Array
from omkl.errors import InputError, real
from omkl.methods.ensemble import Quantized
from omkl.methods.protocol import Info, Network, Round
from omkl.methods.steps import stable_step, tracking
from omkl.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Gossip(Quantized):
    """Algorithm 1: mix with the neighbors' hidden states, send a quantized difference, then learn.

    Attributes
    ----------
    gamma
        Consensus step, in (0, 1]; ``"auto"`` takes about half of the largest that is stable on the network at hand, as
        ``methods/steps.py`` tells.
    momentum
        Share of a round's move that mixing carries on into the next, in [0, 1); zero is the letter's. It costs no bit
        and takes what nodes learn along a path or a ring sooner, and a coarse quantizer bears less of it: see gamma.
    clip
        Bounds what one neighbor can do, whatever it sends: its state counts as at most ``radius`` away from the node's
        own, kernel by kernel. None, the letter's, trusts every neighbor; 0.35 is recommended where not all are to be
        trusted, and more where nodes see different data and have reason to differ.
    common_weights
        Gossip the log weights of the kernels too, one more number in each kernel's message: else, as in the letter,
        each node prefers the kernel that suits its own samples, which misleads where nodes see different data.

    Notes
    -----
    ``radius`` is clip * eta / sqrt(gamma), a distance that every node knows and no neighbor can change. Under a loss of
    slope 1 at most, such as the logistic, eta is the farthest that a sample moves a model. Neighbors whose samples all
    did so would stand about eta / sqrt(gamma) apart: each adds eta^2 to their squared distance in a round, and mixing
    removes a share of order gamma. Honest neighbors on one task stand at about half of that, for small steps and for
    large ones. A neighbor that lies moves a node in a round by clip * w_ij * sqrt(gamma) of what a sample may, at most.
    With momentum a pull goes on for 1 / (1 - momentum) rounds, and gamma / (1 - momentum) stands in the place of gamma.
    Under the squared loss bring the targets to a deviation near 1, as for eta itself.
    """

    name: ClassVar[str] = "gossip"

    gamma: float | Literal["auto"] = 0.009
    momentum: float = 0.0
    clip: float | None = None
    common_weights: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma != "auto":
            object.__setattr__(self, "gamma", real("gamma", self.gamma))
            if not 0 < self.consensus_step <= 1:
                raise InputError(
                    f"gamma is {self.gamma}; the consensus step must lie in (0, 1], or be 'auto'; the letter uses 0.009"
                )
        object.__setattr__(self, "momentum", real("momentum", self.momentum))
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum is {self.momentum}; it must lie in [0, 1); zero is the letter's, else try 0.5")
        if self.clip is not None:
            object.__setattr__(self, "clip", real("clip", self.clip))
            if not 0 < self.clip <= math.inf:
                raise InputError(f"clip is {self.clip}; it must be positive; None trusts every neighbor, else try 0.35")

    @property
    def radius(self) -> float | None:
        """How far a neighbor's state counts as at most; None where it is not bounded."""
        if self.clip is None:
            return None
        return self.clip * getattr(self.rule, "eta", self.eta) / math.sqrt(self.consensus_step / (1 - self.momentum))

    @property
    def consensus_step(self) -> float:
        """gamma, a number."""
        if self.gamma == "auto":
            raise InputError("gamma is 'auto' on no network; it follows from one; call method.on(topology) first")
        return self.gamma

    def on(self, *topologies: Topology) -> Self:
        """Return the method with numbers for these networks, which may take turns."""
        if self.gamma != "auto":
            return self
        followed = tracking(self.channel, self.sent)
        return replace(self, gamma=min(stable_step(topology, followed, self.momentum) for topology in topologies))

    def check(self, topology: Topology) -> None:
        """Accept any network."""

    def init(self, xp: Any, leading: tuple[int, ...], outputs: int, spectrum: Array | None = None) -> State:
        """Return zero models, zero hidden states and equal weights."""
        state = algorithm.init(self.zeros(xp, leading, outputs), self.rule, spectrum, self.momentum)
        hidden = xp.zeros_like(self.spoken(state.theta, state.log_weights))
        return state._replace(hidden=hidden, velocity=algorithm.at_rest(hidden, self.momentum))

    @property
    def sent(self) -> int:
        """The numbers that are sent of a model, its weight among them where weights are common."""
        return self.width + self.common_weights

    def step(self, state: State, inputs: Round, network: Network) -> tuple[State, Info]:
        """Return the network after one round of Algorithm 1."""
        own, velocity = self.mix(self.spoken(state.theta, state.log_weights), state.velocity, state.hidden, network)
        message = algorithm.emit(own, state.hidden, self.channel, inputs.uniforms)
        hidden = algorithm.absorb(state.hidden, message)
        theta, log_weights = self.heard(own, state.log_weights)
        theta, log_weights, memory, info = self.observe(theta, log_weights, state.memory, inputs)
        return State(theta, hidden, log_weights, memory, velocity), self.charge(info, message)

    def mix(self, own: Array, velocity: Velocity, hidden: Array, network: Network) -> tuple[Array, Velocity]:
        """Return what every node has after mixing with these hidden states, and the velocity."""
        gamma, radius = self.consensus_step, self.radius
        return algorithm.carry(own, velocity, self.momentum, lambda start: network.mix(start, hidden, gamma, radius))

    def spoken(self, theta: Array, log_weights: Array) -> Array:
        """Return what a node gossips: its models, joined by their weights where those are common."""
        return algorithm.join(theta, log_weights) if self.common_weights else theta

    def heard(self, own: Array, log_weights: Array) -> tuple[Array, Array]:
        """Return models and log weights of what was mixed; these weights where each node has its own."""
        return algorithm.part(own) if self.common_weights else (own, log_weights)

    def models(self, state: State) -> tuple[Array, Array]:
        """Return every node's models and log weights."""
        return state.theta, state.log_weights
