"""What a newcomer gains by beginning with its neighbors' models: Banana, four nodes in memory, virtual time.

Three nodes learn in lock step, then a fourth joins. Its loss over its first samples is compared with that of one that
begins with nothing, as nodes did once. Run from the repository's root: python -m benchmarks.newcomer
"""

import argparse
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
from benchmarks import report
from benchmarks.wiped import METHODS

from omkl import data, topology
from omkl.node.config import NetworkConfig
from omkl.node.events import Event, Scored
from omkl.node.protocol import Protocol
from omkl.node.recovery import Recovery
from omkl.node.settings import Member, Timing
from omkl.node.transports.memory import Network

IDS = "abcd"
NEW = IDS[-1]
AFTER, SAMPLES = 600, 100  # rounds of the others, and samples of the newcomer


def losses(method: str, graph: str, seed: int) -> Sequence[float]:
    """Return the losses of the newcomer, sample by sample."""
    config = NetworkConfig(
        name="newcomer", inputs=2, method=METHODS[method], seed=seed, timing=Timing(deadline=4.0, patience=0.5),
        topology=topology.build(graph, len(IDS)), members=tuple(Member(id=id, listen=f"tcp/{id}:1") for id in IDS),
    )  # fmt: skip
    banana, found = data.load("banana"), []
    rows = np.random.default_rng(seed).permutation(len(banana.X))

    def watch(_: float, id: str, event: Event) -> None:
        if id == NEW and isinstance(event, Scored):
            found.append(event.loss)

    network = Network(seed=seed, watch=watch)

    def feed(id: str, count: int) -> None:
        nonlocal rows
        mine, rows = rows[:count], rows[count:]
        network.feed(id, zip(banana.X[mine], banana.y[mine], strict=True))

    for k, id in enumerate(IDS[:-1]):
        network.join(Protocol(config.role(id), k, 0.0))
    for id in IDS[:-1]:
        feed(id, AFTER)
    network.run()
    network.join(Protocol(config.role(NEW), len(IDS), network.now))
    for id in IDS:
        feed(id, SAMPLES)
    network.run()
    return [loss for loss in found if loss is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--graph", default="complete")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for method in METHODS:
        with_models = np.array([losses(method, args.graph, seed) for seed in range(args.seeds)])
        with patch.object(Recovery, "_adopt", lambda *_: None):
            without = np.array([losses(method, args.graph, seed) for seed in range(args.seeds)])
        for first in (25, SAMPLES):
            means = {
                "begins with nothing": float(without[:, :first].mean()),
                "with their mean": float(with_models[:, :first].mean()),
            }
            rows.append({"method": method, "samples": first, **means})
    report.finish("newcomer", rows, f"{args.seeds} seeds, {args.graph} graph; mean loss of the newcomer.")


if __name__ == "__main__":
    main()
