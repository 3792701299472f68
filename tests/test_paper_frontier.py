import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, SGDClassifier

from omkl.methods import Gossip, Local, paper, recommended
from omkl.simulator import simulate
from omkl_lab.paper import run
from omkl_lab.paper.experiments import Cases, Store
from omkl_lab.paper.frontier import lines
from omkl_lab.paper.frontier.figure import (
    LINES,
    STYLES,
    apart,
    at_most_the_papers,
    beyond,
    frontier_body,
    frontier_csv,
    frontier_figure,
    headline,
)  # fmt: skip
from omkl_lab.paper.frontier.lines import Table, online
from omkl_lab.paper.frontier.study import DATA, FAMILIES, PRESET, VARIATIONS, Frontier, Point, Study, alone, front
from omkl_lab.paper.run import Paper

FINITE = st.floats(0, 1)


def point(family: str, size: float, loss: float, what: str = "") -> Point:
    return Point(family, what, size, loss, 0.001)


def found(scale: float = 1.0) -> Frontier:
    """Families of two points each, the recommended one best."""
    others = [name for name in STYLES if name not in ("paper", "recommended")]
    points = [point("paper", 48, 0.6 * scale, "paper")]
    points += [point(name, size, 0.5 * scale - 0.01 * k - size / 1e4, f"{size}")
               for k, name in enumerate(others) for size in (30, 60)]  # fmt: skip
    points += [point("recommended", 59, 0.3 * scale, PRESET), point("recommended", 40, 0.33 * scale, "rank 80"),
               point("recommended", 10, 0.36 * scale, "seldom")]  # fmt: skip
    return Frontier(points, {name: point(name, 0, 0.25 + 0.01 * k) for k, name in enumerate(LINES)})


@given(st.lists(st.tuples(FINITE, FINITE), min_size=1))
def test_front_is_what_no_point_beats(pairs: list[tuple[float, float]]) -> None:
    points = [point("x", *pair) for pair in pairs]
    kept = front(points)
    for p in points:
        beaten = any(q.bytes <= p.bytes and q.loss <= p.loss and q[2:4] != p[2:4] for q in points)
        assert beaten == (p[2:4] not in [k[2:4] for k in kept])
    assert kept == sorted(kept, key=lambda p: p.bytes)


@given(st.lists(FINITE, min_size=1), st.floats(0.01, 0.2))
def test_labels_apart(heights: list[float], gap: float) -> None:
    moved = np.array(apart(heights, gap))
    order = np.argsort(heights, kind="stable")
    assert (np.diff(moved[order]) > gap - 1e-9).all()
    assert moved.mean() == pytest.approx(np.mean(heights), abs=1e-9)
    if (np.diff(np.sort(heights)) > gap).all():
        np.testing.assert_allclose(moved, heights, atol=1e-9)


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_one_place_is_scikit_learns_sgd(power: float, rng: np.random.Generator) -> None:
    z = rng.normal(size=(200, 5))
    y = np.where(z[:, 0] + rng.normal(size=200) > 0, 1.0, -1.0)
    rate = 0.7
    theirs = SGDClassifier(loss="log_loss", penalty=None, learning_rate="invscaling", eta0=rate, power_t=power)
    total = 0.0
    for t, (row, label) in enumerate(zip(z, y, strict=True)):
        total += np.log1p(np.exp(-label * theirs.decision_function(row[None])[0])) if t else np.log(2)
        theirs.partial_fit(row[None], [label], classes=[-1, 1])
    ours = online(np.c_[z, np.ones(200)], y, np.array([9.0, rate]), np.array([0.1, power]))
    assert ours[1] == pytest.approx(total / 200, rel=1e-9)


def test_batch_optimum_is_scikit_learns(rng: np.random.Generator) -> None:
    X = rng.normal(size=(150, 2))
    table = Table(X, np.where(np.hypot(*X.T) > 1, 1.0, -1.0), 1.5)
    z, out = table.features(0.5, lines.BATCH_FEATURES, 0), np.arange(150) % 5 == 2
    theirs = LogisticRegression(C=10, fit_intercept=False, tol=1e-10, max_iter=1000).fit(z[~out], table.y[~out])
    expected = np.log1p(np.exp(-table.y[out] * theirs.decision_function(z[out]))).mean()
    assert table.held_out(0.5, 10.0, 2) == pytest.approx(expected, rel=1e-4)
    assert (z[:, -1] == 1).all()


def test_lines_of_a_small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "BANDWIDTHS", (0.35, 30.0))  # the second is as good as linear, and so useless
    monkeypatch.setattr(lines, "BATCH_FEATURES", 20)
    told: list[tuple[int, int]] = []
    sgd = lines.tuned_sgd("banana", 2, lambda *done: told.append(done))
    batch = lines.batch_optimum("banana", lambda *done: told.append(done))
    assert told[1] == (2, 2)
    assert told[-1] == (2 * 3 + 5, 2 * 3 + 5)
    assert 0.2 < batch["loss"] < sgd["loss"] < 0.35
    assert str(sgd["what"]).startswith("sigma 0.35")


def test_families_differ_in_what_they_send() -> None:
    assert VARIATIONS["quantizers"][PRESET] == recommended()
    for family in FAMILIES.values():
        assert len({(one.channel.quantizer, one.mixing.gamma) for one in family.tried.values()}) == 1
    for variations in VARIATIONS.values():
        assert (
            len({(one.bank.basis, one.bank.sigma, one.bank.kernels, one.learner) for one in variations.values()}) == 1
        )
    lonely = alone(recommended())
    assert isinstance(lonely, Local)
    assert (lonely.learner, lonely.bank.basis, lonely.hedge_rate) == (
        recommended().learner,
        recommended().bank.basis,
        1.0,
    )


def test_points_are_means_of_simulations(tmp_path: Path) -> None:
    (made,) = Study(Store(tmp_path), "banana", 5, lambda *a: None).paper()
    first = simulate("banana", "path", 20, paper(), seeds=2, shuffle=0)
    rest = simulate("banana", "path", 20, paper(), seeds=3, seed=2, shuffle=1)
    losses = np.concatenate([one.loss.mean(axis=1) for one in (first, rest)])
    assert made.loss == pytest.approx(losses.mean(), abs=1e-6)
    sizes = [one.bits.mean(axis=1) / 160 for one in (first, rest)]
    assert made.bytes == pytest.approx(np.concatenate(sizes).mean(), abs=0.05)


def test_best_setting_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the simulator: the loss is 1 / eta, the bytes follow the features."""
    calls: list[list[str]] = []

    class Fake:
        def __init__(self, method: Gossip, seeds: int) -> None:
            self.loss = np.full((seeds, 3), 1 / method.eta, dtype=np.float32)
            self.bits = np.full((seeds, 3), 160 * method.bank.features)

    def fake(data: str, cases: Any, nodes: int, *, seeds: int, **rest: Any) -> dict[str, Fake]:
        calls.append(list(cases))
        return {case: Fake(method, seeds) for case, (method, _) in cases.items()}

    monkeypatch.setattr("omkl_lab.paper.frontier.study.compare", fake)
    study = Study(Store(tmp_path), "banana", 10, lambda *a: None)
    points = study.family("larger")
    assert [p.what for p in points] == [f"{what}, D=20, eta 10" for what in FAMILIES["larger"].channels]
    assert {p.bytes for p in points} == {20.0}
    assert points[0].loss == pytest.approx(0.1)
    assert len(calls) == 1 + 5  # tried on the first of five shuffles
    assert {p.bytes for p in study.family("newton")} == {20.0, 80.0}
    study.family("larger")
    assert len(calls) == 1 + 5 + 2 * (2 + 5)  # two sizes, each tried on two banks; nothing finished is computed again


def test_what_diverges_is_left_out(tmp_path: Path) -> None:
    cases: Cases = {"wild": (Gossip(eta=1e38), "path"), "tame": (Gossip(eta=1), "path")}
    study = Study(Store(tmp_path), "banana", 2, lambda *a: None)
    together, apart_ = study.runs("both", cases), study.runs("one", {"tame": cases["tame"]})
    assert together.keys() == {"tame"}
    np.testing.assert_allclose(together["tame"].loss, apart_["tame"].loss, rtol=1e-6)


def test_headline_is_of_one_setting_for_all() -> None:
    results = {"banana": found(), "digits": found(0.9)}
    assert at_most_the_papers(results) == "rank 80"
    assert headline(results).startswith("With no more bytes than the paper: 55 % and 55 % of its loss")
    # Too large on one of the data sets, it is out.
    moved = [p._replace(bytes=50.0) if p.what == "rank 80" else p for p in found().points]
    assert at_most_the_papers(results | {"mnist": Frontier(moved, found().lines)}) == "seldom"
    # It diverges on one of them: so it is not there.
    rest = [p for p in found().points if p.what != "rank 80"]
    assert at_most_the_papers(results | {"mnist": Frontier(rest, found().lines)}) == "seldom"


def test_families_are_in_the_legend_and_lines_in_every_panel() -> None:
    results = {"banana": found(), "digits": found(0.9), "mnist": found()}
    drawn = frontier_figure(results)
    assert len(drawn.axes) == 3
    (legend,) = drawn.legends
    assert legend.get_title().get_text().replace("\n", " ") == headline(results)
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [*(style.label for style in STYLES.values()), "omkl's default"]
    for axis in drawn.axes:
        told = [text.get_text().rsplit(" ", 1)[0] for text in axis.texts]
        assert told == [label for label, _ in LINES.values()]
        assert axis.get_xscale() == "log"
        assert axis.get_xlim() == pytest.approx((10 / 1.2, 60 * 1.2))
    assert drawn.axes[0].get_title(loc="left") == "Banana"


def test_sent_data_are_beside_the_frontier() -> None:
    """They may be best of all: the headline, the band and what no point beats are of the others."""
    best = [point(DATA, 5, 0.1 - k / 100, f"{k}-bit inputs") for k in (1, 2)]
    large = point(DATA, 12345.6, 0.01, "8-bit inputs")
    results = {"mnist": Frontier([*found().points, *best, large], found().lines)}
    assert headline(results) == headline({"mnist": found()})
    (axis,) = frontier_figure(results).axes
    band = max(axis.lines, key=lambda line: line.get_linewidth())
    np.testing.assert_array_equal(band.get_xdata(), [10, 40, 59])
    assert axis.get_xlim() == pytest.approx((5 / 1.2, 60 * 1.2))
    title = axis.get_title(loc="left")
    assert title.splitlines()[1] == "beyond the axis, send the data: 0.010 at 12,346 bytes"
    assert axis.get_ylim()[0] < 0.01
    assert not beyond(found())
    body = frontier_body(Path(__file__), results, 5)
    assert "gives up that raw data stay where they are" in " ".join(body.split())
    assert "send the data, 1-bit inputs</td><td>0.0900 ± 0.0010 at 5 bytes" in body
    tables = body.split("what no other point beats that leaves raw data where they are")
    assert "send the data" not in tables[1]
    assert f"mnist,{DATA},8-bit inputs,12345.6,0.01,0.001" in frontier_csv(results).splitlines()


def test_the_part_leaves_figure_points_and_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Study, "frontier", lambda study: found(0.9 if study.data == "digits" else 1.0))
    paper = Paper(tmp_path, data=("banana", "digits"), quick=True)
    paper.run(("frontier",))
    assert (tmp_path / "frontier.png").stat().st_size > 10_000
    assert (tmp_path / "frontier.svg").read_text().startswith("<?xml")
    record = json.loads((tmp_path / "frontier.json").read_text())
    assert record["digits"]["points"][0] == pytest.approx(found(0.9).points[0]._asdict())
    rows = list(csv.DictReader(io.StringIO((tmp_path / "frontier.csv").read_text())))
    assert len(rows) == 2 * (len(found().points) + len(LINES))
    page = (tmp_path / "report.html").read_text()
    assert "Beyond the paper" in page
    assert "0.3000 ± 0.0010 at 59 bytes" in page
    assert "Not computed with these settings: claims, figure1, figure2, regret, quantizers." in page
    assert "frontier" not in run.PARTS
    assert frontier_csv({"banana": found()}).splitlines()[1] == "banana,paper,paper,48,0.6,0.001"


def test_computing_needs_no_more_than_jax_and_scipy() -> None:
    absent = ("matplotlib", "pydantic", "sklearn", "typer", "rich", "networkx", "numba", "pyarrow", "joblib")
    code = f"import sys; sys.modules.update(dict.fromkeys({absent})); import omkl_lab.paper.frontier.study"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
