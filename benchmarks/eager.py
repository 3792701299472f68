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
from omkl.methods import Gossip, Info, Method, Neighbors, Network, Round
from omkl.sending import Pace
from omkl.topology import Topology
from omkl.wire import message_bytes

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
    key = noise.fold(noise.key(seed, "quantizer"), np.arange(nodes)[:, None])
    shape = (len(method.kernels), outputs, method.sent)
    state = method.init(np, (nodes,), outputs, spectrum)

    def dither(round_: int) -> Floats | None:
        return noise.dither(noise.fold(key, round_), shape) if method.dithered else None

    for t, inputs in enumerate(zip(z, targets, strict=True)):
        if isinstance(method, Gossip) and method.pace is not None:
            sample = Round(*inputs, None)
            after, info = _paced(method, state, sample, network(t), method.pace, dither, t)
        else:
            sample = Round(*inputs, dither(t), t)
            after, info = method.step(state, sample, network(t))
        state = after if seen is None or seen[t].all() else _rested(state, after, info, seen[t])
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


def _paced(
    method: Gossip, state: Any, sample: Round, network: Network, pace: Pace, dither: Callable[[int], Any], t: int
) -> tuple[Any, Info]:
    """Return the state after as many rounds of gossip as go with sample t, and the sample; messages are added up."""
    sent = np.zeros(len(sample.y))
    for round_ in range(int(pace.rounds(t)), int(pace.rounds(t + 1))):
        state, message = method.gossip(state, dither(round_), network, round_)
        sent += message_bytes(message, method.channel)
    state, info = method.learn(state, sample)
    return state, info._replace(message_bytes=sent)


def _rested(before: Any, after: Any, info: Info, seen: npt.NDArray[np.bool_]) -> Any:
    """Return the state in which nodes without a sample have what they would have predicted with."""
    own = {name: getattr(before, name) for name in ("memory", "moved") if hasattr(before, name)}
    rest = after._replace(theta=info.theta, log_weights=info.log_weights, **own)

    def chosen(new: Any, old: Any) -> Any:
        if isinstance(new, tuple):
            parts = map(chosen, new, old)
            return type(new)(*parts) if hasattr(new, "_make") else tuple(parts)
        return np.where(seen.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

    return chosen(after, rest)
