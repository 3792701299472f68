"""Algorithm 1 at one node, in NumPy."""

import math
import reprlib
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from omkl import algorithm, features, noise, scaling
from omkl.algorithm import State
from omkl.errors import InputError
from omkl.features import Features
from omkl.losses import Loss
from omkl.methods import Gossip, Round
from omkl.model import Model, model_of
from omkl.quantizers import Message
from omkl.scaling import Inputs, Moments

Floats = npt.NDArray[np.float32]

AHEAD = 64  # rounds of dither drawn at once: a call costs as much for one as for many


def outputs(loss: Loss) -> int:
    """Return C, the outputs that a loss takes; a node has no labels yet to infer it from."""
    count: int | None = getattr(loss, "outputs", getattr(loss, "classes", 1))
    if count is None:
        raise InputError(f"loss is {loss}; nodes must agree on the number of classes; set classes, as in classes=10")
    return count


class Halves(Protocol):
    """The two halves of a round."""

    def gossip(
        self, state: State, copies: Floats, weights: Floats, uniforms: Floats | None, round_: int, heard: float = 1.0
    ) -> tuple[State, Message, bool]:
        """Return the state and the message after mixing, emitting and absorbing (lines 8, 9 and 12).

        And whether models and hidden state are finite, as they are unless a step was too large.
        """

    def learn(self, state: State, made: Features, x: Floats, y: Floats) -> tuple[State, Floats, float, bool]:
        """Return the state after a sample, and the output and its loss from before it (lines 3 to 6 and 14).

        And whether the models are finite, and no weight is not a number.
        """


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


class Plain:
    """The halves of any method, as ``omkl.methods`` states them."""

    def __init__(self, method: Gossip) -> None:
        self._method = method

    def gossip(
        self, state: State, copies: Floats, weights: Floats, uniforms: Floats | None, round_: int, heard: float = 1.0
    ) -> tuple[State, Message, bool]:
        """Return state and message, and whether they are finite."""
        with quiet():
            state, message = self._method.gossip(state, uniforms, Heard(copies, weights, heard), round_)
        return state, message, math.isfinite(total(state.theta) + total(state.hidden))

    def learn(self, state: State, made: Features, x: Floats, y: Floats) -> tuple[State, Floats, float, bool]:
        """Return the state, the output and its loss, and whether the state is sound."""
        with quiet():
            if made.frequencies is None:
                sample = Round(features.transform(x, made), y, None)
            else:
                # For one input np.dot is transform's tensordot, at a fraction of its cost.
                z = features.waves(np.dot(made.frequencies, x))
                sample = Round(z if made.basis is None else features.project(z, made.basis), y, None)
            state, info = self._method.learn(state, sample)
        is_sound = math.isfinite(total(state.theta)) and not math.isnan(total(state.log_weights))
        return state, np.asarray(info.output), float(info.loss), is_sound


def quiet() -> np.errstate:
    """Return a context in which a model may diverge: that is an event, not a warning."""
    return np.errstate(over="ignore", invalid="ignore")


def halves(method: Gossip, shape: tuple[int, int, int]) -> Halves:
    """Return the compiled halves of a method where there are such and Numba is installed, the plain ones otherwise."""
    try:
        from omkl.node import compiled
    except ImportError:
        return Plain(method)
    return compiled.Compiled(method, shape) if compiled.knows(method) else Plain(method)


class Learning:
    """The models of one node, and the two halves of its round.

    Attributes
    ----------
    state
        Models, hidden state, kernel weights, the learner's memory and the velocity of mixing.
    round
        Rounds of gossip taken; a hidden state begins with zeros at round 0.
    moments
        Of the inputs of its stream, where they are standardized; else empty.
    is_sound
        Whether what the last half of a round made is finite, as it is unless a step was too large.
    """

    def __init__(
        self,
        method: Gossip,
        inputs: int,
        seed: int,
        index: int,
        sample: Inputs | None = None,
        standardize: bool = False,
        links: float | None = None,
        targets: Floats | None = None,
    ) -> None:
        self.method = method
        self.features = method.bank.draw(inputs, seed, sample, standardize, targets)
        self.moments: Moments | tuple[()] = scaling.start(inputs) if standardize else ()
        self.state: State = method.init(np, (), outputs(method.objective), self.features.spectrum)
        self.round = 0
        self.is_sound = True
        self._links = links
        self._halves = halves(method, self.shape)
        self._dithered = method.dithered
        self._key = noise.fold(noise.key(seed, "quantizer"), index)
        self._drawn: tuple[int, Floats | None] = (-1, None)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(P, C, n) of a hidden state: n is 2D, or r in a basis, and one more where kernel weights are common."""
        kernels, outputs, length = self.state.hidden.shape
        return kernels, outputs, length

    def gossip(self, copies: Floats, weights: Floats) -> Message:
        """Return the message of the next round: mix, emit and absorb it here (lines 8, 9 and 12)."""
        given = self.state, copies, weights, self._uniforms(), self.round, self._heard(weights)
        self.state, message, self.is_sound = self._halves.gossip(*given)
        self.round += 1
        return message

    def _heard(self, weights: Floats) -> float:
        """Return the share of its links that a node hears; one without links hears nobody."""
        if self._links is None:
            return 1.0
        return min(1.0, float(weights.sum()) / self._links) if self._links > 0 else 0.0

    def learn(self, x: Inputs, y: Floats) -> tuple[Floats, float]:
        """Return the output and its loss, both from before the sample is learned (lines 3 to 6 and 14)."""
        self.state, output, loss, self.is_sound = self._halves.learn(self.state, self.features, self.scaled(x), y)
        self._count(x)
        return output, loss

    def see(self, x: Inputs) -> Floats:
        """Return the output for a sample without a label, which tells of the inputs all the same."""
        output = self.predict(x)
        self._count(x)
        return output

    def _count(self, x: Inputs) -> None:
        if self.moments:
            self.moments = scaling.update(self.moments, x)

    def scaled(self, x: Inputs) -> Floats:
        """Return inputs ``(..., d)`` as features take them: in units of the samples before, where standardized."""
        moments = self.moments
        return scaling.standardize(x, *moments.units) if moments else np.asarray(x, dtype=np.float32)

    def predict(self, x: Inputs) -> Floats:
        """Return the ensemble's output f, shape ``(..., C)``."""
        state = self.state  # one reading: other threads may predict while this node learns
        z = features.transform(self.scaled(x), self.features)
        readings = self.method.readings(state.memory)
        return np.asarray(algorithm.predict(state.theta, state.log_weights, z, readings).output)

    def model(self) -> Model:
        """Return the ensemble as it is now."""
        state = self.state  # one reading, as above
        units = self.moments.units if self.moments else (None, None)
        theta, log_weights = self.method.models(state)
        return model_of(self.features, theta, log_weights, self.method.objective, *units)

    def is_finite(self) -> bool:
        """Return whether models and hidden state are finite, and no weight is not a number."""
        theta, hidden, log_weights, *_ = self.state
        return math.isfinite(total(theta) + total(hidden)) and not math.isnan(total(log_weights))

    def inputs(self, x: npt.ArrayLike) -> Inputs:
        """Return one sample, as float64 if it is yet to be standardized; refused unless it is d finite float32."""
        dimension = self.features.inputs
        try:
            with np.errstate(over="ignore"):  # what is too large is refused below
                array = np.asarray(x, dtype=np.float32)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"x is {reprlib.repr(x)} ({str(error)[:200]}); an input is {dimension} numbers") from None
        if array.shape != (dimension,):
            raise InputError(f"x has shape {array.shape}; this network takes {dimension} numbers; see inputs")
        if not np.isfinite(array).all():
            raise InputError(
                f"x is {reprlib.repr(array.tolist())}; inputs must be finite; drop the sample or fill it in"
            )
        return np.asarray(x, dtype=np.float64) if self.moments else array

    def targets(self, y: npt.ArrayLike) -> Floats:
        """Return one label as the loss wants it, shape ``(C,)``."""
        rule = "a label is one finite number, or as many as there are outputs; drop the sample"
        try:
            with np.errstate(over="ignore"):
                target = np.asarray(self.method.objective.encode(np.asarray(y)[None])[0])
        except InputError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"y is {reprlib.repr(y)} ({str(error)[:200]}); {rule}") from None
        if target.shape != (self.shape[1],) or not np.isfinite(target).all():
            raise InputError(f"y is {reprlib.repr(y)}; {rule}")
        return target

    def _uniforms(self) -> Floats | None:
        if not self._dithered:
            return None
        block, place = divmod(self.round, AHEAD)
        if self._drawn[0] != block:
            rounds = np.arange(block * AHEAD, (block + 1) * AHEAD, dtype=np.uint32)[:, None]
            self._drawn = block, noise.dither(noise.fold(self._key, rounds), self.shape)
        drawn = self._drawn[1]
        assert drawn is not None
        return np.asarray(drawn[place])


def total(array: Floats) -> float:
    """Return the sum of all elements: not finite where one is not, or where all together leave float32."""
    with quiet():
        return float(np.add.reduce(array, axis=None))
