"""Runs by compiled loops, on a CPU: seeds are dealt to threads, and so are the nodes of one large network.

Features of many samples at once are matrix products. What follows is the text of ``omkl.compiled``, node by node, with
the models of a node in the cache.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.blas import one_thread
from omkl.compiled import network, plan, rounds, states
from omkl.compiled.jit import Words
from omkl.compiled.mapping import Mapping
from omkl.compiled.network import Links, Records, Span
from omkl.methods import Gossip, clipping
from omkl.methods.ensemble import Ensemble
from omkl.methods.local import LocalState
from omkl.methods.protocol import MethodState
from omkl.process import cores
from omkl.simulator.engine import Case, Problem, Progress, require_finite, require_finite_models
from omkl.simulator.faults import Wires
from omkl.simulator.measures import Metrics

ROWS = 1024  # samples whose features are computed at once: their similarities to landmarks then stay in the cache
LARGE = 2000  # nodes from which on threads share the rounds of a network; of a smaller one they have a seed each
LOOK = 0.1  # seconds after which progress is told

Floats = npt.NDArray[np.float32]


class Stopped(Exception):
    """Another seed has failed, or the caller has had enough."""


class Run:
    """One method on one network, under one seed."""

    def __init__(self, case: Case, problem: Problem, s: int) -> None:
        y, self._talks = problem.y, isinstance(case.method, Gossip)
        assert isinstance(case.method, Ensemble)
        method = plan.gossiping(case.method)
        count, nodes, outputs = y.shape
        seed, spectrum = problem.seeds[s], problem.features.spectrum
        spectrum = None if spectrum is None else spectrum[s, : method.members]
        self._wires = Wires(case.turns, case.faults, seed)
        self._start = method.init(np, (nodes,), outputs, spectrum)
        self.numbers = plan.numbers(case.method, outputs, spectrum)
        self._nodes, hidden = states.gathered(self._start, self.numbers)
        self._hidden = np.stack([hidden, hidden])
        key = noise.fold(noise.key(seed, "quantizer"), np.arange(nodes)[:, None])
        self._keys = np.concatenate([key.low, key.high], axis=1)
        schedule = method.schedule
        self._starts = np.zeros(count + 1, int)
        if self._talks:
            self._starts[:] = [t if schedule is None else schedule.rounds(t) for t in range(count + 1)]
        self._radii = _radii(method, self._start, int(self._starts[-1]))
        self._span = Span(0, 0, nodes, problem.every, schedule is not None)
        self._records = _records(self.numbers, self._nodes, count // problem.every)
        self._room = rounds.room(self.numbers)
        ends = np.linspace(0, nodes, cores() + 1).astype(int).tolist()
        self._parts = [Part(self, first, last) for first, last in pairwise(ends)] if nodes >= LARGE else []

    def advance(self, first: int, z: Floats, y: Floats) -> Floats:
        """Take the network through samples from number ``first`` on, of features ``(T, J, P, n)``; return losses."""
        last, records = first + len(z), self._recorded(first, first + len(z))
        given = self._starts[first : last + 1], np.ascontiguousarray(z[:, :, : self.numbers.kernels]), y
        network.advance(
            self.numbers, self._nodes, self._hidden, self._links(first, last), self._keys, self._radii, *given,
            self._span._replace(t=first), records, self._room,
        )  # fmt: skip
        return self._losses(first, last)

    def share(self, t: int, z: Callable[[slice], Floats], y: Floats, pool: ThreadPoolExecutor) -> Floats:
        """Take the network through sample t as ``advance`` does, its nodes dealt to threads; return its loss.

        ``z`` has the features of some of the nodes, and y all targets ``(J, C)``.
        """
        links, parts, records = self._links(t, t + 1), self._parts, self._records
        if not self._span.averages:
            records.pending[:] = 0
        for round_ in range(self._starts[t], self._starts[t + 1]):
            given = self._hidden, links, self._keys, self._radii, round_
            list(pool.map(Part.gossip, parts, repeat(self), repeat(given)))
        is_measured = (t + 1) % self._span.every == 0
        reference = self._nodes.own[0].reshape(-1, self.numbers.m)[:, : self.numbers.n].copy()
        list(pool.map(lambda part: part.learn(self.numbers, self._nodes, z, y, is_measured, reference), parts))
        for part in parts:
            records.pending[:] += part.taken(part.pending)
        if is_measured:
            self._finish(t, [part.taken(part.sums) for part in parts], sum(part.taken(part.away) for part in parts))
        return self._losses(t, t + 1)

    def _finish(self, t: int, sums: list[Any], away: Any) -> None:
        """Write down a round that was measured in parts."""
        means, row, nodes = sum(sums) / len(self._nodes.own), t // self._span.every, len(self._nodes.own)
        apart = means[network.DISAGREEMENT] - np.sum((away / nodes) ** 2)
        means[network.DISAGREEMENT] = np.sqrt(max(apart, 0))
        self._records.measured[row] = means
        self._records.traffic[row] = self._records.pending / (self._span.every if self._span.averages else 1)
        self._records.pending[:] = 0

    def _links(self, first: int, last: int) -> Links:
        return Links(self._wires.start, self._wires.senders, *self._wires.weights(first, last))

    def _recorded(self, first: int, last: int) -> Records:
        """Return the records of some samples; where none of them is measured, one that is not written to."""
        every, records = self._span.every, self._records
        rows = slice(first // every, last // every) if last // every > first // every else slice(0, 1)
        return records._replace(measured=records.measured[rows], traffic=records.traffic[rows])

    def _losses(self, first: int, last: int) -> Floats:
        every = self._span.every
        return self._records.measured[first // every : last // every, network.LOSS].astype(np.float32)

    def outcome(self) -> tuple[MethodState, Metrics]:
        """Return the state after the last sample, and what was measured, ``(rounds, ...)``."""
        loss, score, disagreement, *weights = self._records.measured.T.astype(np.float32)
        sent, carried = self._records.traffic.T.astype(np.float32)
        measured = Metrics(loss, score, disagreement, np.stack(weights, axis=-1), sent, carried)
        hidden = self._hidden[self._starts[-1] % 2]
        state = states.scattered(self._nodes, hidden, self._start, self.numbers)
        return state if self._talks else LocalState(state.theta, state.log_weights, state.memory), measured


class Part:
    """Some of the nodes of a network, those of one thread, and what is measured of them."""

    def __init__(self, run: Run, first: int, last: int) -> None:
        self._span, self._room = run._span._replace(first=first, last=last), rounds.room(run.numbers)
        self.pending = np.zeros(2)
        self.sums, self.away = np.zeros(run._records.measured.shape[1]), np.zeros(run._records.away.shape)

    def gossip(self, run: Run, given: tuple[Floats, Links, Words, Floats, int]) -> None:
        """Take its nodes through a round of gossip; ``given`` is what ``network.gossip`` takes of it."""
        network.gossip(run.numbers, run._nodes, *given, 0, self._span, self.pending, self._room)

    def learn(
        self, numbers: rounds.Method, nodes: rounds.Nodes, z: Callable[[slice], Floats], y: Floats, is_measured: bool,
        reference: Floats,
    ) -> None:  # fmt: skip
        """Take its nodes through a sample each, some at a time."""
        records = Records(np.zeros((0, 0)), np.zeros((0, 0)), self.pending, reference, self.away)
        for first in range(self._span.first, self._span.last, ROWS):
            some = slice(first, min(first + ROWS, self._span.last))
            span = self._span._replace(first=some.start, last=some.stop)
            network.learn(numbers, nodes, z(some), y[some], span, is_measured, records, self.sums, self._room)

    def taken(self, sums: Any) -> Any:
        """Return sums, which begin anew."""
        found = sums.copy()
        sums[:] = 0
        return found


def _records(s: rounds.Method, nodes: rounds.Nodes, rows: int) -> Records:
    models = s.kernels * s.outputs, s.n
    return Records(
        np.zeros((rows, network.WEIGHTS + nodes.log_weights.shape[1])),
        np.zeros((rows, 2)),
        np.zeros(2),
        np.zeros(models, np.float32),
        np.zeros(models),
    )


def _radii(method: Gossip, start: Any, count: int) -> Floats:
    """Return how far a neighbor counts as at most in every round; one zero where that is not bounded."""
    if method.mixing.clip is None:
        return np.zeros(1, np.float32)
    return np.array([clipping.radius(method, start, round_) for round_ in range(count)], np.float32)


def run(problem: Problem, cases: Sequence[Case], progress: Progress) -> list[tuple[MethodState, Metrics]]:
    """Return the outcome of every case."""
    stop, done, count = threading.Event(), [0] * len(problem.seeds), len(problem.X)

    def tell() -> None:
        progress(sum(done) // len(done), count)

    if problem.X.shape[1] >= LARGE:
        return [
            _joined(every)
            for every in zip(*(_run_large(problem, cases, s, tell, done) for s in range(len(done))), strict=True)
        ]
    with one_thread(), ThreadPoolExecutor(cores()) as pool:
        work = [pool.submit(_run_seed, problem, cases, s, stop, partial(done.__setitem__, s)) for s in range(len(done))]
        try:
            waiting = set(work)
            while waiting:
                ended, waiting = wait(waiting, LOOK, FIRST_EXCEPTION)
                for one in ended:
                    one.result()
                tell()
        finally:
            stop.set()
    outcomes = zip(*(one.result() for one in work), strict=True)
    return [_joined(every) for every in outcomes]


def _joined(every: Sequence[tuple[Any, Metrics]]) -> tuple[MethodState, Metrics]:
    """Return the outcomes of seeds as one: states ``(J, S, ...)`` and curves ``(rounds, S, ...)``."""
    from omkl.storage import mapped

    return mapped(lambda *parts: np.stack(parts, axis=1), *every)  # type: ignore[no-any-return]


def _run_seed(
    problem: Problem, cases: Sequence[Case], s: int, stop: threading.Event, done: Callable[[int], None]
) -> list[tuple[MethodState, Metrics]]:
    """Return the outcomes of a seed."""
    X, y, every = problem.X, problem.y, problem.every
    count, nodes, _ = X.shape
    runs, mapping = [Run(case, problem, s) for case in cases], Mapping(problem.features.of(s))
    length = max(1, ROWS // nodes)
    for first in range(0, count, length):
        if stop.is_set():
            raise Stopped
        last = min(first + length, count)
        rows = mapping.rows(X[first:last].reshape(-1, X.shape[-1]))
        z = rows.reshape(last - first, nodes, *rows.shape[1:])
        for one in runs:
            require_finite(one.advance(first, z, y[first:last])[:, None], last, every, [problem.seeds[s]])
        done(last)
    return _outcomes(runs, count)


def _outcomes(runs: Sequence[Run], count: int) -> list[tuple[MethodState, Metrics]]:
    outcomes = [one.outcome() for one in runs]
    for state, _ in outcomes:
        require_finite_models(state, count)
    return outcomes


def _run_large(
    problem: Problem, cases: Sequence[Case], s: int, tell: Callable[[], None], done: list[int]
) -> list[tuple[MethodState, Metrics]]:
    """Return the outcomes of a seed on a large network, sample after sample, by all threads."""
    runs, mapping = [Run(case, problem, s) for case in cases], Mapping(problem.features.of(s))
    with one_thread(), ThreadPoolExecutor(cores()) as pool:
        for t in range(len(problem.X)):
            for one in runs:
                kernels = one.numbers.kernels

                def z(some: slice, x: Floats = problem.X[t], kernels: int = kernels) -> Floats:
                    return np.ascontiguousarray(mapping.rows(x[some])[:, :kernels])

                require_finite(one.share(t, z, problem.y[t], pool)[:, None], t + 1, problem.every, [problem.seeds[s]])
            done[s] = t + 1
            tell()
    return _outcomes(runs, len(problem.X))
