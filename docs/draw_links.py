"""Draws the states of a link into images/links.png, from the table that nodes go by: ``python docs/draw_links.py``."""

from pathlib import Path

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Patch

from omkl.node.links import TRANSITIONS, WAITED_FOR, LinkState

CONNECTING, SYNCING, SYNCED, LEFT_OUT, REFUSED = LinkState

IMAGE = Path(__file__).parent / "images" / "links.png"
WIDTH, HEIGHT = 2.3, 0.9
PLACES = {CONNECTING: (0, 0), SYNCING: (5, 0), SYNCED: (10, 0), LEFT_OUT: (5, -3.6), REFUSED: (5, 3.6)}
# How far an arrow bends, and where along it its signals stand; others are straight, with theirs in the middle.
BENDS = {
    (CONNECTING, SYNCING): (-0.14, 0.5),
    (SYNCING, CONNECTING): (-0.14, 0.5),
    (SYNCING, SYNCED): (-0.14, 0.5),
    (SYNCED, SYNCING): (-0.14, 0.5),
    (SYNCED, CONNECTING): (-0.34, 0.67),
    (CONNECTING, LEFT_OUT): (0.22, 0.5),
    (SYNCING, LEFT_OUT): (0.0, 0.7),
    (SYNCED, LEFT_OUT): (-0.03, 0.36),
    (LEFT_OUT, SYNCED): (0.2, 0.5),
    (SYNCED, REFUSED): (0.2, 0.45),
    (CONNECTING, REFUSED): (-0.22, 0.5),
    (REFUSED, CONNECTING): (-0.06, 0.5),
    (SYNCING, REFUSED): (-0.4, 0.5),
    (REFUSED, SYNCING): (-0.4, 0.5),
    (LEFT_OUT, REFUSED): (2.15, 0.5),
}
USED, WAITED, WITHOUT = "#1b7f4d", "#2f5d9b", "#7d828b"
MEANING = {
    USED: "its copy is mixed in",
    WAITED: "not mixed in; a round in lock step waits for it",
    WITHOUT: "not mixed in; rounds go on without it",
}


def draw(axes: Axes) -> None:
    """Draw every state and, from one to another, an arrow with the signals that lead there."""
    boxes = {state: _box(axes, state) for state in LinkState}
    for state, row in TRANSITIONS.items():
        for after in dict.fromkeys(row.values()):
            signals = [signal for signal, to in row.items() if to is after]
            _arrow(axes, boxes, state, after, "\n".join(signals))
    key = [Patch(color=color, label=meaning) for color, meaning in MEANING.items()]
    axes.legend(handles=key, loc="lower left", frameon=False, fontsize=11, handlelength=1.2)
    axes.set_aspect("equal")
    axes.set_xlim(-1.4, 13.6)
    axes.set_ylim(-5.6, 4.2)
    axes.axis("off")


def _box(axes: Axes, state: LinkState) -> FancyBboxPatch:
    x, y = PLACES[state]
    color = USED if state is SYNCED else WAITED if state in WAITED_FOR else WITHOUT
    corner = (x - WIDTH / 2, y - HEIGHT / 2)
    style = "round,pad=0,rounding_size=0.25"
    box = FancyBboxPatch(corner, WIDTH, HEIGHT, boxstyle=style, facecolor=color, edgecolor="none", zorder=3)
    axes.add_patch(box)
    axes.text(x, y, state, ha="center", va="center", color="white", fontsize=14, weight="bold", zorder=4)
    return box


def _arrow(
    axes: Axes, boxes: dict[LinkState, FancyBboxPatch], before: LinkState, after: LinkState, signals: str
) -> None:
    (x0, y0), (x1, y1) = PLACES[before], PLACES[after]
    bend, along = BENDS.get((before, after), (0.0, 0.5))
    arrow = FancyArrowPatch(
        (x0, y0), (x1, y1), patchA=boxes[before], patchB=boxes[after], connectionstyle=f"arc3,rad={bend}",
        arrowstyle="-|>", mutation_scale=16, shrinkA=3, shrinkB=3, color="#33363b", linewidth=1.3, zorder=1,
    )  # fmt: skip
    axes.add_patch(arrow)
    # The arrow is a parabola through the control point that matplotlib sets aside of the middle by the bend.
    control = (x0 + x1) / 2 + bend * (y1 - y0), (y0 + y1) / 2 - bend * (x1 - x0)
    weights = (1 - along) ** 2, 2 * along * (1 - along), along**2
    x, y = np.asarray(weights) @ np.array([(x0, y0), control, (x1, y1)])
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.text(x, y, signals, ha="center", va="center", fontsize=11.5, color="#33363b", bbox=paper, zorder=2)


if __name__ == "__main__":
    figure, axes = plt.subplots(figsize=(11.4, 7.4), facecolor="white")
    draw(axes)
    figure.savefig(IMAGE, dpi=110, bbox_inches="tight", metadata={"Software": None})
