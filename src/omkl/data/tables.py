"""Tables from files: CSV, Parquet, or a data frame."""

import csv
import gzip
import zlib
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.errors import InputError, MissingExtraError, pick

Floats: TypeAlias = npt.NDArray[np.float64]
Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]


class Table(NamedTuple):
    """Features ``X (n, d)``, labels ``y (n,)``, or ``(n, C)``, and the node column ``(n,)`` where one was asked for."""

    X: Floats
    y: Floats
    node: npt.NDArray[Any] | None


def read_table(source: Any, target: str | Sequence[str], node: str | None = None, drop: Sequence[str] = ()) -> Table:
    """Return the table of a CSV file with a header, a Parquet file or a data frame.

    Parameters
    ----------
    source
        Path ending in ``.csv``, ``.csv.gz`` or ``.parquet``, or a data frame of pandas or its like.
    target
        Column of the labels, or several of them.
    node
        Column that says which node sees a row, for ``by_node``.
    drop
        Columns that are no features. All others are, and must be numbers.
    """
    columns = _columns(source)
    targets = [target] if isinstance(target, str) else list(target)
    if not targets:
        raise InputError("target is empty; a table has a label; name its column, or several")
    special = [*targets, *([node] if node is not None else []), *([drop] if isinstance(drop, str) else drop)]
    for name in special:
        pick("column", name, columns)
    for name in targets:
        if special.count(name) > 1:
            raise InputError(f"column {name!r} is the target and more; it can be one thing only; name another")
    X, _ = _features(columns, special)
    y = np.stack([_numbers(name, columns[name], "encode the labels, or drop these rows") for name in targets], axis=1)
    y = y[:, 0] if isinstance(target, str) else y
    return Table(X, y, _numbers_or_names(columns[node]) if node is not None else None)


def read_inputs(source: Any, labels: Sequence[str] = (), drop: Sequence[str] = ()) -> tuple[Floats, Floats, list[str]]:
    """Return the features ``(n, d)`` of a table, its labels ``(n, C)``, and the names of the features.

    A column that is called ``y`` is no feature.
    """
    columns = _columns(source)
    for name in (*labels, *drop):
        pick("column", name, columns)
    X, features = _features(columns, [*labels, *drop, "y"])
    y = [_numbers(name, columns[name], "encode the labels, or drop these rows") for name in labels]
    return X, np.stack(y, axis=1) if y else np.empty((len(X), 0)), features


def _features(columns: Columns, others: Sequence[str]) -> tuple[Floats, list[str]]:
    """Return the features ``(n, d)`` and their names: all columns but these."""
    names = [name for name in columns if name not in others]
    if not names:
        raise InputError(f"columns {', '.join(columns)} leave no feature; a table needs one at least; drop fewer")
    return np.stack([_numbers(name, columns[name], "drop= it, or encode it") for name in names], axis=1), names


def _columns(source: Any) -> Columns:
    if hasattr(source, "columns") and hasattr(source, "to_numpy"):
        _unique([str(name) for name in source.columns], "data frame")
        return {str(name): source[name].to_numpy() for name in source.columns}
    if not isinstance(source, str | PathLike):
        raise InputError(f"source is {source!r}; a table is read from a path or a data frame; pass one of them")
    path = Path(source)
    if not path.is_file():
        raise InputError(f"{path} is not a file; a table is read from a file or a data frame; check the path")
    try:
        if path.name.endswith((".csv", ".csv.gz")):
            return _read_csv(path)
        if path.suffix == ".parquet":
            return _read_parquet(path)
    except InputError:
        raise
    except (ValueError, OSError, EOFError, csv.Error, zlib.error) as error:
        raise InputError(f"{path} cannot be read ({error}); it must be UTF-8 text or Parquet, and whole") from None
    raise InputError(f"{path} ends in {path.suffix!r}; it must end in .csv, .csv.gz or .parquet; convert it")


def _read_csv(path: Path) -> Columns:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
        names, *rows = [row for row in csv.reader(file) if row] or [[]]
    _unique(names, str(path))
    if not rows:
        raise InputError(f"{path} has no row below its header; a table needs one at least; check its source")
    for i, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise InputError(f"{path} row {i} has {len(row)} cells; the header has {len(names)}; mend the row")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def _read_parquet(path: Path) -> Columns:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "results") from None
    table = parquet.read_table(path)
    _unique(table.column_names, str(path))
    return {name: table[name].to_numpy() for name in table.column_names}


def _unique(names: Sequence[str], source: str) -> None:
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise InputError(f"{source} has two columns {twice[0]!r}; names must differ; rename one")


def _numbers(name: str, column: npt.NDArray[Any], remedy: str) -> Floats:
    try:
        values = column.astype(np.float64) if column.dtype.kind in "biufUO" else np.full(len(column), np.nan)
    except (TypeError, ValueError):
        values = np.array([_number(cell) for cell in column])
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise InputError(f"column {name!r}, row {row + 1} holds {str(column[row])!r}; it must be a number; {remedy}")
    return values


def _numbers_or_names(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a node column as numbers where it holds numbers: as text, node 10 would come before node 2."""
    values = np.array([_number(cell) for cell in column])
    return values if np.isfinite(values).all() else column


def _number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return np.nan
