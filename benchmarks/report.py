"""How a benchmark ends: a table on the terminal, and out/bench/NAME.json with what ran where."""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from omkl.simulator.description import versions

Row = dict[str, Any]


def finish(name: str, rows: Sequence[Row], note: str) -> None:
    """Print rows under their keys, then the note, and write both to a file."""
    print(table(rows), note, sep="\n\n")
    folder = Path("out/bench")
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        "command": shlex.join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(),
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
