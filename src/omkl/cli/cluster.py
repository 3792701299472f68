"""``omkl cluster``: a process for every node, on this machine."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.table import Table

import omkl
from omkl.cli import options, show
from omkl.cli.options import OUTPUT, Format, option
from omkl.data import Stream, as_stream, first_rounds, load
from omkl.errors import InputError, MissingExtraError
from omkl.methods import suited

if TYPE_CHECKING:
    from omkl.node.cluster import Outcome
    from omkl.node.config import NetworkConfig
    from omkl.specs import Spec as Settings

RUN = "Run"
MOST_NODES = 200  # processes on one machine

Spec = typer.Argument(exists=True, dir_okay=False, metavar="SPEC.toml", help="Settings.", show_default=False)
Out = typer.Option(rich_help_panel=OUTPUT, file_okay=False, help="Folder to save losses and models in.")


@options.describes_method
def cluster(
    ctx: typer.Context,
    spec: Annotated[Path | None, Spec] = None,
    data: Annotated[str | None, option(RUN, "A data set; omkl data lists them.", "NAME")] = None,
    topology: options.Topology = None,
    nodes: options.Nodes = None,
    weights: options.Weights = None,
    seed: Annotated[int | None, option(RUN, "Seed of features and dither.", "INT")] = None,
    shuffle: Annotated[int | None, option(RUN, "Seed of the order in which rows are dealt out.", "INT")] = None,
    standardize: options.Standardize = None,
    rounds: Annotated[int | None, option(RUN, "Rounds to run; all that the data has.", "INT")] = None,
    deadline: Annotated[float, typer.Option(rich_help_panel=RUN, help="Seconds to wait for a neighbor.")] = 30.0,
    out: Annotated[Path | None, Out] = None,
    output: options.Output = Format.TABLE,
    quiet: Annotated[bool, typer.Option("--quiet", rich_help_panel=OUTPUT, help="No progress.")] = False,
) -> None:
    """Run a real network on this machine: a process for every node, zenoh over loopback, rounds in lock step.

    Each node is fed its part of the data. The same is then simulated with the same seed, and the two are compared.
    Settings are those of omkl simulate, from a TOML file, from flags, or both.

    Example: omkl cluster --data banana --topology path --nodes 5
    """
    try:
        from omkl import specs
        from omkl.node import cluster as processes
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "eclipse-zenoh", "node") from None
    simulate = omkl.simulate  # a missing extra shows before the work, not after it
    settings = specs.resolve(specs.merge(specs.load(spec) if spec else {}, options.tables(ctx.params)))
    if isinstance(settings.data, str):
        loaded = load(settings.data)
        method, graph = suited(settings.method, loaded.loss), settings.topology or loaded.graph
        settings = replace(settings, data=loaded, method=method, topology=graph)
    stream = _stream(settings)
    network = processes.on_loopback(_network(settings, stream, deadline))
    with show.progress(quiet) as report:
        outcomes = processes.run(network, *stream, progress=report and (lambda a, b: report(a, b, "gossiping")))
    simulated = simulate(
        tuple(stream), network.topology, method=network.method, seed=settings.seed, standardize=network.standardize
    )
    summary = _summarize(network, outcomes, np.asarray(simulated.loss[0]))
    if out:
        out.mkdir(parents=True, exist_ok=True)
        losses, theta, hidden = (np.stack(parts) for parts in list(zip(*outcomes, strict=True))[:3])
        np.savez(out / "cluster.npz", losses=losses, theta=theta, hidden=hidden)
    if output is Format.JSON:
        show.print_json(summary)
    else:
        _print(network, summary)


def _stream(settings: "Settings") -> Stream:
    stream, _ = as_stream(
        settings.data,
        settings.nodes,
        settings.shuffle,
        np.float64 if settings.standardize else np.float32,
        settings.partition,
    )
    return first_rounds(stream, settings.rounds)


def _network(settings: "Settings", stream: Stream, deadline: float) -> "NetworkConfig":
    from omkl import topology
    from omkl.node.checks import runnable
    from omkl.node.config import Member, NetworkConfig
    from omkl.node.settings import Timing

    nodes, inputs = stream.X.shape[1:]
    if nodes > MOST_NODES:
        raise InputError(f"{nodes} nodes; a cluster has a process for each, {MOST_NODES} at most; use omkl simulate")
    is_labelled = getattr(settings.method.basis, "source", None) == "labelled"
    return NetworkConfig(
        name="cluster",
        inputs=inputs,
        method=runnable(settings.method),
        seed=settings.seed,
        topology=topology.build(settings.topology or "path", nodes, settings.weights),
        members=tuple(Member(id=f"n{j}", listen=f"tcp/127.0.0.1:{j + 1}") for j in range(nodes)),
        timing=Timing(deadline=deadline, patience=deadline / 2),
        standardize=settings.standardize,
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


def _print(network: "NetworkConfig", summary: dict[str, Any]) -> None:
    page = Table.grid(padding=(0, 2))
    page.add_row("  loss", f"{summary['loss']:.4f}", f"simulated {summary['simulated_loss']:.4f}")
    page.add_row("  final loss", f"{summary['final_loss']:.4f}", f"simulated {summary['simulated_final_loss']:.4f}")
    page.add_row(
        "  difference",
        f"{summary['largest_difference']:.1e}",
        "largest of any round; at large steps one flipped level shows",
    )
    page.add_row("  bytes", f"{summary['bytes_per_node_round']:.1f}", "sent by a node in a round, header and all")
    page.add_row("  rounds/s", f"{summary['rounds_per_second']:.0f}", "in lock step")
    equal = f"{summary['copies_equal']} of {summary['copies']}"
    page.add_row("  copies", equal, "of hidden states, bit for bit their owner's")
    page.add_row("  resyncs", str(summary["resyncs"]), "snapshots that were needed")
    console = show.console()
    console.print(
        f"[bold]{network.method.name}[/bold]: {network.topology.graph.name} of {summary['nodes']} processes, "
        f"{summary['rounds']} rounds"
    )
    console.print(page)
