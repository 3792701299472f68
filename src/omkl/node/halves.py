"""The two halves of a node's round, over arrays or as compiled loops: what a node says fits what its neighbors hear.

A message is whole levels times steps of nine bits, so that all who absorb it come to the same hidden state to the last
bit, whatever they run.
"""

import logging
import math
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from omkl import algorithm, features, noise, wire
from omkl.algorithm import State
from omkl.features import Features
from omkl.methods import Gossip, Round
from omkl.quantizers import Message

Floats = npt.NDArray[np.float32]

AHEAD = 64  # rounds of dither drawn at once: a call costs as much for one as for many

logger = logging.getLogger(__name__)


class Halves(Protocol):
    """The two halves of a round, and what a node carries from one to the next."""

    state: State

    @property
    def hidden(self) -> Floats:
        """The hidden state as it is until the next round."""

    def gossip(self, copies: Floats, weights: Floats, round_: int, heard: float) -> tuple[Message, bool]:
        """Return the message of a round after mixing, emitting and absorbing (lines 8, 9 and 12).

        It is good until the next round. And whether models and hidden state are finite, as they are unless a step was
        too large.
        """

    def learn(self, x: Floats, y: Floats) -> tuple[Floats, float, bool]:
        """Return the output and its loss from before a sample is learned (lines 3 to 6 and 14).

        And whether the models are finite, and no weight is not a number.
        """

    def features(self, x: Floats) -> Floats:
        """Return z(x) of one input, ``(P, n)``."""

    def predict(self, x: Floats) -> Floats:
        """Return the outputs ``(..., C)`` for inputs ``(..., d)``; any thread may ask."""


class Heard(NamedTuple):
    """The network as one node hears it."""

    copies: Floats
    """Of its neighbors' hidden states, ``(K, P, C, n)``."""
    weights: Floats
    share: float = 1.0
    """Of its links, by weight, that it hears."""

    def mix(self, theta: Floats, hidden: Floats, gamma: float, radius: Floats | float | None = None) -> Floats:
        """Return ``algorithm.mix`` of the copies, ``algorithm.clipped`` to a radius where one is given."""
        copies = algorithm.clipped(hidden, self.copies, radius)
        return np.asarray(algorithm.mix(theta, hidden, copies, self.weights, gamma))

    def degrees(self, nodes: int) -> int:
        """Return how many neighbors it has."""
        return int(np.count_nonzero(self.weights))

    def heard(self) -> float:
        """Return the share."""
        return self.share

    def weight(self, nodes: int) -> Floats:
        """Return what the weights of the links that it hears add up to."""
        return np.asarray(self.weights.sum())


class Arrays:
    """The halves of any method, as ``omkl.methods`` states them."""

    def __init__(self, method: Gossip, made: Features, key: noise.Key, state: State) -> None:
        self.state = state
        self._method, self._made, self._key = method, made, key
        self._drawn: tuple[int, Floats | None] = (-1, None)

    @property
    def hidden(self) -> Floats:
        """The hidden state."""
        return np.asarray(self.state.hidden)

    def gossip(self, copies: Floats, weights: Floats, round_: int, heard: float) -> tuple[Message, bool]:
        """Return the message, and whether models and hidden state are finite."""
        network = Heard(copies, weights, heard)
        with quiet():
            self.state, message = self._method.gossip(self.state, self._uniforms(round_), network, round_)
            return message, math.isfinite(_sum(self.state.theta) + _sum(self.state.hidden))

    def learn(self, x: Floats, y: Floats) -> tuple[Floats, float, bool]:
        """Return the output and its loss, and whether models and weights are sound."""
        with quiet():
            self.state, info = self._method.learn(self.state, Round(self.features(x), y, None))
            is_sound = math.isfinite(_sum(self.state.theta)) and not math.isnan(_sum(self.state.log_weights))
        return np.asarray(info.output), float(info.loss), is_sound

    def features(self, x: Floats) -> Floats:
        """Return z(x) of one input: np.dot is the tensordot of ``transform`` at a fraction of its cost."""
        made = self._made
        if made.frequencies is None:
            return np.asarray(features.transform(x, made))
        z = features.waves(np.dot(made.frequencies, x))
        return np.asarray(z if made.basis is None else features.project(z, made.basis))

    def predict(self, x: Floats) -> Floats:
        """Return the outputs."""
        state = self.state  # one reading: the node may learn meanwhile
        z = features.transform(x, self._made)
        return np.asarray(
            algorithm.predict(state.theta, state.log_weights, z, self._method.readings(state.memory)).output
        )

    def _uniforms(self, round_: int) -> Floats | None:
        if not self._method.dithered:
            return None
        block, place = divmod(round_, AHEAD)
        if self._drawn[0] != block:
            ahead = np.arange(block * AHEAD, (block + 1) * AHEAD, dtype=np.uint32)[:, None]
            self._drawn = block, noise.dither(noise.fold(self._key, ahead), self.state.hidden.shape)
        drawn = self._drawn[1]
        assert drawn is not None
        return np.asarray(drawn[place])


def halves(method: Gossip, made: Features, key: noise.Key, state: State, compiled: bool = True) -> Halves:
    """Return compiled halves where Numba is installed and the loops know the method, else those over arrays."""
    if not compiled:
        return Arrays(method, made, key, state)
    try:
        from omkl.compiled import node, plan
    except ImportError:  # without the extra "fast"
        return Arrays(method, made, key, state)
    if (part := plan.unknown_part(method)) is not None:
        logger.info("rounds take longer, over arrays: there is no compiled text of %s", part)
        return Arrays(method, made, key, state)
    return node.Loops(method, made, key, state)


def codec(shape: tuple[int, int, int], method: Gossip, compiled: bool = True) -> wire.Codec:
    """Return the codec of a method's messages, compiled where Numba is installed; the bytes are the same."""
    quantizer = method.channel.quantizer
    try:
        from omkl.compiled import coder
    except ImportError:  # without the extra "fast"
        return wire.Codec(shape, quantizer)
    return wire.Codec(shape, quantizer, coder.CompiledLevels if compiled else None)


def quiet() -> np.errstate:
    """Return a context in which a model may diverge: that is an event, not a warning."""
    return np.errstate(over="ignore", invalid="ignore")


def total(array: Floats) -> float:
    """Return the sum of all elements: not finite where one is not, or where all together leave float32."""
    with quiet():
        return _sum(array)


def _sum(array: Floats) -> float:
    return float(np.add.reduce(array, axis=None))
