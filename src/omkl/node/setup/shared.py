"""The inputs that a network shares before it begins: some rows of a table, or centers of clusters of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omkl import calibration, storage
from omkl.data import reading
from omkl.data.tables import read_inputs
from omkl.errors import InputError, whole
from omkl.landmarks import centers
from omkl.methods import recommended
from omkl.node import checks

NAMES = ("y", "label", "target", "class")  # of a column that is the label, unless another is named
NONE = "none"
ROWS = 500  # of which the recommended method takes as many
UNLIKE = 10.0  # times that the deviation of one column is another's; features see the larger one alone


class Shared(NamedTuple):
    """What a file of inputs holds."""

    rows: int
    of: int
    """Rows that the table has."""
    columns: list[str]
    labels: list[str]
    """Columns whose values are shared as labels."""
    without: list[str]
    """Columns of labels that are left out."""
    unlike: bool
    """Whether columns differ much in scale, or are far from zero."""


def write(
    table: Path,
    path: Path,
    *,
    rows: int = ROWS,
    labels: Sequence[str] = (),
    label: str | None = None,
    drop: Sequence[str] = (),
    by_centers: bool = False,
    seed: int = 0,
) -> Shared:
    """Return what is written of a table of inputs, for ``[calibration]``; an existing file is refused.

    Parameters
    ----------
    table
        A CSV or Parquet file, as ``omkl.data.read_table`` reads it.
    path
        The npz file to write.
    rows
        How many are taken, by lot, or how many centers are made.
    labels
        Columns of labels, to be shared too: columns of inputs are then weighed by what they say of these.
    label
        The column of the label, which is left out unless it is among ``labels``; "none" if there is none. Without it,
        a column is one that is called y, label, target or class; a table without any of them is refused.
    drop
        Columns that are neither.
    by_centers
        Share centers of clusters in place of rows, which are nobody's inputs.
    """
    if path.exists():
        raise InputError(f"{path} exists; nodes may share it already; remove it or choose another name")
    storage.require_folder(path)
    if by_centers and labels:
        raise InputError("centers and labels; a center has no label of its own; leave one of them out")
    without = _unshared(table, labels, label, drop)
    X, y, columns = read_inputs(table, labels, [*drop, *without])
    checks.calibrated(recommended(), X, len(columns), seed)
    count = whole("rows", rows)
    arrays = {"X": centers(X, count, seed) if by_centers else calibration.sample(X, count, seed)}
    if labels:
        taken = calibration.sample(y, count, seed)
        arrays["y"] = taken[:, 0] if len(labels) == 1 else taken
    storage.write(path, arrays)
    deviations, means = X.std(axis=0), np.abs(X.mean(axis=0))
    unlike = deviations.max() > UNLIKE * deviations.min() or (means > UNLIKE * deviations).any()
    return Shared(len(arrays["X"]), len(X), columns, list(labels), without, bool(unlike))


def _unshared(table: Path, labels: Sequence[str], label: str | None, drop: Sequence[str]) -> list[str]:
    """Return the columns of labels that nobody asked to share; refuse to guess whether the last one is such."""
    if label is not None:
        return [] if label in (NONE, *labels) else [label]
    columns = reading.read(table).columns
    named = [name for name in columns if name.lower() in NAMES and name not in labels]
    left = [name for name in columns if name not in drop]
    if not named and not labels and len(left) > 1:
        raise InputError(
            f"{table} has no column {', '.join(NAMES)}; a label is not shared unasked; write --label {left[-1]} if the "
            "last column is the label, or --label none if there is none"
        )
    return named
