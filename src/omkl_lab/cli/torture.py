"""``omkl torture``: simulates networks under faults, and checks what must hold."""

import os
import sys
import time
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from omkl.cli import options, show
from omkl.cli.exits import Exit
from omkl.cli.options import Format
from omkl.errors import extra, whole

if TYPE_CHECKING:
    from omkl_lab.torture import Report

SHOWN = 3  # violations that are told in full


def torture(
    seed: Annotated[int, typer.Option(min=0, help="The first seed.", metavar="INT")] = 0,
    events: Annotated[int, typer.Option(help="Number of faults in each run.", metavar="INT")] = 100,
    seeds: Annotated[int, typer.Option(help="How many seeds to run.", metavar="INT")] = 1,
    jobs: options.Jobs = None,
    output: options.Output = Format.TABLE,
    quiet: options.Quiet = False,
) -> None:
    """Simulate networks under faults, and check what must hold of nodes whatever happens.

    A seed decides everything: the network, its streams, and faults of messages, links, nodes, clocks and disks, in
    virtual time. If something does not hold, omkl prints the command that replays it, and the exit code is 1.

    Example: omkl torture --seed 123 --events 100
    """
    for name, value in (("events", events), ("seeds", seeds), ("jobs", jobs)):
        if value is not None:
            whole(name, value)
    with extra("node", "eclipse-zenoh"):
        from omkl_lab.torture import runs
    start, reports = time.monotonic(), []
    with show.progress(quiet) as tell:
        for report in runs(range(seed, seed + seeds), events, min(jobs or os.cpu_count() or 1, seeds)):
            reports.append(report)
            if tell:
                tell(len(reports), seeds, "torturing")
    bad = [report for report in reports if report.violation is not None]
    summary = _summarize(reports) | {"seconds": time.monotonic() - start}
    if output is Format.JSON:
        show.print_json(summary)
    else:
        _print(summary)
    for report in bad[:SHOWN]:
        print(f"\nomkl: seed {report.seed}: {report.shape}\n{report.violation}", file=sys.stderr)
        print(f"omkl: to replay it: omkl torture --seed {report.seed} --events {events}", file=sys.stderr)
    raise typer.Exit(Exit.UNEXPECTED if bad else Exit.OK)


def _summarize(reports: "list[Report]") -> dict[str, Any]:
    faults: Counter[str] = Counter()
    for report in reports:
        faults.update(report.faults)
    good = [report for report in reports if report.violation is None]
    drifts = [report.drift for report in reports]
    return {
        "seeds": len(reports),
        "violations": [report.seed for report in reports if report.violation is not None],
        "fault_events": faults.total(),
        "faults": dict(faults.most_common()),
        "rounds": sum(report.rounds for report in reports),
        "balanced_rounds": sum(report.balanced for report in reports),
        "deadlines_to_settle": max((report.settled for report in good), default=None),
        "rounds_to_settle": max((report.settled_rounds for report in good), default=None),
        "closer": max((report.closer for report in good), default=None),
        "drift": {"median": median(drifts), "most": max(drifts)},
        "mean_model": median(report.mean for report in reports),
        "observations_lost": sum(report.lost for report in reports),
        "recovered": sum(report.recovered for report in reports),
        "cpu_seconds": sum(report.seconds for report in reports),
        "digest": reports[0].digest if len(reports) == 1 else None,
    }


def _print(summary: dict[str, Any]) -> None:
    console, page = show.console(), Table(box=None, pad_edge=False, show_header=False)
    page.add_row("seeds", f"{summary['seeds']:,}, {len(summary['violations']):,} with a violation")
    page.add_row("fault events", f"{summary['fault_events']:,}")
    page.add_row("", ", ".join(f"{kind} {count:,}" for kind, count in summary["faults"].items()))
    page.add_row("rounds taken", f"{summary['rounds']:,}")
    page.add_row("", f"in {summary['balanced_rounds']:,} of the network nobody was left out, and the mean stood still")
    if summary["closer"] is not None:
        deadlines, rounds = summary["deadlines_to_settle"], summary["rounds_to_settle"]
        page.add_row("in step again", f"{deadlines:.2f} deadlines and {rounds:,} rounds after the last fault, at most")
        page.add_row("mixing alone", f"leaves {summary['closer']:.2f} times what the algorithm does, at most")
    drift = summary["drift"]
    told = f"{drift['median']:.3g} in the median, {drift['most']:.3g} at most; models {summary['mean_model']:.3g}"
    page.add_row("drift of the mean", told)
    page.add_row("models given back", f"{summary['recovered']:,}")
    page.add_row("observations lost", f"{summary['observations_lost']:,}, all reported")
    page.add_row("time", f"{summary['seconds']:.1f} s, {summary['cpu_seconds']:.1f} s of CPU")
    if summary["digest"] is not None:
        page.add_row("digest", summary["digest"])
    console.print(page)
