"""Algorithm 1 at one node: its models, its inputs in their units, and what is asked of them."""

import math
import reprlib
from collections.abc import Callable
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl import noise, scaling
from omkl.algorithm import State
from omkl.errors import InputError
from omkl.features import Features
from omkl.losses import Loss
from omkl.methods import Gossip
from omkl.model import Model, model_of
from omkl.node.halves import Floats, halves, total
from omkl.node.labels import Labels
from omkl.quantizers import Message
from omkl.scaling import Inputs, Moments


def outputs(loss: Loss) -> int:
    """Return C, the outputs that a loss takes; a node has no labels yet to infer it from."""
    count: int | None = getattr(loss, "outputs", getattr(loss, "classes", 1))
    if count is None:
        raise InputError(f"loss is {loss}; nodes must agree on the number of classes; set classes, as in classes=10")
    return count


def largest(features: Features) -> float:
    """Return the size of an entry up to which an input has features: random ones are waves of products in float32."""
    most = float(np.finfo(np.float32).max)
    if features.frequencies is None:  # inputs are brought within limits before they are compared
        return most
    return most / (2 * max(1.0, float(np.abs(features.frequencies).sum(axis=-1, dtype=np.float64).max())))


Mix: TypeAlias = Callable[[Floats, Floats], Message]
Learn: TypeAlias = Callable[[Inputs, Floats], tuple[Floats, float]]
Begin: TypeAlias = Callable[[Floats, int, int | None], None]


class Witness(Protocol):
    """Is there at both halves of every round, before and after: it does them, with what it is given to do them.

    And when a node takes models to begin with.
    """

    def begin(self, half: Begin, models: Floats, round_: int, boot: int | None) -> None:
        """Take models to begin with, its own as of a round and boot, or its neighbors', of no boot."""

    def gossip(self, half: Mix, copies: Floats, weights: Floats) -> Message:
        """Return the message of a round."""

    def learn(self, half: Learn, x: Inputs, y: Floats) -> tuple[Floats, float]:
        """Return the output for a sample and its loss."""


class Learning:
    """The models of one node, and the two halves of its round.

    Attributes
    ----------
    round
        Rounds of gossip taken; a hidden state begins with zeros at round 0.
    shape
        (P, C, n) of a hidden state: n is 2D, or r in a basis, and more where kernel weights are common.
    moments
        Of the inputs of its stream, where they are standardized; else empty.
    links
        What the weights of its links add up to; None if all are heard always.
    is_sound
        Whether what the last half of a round made is finite, as it is unless a step was too large.
    witness
        Who looks on, if anyone does.
    """

    witness: Witness | None = None

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
        compiled: bool = True,
    ) -> None:
        self.method = method
        self.features = method.bank.draw(inputs, seed, sample, standardize, targets)
        self.moments: Moments | tuple[()] = scaling.start(inputs) if standardize else ()
        self._most = largest(self.features) if not standardize else float(np.finfo(np.float32).max)
        self.round = 0
        self.is_sound = True
        self.links = links
        self._heard: tuple[Floats | None, float] = (None, 1.0)
        state = method.init(np, (), outputs(method.objective), self.features.spectrum)
        kernels, count, length = state.hidden.shape
        self.shape = kernels, count, length
        key = noise.fold(noise.key(seed, "quantizer"), index)
        self._halves = halves(method, self.features, key, state, compiled)

    @property
    def state(self) -> State:
        """Models, hidden state, kernel weights, the learner's memory and the velocity of mixing."""
        return self._halves.state

    @state.setter
    def state(self, state: State) -> None:
        self._halves.state = state

    @property
    def hidden(self) -> Floats:
        """The hidden state as it is until the next round: cheaper than all of the state."""
        return self._halves.hidden

    def gossip(self, copies: Floats, weights: Floats) -> Message:
        """Return the message of the next round, good until the one after: mix, emit and absorb (lines 8, 9 and 12)."""
        return (
            self._gossip(copies, weights)
            if self.witness is None
            else self.witness.gossip(self._gossip, copies, weights)
        )

    def _gossip(self, copies: Floats, weights: Floats) -> Message:
        if weights is not self._heard[0]:  # they seldom change
            self._heard = weights, self._share(weights)
        message, self.is_sound = self._halves.gossip(copies, weights, self.round, self._heard[1])
        self.round += 1
        return message

    def _share(self, weights: Floats) -> float:
        """Return the share of its links that a node hears; one without links hears nobody."""
        if self.links is None:
            return 1.0
        return min(1.0, float(weights.sum()) / self.links) if self.links > 0 else 0.0

    def learn(self, x: Inputs, y: Floats) -> tuple[Floats, float]:
        """Return the output and its loss, both from before the sample is learned (lines 3 to 6 and 14)."""
        return self._learn(x, y) if self.witness is None else self.witness.learn(self._learn, x, y)

    def _learn(self, x: Inputs, y: Floats) -> tuple[Floats, float]:
        output, loss, self.is_sound = self._halves.learn(self.scaled(x), y)
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
        return self._halves.predict(self.scaled(x))

    def model(self) -> Model:
        """Return the ensemble as it is now."""
        state = self.state  # one reading: other threads may ask while this node learns
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
        if np.abs(array).max() > self._most:
            raise InputError(
                f"x is {reprlib.repr(array.tolist())}; beyond {self._most:.2g} there are no features in float32; "
                "scale the inputs to sizes near 1, or drop the sample"
            )
        return np.asarray(x, dtype=np.float64) if self.moments else array

    def targets(self, y: npt.ArrayLike, labels: Labels | None = None) -> Floats:
        """Return one label as the loss wants it, shape ``(C,)``; ``labels`` are those of its source."""
        rule = "a label is one finite number, or as many as there are outputs; drop the sample"
        try:
            with np.errstate(over="ignore"):
                target = np.asarray((labels or Labels(self.method.objective)).encode(np.asarray(y)[None])[0])
        except InputError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"y is {reprlib.repr(y)} ({str(error)[:200]}); {rule}") from None
        if target.shape != (self.shape[1],) or not np.isfinite(target).all():
            raise InputError(f"y is {reprlib.repr(y)}; {rule}")
        return target
