"""What a network must be for nodes to run it; a refusal names the key of the network's file."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from omkl import calibration, config, scaling
from omkl.compressors import Sign
from omkl.config import Table
from omkl.data import DATA_SETS
from omkl.data.reading import is_file as is_table
from omkl.data.streams import numbers
from omkl.errors import InputError
from omkl.experiment import Experiment
from omkl.landmarks import Landmarks
from omkl.losses import Softmax
from omkl.methods import Choco, Gossip, Method
from omkl.node.labels import Labels
from omkl.node.settings import Access, Member, Timing, Tls
from omkl.quantizers import QSGD, Exact, Nearest
from omkl.scaling import Inputs
from omkl.topology import Graph, Topology
from omkl.topology.graphs import TOLERANCE

MOST_NUMBERS = 2**26  # of a model and of what its features are made with: 256 MiB
ON_THE_WIRE = (Exact, QSGD, Nearest, Sign)


def distinct(members: Sequence[Member], protocol: str) -> None:
    """Refuse nodes that share an id or an endpoint, or that listen by another protocol."""
    if not members:
        raise InputError("nodes: [] given; a network has one node or more; list each under [[nodes]]")
    ids: dict[str, int] = {}
    taken: dict[str, str] = {}
    pages: dict[tuple[str, str], str] = {}
    for k, member in enumerate(members):
        if (first := ids.setdefault(member.id, k)) != k:
            raise InputError(f"nodes.{k}.id: {member.id!r} is nodes.{first} already; ids must differ; rename one")
        own, _, address = member.listen.partition("/")
        if own != protocol:
            rule = "with [tls] nodes listen on tls/" if protocol == "tls" else "tls/ needs [tls] and its files"
            raise InputError(f"nodes.{k}.listen: {member.listen} given; {rule}; change one of them")
        if (other := taken.setdefault(address.lower(), member.id)) != member.id:
            raise InputError(
                f"nodes.{k}.listen: {address} is where {other} listens; endpoints must differ; take another port"
            )
    for k, member in enumerate(members):
        if member.metrics is None:
            continue
        # Other devices may well use the same: 127.0.0.1 is each one's own.
        device, page = member.listen.partition("/")[2].rpartition(":")[0].lower(), member.metrics.lower()
        listener = taken.get(page) if page.rpartition(":")[0] == device else None
        other = pages.setdefault((device, page), member.id)
        if listener is not None or other != member.id:
            what = f"{listener} listens" if listener is not None else f"{other} serves its own"
            raise InputError(
                f"nodes.{k}.metrics: {member.metrics} is where {what}; endpoints must differ; take another port"
            )


def identified(access: Access, tls: Tls | None) -> None:
    """Refuse names where nobody proves to have one."""
    if tls is None and access.names:
        raise InputError(
            f"access: {', '.join(sorted(access.names))} named; without TLS nobody proves a name; add [tls], or write "
            '["*"] for everyone, [] for nobody'
        )


def agrees(spec: Experiment, learning: Table, nodes: int, inputs: int) -> None:
    """Refuse a simulation of more or fewer nodes, or of a data set of known and other width."""
    if spec.nodes != nodes:
        raise InputError(
            f"learning.nodes: {spec.nodes} given, {nodes} listed; they must agree; list all or leave it out"
        )
    data = learning.get("data")
    if isinstance(data, str) and not is_table(data) and inputs != (d := DATA_SETS[data.lower().replace("-", "_")].d):
        raise InputError(
            f"inputs is {inputs}; learning.data is {data}, which has {d}; write inputs = {d}, or leave data out"
        )


def paced(method: Gossip, timing: Timing) -> None:
    """Refuse a pace where the clock has one."""
    if method.channel.pace is not None and timing.mode != "lockstep":
        raise InputError(
            f"learning.method.pace: given, or the method's own, and timing.mode is {timing.mode}; there gossip goes by "
            "the clock, timing.period; write pace = false under [learning.method], or mode = 'lockstep'"
        )


def runnable(method: Method) -> Gossip:
    """Return the method; refuse one that only the simulator runs."""
    fresh = isinstance(method, Choco) and method.fresh
    if not isinstance(method, Gossip) or fresh:
        raise InputError(
            f"learning.method: {method.name}{' with fresh copies' if fresh else ''} is for the simulator alone; nodes "
            "run gossip, or choco without fresh; choose one"
        )
    if not isinstance(method.channel.quantizer, ON_THE_WIRE):
        raise InputError(
            f"learning.method.quantizer: {method.channel.quantizer.name} is for the simulator alone; nodes send "
            f"{', '.join(one.name for one in ON_THE_WIRE)}; try nearest"
        )
    for kernel in method.bank.kernels:
        if kernel.spectrum is not None:
            raise InputError(
                f"learning.method.kernels: {kernel.name!r} has a spectrum of its own; nodes compare kernels by name "
                "and bandwidth; use omkl.gaussian(1, 3, 5)"
            )
    if isinstance(loss := method.objective, Softmax) and loss.classes is None:
        raise InputError(
            "learning.method.loss: softmax without classes; nodes agree on their number before they see a label; write "
            '{name = "softmax", classes = 3}'
        )
    return method


def sized(method: Gossip, inputs: int) -> None:
    """Refuse a model that no device holds, before memory is taken for it."""
    bank, loss = method.bank, method.objective
    outputs = max(getattr(loss, "classes", None) or 1, getattr(loss, "outputs", 1))
    wide = bank.basis.rows if isinstance(bank.basis, Landmarks) else 2 * bank.features
    made = wide * inputs + (0 if bank.basis is None else wide * max(wide, bank.width))
    if (count := len(bank.kernels) * made + bank.members * outputs * bank.width) > MOST_NUMBERS:
        raise InputError(
            f"learning.method: {count:,} numbers with inputs = {inputs}; a node holds {MOST_NUMBERS:,} at most; lower "
            "features, the rank, outputs or inputs"
        )


def calibrated(
    method: Gossip, given: npt.ArrayLike | None, inputs: int, seed: int, standardize: bool = False
) -> Inputs | None:
    """Return the rows that a method is calibrated on, of those given; refuse what it cannot be. None if it is not."""
    count = calibration.rows(method.bank.basis, method.bank.sigma)
    if not count:
        return None
    if method.bank.basis is not None and method.bank.basis.source == "centers":
        raise InputError(
            "learning.method.basis.source: 'centers' given; each node would find them anew, from rows that all hold; "
            'write omkl.landmarks.centers(X, 300, 0) into the file of [calibration], and source = "rows"'
        )
    with config.at("calibration"):
        if given is None:
            raise InputError(
                "missing; this basis or sigma, as the recommended method has them, is calibrated on inputs that all "
                'nodes hold; write [calibration], file = "calibration.npz" with an array X of some hundred rows, or, '
                'if inputs have mean 0 and deviation 1, [learning.method], name = "recommended", basis = {source = '
                '"normal"}'
            )
        table = numbers(given, "X", np.float64 if standardize else np.float32)
        calibration.checked(table, inputs)
        rows = calibration.sample(table, count, seed)
        seen = scaling.standardize_rows(rows) if standardize else rows
        calibration.checked(seen, inputs, method.bank.sigma)
        return rows


def labelled(
    method: Gossip, given: npt.ArrayLike | None, labels: npt.ArrayLike | None, seed: int
) -> tuple[Gossip, npt.NDArray[Any] | None]:
    """Return a method whose landmarks are labelled where there are labels, and the labels of those that it takes."""
    basis = method.bank.basis
    wanted = ("rows", "labelled") if labels is not None else ("labelled",)
    if not isinstance(basis, Landmarks) or basis.source not in wanted:
        return method, None
    with config.at("calibration"):
        if labels is None or given is None:
            raise InputError(
                'no labels; basis.source is "labelled", which weighs columns by them; write np.savez(file, X=X, y=y), '
                'or take "rows"'
            )
        table = numbers(labels, "y")
        if len(Labels(method.objective).encode(table)) != len(np.asarray(given)):
            raise InputError(
                f"{len(table)} labels y for {len(np.asarray(given))} rows X; every row needs one; add them"
            )
        taken = calibration.sample(table.reshape(len(table), -1), basis.sampled, seed)
    return method.replace(basis=replace(basis, source="labelled")), taken.reshape(-1, *table.shape[1:])


def connected(graph: Graph, ids: Sequence[str]) -> None:
    """Refuse a graph of other size, or one in parts; name them by ids."""
    if graph.nodes != len(ids):
        raise InputError(f"a graph of {graph.nodes} nodes for {len(ids)} listed; they must agree; list them all")
    parts: dict[int, list[str]] = {}
    for id, root in zip(ids, graph.components.tolist(), strict=True):
        parts.setdefault(root, []).append(id)
    if len(parts) > 1:
        apart = " | ".join(", ".join(part) for part in parts.values())
        raise InputError(f"the network falls into parts: {apart}; all nodes must be connected; add links between them")


def nonnegative(topology: Topology, ids: Sequence[str]) -> None:
    """Refuse negative gossip weights: quantized gossip is known to converge without them only."""
    given = zip(topology.graph.edges.tolist(), topology.weights.tolist(), strict=True)
    kept = zip(ids, topology.self_weights.tolist(), strict=True)
    entries = [(f"the link {ids[i]} - {ids[j]}", weight) for (i, j), weight in given]
    entries += [(f"{id} itself", weight) for id, weight in kept]
    for where, weight in entries:
        if weight < -TOLERANCE:
            raise InputError(
                f"learning.weights: {topology.rule} gives {where} the weight {weight:.3g}; quantized gossip needs "
                "weights that are not negative; use metropolis or fmmc"
            )
