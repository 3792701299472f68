"""``omkl sweep``: many simulations, resumable."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from omkl.cli import options, show
from omkl.cli.exits import Exit
from omkl.cli.options import OUTPUT, Format
from omkl.errors import InputError

if TYPE_CHECKING:
    from omkl_lab.sweeps import Row

BEST = 10  # rows that are printed
# The gravest failure of a sweep is its exit code.
CODES = {"unexpected": Exit.UNEXPECTED, "died": Exit.UNEXPECTED, "input": Exit.INPUT, "diverged": Exit.DIVERGED}

Grid = typer.Argument(
    exists=True, dir_okay=False, metavar="GRID.toml", help="A spec with lists of values.", show_default=False
)


def sweep(
    grid: Annotated[Path, Grid],
    jobs: options.Jobs = None,
    cluster: Annotated[
        str | None, typer.Option(help="Run on the Dask cluster with this scheduler.", metavar="ADDRESS")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed points again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the grid, count its points, run nothing.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=OUTPUT,
            file_okay=False,
            help="Folder of the records. Without it: out/GRID.",
            metavar="FOLDER",
        ),
    ] = None,
    output: options.Output = Format.TABLE,
    quiet: options.Quiet = False,
) -> None:
    """Run a grid of simulations, each recorded as it ends.

    GRID.toml is a spec as for omkl simulate, with a table "grid" of lists. Every combination of their values is run:

    grid = {topology = ["path", "ring"], "method.eta" = [0.1, 1], "method.quantizer.bits" = [3, 4], seed = [0, 100]}

    It may have tables "point" too. Each is laid over the spec, as flags are, and every combination is run for each.

    The same command goes on where the last one stopped. A point that fails does not stop the rest; --retry runs it
    again. The exit code is that of the worst failure.

    Example: omkl sweep grid.toml --jobs 4 --out out/bits
    """
    if jobs is not None and cluster is not None:
        raise InputError(f"--jobs {jobs} with --cluster; a cluster has workers of its own; leave out --jobs")
    from omkl_lab import sweeps
    from omkl_lab.cli.grid import expand  # pydantic takes a while to import

    points, folder = sweeps.unique(expand(grid)), out or Path("out") / grid.stem
    records = sweeps.recorded(points, folder)
    failed = sum(record["failure"] is not None for record in records.values())
    if dry_run:
        if output is Format.JSON:
            show.print_json({"points": len(points), "recorded": len(records), "failed": failed})
        else:
            print(_so_far(f"{len(points):,} points, {len(records):,} recorded", failed))
        return
    try:
        with show.progress(quiet) as report:

            def tell(done: int, every: int, failed: int) -> None:
                if report:
                    report(done, every, _so_far("sweeping", failed))

            rows = sweeps.sweep(points, folder, jobs=jobs, cluster=cluster, retry=retry, progress=tell)
    except KeyboardInterrupt:
        done = len(sweeps.recorded(points, folder))
        print(f"omkl: interrupted; {done} of {len(points)} points are recorded in {folder}", file=sys.stderr)
        print("omkl: the same command goes on from here", file=sys.stderr)
        raise typer.Exit(Exit.INTERRUPTED) from None
    table = next(path for path in folder.glob("results.*") if path.suffix in (".parquet", ".jsonl"))
    if output is Format.JSON:
        show.print_json({"table": str(table), "ran": len(rows) - len(records) + retry * failed, "points": rows})
    else:
        _print(rows, table)
    failures = {row["failure"] for row in rows}
    raise typer.Exit(next((code for failure, code in CODES.items() if failure in failures), Exit.OK))


def _so_far(what: str, failed: int) -> str:
    return f"{what}, {failed:,} failed" if failed else what


def _print(rows: "list[Row]", table: Path) -> None:
    console, columns = show.console(), list(rows[0])
    varying = [key for key in columns[1 : columns.index("loss")] if len({row[key] for row in rows}) > 1]
    bad = [row for row in rows if row["failure"] is not None]
    good = sorted((row for row in rows if row["failure"] is None), key=lambda row: float(row["final_loss"]))
    if good:
        measures = ("final_loss", "final_loss_stderr", "final_accuracy", "bits_per_node_round")
        shown = [*varying, *(key for key in measures if any(row[key] is not None for row in good))]
        page = Table(*map(escape, shown), box=None, pad_edge=False)
        for row in good[:BEST]:
            page.add_row(*(_cell(row[key]) for key in shown))
        console.print(page)
    for row in bad[:BEST]:
        settings = ", ".join(f"{key}={_cell(row[key])}" for key in varying if row[key] is not None)
        console.print(f"[red]failed[/]: {settings}: {escape(row['error'])}")
    best = f"the best {BEST} of " if len(good) > BEST else ""
    console.print(_so_far(f"{best}{len(rows):,} points", len(bad)))
    print(f"table: {table}")


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else escape(str(value))
