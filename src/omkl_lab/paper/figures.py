"""The letter's figures, drawn from finished runs."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from omkl.metrics import progressive
from omkl.plots import figure
from omkl.storage import write_whole
from omkl_lab.paper.letter import TITLES, Floats, Runs, half_widths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from omkl_lab.paper.regret import Study

METHODS = {
    "gossip": ("gossiped OMKL, path (M=7)", "C0", "-"),
    "complete": ("OMKL, complete graph (M=7)", "C1", "--"),
    "single": ("single-kernel CHOCO, path (M=7)", "C2", "-"),
    "local": ("no communication", "k", ":"),
}
GRAPHS = {"complete": ("complete", "C1", "-"), "ring": ("ring", "C2", "-"), "path": ("path", "C0", "-")}


def figure1(results: Mapping[str, Mapping[str, Runs]], against: str = "rounds") -> "Figure":
    """Return loss over rounds, or over bits sent, for the letter's methods on each data set."""
    drawn, axes = figure(columns=len(results), width=4.6)
    for axis, (data, runs) in zip(axes, results.items(), strict=True):
        for case, (label, color, style) in METHODS.items():
            if against == "bits" and case == "local":
                continue
            scale = runs[case].bits / 8000 if against == "bits" else 1.0
            _curve(axis, progressive(runs[case].loss), runs[case], label, color, style, scale)
        axis.set_title(TITLES[data])
        axis.set_xlabel("kilobytes sent by a node, all-in" if against == "bits" else "round")
    axes[0].set_ylabel("mean loss so far")
    axes[-1].legend(frameon=False, fontsize=8)
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
                _curve(right, curve - base, runs[case], f"{label} - complete", color, style)
        left.set_title(f"{TITLES[data]}: eta=0.1, gamma=0.09, exact", fontsize=10)
        left.set_ylabel("mean loss so far")
        right.set_title("paired difference", fontsize=10)
        right.axhline(0, color="0.5", linewidth=0.8)
        for axis in (left, right):
            axis.set_xlabel("round")
        left.legend(frameon=False)
        right.legend(frameon=False, loc="center right")
    return drawn


def regret_figure(studies: "Mapping[str, Study]") -> "Figure":
    """Return regret over the length of the stream, both in logarithms, with the fitted power of each case."""
    drawn, axes = figure(columns=len(studies), width=4.6)
    for axis, (title, study) in zip(axes, studies.items(), strict=True):
        lengths = study.lengths.astype(np.float64)
        for i, (case, power) in enumerate(study.exponents.items()):
            logs = np.log(study.regret[i])
            line = logs.mean() + power.mean * (np.log(lengths) - np.log(lengths).mean())
            name = "no communication" if case == "alone" else f"gossip, {case}"
            axis.plot(lengths, np.exp(logs.mean(axis=1)), "o", color=f"C{i}", markersize=4)
            axis.plot(lengths, np.exp(line), color=f"C{i}", label=f"{name}: T^{power.mean:.2f}")
        axis.set(xscale="log", yscale="log", xlabel="rounds T", title=title)
        axis.legend(frameon=False, fontsize=8)
    axes[0].set_ylabel("regret of a node")
    return drawn


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
