import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from omkl.cli.app import app
from omkl.cli.exits import Exit
from omkl.paper import claims, letter, quantizers, report
from omkl.paper.letter import Runs, spread
from omkl.paper.run import Paper
from omkl.paper.store import Arrays, Store


def runs(final: float, noise: float = 0.0, seed: int = 0, **change: Any) -> Runs:
    """Twenty runs over two shuffles whose final losses are ``final`` plus noise."""
    rng = np.random.default_rng(seed)
    loss = np.repeat((final + noise * rng.normal(size=(20, 1))).astype(np.float32), 30, axis=1)
    made = Runs(loss, np.full(20, 0.8), np.repeat([0, 1], 10), 600.0, 22800.0)
    return made._replace(**change)


def as_printed(**change: Runs) -> dict[str, Runs]:
    """Runs for which all claims hold."""
    made = {case: runs(0.5) for case in letter.FIGURE1}
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


@pytest.mark.parametrize(
    ("letter_", "change"),
    [
        ("a", {"complete": runs(0.49, link_bits=264480.0)}),
        ("b", {"single": runs(0.5)}),
        ("c", {"full": runs(0.499)}),
        ("e", {"M=31": runs(0.5001)}),
        ("f", {"complete": runs(0.5, link_bits=264480.0, accuracy=np.full(20, 0.785))}),
        ("f'", {"single": runs(0.6, accuracy=np.full(20, 0.7))}),
        ("g", {"complete": runs(0.5)}),
    ],
)
def test_a_claim_that_does_not_hold_is_reported_as_such(letter_: str, change: dict[str, Runs]) -> None:
    found = verdicts({"banana": as_printed(), "digits": as_printed(**change)}, {"banana": GRAPHS})
    assert found.pop(letter_) == "holds on 1 of 2"
    assert set(found.values()) == {"holds"}
    assert verdicts({"digits": as_printed(**change)}, {})[letter_] == "does not hold"


def test_order_needs_more_than_noise() -> None:
    noisy = GRAPHS | {"ring": runs(0.401, noise=0.05, seed=1)}
    assert verdicts({}, {"banana": noisy})["d"] == "does not hold"
    assert verdicts({}, {"banana": GRAPHS | {"path": runs(0.405)}})["d"] == "does not hold"
    assert verdicts({}, {})["d"] == "not tested"


def test_a_reversed_claim_says_where_and_why() -> None:
    (claim,) = [c for c in claims.judge({"banana": as_printed(single=runs(0.49))}, {}) if c.letter == "b"]
    assert claim.verdict == "does not hold"
    assert "Reversed on Banana" in claim.remark


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
    np.testing.assert_allclose(made.whole, 1.3)


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


def test_page_escapes_and_colors(tmp_path: Path) -> None:
    body = report.table(["name", "n"], [["<b>", 1.5], ["holds on 1 of 2", "+1.0e-05 ± 2e-06"]])
    report.write(tmp_path / "r.html", [report.Section("A & B", body)], "set <tings>", ["regret"])
    page = (tmp_path / "r.html").read_text()
    assert "&lt;b&gt;" in page
    assert "A &amp; B" in page
    assert "<span class='partly'>holds on 1 of 2</span>" in page
    assert "<td class='number'>1.5</td>" in page
    assert "Not computed yet: regret." in page


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
    assert found["settings"]["seeds"] == 10
    page = (made / "report.html").read_text()
    assert page.count("data:image/png;base64") == 3
    assert not re.findall(r"(?:src|href)='(?!data:)", page)
    assert "Not computed yet" not in page


def test_banana_reverses_claim_b(made: Path) -> None:
    found = {claim["letter"]: claim for claim in json.loads((made / "claims.json").read_text())["claims"]}
    assert found["b"]["verdict"] == "does not hold"
    assert found["a"]["verdict"] == found["c"]["verdict"] == "holds"
    assert found["g"]["findings"][0]["value"] == pytest.approx(380 / 38 * 696 / 600)


def test_nothing_finished_is_computed_again(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter, "compare", lambda *args, **kwargs: pytest.fail("computed again"))
    Paper(made, seeds=10, data=("banana",), quick=True).run(("figure1", "figure2", "claims"))


def test_interrupted_it_leaves_what_is_finished(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(quantizers, "_compute", interrupt)
    flags = ["paper", "--seeds", "10", "--data", "Banana", "--quick", "--out", str(made), "--quiet"]
    result = CliRunner().invoke(app, flags)
    assert result.exit_code == Exit.INTERRUPTED
    assert "still missing: quantizers, regret" in result.stderr
    assert "Not computed yet: quantizers, regret." in (made / "report.html").read_text()
    assert (made / "figure2.png").exists()


def test_claims_are_printed(made: Path) -> None:
    flags = ["paper", "claims", "--seeds", "10", "--data", "banana", "--quick", "--out", str(made), "--quiet"]
    result = CliRunner().invoke(app, flags)
    assert result.exit_code == Exit.OK
    assert re.search(r"three kernels clearly beat one +does not hold", result.stdout)
    parsed = json.loads(CliRunner().invoke(app, [*flags, "--format", "json"]).stdout)
    assert [claim["letter"] for claim in parsed["claims"]] == LETTERS


@pytest.mark.parametrize(
    ("flags", "text"),
    [(["--seeds", "1"], "seeds is 1; intervals need at least 2"), (["--data", "bananna"], "did you mean 'banana'")],
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
    assert rows["QSGD M=7"].bits == 600
    assert rows["nearest, step 1"].measured == pytest.approx(0.925, abs=0.03)
    assert rows["top 4 of 40"].measured > rows["random 4 of 40"].measured == pytest.approx(0.1, abs=0.03)
    for row in rows.values():
        assert row.measured > row.bound - 0.05
        assert abs(row.difference) < 0.1
