"""Runs by JAX: chunks of rounds as compiled scans, on an accelerator, over several devices, or on threads of a CPU."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.arrays import Array, namespace
from omkl.blas import one_thread
from omkl.methods import Method, Network
from omkl.methods.clipping import clips
from omkl.methods.protocol import MethodState
from omkl.process import cores
from omkl.simulator.cache import kept_programs
from omkl.simulator.changing import Changing, changing
from omkl.simulator.engine import (
    Audience,
    Case,
    Measure,
    Problem,
    Progress,
    require_finite,
    require_finite_models,
    tell_nobody,
)
from omkl.simulator.numbers import Numbers, split_all
from omkl.simulator.placement import Placement
from omkl.simulator.rounds import (
    LEADING,
    Chunk,
    Given,
    Program,
    Running,
    Samples,
    Span,
    chunks,
    compiled,
    is_paced,
    most_rounds,
    segments,
)
from omkl.simulator.watching import Look, Showing
from omkl.topology import Faults

HERE = Placement()


def run(
    problem: Problem,
    cases: Sequence[Case],
    measure: Measure,
    progress: Progress,
    place: Placement | None = None,
    audience: Audience | None = None,
) -> list[tuple[MethodState, Any]]:
    """Return the outcome of every case.

    On a CPU the seeds are dealt to as many threads as there are cores: XLA by itself shares out large networks only.
    """
    place = place or HERE
    threads = cores() if place == HERE and jax.default_backend() == "cpu" else 1
    shares = [share for share in np.array_split(np.arange(len(problem.seeds)), threads) if len(share)]
    stop, pool = threading.Event(), ThreadPoolExecutor(len(shares))
    rest = [problem.share(share) for share in shares[1:]]
    with kept_programs(), one_thread() if len(shares) > 1 else nullcontext():
        others = [pool.submit(_run_share, share, cases, measure, tell_nobody, stop, place) for share in rest]
        try:
            # The first share runs here, where Ctrl-C arrives and the caller's progress is called.
            outcomes = [_run_share(problem.share(shares[0]), cases, measure, progress, stop, place, audience)]
            outcomes += [other.result() for other in others]
        finally:
            stop.set()
            _await(others)
            pool.shutdown()
    return [jax.tree.map(_join_seeds, *parts) for parts in zip(*outcomes, strict=True)]


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


def network(case: Case, seeds: list[int], place: Placement) -> Network | Changing:
    """Return the network of a case as JAX mixes it."""
    each = clips(case.method)
    if not case.changes:
        return place.network(case.turns[0], each)
    made = changing(case.turns, case.faults or Faults(), seeds, each)
    placed: Changing = jax.tree.map(lambda leaf: place.put(np.asarray(leaf)), made)
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
    X, y, features, seeds, every = problem
    rounds, nodes, _ = X.shape
    methods = tuple(case.method for case in cases)
    skeletons, numbers = split_all(methods)
    given = _given(problem, cases, numbers, place)
    running = place.start(lambda: _start(methods, (nodes, len(seeds)), y.shape[-1], features.spectrum))
    most = _most_rounds(problem) * place.devices
    if audience is not None:
        most = min(most, max(audience.every, every))
    starts = tuple(_starts(method, rounds) for method in methods)
    made = chunks(rounds, every, most, None if jax.default_backend() == "cpu" else _steady(starts, rounds))
    records = Records(problem, progress, audience)
    for chunk in made:
        if stop.is_set():
            return []
        group = every if chunk.in_blocks else int(every == 1)
        program = Program(place, skeletons, measure, group, chunk.in_blocks)
        cut = partial(_cut, chunk=chunk, length=_length(chunk, made))
        times, placed = np.arange(rounds, dtype=np.uint32), (place.put(cut(part), nodes=1) for part in (X, y))
        samples = Samples(cut(times), jax.tree.map(cut, starts), *placed)
        running, found = compiled()(program, running, _span(chunk, made, every), samples, given)
        records.add(chunk, found)
    joined = records.joined()
    final = place.take(running.states)
    for state in final:
        require_finite_models(state, rounds)
    return list(zip(final, joined, strict=True))


class Records:
    """What chunks have measured, collected when the next one is under way: a device need not wait for that."""

    def __init__(self, problem: Problem, progress: Progress, audience: Audience | None) -> None:
        self._problem, self._progress, self._audience = problem, progress, audience
        self._collected: list[Any] = []
        self._waiting: list[tuple[Chunk, Any]] = []

    def add(self, chunk: Chunk, found: Any) -> None:
        """Take what is measured in a chunk, and collect that of the one before."""
        self._waiting.append((chunk, found))
        if len(self._waiting) > 1:
            self._collect(*self._waiting.pop(0))

    def joined(self) -> Any:
        """Return all records, after the last chunk."""
        self._collect(*self._waiting.pop())
        return jax.tree.map(lambda *parts: np.concatenate(parts), *self._collected)

    def _collect(self, chunk: Chunk, found: Any) -> None:
        every, rounds = self._problem.every, len(self._problem.X)
        first, last = chunk.first // every, chunk.last // every
        if last > first:
            found = jax.tree.map(lambda part: part[: last - first], jax.device_get(found))
            for part in found:
                require_finite(part[0], chunk.last, every, self._problem.seeds)
            if self._audience is not None:
                _, network, nodes = found[0]
                self._audience.see(Look(np.arange(first + 1, last + 1) * every - 1, network, nodes))
                found = [shown.network for shown in found]
            self._collected.append(found)
        self._progress(chunk.last, rounds)


def _given(problem: Problem, cases: Sequence[Case], numbers: tuple[Numbers, ...], place: Placement) -> Given:
    """Return what is the same in every chunk, placed."""
    nodes, seeds = problem.X.shape[1], problem.seeds
    key = noise.fold(noise.key(seeds, "quantizer"), np.arange(nodes)[:, None, None])
    return Given(
        jax.tree.map(partial(place.put, seeds=0), problem.features),
        noise.Key(*(place.put(part, **LEADING) for part in key)),
        tuple(network(case, seeds, place) for case in cases),
        jax.tree.map(place.put, numbers),
    )


def _most_rounds(problem: Problem) -> int:
    """Return how many rounds a chunk has at most on one device."""
    (_, nodes, inputs), features = problem.X.shape, problem.features
    rank = 0 if features.basis is None else features.basis.shape[-1]
    marks = features.landmarks
    kernels, count = features.frequencies.shape[1:3] if marks is None else (1, marks.shape[-2])
    return most_rounds(nodes, inputs, len(problem.seeds), kernels, count, rank)


def _length(chunk: Chunk, made: Sequence[Chunk]) -> int:
    """Return how many rounds the program of a chunk takes: one that is not in blocks as many as the longest."""
    alike = [chunk] if chunk.in_blocks else [one for one in made if not one.in_blocks]
    return max(one.last - one.first for one in alike)


def _span(chunk: Chunk, made: Sequence[Chunk], every: int) -> Span:
    """Return the segments of a chunk, filled up to as many as any chunk has."""
    ends, alike = segments(chunk, every), [one for one in made if one.in_blocks is chunk.in_blocks]
    more = max(len(segments(one, every)) for one in alike) - len(ends)
    return Span(np.int32(len(ends)), np.array([*ends, *[0] * more], np.int32), np.uint32(every))


def _starts(method: Method, rounds: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]] | None:
    """Return the first round of gossip of every sample, and that of the next; None where each sample has one."""
    if not is_paced(method) or method.schedule is None:
        return None
    starts = np.array([method.schedule.rounds(t) for t in range(rounds + 1)], np.uint32)
    return starts[:-1], starts[1:]


def _steady(starts: Sequence[Any], rounds: int) -> int:
    """Return from which sample on each has one round of gossip."""
    others = [np.flatnonzero(one[1] - one[0] != 1) for one in starts if one is not None]
    return max((int(one[-1]) + 1 for one in others if len(one)), default=0)


def _cut(part: Array, chunk: Chunk, length: int) -> Array:
    """Return the rounds of a chunk, the last again and again where there are to be more."""
    missing = length - (chunk.last - chunk.first)
    if not missing:
        return part if len(part) == length else part[chunk.first : chunk.last]
    xp = namespace(part)
    return xp.concat([part[chunk.first : chunk.last], xp.repeat(part[chunk.last - 1 : chunk.last], missing, axis=0)])


def _start(methods: Sequence[Method], leading: tuple[int, int], outputs: int, spectrum: Array | None) -> Running:
    """Return what there is before the first round; a method has the first of the kernels."""
    own = [None if spectrum is None else jnp.asarray(spectrum[:, : method.bank.members]) for method in methods]
    states = [method.init(jnp, leading, outputs, part) for method, part in zip(methods, own, strict=True)]
    return Running(states, [jnp.zeros(leading) if is_paced(method) else () for method in methods])
