import gzip
import os
import shutil
import sys
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from omkl import data
from omkl.data import files, lookup, readers, sensors
from omkl.data.files import Raw
from omkl.errors import InputError, MissingExtraError
from omkl.losses import Softmax

# Read before `bare` hides it.
FULL = Path(os.environ.get("OMKL_DATA") or "absent")


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not (FULL / name).is_dir(), reason=f"needs {name} in $OMKL_DATA")


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without data: no local folder, an empty cache, no package, no network."""
    monkeypatch.setenv("OMKL_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "package_folder", lambda package: None)
    monkeypatch.setattr(files, "fetch", offline)
    return tmp_path


def offline(openml: int) -> Raw:
    raise OSError("no network")


def banana_at_openml(openml: int) -> Raw:
    assert openml == 1460
    table = np.arange(10600.0).reshape(5300, 2)
    return Raw(table, np.where(np.arange(5300) < 2376, 2.0, 1.0))


@pytest.mark.parametrize("source", [pytest.param("file", marks=needs("banana")), "river"])
def test_banana(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if source == "river":
        pytest.importorskip("river")
    monkeypatch.setenv("OMKL_DATA", str(FULL) if source == "file" else "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data.status("banana").place == (str(FULL / "banana") if source == "file" else "package river")
    X, y, loss, _ = data.load("banana")
    assert (X.shape, X.dtype.name, y.dtype.name, loss) == ((5300, 2), "float32", "float32", "logistic")
    assert (np.sum(y == -1), np.sum(y == 1)) == (2924, 2376)
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(X.std(axis=0), 1, atol=1e-3)
    # The same arrays to the bit from either source.
    assert files.digest(X, y) == "dc7f2c0874972a46a0716032d7bc8fb9c992faea93fc748a8917c84aa3c24b49"


@needs("credit_card")
def test_credit_card_is_standardized() -> None:
    X, y, loss, _ = data.load("credit_card")
    assert (X.shape, X.dtype.name, loss) == ((30000, 23), "float32", "logistic")
    assert (np.sum(y == 1), np.sum(y == -1)) == (6636, 23364)
    np.testing.assert_allclose(X.mean(axis=0, dtype=np.float64), 0, atol=1e-6)
    np.testing.assert_allclose(X.std(axis=0, dtype=np.float64), 1, atol=1e-6)
    assert len(np.unique(X[:, 1])) == 2  # SEX: the row number is gone


@needs("mnist")
def test_mnist() -> None:
    X, y, *_ = data.load("MNIST")
    assert (X.shape, X.dtype.name) == ((70000, 784), "float32")
    assert (X.min(), X.max()) == (0, 1)
    assert (np.sum(y == 1), np.sum(y == -1)) == (6825, 63175)
    # 5851 eights among the 60000 training images, which come first; the first eight is image 17.
    assert np.sum(y[:60000] == 1) == 5851
    assert np.argmax(y == 1) == 17


def test_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setenv("OMKL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data.status("digits").place == "package sklearn"
    X, y, loss, _ = data.load("digits")
    folder = files.package_folder("sklearn")
    assert folder is not None
    (tmp_path / "digits").mkdir()
    shutil.copy(folder / "datasets/data/digits.csv.gz", tmp_path / "digits")
    assert data.status("digits").place == str(tmp_path / "digits")
    assert files.digest(*data.load("digits")[:2]) == files.digest(X, y)
    assert (X.shape, X.dtype.name, X.max(), loss) == ((1797, 64), "float32", 1, "logistic")
    assert (np.sum(y == 1), np.sum(y == -1)) == (174, 1623)


@pytest.mark.parametrize("name", [name for name in data.DATA_SETS if not name.startswith("digits")])
def test_every_set_is_whole(name: str) -> None:
    chosen = data.known(name)
    if not (FULL / chosen.folder).is_dir():
        pytest.skip(f"needs {chosen.folder} in $OMKL_DATA")
    X, y, loss, graph = data.load(name)
    assert (X.dtype.name, y.dtype.name, loss) == ("float32", "float32", chosen.loss)
    assert np.isfinite(X).all()
    assert (
        X.shape[:-1] == y.shape == ((chosen.n,) if chosen.nodes is None else (chosen.n // chosen.nodes, chosen.nodes))
    )
    assert (graph is None) == (chosen.nodes is None)
    labels = np.unique(y).tolist()
    if isinstance(loss, Softmax):
        assert labels == list(range(loss.classes or 0))
    else:
        assert len(labels) > 20 if chosen.task == "regression" else labels == [-1, 1]


def test_ten_digits() -> None:
    pytest.importorskip("sklearn")
    X, y, loss, _ = data.load("digits10")
    assert loss == Softmax(10)
    assert np.bincount(y.astype(int)).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    eight = data.load("digits")
    np.testing.assert_array_equal(eight.X, X)
    np.testing.assert_array_equal(eight.y == 1, y == 8)


@needs("room_occupancy")
def test_room_occupancy() -> None:
    count, occupied = data.load("room_occupancy"), data.load("room_occupied")
    assert np.bincount(count.y.astype(int)).tolist() == [8228, 459, 748, 694]
    np.testing.assert_array_equal(occupied.y == 1, count.y > 0)
    np.testing.assert_allclose(count.X.mean(axis=0, dtype=np.float64), 0, atol=1e-6)


@needs("online_mkl_benchmarks")
@pytest.mark.parametrize("name", ["Twitter", "Air", "Energy"])
def test_matlab_files(name: str) -> None:
    io = pytest.importorskip("scipy.io")
    told = io.loadmat(FULL / "online_mkl_benchmarks" / f"{name}Data.mat")
    X, y, *_ = data.load(name)
    for here, there in ((X, told["X"].T), (y[:, None], told["y"])):
        assert (there.min(), there.max()) == (0, 1)
        np.testing.assert_allclose(here, (there - there.mean(axis=0)) / there.std(axis=0), atol=1e-4)


@needs("beijing_multisite")
def test_the_air_of_beijing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "_station", cache(sensors._station))  # four sets of the same files
    rows, stations = data.load("beijing"), data.load("beijing_stations")
    high, stations_high = data.load("beijing_high"), data.load("beijing_stations_high")
    for X, y, *_ in (rows, stations):
        np.testing.assert_allclose(X.reshape(-1, 16).mean(axis=0, dtype=np.float64), 0, atol=1e-6)
        np.testing.assert_allclose((y.mean(dtype=np.float64), y.std(dtype=np.float64)), (0, 1), atol=1e-6)
    for regression, binary in ((rows, high), (stations, stations_high)):
        np.testing.assert_array_equal(regression.X, binary.X)
        assert regression.y[binary.y > 0].min() > regression.y[binary.y < 0].max()
    # Every station has the same hour: its sine and cosine, and those of the season.
    assert (stations.X[:, :, -4:] == stations.X[:, :1, -4:]).all()
    assert stations.graph is not None
    assert not stations.graph.components.any()
    assert {(1, 2), (6, 8)} <= {tuple(edge) for edge in stations.graph.edges.tolist()}  # in the north and northeast
    assert len(stations.graph.edges) == 32


@needs("beijing_multisite")
def test_hours_of_beijing_by_hand() -> None:
    folder = FULL / "beijing_multisite"
    hours = sensors.beijing_hours([file.read(folder) for file in data.known("beijing").files])
    assert hours.shape == (35064, 12, 17)
    # Dongsi, 1 March 2013, 0 h: 9,9,3,17,300,89,-0.5,1024.5,-21.4,0,"NNW",5.7
    expected = [9, 9, 3, 17, 300, 89, -0.5, 1024.5, -21.4, 0, 5.7, -np.sin(np.pi / 8), np.cos(np.pi / 8), 0, 1, 0, 1]
    np.testing.assert_allclose(hours[0, 3], expected, atol=1e-12)
    np.testing.assert_allclose(hours[6, 0, 13:15], [1, 0], atol=1e-12)
    assert np.isnan(hours[..., 0]).sum() == 8739
    assert not np.isnan(hours[..., 13:]).any()


@needs("los_loop")
def test_speeds_are_foretold_from_those_before() -> None:
    X, y, _, graph = data.load("los_loop")
    speeds = readers.csv((FULL / "los_loop" / "los_speed.csv.gz").read_bytes(), skiprows=1)
    speeds = (speeds - speeds.mean()) / speeds.std()
    t, j = 100, 7  # the first round has the readings 0 ... 11 and is asked for 14
    np.testing.assert_allclose(X[t, j, :12], speeds[t + 11 - np.arange(12), j], atol=1e-5)
    np.testing.assert_allclose(y[t, j], speeds[t + 14, j], atol=1e-5)
    np.testing.assert_allclose(np.hypot(X[..., 12], X[..., 13]), 1, atol=1e-6)
    assert graph is not None
    assert not graph.components.any()
    assert len(graph.edges) == (2833 - 207) // 2 + 1


def test_a_package_is_found_without_importing_it() -> None:
    folder = files.package_folder("omkl")
    assert folder is not None
    assert (folder / "data").is_dir()
    assert files.package_folder("no_such_package") is None


@pytest.mark.parametrize("name", ["Credit-Card", "CREDIT_CARD", "credit_card"])
def test_case_hyphen_and_underscore_make_no_difference(name: str, bare: Path) -> None:
    assert data.status(name).name == "credit_card"


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'banana'"):
        data.load("bananas")


def test_what_is_not_here_is_fetched_once_and_kept(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "fetch", banana_at_openml)
    first = data.load("banana")
    assert (np.sum(first.y == 1), first.y[0], first.y[-1]) == (2376, 1, -1)
    monkeypatch.setattr(files, "fetch", offline)
    again = data.load("banana")
    np.testing.assert_array_equal(again.X, first.X)
    np.testing.assert_array_equal(again.y, first.y)
    assert data.status("banana")[6:9] == (str(bare / "cache" / "omkl" / "banana.npz"), True, "")
    assert [path.name for path in (bare / "cache" / "omkl").iterdir()] == ["banana.npz"]


@needs("banana")
def test_the_local_folder_goes_before_the_cache(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "fetch", banana_at_openml)
    data.load("banana")
    monkeypatch.setenv("OMKL_DATA", str(FULL))
    assert data.status("banana").place == str(FULL / "banana")
    assert data.load("banana").X[0, 0] == np.float32(1.617466)


def test_the_cache_goes_before_packages(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "fetch", banana_at_openml)
    data.load("banana")
    (bare / "datasets").mkdir()
    (bare / "datasets" / "banana.zip").write_bytes(b"")
    monkeypatch.setattr(files, "package_folder", lambda package: bare)
    assert str(data.status("banana").place).endswith("banana.npz")


def test_the_cache_is_in_the_home_folder_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert files.cache_folder() == Path.home() / ".cache" / "omkl"


def test_a_wrong_checksum_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "banana").mkdir()
    (bare / "banana" / "banana.all.txt").write_bytes(b"1 1:0.5 2:0.5 \n")
    monkeypatch.setenv("OMKL_DATA", str(bare))
    with pytest.raises(
        InputError, match=r"banana\.all\.txt has sha256 .* must have sha256 5b24172.*; replace the file"
    ):
        data.load("banana")
    found = data.status("banana")
    assert (found.place, found.verified) == (str(bare / "banana"), False)
    assert "replace the file" in found.remedy


@needs("mnist")
def test_a_set_of_several_files_needs_them_all(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "mnist").mkdir()
    shutil.copy(FULL / "mnist" / "train-images-idx3-ubyte.gz", bare / "mnist")
    monkeypatch.setenv("OMKL_DATA", str(bare))
    with pytest.raises(InputError, match=r"lacks train-labels-idx1-ubyte\.gz"):
        data.load("mnist")


def test_a_changed_package_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "datasets").mkdir()
    with zipfile.ZipFile(bare / "datasets" / "banana.zip", "w") as archive:
        archive.writestr("banana.all.txt", "1 1:0.5 2:0.5 \n")
    monkeypatch.setattr(files, "package_folder", lambda package: bare)
    assert not data.status("banana").verified
    with pytest.raises(InputError, match="must have sha256"):
        data.load("banana")


def test_a_damaged_cache_is_refused(tmp_path: Path) -> None:
    X, y = np.ones((2, 1), "float32"), np.ones(2, np.float32)
    path = tmp_path / "set.npz"
    np.savez(path, X=X, y=y, sha256=np.array("0" * 64))
    with pytest.raises(InputError, match=r"not 0000.* remove it"):
        files.restore(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match=r"cannot be read.* remove it"):
        files.restore(path)


def shorter(raw: Raw) -> Raw:
    return Raw(raw.table[1:], raw.labels[1:])


def narrower(raw: Raw) -> Raw:
    return Raw(raw.table[:, :1], raw.labels)


def swapped(raw: Raw) -> Raw:
    return Raw(raw.table, -raw.labels)


@pytest.mark.parametrize("change", [shorter, narrower, swapped])
def test_size_and_classes_are_checked(
    change: Callable[[Raw], Raw], bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "fetch", lambda openml: change(banana_at_openml(openml)))
    with pytest.raises(InputError, match=r"banana from OpenML 1460 has n, d, positives .* must be \(5300, 2, 2376\)"):
        data.load("banana")
    assert data.status("banana").place is None


def test_nominal_columns_are_decoded() -> None:
    raw = files.decode(np.array([[0.0, 7], [1, 8]]), np.array(["1", "0"], dtype=object), ["a", "b"], {"a": ["2", "-1"]})
    np.testing.assert_array_equal(raw.table, [[2, 7], [-1, 8]])
    np.testing.assert_array_equal(raw.labels, [1, 0])


def test_without_network_the_remedy_is_told(bare: Path) -> None:
    with pytest.raises(InputError, match=r"no network.*put train-images.* in \$OMKL_DATA/mnist/, or load it once"):
        data.load("mnist")


def test_a_set_that_nobody_serves_names_its_files(bare: Path) -> None:
    with pytest.raises(InputError, match=r"air is not here.*; put AirData\.mat in \$OMKL_DATA/online_mkl_benchmarks/"):
        data.load("air")


def test_without_scikit_learn_the_extra_is_told(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingExtraError, match=r"omkl\[sklearn\]"):
        data.load("digits")
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match=r"omkl\[sklearn\]"):
        files.fetch(1460)


def test_a_cache_that_cannot_be_written_only_warns(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "fetch", banana_at_openml)
    (bare / "cache").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="cannot be kept"):
        assert len(data.load("banana").X) == 5300


def test_inventory_lists_every_set(bare: Path) -> None:
    listed = data.inventory()
    assert [one.name for one in listed] == list(data.DATA_SETS)
    assert all(one.place is None and not one.verified and one.remedy and one.license for one in listed)


@needs("credit_card")
def test_gzip_is_hashed_as_it_lies(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "credit_card").mkdir()
    content = gzip.decompress((FULL / "credit_card" / "UCI_Credit_Card.csv.gz").read_bytes())
    (bare / "credit_card" / "UCI_Credit_Card.csv.gz").write_bytes(gzip.compress(content, compresslevel=1))
    monkeypatch.setenv("OMKL_DATA", str(bare))
    with pytest.raises(InputError, match="979921 bytes"):
        lookup.load("credit_card")
