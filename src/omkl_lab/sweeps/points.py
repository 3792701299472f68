"""A point of a sweep: one simulation, the settings that identify it, and its result as a file and as a row."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from omkl import data, storage
from omkl import topology as topologies
from omkl.data.tables import Roles
from omkl.errors import InputError
from omkl.experiment import Experiment, label
from omkl.methods import suited
from omkl.settings import build, settings
from omkl.simulator.description import describe

Record: TypeAlias = dict[str, Any]
Row: TypeAlias = dict[str, Any]

MEASURES = ("loss", "final_loss", "final_loss_stderr", "final_accuracy", "bits_per_node_round", "pooled_loss")
BLANK: Record = {"summary": {}, "seconds": None, "failure": None, "error": None, "warnings": [], "versions": {}}


@dataclass(frozen=True, eq=False)
class Point:
    """One simulation of a sweep: the experiment, and its settings as they are recorded in JSON."""

    experiment: Experiment
    settings: dict[str, Any]

    @cached_property
    def id(self) -> str:
        """The digest of the settings."""
        return digest(self.settings)

    @cached_property
    def program(self) -> str:
        """A digest that is the same for points that run the same compiled program."""
        free = ("topology", "weights", "faults", "seed", "shuffle", "record_every")
        return digest({key: value for key, value in self.settings.items() if key not in free})


def point(given: Experiment | Mapping[str, Any], **known: Any) -> Point:
    """Return the point of an experiment, or of its attributes; ``known`` has records of what cannot describe itself."""
    one: Experiment = given if isinstance(given, Experiment) else build(Experiment, given)
    one = replace(one, topology=topologies.opened(one.topology))  # workers may not see the file
    method, own = one.method, None
    if isinstance(one.data, str):
        chosen = data.known(one.data)
        method, own = suited(method, chosen.loss), chosen.graph and "its own"
    elif isinstance(one.data, data.Table):
        method = suited(method, one.data.loss)
    if not isinstance(one.data, str) and "data" not in known:
        known["data"] = {"name": "table", "sha256": fingerprint(*one.data[:2])}
    if one.topology is None:
        known["topology"] = own or "path"
    elif not isinstance(one.topology, str) and "topology" not in known:
        turns = topologies.turns(one.topology, one.nodes, one.weights)
        arrays = [array for turn in turns for array in (turn.graph.edges, turn.weights)]
        name = turns[0].graph.name if len(turns) == 1 else "schedule"
        names = topologies.names_of(one.topology)
        known["topology"] = {"name": name, "sha256": fingerprint(*arrays)} | ({"names": list(names)} if names else {})
    known["method"] = describe(method, _lasting) | {"loss": describe(method.objective, _lasting)}
    told = {field.name: getattr(one, field.name) for field in fields(one)} | known
    told = {name: value for name, value in told.items() if name not in settings(Roles)}  # the table has them
    if told["rounds"] is None:
        del told["rounds"]  # as in records from before there was such a setting
    return Point(one, {name: value if name in known else describe(value, _lasting) for name, value in told.items()})


def _lasting(thing: Any) -> str:
    """Return the text of an object; refuse one whose text is its address in memory."""
    if callable(thing) or type(thing).__repr__ is object.__repr__:  # type: ignore[comparison-overlap]
        raise InputError(f"a setting is {thing!r}, its address in memory; a record needs a lasting name; add __repr__")
    return repr(thing)


def unique(points: Iterable[Point | Experiment | Mapping[str, Any]]) -> list[Point]:
    """Return the points without repetitions."""
    made = [one if isinstance(one, Point) else point(one) for one in points]
    return list({one.id: one for one in made}.values())


def fingerprint(*arrays: Any) -> str:
    """Return a digest of arrays' shapes and values."""
    values = [np.asarray(array, dtype=np.float64) for array in arrays]
    return hashlib.sha256(b"".join(str(one.shape).encode() + one.tobytes() for one in values)).hexdigest()[:16]


def digest(settings: Any) -> str:
    """Return the digest of settings, whatever their order."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def recorded(points: Iterable[Point], folder: str | Path) -> dict[str, Record]:
    """Return the records of these points that are found undamaged, by id."""
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
    """Write the record of a point, safely on the disk, and return it."""
    record = {"settings": one.settings, **outcome}
    storage.write_whole(_path(folder, one.id), json.dumps(record, indent=2, allow_nan=False) + "\n")
    return record


def as_rows(points: Sequence[Point], records: Mapping[str, Record]) -> list[Row]:
    """Return rows with the same columns: the method's name, settings, measures, losses by seed, seconds and errors."""
    found = [(one, _flatten(one.settings), records[one.id]) for one in points]
    columns = dict.fromkeys(key for _, settings, _ in found for key in settings)
    pooled = any("pooled_loss" in record["summary"] for _, _, record in found)
    return [
        {"id": one.id, "label": label(one.experiment.method)}
        | {key: settings.get(key) for key in columns}
        | {key: record["summary"].get(key) for key in MEASURES if pooled or key != "pooled_loss"}
        | {"final_losses": record["summary"].get("final_losses")}
        | {key: record[key] for key in ("seconds", "failure", "error")}
        for one, settings, record in found
    ]


def _flatten(settings: Mapping[str, Any], path: str = "") -> Row:
    """Return settings by dotted names, such as ``method.eta``, as in a grid."""
    row: Row = {}
    for key, value in settings.items():
        place = path if path and key == "name" else f"{path}.{key}".lstrip(".")
        if isinstance(value, dict):
            row |= _flatten(value, place)
        else:
            row[place] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
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
