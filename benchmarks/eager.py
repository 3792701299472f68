"""Streams through the rounds of ``omkl.methods.eager``, without compiling: for many settings, each run once."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from omkl import features
from omkl.features import Features
from omkl.methods import Info, Method, Neighbors, Network, Round, eager
from omkl.topology import Topology

AHEAD = 64  # rounds

Floats: TypeAlias = npt.NDArray[Any]
Work = TypeVar("Work")
Done = TypeVar("Done")


class Moment(NamedTuple):
    """A round that is over."""

    state: Any
    info: Info
    inputs: Round


def play(
    method: Method,
    z: Floats,
    y: Floats,
    network: Callable[[int], Network],
    seed: int = 0,
    spectrum: Floats | None = None,
    seen: npt.NDArray[np.bool_] | None = None,
) -> Iterator[Moment]:
    """Yield every round of a stream of features ``z (T, J, P, n)`` and labels ``y (T, J)``.

    ``spectrum`` is that of the basis they are in. Where ``seen (T, J)`` is False a node has no sample: it mixes and
    sends, and learns nothing.
    """
    targets = method.objective.encode(y)
    nodes, outputs = targets.shape[1:]
    state = method.init(np, (nodes,), outputs, spectrum)
    dither = eager.dither(method, nodes, outputs, seed)
    for t, inputs in enumerate(zip(z, targets, strict=True)):
        sample = Round(*inputs, dither(t), t)
        state, info = eager.advance(method, state, sample, network(t), dither, None if seen is None else seen[t])
        yield Moment(state, info, sample)


def mapped(X: Floats, made: Features) -> Floats:
    """Return the features of a stream, some rounds at a time: those before the basis are many."""
    return np.concatenate([features.transform(X[t : t + AHEAD], made) for t in range(0, len(X), AHEAD)])


def fixed(topology: Topology) -> Callable[[int], Neighbors]:
    """Return a network that stays as it is."""
    index, weights = topology.neighbors()
    network = Neighbors(index, weights.astype(np.float32))
    return lambda t: network


def in_processes(work: Callable[[Work], Done], items: Iterable[Work]) -> Iterator[Done]:
    """Yield what a function of a module makes of each item, in order, all cores at work on them."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # processes that begin now read them
        os.environ[name] = "1"
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, items)
