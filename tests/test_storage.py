import contextlib
import io
import json
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import omkl
from omkl import storage
from omkl.errors import InputError
from omkl.model import Model, load_model

HEADER = {"omkl_thing": 2, "name": "Ωmkl", "links": {"b": [1, 2.5, None]}}
ARRAYS: dict[str, Any] = {
    "theta": np.arange(6, dtype=np.float32).reshape(2, 3),
    "wide": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "names": np.array(["ä", "no"]),
    "empty": np.zeros((0, 4), np.int64),
    "scalar": np.array(True),
    "times": np.array(["2026-01-01", "NaT"], "datetime64[s]"),
}


def packed(arrays: dict[str, Any] = ARRAYS, header: dict[str, Any] | None = HEADER) -> bytes:
    file = io.BytesIO()
    storage.pack(file, arrays, header)
    return file.getvalue()


def refused(content: bytes) -> str:
    """Return why a file is refused, one line of it."""
    with pytest.raises(InputError) as told, storage.refusing("f is no thing", "pass another"):
        storage.parse(io.BytesIO(content))
    text = str(told.value)
    assert text.startswith("f is no thing (")
    assert text.endswith("); pass another")
    assert "\n" not in text
    return text.removeprefix("f is no thing (").removesuffix("); pass another")


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


# npz with a header


def test_header_and_arrays_come_back(tmp_path: Path) -> None:
    storage.write(tmp_path / "f.npz", ARRAYS, HEADER)
    header, arrays = storage.read(tmp_path / "f.npz", "thing", (1, 2), "pass another")
    assert header == HEADER
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)
        assert arrays[name].flags.writeable
    with np.load(tmp_path / "f.npz", allow_pickle=False) as file:  # for readers that know nothing of omkl
        assert json.loads(str(file["header"])) == HEADER


def test_a_header_may_be_bytes_or_missing() -> None:
    octets = np.frombuffer(json.dumps(HEADER).encode(), np.uint8)
    assert storage.parse(io.BytesIO(packed(ARRAYS | {"header": octets}, None))).header == HEADER
    assert storage.parse(io.BytesIO(packed(header=None))).header == {}


def test_what_others_compressed_is_read() -> None:
    file = io.BytesIO()
    np.savez_compressed(file, theta=np.zeros((1000, 1000)))  # a thousandth of its size
    assert storage.parse(file).arrays["theta"].shape == (1000, 1000)


def test_another_kind_or_format_is_refused(tmp_path: Path) -> None:
    storage.write(tmp_path / "f.npz", ARRAYS, HEADER)
    with pytest.raises(InputError, match=r"f.npz has thing format 2; this version reads up to 1; upgrade omkl"):
        storage.read(tmp_path / "f.npz", "thing", (1,), "")
    with pytest.raises(
        InputError, match=r"f.npz is not an omkl model \(its header .*omkl.load\(folder\)\); pass another"
    ):
        storage.read(tmp_path / "f.npz", "model", (1,), "pass another")
    with pytest.raises(FileNotFoundError):
        storage.read(tmp_path / "g.npz", "model", (1,), "")


def test_objects_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "f.npz"
    storage.write(path, ARRAYS)
    before = path.read_bytes()
    with pytest.raises(InputError, match="thing has type object; a file holds numbers, times and text; convert it"):
        storage.write(path, {"thing": np.array([{}, None])})
    assert path.read_bytes() == before


# Damage


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_that_is_cut_is_refused_wherever(compressed: bool) -> None:
    whole = packed()
    if compressed:
        file = io.BytesIO()
        np.savez_compressed(file, **ARRAYS)
        whole = file.getvalue()
    for length in range(len(whole)):
        refused(whole[:length])


def test_a_flipped_bit_is_found_or_changes_nothing() -> None:
    """The archive has a check of every array; what it has not is in names, dates and numbers that are written twice."""
    whole, checked = packed(), set[int]()
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        for member in archive.infolist():
            begin = member.header_offset + 30 + sum(struct.unpack_from("<HH", whole, member.header_offset + 26))
            checked |= set(range(begin, begin + member.file_size))
    for place in range(len(whole)):
        content = whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :]
        try:
            header, arrays = storage.parse(io.BytesIO(content))
        except storage.DAMAGED:
            continue
        assert place not in checked
        for name in arrays.keys() & ARRAYS.keys():
            np.testing.assert_array_equal(arrays[name], ARRAYS[name], strict=True)
        assert header in (HEADER, {})


@settings(max_examples=300)
@given(st.data())
def test_any_bytes_are_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(packed())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(*storage.DAMAGED):
        storage.parse(io.BytesIO(bytes(content)))


def test_any_bytes_of_a_real_file_are_no_fault_of_the_disk(tmp_path: Path) -> None:
    """An offset before the beginning would make the system complain, and a node would blame the disk."""
    whole, path = bytearray(packed()), tmp_path / "f.npz"
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        first = archive.start_dir
    struct.pack_into("<L", whole, len(whole) - 6, first + 100)  # so that all seems to begin 100 bytes before the file
    path.write_bytes(whole)
    with pytest.raises(storage.DAMAGED):
        storage.load(path)


def test_pickle_is_refused_and_not_run() -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.abort, ()

    file = io.BytesIO()
    np.savez(file, theta=np.array([Trap()], dtype=object))
    assert "never pickle" in refused(file.getvalue())
    assert "never pickle" in refused(zipped(theta=npy(np.zeros(2, [("a", "f4"), ("b", "O")]))))
    assert "never pickle" in refused(zipped(theta=b"\x80\x04N."))


@pytest.mark.parametrize("shape", ["(1000000000000,)", "(3, 1000000000, 1000000000)", "(1,)", "()", "(2, 4)"])
def test_a_shape_that_the_file_cannot_hold_takes_no_memory(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np.lib.format, "read_array", lambda *args, **more: pytest.fail("it was read"))
    whole = npy(np.zeros((2, 3), np.float32))
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    assert "claims a shape of" in refused(zipped(theta=whole[:10] + head + whole[128:]))


@pytest.mark.parametrize("head", ["__import__('os').abort()", "(" * 100, "-" * 100, "{'descr': '<f4'}", "\0"])
def test_what_is_no_header_is_not_evaluated(head: str) -> None:
    whole = npy(np.zeros(2))
    content = zipped(theta=whole[:10] + head.ljust(118).encode() + whole[128:])
    assert "only numbers and text are read" in refused(content)


def test_sizes_that_an_archive_claims_are_held_to_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np.lib.format, "read_array", lambda *args, **more: pytest.fail("it was read"))

    def claiming(*sizes: int) -> bytes:
        content = bytearray(zipped(theta=npy(np.zeros(2))))
        struct.pack_into("<LL", content, content.rindex(b"PK\x01\x02") + 20, *sizes)
        return bytes(content)

    assert "claims 4294967294 bytes at 0; the file has" in refused(claiming(144, 2**32 - 2))
    assert "its arrays claim 4294967294 bytes; the file has" in refused(claiming(2**32 - 2, 2**32 - 2))


@pytest.mark.parametrize(("place", "value"), [(8, 1), (10, 12), (10, 14), (10, 99)])
def test_encryption_and_other_compression_are_refused(place: int, value: int) -> None:
    content = bytearray(zipped(theta=npy(np.zeros(2))))
    struct.pack_into("<H", content, content.rindex(b"PK\x01\x02") + place, value)
    assert "encrypted or of unknown compression" in refused(bytes(content))


DEEP = ["[" * 100_000, '{"a": ' + "[" * 100 + "]" * 100 + "}", '{"a":' * 70 + "1" + "}" * 70]


@pytest.mark.parametrize("text", [*DEEP, '"text"', "[1]", "{"])
def test_a_header_is_an_object_of_few_levels(text: str) -> None:
    refused(zipped(header=npy(np.array(text))))
    with pytest.raises(storage.DAMAGED):
        storage.parse_json(text)


def test_headers_of_some_levels_are_read() -> None:
    deep: dict[str, Any] = {}
    for _ in range(storage.DEEPEST - 1):
        deep = {"a": deep}
    assert storage.parse_json(json.dumps(deep)) == deep
    with pytest.raises(InputError, match="nested in more than 64 levels"):
        storage.parse_json(json.dumps({"a": deep}))


# Models


def model(**change: Any) -> Model:
    arrays: dict[str, Any] = {"frequencies": np.ones((2, 3, 1), np.float32), "theta": np.ones((2, 1, 6), np.float32)}
    return Model(**(arrays | {"log_weights": np.zeros(2, np.float32), "loss": omkl.Logistic()} | change))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["theta", "frequencies", "log_weights", "scale"])
def test_a_model_of_nan_or_inf_is_refused(name: str, bad: float, tmp_path: Path) -> None:
    shapes = {"theta": (2, 1, 6), "frequencies": (2, 3, 1), "log_weights": (2,), "scale": (1,)}
    change = {"scale": np.ones(1), "center": np.ones(1)} | {name: np.full(shapes[name], bad)}
    model(**change).save(tmp_path / "m.npz")
    with pytest.raises(InputError, match=rf"m.npz has nan or inf in {name}; a model must be finite; save one that"):
        load_model(tmp_path / "m.npz")


def test_a_kernel_may_count_for_nothing(tmp_path: Path) -> None:
    model(log_weights=np.array([-np.inf, -3], np.float32)).save(tmp_path / "m.npz")
    np.testing.assert_array_equal(load_model(tmp_path / "m.npz").weights, [0, 1])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes have names where POSIX is")
def test_what_is_no_file_is_refused_before_it_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "model.npz")
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(InputError, match="it is a pipe or a device"):
            load_model(path)


@pytest.mark.parametrize("lacking", ["theta", "log_weights", "frequencies"])
def test_a_model_without_an_array_is_refused(lacking: str, tmp_path: Path) -> None:
    model().save(tmp_path / "m.npz")
    header, arrays = storage.load(tmp_path / "m.npz")
    storage.write(tmp_path / "m.npz", {name: arrays[name] for name in arrays if name != lacking}, header)
    with pytest.raises(InputError, match=r"m.npz is not an omkl model \(.*\); pass a file written by Model.save"):
        load_model(tmp_path / "m.npz")


@pytest.mark.parametrize("kind", ["U1", "S1", "M8[s]", "m8[s]", "c16", "?", "i8"])
@pytest.mark.parametrize("name", ["theta", "frequencies", "log_weights"])
def test_a_model_of_other_things_than_numbers_is_refused(name: str, kind: str, tmp_path: Path) -> None:
    model().save(tmp_path / "m.npz")
    header, arrays = storage.load(tmp_path / "m.npz")
    storage.write(tmp_path / "m.npz", arrays | {name: np.zeros(arrays[name].shape, kind)}, header)
    with pytest.raises(
        InputError, match=rf"m.npz is not an omkl model \({name} has type .*; no numbers\); pass a file"
    ):
        load_model(tmp_path / "m.npz")


@pytest.mark.parametrize("bad", [0.0, -1.0])
def test_a_model_that_divides_by_nothing_is_refused(bad: float, tmp_path: Path) -> None:
    model(center=np.zeros(1), scale=np.full(1, bad)).save(tmp_path / "m.npz")
    with pytest.raises(InputError, match=rf"m.npz has {bad} in scale; inputs are divided by it; pass a file"):
        load_model(tmp_path / "m.npz")


def test_a_model_of_nothing_is_refused(tmp_path: Path) -> None:
    model(theta=np.ones((2, 0, 6), np.float32)).save(tmp_path / "m.npz")
    with pytest.raises(InputError, match=r"theta has type float32 and shape \(2, 0, 6\); no numbers"):
        load_model(tmp_path / "m.npz")


# Files that appear whole


def interrupted(path: Path, save: Callable[[Path], Any], when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save, and be stopped once the file is written and not in its place, or not on the disk either."""

    def stop(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        place: Any = Path if when == "replace" else os
        patch.setattr(place, when, stop)
        with pytest.raises(KeyboardInterrupt):
            save(path)


@pytest.mark.parametrize("when", ["fsync", "replace"])
@pytest.mark.parametrize(
    "save",
    [
        lambda path: storage.write(path, {"theta": np.zeros(1)}),
        lambda path: storage.write_whole(path, "new"),
        lambda path: model(theta=np.zeros((2, 1, 6), np.float32)).save(path),
    ],
)
def test_an_interrupted_write_leaves_the_file_of_before(
    save: Callable[[Path], Any], when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.npz"
    model().save(path)
    before = path.read_bytes()
    interrupted(path, save, when, monkeypatch)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["m.npz"]
    save(path)
    assert path.read_bytes() != before


def test_a_file_is_on_the_disk_before_it_takes_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    sync, replace = os.fsync, Path.replace

    def synced(file: int) -> None:
        calls.append(("sync", os.fstat(file).st_size))
        sync(file)

    def replaced(self: Path, target: Path) -> Path:
        calls.append(("replace", target.name))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", replaced)
    storage.write_whole(tmp_path / "new" / "f", "ä")
    assert calls == [("sync", 2), ("replace", "f")]
    assert (tmp_path / "new" / "f").read_bytes() == "ä".encode()


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    target, link, pipe = (tmp_path / name for name in ("target", "link", "pipe"))
    link.symlink_to(target)
    storage.write_whole(link, "text")
    assert (target.read_text(), link.is_symlink()) == ("text", True)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    storage.write_whole(pipe, "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert pipe.is_fifo()


# Trees


class Memory(NamedTuple):
    total: Any
    parts: Any


def assert_equal_trees(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = (tuple(tree[key] for key in sorted(tree)) for tree in (one, other))
    if isinstance(one, tuple):
        assert len(one) == len(other)
        for here, there in zip(one, other, strict=True):
            assert_equal_trees(here, there)
    else:
        np.testing.assert_array_equal(one, other, strict=True)


SHAPES = st.lists(st.integers(0, 3), max_size=4)
ARRAY = st.builds(lambda shape, value: np.full(shape, value, np.float32), SHAPES, st.integers(0, 99))
TREES = st.recursive(
    ARRAY,
    lambda parts: (
        st.lists(parts, max_size=3).map(tuple)
        | st.builds(Memory, parts, parts)
        | st.dictionaries(st.text("abc", max_size=3), parts, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100)
@given(TREES)
def test_trees_come_back(tree: Any) -> None:
    _, arrays = storage.parse(io.BytesIO(packed(storage.flatten("memory", tree), None)))
    like = storage.mapped(np.zeros_like, tree)
    assert_equal_trees(storage.unflatten("memory", like, arrays), tree)


def test_names_of_a_tree() -> None:
    tree = Memory(1.5, ({"b": 2, "a": np.ones(2)}, ()))
    assert {name: array.tolist() for name, array in storage.flatten("m", tree).items()} == {
        "m_0": 1.5, "m_1": [1, 1], "m_2": 2,
    }  # fmt: skip
    assert storage.flatten("m", ()) == {}


def test_a_tree_of_another_form_is_refused() -> None:
    arrays = storage.flatten("m", (np.zeros(2), np.zeros(3)))
    with pytest.raises(InputError, match=r"m_1 has shape \(3,\); \(4,\) is due; the file is of other settings"):
        storage.unflatten("m", (np.zeros(2), np.zeros(4)), arrays)
    with pytest.raises(KeyError, match="m_2"):
        storage.unflatten("m", (np.zeros(2), Memory(np.zeros(3), np.zeros(1))), arrays)
    with pytest.raises(ValueError, match="zip"):
        storage.mapped(np.add, (1, 2), (1, 2, 3))
