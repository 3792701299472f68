"""The rounds of one node by compiled loops.

A node wakes for a message of fifty bytes with its caches full of other processes' data. A hundred NumPy calls then cost
more than the arithmetic: one loop touches the models and little else.
"""

import threading
from typing import NamedTuple

import numpy as np

from omkl import noise
from omkl.algorithm import State
from omkl.compiled import mixing, plan, quantizers, rounds, states
from omkl.compiled.arithmetic import dither, total
from omkl.compiled.jit import Floats, Small, Whole, Words, brief
from omkl.compiled.lending import borrowed, hold
from omkl.compiled.mapping import Mapping
from omkl.features import Features
from omkl.methods import Gossip, clipping
from omkl.quantizers import Exact, Message


class Held(NamedTuple):
    """The numbers of a method, what a node carries, and scratch."""

    s: rounds.Method
    nodes: rounds.Nodes
    k: rounds.Room


@brief
def gossip(
    held: Held, hidden: Floats, others: Floats, ids: Whole, weights: Floats, radius: float, share: float, key: Words,
    round_: int, fresh: Floats, levels: Small,
) -> bool:  # fmt: skip
    """Take the node through a round of gossip; return whether models and hidden state are finite.

    Levels are whole numbers, but for those of ``Exact``, which stay in the scratch.
    """
    held = borrowed(held)
    s, nodes, k = held.s, held.nodes, held.k
    if s.quantizer == quantizers.QSGD:
        dither(key, round_, k.uniforms)
    clip, heard = np.float32(radius), np.float32(share)
    rounds.gossip(s, nodes, 0, hidden, others, ids, weights, clip, heard, k.uniforms, fresh, k)
    if s.quantizer != quantizers.EXACT:
        for i in range(len(levels)):
            levels[i] = np.int16(k.levels[i])
    return mixing.is_finite(nodes.own[0]) and mixing.is_finite(fresh)


@brief
def learn(held: Held, z: Floats, y: Floats) -> tuple[np.float32, bool]:
    """Take the node through a sample; return the loss, and whether models and weights are sound."""
    held = borrowed(held)
    s, nodes, k = held.s, held.nodes, held.k
    loss = rounds.observe(s, nodes, 0, z, y, k)
    return loss, mixing.is_finite(nodes.own[0]) and not np.isnan(total(nodes.log_weights[0]))


@brief
def predict(held: Held, z: Floats) -> None:
    """Write the outputs for features ``(P, n)`` to the scratch."""
    held = borrowed(held)
    rounds.predict(held.s, held.nodes, 0, z, held.k)


class Loops:
    """The two halves of a node's round, of a method that the loops know.

    What the node carries keeps the layout of the loops from round to round. Other threads may look at it, one at a
    time and between rounds, and are given copies.
    """

    def __init__(self, method: Gossip, made: Features, key: noise.Key, state: State) -> None:
        self._method = method
        self._numbers = plan.numbers(method, state.theta.shape[-2], made.spectrum)
        self._mapping, self._room = Mapping(made), rounds.room(self._numbers)
        self._key, self._lock = np.concatenate(key), threading.Lock()
        *rows, length = self._shape = state.hidden.shape
        self._levels, self._ids = np.empty(state.hidden.size, np.int16), np.arange(0)
        said = self._room.levels if isinstance(method.channel.quantizer, Exact) else self._levels
        steps = self._room.steps.reshape(*rows, length // self._numbers.block)
        self._message = Message(said.reshape(self._shape), steps)
        self.state = state
        self._compile(state)

    def _compile(self, state: State) -> None:
        """Compile, or load what was compiled: neighbors would not wait for it in the first round."""
        x, copies = np.zeros(self._mapping.inputs, np.float32), np.zeros((1, *self._shape), np.float32)
        self.gossip(copies, np.zeros(1, np.float32), 0, 1.0)
        self.learn(x, np.zeros(self._shape[1], np.float32))
        self.predict(x)
        self.state = state

    @property
    def state(self) -> State:
        """A copy of what the node carries."""
        with self._lock:
            return states.scattered(self._nodes, self._hidden[None], self._like, self._numbers)

    @state.setter
    def state(self, state: State) -> None:
        with self._lock:
            self._nodes, (self._hidden,) = states.gathered(state, self._numbers)
            self._fresh, self._like = np.empty_like(self._hidden), state
            self._held = hold(Held(self._numbers, self._nodes, self._room))

    @property
    def hidden(self) -> Floats:
        """The hidden state as it is until the next round, not a copy."""
        return self._hidden.reshape(self._shape)

    def gossip(self, copies: Floats, weights: Floats, round_: int, heard: float) -> tuple[Message, bool]:
        """Return the message after mixing, emitting and absorbing, and if models and hidden state are finite.

        The message is good until the next round.
        """
        if len(self._ids) != len(copies):
            self._ids = np.arange(len(copies))
        others, radius = copies.reshape(len(copies), self._levels.size), 0.0
        if self._method.mixing.clip is not None:
            radius = float(clipping.radius(self._method, self._like, round_) or 0)
        with self._lock:
            hidden, fresh = self._hidden, self._fresh
            network = others, self._ids, weights, radius, heard
            is_finite = gossip(self._held, hidden, *network, self._key, round_, fresh, self._levels)
            self._hidden, self._fresh = fresh, hidden
        return self._message, is_finite

    def learn(self, x: Floats, y: Floats) -> tuple[Floats, float, bool]:
        """Return the output and its loss, from before the sample is learned, and if models and weights are sound."""
        z, y = self.features(x), np.array(y, np.float32)
        with self._lock:
            loss, is_sound = learn(self._held, z, y)
            return self._room.output.copy(), float(loss), is_sound

    def features(self, x: Floats) -> Floats:
        """Return z(x) of one input, ``(P, n)``."""
        return self._mapping.one(np.array(x, np.float32))  # arrays of one kind: for each, loops are compiled anew

    def predict(self, x: Floats) -> Floats:
        """Return the outputs ``(..., C)`` for inputs ``(..., d)``."""
        every = [self._predict(self.features(row)) for row in x.reshape(-1, x.shape[-1])]
        return np.array(every).reshape(*x.shape[:-1], -1)

    def _predict(self, z: Floats) -> Floats:
        with self._lock:
            predict(self._held, z)
            return self._room.output.copy()
