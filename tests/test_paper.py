import io
import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from omkl.cli.app import app
from omkl.cli.exits import Exit
from omkl.methods import Choco, Complete, Gossip, Local
from omkl.metrics import progressive
from omkl.quantizers import QSGD
from omkl.simulator import simulate
from omkl_lab.paper import claims, experiments, figures, quantizers, regret, report, run
from omkl_lab.paper.experiments import Arrays, Runs, Store, spread
from omkl_lab.paper.run import Paper


def runs(final: float, noise: float = 0.0, seed: int = 0, **change: Any) -> Runs:
    """Twenty runs over two shuffles whose final losses are ``final`` plus noise."""
    rng = np.random.default_rng(seed)
    loss = np.repeat((final + noise * rng.normal(size=(20, 1))).astype(np.float32), 30, axis=1)
    made = Runs(loss, np.full(20, 0.8), np.repeat([0, 1], 10), 600.0, 22800.0)
    return made._replace(**change)


def as_printed(**change: Runs) -> dict[str, Runs]:
    """Runs for which all claims hold."""
    made = {case: runs(0.5) for case in experiments.FIGURE1}
    made["single"] = runs(0.6)
    made["complete"] = runs(0.5, link_bits=264480.0, bits=696.0)
    return made | change


LETTERS = ["a", "b", "c", "d", "e", "f", "f'", "g"]
GRAPHS = {"complete": runs(0.4), "ring": runs(0.41), "path": runs(0.42)}


def verdicts(figure1: Mapping[str, Mapping[str, Runs]], figure2: Mapping[str, Mapping[str, Runs]]) -> dict[str, str]:
    return {claim.letter: claim.verdict for claim in claims.judge(figure1, figure2)}


def test_verdicts_when_all_is_as_claimed() -> None:
    found = verdicts({"banana": as_printed()}, {"banana": GRAPHS})
    assert found == dict.fromkeys(LETTERS, "holds")


OMKL: dict[str, Any] = {"link_bits": 264480.0, "bits": 696.0}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("letter_", "case", "good", "bad", "change"),
    [
        ("a", "complete", 0.0024, 0.0026, OMKL),  # half a percent of 0.5
        ("c", "full", 0.00049, 0.00051, {}),  # a thousandth
        ("c", "ring", 0.00049, 0.00051, {}),
        ("e", "M=31", 0.9e-5, 1.1e-5, {}),
        ("e", "M=255", 0.9e-5, 1.1e-5, {}),
    ],
)
def test_each_limit_from_both_sides(
    letter_: str, case: str, good: float, bad: float, change: dict[str, Any], sign: int
) -> None:
    inside, beyond = ({case: runs(0.5 + sign * d, **change)} for d in (good, bad))
    assert verdicts({"digits": as_printed(**inside)}, {})[letter_] == "holds"
    found = verdicts({"banana": as_printed(), "digits": as_printed(**beyond)}, {"banana": GRAPHS})
    assert found.pop(letter_) == "holds on 1 of 2"
    assert set(found.values()) == {"holds"}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("letter_", "case"), [("f", "complete"), ("f'", "single")])
def test_a_point_of_accuracy_from_both_sides(letter_: str, case: str, sign: int) -> None:
    for points, verdict in ((0.009, "holds"), (0.011, "does not hold")):
        other = as_printed()[case]._replace(accuracy=np.full(20, 0.8 + sign * points))
        assert verdicts({"banana": as_printed(**{case: other})}, {})[letter_] == verdict


@pytest.mark.parametrize(("factor", "verdict"), [(4.9, "does not hold"), (5.1, "holds")])
def test_many_more_bits(factor: float, verdict: str) -> None:
    assert verdicts({"banana": as_printed(complete=runs(0.5, link_bits=22800.0 * factor))}, {})["g"] == verdict


@pytest.mark.parametrize(("gap", "verdict"), [(0.01, "holds"), (-0.01, "does not hold"), (0.0, "undecided")])
def test_one_kernel_above_below_or_like_three(gap: float, verdict: str) -> None:
    single = runs(0.5 + gap, noise=1e-3)
    assert verdicts({"banana": as_printed(single=single)}, {})["b"] == verdict


def test_what_the_interval_leaves_open_is_undecided() -> None:
    # Two shuffles, t = 12.7: a difference of 0.002 between their means leaves 0.5 % open.
    loss = np.repeat(np.array([0.5, 0.502], dtype=np.float32), 10)[:, None].repeat(30, axis=1)
    other = as_printed()["complete"]._replace(loss=loss)
    assert verdicts({"banana": as_printed(complete=other)}, {})["a"] == "undecided"
    both = {"banana": as_printed(), "digits": as_printed(complete=other)}
    assert verdicts(both, {})["a"] == "holds on 1 of 2, undecided on 1"


def test_order_of_graphs() -> None:
    assert verdicts({}, {"banana": GRAPHS | {"path": runs(0.405)}})["d"] == "does not hold"
    noisy = GRAPHS | {"ring": runs(0.401, noise=0.05, seed=1)}
    assert verdicts({}, {"banana": noisy})["d"] == "undecided"
    assert verdicts({}, {})["d"] == "not tested"


def test_remarks_say_where_and_why() -> None:
    found = {c.letter: c for c in claims.judge({"banana": as_printed(single=runs(0.49))}, {"digits": GRAPHS})}
    assert found["b"].verdict == "does not hold"
    assert "Reversed on Banana" in found["b"].remark
    assert "do not communicate at all" in found["a"].remark
    assert "this is Digits, 8 against the rest (30 rounds)" in found["d"].remark
    apart = claims.judge({"banana": as_printed(local=runs(0.6))}, {"credit_card": GRAPHS})
    assert not any(claim.remark for claim in apart if claim.letter in "acd")


def test_cases_are_the_papers() -> None:
    for method, _ in experiments.FIGURE1.values():
        assert isinstance(method, Gossip | Complete | Local)
        assert (method.eta, method.regularization, method.bank.features) == (
            0.01,
            1e-3,
            20,
        )
        assert [kernel.sigma for kernel in method.bank.kernels] == (
            [1.0] if isinstance(method, Choco) else [1.0, 3.0, 5.0]
        )
        if isinstance(method, Gossip):
            assert method.mixing.gamma == 0.009
    graphs = {case: graph for case, (_, graph) in experiments.FIGURE1.items()}
    assert (graphs["gossip"], graphs["single"], graphs["exact"]) == ("path", "path", "path")
    assert (graphs["ring"], graphs["full"], graphs["complete"]) == ("ring", "complete", "complete")
    assert experiments.FIGURE1["complete"][0] == Complete(exchange="gradients", combine="mean", quantizer=QSGD(bits=3))
    assert experiments.FIGURE1["M=255"][0] == Gossip(quantizer=QSGD(bits=8))
    for graph, (method, drawn) in experiments.FIGURE2.items():
        assert (method, drawn) == (Gossip(eta=0.1, gamma=0.09, quantizer=None), graph)


def test_every_share_has_its_own_shuffle_and_seeds(tmp_path: Path) -> None:
    found = experiments.run_cases(Store(tmp_path), "banana", "x", {"alone": (Local(), "path")}, 5, lambda *a: None)[
        "alone"
    ]
    assert found.shuffle.tolist() == [0, 0, 1, 1, 1]
    for shuffle, seed, row in ((0, 0, 0), (0, 1, 1), (1, 2, 2), (1, 4, 4)):
        expected = simulate("banana", "path", 20, Local(), seed=seed, shuffle=shuffle)
        np.testing.assert_allclose(found.loss[row], expected.loss[0], atol=1e-6)
        assert found.accuracy[row] == pytest.approx(expected.accuracy.mean(), abs=1e-6)


@pytest.mark.parametrize(
    ("seeds", "sizes"), [(2, [2]), (5, [2, 3]), (7, [2, 3, 2]), (11, [2, 2, 3, 2, 2]), (100, [20] * 5)]
)
def test_all_seeds_are_dealt(seeds: int, sizes: list[int]) -> None:
    shares = experiments.dealt(seeds)
    assert [len(share) for share in shares] == sizes
    assert [seed for share in shares for seed in share] == list(range(seeds))


def test_bands_follow_the_shuffles() -> None:
    made = runs(0.5, noise=0.1)
    curves = progressive(made.loss)
    expected = spread(curves[:, 7], made.shuffle).half
    assert experiments.half_widths(curves, made.shuffle)[7] == pytest.approx(expected)
    drawn = figures.figure1({"banana": as_printed(gossip=made)}, "bits")
    (axis,) = drawn.axes
    line, band = axis.lines[0], axis.collections[0]
    assert np.asarray(line.get_xdata())[-1] == pytest.approx(30 * 600 / 8000)
    top = np.asarray(band.get_paths()[0].vertices)[:, 1].max()
    assert top == pytest.approx((curves.mean(axis=0) + experiments.half_widths(curves, made.shuffle)).max())


@pytest.mark.parametrize("panels", [1, 2, 3])
def test_a_legend_fits_its_figure(panels: int) -> None:
    drawn = figures.figure1({data: as_printed() for data in ("banana", "credit_card", "mnist")[:panels]})
    drawn.savefig(io.BytesIO())
    legend = drawn.legends[0].get_window_extent()
    assert 0 <= legend.x0 < legend.x1 <= drawn.bbox.x1


def test_spread_by_hand() -> None:
    # Two shuffles of two runs: within variance 2 each; means 2 and 6, variance 8, of which 2/2 is the runs' own.
    found = spread(np.array([1.0, 3.0, 5.0, 7.0]), np.array([0, 0, 1, 1]))
    assert found == pytest.approx((4.0, 2**0.5, 7**0.5, 2.0, 2.0 * 12.7062), rel=1e-5)
    alone = spread(np.array([1.0, 3.0]), np.array([0, 0]))
    assert alone == pytest.approx((2.0, 2**0.5, 0.0, 1.0, 12.7062), rel=1e-5)


def test_final_is_the_last_tenth() -> None:
    loss = np.ones((2, 30), dtype=np.float32)
    loss[:, 27:] = 4
    made = runs(0.5)._replace(loss=loss)
    np.testing.assert_allclose(made.final, 4)


def test_store_computes_once_and_again_when_settings_change(tmp_path: Path) -> None:
    store, calls = Store(tmp_path / "runs"), []

    def compute() -> Arrays:
        calls.append(1)
        return {"a": np.arange(3.0)}

    for settings in ({"seeds": 1}, {"seeds": 1}, {"seeds": 2}):
        np.testing.assert_array_equal(store.get("job", settings, compute)["a"], [0, 1, 2])
    assert len(calls) == 2
    (tmp_path / "runs" / "job.npz").write_bytes(b"torn")
    store.get("job", {"seeds": 2}, compute)
    assert len(calls) == 3


def test_store_keeps_nothing_of_an_interrupted_job(tmp_path: Path) -> None:
    def interrupted() -> Arrays:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).get("job", {}, interrupted)
    assert not list(tmp_path.iterdir())


def test_page_escapes_and_colors() -> None:
    body = report.table(["name", "n"], [["<b>", 1.5], ["holds on 1 of 2", "+1.0e-05 ± 2e-06"], ["not tested", 1]])
    page = report.page({"regret": body}, {"data": ["<x>"]}, {"jax": "1"}, ["claims"])
    assert "&lt;b&gt;" in page
    assert "&lt;x&gt;" in page
    assert "<span class='partly'>holds on 1 of 2</span>" in page
    assert "<td>not tested</td>" in page
    assert "<td class='number'>1.5</td>" in page
    assert "Not computed with these settings: claims." in page


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("paper")
    Paper(out, seeds=10, data=("banana",), quick=True).run(("figure1", "figure2", "claims"))
    return out


def test_figures_claims_and_report_are_there(made: Path) -> None:
    for name in ("figure1", "figure1-bits", "figure2"):
        assert (made / f"{name}.png").stat().st_size > 10_000
        assert (made / f"{name}.svg").read_text().startswith("<?xml")
    found = json.loads((made / "claims.json").read_text())
    assert {claim["letter"]: claim["verdict"] for claim in found["claims"]}["e"] == "holds"
    assert all({"value", "half"} <= finding.keys() for claim in found["claims"] for finding in claim["findings"])
    assert found["settings"]["seeds"] == 10
    page = (made / "report.html").read_text()
    assert page.count("data:image/png;base64") == 3
    assert not re.findall(r"(?:src|href)='(?!data:|#words)", page)
    assert "Not computed with these settings: regret, quantizers." in page


def test_banana_reverses_claim_b(made: Path) -> None:
    found = {claim["letter"]: claim for claim in json.loads((made / "claims.json").read_text())["claims"]}
    assert found["b"]["verdict"] == "does not hold"
    assert found["a"]["verdict"] == found["c"]["verdict"] == "holds"
    assert found["g"]["findings"][0]["value"] == pytest.approx(380 / 38 * 55 / 42.6, rel=0.005)  # links, bytes


def test_nothing_finished_is_computed_again(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "compare", lambda *args, **kwargs: pytest.fail("computed again"))
    Paper(made, seeds=10, data=("banana",), quick=True).run(("figure1", "figure2", "claims"))


def test_interrupted_it_leaves_what_is_finished(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(regret, "theorem", interrupt)
    before = {path.name: path.read_bytes() for path in made.iterdir() if path.is_file()}
    flags = ["paper", "--seeds", "10", "--data", "Banana", "--quick", "--out", str(made), "--quiet"]
    result = CliRunner().invoke(app, flags)
    assert result.exit_code == Exit.INTERRUPTED
    assert "still missing: regret, quantizers" in result.stderr
    after = {path.name: path.read_bytes() for path in made.iterdir() if path.is_file()}
    assert after.keys() == before.keys()
    assert len(after["figure2.png"]) == len(before["figure2.png"])
    assert after["report.html"].count(b"data:image/png;base64") == 3


def test_other_settings_do_not_mix(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "mixed")
    Paper(tmp_path / "mixed", seeds=4, data=("banana",), quick=True).run(("figure2",))
    page = (tmp_path / "mixed" / "report.html").read_text()
    assert "Not computed with these settings: claims, figure1, regret, quantizers." in page
    assert json.loads((tmp_path / "mixed" / "claims.json").read_text())["settings"]["seeds"] == 10
    assert Paper(made, seeds=10, data=("banana",), quick=True).finished().keys() == {"claims", "figure1", "figure2"}


def test_figure_2_is_on_credit_card_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "run_cases", lambda store, data, *rest: data)
    assert list(Paper(Path(), data=("credit_card", "mnist")).figure2_runs) == ["credit_card"]
    assert list(Paper(Path(), data=("banana", "digits")).figure2_runs) == ["digits"]


def test_claims_are_printed(made: Path) -> None:
    flags = ["paper", "claims", "--seeds", "10", "--data", "banana", "--quick", "--out", str(made), "--quiet"]
    result = CliRunner().invoke(app, flags)
    assert result.exit_code == Exit.OK
    assert re.search(r"three kernels clearly beat one +does not hold", result.stdout)
    parsed = json.loads(CliRunner().invoke(app, [*flags, "--format", "json"]).stdout)
    assert [claim["letter"] for claim in parsed["claims"]] == LETTERS


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--out", "README.md"], "is a file"),
        (["--seeds", "1"], "seeds is 1; intervals need at least 2"),
        (["--data", "bananna"], "did you mean 'banana'"),
    ],
)
def test_bad_input_is_one_line(flags: list[str], text: str) -> None:
    result = CliRunner().invoke(app, ["paper", *flags])
    assert result.exit_code == Exit.INPUT
    assert text in result.stderr


def test_quantizer_rows(tmp_path: Path) -> None:
    rows = {row.quantizer: row for row in quantizers.study(Store(tmp_path), "banana", "larger", 2, lambda *a: None)}
    assert list(rows) == list(quantizers.STUDIED)
    assert rows["exact"].difference == 0
    assert rows["exact"].measured == pytest.approx(1)
    assert rows["exact"].bits == 32 + 3 * 40 * 32
    assert rows["nearest, step 2.5"].bits < 26 * 8 < rows["QSGD M=7"].bits < 47 * 8
    assert rows["QSGD M=7"].bits < rows["QSGD M=15"].bits < rows["QSGD M=255"].bits
    assert rows["nearest, step 1"].measured == pytest.approx(0.925, abs=0.03)
    assert rows["top 4 of 40"].measured > rows["random 4 of 40"].measured == pytest.approx(0.1, abs=0.03)
    for row in rows.values():
        assert row.measured > row.bound - 0.05
        assert abs(row.difference) < 0.1
