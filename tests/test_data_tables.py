import gzip
import json
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omkl
from omkl import data
from omkl.data import encoding
from omkl.data.tables import rows_left_out
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
        ("x,y\n1,0\n2\n", "line 3 has 1 cells; the first line has 2"),
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


def test_cells_are_told_by_their_line_also_where_time_orders_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('x,t,u,v\n\n1,3,1,1\n"two\nlines",2,1,1\n3,1,1,odd\n')
    with pytest.raises(InputError, match="'v', line 6 holds 'odd'"):
        data.read_table(path, ["u", "v"], time="t")


@pytest.mark.parametrize("graph", [omkl.topology.ring(3), omkl.topology.Schedule([omkl.topology.ring(3)])])
def test_a_graph_of_other_nodes_than_the_data_have_is_refused(tmp_path: Path, graph: Any) -> None:
    path, text = tmp_path / "t.csv", "the data have 2 nodes, the graph 3; give a graph of as many nodes"
    path.write_text("x,who,y\n" + "".join(f"{k},{'ab'[k % 2]},{k % 3}\n" for k in range(16)))
    with pytest.raises(InputError, match=text):
        omkl.simulate(path, graph, target="y", node="who")
    with pytest.raises(InputError, match=text):
        omkl.compare((np.zeros((9, 2, 1)), np.ones((9, 2))), {"a": ("paper", "ring"), "b": ("paper", graph)})
    with pytest.raises(InputError, match=r"drop --nodes \(nodes=\)"):
        omkl.simulate(path, "ring", target="y", node="who", nodes=3)


def test_notes_are_told_once_in_python_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,is_open,who,y\n" + "".join(f"{k},{'yn'[k % 3 > 0]},{'ab'[k > 6]},{k % 2}\n" for k in range(16)))
    for _ in range(2):
        omkl.simulate(path, target="y", node="who", method="paper")
    (line,) = caplog.messages  # at the level that Python shows without any setup
    assert "and a has the fewest rows, 7: 2 of 16 rows, the last ones of other nodes, are left out" in line
    assert line.endswith("is_open is one of 2 texts: a column of 0 and 1")


def test_a_short_node_that_cuts_the_others_warns() -> None:
    with pytest.warns(
        UserWarning,
        match=r"and 1 has the fewest rows, 1: 9 of 11 rows, the last ones of other nodes, are left out "
        r"\(without the 1 node with the fewest, 1 would be\)",
    ):
        data.by_node(np.zeros((11, 1)), np.ones(11), [0] * 10 + [1])


def test_what_is_left_out_without_a_node_is_told_where_it_is_less() -> None:
    def told(*counts: int) -> str:
        (text,) = rows_left_out([*"abc"], np.repeat(np.arange(3), counts))
        return text.partition("are left out")[2]

    assert told(5, 2, 5) == " (without the 1 node with the fewest, 2 would be)"
    assert told(9, 2, 2) == " (without the 2 nodes with the fewest, 4 would be)"
    assert told(5, 4, 5) == ""  # 10 rows of two nodes are fewer than 12 of three


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


def made(tmp_path: Path, text: str, target: str | list[str] = "y", **roles: Any) -> data.Table:
    (tmp_path / "t.csv").write_text(text)
    return data.read_table(tmp_path / "t.csv", target, **roles)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1.5", "-3e1", "0"], [1.5, -30, 0]),
        (['"1,234"', '"12,345.5"', "7"], [1234, 12345.5, 7]),
        (["5%", "6 %", "$7"], [5, 6, 7]),
    ],
)
def test_numbers_as_people_write_them(cells: list[str], values: list[float], tmp_path: Path) -> None:
    table = made(tmp_path, "x,y\n" + "".join(f"{cell},{k}\n" for k, cell in enumerate(cells)))
    assert table.X[:, 0].tolist() == values


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["0,123", "0,5", "12"], [0.123, 0.5, 12]),
        (["1.234,5", "7", "1.000.000"], [1234.5, 7, 1e6]),
        (["1,87e-06", "-2,5E+3", "1e-06"], [1.87e-06, -2500, 1e-06]),
    ],
)
def test_commas_are_points_between_semicolons(cells: list[str], values: list[float], tmp_path: Path) -> None:
    table = made(tmp_path, "x;y\n" + "".join(f"{cell};{k}\n" for k, cell in enumerate(cells)))
    assert table.X[:, 0].tolist() == values


def test_missing_cells_are_filled_in_and_told(tmp_path: Path) -> None:
    table = made(tmp_path, "x,c,y\n1,u,0\n?,v,1\n3,NA,0\n5,u,1\n9,v,null\n")
    assert table.encoding
    assert table.encoding.names == ["x", "x is missing", "c = missing", "c = u", "c = v"]
    assert "c is one of 2 texts or missing: a column of 0 and 1 for each" in table.notes
    assert table.X.tolist() == [[1, 0, 0, 1, 0], [3, 1, 0, 0, 1], [3, 0, 1, 0, 0], [5, 0, 0, 1, 0]]
    assert table.notes[0] == "1 of 5 rows are left out for lack of y"


def test_times_order_the_rows_whatever_they_are_written_as(tmp_path: Path) -> None:
    written = ["2024-01-02", "2024-01-01 12:00:00", "2024-01-01T11:00:00Z", "2024-01-01T14:30:00+02:00"]
    table = made(tmp_path, "t,x,y\n" + "".join(f"{t},{k},{k * k}\n" for k, t in enumerate(written)), time="t")
    assert table.X[:, 0].tolist() == [2, 1, 3, 0]
    assert data.as_stream(table, 2)[0].X[:, :, 0].tolist() == [[2, 1], [3, 0]]  # not shuffled


def test_time_and_node_are_inputs_only_where_they_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = "".join(f"2024-01-{1 + k // 8:02d} {3 * (k % 8):02d}:00,{'ab'[k % 2]},{k % 5},{k % 3}\n" for k in range(96))
    text = f"t,place,x,y\n{rows}"
    table = made(tmp_path, text, time="t", node="place")
    assert table.encoding
    assert table.encoding.names == ["x"]
    assert "inputs: x; place tells nodes apart and is no input (if nodes differ, list it in use too)" in caplog.text
    assert "t orders the rows and is no input (list it in use to make it one)" in caplog.text
    caplog.clear()
    table = made(tmp_path, text, time="t", node="place", use=["x", "place", "t"])
    assert table.encoding
    assert table.encoding.names == ["x", "place = b", "sine of day of t", "cosine of day of t"]
    assert "inputs: x, place (2 texts), t" in caplog.text
    assert "no input" not in caplog.text


# 31 May 2024, 13:30, and days before it, as they may be written.
WRITTEN = {
    "%d/%m/%Y %H:%M": "day/month/year",
    "%m/%d/%Y %I:%M %p": "month/day/year",
    "%d-%m-%Y": "day/month/year",
    "%m-%d-%Y, %H:%M": "month/day/year",
    "%d.%m.%Y": "",
    "%d %B %Y": "",
    "%d-%b-%Y %H:%M": "",
    "%b %d, %Y": "",
}


@pytest.mark.parametrize("written", WRITTEN)
def test_dates_as_people_write_them(written: str, tmp_path: Path) -> None:
    days = [datetime(2024, 5, 31, 13, 30) - timedelta(hours=5 * k) for k in (7, 3, 60, 0, 11, 30)]
    rows = [f'"{day:{written}}",{k}' for k, day in enumerate(days)]
    table = made(tmp_path, "\n".join(["when,y", *rows, ""]))
    told = f", read as {WRITTEN[written]}" if WRITTEN[written] else ""
    assert any(note.startswith(f"when is a date{told}: its days since 1970") for note in table.notes)
    start = datetime(1970, 1, 1)
    expected = [(datetime.strptime(f"{day:{written}}", written) - start) / timedelta(days=1) for day in days]
    np.testing.assert_allclose(table.X[:, 0], expected, rtol=1e-12)
    # One new row is read as those were, although it could be read in two ways; and so after a file.
    assert table.encoding
    again = encoding.Encoding.of(json.loads(json.dumps(table.encoding.record())))
    assert again == table.encoding
    day = datetime(2024, 5, 3)
    found = again.inputs({"when": np.array([f"{day:{written}}"])})[0, 0]
    assert found == (datetime.strptime(f"{day:{written}}", written) - start) / timedelta(days=1)


def test_dates_that_could_be_read_in_two_ways_are_refused(tmp_path: Path) -> None:
    rows = "".join(f"{k:02d}/0{1 + k % 3}/2024,{k}\n" for k in (5, 3, 12, 7, 9))
    says = "column 'd' holds '05/03/2024'; all its dates can be read as day/month/year and as month/day/year; write"
    with pytest.raises(InputError, match=says):
        made(tmp_path, f"d,y\n{rows}")
    with pytest.raises(InputError, match=says):
        made(tmp_path, f"d,x,y\n{rows.replace(',', ',1,')}", time="d", use="x")


def test_the_order_of_rows_tells_how_dates_are_read(tmp_path: Path) -> None:
    days = ["10/01/2024", "11/01/2024", "12/01/2024", "02/02/2024", "03/03/2024", "03/03/2024", "01/04/2024"]
    rows = "".join(f"{day},{k},{k % 3}\n" for k, day in enumerate(days))
    table = made(tmp_path, f"d,x,y\n{rows}", time="d")
    assert table.X[:, 0].tolist() == list(range(7))
    assert "d is read as day/month/year" in table.notes


@pytest.mark.parametrize(
    "cells", [["31/05/2024", "05/31/2024"], ["31/05/24", "30/04/24"], ["31.Mai.2024", "1.Mai.2024"]]
)
def test_what_looks_like_dates_and_cannot_be_read_is_told(cells: list[str], tmp_path: Path) -> None:
    rows = "".join(f"{cells[k % 2]},{k},{k % 3}\n" for k in range(10))
    table = made(tmp_path, f"d,x,y\n{rows}")
    assert "d looks like dates: write them as 2024-05-31" in table.notes[0]


def test_a_file_without_header_says_how_its_columns_are_called(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown column 'T'; .*t.csv has no header, .* counted: 3 is the last"):
        made(tmp_path, "1,2,3\n4,5,6\n", "T")
    with pytest.raises(InputError, match=r"unknown column 'T'; did you mean 'T1'. known: x, T1$"):
        made(tmp_path, "x,T1\n4,5\n", "T")


def test_a_first_row_with_texts_is_known_by_texts_that_come_again(tmp_path: Path) -> None:
    table = made(tmp_path, "101438.1,1.87e-06,dry\n99120.5,2e-06,wet\n98000.25,3e-06,dry\n", "3")
    assert table.X.shape == (3, 2)
    assert made(tmp_path, "place,2019,2020\noslo,3,0\nrome,4,1\n", "2020").X.shape == (2, 2)
    with pytest.raises(InputError, match=r"unknown column '3'.*; if t.csv has no header, add a first line of names$"):
        made(tmp_path, "1.5,2,id7\n2.5,0,id8\n", "3")


def test_a_first_row_with_a_date_above_dates_is_known(tmp_path: Path) -> None:
    rows = "".join(f"{k}.5,cellar-{k},2024-01-01 {k:02d}:00:00,{'on' if k % 3 else 'off'}\n" for k in range(12))
    assert made(tmp_path, rows, "4").X.shape[0] == 12
    assert made(tmp_path, "place,2024-01-01\noslo,3\nrome,4\noslo,5\n", "2024-01-01").X.shape == (3, 1)
    with pytest.raises(InputError, match="known: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11; "):
        made(tmp_path, f"{','.join('1' * 11)}\n" * 2, "x")


def test_dates_become_days_and_cycles(tmp_path: Path) -> None:
    days = "".join(f"{k + 1:02d}.03.2024 {6 * (k % 4):02d}:00,{k % 3}\n" for k in range(28))
    table = made(tmp_path, f"d,y\n{days}")
    assert table.encoding
    assert table.encoding.names[:3] == ["days of d", "sine of day of d", "cosine of day of d"]
    np.testing.assert_allclose(table.X[:4, 1], [0, 1, 0, -1], atol=1e-9)
    assert table.X[27, 0] - table.X[0, 0] == 27.75


@pytest.mark.parametrize(
    ("labels", "loss", "classes"),
    [
        ("0 1 0 1", "logistic", [0, 1]),
        ("no yes yes no", "logistic", ["no", "yes"]),
        ("a b c a", "softmax", ["a", "b", "c"]),
        ("0 1 2 3", "squared", None),
        ("0.5 2 2.5 0.5", "squared", None),
    ],
)
def test_the_loss_follows_from_the_target(labels: str, loss: str, classes: Any, tmp_path: Path) -> None:
    table = made(tmp_path, "x,y\n" + "".join(f"{k},{label}\n" for k, label in enumerate(labels.split())))
    assert table.encoding
    assert (table.loss.name, table.encoding.classes) == (loss, classes)


def test_labels_are_as_a_loss_takes_them(tmp_path: Path) -> None:
    table = made(tmp_path, "x,y\n1,2\n2,5\n3,2\n")
    assert table.learned_by(omkl.Logistic()).y.tolist() == [-1, 1, -1]
    assert table.learned_by(omkl.Softmax()).y.tolist() == [0, 1, 0]
    assert table.learned_by(omkl.Squared()).y.tolist() == [2, 5, 2]
    texts = made(tmp_path, "x,y\n1,a\n2,b\n3,c\n4,a\n")
    for loss, message in (
        (omkl.Logistic(), "has 3 values; the logistic loss is for two"),
        (omkl.Squared(), "of texts"),
    ):
        with pytest.raises(InputError, match=message):
            texts.learned_by(loss)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("x,y\n1,0\n2,1\n", {"target": "y", "use": "y"}, "the target and more"),
        ("x,y\n1,a1\n2,a2\n3,a3\n", {"target": "y"}, "3 different texts in 3 rows"),
        ("x,y\nmon,0\ntue,1\n", {"target": "y", "time": "x"}, "column 'x' holds 'mon'; a time is a number or written"),
        ("x,y\n,\n", {"target": "y"}, "no row"),
        ("x,y\n7,0\n7,1\n", {"target": "y"}, "leave no feature .x is left out: it is 7 everywhere"),
        ("x,u,v\n1,2,a\n2,3,b\n", {"target": "u,v"}, "column 'v', line 2 holds 'a'; it must be a number"),
        ("x,y\n\0\0,1\n", {"target": "y"}, "bytes that are no text"),
        ('x,y\n"' + "a" * 200_000 + '",1\n', {"target": "y"}, "is a quotation mark missing"),
    ],
)
def test_what_cannot_be_learned_is_refused(text: str, options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        made(tmp_path, text, **options)


def test_roles_without_a_table_are_refused() -> None:
    with pytest.raises(InputError, match="node='a' for the data set 'banana'; it is for"):
        omkl.Experiment(data="banana", node="a")
    with pytest.raises(
        InputError, match=r"a data frame needs the column to predict, one of x, y; name it: target=\"y\""
    ):
        omkl.Experiment(data=Frame({"x": [1, 2], "y": [0, 1]}))


@pytest.fixture(scope="module")
def rooms() -> Frame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    room = np.tile(["hall", "bath", "attic"], 40)
    return Frame({"x": 1e5 + x[:, 0], "z": x[:, 1], "room": room, "price": 5e5 + 1e4 * x.sum(axis=1)})


def test_names_and_units_stay_to_the_end(rooms: Frame, tmp_path: Path) -> None:
    result = omkl.simulate(rooms, target="price", node="room", method=omkl.Gossip(features=20, learner=omkl.Newton()))
    assert result.names == ("attic", "bath", "hall")
    assert result.config["standardize"] is True
    clear = np.asarray(rooms["price"].to_numpy()).var()
    assert 0.5 * clear < result.config["target_variance"] < 2 * clear
    result.save(tmp_path / "run")
    model = omkl.load(tmp_path / "run").model(node="bath")
    model.save(tmp_path / "m.npz")
    again = omkl.load_model(tmp_path / "m.npz")
    assert again.encoding == model.encoding
    predicted = again.predict(rooms)
    assert np.array_equal(predicted, model.predict(rooms))
    assert 4e5 < predicted.min() < predicted.max() < 6e5
    with pytest.raises(InputError, match="column 'x' is missing; this model takes columns x, z"):
        model.predict(Frame({"z": [1.0, 2.0]}))


def test_labels_come_back_as_they_stand_in_the_table(rooms: Frame) -> None:
    labels = np.where(np.asarray(rooms["z"].to_numpy()) > 0, "warm", "cold")
    frame = Frame({name: rooms[name].to_numpy() for name in ("x", "z")} | {"felt": labels})
    method = omkl.Gossip(features=20, learner=omkl.Newton())
    for loss in ("logistic", "softmax"):
        result = omkl.simulate(frame, target="felt", nodes=3, method=method.replace(loss=loss))
        assert set(result.model().predict(frame).tolist()) == {"warm", "cold"}


def test_nodes_of_table_and_graph_are_matched_by_name(rooms: Frame, tmp_path: Path) -> None:
    (tmp_path / "links.csv").write_text("hall,bath\nbath,attic\n")
    method = omkl.Gossip(features=2)
    result = omkl.simulate(rooms, tmp_path / "links.csv", target="price", node="room", method=method)
    assert (result.names, result.config["topology"]["edges"]) == (("attic", "bath", "hall"), [[0, 1], [1, 2]])
    (tmp_path / "links.csv").write_text("hall,bath\nbath,cellar\n")
    with pytest.raises(InputError, match="the graph lacks 'attic', the data lack 'cellar'"):
        omkl.simulate(rooms, tmp_path / "links.csv", target="price", node="room", method=method)


def test_inputs_in_unlike_units_are_noticed(rooms: Frame) -> None:
    x, z = (np.asarray(rooms[name].to_numpy()) for name in ("x", "z"))
    X, method = np.stack([(x - 1e5) * 900, z], axis=1), omkl.Gossip(features=2, sigma="median")
    with pytest.warns(UserWarning, match="input 0 varies so much more .*standardize=True"):
        omkl.simulate((X, np.sign(z)), nodes=3, method=method)
    omkl.simulate((X, np.sign(z)), nodes=3, method=method, standardize=True)


def test_a_model_says_which_columns_it_takes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = "".join(f"{1013 + 8 * a:.1f},{'uvw'[k % 3]},{a:.3f}\n" for k, a in enumerate(rng.standard_normal(60)))
    (tmp_path / "t.csv").write_text(f"pressure,place,y\n{rows}")
    model = omkl.simulate(tmp_path / "t.csv", nodes=2, target="y").model()
    assert "pressure, place" in str(model)
    one = {"pressure": 1013.0, "place": "v"}
    assert model.predict([one, one]).shape == (2,)
    needs = r"takes .*columns pressure, place \(3 texts\): a CSV or Parquet file, a data frame or a list of dicts"
    for wrong, says in (
        ([[1013.0, "v"]], "X is not of numbers"),
        ([[1013.0, 0.0]], r"X has shape \(1, 2\)"),
        ([{"place": "v"}], "column 'pressure' is missing"),
    ):
        with pytest.raises(InputError, match=f"{says}.*{needs}"):
            model.predict(wrong)
    for changed, says in (
        ({"pressure": 101.3}, "pressure holds 101.3, far from the 101[0-9]+ .* another unit"),
        ({"pressure": "high"}, "pressure holds 'high', no number"),
        ({"place": "z"}, "place holds 'z', an unknown text"),
    ):
        with pytest.warns(UserWarning, match=says):
            model.predict([one | changed])


def test_a_model_knows_the_largest_of_a_column_with_heavy_tails(tmp_path: Path) -> None:
    big = np.ones(400)
    big[::7], big[-1] = 2.0, 1e9
    frame = Frame({"big": big, "x": np.arange(400) % 3, "y": np.arange(400) % 2})
    model = omkl.simulate(frame, nodes=2, target="y", shuffle=None).model()
    model.save(tmp_path / "m.npz")
    loaded = omkl.load_model(tmp_path / "m.npz")
    one = {"big": 1e9, "x": 1}
    model.predict(frame), loaded.predict([one])
    with pytest.warns(
        UserWarning, match=r"big holds 1e\+12, far from .* seen, perhaps in another unit; the prediction"
    ):
        loaded.predict([one | {"big": 1e12}])
    assert loaded.encoding
    record = loaded.encoding.record()
    del record["columns"][0]["seen"]  # as in files before there was such
    earlier = encoding.Encoding.of(record)
    assert earlier.record() == record
    with pytest.warns(UserWarning, match="big holds 1e.09"):
        replace(loaded, encoding=earlier).predict([one])


def test_an_estimator_takes_no_model_of_a_table() -> None:
    estimators = pytest.importorskip("omkl.sklearn")
    model = omkl.simulate(Frame({"x": np.arange(60) % 7, "y": np.arange(60) % 2}), nodes=2, target="y").model()
    with pytest.raises(InputError, match="the model is of a table"):
        estimators.OMKLClassifier.from_model(model, classes=["dry", "wet"])


def test_three_columns_that_count_alike_are_told(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    rows, labelled = omkl.Landmarks(), omkl.Landmarks(source="labelled")
    for columns, basis, said in ((3, rows, True), (2, rows, False), (3, labelled, False)):
        table = data.Table(X[:, :columns], X[:, 0])
        caplog.clear()
        omkl.simulate(table, nodes=4, basis=basis)  # a warning: seen in Python as well
        assert ("count alike" in caplog.text) is said
        assert (
            '--basis \'{source="labelled"}\' (basis=omkl.Landmarks(source="labelled")); try it' in caplog.text
        ) is said
