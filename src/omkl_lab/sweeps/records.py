"""What came of points: a file for each, whole or not there, and the table made of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from omkl import storage
from omkl.experiment import label
from omkl_lab.sweeps.points import Point, digest

Record: TypeAlias = dict[str, Any]
Row: TypeAlias = dict[str, Any]

MEASURES = ("loss", "final_loss", "final_loss_stderr", "final_accuracy", "bits_per_node_round", "pooled_loss")
BLANK: Record = {"summary": {}, "seconds": None, "failure": None, "error": None, "warnings": [], "versions": {}}


def recorded(points: Iterable[Point], folder: str | Path) -> dict[str, Record]:
    """Return the whole records found of these points, by id."""
    found = {one.id: _read(_path(Path(folder), one.id)) for one in points}
    return {name: record for name, record in found.items() if record is not None}


def _path(folder: Path, name: str) -> Path:
    return folder / "points" / f"{name}.json"


def _read(path: Path) -> Record | None:
    """Return a record, or None where there is none or it is torn: its name is the digest of what it must hold."""
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
        whole = digest(record["settings"]) == path.stem and {*BLANK} <= record.keys()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return record if whole else None


def write(folder: Path, one: Point, outcome: Record) -> Record:
    """Return the record of a point, on disk by then, whatever happens next."""
    record = {"settings": one.settings, **outcome}
    storage.write_whole(_path(folder, one.id), json.dumps(record, indent=2, allow_nan=False) + "\n")
    return record


def as_rows(points: Sequence[Point], records: Mapping[str, Record]) -> list[Row]:
    """Return rows of the same columns: what the method is called, settings, measures, and how it went."""
    found = [(one, _flatten(one.settings), records[one.id]) for one in points]
    columns = dict.fromkeys(key for _, settings, _ in found for key in settings)
    pooled = any("pooled_loss" in record["summary"] for _, _, record in found)
    return [
        {"id": one.id, "label": label(one.experiment.method)}
        | {key: settings.get(key) for key in columns}
        | {key: record["summary"].get(key) for key in MEASURES if pooled or key != "pooled_loss"}
        | {key: record[key] for key in ("seconds", "failure", "error")}
        for one, settings, record in found
    ]


def _flatten(settings: Mapping[str, Any], path: str = "") -> Row:
    """Return columns by dotted names; a thing's own name stands in the column of the thing, as in a grid."""
    row: Row = {}
    for key, value in settings.items():
        place = path if path and key == "name" else f"{path}.{key}".lstrip(".")
        if isinstance(value, dict):
            row |= _flatten(value, place)
        else:
            row[place] = json.dumps(value) if isinstance(value, list) else value
    return row


def write_table(folder: Path, rows: Sequence[Row]) -> None:
    """Write the rows into the folder: as Parquet with pyarrow, else as JSON lines."""
    folder.mkdir(parents=True, exist_ok=True)
    table, lines = folder / "results.parquet", folder / "results.jsonl"
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        storage.write_whole(lines, "".join(json.dumps(row) + "\n" for row in rows))
        table.unlink(missing_ok=True)
    else:
        with storage.replacing(table) as file:
            parquet.write_table(pa.Table.from_pylist(list(rows)), file)
        lines.unlink(missing_ok=True)
