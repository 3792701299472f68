"""What a newcomer gains by beginning with its neighbors' models: Banana, four nodes in memory, virtual time.

Three nodes learn in lock step, then a fourth joins all of them. After each of its samples its model is scored on rows
that nobody learns, and compared with that of a newcomer that begins with nothing, on the same rows.

Run from the repository's root: python -m benchmarks.newcomer
"""

import argparse
from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from benchmarks import report
from benchmarks.wiped import METHODS

from omkl import topology
from omkl.data import load
from omkl.node.config import NetworkConfig
from omkl.node.events import Event, Scored
from omkl.node.protocol import Protocol
from omkl.node.recovery import Recovery
from omkl.node.settings import Member, Timing
from omkl.node.transports.memory import Network

IDS = "abcd"
NEW = IDS[-1]
AFTER, SAMPLES, HELD_OUT = 600, 100, 500  # rounds of the others, samples of the newcomer, rows it is scored on


def losses(method: str, seed: int) -> Sequence[float]:
    """Return the loss of the newcomer on rows held out, after each of its samples."""
    config = NetworkConfig(
        name="newcomer", inputs=2, method=METHODS[method], seed=seed, timing=Timing(deadline=4.0, patience=0.5),
        topology=topology.build("complete", len(IDS)), members=tuple(Member(id=id, listen=f"tcp/{id}:1") for id in IDS),
    )  # fmt: skip
    banana, rng = load("banana"), np.random.default_rng(seed)
    rows, objective = rng.permutation(len(banana.X)), METHODS[method].objective
    held, rest = rows[:HELD_OUT], rows[HELD_OUT:]
    X, y = banana.X[held], objective.encode(banana.y[held])
    found: list[float] = []

    def watch(_: float, id: str, event: Event) -> None:
        if id == NEW and isinstance(event, Scored):
            found.append(float(objective.value(network.nodes[id].learning.predict(X), y).mean()))

    network = Network(seed=seed, watch=watch)

    def feed(id: str, count: int) -> None:
        mine = rng.choice(rest, count)
        network.feed(id, zip(banana.X[mine], banana.y[mine], strict=True))

    for k, id in enumerate(IDS):
        if id == NEW:
            for other in IDS[:-1]:
                feed(other, AFTER)
            network.run()
        network.join(Protocol(config.role(id), k, network.now))
    for id in IDS:
        feed(id, SAMPLES)
    network.run()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    args = parser.parse_args()
    rows = []
    for method in METHODS:
        with_models = _all(method, args.seeds)
        with patch.object(Recovery, "_adopt", lambda *_: None):
            without = _all(method, args.seeds)
        for k in (1, 2, 5, 10, 25, SAMPLES):
            both = {"with nothing": float(without[:, k - 1].mean()), "with models": float(with_models[:, k - 1].mean())}
            gains = (without - with_models)[:, k - 1]
            error = float(gains.std(ddof=1) / len(gains) ** 0.5)
            rows.append({"method": method, "samples": k, **both, "gain": float(gains.mean()), "error": error})
    report.finish("newcomer", rows, f"{args.seeds} seeds; loss of a newcomer's model on {HELD_OUT} rows held out.")


def _all(method: str, seeds: int) -> npt.NDArray[np.float64]:
    return np.array([losses(method, seed) for seed in range(seeds)])


if __name__ == "__main__":
    main()
