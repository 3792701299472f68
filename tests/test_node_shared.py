"""The inputs that a network shares, made from a table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omkl import storage
from omkl.errors import InputError
from omkl.node.setup.shared import write
from omkl.node.setup.template import write as write_network


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng, path = np.random.default_rng(0), tmp_path / "rows.csv"
    rows = np.column_stack([rng.normal(size=(40, 2)), rng.choice([-1, 1], 40), np.arange(40)])
    path.write_text("u,v,y,hour\n" + "".join(",".join(map(str, row)) + "\n" for row in rows.tolist()))
    return path


def test_some_rows_are_shared_without_labels(table: Path, tmp_path: Path) -> None:
    made = write(table, tmp_path / "some.npz", rows=30, drop=["hour"])
    assert made == (30, 40, ["u", "v"], [], ["y"], False)
    arrays, every = storage.load(tmp_path / "some.npz").arrays, np.genfromtxt(table, delimiter=",", skip_header=1)
    assert list(arrays) == ["X"]
    assert arrays["X"].shape == (30, 2)
    assert {tuple(row) for row in arrays["X"].tolist()} < {tuple(row) for row in every[:, :2].tolist()}
    again = write(table, tmp_path / "again.npz", rows=30, drop=["hour"], seed=1)
    assert again == made
    assert not np.array_equal(storage.load(tmp_path / "again.npz").arrays["X"], arrays["X"])


def test_labels_stay_with_their_rows(table: Path, tmp_path: Path) -> None:
    assert write(table, tmp_path / "both.npz", rows=20, labels=["y"]).labels == ["y"]
    arrays, every = storage.load(tmp_path / "both.npz").arrays, np.genfromtxt(table, delimiter=",", skip_header=1)
    hours = arrays["X"][:, 2].astype(int)
    np.testing.assert_array_equal(arrays["y"], every[hours, 2])
    config = write_network(tmp_path / "network.toml", calibration="both.npz")
    assert config.labels is not None
    assert config.inputs == 3


def test_centers_are_nobodys_rows(table: Path, tmp_path: Path) -> None:
    write(table, tmp_path / "centers.npz", rows=5, drop=["hour"], by_centers=True)
    X, every = storage.load(tmp_path / "centers.npz").arrays["X"], np.genfromtxt(table, delimiter=",", skip_header=1)
    assert X.shape == (5, 2)
    assert not {tuple(row) for row in X.tolist()} & {tuple(row) for row in every[:, :2].tolist()}


@pytest.mark.parametrize(("scale", "shift", "unlike"), [(1, 0, False), (30, 0, True), (1, 30, True)])
def test_columns_that_want_scaling_are_told(tmp_path: Path, scale: float, shift: float, unlike: bool) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2)) * (1, scale) + (0, shift)
    (tmp_path / "rows.csv").write_text("u,v\n" + "".join(f"{u},{v}\n" for u, v in rows))
    assert write(tmp_path / "rows.csv", tmp_path / "c.npz", label="none").unlike is unlike


def test_a_label_is_not_shared_unasked(tmp_path: Path) -> None:
    path, out = tmp_path / "rows.csv", tmp_path / "c.npz"

    def columns(header: str, **settings: Any) -> tuple[list[str], list[str]]:
        path.write_text(header + "\n" + "".join(f"{k},{k % 3},{k % 2}\n" for k in range(9)))
        out.unlink(missing_ok=True)
        made = write(path, out, **settings)
        return made.columns, made.without

    for name in ("y", "Label", "target", "CLASS"):
        assert columns(f"u,{name},v") == (["u", "v"], [name])
    says = r"rows\.csv has no column y, label, .*; write --label alarm if the last column is the label, or --label none"
    with pytest.raises(InputError, match=says):
        columns("u,v,alarm")
    assert not out.exists()
    assert columns("u,v,alarm", label="alarm") == (["u", "v"], ["alarm"])
    assert columns("u,v,alarm", label="none") == (["u", "v", "alarm"], [])
    assert columns("u,v,alarm", labels=["alarm"]) == (["u", "v"], [])
    assert columns("u,v,alarm", label="alarm", labels=["alarm"]) == (["u", "v"], [])
    with pytest.raises(InputError, match="unknown column 'alarms'"):
        columns("u,v,alarm", label="alarms")


def test_init_asks_whether_a_column_is_the_label(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("u,v,alarm\n" + "".join(f"{k},{k % 3},{k % 2}\n" for k in range(9)))
    write(tmp_path / "rows.csv", tmp_path / "c.npz", label="none")
    with pytest.raises(InputError, match="have 3 numbers; is one of their columns the label"):
        write_network(tmp_path / "network.toml", inputs=2, calibration="c.npz")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"drop": ["w"]}, "unknown column 'w'; known: u, v, y, hour"),
        ({"labels": ["z"]}, "unknown column 'z'"),
        ({"drop": ["u", "v", "hour"]}, "columns u, v, y, hour leave no feature"),
        ({"rows": 0}, "rows"),
        ({"labels": ["y"], "by_centers": True}, "centers and labels; a center has no label of its own"),
    ],
)
def test_what_cannot_be_shared(table: Path, tmp_path: Path, settings: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        write(table, tmp_path / "c.npz", **settings)  # type: ignore[arg-type]
    assert not (tmp_path / "c.npz").exists()


def test_rows_that_say_nothing_and_files_that_exist(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("u,v\n1,2\n1,2\n")
    with pytest.raises(InputError, match=r"calibration: .* has 2 rows, all equal"):
        write(tmp_path / "rows.csv", tmp_path / "c.npz", label="none")
    (tmp_path / "c.npz").touch()
    with pytest.raises(InputError, match=r"c\.npz exists; nodes may share it already; remove it"):
        write(tmp_path / "rows.csv", tmp_path / "c.npz")
