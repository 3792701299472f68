"""``omkl tune``: the settings that learn most within so many bytes."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

import omkl
from omkl import config
from omkl.cli import options, show
from omkl.cli.exits import Exit
from omkl.cli.options import OUTPUT, Format
from omkl.data.tables import Roles
from omkl.errors import InputError
from omkl.methods.tables import as_table
from omkl.settings import settings

if TYPE_CHECKING:
    from omkl_lab.tuning import Tuned

SEARCH = "Search"
SEEDS = 2  # of the first rung
BEST = 5  # settings that are printed
FOREIGN = ("record_every", "devices", "shard")  # of an experiment: a search has no use for them

FLAGS = options.flags(
    "data target node time use drop topology nodes weights faults rounds pooled standardize no_standardize seeds seed "
    "shuffle no_shuffle",
    "loss",
)


@dataclass
class tune(FLAGS):  # type: ignore[misc, valid-type]
    """Find the settings that learn most on some data and network, by successive halving over seeds.

    omkl draws settings at random around the default method, or around that of SPEC.toml, and runs them on few seeds.
    The best third runs on three times as many seeds, and so on. At the end omkl compares the best setting on other
    seeds with the one it started from. --seeds is the number of seeds in the first stage, 2 if not given; --seed is
    also that of the draw.

    SPEC.toml is as for omkl simulate. It may say what to try, as lists or ranges of values:

    tune.space = {momentum = [0.5, 0.7], "learner.prior" = {low = 10, high = 1000}, "kernels.scale" = [0.5, 1, 2]}

    The same command goes on where the last one stopped. The folder of the records gets a file best.toml, which omkl
    simulate reads.

    Example: omkl tune --data banana --topology path --nodes 20 --bytes 80
    """

    spec: options.Spec = None
    budget: Annotated[
        float | None,
        typer.Option(
            "--bytes",
            rich_help_panel=SEARCH,
            help="Most bytes a node may send in a round, on average.",
            metavar="FLOAT",
        ),
    ] = None
    candidates: Annotated[
        int, typer.Option(rich_help_panel=SEARCH, help="Number of settings to draw.", metavar="INT")
    ] = 27
    held_out: Annotated[
        int, typer.Option(rich_help_panel=SEARCH, help="Seeds of the last comparison.", metavar="INT")
    ] = 20
    jobs: options.Jobs = None
    out: Annotated[
        Path,
        typer.Option(
            rich_help_panel=OUTPUT, file_okay=False, help="Folder of the records and of best.toml.", metavar="FOLDER"
        ),
    ] = Path("out/tune")
    output: options.Output = Format.TABLE
    quiet: options.Quiet = False

    def __post_init__(self) -> None:
        with show.log(self.quiet):
            search = _search(self.spec, options.tables(self))
        search |= {name: getattr(self, name) for name in ("budget", "candidates", "held_out", "jobs")}
        try:
            with show.log(self.quiet), show.progress(self.quiet) as report:
                tuned = omkl.tune(**search, folder=self.out, progress=report)
        except KeyboardInterrupt:
            print(f"omkl: interrupted; the same command goes on from what is recorded in {self.out}", file=sys.stderr)
            raise typer.Exit(Exit.INTERRUPTED) from None
        file = self.out / "best.toml"
        file.write_text(tuned.to_toml(), encoding="utf-8")
        if self.output is Format.JSON:
            found = {"method": as_table(tuned.method), "settings": tuned.settings, "comparison": tuned.comparison}
            show.print_json({"file": str(file), **found, "candidates": tuned.candidates})
        else:
            _print(tuned, file)


def _search(spec: Path | None, flags: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of ``omkl.tune`` from a file and flags."""
    table = config.load(spec) if spec else {}
    told = table.pop("tune", None)
    if told is not None and not (isinstance(told, dict) and set(told) == {"space"} and isinstance(told["space"], dict)):
        raise InputError("tune: it must hold a table, space, and nothing else; write [tune.space]")
    space = None if told is None else dict(_flat(told["space"]))
    table = config.merge({"seeds": SEEDS} | table, flags)
    for key in FOREIGN:
        if key in table:
            raise InputError(f"{key}: omkl tune looks at whole runs, one by one; leave it out")
    given = config.experiment(table)
    names = [one.name for one in fields(given) if one.name not in (*FOREIGN, *settings(Roles))]
    return {"space": space} | {name: getattr(given, name) for name in names}


def _flat(table: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted names and what to try of each, however the names were written in TOML."""
    if isinstance(table, dict) and set(table) != {"low", "high"}:
        for key, value in table.items():
            yield from _flat(value, f"{path}.{key}".lstrip("."))
    else:
        yield path, (table["low"], table["high"]) if isinstance(table, dict) else table


def _print(tuned: "Tuned", file: Path) -> None:
    ranked = sorted((one for one in tuned.candidates if one.dropped is None), key=lambda one: (-one.rungs, one.loss))
    page = Table("rungs", "loss", "bytes", "settings", box=None, pad_edge=False)
    for one in ranked[:BEST]:
        settings = ", ".join(f"{name} {_cell(value)}" for name, value in one.settings.items()) or "those of the base"
        page.add_row(str(one.rungs), f"{one.loss:.4f}", f"{one.bytes:.1f}", settings)
    show.console().print(page)
    print(tuned.summary())
    print(f"setting: {file}")


def _cell(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else escape(str(value))
