"""Files of data: where they lie, whether they are the right ones, and how OpenML's copies are kept."""

import hashlib
import importlib.util
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl import storage
from omkl.errors import InputError, MissingExtraError

Floats: TypeAlias = npt.NDArray[np.float32]


class Raw(NamedTuple):
    """A table ``(n, d)`` and its labels ``(n,)`` as the source codes them."""

    table: npt.NDArray[np.number]
    labels: npt.NDArray[np.number]


@dataclass(frozen=True)
class File:
    """A file known by its digest."""

    name: str
    size: int
    sha256: str

    def verify(self, content: bytes, place: Path) -> bytes:
        """Return the content, or refuse it where it is not this file's."""
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise InputError(
                f"{place} has sha256 {found} ({len(content)} bytes); {self.name} must have sha256 {self.sha256} "
                f"({self.size} bytes); replace the file, or remove it to use another copy"
            )
        return content

    def read(self, folder: Path) -> bytes:
        """Return the verified content of this file in a folder."""
        path = folder / self.name
        if not path.is_file():
            raise InputError(
                f"{folder} lacks {self.name}; a data set needs all its files; add it, or remove the others"
            )
        return self.verify(path.read_bytes(), path)


def local_folder() -> Path | None:
    """Return the folder that ``$OMKL_DATA`` names, if it names one."""
    folder = os.environ.get("OMKL_DATA")
    return Path(folder) if folder else None


def cache_folder() -> Path:
    """Return the user's cache for data that was fetched."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "omkl"


def package_folder(package: str) -> Path | None:
    """Return where a package is installed, without importing it: importing river takes seconds."""
    spec = importlib.util.find_spec(package)
    return Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


def read_member(archive: Path, file: File) -> bytes:
    """Return the verified content of one member of a zip archive."""
    with zipfile.ZipFile(archive) as members:
        return file.verify(members.read(file.name), archive / file.name)


def store(path: Path, X: Floats, y: Floats) -> None:
    """Keep arrays in the cache, with their digest; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with storage.replacing(path) as file:
        np.savez_compressed(file, X=X, y=y, sha256=np.array(digest(X, y)))


def restore(path: Path) -> tuple[Floats, Floats]:
    """Return arrays kept by ``store``."""
    with storage.refusing(f"{path} cannot be read", "remove it to fetch the data again", OSError):
        kept = storage.load(path).arrays
        X, y, expected = kept["X"], kept["y"], str(kept["sha256"])
    if (found := digest(X, y)) != expected:
        raise InputError(f"{path} holds arrays of sha256 {found}, not {expected}; remove it to fetch the data again")
    return X, y


def can_fetch() -> bool:
    """Return whether what asks OpenML is installed."""
    return importlib.util.find_spec("sklearn") is not None


def fetch(openml: int) -> Raw:
    """Return an OpenML data set from the network."""
    try:
        from sklearn.datasets import fetch_openml
    except ImportError:
        raise MissingExtraError("scikit-learn", "sklearn") from None
    bunch = fetch_openml(data_id=openml, as_frame=False, parser="liac-arff", cache=False)
    return decode(bunch.data, bunch.target, bunch.feature_names, bunch.categories)


def decode(
    table: npt.NDArray[np.float64],
    target: npt.ArrayLike,
    names: list[str],
    categories: dict[str, list[str]],
) -> Raw:
    """Return an ARFF table with the numbers that its nominal columns stand for, in place of their positions."""
    table = np.array(table, dtype=np.float64)
    for j, name in enumerate(names):
        if name in categories:
            table[:, j] = np.array(categories[name], dtype=np.float64)[table[:, j].astype(int)]
    return Raw(table, np.asarray(target).astype(np.float64))


def digest(*arrays: Floats) -> str:
    """Return the sha256 of arrays: type, shape and content."""
    sha = hashlib.sha256()
    for array in arrays:
        sha.update(f"{array.dtype}{array.shape}".encode())
        sha.update(np.ascontiguousarray(array).data)
    return sha.hexdigest()
