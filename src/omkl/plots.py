"""Figures: functions that draw on the Axes they are given and return it."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from omkl.errors import extra, pick
from omkl.metrics import half_interval, progressive

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from omkl.simulator import Result

Floats = npt.NDArray[np.float64]

MOST_CLASSES = 20  # that are told apart in a figure
PALETTE = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#332288", "#ee8866", "#44bb99",
)  # fmt: skip


def plot_loss(
    axes: "Axes",
    result: "Result",
    *,
    label: str,
    window: int | None = None,
    against: str = "rounds",
    linestyle: str = "-",
    color: str | None = None,
) -> "Axes":
    """Draw the mean loss over seeds with its 95 % interval, over rounds or over the bits a node has sent.

    A single round scores one sample a node and is mostly noise: drawn is the mean over all rounds so far, the
    progressive loss, or with ``window`` a centered moving average over that many rounds.
    """
    losses = result.loss.astype(np.float64)
    smooth = progressive(losses) if window is None else np.stack([moving_average(curve, window) for curve in losses])
    mean = smooth.mean(axis=0)
    half = half_interval(smooth) if len(smooth) > 1 else np.zeros_like(mean)
    rounds = result.rounds + 1.0
    since_last = np.diff(rounds, prepend=0.0)
    sent = np.cumsum(result.bits.mean(axis=0) * since_last) / result.theta.shape[0]
    name, x = pick("axis", against, {"rounds": ("round", rounds), "bits": ("bits sent by a node", sent)})
    axes.set_xlabel(name)
    (line,) = axes.plot(x, mean, label=label, linestyle=linestyle, color=color)
    axes.fill_between(x, mean - half, mean + half, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_ylabel("mean loss so far" if window is None else "loss, moving average")
    return axes


def own_axes(title: str) -> "Axes":
    """Return axes of a new figure of pyplot, which notebooks show by themselves and ``plt.show()`` elsewhere."""
    with extra("plot", "matplotlib"):
        from matplotlib import pyplot as plt
    _, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    axes.set_title(title, fontsize="medium", wrap=True)
    _plain(axes)
    return axes


def legend_below(axes: "Axes") -> None:
    """Put the names of all curves under the figure of the axes, off the curves, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    drawn = axes.figure
    # In inches: what a line takes, and each letter beside it.
    fit = int(drawn.bbox.width / drawn.dpi / (0.6 + 0.08 * max(map(len, labels))))
    drawn.legend(handles, labels, loc="outside lower center", ncols=max(1, min(fit, len(labels))), frameon=False)


def plot_partition(axes: "Axes", labels: Iterable[npt.ArrayLike], names: Sequence[str] | None = None) -> "Axes":
    """Draw how many samples of every class each node has, as stacked bars; of values that are no classes, quarters.

    ``labels`` are those of each node: ``stream.y.T``, or ``[y[rows] for rows in partition.rows(X, y, nodes)]``;
    ``names`` is what the nodes are called, if not by their numbers.
    """
    each = [np.ravel(np.asarray(own, dtype=np.float64)) for own in labels]
    label, classes = _classes(np.concatenate(each))
    ends = np.cumsum([len(own) for own in each])[:-1]
    counts = np.stack([np.bincount(own, minlength=len(classes)) for own in np.split(label, ends)])
    nodes, floor = np.arange(len(counts)), np.zeros(len(counts))
    for k, name in enumerate(classes):
        axes.bar(nodes, counts[:, k], bottom=floor, width=0.85, label=name, color=PALETTE[k % len(PALETTE)], zorder=2)
        floor += counts[:, k]
    axes.set_xlabel("node")
    axes.set_ylabel("samples")
    axes.set_xlim(-0.6, len(counts) - 0.4)
    if names is None:
        axes.locator_params(axis="x", integer=True)
    else:
        axes.set_xticks(nodes, list(names), rotation=45, ha="right", rotation_mode="anchor")
    axes.grid(axis="x", visible=False)
    return axes


def _classes(y: Floats) -> tuple[npt.NDArray[np.intp], list[str]]:
    """Return the number of every label's class, and the names of the classes."""
    values, label = np.unique(y, return_inverse=True)
    if len(values) <= MOST_CLASSES:
        return label, [f"{value:g}" for value in values]
    quarters = np.quantile(y, (0.25, 0.5, 0.75))
    ends = [f"{end:.2g}" for end in quarters]
    names = [f"to {ends[0]}", f"to {ends[1]}", f"to {ends[2]}", "above"]
    return np.searchsorted(quarters, y), names


def moving_average(curve: Floats, window: int) -> Floats:
    """Return the centered mean over ``window`` entries, over fewer at the ends."""
    sums = np.concatenate([[0.0], np.cumsum(curve)])
    middle = np.arange(len(curve))
    first = np.maximum(middle - window // 2, 0)
    last = np.minimum(middle + (window + 1) // 2, len(curve))
    return np.asarray((sums[last] - sums[first]) / (last - first))


def figure(columns: int = 1, rows: int = 1, width: float = 5.0, height: float = 3.6) -> tuple["Figure", list["Axes"]]:
    """Return a figure that needs no screen, and its axes in reading order."""
    with extra("plot", "matplotlib"):
        from matplotlib.figure import Figure as Canvas
    drawn = Canvas(figsize=(width * columns, height * rows), layout="constrained")
    axes = [drawn.add_subplot(rows, columns, i + 1) for i in range(rows * columns)]
    for one in axes:
        _plain(one)
    return drawn, axes


def _plain(axes: "Axes") -> None:
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
