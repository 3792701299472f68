"""The first door: simulate a network, many seeds at once."""

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from omkl import topology as topologies
from omkl.data import Data, Partition, Stream, Table, as_stream, first_rounds, load
from omkl.data.streams import is_dealt
from omkl.display import counted
from omkl.errors import InputError, unknown
from omkl.experiment import Experiment, label
from omkl.features import Features
from omkl.landmarks import Landmarks
from omkl.losses import Loss
from omkl.methods import Gossip, Method, for_inputs, named, suited
from omkl.methods.bank import Bank
from omkl.methods.protocol import MethodState
from omkl.notes import note
from omkl.scaling import Moments, standardize_stream
from omkl.settings import brief, build, settings
from omkl.simulator import calibrating, engine
from omkl.simulator.comparison import Comparison
from omkl.simulator.description import describe, describe_data, describe_topology, versions
from omkl.simulator.measures import metrics, pooled_metrics
from omkl.simulator.result import Result, drifted_apart, tail
from omkl.simulator.size import require_room, size
from omkl.simulator.watching import Begun, Watch, in_units, links_of, scaled_losses
from omkl.topology import Faults, Schedule, Topology
from omkl.topology.graphs import Integers

RECORDED = ("weights", "faults", "seeds", "seed", "shuffle", "partition", "record_every", "standardize")  # as given
ONE_DEVICE = {"count": 1, "shard": None, "cut": 0}
ALMOST_ALL = 0.999  # of the inputs' variance: to a column that has so much the others are nothing
MANY = 3  # columns of a table, of which some may matter less than others
FAR = 30  # inputs this many bandwidths long are all strangers to each other

log = logging.getLogger(__name__)


def simulate(
    data: Any,
    topology: Any = None,
    nodes: int | None = None,
    method: Method | str | None = None,
    *,
    weights: str = "metropolis",
    faults: Faults | None = None,
    seeds: int = 1,
    seed: int = 0,
    shuffle: int | None = 0,
    partition: Partition | str | None = None,
    rounds: int | None = None,
    record_every: int = 1,
    pooled: bool = False,
    standardize: bool | None = None,
    devices: int = 1,
    shard: str | None = None,
    target: str | list[str] | None = None,
    node: str | None = None,
    time: str | None = None,
    use: str | list[str] | None = None,
    drop: str | list[str] | None = None,
    progress: engine.Progress | None = None,
    watch: Watch | None = None,
    **changes: Any,
) -> Result:
    """Return the curves and final models of a network that learns a stream.

    The parameters are those of ``omkl.Experiment``, which describes them, and these:

    Parameters
    ----------
    progress
        Called with the rounds done and the rounds in all.
    watch
        Looks at some of the nodes while the run goes on: ``omkl.dashboard.Recorder`` for the dashboard. It sees the
        first seed.
    **changes
        Other settings of the method, such as ``gamma=0.2`` or ``loss="squared"``.

    Examples
    --------
    >>> import omkl
    >>> result = omkl.simulate("banana", "ring", nodes=20, method=omkl.Gossip(eta=1, gamma=0.5), seeds=2)
    >>> result.loss.shape
    (2, 265)
    """
    given = locals()  # before there is anything but the parameters
    chosen = Experiment(**{name: given[name] for name in settings(Experiment)})
    for name in changes.keys() - settings(chosen.method).keys():
        raise InputError(unknown("setting", name, [*settings(Experiment), *settings(chosen.method)]))
    return replace(chosen, method=build(chosen.method, changes)).run(progress, watch)


def compare(
    data: Any,
    cases: Mapping[str, tuple[Any, Any]],
    nodes: int | None = None,
    *,
    progress: engine.Progress | None = None,
    watch: Watch | None = None,
    **rest: Any,
) -> Comparison:
    """Return a result for every case, a pair (method, topology): a mapping that prints as a table.

    All cases see the same samples in the same order, under the same seeds and one loss, so that their differences are
    paired by seed. Cases with the same D and basis, of which the kernels of each are the first of the longest bank,
    also share features and dither; they run in one pass, and what they share is computed once. ``rest`` are other
    attributes of ``omkl.Experiment``; ``watch`` looks at the first case.

    Examples
    --------
    >>> import omkl
    >>> cases = {"gossip": (omkl.Gossip(eta=1.0), "ring"), "alone": (omkl.Local(eta=1.0), "ring")}
    >>> results = omkl.compare("banana", cases, nodes=20, seeds=2)
    >>> bool(results["gossip"].loss.mean() < results["alone"].loss.mean())
    True
    """
    return Comparison(run_cases(Experiment(data=data, nodes=nodes, **rest), cases, progress, watch))


def run_cases(
    given: Experiment,
    cases: Mapping[str, tuple[Any, Any]],
    progress: engine.Progress | None = None,
    watch: Watch | None = None,
) -> dict[str, Result]:
    """Return a result for every case, a pair (method, topology), of an experiment, whose own do not count."""
    pairs = list(cases.values()) if isinstance(cases, Mapping) else []
    if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise InputError("cases must be named pairs of a method and a topology; pass {'mine': (Gossip(), 'ring')}")
    runs = list(range(given.seed, given.seed + given.seeds))
    source = load(given.data) if isinstance(given.data, str) else given.data
    labels = [label(named(method)) for method, _ in pairs]
    methods = [suited(named(method), source.loss if isinstance(source, Data | Table) else None) for method, _ in pairs]
    if isinstance(source, Table):
        source = source.learned_by(methods[0].objective, bool(given.standardize))
        methods = [source.complete(method) for method in methods]
    own = getattr(source, "graph", None) or "path"
    given_graphs = [own if topology is None else topologies.opened(topology) for _, topology in pairs]
    names = getattr(source, "names", None)
    owned = names is not None or (
        isinstance(source, tuple | list) and getattr(next(iter(source), None), "ndim", 2) == 3
    )
    nodes = _nodes(given_graphs) if given.nodes is None and not owned else given.nodes
    names = names or next(filter(None, map(topologies.names_of, given_graphs)), None)
    dtype = np.float64 if given.standardize else np.float32
    raw = first_rounds(as_stream(source, nodes, given.shuffle, dtype, given.partition)[0], given.rounds)
    stream, moments = _standardized(raw, given.pooled) if given.standardize else (raw, None)
    rounds, count, columns = stream.X.shape
    if given.nodes is None:
        _require_nodes(given_graphs, count)
    methods = [for_inputs(method, columns) for method in methods]
    groups = _sharing(methods)
    widest = [max((methods[k] for k in group), key=lambda method: len(method.bank.kernels)) for group in groups]
    if given.record_every > rounds:
        raise InputError(
            f"record_every is {given.record_every}; the stream has {rounds} rounds; record at least one of them"
        )
    graphs = [topologies.turns(topology, count, given.weights, names) for topology in given_graphs]
    methods = [
        method.on(*turns) if isinstance(method, Gossip) else method
        for method, turns in zip(methods, graphs, strict=True)
    ]
    targets = _targets(methods[0].objective, source, stream)
    for method, turns in zip(methods, graphs, strict=True):
        _check(method, turns, given.faults, rounds)
    steady = [turns[0] for turns in graphs]
    where = _place(given, steady)
    _warn(stream, widest, bool(given.standardize), isinstance(source, Table))
    moving = given.faults is not None or any(len(turns) > 1 for turns in graphs)
    outputs, every = targets.shape[-1], given.record_every
    for group in groups:
        some, on = [methods[k] for k in group], [steady[k] for k in group]
        require_room(size(stream.X.shape, outputs, some, on, given.seeds, given.pooled, every), given.devices)
    if where is not None and where.spreads_nodes and moving:
        raise InputError(
            "faults or a schedule on nodes spread over devices; the exchange between devices is for one graph; "
            'pass shard="seeds" (--shard seeds), or one device'
        )
    unit = source.unit if isinstance(source, Table) else 1.0
    recorded = np.arange(every - 1, rounds, every)
    told = {name: describe(getattr(given, name)) for name in RECORDED} | {
        "data": describe_data(source if isinstance(source, Table) else given.data, raw),
        "nodes": count,
        **({} if names is None else {"names": list(names)}),
        "rounds": rounds,
        "target_variance": unit * float(np.var(targets[recorded], axis=(0, 1), dtype=np.float64).sum()),
        "is_dealt": given.shuffle is not None and is_dealt(source),
        "guessing": _guessing(methods[0].objective, targets[recorded[tail(len(recorded))]], unit),
        "versions": versions(),
    }
    configs = [
        told
        | {
            "topology": describe_topology(graph, turns),
            "devices": ONE_DEVICE if where is None else where.describe(turns[0]),
        }
        | {"method": describe(method) | {"loss": describe(method.objective)}, "label": called}
        for graph, turns, method, called in zip(given_graphs, graphs, methods, labels, strict=True)
    ]
    found: dict[int, Result] = {}
    for done, (group, method) in enumerate(zip(groups, widest, strict=True)):
        features = calibrating.drawn(method.bank, raw.X, targets, runs, bool(given.standardize))
        measured = engine.run(
            engine.Problem(stream.X, targets, features, runs, every),
            [engine.Case(methods[k], graphs[k], given.faults) for k in group],
            pooled_metrics if given.pooled else metrics,
            progress and engine.portion(progress, done, 1, len(groups)),
            where,
            None if watch is None or done else _audience(watch, configs[0], methods[0], graphs[0], given, unit),
        )
        for k, outcome in zip(group, measured, strict=True):
            found[k] = _result(methods[k], outcome, features, runs, recorded, configs[k], moments, unit)
            _warn_if_apart(methods[k], found[k])
    return {name: found[k] for k, name in enumerate(cases)}


def _guessing(objective: Loss, targets: npt.NDArray[np.float32], unit: float) -> dict[str, float]:
    """Return what always guessing the same gives on these targets, by their own mean or their own shares of classes.

    ``loss`` is that of guessing the mean, or each class as often as it comes; ``accuracy`` is that of the class that
    comes most often. What is not known of a loss is left out.
    """
    if objective.name == "squared":
        return {"loss": unit * float(np.var(targets, axis=(0, 1), dtype=np.float64).sum())}
    mean = targets.mean(axis=(0, 1), dtype=np.float64)
    if objective.name in ("logistic", "smoothed_hinge"):
        mean = np.array([(1 - mean[0]) / 2, (1 + mean[0]) / 2])
    elif objective.name != "softmax":
        return {}
    known = {"accuracy": float(mean.max())}
    if objective.name == "smoothed_hinge":  # the best constant is no share
        return known
    return {"loss": float(-(mean * np.log(np.maximum(mean, 1e-12))).sum())} | known


def _place(given: Experiment, graphs: Sequence[Topology]) -> Any:
    """Return the devices that share the work; None where it is one."""
    if given.devices == 1 and given.shard is None:
        return None
    from omkl.simulator.sharding import place

    return place(given.devices, given.shard, graphs, given.seeds)


def _audience(
    watch: Watch, config: dict[str, Any], method: Method, turns: Sequence[Topology], given: Experiment, unit: float
) -> engine.Audience:
    graph = turns[0].graph if len(turns) == 1 else topologies.union(turns)
    plan = watch.begin(Begun(config, graph, method.labels, links_of(turns, given.faults, given.seed)))
    return engine.Audience(
        tuple(int(node) for node in plan.nodes), plan.every, lambda look: watch.see(in_units(look, unit))
    )


def _result(
    method: Method,
    outcome: tuple[MethodState, Any],
    features: Features,
    runs: list[int],
    recorded: Integers,
    config: dict[str, Any],
    moments: Moments | None,
    unit: float,
) -> Result:
    state, measured = outcome[0], scaled_losses(outcome[1], unit)
    center, scale = (None, None) if moments is None else moments.units
    theta, log_weights = (np.asarray(part) for part in method.models(state))
    told = {name: curve for name, curve in measured._asdict().items() if not isinstance(curve, tuple)}
    curves = {name: np.moveaxis(curve, 1, 0) for name, curve in told.items()}
    return Result(
        config=config,
        seeds=np.array(runs),
        rounds=recorded,
        bits=_bits(curves.pop("sent")),
        link_bits=_bits(curves.pop("carried")),
        theta=theta,
        log_weights=log_weights,
        **_of_first(features, method.bank.members),
        center=center,
        scale=scale,
        **curves,
    )


def _of_first(features: Features, members: int) -> dict[str, Any]:
    """Return the features of the first kernels, by name."""
    made = features._asdict()
    del made["spectrum"]
    for name in ("frequencies", "basis"):
        made[name] = None if made[name] is None else np.asarray(made[name])[:, :members]
    return made


def _bits(count: npt.NDArray[np.float32]) -> Integers:
    return np.int64(8) * np.rint(count).astype(np.int64)


def _nodes(given: Sequence[Any]) -> int | None:
    """Return the number of nodes that a topology tells; a name tells none."""
    for topology in given:
        for one in topology.graphs if isinstance(topology, Schedule) else (topology,):
            if not isinstance(one, str):
                return topologies.build(one, connected=False).nodes
    return None


def _require_nodes(given: Sequence[Any], count: int) -> None:
    """Refuse a topology of another number of nodes than the data have; names that differ are told elsewhere."""
    for topology in given:
        if topologies.names_of(topology) is None and (many := _nodes([topology])) not in (None, count):
            raise InputError(f"the data have {counted(count, 'node')}, the graph {many}; give a graph of as many nodes")


def _check(method: Method, turns: Sequence[Topology], faults: Faults | None, rounds: int) -> None:
    for turn in turns:
        method.check(turn)
    if (faults is not None or len(turns) > 1) and not method.endures_faults:
        raise InputError(
            f"{method.name} with faults or a schedule; under it every node hears all others in every round; leave them "
            "out, or use Gossip"
        )
    if faults is not None:
        if not isinstance(faults, Faults):
            raise InputError(f"faults is {faults!r}; it must say what fails; pass omkl.Faults(links=0.1)")
        faults.check(rounds, len(topologies.union(turns).edges), turns[0].nodes)


def _sharing(methods: Sequence[Method]) -> list[list[int]]:
    """Return which methods share a pass, in the order given: features of the longest bank serve all of a group."""
    first = methods[0].objective
    for method in methods:
        if method.objective != first:
            raise InputError(
                f"cases have losses {brief(first)} and {brief(method.objective)}; two kinds of loss cannot be "
                "subtracted; give all cases one loss, or simulate them apart"
            )
    groups: list[list[int]] = []
    for k in sorted(range(len(methods)), key=lambda k: -len(methods[k].bank.kernels)):
        fitting = (group for group in groups if _serves(methods[group[0]].bank, methods[k].bank))
        if group := next(fitting, None):
            group.append(k)
        else:
            groups.append([k])
    return sorted(sorted(group) for group in groups)


def _serves(longest: Bank, own: Bank) -> bool:
    """Return whether features drawn for a bank are those of another one too."""
    if isinstance(own.basis, Landmarks) and len(own.kernels) < len(longest.kernels):
        return False  # its similarities are made of all kernels at once
    return longest == replace(own, kernels=longest.kernels) and longest.kernels[: len(own.kernels)] == own.kernels


def _standardized(given: Stream, pooled: bool) -> tuple[Stream, Moments]:
    """Return a stream by the running moments of every node, and those after the last round."""
    if pooled:
        raise InputError(
            "pooled with standardize; each node has units of its own, and none for the samples of others; leave out "
            "one of them, or score result.model(node=...) on a sample"
        )
    X, moments = standardize_stream(given.X)
    return given._replace(X=X), moments


def _targets(objective: Loss, data: Any, stream: Stream) -> npt.NDArray[np.float32]:
    if not isinstance(data, str):
        objective.encode(data[1])  # a bad label is named by its place in what the user gave
    targets = objective.encode(stream.y)
    if targets.ndim != 3:
        raise InputError(
            f"y has shape {stream.y.shape} for X of shape {stream.X.shape}; the {objective.name} loss takes no such y; "
            "give one label a sample, or Squared(outputs=...) for several"
        )
    return targets


def _warn_if_apart(method: Method, result: Result) -> None:
    """Say so where mixing drove the nodes apart."""
    if isinstance(method, Gossip) and (told := drifted_apart(result)):
        warnings.warn(
            f'{told}; a stable step brings them together; take a gamma below {method.mixing.step:g}, or "auto"',
            stacklevel=5,  # of simulate
        )


def _warn(stream: Stream, methods: Sequence[Method], standardize: bool, is_table: bool) -> None:
    """Say what makes these inputs hard for the kernels of the methods."""
    for method in methods:
        _warn_if_far(stream, method)
    if not standardize:
        _warn_if_unlike(stream)
    if is_table:
        _tell_if_alike(methods, stream.X.shape[-1])


def _warn_if_unlike(stream: Stream) -> None:
    some = stream.X.reshape(-1, stream.X.shape[-1])[:1000].astype(np.float64)
    variances = some.var(axis=0)
    if len(variances) > 1 and np.sort(variances)[-2] > 0 and variances.max() > ALMOST_ALL * variances.sum():
        warnings.warn(
            f"input {variances.argmax()} varies so much more than the others that kernels see it alone; bring all to "
            "one scale (standardize=True, --standardize)",
            stacklevel=6,  # of simulate
        )


def _tell_if_alike(methods: Sequence[Method], columns: int) -> None:
    """Say how to weigh columns, where a table has many: some of them mostly matter little."""
    bases = [method.bank.basis for method in methods]
    if columns >= MANY and any(isinstance(basis, Landmarks) and basis.source == "rows" for basis in bases):
        note(
            log,
            f"all {columns} columns count alike; weigh them by the labels of the landmarks, which nodes then share: "
            """--basis '{source="labelled"}' (basis=omkl.Landmarks(source="labelled")); try it; it can be worse""",
        )


def _warn_if_far(stream: Stream, method: Method) -> None:
    if method.bank.sigma == "median":
        return
    some = stream.X.reshape(-1, stream.X.shape[-1])[:1000].astype(np.float64)
    length = float(np.median(np.linalg.norm(some, axis=-1)))
    widest = max(kernel.sigma for kernel in method.bank.kernels)
    if length > FAR * widest:
        warnings.warn(
            f"a typical input has length {length:.3g}, the widest bandwidth is {widest:g}: to these kernels all "
            "samples are strangers; standardize the inputs (standardize=True) or use larger sigmas",
            stacklevel=6,  # of simulate
        )
