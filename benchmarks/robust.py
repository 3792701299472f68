"""Whether ``gamma="auto"`` ever diverges, and what its caution costs.

python -m benchmarks.robust [--count 1000] [--gammas 80]    combinations drawn at random, and those tried at other gamma
python -m benchmarks.robust --only 17 230                  some of them again

A combination is a graph, weights, features, a quantizer, a rule of sending, a learner and a stream; it depends on its
number alone. Diverged is what is not finite, or has more than twice the loss of the best constant prediction, over the
stream or its last third. Learners are drawn from ranges in which a node alone does not diverge.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from benchmarks import eager, report

import omkl
from omkl import algorithm, topology
from omkl.calibration import Basis
from omkl.compressors import RandK, Sign, TopK
from omkl.data import load
from omkl.learners import SGD, AdaGrad, Learner, Newton, Shared
from omkl.methods import Method
from omkl.quantizers import QSGD, Exact, Nearest, Quantizer
from omkl.sending import Pace, Sampled, Sending, Triggered
from omkl.topology import GRAPHS, WEIGHTS, Graph, Topology, nearby
from omkl_lab.paper.frontier.study import alone

ROUNDS = 300
EVERY = 5  # rounds between those in which every model is scored on all samples
DATA = ("banana", "credit_card")
NO_EXTRA = [name for name in WEIGHTS if name not in ("fdla", "fmmc")]
PACES = (None, None, None, Pace(8, until=8), Pace(4, until=30), Pace(2), Pace(1 / 2), Pace(1 / 4), Pace(1, until=20))
MULTIPLES = tuple(2.0**k for k in range(-2, 19))  # of gamma auto, up to gamma 1

Rng: TypeAlias = np.random.Generator


@dataclass(frozen=True, eq=False)
class Combination:
    number: int
    network: Topology
    method: omkl.Gossip
    data: str
    order: str
    X: eager.Floats
    y: eager.Floats

    def __str__(self) -> str:
        method, graph = self.method, self.network.graph
        bank, mixing, channel = method.bank, method.mixing, method.channel
        basis = "" if bank.basis is None else f" basis {bank.basis.rank}"
        weights = "common" if method.weights.common else "own"
        return (
            f"{graph.name} {graph.nodes}, {self.network.rule}, D {bank.features}{basis}, {channel.quantizer}, momentum "
            f"{mixing.momentum}, {weights} weights, {channel.pace}, {channel.sending}, {method.learner}, {self.data} "
            f"{self.order}"
        )


class Loss(NamedTuple):
    """Mean over nodes and rounds, in units of the best constant prediction's."""

    own: float
    """Of each node's next sample."""
    last: float
    """The same in the last third."""
    pooled: float
    """Of each node's model on the samples of all."""

    @property
    def worst(self) -> float:
        return max(value if math.isfinite(value) else math.inf for value in (self.own, self.last))

    @property
    def diverged(self) -> bool:
        return self.worst > 2


def drawn(number: int, rounds: int = ROUNDS) -> Combination:
    """Return a combination by its number."""
    rng = np.random.default_rng((7, number))
    nodes = int(rng.integers(2, 41))
    name, order = str(rng.choice(DATA)), str(rng.choice(["shuffled", "by label"]))
    X, y = dealt(*table(name), nodes, order, rng, rounds)
    network = WEIGHTS[str(rng.choice(NO_EXTRA))](graph(rng, nodes))
    while True:
        try:
            return Combination(number, network, method(rng, len(X) * nodes), name, order, X, y)
        except omkl.errors.InputError:  # a quantizer that is no contraction at this length: draw another
            continue


@cache
def table(name: str) -> tuple[eager.Floats, eager.Floats]:
    data = load(name)
    return data.X, data.y


def dealt(
    X: eager.Floats, y: eager.Floats, nodes: int, order: str, rng: Rng, rounds: int
) -> tuple[eager.Floats, eager.Floats]:
    """Return a stream of some rows, dealt at random or sorted by label, one class a node but for one of them."""
    rounds = min(rounds, len(X) // nodes)
    rows = rng.permutation(len(X))[: rounds * nodes]
    if order == "by label":
        rows = rows[np.argsort(y[rows], kind="stable")]
    rows = rng.permuted(rng.permutation(rows.reshape(nodes, rounds)), axis=1).T
    return X[rows], y[rows]


def graph(rng: Rng, nodes: int) -> Graph:
    name = str(rng.choice(["path", "ring", "grid", "star", "complete", "tree", "sparse", "erdos_renyi", "geometric"]))
    if name == "geometric":
        return nearby(rng.random((nodes, 2)), slack=rng.uniform(1, 1.5))
    if name in ("tree", "sparse", "erdos_renyi"):  # links at random, over a tree that connects them
        parents = (rng.random(nodes - 1) * np.arange(1, nodes)).astype(np.int64)
        share = {"tree": 0, "sparse": 2 / nodes, "erdos_renyi": 3 * math.log(nodes) / nodes}[name]
        i, j = np.triu_indices(nodes, 1)
        more = np.stack([i, j], axis=1)[rng.random(len(i)) < share]
        return Graph(nodes, np.concatenate([np.stack([parents, np.arange(1, nodes)], axis=1), more]), name)
    return GRAPHS[name](nodes)


def method(rng: Rng, rows: int) -> omkl.Gossip:
    features = round(_between(rng, 5, 200))
    basis = None
    if rng.random() < 0.4:
        basis = Basis(rank=int(rng.integers(4, min(2 * features, 160) + 1)), rows=min(300, rows))
    width = 2 * features if basis is None else basis.rank
    common = bool(rng.random() < 0.5)
    median = rng.random() < 0.5
    return omkl.Gossip(
        kernels=omkl.gaussian(*((0.35, 0.7, 1.4) if median else (1, 3, 5))),
        sigma="median" if median else "given",
        features=features,
        basis=basis,
        learner=learner(rng, features, basis),
        regularization=float(rng.choice([0.0, 1e-3])),
        weight_rate=_between(rng, 0.05, 1),
        common_weights=common,
        gamma="auto",
        momentum=float(rng.choice([0.0, 0.5, 0.7, 0.9])),
        quantizer=quantizer(rng, width + common),
        **sending(rng),
    )


def learner(rng: Rng, features: int, basis: Basis | None) -> Learner:
    """Return a rule whose steps are sane for the length of z: |z| is one, or the root of the rank."""
    energy, total = (1, 1.3 * features**0.5) if basis is None else (basis.rank, 0.8 * basis.rank)
    rules: list[Callable[[], Learner]] = [
        lambda: SGD(_between(rng, 0.01, 2) / energy),
        lambda: SGD(_between(rng, 0.1, 3) / energy, decay="sqrt"),
        lambda: AdaGrad(_between(rng, 0.1, 1) / total),
        lambda: Newton(_between(rng, 1, 100), float(rng.choice([1, 0.999, 0.99])), block(features, basis)),
    ]
    if basis is not None:
        rules += 2 * [lambda: Shared(_between(rng, 10, 300), _between(rng, 0.02, 0.5))]
    return rules[rng.integers(len(rules))]()


def block(features: int, basis: Basis | None) -> int:
    """Return a divisor of a model's length that keeps Newton's memory small."""
    width = 2 * features if basis is None else basis.rank
    return max(b for b in range(1, 41) if width % b == 0)


def quantizer(rng: Rng, n: int) -> Quantizer:
    divisors = [b for b in range(4, n + 1) if n % b == 0]
    size = None if rng.random() < 0.6 else int(rng.choice(divisors))
    made: list[Callable[[], Quantizer]] = [
        Exact,
        lambda: QSGD(int(rng.integers(1, 9)), block=size),
        lambda: QSGD(int(rng.integers(1, 9)), rescale=True, block=size),
        lambda: Nearest(round(rng.uniform(1, 4), 2), block=size),
        lambda: Nearest(round(rng.uniform(1, 4), 2)),
        Sign,
        lambda: TopK(int(_between(rng, 1, n))),
        lambda: RandK(int(_between(rng, 1, n))),
    ]
    return made[rng.integers(len(made))]()


def sending(rng: Rng) -> dict[str, Any]:
    """Return how much gossip goes with a sample, and which kernels are in a message."""
    pace = PACES[rng.integers(len(PACES))]
    rules: list[Callable[[], Sending | None]] = [
        lambda: None,
        lambda: Sampled(_between(rng, 0.5, 3), _between(rng, 0.05, 1)),
        lambda: Triggered(_between(rng, 0.3, 4)),
    ]
    return {"pace": pace, "sending": rules[rng.integers(len(rules))]()}


def played(one: Combination, method: Method, network: Topology) -> Loss:
    """Return the loss of a method on the stream of a combination."""
    own, pooled = [], []
    made = method.bank.draw(one.X.shape[-1], one.number, one.X)
    z, links = eager.mapped(one.X, made), eager.fixed(network)
    with np.errstate(all="ignore"):
        for t, moment in enumerate(eager.play(method, z, one.y, links, one.number, made.spectrum)):
            own.append(moment.info.loss.mean(dtype=np.float64))
            if t % EVERY == EVERY - 1:
                pooled.append(everywhere(method, moment))
    positive = np.mean(one.y == 1)
    constant = -(positive * math.log(positive) + (1 - positive) * math.log(1 - positive))
    return Loss(*(float(np.mean(part)) / constant for part in (own, own[-len(own) // 3 :], pooled)))


def everywhere(method: Method, moment: eager.Moment) -> float:
    """Return the mean loss of every node's model on the samples of all."""
    info, inputs = moment.info, moment.inputs
    outputs = np.einsum("ipcn,jpn->ijpc", info.theta, inputs.z, optimize=True)
    output = np.einsum("ip,ijpc->ijc", algorithm.normalize(info.log_weights), outputs)
    return float(method.objective.value(output, inputs.y).mean(dtype=np.float64))


def tried(number: int, rounds: int = ROUNDS) -> tuple[Loss, Loss | None, Loss | None]:
    """Return the loss at gamma auto; where some part of it is large, also of nodes alone, and complete and exact."""
    one = drawn(number, rounds)
    auto = played(one, one.method.on(one.network), one.network)
    if not auto.diverged and auto.pooled <= 2:
        return auto, None, None
    full = topology.metropolis(GRAPHS["complete"](one.network.nodes))
    exact = one.method.replace(quantizer=None, momentum=0.0, gamma=1.0)
    return auto, played(one, alone(one.method), one.network), played(one, exact, full)


def gammas(number: int, rounds: int = ROUNDS) -> tuple[float, dict[float, float]]:
    """Return gamma auto, and the pooled loss at multiples of it up to one."""
    one = drawn(number, rounds)
    auto = one.method.on(one.network).mixing.step
    steps = [auto * multiple for multiple in MULTIPLES]
    steps = [step for step in steps if step < 1] + [1.0] * (steps[-1] >= 1)
    losses = {step / auto: played(one, one.method.replace(gamma=step), one.network).pooled for step in steps}
    return auto, {multiple: loss if math.isfinite(loss) else math.inf for multiple, loss in losses.items()}


def sweep(numbers: Sequence[int], rounds: int = ROUNDS) -> str:
    """Return what was found, having printed every combination that diverged."""
    found = dict(zip(numbers, eager.in_processes(partial(tried, rounds=rounds), numbers), strict=True))
    apart = {n: losses for n, losses in found.items() if losses[0].pooled > 2 and not losses[0].diverged}
    failed = {n: losses for n, losses in found.items() if losses[0].diverged}
    for number, losses in failed.items():
        auto, alone_, exact = (f"{loss.worst:.3g}" if loss else "" for loss in losses)
        print(f"{number}: {auto} of the constant's loss, alone {alone_}, complete and exact {exact}: {drawn(number)}",
              flush=True)  # fmt: skip
    faulty = sum(any(loss and loss.diverged for loss in losses[1:]) for losses in failed.values())
    common = sum(bool(exact and not exact.pooled <= 2) for _, _, exact in apart.values())
    return (
        f"{len(failed)} of {len(found)} diverged, {faulty} of them also alone or complete and exact; the largest loss "
        f"was {max(auto.worst for auto, _, _ in found.values()):.3g} times the constant's\n"
        f"on the samples of all nodes {len(apart)} others have more than twice the constant's loss, {common} of them "
        "also complete and exact"
    )


def caution(numbers: Sequence[int], rounds: int = ROUNDS) -> list[report.Row]:
    """Return a row for each of several quantiles of what gamma auto loses to the best gamma in hindsight."""
    found = list(eager.in_processes(partial(gammas, rounds=rounds), numbers))
    lost = np.array([losses[1.0] / min(losses.values()) for _, losses in found])
    best = np.array([min(losses, key=lambda multiple: losses[multiple]) for _, losses in found])
    beyond = np.array([min([k for k, loss in losses.items() if loss > 2 * losses[1.0]], default=math.inf)
                       for _, losses in found])  # fmt: skip
    worst = numbers[int(lost.argmax())]
    print(f"{worst} loses most: {drawn(worst)}", flush=True)
    levels = {"least": 0, "a tenth": 0.1, "median": 0.5, "nine tenths": 0.9, "most": 1}
    return [
        {"": name} | {
            "loss at auto / best": float(np.quantile(lost, level)),
            "best gamma / auto": float(np.quantile(best, level, method="nearest")),
            "twice the loss at gamma / auto": float(np.quantile(beyond, level, method="nearest")),
        }
        for name, level in levels.items()
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--gammas", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", type=int, nargs="+", default=[])
    given = parser.parse_args()
    for number in given.only:
        one = (number, given.rounds)
        print(number, drawn(*one), *tried(*one), *gammas(*one), sep="\n  ")
    if not given.only:
        note = sweep(range(given.count), given.rounds)
        report.finish("robust", caution(range(given.gammas), given.rounds), note)


def _between(rng: Rng, low: float, high: float) -> float:
    """Return a number of three digits, drawn evenly on a logarithmic scale."""
    return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}")


if __name__ == "__main__":
    main()
