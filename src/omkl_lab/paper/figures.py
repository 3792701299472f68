"""The paper's figures, drawn from finished runs."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from omkl.metrics import progressive
from omkl.plots import PALETTE, figure, legend_below
from omkl.storage import write_whole
from omkl_lab.paper.experiments import TITLES, Floats, Runs, half_widths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from omkl_lab.paper.regret import Study

METHODS = {
    "gossip": ("gossiped OMKL, path (M=7)", PALETTE[0], "-"),
    "complete": ("OMKL, complete graph (M=7)", PALETTE[1], "--"),
    "single": ("single-kernel CHOCO, path (M=7)", PALETTE[2], "-"),
    "local": ("no communication", "k", ":"),
}
GRAPHS = {
    "complete": ("complete", PALETTE[1], "-"), "ring": ("ring", PALETTE[2], "--"), "path": ("path", PALETTE[0], ":"),
}  # fmt: skip
REGRET = {"alone": ("no communication", "k"), **{name: (f"gossip, {name}", GRAPHS[name][1]) for name in GRAPHS}}


def figure1(results: Mapping[str, Mapping[str, Runs]], against: str = "rounds") -> "Figure":
    """Return loss over rounds, or over bits sent, for the paper's methods on each data set."""
    drawn, axes = figure(columns=len(results), width=4.6 if len(results) < 3 else 3.7)
    for axis, (data, runs) in zip(axes, results.items(), strict=True):
        for case, (label, color, style) in METHODS.items():
            if against == "bits" and case == "local":
                continue
            scale = runs[case].bits / 8000 if against == "bits" else 1.0
            _curve(axis, progressive(runs[case].loss), runs[case], label, color, style, scale)
        axis.set_title(TITLES[data])
        axis.set_xlabel("kilobytes sent by a node, all-in" if against == "bits" else "round")
        few_ticks(axis)
    axes[0].set_ylabel("mean loss so far")
    legend_below(axes[0])
    return drawn


def figure2(results: Mapping[str, Mapping[str, Runs]]) -> "Figure":
    """Return loss over rounds on three graphs, and how far ring and path lie above the complete graph."""
    drawn, axes = figure(columns=2 * len(results), width=4.6)
    for i, (data, runs) in enumerate(results.items()):
        left, right = axes[2 * i : 2 * i + 2]
        base = progressive(runs["complete"].loss)
        for case, (label, color, style) in GRAPHS.items():
            curve = progressive(runs[case].loss)
            _curve(left, curve, runs[case], label, color, style)
            if case != "complete":
                _curve(right, 1000 * (curve - base), runs[case], label, color, "-")
        left.set_title(TITLES[data])
        left.set_ylabel("mean loss so far")
        right.set_title("The same, minus the complete graph")
        right.axhline(0, color=GRAPHS["complete"][1], linewidth=0.8)
        right.set_ylabel("difference in 1/1000")
        for axis in (left, right):
            axis.set_xlabel("round")
            few_ticks(axis)
    legend_below(axes[0])
    return drawn


def regret_figure(studies: "Mapping[str, Study]") -> "Figure":
    """Return regret over the length of the stream, both in logarithms, with the fitted power of each case."""
    drawn, axes = figure(columns=len(studies), width=4.6)
    for axis, (title, study) in zip(axes, studies.items(), strict=True):
        lengths = study.lengths.astype(np.float64)
        for i, (case, power) in enumerate(study.exponents.items()):
            logs = np.log(study.regret[i])
            line = logs.mean() + power.mean * (np.log(lengths) - np.log(lengths).mean())
            name, color = REGRET.get(case, (case, f"C{i}"))
            axis.plot(lengths, np.exp(logs.mean(axis=1)), "o", color=color, markersize=4)
            axis.plot(lengths, np.exp(line), color=color, label=f"{name}: $T^{{{power.mean:.2f}}}$")
        axis.set(xscale="log", yscale="log", xlabel="rounds T", title=title)
        axis.set_xticks(lengths[::2], [f"{one:g}" for one in lengths[::2]])
        axis.minorticks_off()
        axis.set_ylim(top=axis.get_ylim()[1] * 3)  # room for the legend
        axis.legend(frameon=False, fontsize=9, loc="upper left")
    axes[0].set_ylabel("regret of a node")
    return drawn


def few_ticks(axis: "Axes") -> None:
    """Leave at most six ticks on each axis."""
    axis.locator_params(nbins=5)


def save(drawn: "Figure", folder: Path, name: str) -> None:
    """Write a figure as PNG and SVG."""
    for kind, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
        buffer = io.BytesIO()
        drawn.savefig(buffer, format=kind, **options)
        write_whole(folder / f"{name}.{kind}", buffer.getvalue())


def _curve(axis: "Axes", curves: Floats, runs: Runs, label: str, color: str, style: str, scale: float = 1.0) -> None:
    x = scale * np.arange(1, curves.shape[1] + 1)
    mean, half = curves.mean(axis=0), half_widths(curves, runs.shuffle)
    thin = np.unique(np.linspace(0, len(x) - 1, 400).astype(int))
    axis.plot(x[thin], mean[thin], label=label, color=color, linestyle=style)
    axis.fill_between(x[thin], (mean - half)[thin], (mean + half)[thin], color=color, alpha=0.15, linewidth=0)
