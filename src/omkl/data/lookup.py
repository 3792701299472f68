"""Data sets by name: a local copy, or one fetched from OpenML.

A set is looked for in ``$OMKL_DATA/<name>/``, then in the user's cache, then in an installed package that carries it;
failing that it is fetched into the cache. Every copy is checked before use.
"""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omkl.data import files
from omkl.data.files import Floats
from omkl.data.sets import DATA_SETS, Arrays, DataSet
from omkl.errors import InputError, MissingExtraError, pick


class Data(NamedTuple):
    """A table ``X (n, d)``, its labels ``y (n,)`` and the name of the loss that suits them."""

    X: Floats
    y: Floats
    loss: str


class Status(NamedTuple):
    """Where a data set is found (``None``: not here), whether that copy is right, and what to do where it is not."""

    name: str
    task: str
    n: int
    d: int
    license: str
    source: str
    place: str | None
    verified: bool
    remedy: str
    checksums: dict[str, str]
    """The sha256 each file must have, by name."""


class _Copy(NamedTuple):
    place: str
    read: Callable[[], Arrays]


def load(name: str) -> Data:
    """Return a data set by name; case, hyphen and underscore make no difference.

    A set that is not on this machine is fetched from OpenML once and kept.
    """
    chosen = _chosen(name)
    copy = _find(chosen)
    if copy:
        return Data(*_checked(chosen, copy), chosen.loss)
    X, y = _checked(chosen, _Copy(f"OpenML {chosen.openml}", partial(_fetched, chosen)))
    try:
        files.store(_cached(chosen), X, y)
    except OSError as error:
        warnings.warn(f"{chosen.name} was fetched but cannot be kept ({error}); set XDG_CACHE_HOME", stacklevel=2)
    return Data(X, y, chosen.loss)


def status(name: str) -> Status:
    """Return where a data set is and whether that copy is right, without fetching it."""
    chosen = _chosen(name)
    copy = _find(chosen)
    remedy = "" if copy else _remedy(chosen)
    if copy:
        try:
            _checked(chosen, copy)
        except (InputError, OSError) as error:
            remedy = str(error)
    about = (chosen.name, chosen.task, chosen.n, chosen.d, chosen.license, chosen.source)
    checksums = {file.name: file.sha256 for file in chosen.files}
    return Status(*about, copy.place if copy else None, not remedy, remedy, checksums)


def inventory() -> list[Status]:
    """Return the status of every data set."""
    return [status(name) for name in DATA_SETS]


def _chosen(name: str) -> DataSet:
    return pick("data set", name.lower().replace("-", "_"), DATA_SETS)


def _find(chosen: DataSet) -> _Copy | None:
    root = files.local_folder()
    if root and any((root / chosen.name / file.name).exists() for file in chosen.files):
        return _Copy(str(root / chosen.name), partial(_from_files, chosen, root / chosen.name))
    if _cached(chosen).exists():
        return _Copy(str(_cached(chosen)), partial(files.restore, _cached(chosen)))
    bundle = chosen.bundle
    folder = files.package_folder(bundle.package) if bundle else None
    if bundle and folder and (folder / bundle.path).exists():
        return _Copy(f"package {bundle.package}", lambda: chosen.prepare(bundle.read(folder / bundle.path)))
    return None


def _cached(chosen: DataSet) -> Path:
    return files.cache_folder() / f"{chosen.name}.npz"


def _from_files(chosen: DataSet, folder: Path) -> Arrays:
    assert chosen.read
    return chosen.prepare(chosen.read([file.read(folder) for file in chosen.files]))


def _fetched(chosen: DataSet) -> Arrays:
    if chosen.openml is None:
        assert chosen.bundle
        raise MissingExtraError(chosen.bundle.package, chosen.bundle.extra)
    try:
        return chosen.prepare(files.fetch(chosen.openml))
    except (OSError, ValueError) as error:
        raise InputError(f"{chosen.name} is not here and OpenML failed ({error}); {_remedy(chosen)}") from error


def _checked(chosen: DataSet, copy: _Copy) -> Arrays:
    X, y = copy.read()
    found, expected = (*X.shape, int(np.sum(y == 1))), (chosen.n, chosen.d, chosen.positives)
    if found != expected:
        raise InputError(
            f"{chosen.name} from {copy.place} has n, d, positives {found}; they must be {expected}; {_remedy(chosen)}"
        )
    return X, y


def _remedy(chosen: DataSet) -> str:
    ways = (
        f"put {', '.join(file.name for file in chosen.files)} in $OMKL_DATA/{chosen.name}/" if chosen.files else "",
        f"pip install 'omkl[{chosen.bundle.extra}]'" if chosen.bundle else "",
        f"load it once with a network and omkl[sklearn] (OpenML {chosen.openml})" if chosen.openml else "",
    )
    return ", or ".join(filter(None, ways))
