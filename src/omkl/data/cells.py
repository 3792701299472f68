"""Cells of a table as values: missing ones, numbers as people and spreadsheets write them, dates and times."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]
Texts: TypeAlias = npt.NDArray[np.str_]

MISSING = ("", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none", "nil", "?", "-")
COMMON = 0.9  # of the cells that are there: so many are numbers in a column of numbers

DECIMAL_COMMA = "1.234,5"
# How numbers are written: what a cell looks like, and the marks to take away and to make a point of.
STYLES: Mapping[str, tuple[re.Pattern[str], str, str]] = MappingProxyType({
    "1,234.5": (re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?"), ",", ""),
    DECIMAL_COMMA: (re.compile(r"[+-]?((\d+|\d{1,3}(\.\d{3})+)(,\d+)?|\d+,\d+e[+-]?\d+)", re.IGNORECASE), ".", ","),
})  # fmt: skip
PLAIN = "1234.5"
UNITS = "%$€£¥ \u00a0"  # around numbers, that do not count

ISO = re.compile(r"(?P<y>\d{4})[-/](?P<m>\d{1,2})[-/](?P<d>\d{1,2})(?:[T ]+(?P<time>.*))?")
DOTS = re.compile(r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})(?:,?[T ]+(?P<time>.*))?")
NAMED = re.compile(
    r"(?P<d>\d{1,2})\.?[- ](?P<m>[a-z]{3,9})\.?,?[- ](?P<y>\d{4})(?:,?[T ]+(?P<time>.*))?", re.IGNORECASE
)
NAME_FIRST = re.compile(
    r"(?P<m>[a-z]{3,9})\.?[- ](?P<d>\d{1,2}),?[- ](?P<y>\d{4})(?:,?[T ]+(?P<time>.*))?", re.IGNORECASE
)
MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
TIME = re.compile(
    r"(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,](\d+))?)?\s*([AP]M)?\s*(Z|[+-]\d{2}:?(?:\d{2})?)?", re.IGNORECASE
)

# What 31/05/2024 and 05/31/2024 are written in. All other dates that are read have one reading only, and no order.
DAY_FIRST, MONTH_FIRST = "day/month/year", "month/day/year"
ORDERS: Mapping[str, re.Pattern[str]] = MappingProxyType({
    order: re.compile(rf"{first}(?P<mark>[-/]){second}(?P=mark)(?P<y>\d{{4}})(?:,?[T ]+(?P<time>.*))?")
    for order, first, second in (
        (DAY_FIRST, r"(?P<d>\d{1,2})", r"(?P<m>\d{1,2})"), (MONTH_FIRST, r"(?P<m>\d{1,2})", r"(?P<d>\d{1,2})"),
    )
})  # fmt: skip
IN_ORDER = 5  # different dates that tell their order by standing in it
LIKE_A_DATE = re.compile(r"(\d{1,2}|\d{4})([-/. ])(\d{1,2}|[a-z]{3,9})\2(\d{2}|\d{4})(\D.*)?", re.IGNORECASE)
START = datetime(1970, 1, 1)


def texts(column: npt.NDArray[Any]) -> Texts:
    """Return cells as texts without spaces around them; what is missing is empty."""
    values, which = distinct(column.astype(str))
    found = np.strings.strip(values)
    return np.where(np.isin(np.strings.lower(found), MISSING), "", found)[which]


def distinct(cells: Texts) -> tuple[Texts, npt.NDArray[np.int64]]:
    """Return the different cells and which of them each one is; sorting them, as NumPy does, takes much longer."""
    known: dict[str, int] = {}
    which = [known.setdefault(cell, len(known)) for cell in cells.tolist()]
    return np.array(list(known), dtype=str), np.array(which, dtype=np.int64)


def numbers(cells: Texts, style: str = PLAIN) -> Floats:
    """Return the numbers that cells are, written in a style; nan where there is none, or it is not finite."""
    values, which = distinct(cells)
    found = _plain(values) if style == PLAIN else None
    found = np.array([_number(value, style) for value in values.tolist()]) if found is None else found
    return np.where(np.isfinite(found), found, np.nan)[which]


def style_of(cells: Texts, has_decimal_commas: bool = False) -> str | None:
    """Return how most cells that are there are written as numbers; None where they are no numbers.

    ``1,234`` is a thousand and more, unless the table has decimal commas.
    """
    there, styles = (
        distinct(cells[cells != ""])[0],
        [PLAIN, *(reversed(list(STYLES)) if has_decimal_commas else STYLES)],
    )
    share = {style: float(np.isfinite(numbers(there, style)).mean()) for style in styles} if there.size else {}
    best = max(share, key=lambda style: share[style], default=PLAIN)
    return best if share.get(best, 0.0) >= COMMON else None


def is_number(cell: str) -> bool:
    """Return whether a cell is a number in any style."""
    return any(np.isfinite(_number(cell.strip(), style)) for style in (PLAIN, *STYLES))


def seconds(cells: Texts, order: str = "") -> Floats:
    """Return dates and times as seconds since 1970, a time alone as that of a day; nan where a cell is neither.

    ``order`` is that of day and month in dates that could be read in two ways; without it they are none.
    """
    return _each(lambda cell: _seconds(cell, order), cells)


def orders_of(cells: Texts) -> list[str]:
    """Return the orders in which most cells that are there are dates: none where they are no dates, two if both fit.

    The order fits that all dates have, or the one in which the rows then are.
    """
    there = cells[cells != ""]
    likely = [order for order in ("", *ORDERS) if there.size and _share(there[:100], order) >= COMMON]
    if not likely or likely[0] == "":
        return likely[:1]
    read = {order: seconds(there, order) for order in ORDERS}
    most = np.logical_or.reduce([np.isfinite(found) for found in read.values()])
    fit = [order for order, found in read.items() if most.mean() >= COMMON and np.isfinite(found[most]).all()]
    if len(fit) == 2:
        first, second = (read[order][most] for order in fit)
        sorted_in = [order for order in fit if (np.diff(read[order][most]) >= 0).all()]
        if (first == second).all():
            return fit[:1]
        if len(sorted_in) == 1 and len(np.unique(first)) >= IN_ORDER:
            return sorted_in
    return fit


def look_like_dates(cells: Texts) -> bool:
    """Return whether most cells that are there look like dates, whether or not they can be read."""
    some = cells[cells != ""][:100].tolist()
    return bool(some) and sum(LIKE_A_DATE.fullmatch(cell) is not None for cell in some) >= COMMON * len(some)


def _share(cells: Texts, order: str) -> float:
    """Return what share of cells are dates."""
    return float(np.isfinite(seconds(cells, order)).mean())


def _each(read: Callable[[str], float], cells: Texts) -> Floats:
    values, which = distinct(cells)
    return np.array([read(value) for value in values.tolist()], dtype=np.float64)[which]


def _plain(values: Texts) -> Floats | None:
    try:
        return values.astype(np.float64)
    except ValueError:
        return None


def _number(cell: str, style: str) -> float:
    cell = cell.strip(UNITS)
    if style in STYLES:
        pattern, gone, point = STYLES[style]
        if pattern.fullmatch(cell):
            cell = cell.replace(gone, "")
            return float(cell.replace(point, ".") if point else cell)
    try:
        return float(cell) if "_" not in cell else np.nan
    except ValueError:
        return np.nan


def _seconds(cell: str, order: str) -> float:
    patterns = (ISO, DOTS, NAMED, NAME_FIRST, *([ORDERS[order]] if order else []))
    found = next((match for pattern in patterns if (match := pattern.fullmatch(cell))), None)
    time = _time(found["time"] or "0:00" if found else cell)
    if time is None:
        return np.nan
    try:
        day = START if found is None else datetime(int(found["y"]), _month(found["m"]), int(found["d"]))
    except ValueError:
        return np.nan
    return (day - START).total_seconds() + time


def _month(text: str) -> int:
    """Return the number of a month, which may be a name; 0 is none."""
    if text.isdigit():
        return int(text)
    return next((k for k, name in enumerate(MONTHS, start=1) if name.startswith(text.lower())), 0)


def _time(text: str) -> float | None:
    found = TIME.fullmatch(text.strip())
    if not found:
        return None
    hour, minute, second, part, half, zone = found.groups()
    hours = int(hour) if half is None else int(hour) % 12 + 12 * (half.lower() == "pm")
    value = 3600 * hours + 60 * int(minute) + int(second or 0) + float(f"0.{part or 0}")
    return value - (datetime.strptime(zone.upper(), "%z").utcoffset() or timedelta()).total_seconds() if zone else value
