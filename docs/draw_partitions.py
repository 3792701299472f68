"""Draws who has which digits under each partition into images/partitions.png: ``python docs/draw_partitions.py``."""

from pathlib import Path

from omkl import plots
from omkl.data import IID, Dirichlet, Partition, Position, Quantity, Shards, load

IMAGE = Path(__file__).parent / "images" / "partitions.png"
NODES = 20
CASES: dict[str, Partition] = {
    "IID()": IID(),
    "Dirichlet(alpha=1)": Dirichlet(1.0),
    "Dirichlet(alpha=0.1)": Dirichlet(0.1),
    "Shards(each=2)": Shards(2),
    "Position()": Position(),
    "Quantity(alpha=0.5)": Quantity(0.5),
}

X, y, *_ = load("digits10")
figure, axes = plots.figure(3, 2, width=4.0, height=2.7)
for one, (title, partition) in zip(axes, CASES.items(), strict=True):
    plots.plot_partition(one, [y[rows] for rows in partition.rows(X, y, NODES)])
    one.set_title(title, fontsize=11)
told = axes[0].get_legend_handles_labels()
figure.legend(*told, loc="outside right center", title="digit", frameon=False, reverse=True)
figure.savefig(IMAGE, dpi=110)
