"""A real network of eight processes, cut in two and joined again, twice: what that costs, beside learning alone.

Every ``omkl node`` is in a network namespace of its own, on a path. Rows come at a fixed rate; the wire in the middle
is cut for a minute, and joined for a minute, twice. Told is the mean loss, scored before learning, over the samples
that follow each of these moments, and that of nodes which never hear each other, with the same learner on the same
rows.

It needs the rights to make network namespaces. Run from the repository's root: python -m benchmarks.cut [SECONDS]
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import eager, report
from benchmarks.fleet import Fleet, write_network
from benchmarks.learner import alone
from benchmarks.namespaces import Wires

from omkl import topology
from omkl.data import load

IDS = "abcdefgh"
RATE = 5.0  # samples a second and node
COUNTED = 200  # samples of each node after a moment
DEADLINE = 2.0
SHARED = 500  # rows that are the landmarks, and no part of the streams
METHOD = """\
[learning.method]
name = "recommended"
loss = "logistic"
[calibration]
file = "calibration.npz"
"""


def rows(name: str, nodes: int, count: int) -> tuple[Any, Any, Any]:
    """Return streams ``(T, J, d)`` and ``(T, J)``, and the inputs that are shared."""
    table = load(name)
    order = np.random.default_rng(0).permutation(len(table.X))
    shared, own = np.split(order[: SHARED + count * nodes], [SHARED])
    X, y = np.asarray(table.X, dtype=np.float32), np.asarray(table.y)
    return X[own].reshape(count, nodes, -1), y[own].reshape(count, nodes), X[shared]


def cut(
    folder: Path, name: str, seconds: float, ids: str = IDS, rate: float = RATE, counted: int = COUNTED, warm: int = 100
) -> Iterator[report.Row]:
    """Yield a row for each moment, of the samples that are counted after it."""
    each = max(counted, int(rate * seconds))
    X, y, shared = rows(name, len(ids), warm + 4 * each)
    np.savez(folder / "calibration.npz", X=shared)
    with Wires(ids) as wires:
        given: dict[str, Any] = {"deadline": DEADLINE, "patience": 0.2, "inputs": X.shape[-1], "method": METHOD}
        path = write_network(folder, ids, hosts=wires.hosts, every=100, **given)
        with Fleet(path, {id: wires.prefix(id) for id in ids}) as fleet:
            _give(fleet, X[:warm], y[:warm], 0.0)
            fleet.drain()
            for turn in range(4):
                (wires.mend if turn % 2 else wires.cut)(ids[len(ids) // 2 - 1])
                part = slice(warm + turn * each, warm + (turn + 1) * each)
                _give(fleet, X[part], y[part], 1 / rate)
            fleet.drain()
            losses = np.array([[ack.loss for ack in daemon.acks] for daemon in fleet.daemons.values()], dtype=float).T
            fleet.settle()
    apart = _alone(X, y, shared)
    for turn in range(4):
        part = slice(warm + turn * each, warm + turn * each + counted)
        ours, theirs = losses[part].mean(axis=0), apart[part].mean(axis=0)
        yield {
            "": ("cut", "joined")[turn % 2], "after samples": part.start, "loss": f"{ours.mean():.4f}",
            "alone": f"{theirs.mean():.4f}", "ratio": f"{ours.mean() / theirs.mean():.3f}",
            "worst node": f"{ours.max():.4f}", "worst alone": f"{theirs.max():.4f}",
        }  # fmt: skip


def _give(fleet: Fleet, X: Any, y: Any, pause: float) -> None:
    """Feed all nodes a sample each, now and then."""
    for x, labels in zip(X, y, strict=True):
        due = time.monotonic() + pause
        fleet.feed([[(one.tolist(), int(label))] for one, label in zip(x, labels, strict=True)])
        time.sleep(max(0.0, due - time.monotonic()))


def _alone(X: Any, y: Any, shared: Any) -> Any:
    """Return the losses ``(T, J)`` of nodes that learn alone on the same landmarks."""
    method = alone().replace(loss="logistic")
    made = method.bank.draw(X.shape[-1], 3, shared)
    network = eager.fixed(topology.build("path", X.shape[1]))
    moments = eager.play(method, eager.mapped(X, made), y, network, 3, made.spectrum)
    return np.stack([np.asarray(moment.info.loss) for moment in moments])


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    with tempfile.TemporaryDirectory() as folder:
        told = list(cut(Path(folder), "credit_card", seconds))
    report.finish("cut", told, f"credit_card, eight processes on a path, cut in two for {seconds:g} s, twice")


if __name__ == "__main__":
    main()
