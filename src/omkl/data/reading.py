"""Files and data frames as columns of cells."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.data import cells
from omkl.errors import InputError, MissingExtraError

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]

TEXT = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET = ".parquet"
MARKS = ",;\t|"  # between cells
LOOKED_AT = 50  # lines that tell which
LONGEST = 200  # characters of a cell that are kept
SHOWN = 40  # characters of a cell in a message


class Read(NamedTuple):
    """Columns, what they are called together, and what is to be said of how they were read."""

    columns: Columns
    name: str
    notes: tuple[str, ...] = ()
    has_decimal_commas: bool = False
    """Whether a comma in a number rather is its point: commas are not between cells."""
    has_header: bool = True
    """Whether columns have names; without names they are counted."""
    lines: npt.NDArray[np.int64] | None = None
    """The line of the file in which each row begins, where it has lines."""

    def of(self, rows: npt.NDArray[np.int64]) -> "Read":
        """Return these rows, in this order."""
        columns = {name: column[rows] for name, column in self.columns.items()}
        return self._replace(columns=columns, lines=None if self.lines is None else self.lines[rows])

    def place(self, row: int) -> str:
        """Return where a row stands, in words."""
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"


def is_frame(source: Any) -> bool:
    """Return whether this is a data frame, of pandas or its like."""
    return hasattr(source, "columns") and hasattr(source, "to_numpy")


def is_file(source: Any) -> bool:
    """Return whether this is the path of a file, and no name of a data set."""
    return isinstance(source, PathLike) or (isinstance(source, str) and Path(source).suffix != "")


def read(source: Any) -> Read:
    """Return the columns of a CSV file, a Parquet file or a data frame."""
    if is_frame(source):
        _unique([str(name) for name in source.columns], "data frame")
        return Read({str(name): _plain(source[name].to_numpy()) for name in source.columns}, "data frame")
    if not isinstance(source, str | PathLike):
        raise InputError(f"source is {source!r}; a table is read from a path or a data frame; pass one of them")
    path = Path(source)
    if not path.is_file():
        raise InputError(f"{path} is not a file; a table is read from a file or a data frame; check the path")
    try:
        if path.name.lower().endswith(TEXT):
            return _read_text(path)
        if path.suffix.lower() == PARQUET:
            return Read(_read_parquet(path), path.name)
    except InputError:
        raise
    except (ValueError, OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read ({error}); it must be text or Parquet, and whole") from None
    known = ", ".join((*TEXT, PARQUET))
    raise InputError(f"{path} ends in {path.suffix!r}; a table is read from {known}; convert it, or rename it")


def rows(source: Any) -> Columns | None:
    """Return the columns of a file, a data frame or a list of dicts; None where it is something else."""
    if is_frame(source) or is_file(source):
        return read(source).columns
    if not isinstance(source, list) or not source or not all(isinstance(row, Mapping) for row in source):
        return None
    names = [name for name in source[0] if all(name in row for row in source)]
    return {str(name): _plain([row[name] for row in source]) for name in names}


def brief(cell: Any) -> str:
    """Return a cell as a message shows it."""
    text = str(cell)
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")


def _read_text(path: Path) -> Read:
    content = path.read_bytes()
    text, notes = _decoded(gzip.decompress(content) if path.suffix.lower() == ".gz" else content)
    if "\0" in text:
        raise InputError(f"{path} holds bytes that are no text; a table is text or Parquet; convert it")
    try:
        mark = _mark(text)
        rows = list(_numbered(csv.reader(io.StringIO(text, newline=""), delimiter=mark)))
    except csv.Error as error:
        raise InputError(f"{path} cannot be cut into cells ({error}); is a quotation mark missing? mend it") from None
    lines = [(number, row) for number, row in rows if any(cell.strip() for cell in row)]
    if not lines:
        raise InputError(f"{path} has no row below its header; a table needs one at least; check its source")
    names = [cell.strip() for cell in lines[0][1]]
    has_header = len(lines) == 1 or not _is_row(names, [row for _, row in lines[1:]])
    if not has_header:
        notes.append(f"its first row holds no names, so the columns are called 1 to {len(names)}")
        names = [str(k) for k in range(1, len(names) + 1)]
    else:
        lines = lines[1:]
    names = [name or f"column {k}" for k, name in enumerate(names, start=1)]
    _unique(names, str(path))
    if not lines:
        raise InputError(f"{path} has no row below its header; a table needs one at least; check its source")
    width = len(names)
    for number, row in lines:
        if len(row) < width or any(row[width:]):
            raise InputError(f"{path} line {number} has {len(row)} cells; the first line has {width}; mend the line")
    table = zip(*(row[:width] for _, row in lines), strict=True)
    columns = {name: np.array([cell[:LONGEST] for cell in column]) for name, column in zip(names, table, strict=True)}
    starts = np.array([number for number, _ in lines])
    return Read(columns, path.name, tuple(notes), mark != ",", has_header, starts)


def _is_row(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first line is a row: a date above dates, or numbers, and texts that come again below."""
    below = [[row[k].strip() for row in rows[:LOOKED_AT] if k < len(row)] for k in range(len(names))]
    if any(_are_dates([name]) and _are_dates(column) for name, column in zip(names, below, strict=True)):
        return True
    texts = [k for k, name in enumerate(names) if name and not cells.is_number(name)]
    if len(texts) == sum(map(bool, names)):
        return False
    return all(any(k < len(row) and row[k].strip() == names[k] for row in rows) for k in texts)


def _are_dates(found: Sequence[str]) -> bool:
    return bool(cells.orders_of(np.array(found, dtype=str)))


def _numbered(rows: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the line in which each row of a reader begins, and the row: a cell in quotes may go over several."""
    before = 0
    for row in rows:
        yield before + 1, row
        before = rows.line_num


def _decoded(content: bytes) -> tuple[str, list[str]]:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16"), []
    try:
        return content.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace"), ["it is not UTF-8 and was read as Windows-1252 (Latin-1)"]


def _mark(text: str) -> str:
    """Return what is between cells: that which cuts the first lines into most cells, as many in each."""
    first = [line for line in text[: 2**20].splitlines()[: LOOKED_AT + 1] if line.strip()][:LOOKED_AT]
    best, cells_in_each = ",", 1
    for mark in MARKS:
        widths = {len(row) for row in csv.reader(first, delimiter=mark)}
        if len(widths) == 1 and (width := widths.pop()) > cells_in_each:
            best, cells_in_each = mark, width
    if cells_in_each == 1 and first:  # ragged, or a single column
        best = max(MARKS, key=lambda mark: len(next(csv.reader(first[:1], delimiter=mark))))
    return best


def _read_parquet(path: Path) -> Columns:
    try:
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "results") from None
    table = parquet.read_table(path)
    _unique(table.column_names, str(path))
    return {name: _plain(table[name].to_numpy()) for name in table.column_names}


def _plain(column: Any) -> npt.NDArray[Any]:
    """Return cells as numbers, as dates or as texts; spans of time as seconds."""
    found = np.asarray(column)
    if found.dtype.kind == "m":
        return np.where(np.isnat(found), np.nan, found / np.timedelta64(1, "s"))
    return (
        found if found.dtype.kind in "biufM" else np.array([str(cell)[:LONGEST] for cell in found.tolist()], dtype=str)
    )


def _unique(names: Sequence[str], source: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{source} has two columns {name!r}; names must differ; rename one")
        seen.add(name)
