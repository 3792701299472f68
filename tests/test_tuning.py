import itertools
import json
import math
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

import omkl
from omkl import config
from omkl.cli.app import app
from omkl.cli.exits import Exit
from omkl.errors import InputError
from omkl.features import Kernel
from omkl.methods.tables import as_table, as_toml
from omkl_lab import tuning
from omkl_lab.tuning.halving import BASE, ETA, Score, Trial, halve, rungs
from omkl_lab.tuning.outcome import compared
from omkl_lab.tuning.space import check, default, draw, names, place

BASIC = omkl.Gossip(kernels=omkl.gaussian(1), features=2, eta=0.02, gamma=0.2, loss="squared", quantizer=omkl.Nearest())
SPACE = {"eta": [0.05, 0.2, 1e30], "quantizer.step": [0.5, 2.0]}  # the large rate diverges, the small step sends more
BUDGET = 7.0


class Fake:
    """Scores that are told beforehand, and what was asked of them."""

    def __init__(self, loss: Callable[[int], float], sent: Callable[[int], float] = float, fails: Sequence[int] = ()):
        self.loss, self.sent, self.fails = loss, sent, fails
        self.asked: list[tuple[list[int], range]] = []

    def __call__(self, places: Sequence[int], seeds: range, what: str) -> list[Score]:
        self.asked.append((list(places), seeds))
        return [
            Score(failure="diverged") if k in self.fails else Score((self.loss(k),) * len(seeds), self.sent(k))
            for k in places
        ]


@given(st.integers(1, 300), st.integers(1, 9), st.integers(0, 50))
def test_every_rung_has_a_third_of_the_candidates_and_seeds_of_its_own(count: int, seeds: int, first: int) -> None:
    plan = rungs(count, seeds, first)
    assert (plan[0].size, plan[-1].size <= ETA) == (count, True)
    used = [seed for rung in plan for seed in rung.seeds]
    assert used == list(range(first, first + len(used)))
    for before, after in itertools.pairwise(plan):
        assert (after.size, len(after.seeds)) == (math.ceil(before.size / ETA), ETA * len(before.seeds))


def test_halving_keeps_the_best_and_carries_the_base() -> None:
    fake = Fake(lambda place: 99.0 if place == BASE else abs(place - 7.2))
    trials, ranked = halve(rungs(9, 2), fake, None)
    assert fake.asked == [(list(range(10)), range(2)), ([BASE, 7, 8, 6], range(2, 8))]
    assert ranked == [7, 8, 6, BASE]
    assert [trial.rungs for trial in trials] == [2, 1, 1, 1, 1, 1, 2, 2, 2, 1]
    assert trials[9].loss == pytest.approx(1.8)


def test_halving_trusts_fresh_seeds_alone() -> None:
    """The one that was lucky in the first rung is not the one that is chosen."""

    def evaluate(places: Sequence[int], seeds: range, what: str) -> list[Score]:
        return [Score(tuple(0.0 if k == 1 and s < 2 else k / 10 + 0.1 for s in seeds), 1.0) for k in places]

    _, ranked = halve(rungs(9, 2), evaluate, None)
    assert ranked == [BASE, 1, 2, 3]
    trials, _ = halve(rungs(9, 2), evaluate, None)
    assert trials[1].loss == pytest.approx(0.2)


def test_those_over_the_budget_are_dropped_but_the_base_is_run() -> None:
    fake = Fake(float, sent=lambda place: 100.0 - place)
    trials, ranked = halve(rungs(9, 1), fake, budget=95.0)
    assert fake.asked[1][0] == [BASE, 5, 6, 7]
    assert ranked == [5, 6, 7]
    assert [trial.dropped for trial in trials] == ["over budget"] * 5 + [None] * 5


def test_those_that_diverge_are_dropped_and_the_rest_goes_on() -> None:
    fake = Fake(float, fails=[BASE, 1, 2])
    trials, ranked = halve(rungs(9, 1), fake, None)
    assert fake.asked[1][0] == [3, 4, 5]
    assert ranked == [3, 4, 5]
    assert [trial.dropped for trial in trials[:4]] == ["diverged"] * 3 + [None]
    assert math.isnan(trials[1].loss)


def test_nothing_is_left_where_all_diverge() -> None:
    assert halve(rungs(9, 1), Fake(float, fails=range(10)), None)[1] == []


def test_the_best_must_hold_on_other_seeds() -> None:
    fake = Fake(float, fails=[3])
    best, score, base = tuning._confirmed([3, 5, BASE], fake, range(50, 53), None)
    assert (best, score.losses, base.losses) == (5, (5.0,) * 3, (0.0,) * 3)
    assert tuning._confirmed([BASE], fake, range(2), None)[0] == BASE
    with pytest.raises(InputError, match="the best 1 settings diverge"):
        tuning._confirmed([3], fake, range(2), None)
    with pytest.raises(InputError, match="send more than the budget"):
        tuning._confirmed([5], fake, range(2), 4.0)


def test_nothing_to_choose_is_told_with_the_reasons() -> None:
    trials = [Trial(1, 0.5, 33.0, "over budget"), Trial(1, 0.4, 31.5, "over budget"), Trial(1, dropped="diverged")]
    with pytest.raises(InputError) as caught:
        tuning._require_some([], trials, 30.0)
    assert "(1 diverged, 2 over 30 bytes, the least that was sent being 31.5 bytes)" in str(caught.value)


def test_comparison_is_paired_by_seed() -> None:
    told = compared(Score((1.0, 2.0, 4.0), 7.0), Score((2.0, 3.5, 4.5), 9.0))
    assert (told.seeds, told.difference) == (3, -1.0)
    assert told.loss == pytest.approx(7 / 3)
    assert told.half == pytest.approx(4.302653 * 0.5 / 3**0.5)  # Student's t with two degrees of freedom
    assert (told.bytes, told.base_bytes) == (7.0, 9.0)
    alone = compared(Score((1.0, 2.0), 7.0), Score(failure="diverged"))
    assert (alone.loss, math.isnan(alone.base_loss), math.isnan(alone.difference)) == (1.5, True, True)


def test_draws_are_seeded_distinct_and_in_their_ranges() -> None:
    space = {"reach.most": (2, 200), "basis.rank": (20, 900), "momentum": [0.0, 0.5]}
    drawn = draw(omkl.recommended(), space, 40, seed=3)
    assert [one.settings for one in drawn] == [one.settings for one in draw(omkl.recommended(), space, 40, seed=3)]
    assert len({one.method for one in drawn}) == 40
    for settings, method in drawn:
        assert 2 <= settings["reach.most"] <= 200
        assert isinstance(settings["basis.rank"], int)
        assert settings["basis.rank"] <= 500  # beyond its rows the basis refuses it
        assert (method.reach.most, method.basis.rank) == (settings["reach.most"], settings["basis.rank"])
        assert method.basis.rows == 500
    logs = np.log10([one.settings["reach.most"] for one in drawn])
    assert 1.0 < logs.mean() < 1.6


def test_a_small_space_has_few_candidates() -> None:
    drawn = draw(BASIC, {"eta": [0.02, 0.3], "gamma": [0.2, 0.4]}, 27, seed=0)
    assert len(drawn) == 3  # the fourth is the base


def test_settings_are_placed_together() -> None:
    base = omkl.recommended()
    made = place(base, {"features": 32, "basis.rank": 60, "kernels.scale": 2, "quantizer.step": 3.0})
    assert (made.features, made.basis.rank, made.basis.rows, made.quantizer) == (32, 60, 500, omkl.Nearest(3.0))
    assert made.kernels == omkl.gaussian(0.7, 1.4, 2.8, 5.6, 11.2)
    assert (
        replace(made, features=20, basis=base.bank.basis, kernels=base.bank.kernels, quantizer=base.channel.quantizer)
        == base
    )
    assert place(omkl.Gossip(), {"learner.eta": 2.0}).learner == omkl.SGD(2.0)


@pytest.mark.parametrize("method", [omkl.recommended(), omkl.paper(), omkl.Local(), omkl.Complete(), omkl.Choco()])
def test_default_space_suits_every_method(method: Any) -> None:
    space = default(method)
    check(method, space)
    assert "kernels.scale" in space
    assert ("eta" in space, "reach.most" in space) == (
        (False, True) if isinstance(method.learner, omkl.Pooled) else (True, False)
    )
    assert len(draw(method, space, 9, seed=0)) == 9


def test_default_space_has_the_threshold_of_a_sending_rule() -> None:
    assert default(omkl.Gossip(sending="triggered"))["sending.threshold"] == (0.75, 3.0)
    assert place(omkl.Gossip(sending="triggered"), {"sending.threshold": 2}).sending == omkl.Triggered(2)


def test_default_space_leaves_an_automatic_step_alone() -> None:
    assert "gamma" not in default(omkl.Gossip(gamma="auto"))
    assert default(omkl.Gossip(gamma=0.3))["gamma"] == pytest.approx((0.1, 0.9))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "the space is empty"),
        ({"learner.priro": [1]}, "unknown setting 'learner.priro'; did you mean 'learner.priors'"),
        ({"basis.rank": [1], "basis": [None]}, "basis.rank is tuned, and so is all of basis"),
        ({"gamma": 0.5}, "gamma is 0.5; it must be a list of values, or a range"),
        ({"gamma": []}, "gamma is []; it must be a list"),
        ({"gamma": (0.5, 0.1)}, "gamma is (0.5, 0.1); a range has two positive ends"),
        ({"momentum": (0, 0.9)}, "momentum is (0, 0.9); a range has two positive ends"),
        ({"gamma": ("a", "b")}, "gamma is 'a'; it must be a number"),
        ({"gamma": [2, 3]}, "the consensus step must lie in (0, 1]"),
        ({"gamma": [omkl.recommended().mixing.gamma]}, "the space holds nothing but the base's own values"),
    ],
)
def test_a_bad_space_is_refused_before_any_work(space: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        omkl.tune("banana", nodes=20, space=space)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"candidates": 0}, "candidates is 0"), ({"seeds": 0}, "seeds is 0"), ({"held_out": 1}, "held_out is 1"),
     ({"seed": -1}, "seed is -1"), ({"budget": "much"}, "budget is 'much'")],
)  # fmt: skip
def test_bad_numbers_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        omkl.tune("banana", nodes=20, **given)


METHODS = [
    omkl.recommended(),
    omkl.paper(),
    omkl.Local(eta=0.5),
    omkl.Complete(quantizer="sign"),
    omkl.Gossip(pace=omkl.Pace(4, until=16), sending=omkl.Triggered(2)),
    omkl.Gossip(gamma="auto", quantizer=None, clip=math.inf, learner=omkl.Newton(prior=1e-5, block=4)),
    omkl.Gossip(kernels=(*omkl.laplacian(2), *omkl.matern(1, 3)), loss=omkl.Softmax(classes=3), weight_rate=0.1 + 0.2),
]


@pytest.mark.parametrize("method", METHODS)
def test_a_written_setting_is_read_back_as_it_was(method: Any) -> None:
    parts = {"loss": method.loss and method.objective} | (
        {"quantizer": method.settings()["quantizer"]} if "quantizer" in method.settings() else {}
    )
    for table in (as_table(method), tomllib.loads(as_toml(method))["method"]):
        assert config.experiment({"data": "banana", "nodes": 20, "method": table}).method == replace(method, **parts)


def test_a_spectrum_of_its_own_is_not_written() -> None:
    own = omkl.Gossip(kernels=(Kernel("mine", 1.0, lambda rng, d: rng.standard_normal(d)),))
    with pytest.raises(InputError, match="kernel 'mine' has a spectrum of its own"):
        as_toml(own)


@pytest.fixture(scope="module")
def stream() -> tuple[Any, Any]:
    X = np.random.default_rng(0).standard_normal((40, 3, 2))
    return X, np.sin(2 * X[..., 0])


def tuned(stream: tuple[Any, Any], **changed: Any) -> omkl.Tuned:
    settings: dict[str, Any] = {"space": SPACE, "candidates": 6, "held_out": 2, "budget": BUDGET, "jobs": 1}
    return omkl.tune(stream, "ring", method=BASIC, **settings | changed)


def test_a_run_finds_what_learns_within_the_budget(stream: tuple[Any, Any]) -> None:
    found = tuned(stream)
    reasons = {(one.settings["eta"], one.settings["quantizer.step"]): one.dropped for one in found.candidates[1:]}
    assert reasons == {
        (0.05, 0.5): "over budget", (0.2, 0.5): "over budget", (1e30, 0.5): "diverged",
        (0.05, 2.0): None, (0.2, 2.0): None, (1e30, 2.0): "diverged",
    }  # fmt: skip
    assert found.settings == {"eta": 0.2, "quantizer.step": 2.0}
    assert found.method == BASIC.replace(eta=0.2, quantizer=omkl.Nearest(2.0))
    told = found.comparison
    assert -told.half < told.difference < 0
    assert told.bytes <= BUDGET
    runs = [omkl.simulate(stream, "ring", method=found.method, seed=seed) for seed in (8, 9)]
    assert [len(rung.seeds) for rung in found.rungs] == [2, 6]
    assert told.loss == pytest.approx(np.mean([run.summary()["loss"] for run in runs]), rel=1e-5)
    lines = found.summary().splitlines()
    assert lines[0] == "settings tried, and seeds: 6 on 2, 2 on 6; 2 diverged, 2 over 7 bytes"
    assert "  which may be chance; more seeds, and more of them held out, would tell" in lines
    assert lines[-2:] == ["  eta = 0.2", "  quantizer.step = 2.0"]


def test_the_same_seed_finds_the_same_and_records_are_not_run_again(stream: tuple[Any, Any], tmp_path: Path) -> None:
    small: dict[str, Any] = {"space": {"eta": (0.05, 0.2)}, "candidates": 2, "seeds": 1}
    ran: list[tuple[int, int, str]] = []
    first = tuned(stream, **small, folder=tmp_path, progress=lambda *told: ran.append(told))
    assert ran[2:4] == [(3, 3, "rung 1"), (1, 4, "held out")]
    resumed = tuned(stream, **small, folder=tmp_path, progress=lambda *told: ran.append(told))
    assert len(ran) == 7
    again = tuned(stream, **small)
    for other in (again, resumed):
        assert (other.method, other.comparison) == (first.method, first.comparison)
        np.testing.assert_equal(list(other.candidates), list(first.candidates))


def test_a_base_that_cannot_run_is_told(stream: tuple[Any, Any]) -> None:
    with pytest.raises(InputError, match="the base cannot run: label 5"):
        omkl.tune((stream[0], np.full((40, 3), 5.0)), "ring", method=omkl.Gossip(), candidates=1, held_out=2, jobs=1)


SPEC = """
data = {file = "t.csv", target = "y"}
nodes = 3
[method]
name = "gossip"
kernels = {gaussian = [1]}
features = 2
eta = 0.1
gamma = 0.2
quantizer = "nearest"
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = np.random.default_rng(0).standard_normal((36, 2))
    lines = [f"{a},{b},{1 if a > 0 else -1}\n" for a, b in rows.tolist()]
    (tmp_path / "t.csv").write_text("a,b,y\n" + "".join(lines))
    return tmp_path


def run(*args: Any) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args], prog_name="omkl")


def test_command_writes_a_setting_that_simulate_reads(table: Path) -> None:
    spec, out = table / "spec.toml", table / "out"
    spec.write_text(SPEC + "[tune.space]\nlearner.eta = {low = 1, high = 3}\nmomentum = [0.0, 0.5]\n")
    flags = ["--candidates", 2, "--seeds", 1, "--held-out", 2, "--out", out, "--jobs", 1]
    result = run("tune", spec, *flags, "--format", "json", "--quiet")
    assert (result.exit_code, result.stderr) == (Exit.OK, "")
    found = json.loads(result.stdout)
    assert [one["rungs"] for one in found["candidates"]] == [1, 1, 1]
    assert 1 <= found["settings"]["learner.eta"] <= 3
    assert found["comparison"]["difference"] < 0
    (table / "again.toml").write_text('data = {file = "t.csv", target = "y"}\n' + Path(found["file"]).read_text())
    simulated = json.loads(run("simulate", table / "again.toml", "--nodes", 3, "--quiet", "--format", "json").stdout)
    assert simulated["config"]["method"]["eta"] == found["settings"]["learner.eta"]
    page = run("tune", spec, *flags)
    assert page.stdout.splitlines()[-1] == f"setting: {out / 'best.toml'}"
    assert "those of the base" in page.stdout
    assert "omkl: rung 1: 3 settings on 1 seeds, best loss" in page.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tune]\ncandidates = 3\n", "tune: it must hold a table, space"),
        ("[tune]\nspace = 3\n", "tune: it must hold a table, space"),
        ("[tune.space]\nmethod.eta = [1]\n", "unknown setting 'method.eta'"),
        ("[tune.space]\neta = {low = 1}\n", "unknown setting 'eta.low'"),
        ("[tune.space]\n", "the space is empty"),
    ],
)
def test_a_bad_file_is_refused(table: Path, text: str, message: str) -> None:
    (table / "spec.toml").write_text(SPEC + text)
    result = run("tune", table / "spec.toml", "--out", table / "out")
    assert (result.exit_code, result.stdout) == (Exit.INPUT, "")
    assert message in result.stderr
    assert not (table / "out").exists()


def test_what_a_search_has_no_use_for_is_refused(table: Path) -> None:
    (table / "spec.toml").write_text("record_every = 5\n" + SPEC)
    assert "record_every: omkl tune looks at whole runs" in run("tune", table / "spec.toml").stderr


def test_the_base_is_the_recommended_setting() -> None:
    from omkl_lab.cli.tune import _search

    given = _search(None, {"data": "banana", "nodes": 20, "method": {"loss": "squared"}})
    assert given["method"] == replace(omkl.recommended(), loss=omkl.Squared())
    assert set(names(given["method"])) >= {"reach.most", "quantizer.step", "basis.rank", "gamma", "momentum"}
