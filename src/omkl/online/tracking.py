"""One model that does not forget and others that do, weighed so that the best one can change.

Data that stand still want a model that forgets nothing, data that drift one that does, and nobody knows beforehand
which. So there is a model for each of a few rates, all on the same features, and each is read under every prior of the
learner. Models of classes that forget nothing are less sure than they could be, and one that forgets would be preferred
for being surer alone: so each is also read as if it were. Weights follow their losses, and a small share of all weight
is dealt out anew after every row: a model that was bad for long and is good now is back after few rows. A straight line
stands beside them, fitted by Newton's method, for trends, for few rows, and for what is simple and drifts.

References
----------
M. Herbster, M. K. Warmuth, "Tracking the best expert", Machine Learning 32 (1998): the fixed share.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from omkl import algorithm
from omkl.arrays import Array, namespace
from omkl.errors import InputError, real
from omkl.learners import Newton, NewtonMemory, Pooled, PooledMemory
from omkl.learners.rules import forgetting
from omkl.methods import Info, Network, Round
from omkl.methods.ensemble import Ensemble
from omkl.topology import Topology

CLASSES = (1.0, 0.995)  # rates of forgetting: nothing, and all but the last 200 rows
NUMBERS = (1.0, 0.99, 0.9)  # numbers in the order of time follow the last ones more closely than classes do
SHARE = 0.01  # of all weight that is dealt out anew after a row
LASTING = 0.5  # of it goes to the model of classes that forgets nothing, unless stakes are given: most data stand still
FIRST_CURVATURE = 0.6  # of the largest, where a network begins with all of it: here a long step misleads no others
MOST_APART = 4.0  # how much more than the best one's the logarithm of a weight can fall by one row
SHARPNESS = 0.2  # rate of the weights under the squared loss, in units of the error's variance
BOUND = 20.0  # deviations of the error beyond which a target counts as being there
REMEMBERED = 100.0  # rows that the error's variance is a mean of
TINY = 1e-12  # of the error's variance, where rows are learned without any
LINE = Newton(prior=10)  # of numbers: a trend goes on
LINE_OF_CLASSES = Newton(prior=10, forget=0.97)


class TrackingState(NamedTuple):
    """What a node carries from row to row."""

    theta: Array
    """A model for each of R rates, ``(J, R, 1, C, n)``."""
    log_weights: Array
    """Of every model as it is read, X in all, and of the line at last, ``(J, X)``."""
    memory: PooledMemory
    """The learner's, with axes ``(J, R)``."""
    line: Array
    """The straight line, ``(J, 1, C, q)``; q is zero without one."""
    line_memory: NewtonMemory | tuple[()]
    spread: Array
    """Variance of the error, and of how many rows it is the mean, ``(J, 2)``."""


@dataclass(frozen=True, init=False, repr=False)
class Tracking(Ensemble):
    """Models that forget at different rates, hedged.

    Attributes
    ----------
    rates
        Each row multiplies the count of earlier ones by so much; one forgets nothing. None is ``CLASSES`` or
        ``NUMBERS``.
    share
        Of all weight, dealt out anew after every row.
    stakes
        Of classes: what part of all weight goes to models that forget nothing, to those that forget, and to the line,
        at first and whenever a share is dealt out. None has half for the first, and the others alike.
    sharper
        Models of classes are also read as if they were so many times as sure; None reads them once.
    lines
        The last coordinates of the features, which are columns as they are and a constant; zero where there are none.
    """

    rates: tuple[float, ...] | None = None
    share: float = SHARE
    stakes: tuple[float, ...] | None = None
    sharper: float | None = None
    lines: int = 0

    name: ClassVar[str] = "tracking"
    dithered = False  # nothing is quantized

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.learner, Pooled):
            raise InputError(f"learner is {self.learner}; models that are hedged by rate share a Pooled; use Pooled()")
        rates = tuple(forgetting(rate) for rate in self.forgets)
        if not rates or list(rates) != sorted(set(rates), reverse=True):
            raise InputError(f"rates are {self.rates}; the largest comes first, and no two are equal; try {CLASSES}")
        object.__setattr__(self, "share", real("share", self.share))
        if not 0 <= self.share < 1:
            raise InputError(f"share is {self.share}; it must lie in [0, 1); try {SHARE}")

    def check(self, topology: Topology) -> None:
        """Accept any network; nothing is sent on it."""

    @property
    def is_bounded(self) -> bool:
        """Whether the loss bounds what a row may do; where not, targets are brought near the prediction."""
        return math.isfinite(self.objective.lipschitz)

    @property
    def times(self) -> tuple[float, ...]:
        """By what outputs are multiplied in every reading of a model: numbers are no surer for being larger."""
        has_classes = self.is_bounded and not hasattr(self.objective, "outputs")
        return (1.0, self.sharper) if has_classes and self.sharper else (1.0,)

    @property
    def line_rule(self) -> Newton:
        """How the line is fitted."""
        return LINE_OF_CLASSES if self.is_bounded else LINE

    def shown(self, spectrum: Array) -> Array:
        """Return the spectrum as the models have it: of classes they leave the columns to the line.

        Where numbers follow a trend the models need it too, for what they say beside it.
        """
        if not self.is_bounded or self.lines < 2:
            return spectrum
        xp, first = namespace(spectrum), spectrum.shape[-1] - self.lines
        nothing = xp.zeros_like(spectrum[..., first:-1])
        return xp.concat([spectrum[..., :first], nothing, spectrum[..., -1:]], axis=-1)

    @property
    def forgets(self) -> tuple[float, ...]:
        """The rates of forgetting."""
        if self.rates is not None:
            return self.rates
        return CLASSES if self.is_bounded else NUMBERS

    @property
    def labels(self) -> list[str]:
        """What the weights are of."""
        readings = super().labels
        models = [f"forget {rate:g}, {prior}" for rate in self.forgets for prior in readings]
        models += [f"{model}, sharper" for _ in self.times[1:] for model in models]
        return models + (["line"] if self.lines else [])

    def init(self, xp: Any, leading: tuple[int, ...], outputs: int, spectrum: Array | None = None) -> TrackingState:
        """Return zero models and equal weights."""
        theta = self.bank.zeros(xp, (*leading, len(self.forgets)), outputs)
        line = xp.zeros((*leading, 1, outputs, self.lines), dtype=xp.float32)
        assert spectrum is not None
        weights = xp.log(self.dealt(xp)) + xp.zeros((*leading, 1), dtype=xp.float32)
        spread = xp.zeros((*leading, 2), dtype=xp.float32) + xp.asarray([1.0, 0.0], dtype=xp.float32)
        memory = self.learner.init(theta, self.shown(spectrum))
        if self.is_bounded:
            memory = memory._replace(log_curvature=memory.log_curvature + math.log(FIRST_CURVATURE))
        kept = self.line_rule.init(line, spectrum[..., -self.lines :]) if self.lines else ()
        return TrackingState(theta, weights, memory, line, kept, spread)

    def dealt(self, xp: Any) -> Array:
        """Return the weights to begin with, by which a share is dealt out too, ``(X,)``; they add up to one."""
        lasting, others, line = self.views, self.views * (len(self.forgets) - 1), int(self.lines > 0)
        parts: tuple[float, ...] = (lasting, others, line)
        if self.is_bounded:
            rest = (1 - LASTING) / max(1, others + line)
            parts = self.stakes or (LASTING, rest * others, rest * line)
        models = [parts[0] / lasting] * lasting + [parts[1] / max(1, others)] * others
        each = models * len(self.times) + [parts[2] * len(self.times)] * line
        return xp.asarray(each, dtype=xp.float32) / sum(each)

    def step(self, state: TrackingState, inputs: Round, network: Network) -> tuple[TrackingState, Info]:
        """Return the nodes after each has learned its own sample."""
        loss = self.objective
        outputs = self._outputs(state, inputs.z)
        xp = namespace(outputs)
        output = xp.sum(algorithm.normalize(state.log_weights)[..., None] * outputs, axis=-2)
        y, rate, spread = self._bounded(output, inputs.y, state.spread)
        losses = loss.value(outputs, y[..., None, :])
        if inputs.weight is not None:
            losses = inputs.weight[..., None] * losses
        weighed = algorithm.weigh(state.log_weights, rate * losses, 1.0, MOST_APART)
        info = Info(output, loss.value(output, inputs.y), state.theta, state.log_weights, 0 * state.spread[..., 0])
        learned = self._learned(state, outputs, inputs._replace(y=y))
        return learned._replace(log_weights=shared(weighed, self.share, self.dealt(xp)), spread=spread), info

    def models(self, state: TrackingState) -> tuple[Array, Array]:
        """Return every model as it is read, and the line as one more of them, ``(J, X, C, n)``."""
        xp, theta = namespace(state.theta), state.theta
        every = self.read(theta, state.memory)
        every = self._readings(xp.reshape(every, (*theta.shape[:-4], -1, *theta.shape[-2:])), -3)
        if self.lines:
            nothing = xp.zeros((*state.line.shape[:-1], theta.shape[-1] - self.lines), dtype=theta.dtype)
            every = xp.concat([every, xp.concat([nothing, state.line], axis=-1)], axis=-3)
        return every, state.log_weights

    def _outputs(self, state: TrackingState, z: Array) -> Array:
        """Return the outputs of all that is weighed, ``(J, X, C)``."""
        xp = namespace(z)
        products = state.theta * z[..., None, :, None, :]
        readings = self.readings(state.memory)
        if readings is None:
            every = xp.sum(products, axis=-1)
        else:
            every = xp.sum(products[..., None, :, :] * readings[..., None, :], axis=-1)
        outputs = self._readings(xp.reshape(every, (*z.shape[:-2], -1, state.theta.shape[-2])), -2)
        if not self.lines:
            return outputs
        line = xp.sum(state.line * z[..., None, -self.lines :], axis=-1)
        return xp.concat([outputs, line], axis=-2)

    def _readings(self, models: Array, axis: int) -> Array:
        """Return models, or their outputs, along an axis as often as they are read."""
        return namespace(models).concat([times * models for times in self.times], axis=axis)

    def _bounded(self, output: Array, y: Array, spread: Array) -> tuple[Array, Any, Array]:
        """Return the target as it is learned, the rate of the weights, and the error's variance after it."""
        if self.is_bounded:
            return y, self.hedge_rate, spread
        xp, variance, count = namespace(y), spread[..., :1], spread[..., 1:]
        far = BOUND * xp.sqrt(variance)
        y = xp.clip(y, output - far, output + far)
        square = xp.mean((y - output) ** 2, axis=-1, keepdims=True)
        count = xp.clip(count + 1, None, REMEMBERED)
        after = xp.concat([variance + (square - variance) / (count + 1), count], axis=-1)
        return y, self.hedge_rate * SHARPNESS / xp.clip(variance, TINY, None), after

    def _learned(self, state: TrackingState, outputs: Array, inputs: Round) -> TrackingState:
        xp, count = namespace(outputs), len(self.forgets)
        forget = xp.asarray(self.forgets, dtype=outputs.dtype)
        before = state.memory._replace(own=forget * state.memory.own, count=forget * state.memory.count)
        weight = None if inputs.weight is None else inputs.weight[..., None]
        own = xp.reshape(outputs[..., : count * self.views, :], (*state.theta.shape[:-3], self.views, -1))[..., :1, :]
        rule = replace(self.learner, forget=1.0)  # type: ignore[type-var]
        given = inputs.z[..., None, :, :], inputs.y[..., None, :], self.objective, 0.0
        theta, memory = algorithm.learn(state.theta, before, own, *given, rule, weight)
        assert isinstance(memory, PooledMemory)
        if not self.lines:
            return state._replace(theta=theta, memory=memory)
        told = outputs[..., -1:, :], inputs.z[..., -self.lines :], inputs.y, self.objective, 0.0
        line, line_memory = algorithm.learn(state.line, state.line_memory, *told, self.line_rule, inputs.weight)
        return state._replace(theta=theta, memory=memory, line=line, line_memory=line_memory)


def shared(log_weights: Array, share: float, stakes: Array) -> Array:
    """Return log weights of which a share has been dealt out by the stakes; they add up to one."""
    xp = namespace(log_weights)
    return xp.log((1 - share) * algorithm.normalize(log_weights) + share * stakes) if share else log_weights
