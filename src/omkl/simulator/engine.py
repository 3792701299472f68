"""Run methods on a whole network under many seeds, dealt out to threads or devices.

Arrays are ``(J, S, ...)``: nodes first, so that mixing is one product with everything else folded into its columns;
seeds second. Several cases, each a method on a network, may share a pass: the same samples, features and dither,
computed once.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.arrays import Array
from omkl.blas import one_thread
from omkl.errors import DivergedError
from omkl.features import Features
from omkl.methods import Method, Network
from omkl.methods.protocol import MethodState
from omkl.simulator import lanes, tiles
from omkl.simulator.cache import kept_programs
from omkl.simulator.faults import Changing
from omkl.simulator.measures import metrics
from omkl.simulator.placement import Placement
from omkl.simulator.rounds import LEADING, Given, Measure, Program, chunks, compiled, most_rounds, reach
from omkl.simulator.watching import Look, Showing
from omkl.simulator.waves import LIMIT

HERE = Placement()
ADVICE = "lower gamma or eta, scale the data, or use a quantizer with a larger delta (see omkl explain)"

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the rounds done and the rounds in all."""


class Case(NamedTuple):
    """A method on a network."""

    method: Method
    network: Network | Changing


class Audience(NamedTuple):
    """Who looks at the first case, at which nodes, and after how many rounds at least again."""

    nodes: tuple[int, ...]
    every: int
    see: Callable[[Look], None]


class Problem(NamedTuple):
    """What all cases of a pass share: inputs ``(T, J, d)``, targets ``(T, J, C)``, and every seed's features."""

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]
    features: Features
    """Frequencies ``(S, P, D, d)``, and the basis that they have, if any."""
    seeds: list[int]
    every: int = 1
    """Every so many rounds are measured."""

    def share(self, which: npt.NDArray[np.int64]) -> "Problem":
        """Return the same for some of the seeds."""
        features = jax.tree.map(lambda part: part[which], self.features)
        return self._replace(features=features, seeds=[self.seeds[s] for s in which])


def run(
    problem: Problem,
    cases: Sequence[Case],
    measure: Measure,
    progress: Progress | None = None,
    place: Placement = HERE,
    audience: Audience | None = None,
) -> list[tuple[MethodState, Any]]:
    """Return, for every case, the state after the last round and what was measured, as NumPy arrays.

    The kernels of a case are the first of those the features were drawn for. On a CPU the seeds are dealt to as many
    threads as there are cores: XLA by itself shares out large networks only. Networks are those of the ``place`` that
    the run has. An audience is shown the first seed; what it sees is computed as stated, by no loops of ``fused``.
    """
    threads = _threads() if place == HERE else 1
    shares = [share for share in np.array_split(np.arange(len(problem.seeds)), threads) if len(share)]
    stop, pool = threading.Event(), ThreadPoolExecutor(len(shares))
    tell = progress or _tell_nobody
    rest = [problem.share(share) for share in shares[1:]]
    with kept_programs(), one_thread() if len(shares) > 1 else nullcontext():
        others = [pool.submit(_run_share, share, cases, measure, _tell_nobody, stop, place) for share in rest]
        try:
            # The first share runs here, where Ctrl-C arrives and the caller's progress is called.
            outcomes = [_run_share(problem.share(shares[0]), cases, measure, tell, stop, place, audience)]
            outcomes += [other.result() for other in others]
        finally:
            stop.set()
            _await(others)
            pool.shutdown()
    return [jax.tree.map(_join_seeds, *parts) for parts in zip(*outcomes, strict=True)]


def _tell_nobody(done: int, rounds: int) -> None:
    pass


def _await(work: Sequence[Future[Any]]) -> None:
    """Wait for work to end, also through a second Ctrl-C: an interpreter that ends beneath a thread aborts.

    On the futures, not the threads: a join that is interrupted may take a running thread for ended.
    """
    while True:
        try:
            wait(work)
        except KeyboardInterrupt:
            continue
        return


def _threads() -> int:
    if jax.default_backend() != "cpu":
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _seeded(network: Changing, seeds: list[int], place: Placement) -> Changing:
    placed: Changing = jax.tree.map(lambda leaf: place.put(np.asarray(leaf)), network.seeded(seeds))
    return placed


def _join_seeds(*parts: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return arrays ``(J, S, ...)`` or ``(rounds, S, ...)`` joined along the seeds; what has no such axis is common."""
    return np.concatenate(parts, axis=1) if len(parts) > 1 and parts[0].ndim > 1 else parts[0]


def _run_share(
    problem: Problem,
    cases: Sequence[Case],
    measure: Measure,
    progress: Progress,
    stop: threading.Event,
    place: Placement,
    audience: Audience | None = None,
) -> list[tuple[MethodState, Any]]:
    """Return the outcomes for some seeds; nothing where stopped."""
    if audience is not None:
        measure = Showing(measure, audience.nodes)
    drawn = problem.features.frequencies
    if measure is metrics and place == HERE and drawn is not None and lanes.suits(problem.X, drawn, cases):
        return _run_fused(problem, cases, progress, stop)
    X, y, features, seeds, every = problem
    rounds, nodes, inputs = X.shape
    base = noise.fold(noise.key(seeds, "quantizer"), np.arange(nodes)[:, None, None])
    methods = tuple(method for method, _ in cases)
    networks = tuple(_seeded(one, seeds, place) if isinstance(one, Changing) else one for _, one in cases)
    placed = jax.tree.map(partial(place.put, seeds=0), features)
    given = Given(placed, noise.Key(*(place.put(part, **LEADING) for part in base)), networks)
    states = place.start(lambda: _start(methods, (nodes, len(seeds)), y.shape[-1], features.spectrum))
    near = drawn is not None and reach(X, (placed if isinstance(X, jax.Array) else features).frequencies) < LIMIT
    tiled = near and place == HERE and tiles.ready()
    rank = 0 if features.basis is None else features.basis.shape[-1]
    marks = features.landmarks
    kernels, count = drawn.shape[1:3] if marks is None else (1, marks.shape[-2])
    most = most_rounds(nodes, inputs, len(seeds), kernels, count, rank) * place.devices
    if audience is not None:
        most = min(most, max(audience.every, every))
    recorded = []
    for first, last, group, measured in chunks(rounds, every, most):
        if stop.is_set():
            return []
        program = Program(place, methods, measure, near, group, measured, tiled)
        samples = (place.put(part if last - first == rounds else part[first:last], nodes=1) for part in (X, y))
        states, records = compiled()(program, states, np.arange(first, last, dtype=np.uint32), *samples, given)
        if measured:
            recorded.append(jax.device_get(records))
            for part in recorded[-1]:
                _require_finite(part[0], last, every, seeds)
            if audience is not None:
                _, network, seen = recorded[-1][0]
                audience.see(Look(np.arange(first // every + 1, last // every + 1) * every - 1, network, seen))
                recorded[-1] = [shown.network for shown in recorded[-1]]
        progress(last, rounds)
    final = place.take(states)
    _require_finite_models(final, rounds)
    joined = jax.tree.map(lambda *parts: np.concatenate(parts), *recorded)
    return list(zip(final, joined, strict=True))


def _start(methods: Sequence[Method], leading: tuple[int, int], outputs: int, spectrum: Array | None) -> list[Any]:
    """Return the states before the first round; a method has the first of the kernels."""
    own = [None if spectrum is None else jnp.asarray(spectrum[:, : method.bank.members]) for method in methods]
    return [method.init(jnp, leading, outputs, part) for method, part in zip(methods, own, strict=True)]


def _run_fused(
    problem: Problem, cases: Sequence[Case], progress: Progress, stop: threading.Event
) -> list[tuple[MethodState, Any]]:
    """Return the same by the loops of ``fused``, case after case."""
    outcomes = []
    rounds = len(problem.X)
    for k, case in enumerate(cases):

        def passed(last: int, losses: npt.NDArray[np.float32], k: int = k) -> None:
            _require_finite(losses, last, problem.every, problem.seeds)
            progress((k * rounds + last) // len(cases), rounds)

        X, y, features, seeds, every = problem
        outcome = lanes.run(X, y, features.frequencies, seeds, every, *case, passed, stop)
        if outcome is None:
            return []
        _require_finite_models(outcome[0], rounds)
        outcomes.append(outcome)
    return outcomes


def _require_finite_models(states: MethodState, rounds: int) -> None:
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(states)):
        raise DivergedError(f"a model is not finite after {rounds} rounds; a run must stay finite; {ADVICE}")


def _require_finite(loss: npt.NDArray[np.float32], last: int, every: int, seeds: list[int]) -> None:
    """Refuse losses that are not finite; the last row is that of the last round before ``last`` to be recorded."""
    bad = np.argwhere(~np.isfinite(loss))
    if len(bad):
        row, s = bad[0]
        t = (last // every - len(loss) + row + 1) * every - 1
        raise DivergedError(
            f"the loss is {loss[row, s]} at round {t} of seed {seeds[s]}; a run must stay finite; {ADVICE}"
        )
