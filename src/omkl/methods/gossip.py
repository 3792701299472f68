"""Gossiped and quantized online multi-kernel learning: the paper's method."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

from omkl import algorithm
from omkl.algorithm import State
from omkl.arrays import Array, namespace
from omkl.errors import InputError, pick
from omkl.methods import clipping
from omkl.methods.channel import Channel
from omkl.methods.consensus_step import seldom, tracking
from omkl.methods.ensemble import Ensemble
from omkl.methods.mixing import MIXING, Mixing
from omkl.methods.protocol import Info, Network, Round
from omkl.methods.weights import GossipedWeights
from omkl.quantizers import Message
from omkl.reach import Hearing, Reach
from omkl.sending import Schedule, follow
from omkl.topology import Topology
from omkl.wire import message_bytes


@dataclass(frozen=True, init=False, repr=False)
class Gossip(Ensemble):
    """The paper's method, Algorithm 1: mix with the neighbors, send a quantized difference, then learn.

    The defaults are the paper's. To learn most, use ``omkl.recommended()``, which is a ``Gossip`` with other settings.

    You can give these settings by name:

    - features: ``kernels``, ``features``, ``orthogonal``, ``basis``, ``sigma``, see ``omkl.methods.Bank``;
    - learning: ``loss``, ``regularization``, ``learner``, ``eta`` and ``reach``;
    - kernel weights: ``weight_rate``, ``weigh_first``, ``common_weights``, see ``omkl.methods.GossipedWeights``;
    - mixing: ``gamma``, ``momentum``, ``clip``, see ``omkl.methods.Mixing``;
    - messages: ``quantizer``, ``pace``, ``sending``, see ``omkl.methods.Channel``.

    Or give whole parts: ``Gossip(gamma=0.5)`` is ``Gossip(mixing=Mixing(gamma=0.5))``.

    Attributes
    ----------
    weights
        How models are weighed, and whether all nodes have the same weights (``common_weights``); see
        ``GossipedWeights``.
    reach
        Let a learning step count for all nodes whose samples have come here by gossip. ``Reach(most=11)`` counts up to
        eleven of them; None, the paper's, counts one. For the learner ``Pooled``.
    mixing
        How nodes move towards their neighbors: ``gamma``, ``momentum``, ``clip``; see ``Mixing``.
    channel
        What is sent: ``quantizer``, ``pace``, ``sending``; see ``Channel``.
    """

    name: ClassVar[str] = "gossip"

    weights: GossipedWeights = GossipedWeights()  # noqa: RUF009 - parts are frozen
    reach: Reach | None = None
    mixing: Mixing = Mixing()  # noqa: RUF009
    channel: Channel = Channel()  # noqa: RUF009

    def _routed(self, made: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
        """Return the parts, with a mixing rule of that name."""
        if isinstance(name := made["mixing"], str):
            made["mixing"] = pick("mixing", name, MIXING)()
        return super()._routed(made, given)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.reach, Reach | None):
            raise InputError(
                f"reach is {self.reach!r}; it says what steps count for; pass omkl.Reach(most=11), or None"
            )
        self.channel.quantizer.check(self.sent)

    @cached_property
    def samples_by_round(self) -> clipping.Lists:
        """How many samples a node remembers, and how many it has learned for, by the number of rounds."""
        return clipping.samples_by_round(self)

    @cached_property
    def schedule(self) -> Schedule | None:
        """How many rounds of gossip there are for each sample; None is one."""
        return self.channel.schedule(self.members, self.sent)

    @property
    def dithered(self) -> bool:
        """Whether the quantizer needs uniforms."""
        return self.channel.quantizer.dithered

    def on(self, *topologies: Topology) -> Self:
        """Return the method with ``gamma="auto"`` and ``reach`` worked out for these networks; several take turns."""
        mixing = self.mixing
        if mixing.gamma == "auto":
            followed = seldom(tracking(self.channel.quantizer, self.sent), self.channel.least_share(self.members))
            mixing = mixing.on(topologies, followed)
        reach = self.reach if self.reach is None or self.reach.knots else self.reach.on(topologies, mixing.pull)
        return self if (mixing, reach) == (self.mixing, self.reach) else self.replace(mixing=mixing, reach=reach)

    def init(self, xp: Any, leading: tuple[int, ...], outputs: int, spectrum: Array | None = None) -> State:
        """Return zero models, zero hidden states and equal weights."""
        theta = self.bank.zeros(xp, leading, outputs)
        state = State(theta, theta, self.equal_weights(theta), self.learner.init(theta, spectrum))
        hidden = xp.zeros_like(self.pack(state))
        moved = () if self.channel.sending is None else xp.zeros(theta.shape[:-2], dtype=theta.dtype)
        hearing = () if self.reach is None else self.reach.start(hidden)
        return state._replace(hidden=hidden, velocity=self.mixing.start(hidden), moved=moved, hearing=hearing)

    @property
    def sent(self) -> int:
        """How many numbers are sent for each model and output: its coefficients, and its weight if that is common."""
        return self.bank.width + (self.views + self.told if self.weights.common else 0)

    @property
    def told(self) -> int:
        """How many more numbers the learner sends for each model."""
        return 1 if self.weights.common and hasattr(self.learner, "told") else 0

    @property
    def loss_gap_cap(self) -> float | None:
        """One, if weights are common and the loss has no bound on its slope; else None.

        A weight is quantized in one row with its model. If single samples made it leap, the row would need a coarse
        step.
        """
        return 1.0 if self.weights.common and not self.has_bounded_slope else None

    def step(self, state: State, inputs: Round, network: Network) -> tuple[State, Info]:
        """Return the network after one round of Algorithm 1."""
        state, message = self.gossip(state, inputs.uniforms, network, inputs.round)
        state, info = self.learn(state, inputs)
        return state, info._replace(message_bytes=message_bytes(message, self.channel.quantizer))

    def gossip(
        self, state: State, uniforms: Array | None, network: Network, round_: Array | int
    ) -> tuple[State, Message]:
        """Return the network after mixing, emitting and absorbing (lines 8, 9 and 12), and the messages."""
        before, radius = self.pack(state), clipping.radius(self, state, round_)
        worth, share = None, None
        if self.channel.sending is not None:
            worth = self.worth(state.log_weights)
            share = self.channel.sending.share(worth)
        own, velocity = self.mixing.mix(before, state.velocity, state.hidden, network, round_, radius, share)
        message = self.channel.emit(own, state.hidden, uniforms, worth, state.moved, round_)
        hidden = algorithm.absorb(state.hidden, message)
        hearing = state.hearing
        if self.reach is not None and isinstance(hearing, Hearing):
            pull = (own - self.mixing.carried(before, state.velocity)) / self.mixing.step_in(round_)
            hearing = self.reach.hear(hearing, network.heard())
            hearing = self.reach.listen(hearing, pull, hidden - state.hidden, network.weight(own.shape[0]))
        return self.unpack(own, state)._replace(hidden=hidden, velocity=velocity, hearing=hearing), message

    def learn(self, state: State, inputs: Round) -> tuple[State, Info]:
        """Return the network after predicting, weighing and learning a sample (lines 3 to 6 and 14)."""
        if self.reach is not None and isinstance(heard := state.hearing, Hearing):
            inputs = inputs._replace(reach=self.reach.alpha(heard), alike=self.reach.alike(heard))
        theta, log_weights, memory, info = self.observe(state.theta, state.log_weights, state.memory, inputs)
        moved = () if self.channel.sending is None else follow(state.moved, theta - state.theta)
        return state._replace(theta=theta, log_weights=log_weights, memory=memory, moved=moved), info

    def worth(self, log_weights: Array) -> Array:
        """Return the weight of every model, ``(J, ..., P)``: the sum over its readings."""
        weights = algorithm.normalize(log_weights)
        if self.views == 1:
            return weights
        xp = namespace(weights)
        return xp.sum(xp.reshape(weights, (*weights.shape[:-1], self.members, self.views)), axis=-1)

    def pack(self, state: State) -> Array:
        """Return what a node gossips: its models, and if weights are common, these and the learner's numbers."""
        if not self.weights.common:
            return state.theta
        told = self.learner.told(state.memory) if self.told else None  # type: ignore[attr-defined]
        return algorithm.append_weights(state.theta, state.log_weights, told)

    def unpack(self, own: Array, state: State) -> State:
        """Return the state after mixing; where each node has its own weights, these stay."""
        if not self.weights.common:
            return state._replace(theta=own)
        theta, log_weights, told = algorithm.split_weights(own, self.views, self.told)
        memory = self.learner.hear(state.memory, told) if self.told else state.memory  # type: ignore[attr-defined]
        return state._replace(theta=theta, log_weights=log_weights, memory=memory)
