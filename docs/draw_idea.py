"""Draws the figures of idea.md into images/idea-*.png, from runs of omkl: ``python docs/draw_idea.py``."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import omkl
from omkl import algorithm, plots
from omkl.features import Features, draw, transform
from omkl.quantizers import restore

IMAGES = Path(__file__).parent / "images"
COLORS = plots.PALETTE
SENSORS = 5
COEFFICIENT = 4  # that is shown of forty
Floats = npt.NDArray[np.float32]


def kernel() -> Figure:
    """Draw waves, the kernel that they estimate, and a function that they make up."""
    figure, (waves, estimate, learned) = plots.figure(3, width=4.0, height=3.2)
    x = np.linspace(-4, 4, 401, dtype=np.float32)[:, None]
    bank = draw(omkl.gaussian(1), 200, 1, seed=1)
    for k, row in enumerate(np.sin(x * bank[0, :5, 0]).T):
        waves.plot(x, row + 2.4 * k, color=COLORS[k])
    waves.set_yticks([])
    waves.set_title("five features: sin(v·x), v at random")
    exact = np.exp(-(x[:, 0] ** 2) / 2)
    for k, count in enumerate((5, 20, 200)):
        z = transform(np.concatenate([x, np.zeros((1, 1), np.float32)]), Features(bank[:, :count]))[:, 0]
        estimate.plot(x, z[:-1] @ z[-1], color=COLORS[k], label=f"D = {count}", linewidth=1.3)
    estimate.plot(x, exact, color="black", linestyle="--", label="Gaussian", linewidth=1.3)
    estimate.legend(frameon=False, fontsize=9)
    estimate.set_title("z(x)·z(0) estimates the kernel")
    _learned(learned, x)
    for axes in (waves, estimate, learned):
        axes.set_xlabel("x")
    return figure


def _learned(axes: Axes, x: Floats) -> None:
    """Draw what one node has learned after so many samples of a curve."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-4, 4, size=(400, 1))
    y = np.sin(2 * X[:, 0]) * np.exp(-np.abs(X[:, 0]) / 3) + 0.1 * rng.normal(size=400)
    method = omkl.Local(kernels=omkl.gaussian(0.7), features=30, loss="squared", learner=omkl.Newton(prior=10))
    axes.plot(X, y, ".", color="#bbbbbb", markersize=3)
    for k, count in enumerate((10, 40, 400)):
        stream = X[:count, None], y[:count, None]
        model = omkl.simulate(stream, method=method).model()
        axes.plot(x, model.predict(x), color=COLORS[k], label=f"{count} samples", linewidth=1.6)
    axes.set_ylim(-1.3, 1.5)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    axes.set_title("a model is θ·z(x): sixty numbers")


def hidden() -> Figure:
    """Draw what three nodes say when they only gossip, and how far apart they are."""
    figure, (states, said, apart) = plots.figure(3, width=4.0, height=3.2)
    rounds, shown, k, quantizer = 90, 45, COEFFICIENT, omkl.Nearest(step=2.5)
    theta, h, messages, distance = _gossip(rounds, quantizer, differences=True)
    for j in range(3):
        states.plot(theta[:shown, j, k], color=COLORS[j], linewidth=1.8, label=f"θ of node {j + 1}")
        states.step(np.arange(shown), h[:shown, j, k], color=COLORS[j], linewidth=1.2, linestyle=":", where="post")
    states.plot([], [], color="gray", linestyle=":", label="h, held by neighbors")
    states.axhline(theta[0, :, k].mean(), color="black", linewidth=0.8, linestyle="--")
    states.set_title("one coefficient at three nodes")
    states.legend(frameon=False, fontsize=9, loc="upper right", ncols=2, columnspacing=1)
    states.set_ylim(top=1.55 * np.abs(h[:, :, k]).max())
    for j in range(3):
        said.vlines(np.arange(shown) + 0.3 * (j - 1), 0, messages[:shown, j, k], color=COLORS[j], linewidth=2)
    said.axhline(0, color="black", linewidth=0.8)
    said.set_title("what they send of it")
    apart.semilogy(_gossip(rounds, quantizer, differences=False)[3], color=COLORS[1], label="θ itself, a bit a number")
    apart.semilogy(distance, color=COLORS[0], label="θ − h, a bit a number")
    apart.semilogy(_gossip(rounds, omkl.Exact(), differences=True)[3], "--", color="black", label="exact", linewidth=1)
    apart.legend(frameon=False, fontsize=9, loc="lower left", title="what is sent", alignment="left")
    apart.set_title("how far apart the models are")
    for axes in (states, said, apart):
        axes.set_xlabel("round")
    return figure


def _gossip(rounds: int, quantizer: object, differences: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """Return models, hidden states and messages of three nodes on a path, and their distance, round by round.

    Without differences the hidden state starts at zero every round: a message is the model, quantized.
    """
    theta = 1.5 * np.random.default_rng(3).normal(size=(3, 1, 1, 40)).astype(np.float32)
    h, path = np.zeros_like(theta), np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=np.float32) / 3
    kept: list[tuple[Floats, Floats, Floats]] = []
    for _ in range(rounds):
        copies = np.broadcast_to(h[None], (3, *h.shape))
        theta = algorithm.mix(theta, h, copies, path, 0.2)
        h = h if differences else np.zeros_like(h)
        message = algorithm.emit(theta, h, quantizer, None)  # type: ignore[arg-type]
        h = algorithm.absorb(h, message)
        kept.append((theta, h, restore(message)))
    models, states, messages = (np.stack(one)[:, :, 0, 0] for one in zip(*kept, strict=True))
    distance = np.sqrt(((models - models.mean(axis=1, keepdims=True)) ** 2).sum(axis=-1).mean(axis=-1))
    return models, states, messages, distance


def field(sensor: int, count: int, rng: np.random.Generator) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return places that a sensor sees, its sector of a field, and whether they are warm."""
    angle, radius = 2 * np.pi * (sensor + rng.random(count)) / SENSORS, 2 * np.sqrt(rng.random(count))
    X = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return X, np.where(radius < 1.3 + 0.5 * np.sin(3 * angle), 1, -1)


def network() -> Figure:
    """Draw what sensors know that see a sector each: alone, and together."""
    rng = np.random.default_rng(1)
    streams = [field(sensor, 400, rng) for sensor in range(SENSORS)]
    X, y = (np.stack(parts, axis=1) for parts in zip(*streams, strict=True))
    setting = {"kernels": omkl.gaussian(0.5, 1, 2), "features": 30, "eta": 1.0}
    together = omkl.Gossip(gamma=0.5, quantizer=omkl.Nearest(2.5), **setting)
    runs = {"alone": omkl.Local(**setting), "gossip": together}
    figure, axes = plots.figure(4, 2, width=2.9, height=2.9)
    *maps, losses = axes
    others = [field(sensor, 400, rng) for sensor in range(SENSORS)]
    held_out, labels = (np.concatenate(parts) for parts in zip(*others, strict=True))
    grid = np.stack(np.meshgrid(*[np.linspace(-2, 2, 121)] * 2), axis=-1).reshape(-1, 2)
    outside = (grid**2).sum(axis=1) > 3.96
    for row, (name, method) in enumerate(runs.items()):
        result = omkl.simulate((X, y), "ring", method=method)
        for sensor in range(3):
            axis = axes[4 * row + sensor]
            output = result.model(node=sensor).decision_function(grid)[:, 0]
            shown = np.where(outside, np.nan, 1 / (1 + np.exp(-output))).reshape(121, 121)
            axis.imshow(shown, extent=(-2, 2, -2, 2), origin="lower", cmap="RdBu_r", vmin=0, vmax=1)
            axis.plot(*X[::3, sensor].T, ".", color="black", markersize=1.6)
            axis.set_title(f"sensor {sensor + 1}, {name}", fontsize=11)
        models = [result.model(node=sensor) for sensor in range(SENSORS)]
        loss = [one.loss.value(one.decision_function(held_out), one.loss.encode(labels)).mean() for one in models]
        losses.bar(np.arange(SENSORS) + 1.2 + 0.4 * (row - 1), loss, width=0.4, color=COLORS[1 - row], label=name)
    warm = np.hypot(*grid.T) < 1.3 + 0.5 * np.sin(3 * np.arctan2(grid[:, 1], grid[:, 0]))
    truth = np.where(outside, np.nan, warm).reshape(121, 121)
    axes[3].imshow(truth, extent=(-2, 2, -2, 2), origin="lower", cmap="RdBu_r", vmin=0, vmax=1)
    axes[3].set_title("the field", fontsize=11)
    for axis in maps:
        axis.axis("off")
    losses.axhline(np.log(2), color="black", linewidth=0.8, linestyle="--", label="a guess")
    losses.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", columnspacing=0.9, handlelength=1.2)
    losses.set_ylim(0, 1.3 * np.log(2))
    losses.set_title("loss over the whole field", fontsize=11)
    losses.set_xlabel("sensor")
    return figure


def ensemble() -> Figure:
    """Draw losses of single kernels and of the ensemble, and its weights."""
    figure, (losses, weights) = plots.figure(2, width=5.0, height=3.4)
    sigmas = (0.1, 0.4, 1.5)
    setting = {"features": 60, "eta": 1.0, "gamma": 0.3, "quantizer": omkl.Nearest(2.5)}
    banks = {f"σ = {sigma:g} alone": omkl.gaussian(sigma) for sigma in sigmas} | {"all three": omkl.gaussian(*sigmas)}
    for k, (name, bank) in enumerate(banks.items()):
        method = omkl.Gossip(kernels=bank, weight_rate=0.3, **setting)
        result = omkl.simulate("banana", "ring", nodes=20, method=method, seeds=10)
        plots.plot_loss(losses, result, label=name)
        losses.lines[-1].set_color("black" if k == len(sigmas) else COLORS[k])
        losses.collections[-1].set_color("black" if k == len(sigmas) else COLORS[k])
    for k, sigma in enumerate(sigmas):
        weights.plot(result.rounds + 1, result.weights.mean(axis=0)[:, k], color=COLORS[k], label=f"σ = {sigma:g}")
    losses.legend(frameon=False, fontsize=9)
    losses.set_title("three kernels, alone and together")
    weights.legend(frameon=False, fontsize=9, loc="center right")
    weights.set_xlabel("round")
    weights.set_ylabel("kernel weight")
    weights.set_title("the weights of the kernels")
    return figure


if __name__ == "__main__":
    for figure in (kernel, hidden, network, ensemble):
        figure().savefig(IMAGES / f"idea-{figure.__name__}.png", dpi=100, metadata={"Software": None})
