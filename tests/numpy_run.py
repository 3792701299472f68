"""The algorithm run by NumPy alone, round by round: what the simulator is held against."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from omkl import features, noise
from omkl.methods import Gossip, Info, Method, Neighbors, Network, Round
from omkl.topology import Topology
from omkl.wire import message_bytes


class NumpyRun(NamedTuple):
    state: Any
    loss: np.ndarray


def run(
    method: Method, X: np.ndarray, y: np.ndarray, topology: Topology | Callable[[int], Network], seed: int
) -> NumpyRun:
    states, infos, _ = zip(*play(method, X, y, topology, seed), strict=True)
    return NumpyRun(states[-1], np.array([info.loss for info in infos]))


def count_flips(
    method: Gossip, X: np.ndarray, y: np.ndarray, topology: Topology, step: Callable[[Any, Round], Any]
) -> tuple[int, int]:
    """Return how many levels another executor's ``step`` chose differently from the same states, and of how many."""
    before = method.init(np, X.shape[1:2], 1)
    flips = levels = 0
    for after, _, round_ in play(method, X, y, topology, seed=0):
        flips += int(np.count_nonzero(np.asarray(step(before, round_).hidden) != after.hidden))
        levels += after.hidden.size
        before = after
    return flips, levels


def play(
    method: Method, X: np.ndarray, y: np.ndarray, topology: Topology | Callable[[int], Network], seed: int
) -> Iterator[tuple[Any, Info, Round]]:
    """Yield state, info and inputs of every round; the network is a topology, or what it is in round t."""
    if isinstance(topology, Topology):
        index, weights = topology.neighbors()
        fixed = Neighbors(index, weights.astype(np.float32))
    rounds, nodes, dimension = X.shape
    drawn = method.draw(dimension, seed, X)
    targets = method.objective.encode(y)
    key = noise.fold(noise.key(seed, "quantizer"), np.arange(nodes)[:, None])
    shape = (len(method.kernels), targets.shape[-1], method.sent)
    state = method.init(np, (nodes,), targets.shape[-1], drawn.spectrum)
    for t in range(rounds):
        here = fixed if isinstance(topology, Topology) else topology(t)
        uniforms = noise.dither(noise.fold(key, t), shape) if method.dithered else None
        round_ = Round(features.transform(X[t], drawn), targets[t], uniforms, t)
        if isinstance(method, Gossip) and method.pace is not None:
            state, info = paced(method, state, round_, here, key, t)
        else:
            state, info = method.step(state, round_, here)
        yield state, info, round_


def paced(method: Gossip, state: Any, round_: Round, network: Network, key: noise.Key, t: int) -> tuple[Any, Info]:
    assert method.pace is not None
    assert round_.uniforms is None or method.dithered
    sent = 0.0
    for at in range(int(method.pace.rounds(t)), int(method.pace.rounds(t + 1))):
        uniforms = noise.dither(noise.fold(key, at), state.hidden.shape[1:]) if method.dithered else None
        state, message = method.gossip(state, uniforms, network, at)
        sent = sent + message_bytes(message, method.channel)
    state, info = method.learn(state, round_)
    return state, info._replace(message_bytes=sent)
