"""Draws the frontier, one panel for each data set, and writes the report's section and a table of its points."""

import csv
import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

from omkl.plots import figure
from omkl_lab.paper.experiments import TITLES
from omkl_lab.paper.frontier.study import DATA, PRESET, Frontier, Point, at_home, front
from omkl_lab.paper.report import image, paragraph, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Style(NamedTuple):
    """How a family looks: colors that the color-blind tell apart, and a marker besides."""

    label: str
    color: str
    marker: str
    width: float = 1.4


STYLES = {
    "paper": Style("the paper", "#000000", "*", 4.0),
    "larger": Style("the paper's method, larger steps", "#D55E00", "o"),
    "choco": Style("CHOCO", "#CC79A7", "v"),
    "sgd": Style("SGD", "#B07C00", "s"),
    "adagrad": Style("AdaGrad", "#56B4E9", "^"),
    "newton": Style("Newton", "#009E73", "D"),
    DATA: Style("send the data", "#882255", "X"),
    "recommended": Style("omkl's default, varied", "#0072B2", "o", 2.0),
}
LINES = {
    "alone": ("no communication", (0, (1, 2))),
    "sgd": ("one place, SGD", (0, (5, 2))),
    "complete": ("complete, exact", (0, (3, 1, 1, 1))),
    "central": ("one place", "-"),
    "batch": ("batch optimum", (0, (8, 3))),
}
GREY = "0.35"
NOTE = (
    "20 nodes on a path; intervals: 95 % over shuffles and features. Lines: the recommended learner without "
    "communication, on the complete graph with exact messages, and in one place with all samples; there also SGD at "
    "its best, and kernel logistic regression of all samples at once. Headline: the best variation of the recommended "
    "setting within the paper's bytes, the same for all data. Competitors: at their best rate and "
    "bandwidths in hindsight. Hollow: beaten by a smaller message of its family. Send the data: samples at 1 to 8 bits "
    "an input, learned by all; it gives up that raw data stay where they are. Gray band: best of all others."
)
GAP = 0.062  # of an axis' height, between labels
WIDEST = 600  # bytes; what is larger is told in the title
BYTES = (1, 3, 10, 30, 100, 300, 1000)


CAPTION = """Mean loss over the whole stream, scored before each sample is learned, against what a node sends with a
sample on average, as the codec packs it, header and all. Twenty nodes on a path."""

COMPETITORS = """Every competitor has its best chance: rate and bandwidths are the best in hindsight of those tried on
the first shuffle, data set by data set and size by size, with one quantizer. The consensus step goes with the quantizer
alone: twice what gamma="auto" takes, or more, for larger steps did better where they were tried, on Banana.
The paper's method keeps the paper's bandwidths; the learners SGD, AdaGrad and Newton had the choice between those
and the recommended ones, with 20 and 80 features a kernel, and CHOCO the choice of its kernel. The recommended setting
is the same everywhere; its points differ in what and how often it sends: the quantizer's step, the rank of the basis
and the pace of gossip. That of the headline was picked among them in hindsight."""

SENT = """Send the data: nodes flood their samples along the path, and each learns alone, with the recommended learner,
from its own and from all that it has heard, a round later for every link. It gives up that raw data stay where they
are. All other methods keep to that, but for landmarks, which have no labels; so it is left out of what no other point
beats. Inputs have the nearest of evenly spaced levels in the range of the landmarks, which all nodes hold, and labels
one bit, at fixed width. A node makes one broadcast a sample, in the frame of gossip: its own sample and those that it
passes on, twenty in all once the farthest have come, and one at the ends of the path, which pass on nothing."""

REFERENCES = """No communication and the complete graph have the recommended learner. One place means that a single
learner sees all samples one after another, twenty times as many as a node: with the recommended learner, and as
gradient descent on 120 random features, at the best bandwidth and rate in hindsight. The batch optimum is kernel
logistic regression on 1024 random features that has seen four fifths of all samples before it is scored on the rest."""


def frontier_figure(results: Mapping[str, Frontier]) -> "Figure":
    """Return loss against bytes a sample, a panel for every data set."""
    columns = min(2, len(results))
    drawn, axes = figure(columns, -(-len(results) // columns), width=5.1, height=4.1)
    sizes = [point.bytes for found in results.values() for point in found.points if point.bytes <= WIDEST]
    for k, (axis, (data, found)) in enumerate(zip(axes, results.items(), strict=False)):
        axis.set(xscale="log", xlim=(min(sizes) / 1.2, max(sizes) * 1.2))
        _panel(axis, found)
        axis.set_title(TITLES[data] + beyond(found), fontsize=10, loc="left")
        if k + columns >= len(results):
            axis.set_xlabel("bytes a node sends with a sample, header and all")
        if k % columns == 0:
            axis.set_ylabel("mean loss over the whole stream")
    for axis in axes[len(results) :]:
        axis.remove()
    # The headline is the legend's title: the layout leaves room for one thing above the panels.
    drawn.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2 * columns, fontsize=9, frameon=False,
        title=textwrap.fill(headline(results), 50 * columns), title_fontproperties={"size": 12, "weight": "bold"},
    )  # fmt: skip
    drawn.supxlabel(textwrap.fill(NOTE, 75 * columns), fontsize=8, color=GREY)
    return drawn


def beyond(found: Frontier) -> str:
    """Return a line on what is too large for the axis, a family by its smallest; nothing where all is on it."""
    large = sorted((point for point in found.points if point.bytes > WIDEST), key=lambda point: -point.bytes)
    smallest = {point.family: point for point in large}.values()
    told = [f"{STYLES[p.family].label}: {p.loss:.3f} at {p.bytes:,.0f} bytes" for p in smallest]
    return f"\nbeyond the axis, {'; '.join(told)}" if told else ""


def headline(results: Mapping[str, Frontier]) -> str:
    """Return what the figure shows: how much of the paper's loss is left at no more than its bytes."""
    same = at_most_the_papers(results)
    shares = [f"{100 * pick(f, 'recommended', same).loss / pick(f, 'paper').loss:.0f} %" for f in results.values()]
    those = " and ".join(", ".join(shares).rsplit(", ", 1))
    return f"With no more bytes than the paper: {those} of its loss"


def at_most_the_papers(results: Mapping[str, Frontier]) -> str:
    """Return the form of the recommended setting that does best among those no larger than the paper's messages.

    It is the same for all data, and diverges on none: the one whose share of the paper's loss is least where it is
    greatest.
    """
    shares: dict[str, list[float]] = {}
    for found in results.values():
        paper = pick(found, "paper")
        for point in found.points:
            if point.family == "recommended":
                share = point.loss / paper.loss if point.bytes <= paper.bytes else np.inf
                shares.setdefault(point.what, []).append(share)
    everywhere = {what: max(each) for what, each in shares.items() if len(each) == len(results)}
    return min(everywhere, key=everywhere.__getitem__)


def pick(found: Frontier, family: str, what: str | None = None) -> Point:
    """Return the first point of a family, or the one that is called so."""
    return next(p for p in found.points if p.family == family and what in (None, p.what))


def _panel(axis: "Axes", found: Frontier) -> None:
    low = min(one.loss for one in (*found.lines.values(), *found.points))
    high = max(point.loss for point in found.points)
    axis.set_ylim(low - 0.05 * (high - low), high + 0.07 * (high - low))
    ticks = [size for size in BYTES if axis.get_xlim()[0] < size < axis.get_xlim()[1]]
    axis.set_xticks(ticks, [str(size) for size in ticks])
    axis.minorticks_off()
    whole = front(at_home(found.points))
    axis.plot([p.bytes for p in whole], [p.loss for p in whole], color="0.88", linewidth=9, zorder=0)
    for name, style in STYLES.items():
        _family(axis, [point for point in found.points if point.family == name], style)
    preset = pick(found, "recommended", PRESET)
    axis.plot(preset.bytes, preset.loss, "*", color=STYLES["recommended"].color, markersize=16, mec="w", zorder=6,
              label="omkl's default")  # fmt: skip
    _references(axis, found.lines)


def _family(axis: "Axes", points: Sequence[Point], style: Style) -> None:
    """Draw a family: filled what is not beaten by its own, joined by a line, and the rest hollow."""
    kept = front(points)
    sizes, losses = [*(p.bytes for p in kept), max(p.bytes for p in points)], [*(p.loss for p in kept), kept[-1].loss]
    axis.plot(sizes, losses, color=style.color, linestyle="-" if len(points) > 1 else "", linewidth=style.width,
              marker=style.marker, markersize=3 * style.width, markevery=range(len(kept)), label=style.label,
              zorder=4)  # fmt: skip
    for p in points:
        axis.errorbar(p.bytes, p.loss, p.half, fmt="none", ecolor=style.color, elinewidth=0.8, zorder=3)
        if p not in kept:
            axis.plot(p.bytes, p.loss, style.marker, color=style.color, markersize=4, mfc="w", alpha=0.6, zorder=4)


def _references(axis: "Axes", lines: Mapping[str, Point]) -> None:
    """Draw the lines to compare with, named in the margin, apart from each other."""
    low, high = axis.get_ylim()
    heights = apart([lines[name].loss for name in LINES], GAP * (high - low))
    for (name, (label, dashes)), height in zip(LINES.items(), heights, strict=True):
        loss = lines[name].loss
        axis.axhline(loss, color=GREY, linewidth=0.9, linestyle=dashes, zorder=1)
        axis.annotate(
            f"{label} {loss:.3f}", (1, loss), (1.05, height), ("axes fraction", "data"), ("axes fraction", "data"),
            fontsize=8.5, color=GREY, va="center", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip


def apart(heights: Sequence[float], gap: float) -> list[float]:
    """Return heights moved as little as need be for every two to be ``gap`` apart, in the same order.

    >>> apart([0.0, 1.0, 1.0], 0.5)
    [0.0, 0.75, 1.25]
    """
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(order))
    moved = np.empty(len(order))
    moved[order] = isotonic_regression(np.asarray(heights, dtype=np.float64)[order] - steps).x + steps
    return [float(height) for height in moved]


def frontier_body(png: Path, results: Mapping[str, Frontier], seeds: int) -> str:
    """Return the section: figure, what is compared, and the points that no other one beats."""
    places = list(results.values())
    families = [name for name in STYLES if name not in ("recommended", DATA)]
    rows = [[STYLES[name].label, *(_best(found, name) for found in places)] for name in families]
    sent = [point.what for point in places[0].points if point.family == DATA]
    rows += [[f"{STYLES[DATA].label}, {what}", *(_point(pick(f, DATA, what)) for f in places)] for what in sent]
    rows += [["recommended, as it is", *(_point(pick(found, "recommended", PRESET)) for found in places)]]
    rows += [[label, *(_value(found.lines[name]) for found in places)] for name, (label, _) in LINES.items()]
    parts = [
        image(png, CAPTION),
        paragraph(f"{seeds} seeds. {COMPETITORS}"),
        paragraph(REFERENCES),
        paragraph(SENT),
        paragraph(
            "The least loss that each family reaches, at what size, and all of those that send the data; "
            "intervals are 95 %."
        ),
        table(["", *(TITLES[data] for data in results)], rows),
    ]
    for data, found in results.items():
        kept = front(at_home(found.points))
        parts += [
            paragraph(f"{TITLES[data]}: what no other point beats that leaves raw data where they are"),
            table(["", "setting", "bytes", "loss"],
                  [[STYLES[p.family].label, p.what, f"{p.bytes:.1f}", _value(p)] for p in kept]),
        ]  # fmt: skip
    return "".join(parts)


def frontier_csv(results: Mapping[str, Frontier]) -> str:
    """Return all points and lines as comma-separated values; lines have no bytes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["data", *Point._fields])
    for data, found in results.items():
        writer.writerows([data, *point] for point in found.points)
        writer.writerows([data, name, line.what, "", line.loss, line.half] for name, line in found.lines.items())
    return text.getvalue()


def _best(found: Frontier, family: str) -> str:
    return _point(min((p for p in found.points if p.family == family), key=lambda p: p.loss))


def _point(point: Point) -> str:
    return f"{_value(point)} at {point.bytes:.0f} bytes"


def _value(point: Point) -> str:
    return f"{point.loss:.4f} ± {point.half:.4f}"
