"""A network learns Banana: 20 nodes on a path, three kernels, three bits. Prints a table, writes a figure."""

import sys
import time
from pathlib import Path

import omkl
from omkl.methods import Method
from omkl.plots import figure, plot_loss
from omkl.simulator import Result

SEEDS = 20
SETTINGS: dict[str, dict[str, Method]] = {
    "the letter's steps: eta=0.01, gamma=0.009": {
        "gossip, 3 bits": omkl.Gossip(eta=0.01, gamma=0.009, quantizer=omkl.QSGD(bits=3)),
        "gossip, exact": omkl.Gossip(eta=0.01, gamma=0.009, quantizer=None),
        "no communication": omkl.Local(eta=0.01),
    },
    "larger steps: eta=1, gamma=0.5": {
        "gossip, 3 bits": omkl.Gossip(eta=1.0, gamma=0.5, quantizer=omkl.QSGD(bits=3, rescale=True)),
        "gossip, exact": omkl.Gossip(eta=1.0, gamma=0.5, quantizer=None),
        "no communication": omkl.Local(eta=1.0),
    },
}


def row(name: str, result: Result) -> str:
    s = result.summary()
    loss = f"{s['loss']:.4f}   {s['final_loss']:.4f} ± {s['final_loss_stderr']:.4f}"
    return f"  {name:<18} {loss}   {s['final_accuracy']:6.1%}   {s['bits_per_node_round']:6.0f}"


def main(out: Path) -> None:
    started = time.perf_counter()
    drawn, axes = figure(columns=2)
    print(f"Banana, 20 nodes on a path, kernels of sigma 1, 3, 5, D=20, {SEEDS} seeds")
    print(
        "A constant guess loses ln 2 = 0.6931. ± is one standard error over feature draws, for one order of the data.\n"
    )
    for axis, (title, methods) in zip(axes, SETTINGS.items(), strict=True):
        print(f"{title}\n  {'':<18} {'loss':<8} {'last tenth':<17}   {'correct':<7}  bits a node a round")
        for name, method in methods.items():
            result = omkl.simulate("banana", "path", nodes=20, method=method, seeds=SEEDS)
            print(row(name, result))
            plot_loss(axis, result, label=name, linestyle="--" if "exact" in name else "-")
        print()
        axis.set_title(title, fontsize=10)
    axes[0].legend(frameon=False)
    out.mkdir(parents=True, exist_ok=True)
    drawn.savefig(out / "demo.png", dpi=150)
    print(f"figure: {out / 'demo.png'}   ({time.perf_counter() - started:.0f} s)")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out/demo"))
