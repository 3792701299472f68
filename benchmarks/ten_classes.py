"""Ten classes of MNIST over a ring of 20 nodes, at about a bit a coefficient, beside one learner that sees all.

python -m benchmarks.ten_classes [SEEDS [D ...]]

The 60,000 training images once, then every node's model on the 10,000 test images. The recommended setting with the
2D directions of D features of each kernel, and the learner of one place with the same; Newton on the features as they
are stands beside them where its matrices of (2D)^2 for every output are small enough.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from benchmarks import report
from benchmarks.per_bit import error

import omkl
from omkl import algorithm
from omkl.data import load
from omkl.features import transform
from omkl.methods import Method
from omkl.simulator.result import Result
from omkl_lab.paper.frontier.study import alone

NODES, TRAINING = 20, 60_000
LARGEST_NEWTON = 20

Table: TypeAlias = tuple[np.ndarray, np.ndarray]


def methods(features: int) -> dict[str, tuple[Method, int]]:
    rank = 2 * features
    gossip = omkl.recommended(basis=omkl.Landmarks(rank, rows=max(300, rank)), loss=omkl.Softmax(10))
    newton = omkl.Local(
        kernels=gossip.bank.kernels, sigma="median", features=features, learner=omkl.Newton(10), regularization=0.0,
        weight_rate=1.0, loss=omkl.Softmax(10),
    )  # fmt: skip
    central = {"one place": (alone(gossip), 1)} | ({"Newton": (newton, 1)} if features <= LARGEST_NEWTON else {})
    return {"ring": (gossip, NODES), **central, "no communication": (alone(gossip), NODES)}


def right(result: Result, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the share of images that each node's last model gets right, ``(seeds, nodes)``."""
    shares = []
    for k in range(len(result.seeds)):
        made = result.features(k)
        z = np.concatenate([transform(X[i : i + 1000], made) for i in range(0, len(X), 1000)])
        weights = algorithm.normalize(result.log_weights[:, k])
        models = np.einsum("jp,jpcn->jcpn", weights, result.theta[:, k])
        if made.landmarks is not None:  # readings of one model
            models = models.sum(axis=2, keepdims=True)
        flat = models.reshape(*models.shape[:2], -1)
        shares.append([np.mean((z.reshape(len(z), -1) @ model.T).argmax(-1) == y) for model in flat])
    return np.array(shares)


def rows(
    training: Table, test: Table, sizes: Sequence[int], seeds: int, learners: Sequence[str] = ()
) -> Iterator[report.Row]:
    """Yield what each learner comes to on the test images, or these learners."""
    for features in sizes:
        for name, (method, nodes) in methods(features).items():
            if learners and name not in learners:
                continue
            result = omkl.simulate(training, "ring", nodes=nodes, method=method, seeds=seeds)
            shares = right(result, *test)
            sent = result.bits.mean() / nodes
            schedule = getattr(method, "schedule", None)
            rounds = len(result.rounds)
            messages = 1 if schedule is None else float(schedule.rounds(rounds)) / rounds
            numbers = len(method.bank.kernels) * 10 * method.sent * messages
            yield {
                "D": features, "learner": name,
                "test accuracy": f"{shares.mean():.4f} ± {1.96 * error(shares.mean(1)):.4f}",
                "worst node": f"{shares.min(axis=1).mean():.4f}", "while learning": f"{result.accuracy.mean():.4f}",
                "bytes a sample": f"{sent / 8:.0f}", "bits a coefficient": f"{sent / numbers:.2f}",
            }  # fmt: skip


def main(seeds: str = "3", *sizes: str) -> None:
    data = load("mnist10")
    training, test = (data.X[:TRAINING], data.y[:TRAINING]), (data.X[TRAINING:], data.y[TRAINING:])
    found = []
    for row in rows(training, test, [int(size) for size in sizes or ("20", "100", "500")], int(seeds)):
        found.append(row)
        print(report.table([row]), flush=True)
    report.finish("ten_classes", found, f"MNIST, 60,000 images once, {seeds} seeds, 95 % intervals over seeds")


if __name__ == "__main__":
    main(*sys.argv[1:])
