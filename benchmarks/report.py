"""How a benchmark ends: tables on the terminal and what ran where, and the same in out/bench/NAME.json."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def finish(name: str, rows: Sequence[Row], note: str) -> None:
    """Print a table for each run of rows with the same first key, the note and what ran where; write all to a file."""
    from omkl.simulator.description import versions  # JAX comes with it, which processes at work are better without

    tables = [table(list(part)) for _, part in groupby(rows, key=lambda row: next(iter(row)))]
    where, ran = machine(), versions()
    print(*tables, note, f"{where}; {', '.join(f'{what} {which}' for what, which in ran.items())}", sep="\n\n")
    folder = Path("out/bench")
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        "command": shlex.join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": where,
        "versions": ran,
        "rows": rows,
        "note": note,
    }
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")


def table(rows: Sequence[Row]) -> str:
    """Return rows as lines of right-aligned columns, as wide as they need to be."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [keys, *([_text(row.get(key, "")) for key in keys] for row in rows)]
    widths = [max(len(line[k]) for line in cells) for k in range(len(keys))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in cells)


def machine() -> str:
    """Return the processor's name, where the system tells it, and the number of cores."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(": ")[1] for line in lines if line.startswith("model name")), "unknown processor")
    return f"{model}, {os.cpu_count()} cores"


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
