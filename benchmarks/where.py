"""Where the default spends its time: in a simulation on one core, and in a row of an estimator.

A seed of a simulation at the size of Credit-Card is taken apart by running its parts alone: calibrating, the matrix
products of its features, all of its features, the rounds with nobody gossiping, and the rounds. What remains of the
call is checking, drawing and writing down. Each part is the best of several turns. ``benchmarks.network round`` does
the same for a node, ``benchmarks.device`` for an accelerator.

Run from the repository's root: python -m benchmarks.where
"""

import argparse
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks import report
from benchmarks.scale import PRESETS, drawn, stream
from benchmarks.speed import SHAPES, Shape, products

import omkl
from omkl import river
from omkl.blas import one_thread
from omkl.compiled.mapping import Mapping
from omkl.features import Features
from omkl.simulator import loops
from omkl.simulator.engine import Case, Problem
from omkl.topology import build

ROWS = 2000
COLUMNS = 10


def ms(turns: int, *parts: Callable[[], Any]) -> list[float]:
    """Return the milliseconds of each part, the best of some turns; in a turn each is run once."""
    return [1e3 * min(one) for one in zip(*([timeit.timeit(part, number=1) for part in parts] for _ in range(turns)),
                                          strict=True)]  # fmt: skip


def simulation(preset: str, shape: Shape, turns: int) -> report.Row:
    """Return the milliseconds of a seed's parts, on one core."""
    method, graph = PRESETS[preset](), build("path", shape.nodes)
    X, y = stream(shape.rounds, shape.nodes, shape.inputs)
    made = drawn(method, X, 1)
    problem, case = Problem(X, y[..., None], made, [0]), Case(method.on(graph), (graph,))
    mapping = Mapping(Features(*(None if part is None else part[0] for part in made)))
    length = max(1, loops.ROWS // shape.nodes)
    cuts = [slice(first, first + length) for first in range(0, shape.rounds, length)]

    def features(cut: slice) -> Any:
        rows = mapping.rows(X[cut].reshape(-1, shape.inputs))
        return rows.reshape(-1, shape.nodes, *rows.shape[1:])

    ready = [features(cut) for cut in cuts]

    def rounds(gossips: bool) -> None:
        run = loops.Run(case, problem, 0)
        run._starts *= gossips
        for cut, z in zip(cuts, ready, strict=True):
            run.advance(cut.start, z, problem.y[cut])

    with one_thread():
        call, calibrating, alone, mapped, learning, every = ms(
            turns,
            lambda: omkl.simulate((X, y), "path", method=method, seeds=1),
            lambda: drawn(method, X, 1),
            lambda: products(made, X),
            lambda: [features(cut) for cut in cuts],
            lambda: rounds(gossips=False),
            lambda: rounds(gossips=True),
        )
    parts = {"calibrating": calibrating, "products": alone, "other work on features": mapped - alone}
    parts |= {"gossip, its bytes counted": every - learning, "learning, measuring": learning}
    return {"method": preset, "a seed, ms": call} | parts | {"the rest": call - calibrating - mapped - every}


def row(turns: int) -> report.Row:
    """Return the microseconds of a row's parts, after calibration: predicted, then learned."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, COLUMNS))
    y = (X[:, 0] * X[:, 1] > 0).tolist()
    rows = [dict(zip("abcdefghij", one, strict=True)) for one in X.tolist()]
    model: Any = river.OMKLClassifier()
    for x, label in zip(rows, y, strict=True):
        model.learn_one(x, label)
    learner: Any = model._online
    steps = learner._player.fast
    single = [one[None] for one in X]
    z = [steps.features(one) for one in single]
    targets, weight, state = np.ones((1, 1), np.float32), np.ones(1, np.float32), learner.state

    predicting, learning, features, outputs, updates = ms(
        turns,
        lambda: [model.predict_one(x) for x in rows],
        lambda: [model.learn_one(x, label) for x, label in zip(rows, y, strict=True)],
        lambda: [steps.features(one) for one in single],
        lambda: [steps.outputs(state, one) for one in z],
        lambda: [steps.learn(state, one, targets, weight) for one in z],
    )
    parts = {"predict_one": predicting, "learn_one": learning, "features": features, "outputs": outputs}
    return {"a row, us": "default"} | {
        name: 1e3 * taken / ROWS for name, taken in (parts | {"update": updates}).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7)
    turns = parser.parse_args().turns
    rows = [simulation(preset, SHAPES["credit card"], turns) for preset in PRESETS]
    report.finish("where", [*rows, row(turns)], f"Best of {turns} turns; 20 nodes on a path, 1500 rounds, d=23; a row "
                  f"has {COLUMNS} columns.")  # fmt: skip


if __name__ == "__main__":
    main()
