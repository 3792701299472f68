"""Gossiped and quantized online multi-kernel learning: the letter's method."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from omkl import algorithm, sending
from omkl.algorithm import State, Velocity
from omkl.arrays import Array, namespace
from omkl.errors import InputError, real
from omkl.learners import Pooled
from omkl.methods.ensemble import Quantized
from omkl.methods.protocol import Info, Network, Round
from omkl.methods.steps import seldom, stable_step, tracking
from omkl.quantizers import Message
from omkl.reach import Reach, between_knots
from omkl.sending import Budget, Pace, Schedule, Sending, follow
from omkl.topology import Topology


@dataclass(frozen=True, kw_only=True)
class Gossip(Quantized):
    """Algorithm 1: mix with the neighbors' hidden states, send a quantized difference, then learn.

    What is not given is the letter's; ``omkl.recommended()`` is what learns most, and the default of ``simulate``.

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
        own, kernel by kernel. None, the letter's, trusts every neighbor; where not all are to be trusted 0.1 suits
        ``omkl.recommended()``, 0.3 the letter's steps, and more nodes that see different data.
    pace
        How many rounds of gossip go with a sample: so many bytes' worth, ``Budget(48)``, or so many, ``Pace(8)``; None
        is the letter's one.
    sending
        Which kernels are in a message: ``Sampled()`` or ``Triggered()``; None, the letter's, sends all.
    common_weights
        Gossip the log weights of the kernels too, one more number in each kernel's message, and what else the learner
        has to tell: else, as in the letter, each node prefers the kernel that suits its own samples, which misleads
        where nodes see different data.
    reach
        Let steps count for all who are heard, as ``Reach(most=11)``; None, the letter's, lets each count for one. For
        the learner ``Pooled``.

    Notes
    -----
    ``radius`` is clip * eta / sqrt(gamma), a distance that every node knows and no neighbor can change. Under a loss of
    slope 1 at most, such as the logistic, eta is the farthest that a sample moves a model. Neighbors whose samples all
    did so would stand about eta / sqrt(gamma) apart: each adds eta^2 to their squared distance in a round, and mixing
    removes a share of order gamma. Honest neighbors on one task stand at about half of that, for small steps and for
    large ones. A neighbor that lies moves a node in a round by clip * w_ij * sqrt(gamma) of what a sample may, at most.
    With momentum a pull goes on for 1 / (1 - momentum) rounds, and gamma / (1 - momentum) stands in the place of gamma.
    Under the squared loss bring the targets to a deviation near 1, as for eta itself. ``Pooled`` has no eta: in its
    place is the length of the step that a sample makes in that round, at a slope of 1, where no link has failed.
    """

    name: ClassVar[str] = "gossip"

    gamma: float | Literal["auto"] = 0.009
    momentum: float = 0.0
    clip: float | None = None
    common_weights: bool = False
    pace: Budget | Pace | None = None
    sending: Sending | str | None = None
    reach: Reach | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma != "auto":
            object.__setattr__(self, "gamma", real("gamma", self.gamma))
            if not 0 < self.consensus_step <= 1:
                raise InputError(
                    f"gamma is {self.gamma}; the consensus step must lie in (0, 1], or be 'auto'; the letter uses 0.009"
                )
        sending.named(self.sending)
        if not isinstance(self.pace, Budget | Pace | None):
            raise InputError(f"pace is {self.pace!r}; it says how much gossip goes with a sample; pass omkl.Budget(48)")
        if not isinstance(self.reach, Reach | None):
            raise InputError(
                f"reach is {self.reach!r}; it says what steps count for; pass omkl.Reach(most=11), or None"
            )
        object.__setattr__(self, "momentum", real("momentum", self.momentum))
        if not 0 <= self.momentum < 1:
            raise InputError(f"momentum is {self.momentum}; it must lie in [0, 1); zero is the letter's, else try 0.5")
        if self.clip is not None:
            object.__setattr__(self, "clip", real("clip", self.clip))
            if not 0 < self.clip <= math.inf:
                raise InputError(f"clip is {self.clip}; it must be positive; None trusts every neighbor, else try 0.1")

    def radius(self, state: State, round_: Array | int) -> Array | float | None:
        """Return how far a neighbor's state counts as at most in a round; None where it is not bounded.

        A number, or one for every seed. It depends on what both ends of a link have in common in lock step, settings,
        features and the number of the round, and on nothing that a node has seen: else mixing would move the mean of
        the models. By the clock, where each node counts its own rounds, the two ends may differ a little.
        """
        if self.clip is None:
            return None
        unit = self.clip / math.sqrt(self.consensus_step / (1 - self.momentum))
        if not isinstance(self.rule, Pooled):
            return unit * float(getattr(self.rule, "eta", self.eta))
        spectrum = state.memory.spectrum
        if state.theta.ndim > 3:
            spectrum = spectrum[0]  # all nodes have the same
        rounds = namespace(spectrum).asarray(round_, dtype=spectrum.dtype) + 1
        alpha = 1.0 if self.reach is None else self.reach.grown(rounds)
        own, count = (between_knots(values, rounds) for values in self._samples_by_round)
        return unit * self.rule.stride(spectrum, own, count, alpha, self.objective)

    @cached_property
    def _samples_by_round(self) -> tuple[list[float], list[float]]:
        """How many samples a node remembers, and for how many it has learned, after 1, 2^(1/2), 2, ... rounds.

        Where no link has failed, and in lock step there was a sample whenever one was due.
        """
        forget = float(getattr(self.rule, "forget", 1.0))
        before, own, count = 0.0, [0.0], [0.0]
        for rounds in 2 ** (np.arange(61) / 2):
            samples = float(rounds if self.schedule is None else self.schedule.learned(int(rounds)))
            alpha = 1.0 if self.reach is None else float(self.reach.grown(np.asarray(rounds, dtype=np.float32)))
            kept = forget ** (samples - before)
            fresh = samples - before if forget == 1 else (1 - kept) / (1 - forget)
            own.append(kept * own[-1] + fresh)
            count.append(kept * count[-1] + alpha * fresh)
            before = samples
        return own[1:], count[1:]

    @cached_property
    def schedule(self) -> Schedule | None:
        """How many rounds of gossip go with a sample; None is one with each."""
        return self.pace.schedule(self.members, self.sent) if isinstance(self.pace, Budget) else self.pace

    @property
    def consensus_step(self) -> float:
        """gamma, a number."""
        if self.gamma == "auto":
            raise InputError("gamma is 'auto' on no network; it follows from one; call method.on(topology) first")
        return self.gamma

    def on(self, *topologies: Topology) -> Self:
        """Return the method with numbers for these networks, which may take turns."""
        method = self
        if self.gamma == "auto":
            followed = seldom(tracking(self.channel, self.sent), self.least_share)
            steps = (stable_step(topology, followed, self.momentum) for topology in topologies)
            method = replace(self, gamma=min(steps))
        if self.reach is None or self.reach.knots:
            return method
        pull = method.consensus_step / (1 - self.momentum)
        return replace(method, reach=self.reach.on(topologies, pull))

    def check(self, topology: Topology) -> None:
        """Accept any network."""

    def init(self, xp: Any, leading: tuple[int, ...], outputs: int, spectrum: Array | None = None) -> State:
        """Return zero models, zero hidden states and equal weights."""
        state = algorithm.init(self.zeros(xp, leading, outputs), self.rule, spectrum, self.momentum)
        state = state._replace(log_weights=self.equal_weights(state.theta))
        hidden = xp.zeros_like(self.spoken(state))
        moved = () if self.choice is None else xp.zeros(state.theta.shape[:-2], dtype=state.theta.dtype)
        hearing = () if self.reach is None else self.reach.start(hidden)
        rest = algorithm.at_rest(hidden, self.momentum)
        return state._replace(hidden=hidden, velocity=rest, moved=moved, hearing=hearing)

    @property
    def sent(self) -> int:
        """The numbers that are sent of a model, its weight among them where weights are common."""
        return self.width + (self.views + self.told if self.common_weights else 0)

    @property
    def told(self) -> int:
        """The numbers that the learner tells besides, of a model."""
        return 1 if self.common_weights and hasattr(self.rule, "told") else 0

    @property
    def most_apart(self) -> float | None:
        """One, where weights are common and the loss has no bound on its slope.

        A weight is sent in one row with its model: where single samples make it leap, a coarse step serves both.
        """
        return 1.0 if self.common_weights and not self.has_bounded_slope else None

    @property
    def choice(self) -> Sending | None:
        """Which kernels are sent; None sends all."""
        return sending.named(self.sending)

    @property
    def least_share(self) -> float:
        """In what share of the rounds a kernel is sent that does not count."""
        return 1.0 if self.choice is None else float(self.choice.share(np.eye(self.members)[0]).min())

    def step(self, state: State, inputs: Round, network: Network) -> tuple[State, Info]:
        """Return the network after one round of Algorithm 1."""
        state, message = self.gossip(state, inputs.uniforms, network, inputs.round)
        state, info = self.learn(state, inputs)
        return state, self.charge(info, message)

    def gossip(
        self, state: State, uniforms: Array | None, network: Network, round_: Array | int
    ) -> tuple[State, Message]:
        """Return the network after mixing, emitting and absorbing (lines 8, 9 and 12), and the messages."""
        own, velocity = self.mix(state, state.hidden, network, round_)
        message = self.emit(own, state, uniforms, round_)
        before, hidden = state.hidden, algorithm.absorb(state.hidden, message)
        start = self.spoken(state) + (self.momentum * state.velocity if self.momentum else 0)
        state = self.heard(own, state)._replace(hidden=hidden, velocity=velocity)
        if self.reach is not None:
            hearing = self.reach.hear(state.hearing, network.heard())
            pull = (own - start) / self.consensus_step
            hearing = self.reach.listen(hearing, pull, hidden - before, network.weight(len(own)))
            state = state._replace(hearing=hearing)
        return state, message

    def learn(self, state: State, inputs: Round) -> tuple[State, Info]:
        """Return the network after predicting, weighing and learning a sample (lines 3 to 6 and 14)."""
        if self.reach is not None:
            hearing = state.hearing
            inputs = inputs._replace(reach=self.reach.alpha(hearing), alike=self.reach.alike(hearing))
        theta, log_weights, memory, info = self.observe(state.theta, state.log_weights, state.memory, inputs)
        moved = () if self.choice is None else follow(state.moved, theta - state.theta)
        return state._replace(theta=theta, log_weights=log_weights, memory=memory, moved=moved), info

    def mix(self, state: State, hidden: Array, network: Network, round_: Array | int) -> tuple[Array, Velocity]:
        """Return what every node has after mixing with these hidden states, and the velocity."""
        gamma, radius, choice = self.consensus_step, self.radius(state, round_), self.choice

        def pulled(start: Array) -> Array:
            mixed = network.mix(start, hidden, gamma, radius)
            if choice is None:
                return mixed
            share = choice.share(self.worth(state.log_weights))
            return start + share[..., None, None] * (mixed - start)

        own = self.spoken(state)
        return algorithm.carry(own, state.velocity, self.momentum, pulled)

    def emit(self, own: Array, state: State, uniforms: Array | None, round_: Array | int) -> Message:
        """Return the messages, of the kernels that are sent in this round."""
        sent, choice = None, self.choice
        if choice is not None:
            weights = self.worth(state.log_weights)
            sent = choice.sends(own - state.hidden, weights, state.moved, round_)
        return algorithm.emit(own, state.hidden, self.channel, uniforms, sent)

    def worth(self, log_weights: Array) -> Array:
        """Return the weight of every model, ``(J, ..., P)``: that of all its readings."""
        weights = algorithm.normalize(log_weights)
        if self.views == 1:
            return weights
        xp = namespace(weights)
        return xp.sum(xp.reshape(weights, (*weights.shape[:-1], self.members, self.views)), axis=-1)

    def spoken(self, state: State) -> Array:
        """Return what a node gossips: its models, with weights and what the learner tells where those are common."""
        if not self.common_weights:
            return state.theta
        told = self.rule.told(state.memory) if self.told else None  # type: ignore[attr-defined]
        return algorithm.join(state.theta, state.log_weights, told)

    def heard(self, own: Array, state: State) -> State:
        """Return the state with what was mixed; with its own weights where each node has its own."""
        if not self.common_weights:
            return state._replace(theta=own)
        theta, log_weights, told = algorithm.part(own, self.views, self.told)
        memory = self.rule.hear(state.memory, told) if self.told else state.memory  # type: ignore[attr-defined]
        return state._replace(theta=theta, log_weights=log_weights, memory=memory)

    def models(self, state: State) -> tuple[Array, Array]:
        """Return every node's models and log weights."""
        return self.read(state.theta, state.memory), state.log_weights
