"""Grid files: a spec, lists of values whose product is run, and points listed one by one."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omkl import config
from omkl.cli.options import METHOD, QUANTIZER
from omkl.config import Table
from omkl.data.reading import is_file as is_table
from omkl.data.tables import Roles
from omkl.errors import InputError
from omkl.experiment import Experiment
from omkl.settings import settings
from omkl.topology.files import is_file
from omkl_lab import sweeps
from omkl_lab.sweeps import Point


def expand(path: Path) -> Iterator[Point]:
    """Yield the points of a grid file, each checked; an error names the point, the key and the value."""
    base = config.load(path)
    axes, listed = _by_path(_axes(base.pop("grid", {}))), base.pop("point", None)
    if listed is not None and not (isinstance(listed, list) and listed and all(isinstance(t, dict) for t in listed)):
        raise InputError("point: it must be a list of tables; write [[point]] before each")
    for key, beside in (("data", config.data_beside), ("data.file", _file_beside), ("topology", config.graph_beside)):
        if key in axes:
            axes[key] = [beside(path, value) for value in axes[key]]
    read: dict[str, Any] = {}
    for (number, over), *values in itertools.product(enumerate(listed or [{}], start=1), *axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        label = [f"[[point]] {number}"] if listed else []
        label += [f"{key} = {json.dumps(value, default=str)}" for key, value in chosen.items()]
        try:
            own = {"data": config.data_beside(path, over["data"])} if "data" in over else {}
            own |= {"topology": config.graph_beside(path, over["topology"])} if "topology" in over else {}
            table = config.merge(base, over | own)
            for key in sorted(chosen, key=lambda key: key.count(".")):  # a name before its settings
                table = _put(table, key.split("."), chosen[key], key)
            yield _point(table, read)
        except InputError as error:
            raise InputError(f"{path.name}: {', '.join(label) or 'its only point'}: {error}") from None


def _axes(grid: Any, path: str = "grid") -> Iterator[tuple[str, list[Any]]]:
    """Yield dotted keys and their values, however the keys were written in TOML."""
    if isinstance(grid, dict):
        for key, value in grid.items():
            yield from _axes(value, f"{path}.{key}")
    elif isinstance(grid, list) and grid and path != "grid":
        yield path.removeprefix("grid."), grid
    else:
        raise InputError(f"{path}: {grid!r} given; it must be a list of one value or more; write it in brackets")


def _by_path(axes: Iterator[tuple[str, list[Any]]]) -> dict[str, list[Any]]:
    """Return the lists by their dotted keys; a setting of the method may be named alone, as in flags."""
    found: dict[str, list[Any]] = {}
    for name, values in axes:
        key = name
        if name not in settings(Experiment) and name not in settings(Roles):
            key = f"method.{name}" if name in METHOD else f"method.quantizer.{name}" if name in QUANTIZER else name
        if key in found:
            raise InputError(f"grid.{name}: {key} is given twice; a setting has one list; leave one out")
        found[key] = values
    return found


def _file_beside(path: Path, file: Any) -> Any:
    return str(path.parent / file) if isinstance(file, str) else file


def _put(table: Any, keys: list[str], value: Any, path: str) -> Any:
    """Return the table with a value at some depth; another method keeps what the old one shares with it."""
    if path in ("method", "method.name"):
        return config.merge(table, {"method": value if path == "method" else {"name": value}})
    if isinstance(table, tuple):  # methods laid over each other
        return (*table[:-1], _put(table[-1], keys, value, path))
    table = {"name": table} if isinstance(table, str) else {} if table is None else table
    if not isinstance(table, dict):
        raise InputError(f"{path}: the spec holds {table!r} on the way there; it must be a table; change either")
    key, *rest = keys
    return table | {key: _put(table.get(key), rest, value, path) if rest else value}


def _point(table: Table, read: dict[str, Any]) -> Point:
    roles = {key: table[key] for key in settings(Roles) if key in table}
    data = table.get("data")
    of_file = isinstance(data, dict) or roles or is_table(data)
    if of_file:  # a file is read once, however many points learn it
        key = json.dumps([data, roles], sort_keys=True, default=str)
        if key not in read:
            read[key] = config.data(data, roles)
        table = {key: table[key] for key in table if key not in roles} | {"data": read[key]}
    spec = config.experiment(table)
    told = table.get("topology")
    of_files = [is_file(one) for one in (told["graphs"] if isinstance(told, dict) and "graphs" in told else [told])]
    known = {} if isinstance(spec.topology, str | None) or any(of_files) else {"topology": told}
    if of_file:
        told = {**roles, **data} if isinstance(data, dict) else {"file": data, **roles}
        name = Path(told.pop("file")).name
        known["data"] = {"name": name, **told, "sha256": sweeps.fingerprint(*spec.data[:2])}
    return sweeps.point(spec, **known)
