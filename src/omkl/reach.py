"""How many nodes a sample has reached: what a step counts for.

After k rounds of gossip a node has a share of its own step left, the probability that a walk along the links returns
after k steps, and the rest of it is with others. One over its mean over nodes is the number of nodes that a sample has
reached: one after no rounds, and nearly all of a complete graph after a few. With the eigenvalues mu_i of the gossip
matrix the mean is that of |1 - gamma (1 - mu_i) / (1 - momentum)|^k. alpha is one over its mean over samples too, those
from half of all rounds ago back to the first: on a star, where a sample takes as many rounds as there are leaves
to leave its node, most of what a node has is its own for long. alpha follows from the graph alone, so that it is one
number for all nodes, and those that see different data stay unbiased.

Steps of nodes that see the same thing at the same time add up to too much. What a node says moves it away from its
neighbors, which pull it back in the next round, unless they said the same: how much they do tells how alike it was.

A node goes by the links it hears. Rounds in which it hears nobody do not count, and what it lacks of its links takes as
much off alpha - 1, where it hears fewer than two thirds: at once, while links that are back count again only after a
while. A node alone has alpha 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.arrays import Array, namespace
from omkl.errors import InputError, real
from omkl.topology import Topology

Floats = npt.NDArray[np.float64]

LARGE = 1000  # nodes beyond which the mean is estimated
YOUNGEST = 0.5  # part of all rounds ago of the latest samples that alpha is about; later ones have yet to spread
AGES = 9  # ages that their mean is taken over
PROBES = 32000  # numbers that the mean is estimated from: so many vectors of as many nodes
LONGEST = 20  # knots: rounds up to 2^10, by half powers of two
AHEAD = 15  # rounds that alpha counts beyond those that were: a step spreads before it is built upon
UNKNOWN = 0.4  # how alike nodes are taken to be before any of them has said anything
KEPT = 0.8  # share of what was heard in a round that counts in the next
FALLS, RISES = 0.5, 1 / 4  # share of the way to what is heard that one round goes
ENOUGH = 2 / 3  # of its links that a node need hear of late: one that loses messages now and then carries news too


class Hearing(NamedTuple):
    """What a node has heard, ``(...)`` each."""

    rounds: Array
    """Rounds of gossip, those in which it heard some of its links by their share."""
    share: Array
    """Of its links, by their weights, that it hears of late."""
    said: Array
    """What it said in the last round, in the shape of what is sent, ``(..., P, C, n)``."""
    before: Array
    """The product of that and what pulled it in that round, ``(..., P)``."""
    apart: Array
    """Sum over recent rounds of what pulls it back from what it said, ``(..., P)``."""
    due: Array
    """The same if nobody had said the like."""


@dataclass(frozen=True)
class Reach:
    """Steps that count for all who are heard.

    Attributes
    ----------
    most
        What alpha is at most. More learns faster from clean data and overshoots on noisy ones.
    knots
        alpha after 1, 2^(1/2), 2, ... rounds, as far as it grows: found by ``on``, for the network at hand.
    """

    most: float = 11.0
    knots: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", real("most", self.most))
        if not 1 <= self.most < np.inf:
            raise InputError(f"most is {self.most}; a step counts for one sample at least; try 11")
        object.__setattr__(self, "knots", tuple(real("knots", one) for one in self.knots))

    def on(self, topologies: Sequence[Topology], pull: float) -> Self:
        """Return the same with knots for networks that take turns, each link pulling by ``pull`` of its weight.

        More than all of it mixes no faster: what is carried on swings about.
        """
        return replace(self, knots=tuple(knots(topologies, min(pull, 1.0), self.most)))

    def start(self, hidden: Array) -> Hearing:
        """Return what nodes have heard before the first round: nothing, and no link has failed them."""
        xp = namespace(hidden)
        each, every = hidden.shape[:-3], hidden.shape[:-2]
        none = [xp.zeros(shape, dtype=hidden.dtype) for shape in (each, every, every, every)]
        return Hearing(none[0], xp.ones(each, dtype=hidden.dtype), xp.zeros_like(hidden), *none[1:])

    def hear(self, before: Hearing, heard: Array | float) -> Hearing:
        """Return what nodes have heard after a round in which they heard this share of their links."""
        xp = namespace(before.said)
        apart = heard - before.share
        share = before.share + xp.where(apart < 0, FALLS * apart, RISES * apart)
        return before._replace(rounds=before.rounds + heard, share=share)

    def listen(self, before: Hearing, pull: Array, said: Array, weight: Array) -> Hearing:
        """Return what nodes know of each other after a round in which this pulled them, and they said that.

        ``pull`` is the sum of w_ij (h_i - h_j), and ``weight`` that of w_ij. What a node says moves it away from its
        neighbors, which pull it back by as much in the next round, unless they said the same.
        """
        xp = namespace(before.said)
        back = xp.sum(pull * before.said, axis=(-2, -1)) - before.before
        size = xp.sum(before.said * before.said, axis=(-2, -1))
        return before._replace(
            said=said,
            before=xp.sum(pull * said, axis=(-2, -1)),
            apart=KEPT * before.apart - back,
            due=KEPT * before.due + size * xp.reshape(weight, (*weight.shape, *(1,) * (size.ndim - weight.ndim))),
        )

    def alike(self, heard: Hearing) -> Array:
        """Return how alike is what a node and its neighbors say, ``(..., P)``, from 0 to 1.

        Something in between while nothing has been said: the first samples of all may be one and the same.
        """
        xp = namespace(heard.said)
        share = heard.apart / xp.where(heard.due > 0, heard.due, 1.0)
        return xp.where(heard.due > 0, xp.clip(1 - share, 0, 1), UNKNOWN)

    def alpha(self, heard: Hearing) -> Array:
        """Return how many samples a step counts for, ``(...)``."""
        whole = namespace(heard.said).clip(heard.share / ENOUGH, None, 1)
        return 1 + whole * (self.grown(heard.rounds) - 1)

    def grown(self, rounds: Array) -> Array:
        """Return how many samples a step counts for after so many rounds in which all links were heard."""
        if not len(self.knots):  # an array, in a compiled program
            raise InputError("reach has no knots; they follow from a network; call method.on(topology) first")
        xp = namespace(rounds)
        grown = between_knots(self.knots, rounds + AHEAD)
        return 1 + xp.clip(rounds, 0, 1) * (grown - 1)  # before the first round it is one


def between_knots(values: Sequence[float], rounds: Array) -> Array:
    """Return what is known after 1, 2^(1/2), 2, ... rounds, after any number of them, the last value for more."""
    xp, most = namespace(rounds), len(values) - 1
    table = xp.asarray(values, dtype=xp.float32)
    place = 2 * xp.log2(xp.clip(rounds, 1, 2.0 ** (most / 2)))
    low = xp.floor(place)
    index = xp.reshape(xp.astype(low, xp.int32), (-1,))
    pair = index, xp.clip(index + 1, None, most)
    lower, upper = (xp.reshape(xp.take(table, one), low.shape) for one in pair)
    return lower + (place - low) * (upper - lower)


def knots(topologies: Sequence[Topology], pull: float, most: float) -> list[float]:
    """Return alpha after 1, 2^(1/2), 2, ... rounds, until it is ``most`` or grows no more.

    Rounded to three digits: nodes whose arithmetic differs in the last bits agree on it.
    """
    nodes = topologies[0].nodes
    returns = _exact(topologies, pull) if nodes <= LARGE else _estimated(topologies, pull)
    found: list[float] = []
    for knot in range(LONGEST + 1):
        ages = np.maximum(1, np.linspace(YOUNGEST, 1, AGES) * 2 ** (knot / 2))
        alpha = min(most, 1 / max(float(np.mean([returns(age) for age in ages])), 1e-12), nodes)
        found.append(float(f"{max([1.0, alpha, *found[-1:]]):.3g}"))
        if found[-1] >= min(most, nodes) * 0.999:
            break
    return found


def _exact(topologies: Sequence[Topology], pull: float) -> Callable[[float], float]:
    """Return the mean return probability after so many rounds, from all eigenvalues."""
    values = np.linalg.eigvalsh(np.mean([topology.matrix() for topology in topologies], axis=0))
    shrinks = np.abs(1 - pull * (1 - values))
    return lambda rounds: float(np.mean(shrinks**rounds))


def _estimated(topologies: Sequence[Topology], pull: float) -> Callable[[float], float]:
    """Return the mean return probability of a large network, by walks of random signs: |M^a s|^2 / J is that of 2a."""
    nodes = topologies[0].nodes
    key = noise.key(0, "reach")
    signs = [np.where(noise.uniforms(noise.fold(key, k), nodes) < 0.5, -1.0, 1.0) for k in range(-(-PROBES // nodes))]
    walks, means = np.stack(signs), [1.0]

    def returns(rounds: float) -> float:
        nonlocal walks
        while 2 * (len(means) - 1) < rounds:
            walks = walks + pull * np.mean([_pulled(topology, walks) for topology in topologies], axis=0)
            means.append(float(np.mean(walks**2)))
        low = int(rounds // 2)
        share = rounds / 2 - low
        below, above = np.log(means[low]), np.log(means[min(low + 1, len(means) - 1)])
        return float(np.exp(below + share * (above - below)))

    return returns


def _pulled(topology: Topology, values: Floats) -> Floats:
    """Return (W - I) values, row by row."""
    i, j = topology.graph.edges.T
    flows = topology.weights * (values[:, j] - values[:, i])
    nodes = topology.nodes
    return np.stack([np.bincount(i, one, nodes) - np.bincount(j, one, nodes) for one in flows])
