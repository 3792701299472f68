"""What is seen of results, models and graphs where they are printed."""

import sys
from typing import Any

import numpy as np
import pytest

import omkl
from omkl import Model, topology
from omkl.losses import Squared
from omkl.simulator.result import Result, worsens

MOST = 600  # characters


def result(seeds: int = 2, graph: object = "path", accuracy: float = 0.75) -> Result:
    """Return a run of 3 nodes whose final losses are 0.25, 0.26, ... and whose nodes send 20 bytes a round."""
    rounds = 20
    loss = np.full((seeds, rounds), 0.9, dtype=np.float32)
    loss[:, -2:] = 0.25 + 0.01 * np.arange(seeds)[:, None]
    curve = np.full((seeds, rounds), accuracy, dtype=np.float32)
    bits = np.full((seeds, rounds), 3 * 8 * 20, dtype=np.int64)
    method = {"name": "gossip", "loss": {"name": "logistic"}}
    return Result(
        config={"data": "banana", "topology": graph, "nodes": 3, "rounds": rounds, "method": method},
        seeds=np.arange(seeds),
        rounds=np.arange(rounds),
        loss=loss,
        accuracy=curve,
        disagreement=curve,
        bits=bits,
        link_bits=bits,
        weights=curve[..., None],
        theta=np.zeros((3, seeds, 1, 1, 4), dtype=np.float32),
        log_weights=np.zeros((3, seeds, 1), dtype=np.float32),
        frequencies=np.zeros((seeds, 1, 2, 2), dtype=np.float32),
    )


def test_a_result_says_what_ran_and_what_came_of_it() -> None:
    # Losses 0.25 and 0.26: mean 0.255, standard error 0.005, and t(0.975) with one degree of freedom is 12.7062.
    title, *lines = str(result()).splitlines()
    assert title == "gossip on banana: path of 3 nodes, 20 rounds, 2 seeds"
    assert lines[:5] == [
        "  loss            0.8355 ± 0.0064 over all rounds, scored before learning",  # (18 * 0.9 + 2 * 0.255) / 20
        "  final loss      0.2550 ± 0.0635 over the last tenth, 95 % over 2 seeds",
        "  rows            the same in one order for all seeds: ± does not cover that",
        "  final accuracy  75.00% over the last tenth",
        "  bytes           20.0 sent by a node in a round, header and all",
    ]
    assert lines[5].startswith("  see             .loss")


def test_what_a_result_lacks_is_not_shown() -> None:
    text = str(result(seeds=1, accuracy=np.nan))
    assert "0.2500 over the last tenth\n" in text
    assert "accuracy" not in text
    assert " nan" not in text
    assert "R2" not in text


def test_a_regression_has_a_share_of_the_variance() -> None:
    run, same = result(accuracy=np.nan), "of the targets' variance in the same rounds"
    run.config["method"]["loss"], run.config["target_variance"] = {"name": "squared"}, 1.671  # twice the mean loss
    assert f"  R2             0.5000 over all rounds, {same}\n" in str(run)
    assert "  typical error  0.5050 over the last tenth" in str(run)  # the root of 0.255
    run.config.update(guessing={"loss": 1.02}, is_dealt=True)
    assert f"  R2             0.5000 over all rounds, 0.7500 over the last tenth, {same}\n" in str(run)
    assert "  guessing       1.0200 over the last tenth, if one always guessed the mean in these rounds\n" in str(run)
    assert "does not cover that; another order: --shuffle 1 (shuffle=1)\n" in str(run)


def test_what_guessing_gives_in_the_last_tenth() -> None:
    """By hand: the last tenth of 20 rounds has the labels 1, -1, -1, -1, and no round before it has a 1."""
    X, y = np.zeros((20, 2, 1)), -np.ones((20, 2))
    y[-1, 0] = 1
    entropy = -(np.log(1 / 4) + 3 * np.log(3 / 4)) / 4

    def guessing(labels: Any = y, **settings: Any) -> Any:
        run = omkl.simulate((X, labels), "path", method=omkl.paper(), nodes=2, **settings)
        assert not run.config["is_dealt"]
        return run.config["guessing"]

    assert guessing() == pytest.approx({"loss": entropy, "accuracy": 3 / 4})
    assert guessing(loss="squared") == pytest.approx({"loss": 3 / 4})  # the variance of 1, -1, -1, -1
    assert guessing((y > 0).astype(int), loss="softmax") == pytest.approx({"loss": entropy, "accuracy": 3 / 4})
    assert guessing(loss="smoothed_hinge") == pytest.approx({"accuracy": 3 / 4})
    # Of every fifth round recorded the last alone is the last tenth: 1 and -1.
    assert guessing(record_every=5) == pytest.approx({"loss": np.log(2), "accuracy": 1 / 2})


def test_a_comparison_says_what_its_intervals_leave_out() -> None:
    both = omkl.Comparison(a=result(), b=result())
    assert str(both).endswith("\nrows are the same in one order for all seeds: ± does not cover that")
    assert "in one order" not in str(omkl.Comparison(a=result(seeds=1)))


def test_r2_of_targets_that_drift_is_that_of_the_rounds_beside_it() -> None:
    """Targets that rise in steps of a round have, in two rounds of two nodes, a variance of 1/4 and no more."""
    y = np.repeat(np.arange(20.0)[:, None], 2, axis=1)
    run = omkl.simulate((np.zeros((20, 2, 1)), y), "path", method="local", loss="squared", nodes=2)
    late = 1 - float(run.loss[:, -2:].mean()) / 0.25
    assert late < -100
    assert f"{late:.4f} over the last tenth" in str(run)
    assert run.r2 == pytest.approx(1 - run.loss.mean() / y.var())


def test_a_run_that_is_worse_than_guessing_says_so() -> None:
    labels = np.tile([1.0, -1.0], (40, 1))
    run = omkl.simulate((np.zeros((40, 2, 1)), labels), "path", method=omkl.paper(), nodes=2)
    assert "worse" not in str(run)
    run.config["guessing"] = {"loss": float(run.last(run.loss).mean()) / 1.01}
    assert "worse" not in str(run)
    run.config["guessing"] = {"loss": float(run.last(run.loss).mean()) / 1.03}
    assert str(run).splitlines()[-2].endswith("the final loss is worse than guessing: more rows may help")
    run.config["data"] = {"name": "t.csv", "table": {}}
    assert "more rows or fewer columns (--use, --drop) may help" in str(run)


def test_results_print_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    one = omkl.simulate((np.zeros((12, 2, 1)), np.ones((12, 2))), "path", method=omkl.paper(), nodes=2, seeds=2)
    both = omkl.Comparison(a=one, b=one)
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    for shown in (one, both):
        assert "± needs SciPy: pip install 'omkl[sim]'" in str(shown)
        assert " ± 0" not in str(shown)
    single = omkl.simulate((np.zeros((12, 2, 1)), np.ones((12, 2))), "path", method=omkl.paper(), nodes=2)
    assert "±" not in str(single)


def test_the_accuracy_of_guessing_stands_beside_that_of_the_network() -> None:
    run = result()
    run.config["guessing"] = {"accuracy": 0.6}
    assert "75.00% over the last tenth; 60.00% if one always guessed the most frequent class\n" in str(run)


def test_drift_is_hinted_at_where_nothing_is_forgotten() -> None:
    run = result()
    run.loss[:] = np.repeat(np.linspace(1, 3, 10), 2)
    learner = {"name": "pooled", "forget": 1.0}
    run.config["method"]["learner"] = learner
    hint = """--learner '{name="pooled", forget=0.99}' (learner=omkl.Pooled(forget=0.99))"""
    assert str(run).splitlines()[-2].endswith(f"if the data drift, forget what is old: {hint}")
    for other in (learner | {"forget": 0.99}, {"name": "sgd"}, None):
        run.config["method"]["learner"] = other
        assert "drift" not in str(run)


@pytest.mark.parametrize(
    ("curve", "most"),
    [
        (lambda rng: rng.chisquare(6, 400), 0.02),
        (lambda rng: rng.chisquare(6, 400) * (1 + 3 * np.exp(-np.arange(400) / 40)), 0.02),  # one that learns
        (lambda rng: np.sin(np.arange(400) / 20 + rng.uniform(0, 7)) + 2 + rng.chisquare(1, 400), 0.02),  # waves
        (lambda rng: rng.chisquare(1, 20), 0.06),
    ],
)
def test_data_that_stay_the_same_seldom_seem_to_drift(curve: Any, most: float) -> None:
    rng = np.random.default_rng(0)
    assert np.mean([worsens(curve(rng)) for _ in range(400)]) <= most


def test_a_steady_rise_and_a_late_one_are_found() -> None:
    rng = np.random.default_rng(0)
    rise = 1 + np.arange(400) / 100
    late = 1 + (np.arange(400) >= 350)
    for course in (rise, late):
        assert np.mean([worsens(course * rng.chisquare(24, 400)) for _ in range(100)]) > 0.9
    assert not worsens(np.arange(9.0))  # too few to tell


def test_names_of_users_are_short_and_escaped() -> None:
    shown = result(graph={"name": "<script>alert(1)</script>\n" + "very " * 200})
    assert len(str(shown)) < MOST
    assert len(str(shown).splitlines()) == 7
    page = shown._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<tr><th>final loss</th><td>0.2550 ± 0.0635 over the last tenth, 95 % over 2 seeds</td></tr>" in page


@pytest.mark.parametrize("graph", [{"name": "mine"}, [[0, 1], [1, 0]]])
def test_a_run_on_a_graph_of_the_users(graph: object) -> None:
    assert f"{'mine' if isinstance(graph, dict) else 'a matrix'} of 3 nodes" in str(result(graph=graph))


def test_a_graph_of_a_file_is_no_kind_of_graph() -> None:
    assert ": graph of links.csv, 3 nodes, 20 rounds" in str(result(graph={"name": "links.csv"}))


def test_a_model_of_random_features() -> None:
    model = result().model()
    assert str(model).splitlines()[:3] == [
        "Model of 2 inputs, 1 output, logistic loss",
        "  features  1 kernel, 2 random frequencies each",
        "  learned   4 coefficients",
    ]
    assert ".predict(X)  .predict_proba(X)  .classes_  " in str(model)
    assert model._repr_html_().startswith("<table><caption>Model of 2 inputs, 1 output, logistic loss</caption>")


def test_a_model_on_landmarks_with_units() -> None:
    ones = np.ones
    model = Model(
        None, ones((3, 2, 4), np.float32), ones(3, np.float32), Squared(outputs=2), ones((1, 500, 4), np.float32),
        ones(5), ones(5), ones((500, 5), np.float32), ones((2, 5), np.float32), ones(1, np.float32),
    )  # fmt: skip
    assert str(model).splitlines()[:4] == [
        "Model of 5 inputs, 2 outputs, squared loss",
        "  features  similarities to 500 landmarks",
        "  learned   8 coefficients for each of 3 models, weighed by their losses",
        "  inputs    as they come; the model standardizes them",
    ]
    assert ".predict(X)  .decision_function(X)" in str(model)
    assert len(str(model)) < MOST


def test_a_graph_and_its_weights() -> None:
    graph = topology.path(2000)
    assert repr(graph) == "<Graph path: 2,000 nodes, 1,999 links>"
    assert repr(topology.metropolis(graph)) == "<Topology metropolis weights on <Graph path: 2,000 nodes, 1,999 links>>"
    assert repr(topology.Graph(1, np.empty((0, 2), int))) == "<Graph custom: 1 node, 0 links>"
