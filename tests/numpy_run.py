"""The algorithm run by NumPy alone, round by round: what the simulator is held against."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from benchmarks import eager

from omkl import features
from omkl.methods import Gossip, Info, Method, Network, Round, for_inputs
from omkl.topology import Topology


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
    method = for_inputs(method, X.shape[-1])
    drawn = method.bank.draw(X.shape[-1], seed, X)
    z = np.stack([features.transform(x, drawn) for x in X])
    network = eager.fixed(topology) if isinstance(topology, Topology) else topology
    yield from eager.play(method, z, y, network, seed, drawn.spectrum)
