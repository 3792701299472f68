"""Sweeps: many simulations, on the cores of this machine or on a Dask cluster, each recorded as it ends.

The folder of a sweep holds one small file a point, named by a digest of the point's settings and renamed into place
when it is whole. A recorded point never runs again, whatever ended the sweep before; the table is made of the records.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeAlias

from omkl.errors import extra
from omkl.experiment import Experiment
from omkl_lab.sweeps.averages import averaged
from omkl_lab.sweeps.points import (
    MEASURES,
    Point,
    Row,
    as_rows,
    fingerprint,
    point,
    recorded,
    unique,
    write,
    write_table,
)  # fmt: skip

with extra("sim", "jax"):
    from omkl_lab.sweeps.work import Slots, cluster_of, outcomes, processes

__all__ = ["MEASURES", "Point", "Progress", "Row", "averaged", "fingerprint", "point", "recorded", "sweep", "unique"]

Progress: TypeAlias = Callable[[int, int, int], None]
"""Called with the points done, the points to do, and how many of those done failed."""


def sweep(
    points: Iterable[Point | Experiment | Mapping[str, Any]],
    folder: str | Path,
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    retry: bool = False,
    progress: Progress | None = None,
) -> list[Row]:
    """Return one row for every point: its settings, what came of it, and the error where it failed.

    A point that fails is recorded and does not stop the rest. The rows are also written into the folder, as
    ``results.parquet``, or ``results.jsonl`` without pyarrow.

    Parameters
    ----------
    points
        An ``Experiment`` for each, or its attributes.
    folder
        Holds the records; points found there do not run again.
    jobs
        Processes on this machine, which share its cores; None is one a core.
    cluster
        Address of a Dask scheduler whose workers run the points instead. They need omkl, and named data sets.
    retry
        Run again the points that are recorded as failed.
    progress
        Called after each point.

    Examples
    --------
    >>> import omkl, tempfile
    >>> grid = [{"data": "banana", "nodes": 20, "method": omkl.Gossip(eta=eta)} for eta in (0.1, 1.0)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     small, large = sweep(grid, folder, jobs=1)
    >>> bool(large["final_loss"] < small["final_loss"])
    True
    """
    return swept(points, folder, lambda: cluster_of(cluster) if cluster else processes(jobs), retry, progress)


def swept(
    points: Iterable[Point | Experiment | Mapping[str, Any]],
    folder: str | Path,
    place: Callable[[], AbstractContextManager[Slots]],
    retry: bool = False,
    progress: Progress | None = None,
) -> list[Row]:
    """Return what ``sweep`` does, of points that run in slots which are opened where there is work to do."""
    every = unique(points)
    records, folder = recorded(every, folder), Path(folder)
    missing = [one for one in every if one.id not in records or (retry and records[one.id]["failure"])]
    failed = 0
    try:
        if missing:
            with place() as slots:
                for done, (one, outcome) in enumerate(outcomes(missing, slots), start=1):
                    records[one.id] = write(folder, one, outcome)
                    failed += outcome["failure"] is not None
                    for text in outcome["warnings"]:
                        warnings.warn(text, stacklevel=3)
                    if progress is not None:
                        progress(done, len(missing), failed)
    finally:
        rows = as_rows([one for one in every if one.id in records], records)
        if rows:
            write_table(folder, rows)
    return rows
