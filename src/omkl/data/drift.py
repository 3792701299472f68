"""Drift: streams that become others. What a node sees in a round is of one source or another, at the same place."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.data.files import Floats
from omkl.data.streams import Stream
from omkl.errors import InputError, whole


def abrupt(sources: Sequence[Stream], at: Sequence[int] | None = None) -> Stream:
    """Return a stream that changes to the next source at these rounds; None is at even distances.

    >>> ones, twos = (Stream(np.zeros((4, 1, 1), np.float32), np.full((4, 1), k, np.float32)) for k in (1, 2))
    >>> abrupt([ones, twos]).y[:, 0].tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    rounds, nodes = _shape(sources)
    at = [k * rounds // len(sources) for k in range(1, len(sources))] if at is None else at
    if len(at) != len(sources) - 1 or list(at) != sorted(at):
        raise InputError(f"at is {list(at)}; {len(sources)} sources change {len(sources) - 1} times; name these rounds")
    which = np.searchsorted(np.asarray(at), np.arange(rounds), side="right")
    return switched(sources, np.broadcast_to(which[:, None], (rounds, nodes)))


def gradual(sources: Sequence[Stream], start: int, end: int, seed: int = 0) -> Stream:
    """Return a stream of the first of two sources until ``start``, of the second from ``end`` on.

    In between every sample is of the second with a probability that rises evenly, drawn for each node and round.
    """
    rounds, nodes = _shape(sources)
    if len(sources) != 2 or not 0 <= start <= end:
        raise InputError(
            f"{len(sources)} sources, from {start} to {end}; two change over in a span; give 0 <= start <= end"
        )
    drawn = noise.uniforms(noise.key(whole("seed", seed, 0), "drift"), rounds * nodes).reshape(rounds, nodes)
    chance = (np.arange(rounds) - start + 1) / (end - start + 1)
    return switched(sources, (drawn < chance[:, None]).astype(int))


def recurring(sources: Sequence[Stream], period: int) -> Stream:
    """Return a stream of the sources in turn, each for ``period`` rounds, over and over."""
    rounds, nodes = _shape(sources)
    which = np.arange(rounds) // whole("period", period) % len(sources)
    return switched(sources, np.broadcast_to(which[:, None], (rounds, nodes)))


def switched(sources: Sequence[Stream], which: npt.NDArray[np.integer]) -> Stream:
    """Return the stream that has at every round and node what the source of that number has there."""
    _shape(sources)
    t, j = np.indices(which.shape)
    X, y = (np.stack(parts)[which, t, j] for parts in zip(*sources, strict=True))
    return Stream(X, y)


def relabeled(stream: Stream, labels: Mapping[float, float]) -> Stream:
    """Return the stream with some labels changed to others, such as ``{3: 8, 8: 3}`` or ``{-1: 1, 1: -1}``."""
    y: Floats = stream.y.copy()
    for old, new in labels.items():
        y[stream.y == old] = new
    return stream._replace(y=y)


def _shape(sources: Sequence[Stream]) -> tuple[int, int]:
    """Return rounds and nodes; refuse sources that differ in shape."""
    shapes = {(one.X.shape, one.y.shape) for one in sources}
    if len(shapes) != 1:
        raise InputError(
            f"sources of shapes {sorted(shapes)}; they must be one or more of one shape; cut the longer ones"
        )
    ((rounds, nodes, _),) = (shape for shape, _ in shapes)
    return rounds, nodes
