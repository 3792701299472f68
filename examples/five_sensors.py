"""Five sensors on a ring, each of which sees one fifth of a field, learn the whole of it over zenoh on this machine.

Every node learns from its own sector alone and whispers fewer than forty bytes a round to two neighbors. At the end it
is asked about the sectors that it has never seen.
"""

import sys
import time
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt

import omkl
from omkl.node.cluster import on_loopback
from omkl.node.config import Member, NetworkConfig
from omkl.node.events import Event, Gossiped
from omkl.node.learning import Learning

NAMES = ("hill", "wood", "pond", "gate", "barn")
METHOD = omkl.Gossip(
    kernels=omkl.gaussian(0.5, 1, 2), features=30, eta=1.0, gamma=0.5, quantizer=omkl.Nearest(step=2.5)
)

Floats = npt.NDArray[np.float64]


class Field:
    """A wavy patch of warm ground: label 1 inside, -1 outside; sensor k sees the k-th sector."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def look(self, sensor: int, count: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return places in a sensor's sector, and whether they are warm."""
        angle = 2 * np.pi * (sensor + self._rng.random(count)) / len(NAMES)
        radius = 2 * np.sqrt(self._rng.random(count))
        X = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return X, np.where(radius < 1.3 + 0.5 * np.sin(3 * angle), 1, -1)


class Meter:
    """Counts the bytes of a node's gossip."""

    def __init__(self) -> None:
        self.rounds = self.bytes = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Gossiped):
            self.rounds += 1
            self.bytes += event.size


def network() -> NetworkConfig:
    members = tuple(Member(id=name, listen=f"tcp/127.0.0.1:{7447 + k}") for k, name in enumerate(NAMES))
    ring = omkl.topology.build("ring", len(NAMES))
    return on_loopback(NetworkConfig(name="field", inputs=2, method=METHOD, seed=0, topology=ring, members=members))


def mean_loss(model: omkl.Model, X: Floats, y: npt.NDArray[np.int64]) -> float:
    return float(model.loss.value(model.decision_function(X), model.loss.encode(y)).mean())


def main(rounds: int = 400) -> list[tuple[float, float]]:
    """Print and return the loss of each sensor on what only the others saw: learning alone, and together."""
    started, field, config = time.perf_counter(), Field(1), network()
    streams = [field.look(k, rounds) for k in range(len(NAMES))]
    elsewhere = [[field.look(other, 100) for other in range(len(NAMES)) if other != k] for k in range(len(NAMES))]
    meters = [Meter() for _ in NAMES]
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(omkl.Node.join(config, name, [meter]))
            for name, meter in zip(NAMES, meters, strict=True)
        ]
        for t in range(rounds):
            for node, (X, y) in zip(nodes, streams, strict=True):
                node.observe(X[t], y[t])
        for node in nodes:
            node.wait()
    results = []
    print("sensor   loss on what only the others saw: alone   together   bytes a round")
    for k, (node, meter) in enumerate(zip(nodes, meters, strict=True)):
        alone = Learning(METHOD, inputs=2, seed=0, index=k)
        for x, label in zip(*streams[k], strict=True):
            alone.learn(alone.inputs(x), alone.targets(label))
        X, y = (np.concatenate(parts) for parts in zip(*elsewhere[k], strict=True))
        losses = mean_loss(alone.model(), X, y), mean_loss(node.model(), X, y)
        print(f"{NAMES[k]:<8} {losses[0]:38.3f}   {losses[1]:8.3f}   {meter.bytes / max(1, meter.rounds):13.1f}")
        results.append(losses)
    print(f"A constant guess loses {np.log(2):.3f}. {rounds} rounds in {time.perf_counter() - started:.1f} s.")
    return results


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
