"""CHOCO-SGD: gossip with one kernel, the baseline that the paper builds on."""

from dataclasses import dataclass
from typing import ClassVar

from omkl import algorithm
from omkl.algorithm import State
from omkl.arrays import Array
from omkl.errors import InputError
from omkl.features import gaussian
from omkl.methods import clipping
from omkl.methods.bank import Bank
from omkl.methods.gossip import Gossip
from omkl.methods.protocol import Network
from omkl.quantizers import Message


@dataclass(frozen=True, init=False, repr=False)
class Choco(Gossip):
    """Algorithm 1 with a single kernel, which is CHOCO-SGD on its random features.

    A node mixes with the copies of the last round, then compresses. That is the order in the public code of CHOCO-SGD's
    authors for convex problems.

    Attributes
    ----------
    fresh
        Compress first, then mix with the copies that were just updated. This is the variant.

    References
    ----------
    A. Koloskova, S. Stich, M. Jaggi, "Decentralized stochastic optimization and gossip algorithms with compressed
    communication", ICML 2019.
    """

    name: ClassVar[str] = "choco"

    bank: Bank = Bank(kernels=gaussian(1))  # noqa: RUF009 - it is frozen
    fresh: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members != 1:
            raise InputError(f"{len(self.bank.kernels)} kernels; Choco learns with one; use Gossip for a bank of them")
        if self.weights.common:
            raise InputError("common_weights is True; one kernel has no weight to share; leave it out")
        if self.fresh and self.reach is not None:
            raise InputError("reach with fresh; it follows from copies of the last round; leave out one of them")

    def gossip(
        self, state: State, uniforms: Array | None, network: Network, round_: Array | int
    ) -> tuple[State, Message]:
        """Return the network after mixing, emitting and absorbing, in the order that ``fresh`` asks for."""
        if not self.fresh:
            return super().gossip(state, uniforms, network, round_)
        worth, radius = self.worth(state.log_weights), clipping.radius(self, state, round_)
        message = self.channel.emit(state.theta, state.hidden, uniforms, worth, state.moved, round_)
        hidden = algorithm.absorb(state.hidden, message)
        share = None if self.channel.sending is None else self.channel.sending.share(worth)
        theta, velocity = self.mixing.mix(state.theta, state.velocity, hidden, network, round_, radius, share)
        return state._replace(theta=theta, hidden=hidden, velocity=velocity), message
