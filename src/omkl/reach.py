"""How many nodes a sample has reached: the number of samples, alpha, that a step counts for.

*alpha.* After k rounds of gossip, a node still has a share of its own step; the rest is with others. This share is the
probability that a walk along the links is back after k steps. One over its mean over nodes is the number of nodes that
a sample has reached: one after no rounds, and almost all of a complete graph after a few. With the eigenvalues mu_i of
the gossip matrix, the mean is that of |1 - gamma (1 - mu_i) / (1 - momentum)|^k. It is also taken over samples, from
the first up to those of half of all rounds ago, because young samples have yet to spread. (On a star, a sample needs as
many rounds as there are leaves to leave its node.) alpha follows from the graph alone. So it is the same at all nodes,
and nodes that see different data stay unbiased.

*Nodes that see the same.* If nodes see the same thing at the same time, the sum of their steps is too long. What a node
says moves it away from its neighbors, and they pull it back in the next round, unless they said the same. So the pull
shows how alike they are.

*Links that fail.* Rounds in which a node hears nobody do not count. If it hears less than two thirds of its links,
alpha - 1 shrinks in proportion, at once. Links that are back count again only after a while. A node alone has alpha 1.
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
    """The number of rounds of gossip; a round in which it heard a share of its links counts as that share."""
    share: Array
    """The share of its links, by weight, that it has heard lately."""
    said: Array
    """What the node said in the last round, in the shape of what is sent, ``(..., P, C, n)``."""
    before: Array
    """The product of ``said`` and of what pulled the node in that round, ``(..., P)``."""
    apart: Array
    """The sum over recent rounds of what pulls the node back from what it said, ``(..., P)``."""
    due: Array
    """What ``apart`` would be if no neighbor had said the same."""


@dataclass(frozen=True)
class Reach:
    """Let steps count for all nodes that a sample has reached.

    Attributes
    ----------
    most
        The largest alpha. A larger one learns faster from clean data, and overshoots on noisy data.
    knots
        alpha after 1, 2^(1/2), 2, ... rounds, as far as it grows. ``on`` finds it for a network; leave it out.
    """

    most: float = 11.0
    knots: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "most", real("most", self.most))
        if not 1 <= self.most < np.inf:
            raise InputError(f"most is {self.most}; a step counts for one sample at least; try 11")
        object.__setattr__(self, "knots", tuple(real("knots", one) for one in self.knots))

    def on(self, topologies: Sequence[Topology], pull: float) -> Self:
        """Return the same with knots for these networks, which take turns; a link pulls by ``pull`` of its weight.

        A pull of more than 1 counts as 1, because it mixes no faster.
        """
        return replace(self, knots=tuple(knots(topologies, min(pull, 1.0), self.most)))

    def start(self, hidden: Array) -> Hearing:
        """Return what nodes have heard before the first round: nothing, and no link has failed."""
        xp = namespace(hidden)
        each, every = hidden.shape[:-3], hidden.shape[:-2]
        none = [xp.zeros(shape, dtype=hidden.dtype) for shape in (each, every, every, every)]
        return Hearing(none[0], xp.ones(each, dtype=hidden.dtype), xp.zeros_like(hidden), *none[1:])

    def hear(self, before: Hearing, heard: Array | float) -> Hearing:
        """Return what nodes have heard after one more round, in which they heard this share of their links."""
        xp = namespace(before.said)
        apart = heard - before.share
        share = before.share + xp.where(apart < 0, FALLS * apart, RISES * apart)
        return before._replace(rounds=before.rounds + heard, share=share)

    def listen(self, before: Hearing, pull: Array, said: Array, weight: Array) -> Hearing:
        """Return what nodes know about each other after a round with this pull, in which they said ``said``.

        ``pull`` is the sum of w_ij (h_i - h_j), and ``weight`` is the sum of w_ij. What a node says moves it away from
        its neighbors. They pull it back by as much in the next round, unless they said the same.
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
        """Return how alike the messages of a node and its neighbors are, ``(..., P)``, from 0 to 1.

        While nothing has been said it is a value in between, because all nodes may see the same first sample.
        """
        xp = namespace(heard.said)
        share = heard.apart / xp.where(heard.due > 0, heard.due, 1.0)
        return xp.where(heard.due > 0, xp.clip(1 - share, 0, 1), UNKNOWN)

    def alpha(self, heard: Hearing) -> Array:
        """Return how many samples a step counts for, ``(...)``."""
        whole = namespace(heard.said).clip(heard.share / ENOUGH, None, 1)
        return 1 + whole * (self.grown(heard.rounds) - 1)

    def grown(self, rounds: Array) -> Array:
        """Return how many samples a step counts for after this number of rounds, if all links were heard."""
        if not len(self.knots):  # an array, in a compiled program
            raise InputError("reach has no knots; they follow from a network; call method.on(topology) first")
        xp = namespace(rounds)
        grown = between_knots(self.knots, rounds + AHEAD)
        return 1 + xp.clip(rounds, 0, 1) * (grown - 1)  # before the first round it is one


def between_knots(values: Sequence[float], rounds: Array) -> Array:
    """Interpolate values after 1, 2^(1/2), 2, ... rounds; beyond the last of them its value stays."""
    xp, most = namespace(rounds), len(values) - 1
    table = xp.asarray(values, dtype=xp.float32)
    place = 2 * xp.log2(xp.clip(rounds, 1, 2.0 ** (most / 2)))
    low = xp.floor(place)
    index = xp.reshape(xp.astype(low, xp.int32), (-1,))
    pair = index, xp.clip(index + 1, None, most)
    lower, upper = (xp.reshape(xp.take(table, one), low.shape) for one in pair)
    return lower + (place - low) * (upper - lower)


def knots(topologies: Sequence[Topology], pull: float, most: float) -> list[float]:
    """Return alpha after 1, 2^(1/2), 2, ... rounds, until it is ``most`` or stops growing.

    It is rounded to three digits, so that nodes agree on it even if their arithmetic differs in the last bits.
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
    """Return a function that gives the mean return probability after some rounds, from all eigenvalues."""
    values = np.linalg.eigvalsh(np.mean([topology.matrix() for topology in topologies], axis=0))
    shrinks = np.abs(1 - pull * (1 - values))
    return lambda rounds: float(np.mean(shrinks**rounds))


def _estimated(topologies: Sequence[Topology], pull: float) -> Callable[[float], float]:
    """Return the same for a large network, estimated from vectors s of random signs: |M^a s|^2 / J for 2a rounds."""
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
