import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omkl import data
from omkl.errors import InputError, MissingExtraError

CSV = 'station,day,"temp, C",wind,rain\nb,mon,1.5,2,1\na,mon,-3e1,4,0\nb,tue,0,6,1\n'


class Frame:
    """As much of a pandas data frame as is asked of one."""

    def __init__(self, columns: dict[Any, Any]) -> None:
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name: Any) -> "Series":
        return Series(self._columns[name])

    def to_numpy(self) -> None:
        raise AssertionError("a frame of mixed types would become an array of objects")


class Series:
    def __init__(self, values: Any) -> None:
        self._values = values

    def to_numpy(self) -> Any:
        return np.asarray(self._values)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(CSV)
    return tmp_path / "t.csv"


def check(table: data.Table) -> None:
    np.testing.assert_array_equal(table.X, [[1.5, 2], [-30, 4], [0, 6]])
    np.testing.assert_array_equal(table.y, [1, 0, 1])
    assert table.node is not None
    assert table.node.tolist() == ["b", "a", "b"]
    assert data.by_node(table.X, table.y, table.node).y.tolist() == [[0, 1]]


def test_csv(path: Path) -> None:
    check(data.read_table(path, target="rain", node="station", drop=["day"]))
    check(data.read_table(str(path), target="rain", node="station", drop="day"))
    assert data.read_table(path, target="rain", drop=["day", "station"]).node is None


def test_csv_compressed_with_mark_and_blank_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(("\ufeff" + CSV + "\n").encode()))
    check(data.read_table(tmp_path / "t.csv.gz", "rain", "station", ["day"]))


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    columns = {"station": ["b", "a", "b"], "temp": [1.5, -30.0, 0.0], "wind": [2, 4, 6], "rain": [True, False, True]}
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    check(data.read_table(tmp_path / "t.parquet", "rain", "station"))


def test_data_frame() -> None:
    frame = Frame({"station": ["b", "a", "b"], "temp": [1.5, -30, 0], "wind": [2, 4, 6], "rain": [1, 0, 1]})
    check(data.read_table(frame, "rain", "station"))


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"omkl\[results\]"):
        data.read_table(tmp_path / "t.parquet", "rain")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y\n1,no\n2,no\n", "column 'y' is 'no' in all 2 rows"),
        ("x,y\n1,0\n2\n", "row 2 has 1 cells; the header has 2"),
        ("x,x,y\n1,2,0\n", "two columns 'x'"),
        ("x,y\n", "no row below its header"),
        ("", "no row below its header"),
        ("y\n1\n", "leave no feature"),
        ("x,Y\n1,1\n", "unknown column 'y'"),
    ],
)
def test_bad_csv_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        data.read_table(tmp_path / "t.csv", target="y")


def test_unknown_columns_are_refused(path: Path) -> None:
    for options in ({"node": "stations"}, {"drop": ["days"]}):
        with pytest.raises(InputError, match=r"unknown column .* did you mean"):
            data.read_table(path, "rain", **options)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        data.read_table(tmp_path / "absent.csv", "y")
    (tmp_path / "t.xlsx").write_bytes(b"")
    with pytest.raises(InputError, match=r"ends in '\.xlsx'"):
        data.read_table(tmp_path / "t.xlsx", "y")


def test_numbered_nodes_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y,station\n" + "".join(f"{n},{n % 2},{n}\n" for n in (10, 2, 1, 11, 9)))
    table = data.read_table(tmp_path / "t.csv", "y", node="station")
    assert table.names == ("1", "2", "9", "10", "11")
    assert data.as_stream(table)[0].X[0, :, 0].tolist() == [1, 2, 9, 10, 11]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv.gz", b"\x1f\x8b\x08\x00torn"), ("a.parquet", b"PAR1 torn")],
)
def test_a_file_that_cannot_be_read_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        data.read_table(tmp_path / name, "y")


def test_odd_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="source is None"):
        data.read_table(None, "y")
    (tmp_path / "t.csv").write_text("x,y\n1,1\n")
    with pytest.raises(InputError, match="the target and more"):
        data.read_table(tmp_path / "t.csv", "y", drop=["y"])


def test_a_short_node_that_cuts_the_others_warns() -> None:
    with pytest.warns(UserWarning, match="9 of 11 rows are left out"):
        data.by_node(np.zeros((11, 1)), np.ones(11), [0] * 10 + [1])


def test_several_targets(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("u,a,v\n1,2,3\n4,5,6\n")
    table = data.read_table(path, ["v", "u"])
    np.testing.assert_array_equal(table.X, [[2], [5]])
    np.testing.assert_array_equal(table.y, [[3, 1], [6, 4]])
    with pytest.raises(InputError, match="'u' is the target and more"):
        data.read_table(path, ["u", "u"])
    with pytest.raises(InputError, match="target is empty"):
        data.read_table(path, [])
