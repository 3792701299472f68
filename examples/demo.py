"""What a network learns by gossip, beside one place, nobody and the paper; then the paper's claims, put to the test.

Twenty simulated devices on a path learn Banana, two classes that lie around each other. Prints a table and verdicts,
and leaves in a folder a figure, a report on the claims, and a run for ``omkl dashboard``.
"""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import omkl
from omkl.dashboard import Recorder
from omkl.metrics import progressive
from omkl.plots import figure, plot_loss
from omkl.simulator import Result
from omkl_lab.paper.claims import Claim, judge
from omkl_lab.paper.run import Paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NODES, SEEDS = 20, 10
NETWORK, PLACE, ALONE, PAPER = (
    "a network, by gossip",
    "one place with all the data",
    "each device alone",
    "the paper's settings",
)


def learn(seeds: int, rounds: int | None) -> dict[str, Result]:
    """Return what becomes of the same samples in four ways."""
    network: dict[str, Any] = {"data": "banana", "topology": "path", "nodes": NODES, "seeds": seeds, "rounds": rounds}
    place = network | {"nodes": 1, "rounds": rounds and rounds * NODES}
    return {
        NETWORK: omkl.simulate(**network),
        PLACE: omkl.simulate(**place, method="alone"),
        ALONE: omkl.simulate(**network, method="alone"),
        PAPER: omkl.simulate(**network, method="paper"),
    }


def row(name: str, result: Result) -> str:
    """Return a line of the table."""
    told = result.summary()
    sent = "its samples" if name == PLACE else f"{told['bits_per_node_round'] / 8:.0f} bytes"
    return f"  {name:<29} {told['final_accuracy']:.1%}   {told['final_loss']:.3f}   {sent}"


def draw(axes: "Axes", results: dict[str, Result]) -> None:
    """Draw the mean loss so far over the samples that a device has seen, each curve with its name at its end."""
    for name, result in results.items():
        if name == PLACE:  # sees as many samples in a round as the whole network
            curve = progressive(result.loss.astype(np.float64)).mean(axis=0)[NODES - 1 :: NODES]
            (line,) = axes.plot(np.arange(len(curve)) + 1.0, curve, linestyle="--")
        else:
            plot_loss(axes, result, label=name)
            line = axes.lines[-1]
        x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        place = (6, -5 if name == PLACE else 5 if name == NETWORK else 0)
        axes.annotate(name, (x[-1], y[-1]), place, textcoords="offset points", color=line.get_color(), va="center")
    axes.set_xlabel("samples that a device has seen")
    axes.set_title("Banana: what a network learns without sharing its samples", loc="left")


def claims(out: Path, seeds: int) -> list[Claim]:
    """Return the paper's claims with verdicts, on the same data; its figures and a report are left in the folder."""
    paper = Paper(out, seeds, ("banana",), quick=True)
    paper.run(("figure1", "figure2", "claims"))
    return judge(paper.figure1_runs, paper.figure2_runs)


def main(out: Path, seeds: int = SEEDS, rounds: int | None = None) -> None:
    """Show it all; fewer seeds and rounds are for tests."""
    started = time.perf_counter()
    print(f"{NODES} devices stand in a row. Each sees samples of its own and talks to the two beside it.")
    print(f"The task is Banana: 5,300 points of two classes. Means over {seeds} seeds.\n", flush=True)
    results = learn(seeds, rounds)
    print(f"  {'who learns':<29} right   loss    a device sends in a round")
    for name, result in results.items():
        print(row(name, result))
    print("\nRight and loss are of the last tenth of the stream, each sample predicted before it is learned.")
    print("There the network does about as well as one place. It sent changes of models, not samples; without TLS,")
    print("whoever hears them can work out many samples (docs/eavesdropping.md). All devices hold 500 inputs without")
    print("labels. A guess is right 55 % of the time, with loss 0.693.\n")
    out.mkdir(parents=True, exist_ok=True)
    drawn, (axes,) = figure(width=8.0, height=4.0)
    draw(axes, results)
    drawn.savefig(out / "demo.png", dpi=150)
    with Recorder(out / "run") as recorder:
        omkl.simulate("banana", "path", nodes=NODES, rounds=rounds, watch=recorder)
    print(
        f"The paper's claims, at its settings, on this set alone ({seeds} seeds; docs/paper.md has all, and why):\n",
        flush=True,
    )
    for claim in claims(out / "paper", seeds):
        print(f"  {claim.verdict:<14}  {claim.text}")
    print("\neta is the step of learning, M the number of levels that a message is rounded to.")
    print("OMKL is one model for all nodes: each sends its gradients to all others.")
    print(f"\n{out / 'demo.png'} shows the mean loss so far, {out / 'paper' / 'report.html'} the paper's figures.")
    omkl_here = os.path.relpath(Path(sys.executable).with_name("omkl"))
    command = f"{omkl_here} dashboard {out / 'run'}"
    took = f"{time.perf_counter() - started:.0f} s, installing not counted"
    print(f"Watch the network learn in your browser, with the first seed:\n\n  {command}\n\n({took})")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/demo"))
