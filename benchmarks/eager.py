"""Rounds of a method in NumPy, as it states them and without compiling: for many settings, each run once.

Nodes need not have a sample in every round, nor the same links.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from omkl import features, noise
from omkl.features import Features
from omkl.methods import Info, Method, Neighbors, Round
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
    network: Callable[[int], Neighbors],
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
    key = noise.fold(noise.key(seed, "quantizer"), np.arange(nodes)[:, None])
    shape = (len(method.kernels), outputs, method.sent)
    state = method.init(np, (nodes,), outputs, spectrum)
    for t, inputs in enumerate(zip(z, targets, strict=True)):
        round_ = Round(*inputs, noise.dither(noise.fold(key, t), shape) if method.dithered else None)
        after, info = method.step(state, round_, network(t))
        state = after if seen is None or seen[t].all() else _rested(state, after, info, seen[t])
        yield Moment(state, info, round_)


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


def _rested(before: Any, after: Any, info: Info, seen: npt.NDArray[np.bool_]) -> Any:
    """Return the state in which nodes without a sample have what they would have predicted with."""

    def kept(new: Floats, old: Floats) -> Floats:
        return np.where(seen.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    memory = [kept(*parts) for parts in zip(after.memory, before.memory, strict=True)]
    return after._replace(
        theta=kept(after.theta, info.theta),
        log_weights=kept(after.log_weights, info.log_weights),
        memory=after.memory._make(memory) if hasattr(after.memory, "_make") else tuple(memory),
    )
