"""From the bytes of files to tables and labels, and from those to ``X`` and ``y``.

Files are known by their digests, so readers check nothing.
"""

import gzip
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.data.files import File, Floats, Raw, read_member
from omkl.errors import extra

Arrays: TypeAlias = tuple[Floats, Floats]
Prepare: TypeAlias = Callable[[Raw], Arrays]
Labels: TypeAlias = Callable[[npt.NDArray[np.number]], Floats]

DIGITS = File("digits.csv.gz", 57523, "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22")
BANANA = File("banana.all.txt", 140806, "5b24172636ce705522990516f15cd74e1080429ccdd9b371f3dd83f940273308")


def banana(contents: Sequence[bytes]) -> Raw:
    """Return LIBSVM text; both entries are on every line, so removing the indices leaves a plain table."""
    values = np.loadtxt(io.BytesIO(contents[0].replace(b" 1:", b" ").replace(b" 2:", b" ")))
    return Raw(values[:, 1:], values[:, 0])


def zipped_banana(archive: Path) -> Raw:
    """Return the copy inside river."""
    return banana([read_member(archive, BANANA)])


def credit_card(contents: Sequence[bytes]) -> Raw:
    """Return a csv with a header, the number of the row first and the label last."""
    values = csv(contents[0], skiprows=1)
    return Raw(values[:, 1:-1], values[:, -1])


def mnist(contents: Sequence[bytes]) -> Raw:
    """Return images and labels in the idx format, training and test."""
    images, labels, test_images, test_labels = (np.frombuffer(gzip.decompress(c), dtype=np.uint8) for c in contents)
    pixels = np.concatenate([images[16:], test_images[16:]])
    return Raw(pixels.reshape(-1, 784), np.concatenate([labels[8:], test_labels[8:]]))


def digits(contents: Sequence[bytes]) -> Raw:
    """Return a csv with the label last."""
    values = csv(contents[0])
    return Raw(values[:, :-1], values[:, -1])


def bundled_digits(path: Path) -> Raw:
    """Return the copy inside scikit-learn."""
    return digits([DIGITS.verify(path.read_bytes(), path)])


def room_occupancy(contents: Sequence[bytes]) -> Raw:
    """Return a csv with date and time first and the label last."""
    values = csv(contents[0], skiprows=1, usecols=range(2, 19))
    return Raw(values[:, :-1], values[:, -1])


def matlab(contents: Sequence[bytes]) -> Raw:
    """Return a MATLAB file of two arrays: X with a column per sample, and y."""
    with extra("sim", "scipy"):
        from scipy.io import loadmat
    told = loadmat(io.BytesIO(contents[0]))
    return Raw(told["X"].T, told["y"][:, 0])


def csv(content: bytes, **options: Any) -> npt.NDArray[np.float64]:
    """Return the numbers of a gzipped csv file."""
    return np.loadtxt(io.BytesIO(gzip.decompress(content)), delimiter=",", **options)


def scaled(largest: float, labels: Labels) -> Prepare:
    """Return what divides a table by its largest value."""
    return lambda raw: (raw.table.astype(np.float32) / np.float32(largest), labels(raw.labels))


def standardized(labels: Labels) -> Prepare:
    """Return what brings all columns to mean 0 and deviation 1."""
    return lambda raw: (units(raw.table), labels(raw.labels[..., None])[..., 0])


def units(table: npt.NDArray[np.number]) -> Floats:
    """Return columns of mean 0 and deviation 1."""
    axes = tuple(range(table.ndim - 1))
    standard: Floats = ((table - table.mean(axis=axes)) / table.std(axis=axes)).astype(np.float32)
    return standard


def given(labels: npt.NDArray[np.number]) -> Floats:
    """Return labels as they are."""
    return labels.astype(np.float32)


def upper(labels: npt.NDArray[np.number]) -> Floats:
    """Return +1 for the larger of two labels: classes are coded -1 and 1 in a file, 1 and 2 at OpenML."""
    return signs(labels == labels.max())


def equal(label: float) -> Labels:
    """Return what tells one class from the rest."""
    return lambda labels: signs(labels == label)


def above(limit: float) -> Labels:
    """Return what tells values above a limit from the rest."""
    return lambda labels: signs(labels > limit)


def signs(positive: npt.NDArray[np.bool_]) -> Floats:
    """Return +1 and -1."""
    return np.where(positive, np.float32(1), np.float32(-1))
