"""Sending less: in which rounds nodes gossip, and which kernels a message contains.

``Pace`` and ``Budget`` set how many rounds of gossip there are for each sample. All nodes know this, so a round that is
left out costs nothing. ``Sampled`` and ``Triggered`` choose the kernels of a message. The other kernels are silent:
they are sent as zero vectors, which cost almost nothing. All of them work with any quantizer.
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
    """A run of samples with ``often`` rounds of gossip each, or one round for ``seldom`` samples; one of them is 1."""

    start: int
    length: int
    often: int
    seldom: int


class Schedule:
    """How many rounds of gossip there are for each sample."""

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        """The runs of samples that have the same number of rounds."""
        return tuple(self._phases())

    def _phases(self) -> Iterator[Phase]:
        raise NotImplementedError

    def rounds(self, samples: int) -> int:
        """Return how many rounds of gossip there are before sample number ``samples`` is learned."""
        total = 0
        for start, length, often, seldom in self.phases:
            if samples <= start:
                break
            total += often * -(-min(samples - start, length) // seldom)
        return total

    def samples(self, round_: int) -> int:
        """Return how many samples a node learns between this round, counted from one, and the next."""
        return self.learned(round_) - self.learned(round_ - 1)

    def learned(self, rounds: int) -> int:
        """Return how many samples a node has learned before round ``rounds`` + 1."""
        total = 0
        for _, length, often, seldom in self.phases:
            most = often * -(-length // seldom)
            if rounds < most:
                return total + rounds // often * seldom
            total, rounds = total + length, rounds - most
        return total + rounds


@dataclass(frozen=True)
class Pace(Schedule):
    """A number of rounds of gossip for each sample: many at first, when models change most, and then fewer.

    Attributes
    ----------
    rate
        Rounds of gossip a sample: 1, 2, 4, ... 64; or 1/4 for one round every four samples.
    until
        Samples of a node for which the rate holds. Each time they have quadrupled, there is half as much gossip. So
        gossip falls as one over the square root of the samples. The steps of a learner that settles shrink faster, so
        nodes still agree more and more. None keeps the rate for ever.
    least
        The smallest number of rounds a sample, so that late news still spreads, for example when data drift.

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
    """A number of bytes for each sample, spent on gossip mostly with the first samples.

    Attributes
    ----------
    bytes
        The most bytes that a node sends for each sample and output, in the mean over the first ``samples``. A message
        is counted as with ``Nearest(2.5)``, about a bit a number. A finer quantizer gets the same number of rounds, and
        sends more bytes.
    samples
        The number of samples of a node over which the budget holds. A shorter stream costs more a sample, because most
        gossip goes with the first samples.
    least
        The smallest number of rounds a sample, even if that is more than the budget: 1, or 1/2 for one round every two
        samples.
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
        """Return the schedule that the bytes pay for, if a message has ``numbers`` of each of so many models."""
        message = FRAME_BYTES + models * (STEP_BYTES + NUMBER_BYTES * numbers)
        for quarters in range(MOST_RATE * FINENESS, 1, -1):
            made = Fading(quarters / FINENESS, self.least)
            rounds = made.rounds(self.samples) - 1  # in the first nothing is said
            if FRAME_BYTES + message * rounds <= self.bytes * self.samples:
                return made
        return Fading(1 / FINENESS, self.least)


@dataclass(frozen=True)
class Fading(Schedule):
    """Rounds that fade as one over the square root of the samples: ``rate`` at the second, half of it at the fifth.

    The first sample has one round, because nothing has been learned yet. Each number is rounded up: below one to 1/2,
    1/4 and so on, and never below ``least``. The steps of a learner that settles shrink faster, in proportion to the
    samples, so nodes still agree more and more.

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
        """Return whether each kernel is sent in this round, ``(..., P)``.

        ``difference`` is what could be sent, ``(..., P, C, n)``, ``weights`` are the kernel weights, and ``moved`` is
        what ``follow`` returns.
        """

    def share(self, weights: Array) -> Array:
        """Return the share of rounds in which each kernel is sent, ``(..., P)``; its mixing is slowed by as much."""


@dataclass(frozen=True)
class Sampled:
    """Send kernels as often as their weights deserve: a kernel that hardly counts is seldom sent.

    Attributes
    ----------
    kernels
        The mean number of kernels in a message, at most. With the number of all kernels, all are sent while their
        weights are equal.
    floor
        The part of this that is dealt out evenly, so that no kernel is forgotten.

    Notes
    -----
    Kernel p is sent in a share min(1, kernels ((1 - floor) w_p + floor / P)) of the rounds, spread evenly. A copy that
    is seldom refreshed must be mixed less, or mixing diverges: kernel p is mixed at its share of gamma. The mean over
    nodes stays the same if nodes agree on the weights, as with ``common_weights``.
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
        """Return which kernels are sent in this round.

        Lay the shares end to end on a line, from a starting point that depends on the round. A kernel is sent if there
        is a whole number in its share.
        """
        xp, share = namespace(difference), self.share(weights)
        ends = _point(xp, round_) + xp.cumulative_sum(share, axis=-1, include_initial=True)
        return xp.floor(ends[..., 1:]) > xp.floor(ends[..., :-1])

    def share(self, weights: Array) -> Array:
        """Return min(1, kernels ((1 - floor) w_p + floor / P))."""
        even = self.floor / weights.shape[-1]
        return namespace(weights).clip(self.kernels * ((1 - self.floor) * weights + even), 0, 1)


@dataclass(frozen=True)
class Triggered:
    """Send kernels whose model has moved away from what neighbors know of it.

    Attributes
    ----------
    threshold
        A kernel is sent if |theta - h| exceeds this many of its recent learning steps. A model that wanders is sent
        after about threshold^2 samples; a model that moves in one direction after about ``threshold`` samples.
    """

    threshold: float = 1.5

    name: ClassVar[str] = "triggered"

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", positive("threshold", self.threshold, "try 1.5"))

    def sends(self, difference: Array, weights: Array, moved: Array, round_: Array | int) -> Array:
        """Return which kernels have |theta - h|^2 > threshold^2 moved."""
        return namespace(difference).sum(difference * difference, axis=(-2, -1)) > self.threshold**2 * moved

    def share(self, weights: Array) -> Array:
        """Return one: mixing need not be slowed, because what is not sent is small."""
        return namespace(weights).ones_like(weights)


SENDING: Registry[type[Sending]] = Registry("omkl.sending", {rule.name: rule for rule in (Sampled, Triggered)})


def named(rule: Sending | str | None) -> Sending | None:
    """Return the rule of that name, or the rule itself; None sends all."""
    if rule is None:
        return None
    found: Sending = registry.named("sending", rule, SENDING, Sending, "omkl.Sampled(), or None to send all")
    return found


def follow(moved: Array, move: Array) -> Array:
    """Return the mean square of recent moves of the models, ``(..., P)``, after one more ``move (..., P, C, n)``."""
    return (1 - RECENT) * moved + RECENT * namespace(move).sum(move * move, axis=(-2, -1))


def _point(xp: Any, round_: Array | int) -> Array | float:
    """Return a number in [0, 1) of sixteen bits, the same at all nodes, so that they send the same kernels."""
    if isinstance(round_, int):
        return (round_ * GOLDEN % 2**32 >> 16) / 2**16
    spread = xp.astype(round_, xp.uint32) * xp.asarray(GOLDEN, dtype=xp.uint32)
    return xp.astype(spread >> 16, xp.float32) / 2**16
