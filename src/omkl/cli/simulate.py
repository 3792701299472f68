"""``omkl simulate``: a network learns a stream."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import omkl
from omkl.cli import options, show
from omkl.cli.options import OUTPUT, Format, option
from omkl.dashboard.recorder import Recorder
from omkl.display import as_text, counted
from omkl.errors import InputError
from omkl.methods import PRESETS, Method

if TYPE_CHECKING:
    from omkl.simulator import Result

RUN = "Run"

Spec = typer.Argument(exists=True, dir_okay=False, metavar="SPEC.toml", help="Settings.", show_default=False)
Out = typer.Option(rich_help_panel=OUTPUT, file_okay=False, help="Folder to save curves and models in.")


@options.describes_method
def simulate(
    ctx: typer.Context,
    spec: Annotated[Path | None, Spec] = None,
    data: Annotated[str | None, option(RUN, "A data set; omkl data lists them.", "NAME")] = None,
    topology: options.Topology = None,
    nodes: options.Nodes = None,
    weights: options.Weights = None,
    faults: options.Faults = None,
    seeds: Annotated[int | None, option(RUN, "Number of runs, each with a seed of its own.", "INT")] = None,
    seed: Annotated[int | None, option(RUN, "The first seed.", "INT")] = None,
    shuffle: Annotated[int | None, option(RUN, "Seed of the order in which rows are dealt out.", "INT")] = None,
    no_shuffle: Annotated[
        bool, typer.Option("--no-shuffle", rich_help_panel=RUN, help="Keep the rows' order.")
    ] = False,
    partition: options.Partition = None,
    rounds: Annotated[int | None, option(RUN, "Rounds to run; all that the data has.", "INT")] = None,
    record_every: Annotated[int | None, option(RUN, "Record every k-th round.", "K")] = None,
    pooled: Annotated[
        bool | None,
        typer.Option("--pooled", rich_help_panel=RUN, help="Score each model on all samples too.", show_default=False),
    ] = None,
    standardize: options.Standardize = None,
    devices: options.Devices = None,
    shard: options.Shard = None,
    coordinator: options.Coordinator = None,
    processes: options.Processes = None,
    process: options.Process = None,
    out: Annotated[Path | None, Out] = None,
    events: Annotated[
        bool, typer.Option("--events", rich_help_panel=OUTPUT, help="Save what omkl dashboard shows, in --out.")
    ] = False,
    output: options.Output = Format.TABLE,
    quiet: Annotated[bool, typer.Option("--quiet", rich_help_panel=OUTPUT, help="No size, no progress.")] = False,
) -> None:
    """Simulate a network that learns a stream.

    Settings come from a TOML file, from flags, or both; flags win. Without a word on the method it is the recommended
    one. Flags beside --method change what it names, none leaves a part of it out; those alone describe gossip, the
    letter's in all else.

    An inline TOML table in place of a name gives settings: --topology '{name="erdos_renyi", p=0.5}'.

    Links that fail and nodes that sleep: --faults '{links=0.1, nodes=0.05}'; graphs that take turns:
    --topology '{graphs=["ring", "star"]}'.

    Nodes that see different rows of a table: --partition '{name="dirichlet", alpha=0.1}'.

    Data of your own: --data '{file="x.csv", target="y"}'; node="station" says which column tells the nodes apart;
    target=["u", "v"] with --loss '{name="squared", outputs=2}' learns several values.

    Several processes, each started with the same settings: --coordinator HOST:PORT --processes 2 --process 0 (and 1).

    Example: omkl simulate --data banana --topology ring --nodes 20 --seeds 10
    """
    from omkl import specs  # pydantic takes a while to import

    table = specs.merge(specs.load(spec) if spec else {}, options.tables(ctx.params))
    settings = specs.resolve(table)
    if (coordinator, processes, process) != (None, None, None):
        together = _join(coordinator, processes, process)
        settings = replace(settings, devices=table.get("devices", together))
    first = not process  # the others only compute
    if out and first:
        out.mkdir(parents=True, exist_ok=True)
    recorder = _recorder(out, processes, settings.method) if events else nullcontext()
    still = quiet or not first
    with show.log(still), show.progress(still) as report, show.only_data_on_stdout(), recorder as watch:
        result = omkl.simulate(**vars(settings), progress=report, watch=watch)
    if not first:
        return
    if not quiet:
        _tell_devices(result)
    if out:
        result.save(out)
    if output is Format.JSON:
        show.print_json({"config": result.config, "summary": result.summary()})
    else:
        print(as_text(result.title(_name(settings.method)), result.lines()))


def _recorder(out: Path | None, processes: int | None, method: Method) -> Recorder:
    if out is None or processes is not None:
        beside = "without --out" if out is None else "with --processes"
        raise InputError(
            f"--events {beside}; events are saved by one process in a folder; give --out, leave out others"
        )
    return Recorder(out, _name(method))


def _join(coordinator: str | None, processes: int | None, process: int | None) -> int:
    """Join the other processes, and return the number of devices that all have together."""
    import jax

    from omkl.simulator import sharding

    sharding.join(coordinator, processes, process, lambda text: print(f"omkl: {text}", file=sys.stderr))
    return jax.device_count()


def _tell_devices(result: "Result") -> None:
    devices = result.config["devices"]
    if devices["count"] > 1:
        number = result.config[devices["shard"]]
        cut = f", {counted(devices['cut'], 'link')} between them" if devices["shard"] == "nodes" else ""
        print(f"omkl: {counted(number, devices['shard'][:-1])} on {devices['count']} devices{cut}", file=sys.stderr)


def _name(method: Method) -> str:
    """Return the name of a method, that of its preset where it is one as it stands."""
    return next((name for name, make in PRESETS.items() if make() == method), method.name)
