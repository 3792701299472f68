"""Five sensors on a ring, each of which sees one fifth of a field, learn the whole of it over zenoh on this machine.

Every node learns from its own sector alone and whispers fewer than forty bytes a round to two neighbors. At the end it
is asked about the sectors that it has never seen. Prints a table, and draws what each makes of the field.
"""

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

import omkl
from omkl.node.cluster import on_loopback
from omkl.node.config import Member, NetworkConfig
from omkl.node.events import Event, Gossiped
from omkl.node.learning import Learning
from omkl.plots import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("hill", "wood", "pond", "gate", "barn")
METHOD = omkl.Gossip(
    kernels=omkl.gaussian(0.5, 1, 2), features=30, eta=1.0, gamma=0.5, quantizer=omkl.Nearest(step=2.5)
)

SIZE = 2.0  # radius of the field

Floats = npt.NDArray[np.float64]
Streams = list[tuple[Floats, npt.NDArray[np.int64]]]


def edge(angle: Floats) -> Floats:
    """Return how far from the middle the ground is warm."""
    return np.asarray(1.3 + 0.5 * np.sin(3 * angle))


class Field:
    """A wavy patch of warm ground: label 1 inside, -1 outside; sensor k sees the k-th sector."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def look(self, sensor: int, count: int) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return places in a sensor's sector, and whether they are warm."""
        angle = 2 * np.pi * (sensor + self._rng.random(count)) / len(NAMES)
        radius = SIZE * np.sqrt(self._rng.random(count))
        X = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        return X, np.where(radius < edge(angle), 1, -1)


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


def learn_together(streams: Streams) -> tuple[list[omkl.Model], list[float]]:
    """Return every sensor's model and the bytes it sent in a round, after all have joined, learned and left."""
    config, meters = network(), [Meter() for _ in NAMES]
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(omkl.Node.join(config, name, [meter]))
            for name, meter in zip(NAMES, meters, strict=True)
        ]
        for t in range(len(streams[0][0])):
            for node, (X, y) in zip(nodes, streams, strict=True):
                node.observe(X[t], y[t])
        for node in nodes:
            node.wait()
    return [node.model() for node in nodes], [meter.bytes / max(1, meter.rounds) for meter in meters]


def learn_alone(k: int, streams: Streams) -> omkl.Model:
    """Return the model of a sensor that talks to nobody."""
    alone = Learning(METHOD, inputs=2, seed=0, index=k)
    for x, label in zip(*streams[k], strict=True):
        alone.learn(alone.inputs(x), alone.targets(label))
    return alone.model()


def draw(models: dict[str, list[omkl.Model]], streams: Streams) -> "Figure":
    """Return what every sensor makes of the field, with its own samples and the true edge."""
    from matplotlib.patches import Circle

    drawn, axes = figure(columns=len(NAMES), rows=len(models), width=2.3, height=2.4)
    side, turn = np.linspace(-SIZE, SIZE, 81), np.linspace(0, 2 * np.pi, 200)
    places = np.stack(np.meshgrid(side, side), axis=-1)
    for k, axis in enumerate(axes):
        (title, each), sensor = list(models.items())[k // len(NAMES)], k % len(NAMES)
        warm = 1 / (1 + np.exp(-each[sensor].decision_function(places.reshape(-1, 2))))
        image = axis.imshow(
            warm.reshape(places.shape[:2]), cmap="RdBu_r", vmin=0, vmax=1, origin="lower",
            interpolation="bilinear", extent=(-SIZE, SIZE, -SIZE, SIZE),
        )  # fmt: skip
        image.set_clip_path(Circle((0, 0), SIZE, transform=axis.transData))
        axis.plot(edge(turn) * np.cos(turn), edge(turn) * np.sin(turn), color="k", linewidth=1)
        axis.plot(*streams[sensor][0].T, ".", color="k", markersize=1)
        axis.set_title(f"{NAMES[sensor]}, {title}", fontsize=10)
        axis.set_axis_off()
    return drawn


def main(out: Path, rounds: int = 400) -> list[tuple[float, float]]:
    """Print and return the loss of each sensor on what only the others saw: learning alone, and together."""
    started, field = time.perf_counter(), Field(1)
    streams = [field.look(k, rounds) for k in range(len(NAMES))]
    elsewhere = [[field.look(other, 100) for other in range(len(NAMES)) if other != k] for k in range(len(NAMES))]
    together, sent = learn_together(streams)
    alone = [learn_alone(k, streams) for k in range(len(NAMES))]
    results = []
    print("sensor   loss on what only the others saw: alone   together   bytes a round")
    for k, name in enumerate(NAMES):
        X, y = (np.concatenate(parts) for parts in zip(*elsewhere[k], strict=True))
        losses = mean_loss(alone[k], X, y), mean_loss(together[k], X, y)
        print(f"{name:<8} {losses[0]:38.3f}   {losses[1]:8.3f}   {sent[k]:13.1f}")
        results.append(losses)
    print(f"A constant guess loses {np.log(2):.3f}. {rounds} rounds in {time.perf_counter() - started:.1f} s.")
    out.mkdir(parents=True, exist_ok=True)
    draw({"alone": alone, "together": together}, streams).savefig(out / "sensors.png", dpi=110)
    print(f"figure: {out / 'sensors.png'}")
    return results


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/sensors"))
