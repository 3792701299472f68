"""``omkl cluster``: a process for every node, on this machine."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import omkl
from omkl import config, storage
from omkl.cli import options, show
from omkl.cli.options import OUTPUT, Format
from omkl.data import Stream, Table, as_stream, first_rounds, load
from omkl.display import as_text
from omkl.errors import InputError, extra
from omkl.experiment import Experiment, label
from omkl.methods import suited

if TYPE_CHECKING:
    from omkl.node.cluster import Outcome
    from omkl.node.config import NetworkConfig

SAVED = "cluster.npz"
MOST_NODES = 200  # processes on one machine

FLAGS = options.flags(
    "data target node time use drop topology nodes weights seed shuffle standardize no_standardize rounds method"
)


@dataclass
class cluster(FLAGS):  # type: ignore[misc, valid-type]
    """Run a real network on this machine: a process for every node, zenoh over loopback, rounds in lock step.

    Each node is given its part of the data. Then omkl simulates the same network with the same seed, and prints both
    results. Settings are those of omkl simulate, from a TOML file, from flags, or both.

    Example: omkl cluster --data banana --topology path --nodes 5
    """

    spec: options.Spec = None
    deadline: Annotated[float, typer.Option(help="How long to wait for a neighbor.", metavar="SECONDS")] = 30.0
    out: Annotated[
        Path | None,
        typer.Option(rich_help_panel=OUTPUT, file_okay=False, help="Save losses and models here.", metavar="FOLDER"),
    ] = None
    overwrite: options.Overwrite = False
    output: options.Output = Format.TABLE
    quiet: options.Quiet = False

    def __post_init__(self) -> None:
        with extra("node", "eclipse-zenoh"):
            from omkl.node import cluster as processes
        if self.out:
            options.require_free(self.out / SAVED, self.overwrite)
        simulate = omkl.simulate  # a missing extra shows before the work, not after it
        with show.log(self.quiet):
            given = config.experiment(config.merge(config.load(self.spec) if self.spec else {}, options.tables(self)))
        called = label(given.method)
        if isinstance(given.data, str):
            loaded = load(given.data)
            method, graph = suited(given.method, loaded.loss), given.topology or loaded.graph
            given = replace(given, data=loaded, method=method, topology=graph)
        elif isinstance(given.data, Table):
            method = suited(given.method, given.data.loss)
            table = given.data.learned_by(method.objective, bool(given.standardize))
            given = replace(given, data=table, method=table.complete(method))
        dtype = np.float64 if given.standardize else np.float32
        whole, _ = as_stream(given.data, given.nodes, given.shuffle, dtype, given.partition)
        stream = first_rounds(whole, given.rounds)
        network = processes.on_loopback(_network(given, stream, self.deadline))
        with show.progress(self.quiet) as report:
            outcomes = processes.run(network, *stream, progress=report and (lambda a, b: report(a, b, "gossiping")))
        simulated = simulate(
            tuple(stream), network.topology, method=network.method, seed=given.seed, standardize=network.standardize
        )
        summary = _summarize(network, outcomes, np.asarray(simulated.loss[0]))
        if self.out:
            self.out.mkdir(parents=True, exist_ok=True)
            losses, theta, hidden = (np.stack(parts) for parts in list(zip(*outcomes, strict=True))[:3])
            storage.write(self.out / SAVED, {"losses": losses, "theta": theta, "hidden": hidden})
        if self.output is Format.JSON:
            show.print_json(summary)
        else:
            _print(called, network, summary)


def _network(given: Experiment, stream: Stream, deadline: float) -> "NetworkConfig":
    from omkl import topology
    from omkl.node.checks import runnable
    from omkl.node.config import Member, NetworkConfig
    from omkl.node.settings import Timing

    nodes, inputs = stream.X.shape[1:]
    if nodes > MOST_NODES:
        raise InputError(f"{nodes} nodes; a cluster has a process for each, {MOST_NODES} at most; use omkl simulate")
    is_labelled = getattr(given.method.bank.basis, "source", None) == "labelled"
    return NetworkConfig(
        name="cluster",
        inputs=inputs,
        method=runnable(given.method),
        seed=given.seed,
        topology=topology.build(
            given.topology or "path", nodes, given.weights, names=getattr(given.data, "names", None)
        ),
        members=tuple(Member(id=f"n{j}", listen=f"tcp/127.0.0.1:{j + 1}") for j in range(nodes)),
        timing=Timing(deadline=deadline, patience=deadline / 2),
        standardize=bool(given.standardize),
        calibration=stream.X.reshape(-1, inputs),  # of which the simulator takes the same rows
        labels=stream.y.reshape(-1, *stream.y.shape[2:]) if is_labelled else None,
    )


def _summarize(network: "NetworkConfig", outcomes: "list[Outcome]", simulated: Any) -> dict[str, Any]:
    losses = np.mean([one.losses for one in outcomes], axis=0)
    rounds, ids = len(losses), network.ids
    owners = dict(zip(ids, outcomes, strict=True))
    copies = [(copy, owners[peer].hidden) for one in outcomes for peer, copy in one.copies.items()]
    took = max(one.ended for one in outcomes) - max(one.began for one in outcomes)
    last = slice(-max(1, rounds // 10), None)
    return {
        "nodes": len(ids),
        "rounds": rounds,
        "loss": float(losses.mean()),
        "final_loss": float(losses[last].mean()),
        "simulated_loss": float(simulated.mean()),
        "simulated_final_loss": float(simulated[last].mean()),
        "largest_difference": float(np.abs(losses - simulated).max()),
        "bytes_per_node_round": float(np.mean([one.sent for one in outcomes]) / rounds),
        "rounds_per_second": (rounds - 1) / took if took > 0 else float("nan"),
        "copies": len(copies),
        "copies_equal": sum(np.array_equal(copy, hidden) for copy, hidden in copies),
        "resyncs": sum(one.resyncs for one in outcomes),
    }


def _print(called: str, network: "NetworkConfig", summary: dict[str, Any]) -> None:
    rows = {
        "loss": "{loss:.4f}, simulated {simulated_loss:.4f}",
        "final loss": "{final_loss:.4f}, simulated {simulated_final_loss:.4f}",
        "difference": "{largest_difference:.1e}, largest of any round; at large steps one flipped level shows",
        "bytes": "{bytes_per_node_round:.1f} sent by a node in a round, header and all",
        "rounds/s": "{rounds_per_second:.0f} in lock step",
        "copies": "{copies_equal} of {copies} of hidden states, bit for bit their owner's",
        "resyncs": "{resyncs} snapshots that were needed",
    }
    title = f"{called}: {network.topology.graph.name} of {summary['nodes']} processes"
    filled = {name: text.format(**summary) for name, text in rows.items()}
    print(as_text(f"{title}, {summary['rounds']} rounds", filled))
