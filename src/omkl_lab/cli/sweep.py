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
UNREADABLE = (".sha256", ".names")  # columns that tell a program which graph it was
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

    Points that differ in their seeds only are printed as one row: the mean over seeds ± half a 95 % interval. The table
    that is written to the folder has every point.

    The same command goes on where the last one stopped. A point that fails does not stop the rest; --retry runs it
    again. The exit code is that of the worst failure.

    Example: omkl sweep grid.toml --jobs 4 --out out/bits
    """
    if jobs is not None and cluster is not None:
        raise InputError(f"--jobs {jobs} with --cluster; a cluster has workers of its own; leave out --jobs")
    from omkl_lab import sweeps
    from omkl_lab.cli.grid import expand  # pydantic takes a while to import

    with show.log(quiet):
        points = sweeps.unique(expand(grid))
    folder = out or Path("out") / grid.stem
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
    settings = sweeps.averaged(rows)
    table = next(path for path in folder.glob("results.*") if path.suffix in (".parquet", ".jsonl"))
    if output is Format.JSON:
        show.print_json(
            {
                "table": str(table),
                "ran": len(rows) - len(records) + retry * failed,
                "points": rows,
                "settings": settings,
            }
        )
    else:
        _print(rows, settings, table)
    failures = {row["failure"] for row in rows}
    raise typer.Exit(next((code for failure, code in CODES.items() if failure in failures), Exit.OK))


def _so_far(what: str, failed: int) -> str:
    return f"{what}, {failed:,} failed" if failed else what


def _print(rows: "list[Row]", settings: "list[Row]", table: Path) -> None:
    """Print the best settings, each with its means over seeds, then what failed."""
    console = show.console()
    varying = _telling(settings)
    whole = [row for row in settings if row["final_loss"] is not None]
    if whole:
        measures = ("seeds", "final_loss", "minus_best", "final_accuracy", "bits_per_node_round")
        several = max(row["seeds"] for row in whole) > 1
        ranked = sorted(whole, key=lambda row: (row["failed"] > 0, row["final_loss"]))[:BEST]
        tried = {key: ranked[key == "minus_best" :] for key in measures[not several :]}  # the best is as good as itself
        shown = [*varying, *(key for key, some in tried.items() if any(row[key] is not None for row in some))]
        page = Table(*(escape(key).replace("minus_best", "minus the best") for key in shown), box=None, pad_edge=False)
        for row in ranked:
            page.add_row(*("" if key == "minus_best" and row is ranked[0] else _measured(row, key) for key in shown))
        console.print(page)
        if several:
            console.print("± is half a 95 % interval over the seeds; a difference from the best is taken seed by seed")
    bad = [row for row in rows if row["failure"] is not None]
    for row in bad[:BEST]:
        own = [key for key in (*varying, "seed", "seeds") if len({other[key] for other in rows}) > 1]
        told = ", ".join(f"{key}={_cell(row[key])}" for key in own if row[key] is not None)
        console.print(f"[red]failed[/]: {told}: {escape(row['error'])}")
    best = f"the best {BEST} of " if len(whole) > BEST else ""
    counted = f"{len(settings):,} settings, " if len(settings) < len(rows) else ""
    console.print(_so_far(f"{best}{counted}{len(rows):,} points", len(bad)))
    print(f"table: {table}")


def _telling(settings: "list[Row]") -> list[str]:
    """Return the columns in which settings differ, without digests and lists of names where others tell them apart."""
    columns = list(settings[0])
    varying = [key for key in columns[: columns.index("seeds")] if len({row[key] for row in settings}) > 1]
    short = [key for key in varying if not key.endswith(UNREADABLE)]
    return short if len({tuple(row[key] for key in short) for row in settings}) == len(settings) else varying


def _measured(row: "Row", key: str) -> str:
    half = row.get(f"{key}_half")
    sign = "+" if key == "minus_best" and row[key] is not None and row[key] >= 0 else ""
    return sign + _cell(row[key]) + ("" if half is None else f" ± {half:.2g}")


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else escape(str(value))
