"""Gossiped and quantized online multi-kernel learning: the letter's method."""

from dataclasses import dataclass
from typing import Any, ClassVar

from omkl import algorithm
from omkl.algorithm import State
from omkl.arrays import Array
from omkl.errors import InputError, real
from omkl.methods.ensemble import Quantized
from omkl.methods.protocol import Info, Network, Round
from omkl.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Gossip(Quantized):
    """Algorithm 1: mix with the neighbors' hidden states, send a quantized difference, then learn.

    Attributes
    ----------
    gamma
        Consensus step, in (0, 1].
    """

    name: ClassVar[str] = "gossip"

    gamma: float = 0.009

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "gamma", real("gamma", self.gamma))
        if not 0 < self.gamma <= 1:
            raise InputError(f"gamma is {self.gamma}; the consensus step must lie in (0, 1]; the letter uses 0.009")

    def check(self, topology: Topology) -> None:
        """Accept any network."""

    def init(self, xp: Any, leading: tuple[int, ...], outputs: int) -> State:
        """Return zero models, zero hidden states and equal weights."""
        return algorithm.init(self.zeros(xp, leading, outputs), self.rule)

    def step(self, state: State, inputs: Round, network: Network) -> tuple[State, Info]:
        """Return the network after one round of Algorithm 1."""
        theta = network.mix(state.theta, state.hidden, self.gamma)
        message = algorithm.emit(theta, state.hidden, self.channel, inputs.uniforms)
        hidden = algorithm.absorb(state.hidden, message)
        theta, log_weights, memory, info = self.observe(theta, state.log_weights, state.memory, inputs)
        return State(theta, hidden, log_weights, memory), self.charge(info, message)

    def models(self, state: State) -> tuple[Array, Array]:
        """Return every node's models and log weights."""
        return state.theta, state.log_weights
