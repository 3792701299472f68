"""Draws the first figure of README.md, the run of its snippet, into images/first.png: ``python docs/draw_first.py``."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import omkl
from omkl import plots

IMAGE = Path(__file__).parent / "images" / "first.png"
RUN = {"data": "banana", "topology": "path", "nodes": 20, "seeds": 2}  # the snippet's
FIRST = 9  # rounds that are not drawn: their means are of a few
BLUE, RED, GRAY = plots.PALETTE[0], plots.PALETTE[1], "#777777"


def losses() -> dict[str, np.ndarray]:
    """Return the loss of every case by round, the mean over seeds and nodes, ``(265,)``."""
    methods = {"the paper's settings": "paper", "each node alone": "alone", "omkl's default": omkl.recommended()}
    found = {name: omkl.simulate(**RUN, method=method) for name, method in methods.items()}
    rounds = next(iter(found.values())).loss.shape[1]
    central = omkl.simulate(data=RUN["data"], nodes=1, seeds=RUN["seeds"]).loss  # the same samples, one after another
    curves = {name: result.loss.mean(axis=0) for name, result in found.items()}
    return curves | {"one place with all data": central.mean(axis=0)[: 20 * rounds].reshape(rounds, 20).mean(axis=1)}


def draw(curves: dict[str, np.ndarray]) -> Figure:
    """Return the loss over the last tenth of the rounds, round by round: where it ends is what the snippet prints."""
    styles = {  # color, line, its width, and how far below its end the name stands
        "the paper's settings": (RED, "-", 1.8, 2),
        "each node alone": (GRAY, "-", 1.5, 0),
        "omkl's default": (BLUE, "-", 2.6, 8),
        "one place with all data": ("black", "--", 1.3, -6),
    }
    figure, (axes,) = plots.figure(width=7.6, height=3.9)
    for name, curve in curves.items():
        color, line, width, below = styles[name]
        recent, x = trailing(curve, len(curve) // 10), np.arange(1, len(curve) + 1)
        axes.plot(x[FIRST:], recent[FIRST:], color=color, linestyle=line, linewidth=width)
        axes.annotate(f"{recent[-1]:.2f}  {name}", (x[-1], recent[-1]), (6, -below), textcoords="offset points",
                      color=color, va="center", annotation_clip=False)  # fmt: skip
    axes.axhline(np.log(2), color=GRAY, linewidth=0.8, linestyle=":")
    axes.annotate("always guessing one half: 0.69", (x[-1], np.log(2)), (0, 5), textcoords="offset points", color=GRAY,
                  ha="right", fontsize=9)  # fmt: skip
    axes.set(xlabel="round", ylabel="loss, mean of the last 26 rounds", xlim=(0, len(x)), ylim=(0, 0.76))
    axes.set_title("What 20 nodes on a path learn of Banana")
    return figure


def trailing(curve: np.ndarray, window: int) -> np.ndarray:
    """Return the mean over the last ``window`` entries, over fewer at the beginning."""
    sums = np.concatenate([[0.0], np.cumsum(curve, dtype=np.float64)])
    last = np.arange(1, len(curve) + 1)
    first = np.maximum(last - window, 0)
    return np.asarray((sums[last] - sums[first]) / (last - first))


if __name__ == "__main__":
    draw(losses()).savefig(IMAGE, dpi=150, metadata={"Software": None})
