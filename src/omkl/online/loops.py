"""Rows by the compiled text: those of ``Tracking``, and rounds of other methods in which every node has a row."""

import logging
from typing import Any

import numpy as np

from omkl import noise
from omkl.compiled import features, network, plan, rounds, states, tracking
from omkl.compiled.jit import Floats
from omkl.compiled.learners import LEARNERS
from omkl.compiled.lending import hold
from omkl.compiled.losses import LOSSES
from omkl.compiled.mapping import Mapping
from omkl.learners import Newton, NewtonMemory
from omkl.methods import Gossip, Local, Method, Neighbors
from omkl.methods.ensemble import Ensemble
from omkl.online.calibrating import FARTHEST, Calibrated, line_reach
from omkl.online.tracking import BOUND, MOST_APART, REMEMBERED, SHARPNESS, TINY, Tracking, TrackingState
from omkl.scaling import Floats as Table

log = logging.getLogger(__name__)


def unknown_part(method: Method) -> str | None:
    """Return which part of a method has no compiled text; None where there is one for all."""
    if type(method) is Tracking:
        return None if type(method.objective) in LOSSES else type(method.objective).__name__
    if isinstance(method, Gossip) and method.mixing.clip is not None:
        return "clip"
    return plan.unknown_part(method)


def knows(method: Method) -> bool:
    """Return whether there is compiled text for a method; what there is none for is told."""
    part = unknown_part(method)
    if part is not None:
        log.info("rows run over arrays: %s has no compiled text", part)
    return part is None


class Features:
    """z(x) of rows, in units and features that were calibrated."""

    def __init__(self, made: Calibrated) -> None:
        columns, lines = len(made.inputs.center), made.directions
        factors = np.ones(columns) if made.relevance is None else made.relevance
        self._units, self._factors = made.inputs, factors.astype(np.float32)
        self._mapping, self._near = Mapping(made.features), np.full(columns, FARTHEST)
        self._lines = None if lines is None else np.ascontiguousarray(lines)
        self._far = self._near if lines is None else line_reach(made.features)

    def __call__(self, X: Table) -> Floats:
        """Return the features ``(n, P, r)`` of rows ``(n, d)``, to the bit what each has alone."""
        z = self._mapping.each(self._placed(X, self._near))
        if self._lines is None:
            return z
        line, one = np.zeros((len(X), self._lines.shape[1]), np.float32), np.ones((len(X), 1), np.float32)
        if line.shape[1]:
            features.project(self._placed(X, self._far), self._lines, line)
        return np.concatenate([z[:, 0], line, one], axis=1)[:, None]

    def _placed(self, X: Table, far: Floats) -> Floats:
        to = np.empty((len(X), len(far)), np.float32)
        tracking.place(X, *self._units, far, self._factors, to)
        return to


class Hedged:
    """The steps of ``Tracking``, in one calibration."""

    def __init__(self, made: Calibrated) -> None:
        method, spectrum = made.method, made.features.spectrum
        assert isinstance(method, Tracking)
        assert spectrum is not None
        f, line = np.float32, method.line_rule
        self.features, rule = Features(made), plan.rule(method, method.shown(spectrum))
        numbers = tracking.Method(
            models=rule,
            line=rule._replace(kind=LEARNERS.index(Newton), forget=f(line.forget)),
            forgets=np.array(method.forgets, f),
            sharper=f(method.times[-1]),
            hedge_rate=f(method.hedge_rate),
            loss_gap_cap=f(MOST_APART),
            share=f(method.share),
            stakes=method.dealt(np),
            sharpness=f(SHARPNESS),
            farthest=f(BOUND),
            remembered=f(REMEMBERED),
            least=f(TINY),
        )
        self._numbers = hold(numbers)

    def outputs(self, state: TrackingState, z: Floats) -> Table:
        """Return the outputs ``(n, C)`` of all models together for features ``(n, 1, r)``."""
        found = np.empty((len(z), state.theta.shape[-2]), np.float32)
        tracking.predict(self._numbers, _node(state), z[:, 0], found)
        return found.astype(np.float64)

    def learn(self, state: TrackingState, z: Floats, y: Floats, weight: Floats) -> tuple[TrackingState, Floats]:
        """Return the state after rows of features ``(n, 1, r)`` and targets ``(n, C)``, in order, and their losses."""
        memory, line = state.memory, state.line_memory
        own, log_curvature = memory.own.copy(), memory.log_curvature.copy()
        line = line._replace(root=line.root.copy()) if isinstance(line, NewtonMemory) else line
        state = TrackingState(
            state.theta.copy(), state.log_weights.copy(),
            memory._replace(own=own, count=own, log_curvature=log_curvature), state.line.copy(),
            line, state.spread.copy(),
        )  # fmt: skip
        found = np.empty(len(z), np.float32)
        tracking.learn(self._numbers, _node(state), z[:, 0], y, weight, found)
        return state, found


def _node(state: TrackingState) -> tracking.Node:
    """Return the arrays of the one node."""
    rates, kept = state.theta.shape[1], state.line_memory
    assert isinstance(kept, NewtonMemory)
    return tracking.Node(
        state.theta.reshape(rates, -1), state.memory.own[0], state.memory.log_curvature[0], state.log_weights[0],
        state.line.reshape(-1), kept.root[0, 0], kept.trace[0, 0], state.spread[0],
    )  # fmt: skip


class Rounds:
    """Rounds of another method in one calibration, in which every node has a row."""

    def __init__(self, made: Calibrated, outputs: int, neighbors: Neighbors, seed: int) -> None:
        assert isinstance(made.method, Ensemble)
        method, spectrum = plan.gossiping(made.method), made.features.spectrum
        if method.reach is not None:
            method.reach.grown(np.zeros(1))  # refuses one that is on no network
        nodes, most = neighbors.ids.shape
        self.features, self._is_alone = Features(made), isinstance(made.method, Local)
        self._numbers = plan.numbers(made.method, outputs, spectrum)
        self._like, self._schedule = method.init(np, (nodes,), outputs, spectrum), method.schedule
        key = noise.fold(noise.key(seed, "quantizer"), np.arange(nodes)[:, None])
        self._keys = np.concatenate([key.low, key.high], axis=1)
        ids, weights = np.asarray(neighbors.ids, np.int64).reshape(-1), neighbors.weights.reshape(1, -1)
        self._links = network.Links(np.arange(nodes + 1) * most, ids, weights, np.ones((1, nodes), np.float32))
        self._room, models = rounds.room(self._numbers), (self._numbers.kernels * outputs, self._numbers.n)
        self._records = network.Records(
            np.empty((1, 0)), np.zeros((1, 2)), np.zeros(2), np.zeros(models, np.float32), np.zeros(models)
        )

    def learn(self, state: Any, z: Floats, y: Floats, t: int) -> Any:
        """Return the state after round number t, of features ``(J, P, r)`` and targets ``(J, C)``."""
        before = self._stated(state)
        nodes, hidden = states.gathered(before, self._numbers)
        both, first, last = np.stack([hidden, hidden]), t, t + 1  # the rounds of gossip that go with a sample
        if self._is_alone:
            first, last = 0, 0
        elif self._schedule is not None:
            first, last = int(self._schedule.rounds(t)), int(self._schedule.rounds(t + 1))
        span = network.Span(t, 0, len(y), t + 2, False)  # of which no sample is measured
        network.advance(
            self._numbers, nodes, both, self._links, self._keys, np.zeros(1, np.float32), np.array([first, last]),
            z[None], y[None], span, self._records, self._room,
        )  # fmt: skip
        after = states.scattered(nodes, both[last % 2], before, self._numbers)
        return after if not self._is_alone else state._replace(
            theta=after.theta, log_weights=after.log_weights, memory=after.memory
        )  # fmt: skip

    def outputs(self, state: Any, z: Floats) -> Table:
        """Return the outputs ``(n, C)`` of the first node."""
        nodes, _ = states.gathered(self._stated(state), self._numbers)
        found = np.empty((len(z), self._numbers.outputs))
        for row, one in zip(found, z, strict=True):
            rounds.predict_one(self._numbers, nodes, one, self._room)
            row[:] = self._room.output
        return found

    def _stated(self, state: Any) -> Any:
        """Return the state as a method's that gossips."""
        if not self._is_alone:
            return state
        return self._like._replace(theta=state.theta, log_weights=state.log_weights, memory=state.memory)
