"""The way to and from ``fused``: which runs suit it, and the network with seeds as the last axis.

Numba is optional. Without it, or for methods that the compiled loops do not know, the engine's own rounds serve.
"""

import math
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import numpy.typing as npt

from omkl import noise, wire
from omkl.algorithm import State
from omkl.losses import Logistic, Softmax, Squared
from omkl.methods import Gossip, Method
from omkl.methods.plain import is_plain
from omkl.quantizers import QSGD, Exact, Nearest, Quantizer
from omkl.simulator.measures import Metrics
from omkl.simulator.networks import Dense, Edges, Hubs, Lists
from omkl.simulator.rounds import reach
from omkl.simulator.waves import LIMIT
from omkl.wire.coded import ELEMENTS

if TYPE_CHECKING:
    from omkl.simulator import fused

FEWEST_SEEDS = 8  # below, vectors are mostly empty
LEAST_WORK = 10**8  # numbers of models times rounds; below, loading the compiled loops takes longer than the run
ANGLE_BYTES = 2 * 2**20  # of projections at a time: they should stay in the cache
LONG_ANGLE_BYTES = 16 * 2**20  # of long inputs: a matrix product reads all frequencies anew for every chunk
LANES = 4  # seeds are filled up to a multiple of this
LONG_INPUT = 64  # numbers

Floats = npt.NDArray[np.float32]


def suits(X: Floats, frequencies: Floats, cases: Sequence[tuple[Method, Any]]) -> bool:
    """Return whether the compiled loops know this run, and are worth their loading."""
    seeds, bank, features, _ = frequencies.shape
    return (
        jax.default_backend() == "cpu"
        and seeds >= FEWEST_SEEDS
        and X.shape[0] * X.shape[1] * seeds * bank * 2 * features >= LEAST_WORK
        and all(knows(*case) for case in cases)
        and reach(X, frequencies) < LIMIT
        and loads()
    )


@cache
def loads() -> bool:
    """Return whether Numba is there, and has a folder to keep what it compiles."""
    try:
        from omkl.simulator import fused  # noqa: F401
    except (ImportError, RuntimeError):
        return False
    return True


def knows(method: Method, network: Any) -> bool:
    """Return whether the loops compute this method on this network."""
    if not is_plain(method, (Logistic, Squared, Softmax), (QSGD, Nearest, Exact)):
        return False
    # The levels of longer vectors go into several numbers on the wire, which the loops do not count.
    long = 2 * method.bank.features > ELEMENTS and not isinstance(method.channel.quantizer, Exact)  # type: ignore[attr-defined]
    return not long and isinstance(network, Dense | Lists | Edges | Hubs)


def run(
    X: Floats,
    y: Floats,
    frequencies: Floats,
    seeds: list[int],
    every: int,
    method: Any,
    network: Any,
    passed: Callable[[int, Floats], None],
    stop: threading.Event,
) -> tuple[State, Metrics] | None:
    """Return the state after the last round and the measured rounds, as the engine does; None where stopped.

    ``passed`` is called after some rounds with their number and the losses recorded among them.
    """
    from omkl.simulator import fused

    rounds, nodes, inputs = X.shape
    kernels, outputs, n, count = len(method.bank.kernels), y.shape[2], 2 * method.bank.features, len(seeds)
    filled = [*seeds, *seeds[:1] * (-count % LANES)]
    V = np.concatenate([frequencies, frequencies[:1].repeat(len(filled) - count, axis=0)])[:, :kernels]
    V = np.ascontiguousarray(V.transpose(3, 1, 2, 0)).reshape(inputs, -1)
    key = noise.fold(noise.key(filled, "quantizer"), np.arange(nodes)[:, None, None])
    theta = np.zeros((nodes, kernels * outputs, n, len(filled)), np.float32)
    hidden, log_weights = np.zeros((2, *theta.shape), np.float32), np.zeros((nodes, kernels, len(filled)), np.float32)
    lanes = fused.Lanes(theta, hidden, log_weights, key.low[..., 0], key.high[..., 0])
    links, settings = _links(network, nodes), _settings(method, n)
    prices = _prices(method.channel.quantizer, kernels * outputs, n)
    recorded = np.empty((rounds // every, fused.WEIGHTS + kernels, len(filled)))
    traffic = np.zeros((rounds // every, 2, len(filled)))
    budget = ANGLE_BYTES if inputs < LONG_INPUT else LONG_ANGLE_BYTES
    length = max(1, budget // (4 * nodes * V.shape[1]))
    angles = np.empty((length, nodes, kernels, n // 2 * len(filled)), np.float32)
    scratch = fused.scratch(kernels * outputs, n, len(filled), kernels)
    for first in range(0, rounds, length):
        if stop.is_set():
            return None
        last = min(first + length, rounds)
        np.matmul(X[first:last].reshape(-1, inputs), V, out=angles[: last - first].reshape(-1, V.shape[1]))
        part = recorded[first // every : last // every]
        targets, times = y[first:last], np.arange(first, last)
        bytes_ = traffic[first // every : last // every]
        fused.advance(times, lanes, links, angles, targets, settings, prices, every, scratch, part, bytes_)
        passed(last, part[:, fused.LOSS, :count])
    models, shadows = (_seeds_second(part[..., :count]) for part in (theta, hidden[rounds % 2]))
    shape = (nodes, count, kernels, outputs, n)
    state = State(models.reshape(shape), shadows.reshape(shape), _seeds_second(log_weights[..., :count]), ())
    loss, score, disagreement, *weights = recorded[..., :count].swapaxes(0, 1).astype(np.float32)
    sent, carried = traffic[..., :count].swapaxes(0, 1).astype(np.float32)
    return state, Metrics(loss, score, disagreement, np.stack(weights, axis=-1), sent, carried)


def _seeds_second(array: Floats) -> Floats:
    return np.moveaxis(array, -1, 1)


def _settings(method: Gossip, n: int) -> "fused.Settings":
    from omkl.simulator import fused

    loss = {Logistic: fused.LOGISTIC, Squared: fused.SQUARED, Softmax: fused.SOFTMAX}[type(method.objective)]
    kind, levels, scale = fused.EXACT, 0.0, 1.0
    match method.channel.quantizer:
        case QSGD() as channel:
            kind, levels, scale = fused.QSGD, channel.levels, channel.tau(n)
        case Nearest() as channel:
            kind, levels, scale = fused.NEAREST, channel.most(n), channel.step / math.sqrt(n)
    eta, f = method.learner.eta, np.float32  # type: ignore[attr-defined]
    rates = f(method.mixing.step), f(eta), f(method.hedge_rate), f(method.regularization)
    return fused.Settings(*rates, loss, kind, f(levels), f(scale), f(method.bank.features**-0.5))


def _prices(quantizer: Quantizer, rows: int, n: int) -> "fused.Prices":
    """Return what ``wire.message_bytes`` charges for messages of so many vectors."""
    from omkl.simulator import fused

    f, together = np.float32, max(1, ELEMENTS // n)
    if isinstance(quantizer, QSGD | Nearest):
        costs, frame = wire.costs(quantizer, n), wire.HEADER_BYTES
    else:
        costs, frame = wire.Costs((0.0,), 0, 0, 0, 0, 0, 0), wire.HEADER_BYTES + rows * quantizer.size(n) // 8
    few = len(costs.levels) <= fused.FEW
    powers = np.vander(np.arange(len(costs.levels)), increasing=True)
    curve = np.linalg.solve(powers, costs.levels) if few else np.zeros(fused.FEW)
    return fused.Prices(
        levels=np.array(costs.levels, f),
        few=few,
        curve=tuple(np.pad(curve, (0, fused.FEW - len(curve))).astype(f)),
        last=f(costs.last),
        near=f(costs.near),
        far=f(costs.far),
        silent=f(costs.silent),
        start=f(costs.start),
        together=together,
        lengths=f(2 * (-(-rows // together) - 1)),
        steps=f(2 * rows),
        block=f(costs.width * n / 8),
        frame=f(frame),
    )


def _links(network: Dense | Lists | Edges | Hubs, nodes: int) -> "fused.Links":
    from omkl.simulator import fused

    receiver, sender, weights = network.edges()
    there = weights != 0
    receiver, sender, weights = receiver[there], sender[there], weights[there]
    degrees = np.bincount(receiver, minlength=nodes)
    pairs = np.maximum((degrees + 1) // 2, 1)
    start = np.concatenate([[0], np.cumsum(pairs)])
    # Pairs are filled up with the node itself, which pulls nowhere.
    ids, pulls = np.repeat(np.arange(nodes), 2 * pairs), np.zeros(2 * start[-1], np.float32)
    place = 2 * start[receiver] + np.arange(len(receiver)) - (np.cumsum(degrees) - degrees)[receiver]
    ids[place], pulls[place] = sender, weights
    return fused.Links(start, ids.reshape(-1, 2), pulls.reshape(-1, 2), degrees)
