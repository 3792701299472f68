"""Small runs by NumPy, all nodes and seeds at once, as the methods state their rounds: there is nothing to compile."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from omkl import features
from omkl.blas import one_thread
from omkl.methods import Neighbors, Round, eager
from omkl.methods.protocol import MethodState
from omkl.simulator.engine import Case, Measure, Problem, Progress, require_finite, require_finite_models
from omkl.storage import mapped


def run(problem: Problem, cases: Sequence[Case], measure: Measure, progress: Progress) -> list[tuple[MethodState, Any]]:
    """Return the outcome of every case, on networks that do not change."""
    with one_thread(), np.errstate(over="ignore", invalid="ignore"):  # losses that are not finite are refused
        every = features.transform(problem.X, problem.features)
        return [_run(problem, case, every, measure, progress, k, len(cases)) for k, case in enumerate(cases)]


def _run(
    problem: Problem, case: Case, every: Any, measure: Measure, progress: Progress, place: int, cases: int
) -> tuple[MethodState, Any]:
    rounds, nodes, outputs = problem.y.shape
    method, seeds, kernels = case.method, problem.seeds, case.method.bank.members
    spectrum = problem.features.spectrum
    state = method.init(np, (nodes, len(seeds)), outputs, None if spectrum is None else spectrum[:, :kernels])
    index, weights = case.turns[0].neighbors()
    network, dither = Neighbors(index, weights.astype(np.float32)), eager.dither(method, nodes, outputs, seeds)
    recorded, sent = [], np.zeros((nodes, len(seeds)), np.float32)
    paced = getattr(method, "schedule", None) is not None
    for t in range(rounds):
        given = Round(every[t][..., :kernels, :], problem.y[t][:, None], None if paced else dither(t), t)
        state, info = eager.advance(method, state, given, network, dither)
        sent = sent + info.message_bytes if paced else info.message_bytes
        if (t + 1) % problem.every == 0:
            mean = (sent / problem.every if paced else sent).astype(np.float32)
            sent = np.zeros_like(mean)
            recorded.append(measure(method, given, info._replace(message_bytes=mean), network.degrees(nodes), state))
            require_finite(recorded[-1][0][None], t + 1, problem.every, seeds)
        progress((place * rounds + t + 1) // cases, rounds)
    require_finite_models(state, rounds)
    return state, mapped(lambda *parts: np.stack(parts).astype(np.float32), *recorded)
