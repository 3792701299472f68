"""Columns of a table as inputs of a learner: what each becomes, decided once and then the same for new rows.

A column of numbers stays one. One of texts becomes a column of 0 and 1 for each text, or for the most frequent ones.
One of dates becomes the days since 1970, and where it stands in the day, the week and the year.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.data import cells
from omkl.data.cells import Floats, Texts
from omkl.data.reading import Columns, brief
from omkl.display import counted
from omkl.errors import InputError

MOST_TEXTS = 20  # of a column, that become a column each
MOST_LETTERS = 100  # of a text that may be a category
MANY = 0.05  # of the cells missing: so many get a column that tells
DAY = 86400.0
MOST_LISTED = 12  # columns in a line
PERIODS: Mapping[str, float] = {"day": DAY, "week": 7 * DAY, "year": 365.2425 * DAY}
OTHER = "other"
COUNTER = re.compile(
    r"(.*\W|)(id|index|row|no|nr|number|#|unnamed: \d+|column 1)"
)  # names of columns that may number rows


class Encoder(Protocol):
    """What a column becomes."""

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """The column."""

    @property
    def names(self) -> list[str]:
        """What the inputs are called that it becomes."""

    def encode(self, column: npt.NDArray[Any]) -> Floats:
        """Return the inputs ``(n, k)`` of cells ``(n,)``."""


@dataclass(frozen=True)
class Number:
    """A column of numbers; ``fill`` stands for those that are missing, ``told`` adds a column that says which are.

    ``seen`` has the smallest and the largest; files of earlier versions have none.
    """

    name: str
    fill: float
    told: bool = False
    style: str = cells.PLAIN
    seen: list[float] | None = None
    kind: ClassVar[str] = "number"

    @property
    def names(self) -> list[str]:
        """The column, and the one that says what is missing."""
        return [self.name, f"{self.name} is missing"] if self.told else [self.name]

    def encode(self, column: npt.NDArray[Any]) -> Floats:
        """Return numbers."""
        values = number_cells(column, self.style)
        gone = np.isnan(values)
        filled = np.where(gone, self.fill, values)
        return np.stack([filled, gone], axis=1) if self.told else filled[:, None]


@dataclass(frozen=True)
class Category:
    """A column of texts: a column of 0 and 1 for each, the last perhaps for all others; of two texts one suffices."""

    name: str
    values: list[str]
    others: bool = False
    kind: ClassVar[str] = "category"

    @property
    def names(self) -> list[str]:
        """The columns, as ``color = red``."""
        shown = [value or "missing" for value in self.values] + ([OTHER] if self.others else [])
        return [f"{self.name} = {value}" for value in (shown[1:] if len(shown) == 2 else shown)]

    def encode(self, column: npt.NDArray[Any]) -> Floats:
        """Return zeros and ones."""
        found = cells.texts(column)
        made = [found == value for value in self.values]
        made += [~np.logical_or.reduce(made)] if self.others else []
        return np.stack(made[1:] if len(made) == 2 else made, axis=1).astype(np.float64)


@dataclass(frozen=True)
class Date:
    """A column of dates and times; ``fill``, in seconds since 1970, stands for those that are missing."""

    name: str
    fill: float
    parts: list[str] = field(default_factory=list)
    epoch: float = 0.0
    order: str = ""
    kind: ClassVar[str] = "date"

    @property
    def names(self) -> list[str]:
        """The parts, as ``sine of day of when``."""
        return [
            f"{how} of {part} of {self.name}" if how else f"days of {self.name}"
            for part in self.parts for how in (("sine", "cosine") if part in PERIODS else ("",))
        ]  # fmt: skip

    def encode(self, column: npt.NDArray[Any]) -> Floats:
        """Return days since 1970, and sine and cosine of periods."""
        values = date_cells(column, self.epoch, self.order)
        values = np.where(np.isnan(values), self.fill, values)
        made: list[Floats] = []
        for part in self.parts:
            turns = 2 * np.pi * values / PERIODS.get(part, DAY)
            made += [np.sin(turns), np.cos(turns)] if part in PERIODS else [values / DAY]
        return np.stack(made, axis=1)


KINDS: Mapping[str, Any] = {kind.kind: kind for kind in (Number, Category, Date)}
Choice: TypeAlias = tuple[Number | Category | Date | None, str | None]
"""What a column becomes, None where it tells nothing, and what is to be said of it."""


@dataclass(frozen=True)
class Encoding:
    """How rows of a table are read: what each column becomes, and what predictions mean.

    Attributes
    ----------
    columns
        The encoders of the columns that are inputs.
    target
        The names of the columns that are predicted.
    classes
        The labels of the target, in the order of their numbers; None where it is a number.
    center, scale
        Those of the target's values in the learner's units, one for each column; None where they are one.
    """

    columns: list[Encoder]
    target: list[str]
    classes: list[Any] | None = None
    center: list[float] | None = None
    scale: list[float] | None = None

    @property
    def names(self) -> list[str]:
        """What the inputs are called."""
        return [name for one in self.columns for name in one.names]

    @property
    def wanted(self) -> str:
        """What rows must have, in words."""
        return f"columns {listed(self.columns)}: a CSV or Parquet file, a data frame or a list of dicts"

    def inputs(self, columns: Columns) -> Floats:
        """Return the inputs ``(n, d)`` of columns, of which others than these do not count."""
        for one in self.columns:
            if one.name not in columns:
                raise InputError(
                    f"column {one.name!r} is missing; this model takes {self.wanted}; add it, empty if unknown"
                )
        return np.concatenate([one.encode(columns[one.name]) for one in self.columns], axis=1)

    def strange(self, columns: Columns) -> list[str]:
        """Return what cells hold that cannot be read or was never seen, in words."""
        return [told for one in self.columns if (told := _strange(one, columns[one.name]))]

    def in_units(self, outputs: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return outputs ``(n, C)`` of a learner in the units of the target."""
        return outputs if self.scale is None else outputs * np.array(self.scale) + np.array(self.center)

    def record(self) -> dict[str, Any]:
        """Return this as JSON."""
        kinds = [{"kind": one.kind, **asdict(one)} for one in self.columns]  # type: ignore[call-overload]
        for one in kinds:
            for key, old in (("order", ""), ("seen", None)):
                if key in one and one[key] == old:  # as files were before there were others
                    del one[key]
        return asdict(self) | {"columns": kinds}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Encoding":
        """Return the encoding of a record."""
        made = [KINDS[one["kind"]](**{key: one[key] for key in one if key != "kind"}) for one in record["columns"]]
        return cls(**{**record, "columns": made})


def listed(encoders: Sequence[Encoder]) -> str:
    """Return the columns, and the number of texts in each that holds texts."""
    shown = [f"{one.name} ({_texts(one.values)})" if isinstance(one, Category) else one.name for one in encoders]
    more = [f"and {len(shown) - MOST_LISTED} more"] if len(shown) > MOST_LISTED else []
    return ", ".join([*shown[:MOST_LISTED], *more])


def _texts(values: Sequence[str]) -> str:
    """Return how many texts there are; a missing cell counts beside them."""
    return counted(len(values) - ("" in values), "text") + (" or missing" if "" in values else "")


def _strange(encoder: Encoder, column: npt.NDArray[Any]) -> str | None:
    if column.dtype.kind in "biufM":
        return None
    found = cells.texts(column)
    if isinstance(encoder, Category):
        odd, what = np.array([not encoder.others and cell not in encoder.values for cell in found]), "an unknown text"
    else:
        date = isinstance(encoder, Date)
        if isinstance(encoder, Date):
            values = date_cells(column, encoder.epoch, encoder.order)
        else:
            values = number_cells(column, encoder.style)  # type: ignore[attr-defined]
        odd, what = np.isnan(values) & (found != ""), "no date" if date else "no number"
    return f"{encoder.name} holds {brief(found[int(np.argmax(odd))])}, {what}" if odd.any() else None


def number_cells(column: npt.NDArray[Any], style: str = cells.PLAIN) -> Floats:
    """Return the numbers of a column, nan where one is missing."""
    if column.dtype.kind in "biuf":
        values = column.astype(np.float64)
        return np.where(np.isfinite(values), values, np.nan)
    return cells.numbers(cells.texts(column), style)


def date_cells(column: npt.NDArray[Any], epoch: float = 0.0, order: str = "") -> Floats:
    """Return the seconds since 1970 of a column, nan where one is missing.

    ``epoch`` is what numbers are counted in, ``order`` that of day and month.
    """
    if column.dtype.kind == "M":
        values = column.astype("datetime64[ms]").astype(np.float64) / 1000
        return np.where(np.isnat(column), np.nan, values)
    return number_cells(column) * epoch if epoch else cells.seconds(cells.texts(column), order)


def date_order(name: str, found: Texts) -> str | None:
    """Return the order of day and month in a column of dates; None where it has no dates. Refuse to guess."""
    orders = cells.orders_of(found)
    if len(orders) < 2:
        return orders[0] if orders else None
    odd = next(cell for cell in found.tolist() if len({cells.seconds(np.array([cell]), one)[0] for one in orders}) == 2)
    raise InputError(
        f"column {name!r} holds {brief(odd)}; all its dates can be read as {' and as '.join(orders)}; write them as "
        "2024-05-31, or leave the column out"
    )


def chosen(name: str, column: npt.NDArray[Any], commas: bool = False, wanted: bool = False) -> Choice:
    """Return what a column becomes.

    ``wanted`` columns are kept where others would be left out.
    """
    if column.dtype.kind == "M":
        return as_date(name, date_cells(column), ["days"])
    if column.dtype.kind in "biuf":
        return _number(name, number_cells(column), cells.PLAIN, wanted, 0)
    found = cells.texts(column)
    style = cells.style_of(found, commas)
    if style is not None:
        values = cells.numbers(found, style)
        return _number(name, values, style, wanted, int((np.isnan(values) & (found != "")).sum()))
    order = date_order(name, found)
    if order is not None:
        return as_date(name, cells.seconds(found, order), ["days"], order=order)
    made, told = _category(name, found, wanted)
    return made, f"{told} ({name} looks like dates: write them as 2024-05-31)" if cells.look_like_dates(found) else told


def _number(name: str, values: Floats, style: str, wanted: bool, odd: int) -> Choice:
    there = values[~np.isnan(values)]
    if not there.size:
        return None, f"{name} is left out: all its cells are missing"
    gone = 1 - there.size / len(values)
    if not gone and (there == there[0]).all():
        return None, f"{name} is left out: it is {there[0]:g} everywhere"
    if not wanted and COUNTER.fullmatch(name.lower()) and not gone and (np.diff(values) == 1).all():
        return None, f"{name} is left out: it counts the rows"
    made = Number(name, float(np.median(there)), gone > MANY, style, [float(there.min()), float(there.max())])
    cause = f", {odd} of them no numbers" if odd else ""
    also = ", and a column says which" if made.told else ""
    told = (
        f"{name} has {len(values) - there.size} missing values{cause}: filled in by its median{also}" if gone else None
    )
    return made, told


def _category(name: str, found: Texts, wanted: bool) -> Choice:
    values, counts = np.unique(found, return_counts=True)
    many = _texts(values.tolist())
    if (longest := max(map(len, values.tolist()))) > MOST_LETTERS:
        return None, f"{name} is left out: it holds texts of {longest} letters and more"
    if len(values) == 1:
        what = repr(str(values[0])) if values[0] else "missing"
        return None, f"{name} is left out: it is {what} everywhere"
    if len(values) <= MOST_TEXTS:
        told = f"{name} is one of {many}: a column of 0 and 1{' for each' if len(values) > 2 else ''}"
        return Category(name, values.tolist()), told
    if not wanted and len(values) > len(found) / 2:
        return None, f"{name} is left out: {len(values)} different texts in {len(found)} rows"
    often = np.argsort(-counts, kind="stable")[: MOST_TEXTS - 1]
    kept = sorted(values[often].tolist())
    told = f"{name} has {many}: a column of 0 and 1 for the {len(kept)} most frequent, one for the others"
    return Category(name, kept, others=True), told


def as_date(
    name: str, values: Floats, parts: list[str], epoch: float = 0.0, turns: float = 0.5, order: str = ""
) -> Choice:
    """Return a column of seconds as dates, with the periods that its values go through so many times."""
    there = values[~np.isnan(values)]
    if not there.size or (there == there[0]).all():
        return None, f"{name} is left out: it is {'missing' if not there.size else 'the same'} everywhere"
    span = float(np.ptp(there))
    if span < DAY and (there < DAY).all():  # times of a day, without one
        parts = []
    parts = parts + [
        part for part, long in PERIODS.items()
        if span > turns * long and len(np.unique(there % long)) > 2
    ]  # fmt: skip
    if not parts:
        return None, None
    gone = len(values) - len(there)
    read = f", read as {order}" if order else ""
    made = ", ".join(f"time of {part}" if part in PERIODS else f"{part} since 1970" for part in parts)
    told = f"{name} is a date{read}: its {made} became inputs" + (f", {gone} missing filled in" if gone else "")
    return Date(name, float(np.median(there)), parts, epoch, order), told


def epoch_of(values: Floats) -> float:
    """Return what numbers that may be times are counted in, in seconds; 0 where they are no times since 1970."""
    middle = float(np.nanmedian(values))
    return next((unit for unit in (1.0, 1e-3) if 2e8 < middle * unit < 5e9), 0.0)


def refuse_empty(encoders: list[Encoder], names: list[str], told: list[str]) -> None:
    """Refuse a table that has no inputs."""
    if not encoders:
        why = f" ({'; '.join(told[:3])})" if told else ""
        raise InputError(
            f"columns {', '.join(names)} leave no feature{why}; a table needs one at least; drop fewer, or add others"
        )
