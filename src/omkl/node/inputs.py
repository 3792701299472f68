"""Samples from lines of text: JSON, one object a line, or CSV.

JSON lines are ``{"x": [0.5, -1.0], "y": 1}``, y a list where several values are learned; without y, or with null, a
sample has no label. An ``"id"``, text or a whole number, comes back with its prediction. In CSV the label is the column
that is named, else the one called ``y``, else the last; the others are x in their order. Several values are as many
columns, beginning there, or the last ones. A first row that is not all numbers is a header. An empty label is none, and
so is a row that ends before it.
"""

import csv
import json
import math
import reprlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, BinaryIO, NamedTuple, TypeAlias

from omkl.errors import InputError, unknown

MOST_BYTES = 2**20  # of a line: one without an end must not fill the memory


class Format(StrEnum):
    """How lines are written."""

    JSONL = "jsonl"
    CSV = "csv"


class Sample(NamedTuple):
    """What a line holds; not checked against the network yet."""

    x: list[Any]
    y: Any = None
    id: str | int | None = None


class Bad(NamedTuple):
    """A line that holds no sample."""

    why: str


class HeaderError(InputError):
    """The first line does not fit the network, so that no other will."""


Parse: TypeAlias = Callable[[str], Sample | None]
"""Returns what a line holds, None for a header; raises ``InputError``."""


def read(file: BinaryIO, parse: Parse) -> Iterator[tuple[int, Sample | Bad]]:
    """Yield the number of each line, from 1, and its sample or what is wrong with it; blank lines are passed over."""
    number = commas = 0
    while line := file.readline(MOST_BYTES):
        number += 1
        try:
            if not line.endswith(b"\n") and len(line) == MOST_BYTES:
                _skip(file)
                raise InputError(f"a line of over {MOST_BYTES} bytes")
            text = (line.removeprefix(BOM_UTF8) if number == 1 else line).decode().strip()
            if text and not line.endswith(b"\n") and not text.startswith("{") and text.count(",") < commas:
                rule = "the rows before have more columns, so it may be cut short; end it with a newline"
                raise InputError(f"the last line is {reprlib.repr(text)} without an end; {rule}")
            if text and (sample := parse(text)) is not None:
                commas = text.count(",")
                yield number, sample
        except HeaderError:
            raise
        except (ValueError, RecursionError) as error:  # also what JSON and UTF-8 raise
            yield number, Bad(str(error))


def parse_json(text: str | bytes) -> Sample:
    """Return the sample of an object ``{"x": [...], "y": ...}``."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f'not JSON ({error}); write {{"x": [0.5, -1.0], "y": 1}}') from None
    if not isinstance(value, dict) or not isinstance(value.get("x"), list) or not value.keys() <= {"x", "y", "id"}:
        raise InputError('an object with a list x, and y or none, is wanted; write {"x": [0.5, -1.0], "y": 1}')
    if not isinstance(value.get("id", ""), str | int):
        raise InputError(f"id is {reprlib.repr(value['id'])}; it must be text or a whole number; write it so")
    return Sample(**value)


class Csv:
    """Reads rows of so many inputs and a label.

    Parameters
    ----------
    inputs
        d, the length of x.
    label
        The name of the label's column, which needs a header.
    columns
        Those of a label: more than one where several values are learned, beside each other.
    """

    def __init__(self, inputs: int, label: str | None = None, columns: int = 1) -> None:
        self._inputs, self._label, self._place, self._columns = inputs, label, inputs, columns
        self._names: list[str] = []
        self._first = True

    def __call__(self, text: str) -> Sample | None:
        """Return the sample of a row, None for the header."""
        try:
            (row,) = csv.reader([text], skipinitialspace=True)
        except csv.Error as error:
            raise InputError(f"no CSV ({error})") from None
        first, self._first = self._first, False
        if first and not all(map(_is_number, filter(None, row))):
            self._place = self._find(row)
            return None
        if first and self._label is not None:
            raise HeaderError(f"no header; the label is to be {self._label!r}; name the columns in the first line")
        if len(row) != self._inputs + self._columns and (len(row), self._place) != (self._inputs, self._inputs):
            raise InputError(f"{len(row)} columns; {self._wanted}")
        cells = list(enumerate(row))
        label = [cells.pop(self._place) for _ in range(len(row) - self._inputs)]
        if any(cell for _, cell in label):
            values: list[Any] = [self._number(cell, k, "leave it empty if there is no label") for k, cell in label]
        else:
            values = [None]
        return Sample([self._number(cell, k) for k, cell in cells], values[0] if len(values) == 1 else values)

    @property
    def names(self) -> list[str]:
        """The columns of the header; none where there is no header."""
        return self._names

    def begins(self, text: str) -> bool:
        """Return whether a line may be one of CSV, and none of JSON."""
        return "{" not in text and "}" not in text and ("," in text or _is_number(text))

    def _number(self, cell: str, column: int, other: str = "fill it in or drop the row") -> float:
        if not _is_number(cell) or not math.isfinite(float(cell)):
            name = self._names[column] if column < len(self._names) else f"column {column + 1}"
            raise InputError(f"{name} is {reprlib.repr(cell)}; a cell is a finite number; {other}")
        return float(cell)

    @property
    def _wanted(self) -> str:
        label = "a label" if self._columns == 1 else f"{self._columns} columns of a label"
        return f"{self._inputs} inputs and {label} are wanted"

    def _find(self, header: list[str]) -> int:
        names = [name.strip() for name in header]
        if len(names) not in (self._inputs, self._inputs + self._columns):
            raise HeaderError(f"a header of {len(names)} columns; {self._wanted}")
        if self._label is not None and self._label not in names:
            raise HeaderError(unknown("column", self._label, names))
        self._names, wanted = names, self._label or "y"
        return min(names.index(wanted), self._inputs) if wanted in names else self._inputs


class Detected:
    """Reads CSV if the first line that can be read is one of such a table, else JSON.

    What looked like a header may have been what a sensor says when it starts: until a sample has come, JSON tells.
    """

    def __init__(self, rows: Csv) -> None:
        self._rows = rows
        self._parse: Parse | None = None
        self._is_sure = False

    def __call__(self, text: str) -> Sample | None:
        """Return what a line holds, None for the header of CSV."""
        parse = self._parse
        if parse is None or (not self._is_sure and text.startswith("{")):
            parse = self._rows if self._rows.begins(text) else parse_json
        found = parse(text)
        self._parse, self._is_sure = parse, self._is_sure or found is not None
        return found

    @property
    def names(self) -> list[str]:
        """The columns of the header; none where there is no header."""
        return self._rows.names


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _skip(file: BinaryIO) -> None:
    while (rest := file.readline(MOST_BYTES)) and not rest.endswith(b"\n"):
        pass
