"""Arrays in files: npz with a JSON header, files that appear whole, trees of arrays under names.

A file may come from a stranger or from a dying disk. So nothing is ever unpickled, what a file claims is checked before
memory is taken for it, and whatever is wrong with it is one of ``DAMAGED``, which ``refusing`` puts into one line.
"""

import json
import math
import os
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.errors import InputError

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

DAMAGED: tuple[type[Exception], ...] = (
    LookupError, ValueError, TypeError, AttributeError, EOFError, OverflowError, RuntimeError, struct.error,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
DEEPEST = 64  # levels of a header, which has ten at most
EXPANSION = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}  # what a byte can become at most, by compression
ENCRYPTED = 1  # a bit of a member's flags
MAGIC = b"\x93NUMPY\x01\x00"
KINDS = "biufcmMSU"  # of NumPy's types those that need no pickle
PLAIN = re.compile(  # NumPy evaluates what stands here, so it gets to see nothing else
    rf"\{{'descr': '([<>|][{KINDS}][1-9]\d*(?:\[\w+\])?)', 'fortran_order': (?:True|False), "
    r"'shape': \(([\d, ]*)\), \} *\n".encode()
)


class Content(NamedTuple):
    """What an npz holds; ``header`` is empty where it has none."""

    header: dict[str, Any]
    arrays: Arrays


@contextmanager
def refusing(told: str, remedy: str, *also: type[Exception]) -> Iterator[None]:
    """Turn what a damaged file raises, and errors of other types on demand, into one line."""
    kinds = (*DAMAGED, *also)
    try:
        yield
    except kinds as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{told} ({why}); {remedy}") from None


# npz with a header


def write(path: str | Path, arrays: Mapping[str, Any], header: dict[str, Any] | None = None) -> None:
    """Write an npz, in the place of another in one step."""
    with replacing(path) as file:
        pack(file, arrays, header)


def pack(file: BinaryIO, arrays: Mapping[str, Any], header: dict[str, Any] | None = None) -> None:
    """Write an npz to an open file."""
    members = {} if header is None else {"header": np.array(json.dumps(header))}
    members |= {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in members.items():
        if array.dtype.kind not in KINDS:
            raise InputError(f"{name} has type {array.dtype}; a file holds numbers, times and text; convert it first")
    np.savez(file, **members)  # type: ignore[arg-type]


def read(path: str | Path, kind: str, formats: tuple[int, ...], remedy: str) -> Content:
    """Return what a file of a kind holds, if its header says ``omkl_<kind>`` and one of the formats."""
    with refusing(f"{path} is not an omkl {kind}", remedy):
        content = load(path)
        if (found := content.header.get(f"omkl_{kind}")) is None:
            raise InputError(_described(content.header))
    if found not in formats:
        raise InputError(f"{path} has {kind} format {found}; this version reads up to {formats[-1]}; upgrade omkl")
    return content


def _described(header: dict[str, Any]) -> str:
    """Return what a file of another kind holds, and what reads it."""
    if "omkl_model" in header:
        return "it holds a model: omkl.load_model reads it"
    if "omkl_estimator" in header:
        return f"it holds an estimator: {header.get('estimator')}.load reads it"
    return "its header does not say so; a saved run is read by omkl.load(folder)"


def load(path: str | Path) -> Content:
    """Return what an npz holds; raises ``OSError``, or one of ``DAMAGED``."""
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):  # it might be read, or waited for, for ever
        raise InputError("it is a pipe or a device; it must be a file")
    with path.open("rb") as file:
        return parse(file)


def parse(file: BinaryIO) -> Content:
    """Return what an open npz holds; raises one of ``DAMAGED`` where it is not whole or has more than plain arrays."""
    length = file.seek(0, os.SEEK_END)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if (claimed := sum(member.compress_size for member in members)) > length:
            raise InputError(f"its arrays claim {claimed} bytes; the file has {length}")
        arrays = {member.filename.removesuffix(".npy"): _array(archive, member, length) for member in members}
    header = arrays.pop("header", None)
    if header is None:
        return Content({}, arrays)
    return Content(parse_json(header.tobytes() if header.dtype == np.uint8 else str(header)), arrays)


def parse_json(text: str | bytes) -> dict[str, Any]:
    """Return the object that is written as JSON; raises one of ``DAMAGED``, also where it is nested too deeply."""
    level = [header := json.loads(text)]
    if not isinstance(header, dict):
        raise InputError(f"its header is {str(header)[:20]!r}; it must be an object")
    for _ in range(DEEPEST):
        level = [part for one in level if isinstance(one, dict | list)
                 for part in (one.values() if isinstance(one, dict) else one)]  # fmt: skip
    if level:
        raise InputError(f"its header is nested in more than {DEEPEST} levels")
    return header


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, length: int) -> npt.NDArray[Any]:
    name, size, most = member.filename, member.file_size, EXPANSION.get(member.compress_type)
    if member.flag_bits & ENCRYPTED or most is None:
        raise InputError(f"{name!r} is encrypted or of unknown compression; np.savez writes neither")
    if size > most * member.compress_size or not 0 <= member.header_offset < length:
        raise InputError(f"{name!r} claims {size} bytes at {member.header_offset}; the file has {length}")
    with archive.open(member) as opened:
        start = opened.read(len(MAGIC) + 2)
        head = opened.read(int.from_bytes(start[len(MAGIC) :], "little"))
        plain = PLAIN.fullmatch(head)
        if plain is None or not start.startswith(MAGIC):
            raise InputError(f"{name!r} begins with {head[:40]!r}; only numbers and text are read, never pickle")
        shape = [int(axis) for axis in plain[2].split(b",") if axis.strip()]
        claimed = math.prod(shape) * np.dtype(plain[1].decode()).itemsize
        if claimed != size - opened.tell():
            raise InputError(f"{name!r} claims a shape of {claimed} bytes; it has {size - opened.tell()}")
        opened.seek(0)
        return np.asarray(np.lib.format.read_array(opened, allow_pickle=False))


# Files that appear whole


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file that takes the place of another in one step, once it is written and on the disk."""
    path = Path(path)
    if path.exists() and not path.is_file():  # a pipe or a device is not a file to be replaced
        with path.open("wb") as file:
            yield file
        return
    target = path.resolve()  # a link stays one
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            _take_after(target, part)
            yield file
            sync(file)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _take_after(target: Path, part: Path) -> None:
    """Give a file the mode and the owner of the one whose place it takes, as far as this user may."""
    with suppress(OSError, AttributeError):  # there is none yet, it is another's, or files have no owners here
        shutil.copymode(target, part)
        old = target.stat()
        os.chown(part, old.st_uid, old.st_gid)


def require_folder(path: Path) -> None:
    """Refuse a file in a folder that is not there."""
    if not path.parent.is_dir():
        raise InputError(f"{path} is to be written, and {path.parent} is no folder; make it first, or mend the path")


def write_whole(path: Path, content: bytes | str) -> None:
    """Write a file, in the place of another in one step; its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def sync(file: BinaryIO) -> None:
    """Bring to the disk what was written to a file."""
    file.flush()
    os.fsync(file.fileno())


# Trees


def mapped(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return the tree of what a function makes of the arrays of one tree, and of others like it.

    A tree is of tuples, NamedTuples and dicts, which are gone through in the order of their keys.
    """
    if isinstance(tree, dict):
        return {key: mapped(function, tree[key], *(other[key] for other in others)) for key in sorted(tree)}
    if not isinstance(tree, tuple):
        return function(tree, *others)
    parts = [mapped(function, *alike) for alike in zip(tree, *others, strict=True)]
    return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)


def leaves(tree: Any) -> list[Any]:
    """Return the arrays of a tree, in the order of ``mapped``."""
    found: list[Any] = []
    mapped(found.append, tree)
    return found


def flatten(name: str, tree: Any) -> Arrays:
    """Return the arrays of a tree by names, ``<name>_0`` and so on."""
    return {f"{name}_{k}": np.asarray(leaf) for k, leaf in enumerate(leaves(tree))}


def unflatten(name: str, like: Any, arrays: Mapping[str, Any]) -> Any:
    """Return what ``flatten`` named as a tree like another, of the same shapes."""
    due = {f"{name}_{k}": np.shape(leaf) for k, leaf in enumerate(leaves(like))}
    for key, shape in due.items():
        if (found := np.shape(arrays[key])) != shape:
            raise InputError(f"{key} has shape {found}; {shape} is due; the file is of other settings")
    keys = iter(due)
    return mapped(lambda _: arrays[next(keys)], like)
