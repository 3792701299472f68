"""The quantizer study: the bytes of each message, how close it comes, and the loss that follows."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from omkl import features, noise
from omkl.compressors import RandK, Sign, TopK
from omkl.data import as_stream
from omkl.methods import Gossip
from omkl.quantizers import QSGD, Nearest, Quantizer, restore
from omkl.simulator.engine import Case, Problem, run
from omkl.simulator.measures import metrics
from omkl.topology import build
from omkl.wire import VERSION
from omkl_lab.paper import report
from omkl_lab.paper.experiments import NODES, Arrays, Floats, Progress, Store, Tell, spread

D = 20
SETTINGS = {"paper": (0.01, 0.009), "larger": (1.0, 0.1)}
"""eta and gamma; the larger gamma suits the coarsest of the compressors."""

STUDIED: dict[str, Quantizer | None] = {
    "exact": None,
    **{f"QSGD M={2**bits - 1}": QSGD(bits=bits) for bits in (3, 4, 5, 8)},
    **{f"QSGD M={2**bits - 1}, rescaled": QSGD(bits=bits, rescale=True) for bits in (1, 2, 3, 4, 5, 8)},
    **{f"nearest, step {step:g}": Nearest(step) for step in (1, 1.5, 2, 2.5, 3)},
    "sign": Sign(),
    "top 4 of 40": TopK(4),
    "random 4 of 40": RandK(4),
}


class Row(NamedTuple):
    """One quantizer on one data set at one setting."""

    quantizer: str
    bits: float
    """All-in, a node and round on average, as the codec packs them."""
    bound: float
    """The delta it guarantees."""
    measured: float
    """The delta it showed on the differences it had to send."""
    loss: float
    """Over the last tenth of the stream."""
    difference: float
    """Of that loss from the exact run's, paired."""
    error: float
    """Standard error of the difference."""


def study(store: Store, data: str, setting: str, seeds: int, progress: Progress) -> list[Row]:
    """Return a row for every quantizer, computed or from the store."""
    title = f"quantizers-{data}-{setting}"
    found = store.get(title, {"seeds": seeds, "studied": repr(STUDIED), "steps": SETTINGS[setting], "wire": VERSION},
                      lambda: _compute(data, setting, seeds, partial(progress, title)))  # fmt: skip
    rows, one_shuffle = [], np.zeros(seeds, dtype=np.int64)
    for (name, quantizer), bits, delta, final in zip(
        STUDIED.items(), found["bits"], found["delta"], found["final"], strict=True
    ):
        bound = Gossip(quantizer=quantizer).channel.quantizer.delta(2 * D)
        apart = spread(final - found["final"][0], one_shuffle)
        rows.append(Row(name, float(bits), bound, float(delta), float(final.mean()), apart.mean, apart.error))
    return rows


WORDS = """What a node sends in a round, all-in as the codec packs it; the contraction delta that a quantizer guarantees
for every vector and the one it showed on the differences it had to send; the loss over the last tenth of the
stream, and its paired difference from the run that sends exact float32."""


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a table of the report."""
    head = ["quantizer", "bits", "delta, guaranteed", "delta, measured", "final loss", "against exact"]
    return report.table(head, [
        [r.quantizer, f"{r.bits:.0f}", f"{r.bound:.3f}", f"{r.measured:.3f}", f"{r.loss:.5f}",
         f"{r.difference:+.1e} ± {r.error:.0e}"] for r in rows
    ])  # fmt: skip


def _compute(data: str, setting: str, seeds: int, tell: Tell) -> Arrays:
    eta, gamma = SETTINGS[setting]
    methods = [Gossip(eta=eta, gamma=gamma, quantizer=quantizer, features=D) for quantizer in STUDIED.values()]
    stream, _ = as_stream(data, NODES, 0)
    runs = list(range(seeds))
    V = np.stack([features.draw(methods[0].bank.kernels, D, stream.X.shape[-1], seed) for seed in runs])
    path = (build("path", NODES),)
    problem = Problem(stream.X, methods[0].objective.encode(stream.y), features.Features(V), runs)
    outcomes: Any = run(problem, [Case(method, path) for method in methods], metrics, tell)
    last = max(1, len(stream.X) // 10)
    return {
        "bits": np.array([8 * measured.sent.mean(dtype=np.float64) / NODES for _, measured in outcomes]),
        "final": np.array([measured.loss[-last:].mean(axis=0, dtype=np.float64) for _, measured in outcomes]),
        "delta": np.array(
            [_measured(m.channel.quantizer, s.theta - s.hidden) for m, (s, _) in zip(methods, outcomes, strict=True)]
        ),
    }


def _measured(quantizer: Quantizer, differences: Floats) -> float:
    """Return 1 - E|Q(v) - v|^2 / |v|^2 over the differences that are to be sent after the last round."""
    uniforms = noise.dither(noise.key(0, "study"), differences.shape) if quantizer.dithered else None
    error = restore(quantizer.quantize(differences, uniforms)) - differences
    powers = np.sum(differences.astype(np.float64) ** 2, axis=-1)
    return float(1 - np.mean(np.sum(error.astype(np.float64) ** 2, axis=-1)[powers > 0] / powers[powers > 0]))
