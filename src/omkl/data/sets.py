"""The data sets: what is known of each, and how its copies become ``X`` and ``y``."""

import gzip
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.data.files import File, Floats, Raw, read_member

Arrays: TypeAlias = tuple[Floats, Floats]


@dataclass(frozen=True)
class Bundle:
    """A copy inside an installed package: the package, the extra that installs it, the path in it, and its reader."""

    package: str
    extra: str
    path: str
    read: Callable[[Path], Raw]


@dataclass(frozen=True)
class DataSet:
    """What is known of a data set, and how its copies are read.

    Attributes
    ----------
    positives
        Number of labels +1, checked with n and d after reading.
    prepare
        Turns the table and labels of any source into ``X`` and ``y``.
    files, read
        The files in ``$OMKL_DATA/<name>/`` and what turns their contents into a table and labels.
    openml
        Number at OpenML.
    """

    name: str
    task: Literal["binary", "multiclass", "regression"]
    loss: str
    n: int
    d: int
    positives: int
    license: str
    source: str
    prepare: Callable[[Raw], Arrays]
    files: tuple[File, ...] = ()
    read: Callable[[Sequence[bytes]], Raw] | None = None
    bundle: Bundle | None = None
    openml: int | None = None


def _read_banana(contents: Sequence[bytes]) -> Raw:
    # LIBSVM text with both entries on every line, so removing the indices leaves a plain table.
    values = np.loadtxt(io.BytesIO(contents[0].replace(b" 1:", b" ").replace(b" 2:", b" ")))
    return Raw(values[:, 1:], values[:, 0])


def _unzip_banana(archive: Path) -> Raw:
    return _read_banana([read_member(archive, _BANANA)])


def _read_credit_card(contents: Sequence[bytes]) -> Raw:
    values = np.loadtxt(io.BytesIO(gzip.decompress(contents[0])), delimiter=",", skiprows=1)
    return Raw(values[:, 1:-1], values[:, -1])


def _read_mnist(contents: Sequence[bytes]) -> Raw:
    images, labels, test_images, test_labels = (np.frombuffer(gzip.decompress(c), dtype=np.uint8) for c in contents)
    pixels = np.concatenate([images[16:], test_images[16:]])
    return Raw(pixels.reshape(-1, 784), np.concatenate([labels[8:], test_labels[8:]]))


def _read_digits(contents: Sequence[bytes]) -> Raw:
    values = np.loadtxt(io.BytesIO(gzip.decompress(contents[0])), delimiter=",")
    return Raw(values[:, :-1], values[:, -1])


def _bundled_digits(path: Path) -> Raw:
    return _read_digits([_DIGITS.verify(path.read_bytes(), path)])


def _upper(raw: Raw) -> Arrays:
    # Classes are coded -1 and 1 in the file, 1 and 2 at OpenML.
    return raw.table.astype(np.float32), _signs(raw.labels == raw.labels.max())


def _standardize(raw: Raw) -> Arrays:
    table = (raw.table - raw.table.mean(axis=0)) / raw.table.std(axis=0)
    return table.astype(np.float32), _signs(raw.labels == 1)


def _eight(largest: int) -> Callable[[Raw], Arrays]:
    return lambda raw: (raw.table.astype(np.float32) / np.float32(largest), _signs(raw.labels == 8))


def _signs(positive: npt.NDArray[np.bool_]) -> Floats:
    return np.where(positive, np.float32(1), np.float32(-1))


_BANANA = File("banana.all.txt", 140806, "5b24172636ce705522990516f15cd74e1080429ccdd9b371f3dd83f940273308")
_CREDIT_CARD = File(
    "UCI_Credit_Card.csv.gz", 979921, "3b1c8e69fc71fb19229d8d3dedeeaf70012b7706bee03b534a33a6ba32a78394"
)
_MNIST = (
    File("train-images-idx3-ubyte.gz", 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    File("train-labels-idx1-ubyte.gz", 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    File("t10k-images-idx3-ubyte.gz", 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    File("t10k-labels-idx1-ubyte.gz", 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
)
_DIGITS = File("digits.csv.gz", 57523, "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22")

_SETS = (
    DataSet(
        "banana", "binary", "logistic", n=5300, d=2, positives=2376,
        license="none stated (research benchmark)",
        source="Raetsch, Onoda, Mueller 2001: two interleaved clusters, columns of mean 0 and standard deviation 1",
        prepare=_upper, files=(_BANANA,), read=_read_banana, openml=1460,
        bundle=Bundle("river", "river", "datasets/banana.zip", _unzip_banana),
    ),
    DataSet(
        "credit_card", "binary", "logistic", n=30000, d=23, positives=6636,
        license="CC BY 4.0",
        source="UCI 350, Yeh and Lien 2009: default of credit card clients, columns standardized",
        prepare=_standardize, files=(_CREDIT_CARD,), read=_read_credit_card, openml=42477,
    ),
    DataSet(
        "mnist", "binary", "logistic", n=70000, d=784, positives=6825,
        license="CC BY-SA 3.0 (as commonly stated)",
        source="LeCun, Cortes, Burges 1998: 8 against the rest, pixels in 0 ... 1, training images first",
        prepare=_eight(255), files=_MNIST, read=_read_mnist, openml=554,
    ),
    DataSet(
        "digits", "binary", "logistic", n=1797, d=64, positives=174,
        license="CC BY 4.0",
        source="UCI 80, Alpaydin and Kaynak 1998: 8 against the rest, 8 x 8 pixels in 0 ... 1; stands in for mnist",
        prepare=_eight(16), files=(_DIGITS,), read=_read_digits,
        bundle=Bundle("sklearn", "sklearn", "datasets/data/digits.csv.gz", _bundled_digits),
    ),
)  # fmt: skip

DATA_SETS: dict[str, DataSet] = {one.name: one for one in _SETS}
