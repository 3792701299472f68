"""Partitions: which node sees which rows of a table, for networks whose nodes see different data.

A partition says who; ``shuffle`` says when. All are functions of the table, the number of nodes and their own seed. But
for ``Quantity`` they give every node as many rows, n // J, and use no row twice.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.errors import InputError, real, whole

MOST_CLASSES = 1000  # beyond that labels are values, or names
SAMPLE = 3000  # rows that tell the principal direction
PROPOSALS = 16  # for a variate, of which the worst case refuses one in twenty

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]


class Partition(Protocol):
    """What says which rows of a table a node sees."""

    name: ClassVar[str]

    def rows(self, X: npt.NDArray[Any], y: npt.NDArray[Any], nodes: int) -> list[Integers]:
        """Return the rows of every node, in any order; no row is anyone else's."""


class _Checked:
    """Settings of a partition: ``alpha`` is positive, and the others are whole numbers."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name != "alpha":
                whole(name, value, int(name == "each"))
            elif not 0 < real(name, value) < math.inf:
                raise InputError(f"{name} is {value}; it must be positive and finite; 0.1 is much skew, 100 hardly any")


@dataclass(frozen=True)
class IID(_Checked):
    """Nodes that are alike: rows at random.

    Attributes
    ----------
    seed
        Seed of the draw.
    """

    seed: int = 0

    name: ClassVar[str] = "iid"

    def rows(self, X: npt.NDArray[Any], y: npt.NDArray[Any], nodes: int) -> list[Integers]:
        """Return the rows of every node."""
        return _slices(permutation(len(X), self.seed, "partition"), nodes)


@dataclass(frozen=True)
class Dirichlet(_Checked):
    """Label skew: the classes of a node are in proportions drawn from a Dirichlet distribution.

    ``alpha`` is the parameter of a class of mean size, that of others in proportion: at 0.1 most nodes see one class or
    two, at 100 they are alike. Every node has as many rows: nodes draw classes in turn until the rows are used up, and
    a class that is used up is drawn no more, so that what is left over goes to nodes that would have drawn others. This
    is the partition of Hsu, Qi, Brown (2019) but for the turns.

    Attributes
    ----------
    alpha
        How alike the nodes are: at 0.1 most see one class or two, at 100 they see all alike.
    seed
        Seed of the draw.
    """

    alpha: float = 0.5
    seed: int = 0

    name: ClassVar[str] = "dirichlet"

    def rows(self, X: npt.NDArray[Any], y: npt.NDArray[Any], nodes: int) -> list[Integers]:
        """Return the rows of every node."""
        label, counts = _classes(y)
        rounds = len(y) // nodes
        logs = _log_gammas(np.tile(self.alpha * counts / counts.mean(), (nodes, 1)), self.seed)
        shares = np.maximum(np.exp(logs - logs.max(axis=1, keepdims=True)), 1e-200)  # never none of what is left
        drawn = noise.uniforms(noise.key(self.seed, "partition"), rounds * nodes)
        rows = permutation(len(y), self.seed, "partition rows")
        pools = [rows[label[rows] == k].tolist() for k in range(len(counts))]
        own: list[list[int]] = [[] for _ in range(nodes)]
        edges = np.cumsum(shares, axis=1)
        for step, u in enumerate(drawn):
            node = step % nodes
            k = int(np.searchsorted(edges[node], u * edges[node, -1], side="right"))
            own[node].append(pools[k].pop())
            if not pools[k]:
                shares[:, k] = 0
                edges = np.cumsum(shares, axis=1)
        return [np.array(some) for some in own]


@dataclass(frozen=True)
class Shards(_Checked):
    """Label skew: rows sorted by label and cut into shards, of which every node has ``each``, drawn at random.

    With two each, as in McMahan et al. (2017), most nodes see two classes.

    Attributes
    ----------
    each
        Number of shards that a node has.
    seed
        Seed of the draw.
    """

    each: int = 2
    seed: int = 0

    name: ClassVar[str] = "shards"

    def rows(self, X: npt.NDArray[Any], y: npt.NDArray[Any], nodes: int) -> list[Integers]:
        """Return the rows of every node."""
        order = permutation(len(y), self.seed, "partition rows")
        order = order[np.argsort(_classes(y)[0][order], kind="stable")]
        if nodes * self.each > len(y):
            raise InputError(f"each is {self.each}; {nodes} nodes have {len(y) // nodes} rows each; have fewer shards")
        shards = _slices(order, nodes * self.each)
        dealt = permutation(len(shards), self.seed, "partition").reshape(nodes, self.each)
        return [np.concatenate([shards[k] for k in some]) for some in dealt]


@dataclass(frozen=True)
class Quantity(_Checked):
    """Quantity skew: nodes that are alike, with numbers of rows drawn from a Dirichlet distribution.

    Every node has one at least. In the stream the node with most sets the number of rounds, and the others see their
    rows again: what they learn from is as little as they have, and their loss no longer one of samples never seen.

    Attributes
    ----------
    alpha
        How alike the numbers of rows are; the smaller, the more they differ.
    seed
        Seed of the draw.
    """

    alpha: float = 0.5
    seed: int = 0

    name: ClassVar[str] = "quantity"

    def rows(self, X: npt.NDArray[Any], y: npt.NDArray[Any], nodes: int) -> list[Integers]:
        """Return the rows of every node."""
        logs = _log_gammas(np.full(nodes, self.alpha), self.seed)
        parts = np.exp(logs - logs.max())
        bounds = np.rint(np.cumsum(parts[:-1]) / parts.sum() * (len(X) - nodes)).astype(np.int64)
        return np.split(permutation(len(X), self.seed, "partition"), bounds + np.arange(1, nodes))


@dataclass(frozen=True)
class Column(_Checked):
    """Nodes that see different ranges of one input: slices along it, in the order of the nodes.

    For a column that names the nodes see ``by_node``.

    Attributes
    ----------
    column
        The number of the input, from 0.
    """

    column: int = 0

    name: ClassVar[str] = "column"

    def rows(self, X: npt.NDArray[Any], y: npt.NDArray[Any], nodes: int) -> list[Integers]:
        """Return the rows of every node."""
        if self.column >= X.shape[1]:
            raise InputError(f"column is {self.column}; X has columns 0 ... {X.shape[1] - 1}; name one of them")
        return _slices(np.argsort(X[:, self.column], kind="stable"), nodes)


@dataclass(frozen=True)
class Position:
    """Nodes that see different places: slices along the first principal direction, in the order of the nodes."""

    name: ClassVar[str] = "position"

    def rows(self, X: npt.NDArray[Any], y: npt.NDArray[Any], nodes: int) -> list[Integers]:
        """Return the rows of every node."""
        some = X[:: math.ceil(len(X) / SAMPLE)].astype(np.float64)
        direction = np.linalg.svd(some - some.mean(axis=0), full_matrices=False)[2][0]
        direction *= np.sign(direction[np.argmax(np.abs(direction))])  # a direction has no sign of its own
        return _slices(np.argsort(X @ direction, kind="stable"), nodes)


PARTITIONS: dict[str, type[Partition]] = {one.name: one for one in (IID, Dirichlet, Shards, Quantity, Column, Position)}


def permutation(n: int, seed: int, stream: str = "data") -> Integers:
    """Return an order of n rows that depends on n, the seed and the name of the stream alone."""
    words = noise.words(noise.key(int(seed), stream), 2 * n).reshape(n, 2).astype(np.uint64)
    return np.argsort(words[:, 0] << np.uint64(32) | words[:, 1], kind="stable")


def scheduled(own: list[Integers], shuffle: int | None) -> Integers:
    """Return which row each node sees in each round, ``(T, J)``.

    ``shuffle`` seeds the order of a node's rows; None keeps that of the table. The node with most rows sets the number
    of rounds; one with fewer sees its rows again from the first.
    """
    order = [np.sort(rows) if shuffle is None else rows[permutation(len(rows), shuffle)] for rows in own]
    return np.stack([np.resize(rows, max(map(len, order))) for rows in order], axis=1)


def _slices(order: Integers, parts: int) -> list[Integers]:
    size = len(order) // parts
    return list(order[: parts * size].reshape(parts, size))


def _classes(y: npt.NDArray[Any]) -> tuple[Integers, Integers]:
    """Return the number of every row's class, and how many rows the classes have."""
    if y.ndim == 1:
        values, label, counts = np.unique(y, return_inverse=True, return_counts=True)
        if len(values) <= MOST_CLASSES:
            return label, counts
    raise InputError(
        f"y of shape {y.shape} with {len(np.unique(y))} values; label skew takes a class a row, of {MOST_CLASSES} at "
        "most; split by Position() or Column()"
    )


def _log_gammas(shapes: Floats, seed: int) -> Floats:
    """Return the logarithms of gamma variates (Marsaglia and Tsang), those of shape a as of a + 1 times u^(1/a)."""
    key = noise.fold(noise.key(seed, "partition shares"), np.arange(shapes.size)[:, None])
    u = noise.uniforms(key, 3 * PROPOSALS + 1).reshape(*shapes.shape, -1)
    angle, radius, accept = (u[..., k * PROPOSALS : (k + 1) * PROPOSALS] for k in range(3))
    d = (shapes + 2 / 3)[..., None]
    normal = np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle)
    v = np.maximum(1 + normal / np.sqrt(9 * d), 1e-9) ** 3
    good = np.log(accept) < normal**2 / 2 + d - d * v + d * np.log(v)
    first = np.take_along_axis(d * v, np.argmax(good, axis=-1)[..., None], axis=-1)[..., 0]
    return np.asarray(np.log(first) + np.log(u[..., -1]) / shapes)
