"""Sending less: when nodes gossip, and which of their kernels are in a message.

``Pace`` and ``Budget`` say how many rounds of gossip go with a sample. All nodes know it, so that a round which is left
out costs nothing. ``Sampled`` and ``Triggered`` say which kernels a message has. The others are silent in it: their
step is zero, as that of a zero vector is, and takes next to nothing on the wire. All go with any quantizer.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

from omkl import registry
from omkl.arrays import Array, namespace
from omkl.errors import InputError, positive, real, whole
from omkl.registry import Registry

LAST = 2**31 - 1  # sample of a pace; with those after it a node has a round each, and no simulation is so long
GOLDEN = 2654435769  # 2^32 over the golden ratio: its multiples modulo 2^32 are spread evenly, however many are taken
RECENT = 0.1  # weight of a move in the mean of the squares of recent ones
MOST_RATE = 64
FINENESS = 4  # rates of a budget are multiples of a fourth
FRAME_BYTES, STEP_BYTES = 4, 2  # of a message, and of a model in it, as the wire has them
NUMBER_BYTES = 0.97 / 8  # what ``Nearest(2.5)`` takes of a number


class Phase(NamedTuple):
    """Samples with ``often`` rounds of gossip each, or ``seldom`` of them to a round; one of the two is one."""

    start: int
    length: int
    often: int
    seldom: int


class Schedule:
    """How many rounds of gossip go with a sample."""

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """Samples with as many rounds each."""
        return tuple(self._phases())

    def _phases(self) -> Iterator[Phase]:
        raise NotImplementedError

    def rounds(self, samples: int) -> int:
        """Return how many rounds of gossip there are before the last of the first so many samples is learned."""
        total = 0
        for start, length, often, seldom in self.phases:
            if samples <= start:
                break
            total += often * -(-min(samples - start, length) // seldom)
        return total

    def samples(self, round_: int) -> int:
        """Return how many samples a node learns after a round of gossip, counted from one, before the next."""
        return self.learned(round_) - self.learned(round_ - 1)

    def learned(self, rounds: int) -> int:
        """Return how many samples a node has learned after so many rounds and before the next."""
        total = 0
        for _, length, often, seldom in self.phases:
            most = often * -(-length // seldom)
            if rounds < most:
                return total + rounds // often * seldom
            total, rounds = total + length, rounds - most
        return total + rounds


@dataclass(frozen=True)
class Pace(Schedule):
    """How many rounds of gossip go with a sample: many at first, when models change most, and then less.

    Attributes
    ----------
    rate
        Rounds of gossip a sample: 1, 2, 4, ... 64, or one round for so many samples, as in 1/4.
    until
        Samples of a node for which that holds; each time they have quadrupled there is half as much gossip. The spacing
        grows as the square root of the samples, while steps of a learner that settles shrink in proportion to them, so
        that what nodes miss of each other fades. None keeps to the rate for ever.
    least
        Rounds a sample that it does not fall below, so that what is new late, as where data drift, still gets around.

    Examples
    --------
    >>> [Pace(2, until=2).rounds(samples) for samples in range(12)]
    [0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 11, 12]
    """

    rate: float = 8
    until: int | None = None
    least: float = 0.25

    def __post_init__(self) -> None:
        for name in ("rate", "least"):
            value = real(name, getattr(self, name))
            object.__setattr__(self, name, value)
            _check_rate(name, value)
        if self.until is None:
            return
        object.__setattr__(self, "until", whole("until", self.until))
        if not math.log2(self.rate).is_integer():
            raise InputError(f"rate is {self.rate}; it is halved again and again; use a power of two, such as 8 or 0.5")

    def _phases(self) -> Iterator[Phase]:
        start, end, rate = 0, self.until or LAST, self.rate
        while start < LAST:
            last = rate / 2 < self.least
            end = LAST if last else min(end, LAST)
            yield Phase(start, end - start, max(1, round(rate)), max(1, round(1 / rate)))
            start, end, rate = end, 4 * end, rate / 2


@dataclass(frozen=True)
class Budget:
    """As many rounds of gossip as so many bytes a sample pay for, most of them with the first samples.

    Attributes
    ----------
    bytes
        What a node sends with a sample and an output at most, in the mean over a stream of ``samples`` or more. A
        message counts as ``Nearest(2.5)`` has it, a bit a number; a quantizer of more bits has as many rounds.
    samples
        Of a node. A shorter stream costs more a sample, for the first samples have most of the gossip.
    least
        Rounds a sample that it does not fall below, whatever they cost, also where that is more than the budget: 1, or
        one round for so many samples, as in 1/2.
    """

    bytes: float = 48
    samples: int = 50
    least: float = 1

    name: ClassVar[str] = "budget"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bytes", positive("bytes", self.bytes, "try 48"))
        object.__setattr__(self, "samples", whole("samples", self.samples))
        object.__setattr__(self, "least", real("least", self.least))
        _check_rate("least", self.least)
        if self.least > 1:
            raise InputError(f"least is {self.least}; it must be 1 or one round for so many samples; use a Pace")

    def schedule(self, models: int, numbers: int) -> "Fading":
        """Return the schedule that it pays for, where a message has so many numbers of each model."""
        message = FRAME_BYTES + models * (STEP_BYTES + NUMBER_BYTES * numbers)
        for quarters in range(MOST_RATE * FINENESS, 1, -1):
            made = Fading(quarters / FINENESS, self.least)
            rounds = made.rounds(self.samples) - 1  # in the first nothing is said
            if FRAME_BYTES + message * rounds <= self.bytes * self.samples:
                return made
        return Fading(1 / FINENESS, self.least)


@dataclass(frozen=True)
class Fading(Schedule):
    """Rounds that fade as one over the square root of the samples: ``rate`` with the second, half of it with the fifth.

    With the first there is one: nothing has been learned yet. Each number is rounded up, below one to halves, quarters
    and so on, and never below ``least``. The steps of a learner that settles shrink faster, in proportion to the
    samples, so that what nodes miss of each other fades.

    Examples
    --------
    >>> [Fading(4).rounds(samples) for samples in range(8)]
    [0, 1, 5, 8, 11, 13, 15, 17]
    """

    rate: float
    least: float = 1

    def _phases(self) -> Iterator[Phase]:
        yield Phase(0, 1, 1, 1)
        start, often, seldom = 1, math.ceil(self.rate), 1
        while start < LAST:
            less = often - 1 if often > 1 else 1 / (2 * seldom)  # the next number of rounds a sample
            last = less < self.least
            # `less` is enough from sample t on, counted from zero, where rate / sqrt(t) <= less.
            end = LAST if last else min(LAST, max(start, math.ceil((self.rate / less) ** 2)))
            if end > start:
                yield Phase(start, end - start, often, seldom)
            start = end
            often, seldom = (often - 1, 1) if often > 1 else (1, 2 * seldom)


def _check_rate(name: str, value: float) -> None:
    if not 1 / MOST_RATE <= value <= MOST_RATE or value not in (round(value), 1 / max(1, round(1 / value))):
        raise InputError(
            f"{name} is {value}; it must be 1 to {MOST_RATE} rounds of gossip a sample, or one round for as many "
            "samples; try 8 or 0.25"
        )


class Sending(Protocol):
    """Which kernels are in a message."""

    name: ClassVar[str]

    def sends(self, difference: Array, weights: Array, moved: Array, round_: Array | int) -> Array:
        """Return whether each kernel is sent in a round, ``(..., P)``.

        ``difference`` is what there would be to send, ``(..., P, C, n)``, ``weights`` are those of the kernels, and
        ``moved`` is what ``follow`` returns.
        """

    def share(self, weights: Array) -> Array:
        """Return in what share of the rounds each kernel is sent, ``(..., P)``; it is mixed by as much less in each."""


@dataclass(frozen=True)
class Sampled:
    """Kernels by their weight: one that hardly counts is seldom sent.

    Attributes
    ----------
    kernels
        Most kernels to send in a round, in the mean; as many as there are sends all while their weights are equal.
    floor
        Part of that which is dealt out evenly, so that no kernel is forgotten.

    Notes
    -----
    Kernel p is sent in a share min(1, kernels ((1 - floor) w_p + floor / P)) of the rounds, spread evenly. A copy that
    is seldom refreshed must be mixed as seldom, or mixing diverges: kernel p is mixed at its share of gamma. The mean
    over nodes stays where nodes agree on the weights, as with ``common_weights``.
    """

    kernels: float = 3
    floor: float = 0.1

    name: ClassVar[str] = "sampled"

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", positive("kernels", self.kernels, "try 1"))
        object.__setattr__(self, "floor", real("floor", self.floor))
        if not 0 < self.floor <= 1:
            raise InputError(f"floor is {self.floor}; it must lie in (0, 1], or kernels are forgotten; try 0.1")

    def sends(self, difference: Array, weights: Array, moved: Array, round_: Array | int) -> Array:
        """Return which kernels hold a whole number when shares are laid end to end from a point of the round's."""
        xp, share = namespace(difference), self.share(weights)
        ends = _point(xp, round_) + xp.cumulative_sum(share, axis=-1, include_initial=True)
        return xp.floor(ends[..., 1:]) > xp.floor(ends[..., :-1])

    def share(self, weights: Array) -> Array:
        """Return min(1, kernels ((1 - floor) w_p + floor / P))."""
        even = self.floor / weights.shape[-1]
        return namespace(weights).clip(self.kernels * ((1 - self.floor) * weights + even), 0, 1)


@dataclass(frozen=True)
class Triggered:
    """Kernels that have something to say: those whose model has moved away from what neighbors know of it.

    Attributes
    ----------
    threshold
        A kernel is sent where |theta - h| exceeds so many steps of its learner, as they were of late: a model that
        wanders is sent after threshold^2 samples or so, one that goes somewhere after as many as the threshold.
    """

    threshold: float = 1.5

    name: ClassVar[str] = "triggered"

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", positive("threshold", self.threshold, "try 1.5"))

    def sends(self, difference: Array, weights: Array, moved: Array, round_: Array | int) -> Array:
        """Return where |theta - h|^2 > threshold^2 moved."""
        return namespace(difference).sum(difference * difference, axis=(-2, -1)) > self.threshold**2 * moved

    def share(self, weights: Array) -> Array:
        """Return one: what is not sent is small."""
        return namespace(weights).ones_like(weights)


SENDING: Registry[type[Sending]] = Registry("omkl.sending", {rule.name: rule for rule in (Sampled, Triggered)})


def named(rule: Sending | str | None) -> Sending | None:
    """Return the rule of that name, or the rule itself; None sends all."""
    if rule is None:
        return None
    found: Sending = registry.named("sending", rule, SENDING, Sending, "omkl.Sampled(), or None to send all")
    return found


def follow(moved: Array, move: Array) -> Array:
    """Return the mean square of recent moves of the models, ``(..., P)``, after one more of ``(..., P, C, n)``."""
    return (1 - RECENT) * moved + RECENT * namespace(move).sum(move * move, axis=(-2, -1))


def _point(xp: Any, round_: Array | int) -> Array | float:
    """Return a number in [0, 1) of sixteen bits, the same at all nodes, so that they send the same kernels."""
    if isinstance(round_, int):
        return (round_ * GOLDEN % 2**32 >> 16) / 2**16
    spread = xp.astype(round_, xp.uint32) * xp.asarray(GOLDEN, dtype=xp.uint32)
    return xp.astype(spread >> 16, xp.float32) / 2**16
