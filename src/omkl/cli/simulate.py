"""``omkl simulate``: a network learns a stream."""

import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from omkl import config
from omkl.cli import options, show
from omkl.cli.options import OUTPUT, Format
from omkl.dashboard.events import FILE as EVENTS
from omkl.dashboard.recorder import Recorder
from omkl.dashboard.saved import RESULT
from omkl.display import as_text, counted
from omkl.errors import InputError

if TYPE_CHECKING:
    from omkl.simulator import Result

FLAGS = options.flags(
    "data target node time use drop topology nodes weights faults seeds seed shuffle no_shuffle partition rounds "
    "record_every pooled standardize no_standardize devices shard method"
)


def _process(text: str, metavar: str, envvar: str) -> Any:
    return typer.Option(rich_help_panel="Processes", help=text, metavar=metavar, envvar=envvar, show_default=False)


@dataclass
class simulate(FLAGS):  # type: ignore[misc, valid-type]
    """Simulate a network that learns a stream.

    Settings come from a TOML file, from flags, or both; flags win. Flags of a method change the recommended method, or
    the one that --method names. The value none leaves a part of the method out.

    To give settings to a part, write an inline TOML table in place of its name:
    --topology '{name="erdos_renyi", p=0.5}'.

    To use a graph of your own: --topology edges.csv, a line for each link, or an adjacency matrix, or GraphML.

    To let links fail and nodes sleep: --faults '{links=0.1, nodes=0.05}'. To let graphs take turns:
    --topology '{graphs=["ring", "star"]}'.

    To show nodes different rows of a table: --partition '{name="dirichlet", alpha=0.1}'.

    To learn a table of your own: --data rows.csv --target price. Add --node station to say which column tells the nodes
    apart, and --time when to learn the rows in the order of time.

    To spread the work over two processes, start each with the same settings, --coordinator HOST:PORT and --processes 2,
    the first with --process 0 and the second with --process 1.

    Example: omkl simulate --data banana --topology ring --nodes 20 --seeds 10
    """

    spec: options.Spec = None
    coordinator: Annotated[
        str | None, _process("Address where process 0 listens for the others.", "HOST:PORT", "OMKL_COORDINATOR")
    ] = None
    processes: Annotated[int | None, _process("Number of processes that share the work.", "INT", "OMKL_PROCESSES")] = (
        None
    )
    process: Annotated[int | None, _process("Number of this process, from 0.", "INT", "OMKL_PROCESS")] = None
    out: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=OUTPUT,
            file_okay=False,
            help="Save curves and models here; Python reads them by omkl.load.",
            metavar="FOLDER",
        ),
    ] = None
    overwrite: options.Overwrite = False
    events: Annotated[
        bool, typer.Option("--events", rich_help_panel=OUTPUT, help="Also save in --out what omkl dashboard shows.")
    ] = False
    output: options.Output = Format.TABLE
    quiet: options.Quiet = False

    def __post_init__(self) -> None:
        table = config.merge(config.load(self.spec) if self.spec else {}, options.tables(self))
        still = self.quiet or bool(self.process)  # the first of several processes speaks
        with show.log(still):
            given = config.experiment(table)
        if (self.coordinator, self.processes, self.process) != (None, None, None):
            together = _join(self.coordinator, self.processes, self.process)
            given = replace(given, devices=table.get("devices", together))
        first = not self.process  # the others only compute
        if self.out and first:
            options.require_free(self.out / RESULT, self.overwrite)
            self.out.mkdir(parents=True, exist_ok=True)
        recorder = _recorder(self.out, self.processes) if self.events else nullcontext()
        with show.log(still), show.progress(still) as report, show.only_data_on_stdout(), recorder as watch:
            result = given.run(report, watch)
        if not first:
            return
        if not self.quiet:
            _tell_devices(result)
        if self.out:
            result.save(self.out, overwrite=True)  # what is there was given up above
            if not self.events:
                (self.out / EVENTS).unlink(missing_ok=True)  # of the result before
        if self.output is Format.JSON:
            show.print_json({"config": result.config, "summary": result.summary()})
        else:
            print(as_text(result.title(), result.lines()))


def _recorder(out: Path | None, processes: int | None) -> Recorder:
    if out is None or processes is not None:
        beside = "without --out" if out is None else "with --processes"
        raise InputError(
            f"--events {beside}; events are saved by one process in a folder; give --out, leave out others"
        )
    return Recorder(out)


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
