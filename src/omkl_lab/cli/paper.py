"""``omkl paper``: the paper's figures and claims, reproduced."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from omkl.cli import options, show
from omkl.cli.exits import Exit
from omkl.cli.options import OUTPUT, Format
from omkl.data import DATA_SETS
from omkl.errors import InputError, extra, pick

Part = StrEnum("Part", "figure1 figure2 claims regret quantizers frontier all")


def paper(
    part: Annotated[Part, typer.Argument(help="What to reproduce.")] = Part.all,
    seeds: Annotated[int | None, typer.Option(help="Runs of figures and claims; 100, or 10 with --quick.")] = None,
    data: Annotated[list[str] | None, typer.Option(help="Data set; repeat for several.", metavar="NAME")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Bundled data, fewer seeds, shorter streams.")] = False,
    out: Annotated[Path, typer.Option(rich_help_panel=OUTPUT, help="Folder for what is made.")] = Path("out/paper"),
    output: options.Output = Format.TABLE,
    quiet: options.Quiet = False,
) -> None:
    """Reproduce the paper: figures, claims with verdicts, regret, quantizers, and one HTML report.

    "all" makes everything but frontier. That part draws loss against bytes for all methods and learners. It takes
    long. Finished runs are kept in the folder, so an interrupted command continues where it stopped.

    Example: omkl paper claims --seeds 20 --data banana
    """
    if seeds is not None and seeds < 2:
        raise InputError(f"seeds is {seeds}; intervals need at least 2; pass --seeds 10")
    names = [pick("data set", name.lower().replace("-", "_"), DATA_SETS).name for name in data or []]
    with extra("sim", "jax"):
        from omkl_lab.paper.run import BUNDLED, FULL, PARTS, Paper
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; the results need a folder; name another")
    parts = PARTS if part is Part.all else (part.value,)
    with show.progress(quiet) as report:
        work = Paper(
            out,
            seeds or (10 if quick else 100),
            names or (BUNDLED if quick else FULL),
            quick,
            lambda what, done, rounds: report(done, rounds, what) if report else None,
        )
        try:
            work.run(parts)
        except KeyboardInterrupt:
            missing = [name for name in parts if name not in work.finished()]
            line = f"interrupted; still missing: {', '.join(missing)}; the same command goes on from here"
            typer.echo(f"omkl: {line}; finished parts are in {out}", err=True)
            raise typer.Exit(Exit.INTERRUPTED) from None
    claims = json.loads((out / "claims.json").read_text())["claims"] if "claims" in parts else []
    if output is Format.JSON:
        show.print_json({"report": str(out / "report.html"), "parts": parts, "claims": claims})
        return
    if claims:
        table = Table("", "claim", "verdict", box=None, pad_edge=False)
        for claim in claims:
            table.add_row(claim["letter"], claim["text"], claim["verdict"])
        show.console().print(table)
    print(f"report: {out / 'report.html'}")
