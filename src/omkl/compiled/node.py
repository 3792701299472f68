"""The rounds of one node by compiled loops.

A node wakes for a message of fifty bytes with its caches full of other processes' data. A hundred NumPy calls then cost
more than the arithmetic: one loop touches the models and little else.
"""

import threading

import numpy as np

from omkl import noise
from omkl.algorithm import State
from omkl.compiled import plan, rounds, states
from omkl.compiled.jit import Floats
from omkl.compiled.mapping import Mapping
from omkl.features import Features
from omkl.methods import Gossip, clipping
from omkl.quantizers import Exact, Message


class Loops:
    """The two halves of a node's round, of a method that the loops know.

    What the node carries keeps the layout of the loops from round to round. Other threads may look at it, one at a
    time and between rounds, and are given copies.
    """

    def __init__(self, method: Gossip, made: Features, key: noise.Key, state: State) -> None:
        self._method, self._like = method, state
        self._numbers = plan.numbers(method, state.theta.shape[-2], made.spectrum)
        self._mapping, self._room = Mapping(made), rounds.room(self._numbers)
        self._key = np.concatenate(key)
        self._levels = np.empty(state.hidden.size, np.int16)
        self._said = self._room.levels if isinstance(method.channel.quantizer, Exact) else self._levels
        *rows, length = state.hidden.shape
        self._shapes = state.hidden.shape, (*rows, length // self._numbers.block)
        self._lock = threading.Lock()
        self._compile()

    def _compile(self) -> None:
        """Compile, or load what was compiled: neighbors would not wait for it in the first round."""
        state, shape = self._like, self._like.theta.shape
        self.state = state
        self.gossip(np.zeros((1, *state.hidden.shape), np.float32), np.zeros(1, np.float32), 0, 1.0)
        self.learn(np.zeros(self._mapping.inputs, np.float32), np.zeros(shape[-2], np.float32))
        self.predict(np.zeros(self._mapping.inputs, np.float32))
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

    @property
    def hidden(self) -> Floats:
        """The hidden state as it is until the next round, not a copy."""
        return self._hidden.reshape(self._shapes[0])

    def gossip(self, copies: Floats, weights: Floats, round_: int, heard: float) -> tuple[Message, bool]:
        """Return the message after mixing, emitting and absorbing, and if models and hidden state are finite."""
        radius = clipping.radius(self._method, self._like, round_)
        others = np.ascontiguousarray(copies).reshape(len(copies), self._levels.size)
        heard_by = others, np.arange(len(copies)), weights, np.float32(radius or 0), np.float32(heard)
        given = *heard_by, self._key, round_
        with self._lock:
            scratch = self._fresh, self._levels, self._room
            is_finite = rounds.gossip_one(self._numbers, self._nodes, self._hidden, *given, *scratch)
            self._hidden, self._fresh = self._fresh, self._hidden
            levels, steps = self._said.copy(), self._room.steps.copy()
        return Message(levels.reshape(self._shapes[0]), steps.reshape(self._shapes[1])), is_finite

    def learn(self, x: Floats, y: Floats) -> tuple[Floats, float, bool]:
        """Return the output and its loss, from before the sample is learned, and if models and weights are sound."""
        z, y = self._mapping.one(np.array(x, np.float32)), np.array(y, np.float32)  # arrays of one kind: compiled once
        with self._lock:
            loss, is_sound = rounds.learn_one(self._numbers, self._nodes, z, y, self._room)
            return self._room.output.copy(), float(loss), is_sound

    def predict(self, x: Floats) -> Floats:
        """Return the outputs ``(..., C)`` for inputs ``(..., d)``."""
        every = [self._predict(self._mapping.one(row)) for row in np.array(x, np.float32).reshape(-1, x.shape[-1])]
        return np.array(every).reshape(*x.shape[:-1], -1)

    def _predict(self, z: Floats) -> Floats:
        with self._lock:
            rounds.predict_one(self._numbers, self._nodes, z, self._room)
            return self._room.output.copy()
