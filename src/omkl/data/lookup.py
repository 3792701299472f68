"""Data sets by name: a local copy, or one fetched from OpenML.

A set is looked for in its folder of ``$OMKL_DATA``, then in the user's cache, then in an installed package that carries
it; failing that it is fetched into the cache. Every copy is checked before use.
"""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omkl.data import files
from omkl.data.files import Floats, Raw
from omkl.data.sets import DATA_SETS, DataSet
from omkl.errors import InputError, MissingExtraError, pick
from omkl.losses import Loss
from omkl.topology import Graph


class Data(NamedTuple):
    """A table ``X (n, d)``, its labels ``y (n,)`` and the loss that suits them.

    Where rows belong to nodes it is a stream, ``X (T, J, d)`` and ``y (T, J)``, with the graph of the nodes.
    """

    X: Floats
    y: Floats
    loss: Loss | str
    graph: Graph | None = None


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
    nodes: int | None = None


class _Copy(NamedTuple):
    place: str
    read: Callable[[], Data]
    check: Callable[[], object]
    """Refuses a wrong copy; files that are the right ones need not be read for that."""


def load(name: str) -> Data:
    """Return a data set by name; case, hyphen and underscore make no difference.

    A set that is not on this machine is fetched from OpenML once and kept.
    """
    chosen = known(name)
    copy = _find(chosen)
    if copy:
        return _checked(chosen, copy.place, copy.read())
    data = _checked(chosen, f"OpenML {chosen.openml}", _fetched(chosen))
    try:
        files.store(_cached(chosen), data.X, data.y)
    except OSError as error:
        warnings.warn(f"{chosen.name} was fetched but cannot be kept ({error}); set XDG_CACHE_HOME", stacklevel=2)
    return data


def status(name: str) -> Status:
    """Return where a data set is and whether that copy is right, without fetching it."""
    chosen = known(name)
    copy = _find(chosen)
    remedy = "" if copy else _remedy(chosen)
    if copy:
        try:
            copy.check()
        except (InputError, OSError) as error:
            remedy = str(error)
    about = (chosen.name, chosen.task, chosen.n, chosen.d, chosen.license, chosen.source)
    checksums = {file.name: file.sha256 for file in chosen.files}
    return Status(*about, copy.place if copy else None, not remedy, remedy, checksums, chosen.nodes)


def inventory() -> list[Status]:
    """Return the status of every data set."""
    return [status(name) for name in DATA_SETS]


def known(name: str) -> DataSet:
    """Return what is known of a data set; case, hyphen and underscore make no difference."""
    return pick("data set", name.lower().replace("-", "_"), DATA_SETS)


def _find(chosen: DataSet) -> _Copy | None:
    root = files.local_folder()
    if root and any((root / chosen.folder / file.name).exists() for file in chosen.files):
        contents = partial(_contents, chosen, root / chosen.folder)
        return _Copy(str(root / chosen.folder), lambda: _from_files(chosen, contents()), contents)
    if _cached(chosen).exists():
        return _whole(chosen, str(_cached(chosen)), lambda: Data(*files.restore(_cached(chosen)), chosen.loss))
    bundle = chosen.bundle
    folder = files.package_folder(bundle.package) if bundle else None
    if bundle and folder and (folder / bundle.path).exists():
        read = lambda: _prepared(chosen, bundle.read(folder / bundle.path))  # noqa: E731
        return _whole(chosen, f"package {bundle.package}", read)
    return None


def _whole(chosen: DataSet, place: str, read: Callable[[], Data]) -> _Copy:
    return _Copy(place, read, lambda: _checked(chosen, place, read()))


def _cached(chosen: DataSet) -> Path:
    return files.cache_folder() / f"{chosen.name}.npz"


def _contents(chosen: DataSet, folder: Path) -> list[bytes]:
    return [file.read(folder) for file in chosen.files]


def _from_files(chosen: DataSet, contents: list[bytes]) -> Data:
    assert chosen.read
    data = _prepared(chosen, chosen.read(contents))
    return data._replace(graph=chosen.graph(contents)) if chosen.graph else data


def _prepared(chosen: DataSet, raw: Raw) -> Data:
    return Data(*chosen.prepare(raw), chosen.loss)


def _fetched(chosen: DataSet) -> Data:
    if chosen.openml is None:
        if chosen.bundle:
            raise MissingExtraError(chosen.bundle.package, chosen.bundle.extra)
        raise InputError(f"{chosen.name} is not here, and nowhere to be fetched from; {_remedy(chosen)}")
    if chosen.bundle and not files.can_fetch():
        raise MissingExtraError(chosen.bundle.package, chosen.bundle.extra)
    try:
        return _prepared(chosen, files.fetch(chosen.openml))
    except (OSError, ValueError) as error:
        raise InputError(f"{chosen.name} is not here and OpenML failed ({error}); {_remedy(chosen)}") from error


def _checked(chosen: DataSet, place: str, data: Data) -> Data:
    found = (data.y.size, data.X.shape[-1], int(np.sum(data.y > 0)))
    expected = (chosen.n, chosen.d, chosen.positives)
    if found != expected:
        raise InputError(
            f"{chosen.name} from {place} has n, d, positives {found}; they must be {expected}; {_remedy(chosen)}"
        )
    return data


def _remedy(chosen: DataSet) -> str:
    ways = (
        f"put {', '.join(file.name for file in chosen.files)} in $OMKL_DATA/{chosen.folder}/" if chosen.files else "",
        f"pip install 'omkl[{chosen.bundle.extra}]'" if chosen.bundle else "",
        f"load it once with a network and omkl[sklearn] (OpenML {chosen.openml})" if chosen.openml else "",
    )
    return ", or ".join(filter(None, ways))
