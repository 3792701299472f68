"""CHOCO-SGD: gossip with one kernel, the baseline the letter builds on."""

from dataclasses import dataclass
from typing import ClassVar

from omkl import algorithm
from omkl.algorithm import State
from omkl.errors import InputError
from omkl.features import Kernel, gaussian
from omkl.methods.gossip import Gossip
from omkl.methods.protocol import Info, Network, Round


@dataclass(frozen=True, kw_only=True)
class Choco(Gossip):
    """Algorithm 1 with a single kernel, which is CHOCO-SGD on its random features.

    Attributes
    ----------
    fresh
        Compress first and mix with the copies just updated, as public codes do, instead of mixing with the copies of
        the last round.

    References
    ----------
    A. Koloskova, S. Stich, M. Jaggi, "Decentralized stochastic optimization and gossip algorithms with compressed
    communication", ICML 2019.
    """

    name: ClassVar[str] = "choco"

    kernels: tuple[Kernel, ...] = gaussian(1)
    fresh: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.kernels) != 1:
            raise InputError(f"{len(self.kernels)} kernels; Choco learns with one; use Gossip for a bank of them")
        if self.common_weights:
            raise InputError("common_weights is True; one kernel has no weight to share; leave it out")

    def step(self, state: State, inputs: Round, network: Network) -> tuple[State, Info]:
        """Return the network after one round, in the order that ``fresh`` asks for."""
        if not self.fresh:
            return super().step(state, inputs, network)
        message = algorithm.emit(state.theta, state.hidden, self.channel, inputs.uniforms)
        hidden = algorithm.absorb(state.hidden, message)
        theta, velocity = self.mix(state.theta, state.velocity, hidden, network)
        theta, log_weights, memory, info = self.observe(theta, state.log_weights, state.memory, inputs)
        return State(theta, hidden, log_weights, memory, velocity), self.charge(info, message)
