"""Tables of one's own: a CSV file, a Parquet file or a data frame, as inputs and targets of a network."""

import logging
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.data import cells, encoding, reading
from omkl.data.encoding import Encoder, Encoding
from omkl.data.reading import Columns, Read, brief
from omkl.display import counted
from omkl.errors import InputError, unknown
from omkl.losses import MOST_CLASSES, Logistic, Loss, SmoothedHinge, Softmax, Squared
from omkl.notes import note

Floats: TypeAlias = npt.NDArray[np.float64]
Names: TypeAlias = str | list[str]

MOST_LABELS = 50  # of texts: more are names rather than classes
FEW = 10  # whole values of a target, that may be classes as well
MOST_TOLD = 8  # notes in a line
TURNS = 10  # of a period that orders the rows, for it to be an input: few do not come back in time to learn them
FIRST = 100  # rows that tell the units of a target

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Roles:
    """What the columns of a table are for.

    Attributes
    ----------
    target
        Which column of a table to predict; several as a list. A column of two values or of texts is learned as classes,
        a column of numbers as a number; ``loss`` changes that.
    node
        Which column says which node sees a row. Without it the rows are dealt out to the nodes. It is no input, unless
        ``use`` names it; name it if nodes differ from each other.
    time
        Which column holds the time of a row. The rows are then learned in the order of time and not shuffled. Time is
        no input, unless ``use`` names it.
    use
        Which columns are inputs; a list. Without it all are that are nothing else and say something.
    drop
        Which columns are not used; a list.
    """

    target: Names | None = None
    node: str | None = None
    time: str | None = None
    use: Names | None = None
    drop: Names | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Rows with what their columns mean; ``X, y, node = table`` gives the arrays alone.

    Attributes
    ----------
    X
        Inputs ``(n, d)``.
    y
        Labels ``(n,)``, or ``(n, C)`` of several columns: numbers as they are, texts as the numbers of their classes.
    node
        The node of each row ``(n,)``, where a column says it.
    encoding
        What the inputs were made of, and what the labels mean.
    name
        What the table is called.
    notes
        What was left out or filled in, a sentence each.
    is_ordered
        Whether rows are in the order of time.
    """

    X: Floats
    y: Floats
    node: npt.NDArray[Any] | None = None
    encoding: Encoding | None = None
    name: str = "table"
    notes: tuple[str, ...] = ()
    is_ordered: bool = False

    def __iter__(self) -> Iterator[Any]:
        return iter((self.X, self.y, self.node))

    def __getitem__(self, part: Any) -> Any:
        return (self.X, self.y, self.node)[part]

    def __repr__(self) -> str:
        target = ", ".join(self.encoding.target) if self.encoding else "y"
        return f"Table({self.name}, {self.X.shape[0]:,} rows of {self.X.shape[1]:,} inputs, target {target})"

    @property
    def names(self) -> tuple[str, ...] | None:
        """What the nodes are called, in their order; None where no column says it."""
        return None if self.node is None else tuple(node_names(self.node)[0])

    @property
    def loss(self) -> Loss:
        """The loss that suits the target."""
        classes = self.encoding.classes if self.encoding else None
        if classes is None:
            return Squared(outputs=1 if self.y.ndim == 1 else self.y.shape[1])
        return Logistic() if len(classes) == 2 else Softmax(classes=len(classes))

    @property
    def unit(self) -> float:
        """What a loss in the learner's units is multiplied by: the square of the scale of one target, else 1."""
        scale = self.encoding.scale if self.encoding else None
        return float(scale[0] ** 2) if scale and len(scale) == 1 else 1.0

    def complete(self, method: Any) -> Any:
        """Return a method whose softmax loss knows how many classes there are."""
        classes = self.encoding.classes if self.encoding else None
        open_ended = isinstance(method.objective, Softmax) and method.objective.classes is None and classes
        return method.replace(loss=Softmax(classes=len(classes or ()))) if open_ended else method

    def learned_by(self, loss: Loss, scaled: bool = False) -> "Table":
        """Return the table with labels as a loss takes them; numbers are ``scaled`` by some of them, if asked for."""
        if self.encoding is None:
            return self
        target, classes = self.encoding.target[0], self.encoding.classes
        if isinstance(loss, Logistic | SmoothedHinge):
            if classes is None or len(classes) != 2:
                many = "is a number" if classes is None else f"has {len(classes)} values"
                raise InputError(f"column {target!r} {many}; the {loss.name} loss is for two; take softmax or squared")
            return replace(self, y=2 * self._numbered(classes) - 1)
        if isinstance(loss, Softmax):
            classes = classes or self._values()
            labels = replace(self.encoding, classes=classes)
            return replace(self, y=self._numbered(classes), encoding=labels)
        if classes is not None and isinstance(classes[0], str):
            raise InputError(f"column {target!r} is of texts; the {loss.name} loss is for numbers; leave loss out")
        return self._in_units() if scaled else replace(self, encoding=replace(self.encoding, classes=None))

    def _in_units(self) -> "Table":
        """Return the table with targets of mean 0 and deviation 1 over some rows: the first, if time orders them."""
        assert self.encoding
        y = self.y.reshape(len(self.y), -1)
        some = y[:FIRST] if self.is_ordered else y[:: max(1, len(y) // FIRST)]
        center, scale = some.mean(axis=0), some.std(axis=0)
        scale = np.where(scale > 0, scale, np.where(y.std(axis=0) > 0, y.std(axis=0), 1.0))
        units = replace(self.encoding, classes=None, center=center.tolist(), scale=scale.tolist())
        return replace(self, y=((y - center) / scale).reshape(self.y.shape), encoding=units)

    def _values(self) -> list[float]:
        """Return the values of a target of numbers that are classes."""
        found = np.unique(self.y)
        if self.y.ndim > 1 or len(found) > MOST_CLASSES or (found != np.floor(found)).any():
            raise InputError("softmax loss takes whole labels; this target has others; leave loss out")
        return [int(value) for value in found]

    def _numbered(self, classes: Sequence[Any]) -> Floats:
        """Return labels as numbers of classes."""
        return self.y if isinstance(classes[0], str) else np.searchsorted(classes, self.y).astype(np.float64)


def read_table(
    source: Any,
    target: str | Sequence[str],
    node: str | None = None,
    drop: str | Sequence[str] = (),
    time: str | None = None,
    use: str | Sequence[str] = (),
) -> Table:
    """Return the table of a CSV file, a Parquet file or a data frame.

    What was left out or filled in is in its ``notes``, and logged in one line.

    Parameters
    ----------
    source
        Path ending in ``.csv``, ``.tsv``, ``.csv.gz`` or ``.parquet``, or a data frame of pandas or its like.
    target, node, drop, time, use
        The columns, as ``omkl.Experiment`` has them.
    """
    found = reading.read(source)
    known = found.columns
    targets = _several("target", target, known)
    if not targets:
        raise InputError("target is empty; a table has a label; name its column, or several")
    dropped, used = _several("drop", drop, known), _several("use", use, known)
    roles = [*targets, *([node] if node is not None else []), *([time] if time is not None else [])]
    _require((*roles, *dropped, *used), found)
    for name in targets:
        if [*roles, *dropped, *used].count(name) > 1:
            raise InputError(f"column {name!r} is the target and more; it can be one thing only; name another")
    rows, notes = _rows(found, targets, node, time)
    found = found.of(rows)
    columns = found.columns
    wanted = list(dict.fromkeys(used)) or [name for name in columns if name not in {*targets, *dropped, node, time}]
    encoders, told = _encoders(columns, found, [name for name in wanted if name != time], bool(used))
    if time is not None and time in wanted:
        encoders += _time_of(time, columns[time])
    encoding.refuse_empty(encoders, list(known), told)
    y, classes, also = _labels(targets, isinstance(target, str) and len(targets) == 1, found)
    owner = None if node is None else cells.texts(columns[node])
    unequal = () if owner is None else rows_left_out(*node_names(owner))
    table = Table(
        Encoding(encoders, targets).inputs(columns), y, owner,
        Encoding(encoders, targets, classes), found.name, (*found.notes, *notes, *unequal, *told, *also),
        time is not None,
    )  # fmt: skip
    about = [f"inputs: {encoding.listed(encoders)}"]
    if node is not None and node not in wanted:
        about.append(f"{node} tells nodes apart and is no input (if nodes differ, list it in use too)")
    if time is not None and time not in wanted:
        about.append(f"{time} orders the rows and is no input (list it in use to make it one)")
    more = [f"and {len(table.notes) - MOST_TOLD} more"] if len(table.notes) > MOST_TOLD else []
    level = logging.INFO if len(about) == 1 and not table.notes else logging.WARNING
    note(logger, f"{table.name}: {'; '.join([*about, *table.notes[:MOST_TOLD], *more])}", level)
    return table


def opened(data: Any, roles: Roles) -> Any:
    """Return the table of a file or a data frame whose target is named; all else as it is."""
    said = {one.name: getattr(roles, one.name) for one in fields(Roles)}
    given = {name: value for name, value in said.items() if value is not None}
    if not (reading.is_file(data) or reading.is_frame(data)):
        if given:
            told = ", ".join(f"{name}={value!r}" for name, value in given.items())
            called = f"the data set {data!r}" if isinstance(data, str) else "data without names of columns"
            raise InputError(
                f"{told} for {called}; it is for a CSV or Parquet file or a data frame; leave it out, or give the path "
                "of a file, as rows.csv"
            )
        return data
    if "target" not in given:
        what, names = data if reading.is_file(data) else "a data frame", list(reading.read(data).columns)
        more = [f"and {len(names) - MOST_TOLD} more"] if len(names) > MOST_TOLD else []
        raise InputError(
            f"{what} needs the column to predict, one of {', '.join([*names[:MOST_TOLD], *more])}; name it: "
            f'target="{names[-1]}" (--target {shlex.quote(names[-1])})',
            "target",
        )
    return read_table(data, **given)


def read_inputs(source: Any, labels: Sequence[str] = (), drop: Sequence[str] = ()) -> tuple[Floats, Floats, list[str]]:
    """Return the features ``(n, d)`` of a table, its labels ``(n, C)``, and the names of the features.

    Nodes take numbers, so that all cells must be numbers here. A column that is called ``y`` is no feature.
    """
    found = reading.read(source)
    _require((*labels, *drop), found)
    names = [name for name in found.columns if name not in (*labels, *drop, "y")]
    if not names:
        raise InputError(f"columns {', '.join(found.columns)} leave no feature; a table needs one at least; drop fewer")
    X = np.stack([_strict(found, name, "drop= it, or encode it") for name in names], axis=1)
    y = [_strict(found, name, "encode the labels, or drop these rows") for name in labels]
    return X, np.stack(y, axis=1) if y else np.empty((len(X), 0)), names


def _require(names: Iterable[str], found: Read) -> None:
    """Refuse names of which there is no column."""
    for name in names:
        if name not in found.columns:
            also = f"; {found.name} has no header, so its columns are counted: {len(found.columns)} is the last"
            if found.has_header:
                is_row = found.lines is not None and any(map(cells.is_number, found.columns))
                also = f"; if {found.name} has no header, add a first line of names" if is_row else ""
            raise InputError(unknown("column", name, found.columns, list) + also)


def node_names(node: npt.NDArray[Any]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Return the names of nodes in their order, numbers by their size, and which of them each row is of."""
    names, which = np.unique(np.asarray(node).astype(str), return_inverse=True)
    values = cells.numbers(names)
    order = np.argsort(values, kind="stable") if not np.isnan(values).any() else np.arange(len(names))
    return names[order].tolist(), np.argsort(order)[which]


def rows_left_out(names: Sequence[str], which: npt.NDArray[np.int64]) -> tuple[str, ...]:
    """Return what is to be said of rows that no round is left for, as every node learns one in each."""
    counts = np.bincount(which)
    kept = int(counts.min()) * len(counts)
    if kept == len(which):
        return ()
    few = names[int(counts.argmin())]
    sizes = np.sort(counts)
    most = sizes * np.arange(len(sizes), 0, -1)  # rows that are learned without the nodes that have fewer
    gone = int(most.argmax())
    nodes, fewer = counted(gone, "node"), len(which) - most[gone]
    told = f" (without the {nodes} with the fewest, {fewer:,} would be)" if gone else ""
    return (
        f"every node learns one row a round, and {few} has the fewest rows, {counts.min():,}: {len(which) - kept:,} of "
        f"{len(which):,} rows, the last ones of other nodes, are left out{told}",
    )


def _several(role: str, names: str | Sequence[str] | None, known: Columns) -> list[str]:
    """Return names as a list; ``a,b`` is two of them unless there is such a column."""
    if names is None:
        return []
    if not isinstance(names, str):
        return [name for each in names for name in _several(role, str(each), known)]
    return [names] if names in known or "," not in names else [name.strip() for name in names.split(",")]


def _rows(
    found: Read, targets: Sequence[str], node: str | None, time: str | None
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the rows that have a target, a node and a time, in the order of time, and what is left out."""
    known, notes = found.columns, []
    rows = np.arange(len(next(iter(known.values()))))
    there = {name: _is_label(known[name], found.has_decimal_commas) for name in targets}
    if node is not None:
        there[node] = ~_is_missing(known[node])
    moments = None
    if time is not None:
        moments, _, order = _seconds(time, known[time])
        notes += [f"{time} is read as {order}"] if order else []
        odd = np.isnan(moments) & ~_is_missing(known[time])
        if odd.mean() > 1 - cells.COMMON:
            bad = known[time][int(np.argmax(odd))]
            raise InputError(
                f"column {time!r} holds {brief(bad)}; a time is a number or written as 2024-05-31 13:30; mend it, or "
                "sort the rows and pass shuffle=None (--no-shuffle)"
            )
        there[time] = ~np.isnan(moments)
    for name, has in there.items():
        if not has.all():
            notes.append(f"{(~has).sum():,} of {len(has):,} rows are left out for lack of {name}")
    kept = rows[np.logical_and.reduce(list(there.values()))]
    if not len(kept):
        raise InputError(f"{found.name} has no row with {', '.join(there)}; a table needs one at least; check the file")
    return (kept if moments is None else kept[np.argsort(moments[kept], kind="stable")]), notes


def _encoders(columns: Columns, found: Read, names: Sequence[str], wanted: bool) -> tuple[list[Encoder], list[str]]:
    made = [encoding.chosen(name, columns[name], found.has_decimal_commas, wanted) for name in names]
    encoders: list[Encoder] = [one for one, _ in made if one is not None]
    return encoders, [told for _, told in made if told]


def _is_missing(column: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which cells are missing."""
    if column.dtype.kind == "M":
        return np.asarray(np.isnat(column))
    return np.asarray(np.isnan(column) if column.dtype.kind == "f" else cells.texts(column) == "")


def _is_label(column: npt.NDArray[Any], has_decimal_commas: bool) -> npt.NDArray[np.bool_]:
    """Return which cells of a target are there, and numbers if most of them are."""
    if column.dtype.kind in "biufM":
        return ~_is_missing(column) & (np.isfinite(column) if column.dtype.kind == "f" else True)
    given = cells.texts(column)
    style = cells.style_of(given, has_decimal_commas)
    return given != "" if style is None else ~np.isnan(cells.numbers(given, style))


def _seconds(name: str, column: npt.NDArray[Any]) -> tuple[Floats, float, str]:
    """Return times as seconds since 1970, what the cells are counted in if they are numbers, and their order if dates.

    Other numbers are returned as they are.
    """
    order = "" if column.dtype.kind in "biufM" else encoding.date_order(name, cells.texts(column)) or ""
    values = encoding.date_cells(column, order=order)
    if np.isfinite(values).any():
        return values, 0.0, order
    values = encoding.number_cells(column)
    epoch = encoding.epoch_of(values) if np.isfinite(values).any() else 0.0
    return values * (epoch or 1.0), epoch, order


def _time_of(name: str, column: npt.NDArray[Any]) -> list[Encoder]:
    """Return where a row is in a day, a week and a year, of which there are many; all else would be ever new."""
    values, epoch, order = _seconds(name, column)
    if column.dtype.kind in "biuf" and not epoch:
        return []  # a number that orders the rows, and no date
    made, _ = encoding.as_date(name, values, [], epoch, TURNS, order)
    return [] if made is None else [made]


def _labels(targets: Sequence[str], is_one: bool, found: Read) -> tuple[Floats, list[Any] | None, list[str]]:
    """Return the labels, the classes if they are some, and what is to be said of them."""
    if not is_one:
        return np.stack([_strict(found, name) for name in targets], axis=1), None, []
    (name,) = targets
    column = found.columns[name]
    style = (
        cells.PLAIN if column.dtype.kind in "biuf" else cells.style_of(cells.texts(column), found.has_decimal_commas)
    )
    if style is None:
        return _classes(name, cells.texts(column))
    values = _strict(found, name)
    different = np.unique(values)
    if len(different) == 1:
        _refuse_one(name, f"{different[0]:g}", len(values))
    if len(different) == 2:
        return values, [int(value) if value == int(value) else float(value) for value in different], []
    whole = len(different) <= FEW and (different == np.floor(different)).all()
    shown = ", ".join(f"{value:g}" for value in different)
    return values, None, [f"{name} is learned as a number; if {shown} are classes, add loss softmax"] if whole else []


def _classes(name: str, found: cells.Texts) -> tuple[Floats, list[Any], list[str]]:
    classes, which = np.unique(found, return_inverse=True)
    if len(classes) == 1:
        _refuse_one(name, repr(str(classes[0])), len(found))
    if len(classes) > MOST_LABELS or (len(classes) > 2 and len(classes) == len(found)):
        raise InputError(
            f"column {name!r} holds {len(classes)} different texts in {len(found)} rows, as {brief(classes[0])}; a "
            f"target has {MOST_LABELS} classes at most, or is a number; name another, or group them"
        )
    return which.astype(np.float64), classes.tolist(), []


def _refuse_one(name: str, value: str, rows: int) -> None:
    raise InputError(
        f"column {name!r} is {value} in all {rows} rows that have one; there is nothing to learn; name another target, "
        "or add rows of other values"
    )


def _strict(found: Read, name: str, remedy: str = "mend the cell, or drop these rows") -> Floats:
    """Return a column of which every cell is a number."""
    column = found.columns[name]
    if column.dtype.kind in "biuf":
        values = encoding.number_cells(column)
    elif column.dtype.kind == "M":
        values = np.full(len(column), np.nan)
    else:
        given = cells.texts(column)
        values = cells.numbers(given, cells.style_of(given, found.has_decimal_commas) or cells.PLAIN)
    if np.isnan(values).any():
        row = int(np.argmax(np.isnan(values)))
        place = f"column {name!r}, {found.place(row)}"
        raise InputError(f"{place} holds {brief(column[row])}; it must be a number; {remedy}")
    return values
