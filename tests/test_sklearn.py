"""The doors of scikit-learn."""

import json
import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_digits, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import omkl
from omkl import storage
from omkl.errors import InputError
from omkl.features import Features
from omkl.node.learning import Learning
from omkl.sklearn import OMKLClassifier, OMKLRegressor

# In a process of its own: scikit-learn leaves one check out unless the variable is set before SciPy is imported.
CONFORMANCE = """
import json
from sklearn.utils.estimator_checks import check_estimator
from omkl.sklearn import OMKLClassifier, OMKLRegressor

online = "an online learner depends on the order of rows"
expected = {f"check_sample_weight_equivalence_on_{kind}_data": online for kind in ("dense", "sparse")}
told = {}
for estimator in (OMKLClassifier(), OMKLRegressor()):
    results = check_estimator(estimator, expected_failed_checks=expected, on_fail=None, on_skip=None)
    told[type(estimator).__name__] = [(one["check_name"], one["status"]) for one in results]
print(json.dumps(told))
"""
CHECKS = {"OMKLClassifier": 63, "OMKLRegressor": 60}  # of scikit-learn 1.9
QUICK: dict[str, Any] = {"rank": 12, "warmup": 16}

Floats = npt.NDArray[np.float64]


@pytest.fixture(scope="module")
def moons() -> tuple[Floats, npt.NDArray[np.int64]]:
    X, y = make_moons(120, noise=0.1, random_state=0)
    return X, y


def test_check_estimator() -> None:
    quiet = {"SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    run = [sys.executable, "-c", CONFORMANCE]
    done = subprocess.run(run, env=os.environ | quiet, capture_output=True, text=True, timeout=600, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told.keys() == CHECKS.keys()
    for name, results in told.items():
        failed = [check for check, status in results if status in ("failed", "xfail")]
        assert all(check.startswith("check_sample_weight_equivalence_") for check in failed), failed
        skipped = [check for check, status in results if status == "skipped"]
        assert not skipped or not find_spec("pandas"), skipped
        assert len(results) >= CHECKS[name]


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("rows", [1, 5, 16, 60])
def test_rows_at_once_are_rows_one_by_one_to_the_bit(moons: Any, nodes: int, rows: int) -> None:
    X, y = moons
    weights = np.tile([1.0, 0.0, 0.5], 20)[:rows]
    many, single = (OMKLClassifier(nodes=nodes, **QUICK) for _ in range(2))
    many.partial_fit(X[:rows], y[:rows], [0, 1], weights)
    for k in range(rows):
        single.partial_fit(X[k : k + 1], y[k : k + 1], [0, 1], weights[k : k + 1])
    assert np.array_equal(many.decision_function(X), single.decision_function(X))
    assert np.array_equal(many.kernel_weights_, single.kernel_weights_)


@pytest.mark.parametrize("rows", [10, 60])
def test_a_prediction_does_not_depend_on_the_rows_beside_it(moons: Any, rows: int) -> None:
    X, y = moons
    model = OMKLClassifier(**QUICK).partial_fit(X[:rows], y[:rows], [0, 1])
    single = np.concatenate([model.decision_function(x[None]) for x in X])
    together = model.decision_function(X)
    assert np.allclose(together, single, rtol=1e-12, atol=1e-14)
    if rows > QUICK["warmup"] and find_spec("numba"):
        assert np.array_equal(together, single)


def test_several_outputs_at_once_are_rows_one_by_one_to_the_bit() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    y = np.stack([X[:, 0], X[:, 1] * X[:, 2]], axis=1)
    many, single = OMKLRegressor(**QUICK).partial_fit(X, y), OMKLRegressor(**QUICK)
    for k in range(40):
        single.partial_fit(X[k : k + 1], y[k : k + 1])
    assert many.predict(X).shape == (40, 2)
    assert np.array_equal(many.predict(X), single.predict(X))


@pytest.mark.parametrize("rows", [3, 16, 50])
@pytest.mark.parametrize("how", ["file", "pickle"])
@pytest.mark.parametrize(
    "settings", [{}, {"nodes": 4}, {"learner": omkl.Newton(prior=5)}, {"method": omkl.paper(), "nodes": 3}]
)
def test_a_resumed_estimator_is_an_uninterrupted_one_to_the_bit(
    moons: Any, tmp_path: Path, rows: int, how: str, settings: dict[str, Any]
) -> None:
    X, y = moons
    labels = np.array(["no", "yes"])[y]
    one = OMKLClassifier(**(QUICK | settings)).partial_fit(X[:rows], labels[:rows], classes=["no", "yes"])
    if how == "file":
        one.save(tmp_path / "one.npz")
        other = OMKLClassifier.load(tmp_path / "one.npz")
    else:
        other = pickle.loads(pickle.dumps(one))
    assert other.get_params() == one.get_params()
    for estimator in (one, other):
        estimator.partial_fit(X[rows:], labels[rows:])
    assert np.array_equal(one.decision_function(X), other.decision_function(X))
    assert np.array_equal(one.predict(X), other.predict(X))


def test_files_of_regressors_and_of_graphs(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(50, 2))
    one = OMKLRegressor(nodes=3, topology=omkl.topology.path(3), **QUICK).fit(X, X)
    one.save(tmp_path / "one.npz")
    other = OMKLRegressor.load(tmp_path / "one.npz")
    for estimator in (one, other):
        estimator.partial_fit(X[:7], X[:7])
    assert np.array_equal(one.predict(X), other.predict(X))
    with pytest.raises(InputError, match="has an OMKLRegressor; an OMKLClassifier was"):
        OMKLClassifier.load(tmp_path / "one.npz")
    with pytest.raises(
        InputError, match=r"is not an omkl model \(it holds an estimator: OMKLRegressor.load reads it\)"
    ):
        omkl.load_model(tmp_path / "one.npz")
    (tmp_path / "bad.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match="is not an omkl estimator"):
        OMKLRegressor.load(tmp_path / "bad.npz")
    header, arrays = storage.load(tmp_path / "one.npz")
    for name, found in (("shape", arrays), ("state_0", arrays), ("params", header), ("seen", header)):
        lacking = [{key: value for key, value in part.items() if key != name} for part in (arrays, header)]
        assert name in found
        storage.write(tmp_path / "bad.npz", *lacking)
        with pytest.raises(
            InputError, match=rf"bad.npz is not an omkl estimator \('{name}'\); pass a file written by save"
        ):
            OMKLRegressor.load(tmp_path / "bad.npz")


def test_fit_shuffles_and_forgets(moons: Any) -> None:
    X, y = moons
    order = np.argsort(y)
    shuffled = OMKLClassifier(**QUICK).fit(X[order], y[order])
    assert np.array_equal(shuffled.fit(X[order], y[order]).decision_function(X), shuffled.decision_function(X))
    in_order = OMKLClassifier(shuffle=False, **QUICK).fit(X, y)
    assert np.array_equal(
        in_order.decision_function(X),
        OMKLClassifier(**QUICK).partial_fit(X, y, [0, 1]).decision_function(X),
    )
    assert not np.array_equal(shuffled.decision_function(X), in_order.decision_function(X))


def test_digits_of_ten_classes() -> None:
    X, y = load_digits(return_X_y=True)
    estimator = OMKLClassifier(rank=64, warmup=128).fit(X[:600], y[:600])
    assert estimator.score(X[600:900], y[600:900]) > 0.85
    shares = estimator.predict_proba(X[600:700])
    assert shares.shape == estimator.decision_function(X[600:700]).shape == (100, 10)
    assert np.allclose(shares.sum(axis=1), 1)
    assert np.array_equal(estimator.classes_[shares.argmax(axis=1)], estimator.predict(X[600:700]))


def test_pipelines_grids_and_clones(moons: Any) -> None:
    X, y = moons
    pipeline = make_pipeline(StandardScaler(), OMKLClassifier(**QUICK))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.7
    grid = GridSearchCV(OMKLClassifier(**QUICK), {"kernels": [(0.2,), (0.2, 1.0)], "rank": [4, 12]}, cv=2).fit(X, y)
    assert grid.best_params_["rank"] == 12
    assert clone(grid.best_estimator_).get_params() == grid.best_estimator_.get_params()
    with pytest.raises(NotFittedError):
        clone(grid.best_estimator_).predict(X)


def test_frames(moons: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    X, y = moons
    frame, labels = pandas.DataFrame(X, columns=["a", "b"]), pandas.Series(np.array(["no", "yes"])[y])
    estimator = OMKLClassifier(**QUICK).fit(frame, labels)
    assert estimator.feature_names_in_.tolist() == ["a", "b"]
    estimator.save(tmp_path / "one.npz")
    loaded = OMKLClassifier.load(tmp_path / "one.npz")
    assert loaded.predict(frame).tolist() == estimator.predict(frame).tolist()
    assert loaded.feature_names_in_.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["b", "a"]])


def test_classes_of_partial_fit(moons: Any) -> None:
    X, y = moons
    with pytest.raises(
        InputError, match=r"there is 1 class; a classifier begins with two or more; .*name them: partial_fit.*classes="
    ):
        OMKLClassifier().partial_fit(X[:1], y[:1])
    assert OMKLClassifier(**QUICK).partial_fit(X, y).classes_.tolist() == [0, 1]
    estimator = OMKLClassifier(**QUICK).partial_fit(X, y, classes=[0, 1, 2])
    assert estimator.predict_proba(X).shape == (120, 3)
    assert estimator.partial_fit(X, y, classes=[0, 1]).classes_.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="label 7 is not among the classes"):
        estimator.partial_fit(X, np.full(120, 7), classes=[0, 1])


@pytest.mark.parametrize("at", [10, 40])
def test_new_classes_of_partial_fit_wherever_calls_are_cut(moons: Any, tmp_path: Path, at: int) -> None:
    X, y = moons
    labels = np.array(["b", "c"])[y]
    labels[at:][X[at:, 1] > 0.6] = "a"
    whole, cut = (OMKLClassifier(**QUICK).partial_fit(X[:5], labels[:5], ["b", "c"]) for _ in range(2))
    whole.partial_fit(X[5:], labels[5:])
    for k in range(5, 120):
        cut.partial_fit(X[k : k + 1], labels[k : k + 1])
    assert whole.classes_.tolist() == ["a", "b", "c"]
    assert np.array_equal(whole.predict_proba(X), cut.predict_proba(X))
    assert (whole.predict(X) == labels)[at:].mean() > 0.7
    whole.save(tmp_path / "m.npz")
    assert np.array_equal(OMKLClassifier.load(tmp_path / "m.npz").predict_proba(X), whole.predict_proba(X))


def test_missing_values_and_sparse_rows(moons: Any) -> None:
    X, y = moons
    holes = np.where(np.arange(240).reshape(120, 2) % 7 == 0, np.nan, X)
    assert OMKLClassifier().fit(holes, y).score(holes, y) > 0.8
    assert np.isfinite(OMKLRegressor().fit(holes, X[:, 0]).predict(holes)).all()
    few = np.where(np.abs(X) < 0.4, 0, X)
    dense, filled = (OMKLClassifier(**QUICK).fit(table, y) for table in (few, csr_array(few)))
    assert np.array_equal(dense.decision_function(few), filled.decision_function(csr_array(few)))
    values = OMKLRegressor(**QUICK).partial_fit(csr_array(few), X[:, 0])
    assert np.array_equal(values.predict(few), OMKLRegressor(**QUICK).partial_fit(few, X[:, 0]).predict(few))


@pytest.mark.parametrize("weight", ["balanced", {0: 1.0, 1: 20.0}])
def test_class_weight_finds_more_of_the_rare_class(weight: Any, tmp_path: Path, rng: np.random.Generator) -> None:
    X = rng.normal(size=(900, 2))
    y = (X[:, 0] + rng.normal(size=900) > 2.3).astype(int)
    rare, plain, whole, cut = X[y == 1], OMKLClassifier(), *(OMKLClassifier(class_weight=weight) for _ in range(2))
    assert OMKLClassifier(class_weight=weight).fit(X, y).predict(rare).mean() > 0.5
    assert plain.fit(X, y).predict(rare).mean() < 0.3
    whole.partial_fit(X, y, [0, 1])
    for k in range(0, 900, 100):
        cut.partial_fit(X[k : k + 100], y[k : k + 100], [0, 1])
    assert np.array_equal(whole.predict_proba(X), cut.predict_proba(X))
    assert whole.predict(rare).mean() > 0.5
    whole.save(tmp_path / "m.npz")
    again = OMKLClassifier.load(tmp_path / "m.npz")
    assert again.class_weight == weight
    assert np.array_equal(again.partial_fit(X, y).predict_proba(X), whole.partial_fit(X, y).predict_proba(X))


def test_a_class_without_rows_is_not_predicted_for_the_sake_of_balance(moons: Any) -> None:
    X, y = moons[0][:200], moons[1][:200]
    model = OMKLClassifier(class_weight="balanced").partial_fit(X, y, classes=[0, 1, 2])
    assert set(model.predict(X).tolist()) == {0, 1}


def test_late_labels_of_another_kind_are_refused(moons: Any) -> None:
    X, y = moons[0][:60], moons[1][:60]
    model = OMKLClassifier().partial_fit(X, y)
    with pytest.raises(InputError, match="labels are all numbers or all text"):
        model.partial_fit(X, y.astype(str))
    assert model.classes_.tolist() == [0, 1]


def test_class_weights_that_are_none(moons: Any) -> None:
    with pytest.raises(InputError, match="and finite"):
        OMKLClassifier(class_weight={0: np.inf}).fit(*moons).predict(moons[0])
    with pytest.raises(InputError, match="class_weight is 'even'"):
        OMKLClassifier(class_weight="even").fit(*moons).predict(moons[0])


def test_documented_defaults_are_the_numbers_of_the_network() -> None:
    best = omkl.recommended()
    defaults = OMKLClassifier().get_params()
    assert isinstance(best.bank.basis, omkl.Landmarks)
    assert defaults["kernels"] == tuple(kernel.sigma for kernel in best.bank.kernels)
    assert defaults["rank"] == best.bank.basis.rank
    for name in ("kernels", "rank", "weight_rate", "warmup"):
        assert str(defaults[name]) in (OMKLClassifier.__doc__ or "")


def test_a_row_of_weight_zero_is_not_there(moons: Any) -> None:
    X, y = moons
    weights = np.arange(120) % 2
    some = OMKLClassifier(nodes=3, **QUICK).partial_fit(X, y, [0, 1], sample_weight=weights)
    rest = OMKLClassifier(nodes=3, **QUICK).partial_fit(X[1::2], y[1::2], [0, 1])
    assert np.array_equal(some.decision_function(X), rest.decision_function(X))


@pytest.mark.parametrize("weight", [-1, [1, 2], "heavy", np.nan])
def test_weights_that_are_none(moons: Any, weight: Any) -> None:
    X, y = moons
    estimator = OMKLClassifier(**QUICK)
    with pytest.raises(InputError, match="there are 120 rows"):
        estimator.partial_fit(X, y, [0, 1], sample_weight=weight)
    assert not hasattr(estimator, "classes_")


def test_nodes_learn_from_each_other(moons: Any) -> None:
    X, y = moons
    node = (X[:, 0] > X[:, 0].mean()).astype(int)
    together = OMKLClassifier(nodes=2, shuffle=False, **QUICK).fit(X, y, node=node)
    alone = OMKLClassifier(nodes=2, shuffle=False, method=omkl.Local(learner=omkl.Newton())).fit(X, y, node=node)
    away = node == 0
    assert (together.predict(X[away], node=1) == y[away]).mean() > (alone.predict(X[away], node=1) == y[away]).mean()
    assert not np.array_equal(together.decision_function(X, node=0), together.decision_function(X, node=1))
    assert np.isclose(together.kernel_weights_.sum(), 1)


@pytest.mark.parametrize("node", [2, -1, 0.5, [0, 1, 0]])
def test_nodes_that_are_none(moons: Any, node: Any) -> None:
    X, y = moons
    with pytest.raises(InputError, match="nodes are numbered 0"):
        OMKLClassifier(nodes=2, **QUICK).fit(X, y, node=node)
    fitted = OMKLClassifier(nodes=2, **QUICK).fit(X, y)
    with pytest.raises(InputError, match="nodes are numbered"):
        fitted.predict(X, node=2)


def test_models_of_a_simulation(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.where(X[:, 0] > 0, 1, -1)
    model = omkl.simulate((X, y), "ring", nodes=3, method=omkl.Gossip(eta=1.0)).model(seed=0, node=1)
    model.save(tmp_path / "model.npz")
    estimator = OMKLClassifier.from_model(tmp_path / "model.npz", classes=["left", "right"])
    assert np.array_equal(estimator.decision_function(X), model.decision_function(X)[:, 0])
    assert np.array_equal(OMKLClassifier.from_model(model).predict(X), model.predict(X))
    assert set(estimator.predict(X)) == {"left", "right"}
    assert estimator.n_features_in_ == 2
    assert np.allclose(estimator.kernel_weights_, model.weights)
    with pytest.raises(InputError, match="learned elsewhere"):
        estimator.partial_fit(X, estimator.predict(X))
    with pytest.raises(InputError, match="learned elsewhere"):
        estimator.save(tmp_path / "estimator.npz")
    with pytest.raises(InputError, match="it has classes"):
        OMKLRegressor.from_model(model)
    with pytest.raises(InputError, match="name each of them"):
        OMKLClassifier.from_model(model, classes=[1, 2, 3])
    assert estimator.fit(X, y).score(X, y) > 0.8


def test_models_of_a_node(tmp_path: Path) -> None:
    X = 100 + 50 * np.random.default_rng(0).normal(size=(60, 2))
    node = Learning(omkl.Gossip(eta=1.0, loss=omkl.Softmax(3)), 2, seed=0, index=0, standardize=True)
    for x in X:
        node.learn(x, node.targets(int(x[0] > 80) + int(x[0] > 120)))
    node.model().save(tmp_path / "model.npz")
    estimator = OMKLClassifier.from_model(tmp_path / "model.npz")
    assert estimator.classes_.tolist() == [0, 1, 2]
    np.testing.assert_allclose(estimator.decision_function(X), node.predict(X), atol=1e-5)  # two texts
    assert np.array_equal(estimator.predict(X), node.model().predict(X))


def test_models_of_values() -> None:
    made = Features(np.ones((1, 2, 3), np.float32))
    theta = np.ones((1, 2, 4), np.float32)
    model = omkl.Model(made.frequencies, theta, np.zeros(1, np.float32), omkl.Squared(outputs=2))
    X = np.random.default_rng(0).normal(size=(5, 3))
    assert np.array_equal(OMKLRegressor.from_model(model).predict(X), model.predict(X))
    with pytest.raises(InputError, match="no classes"):
        OMKLClassifier.from_model(model)


def test_huber_minds_outliers_less() -> None:
    X = np.random.default_rng(0).uniform(-2, 2, size=(300, 1))
    y = np.sin(X[:, 0])
    dirty = np.where(np.arange(300) % 10 == 0, 20.0, y)
    errors = [((OMKLRegressor(loss=loss).fit(X, dirty).predict(X) - y) ** 2).mean() for loss in ("squared", "huber")]
    assert errors[1] < 0.5 * errors[0]


def test_unknown_losses_and_learners() -> None:
    X = np.ones((3, 1))
    with pytest.raises(InputError, match="unknown loss 'square'; did you mean 'squared'"):
        OMKLRegressor(loss="square").fit(X, X[:, 0])
    with pytest.raises(InputError, match="unknown learner"):
        OMKLRegressor(learner="newtown").fit(X, X[:, 0])


def test_an_outlier_does_not_choose_the_kernel_for_good(rng: np.random.Generator) -> None:
    X = rng.normal(size=(3000, 3))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2
    seen = y.copy()
    seen[600] = 300
    assert OMKLRegressor(shuffle=False).fit(X[:2500], seen[:2500]).score(X[2500:], y[2500:]) > 0.6


@pytest.mark.parametrize("jitter", [0, 1e-6])
def test_rows_that_are_mostly_alike(jitter: float, rng: np.random.Generator) -> None:
    X = rng.normal(size=(1500, 2))
    idle = rng.uniform(size=1500) < 0.8
    X[idle] = jitter * rng.normal(size=(idle.sum(), 2))
    y = X[:, 0] * X[:, 1] > 0
    model = OMKLClassifier().fit(X[:1200], y[:1200])
    assert model.score(X[1200:][~idle[1200:]], y[1200:][~idle[1200:]]) > 0.85


def test_where_all_rows_are_alike_it_learns_how_often(rng: np.random.Generator) -> None:
    X, y = np.ones((600, 2)), rng.uniform(size=600) < 0.3
    assert abs(OMKLClassifier().fit(X, y).predict_proba(X[:1])[0, 1] - y.mean()) < 0.05


def test_a_graph_says_how_many_nodes_there_are(rng: np.random.Generator) -> None:
    X = rng.normal(size=(60, 2))
    model = OMKLClassifier(topology=omkl.topology.ring(5)).fit(X, X[:, 0] > 0)
    model.predict(X, node=4)
    with pytest.raises(InputError, match="node is 5"):
        model.predict(X, node=5)


def test_a_first_call_that_is_refused_leaves_nothing(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(10, 2)), np.arange(10) % 2
    model = OMKLClassifier()
    with pytest.raises(InputError, match="label 1 is not among"):
        model.partial_fit(X, y, classes=[0, 5])
    assert model.partial_fit(X, y, classes=[0, 1]).classes_.tolist() == [0, 1]


def test_what_is_saved_is_what_was_learned_with(tmp_path: Path, rng: np.random.Generator) -> None:
    X = rng.normal(size=(30, 2))
    model = OMKLRegressor().fit(X, X[:, 0])
    model.set_params(nodes=5, loss="huber").save(tmp_path / "m.npz")
    assert OMKLRegressor.load(tmp_path / "m.npz").loss == "squared"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"learner": 3}, "learner is 3, which lacks name, has_prior, init, update"),
        ({"learner": omkl.Newton}, "learner is the class Newton; give a name or an object"),
        ({"rank": None}, "rank is None; it must be a whole number from 1 on; pass rank=120"),
        ({"forget": 2.0}, r"forget is 2.0; it must lie in \[0.5, 1\]"),
        ({"forget": 0.9, "learner": "newton"}, "is another learner; give its own"),
        ({"forget": (1, 0.9), "nodes": 3}, "nodes of a network forget at one rate"),
        ({"method": "adarake"}, "did you mean 'adaraker'"),
        ({"loss": omkl.Logistic()}, "numbers have squared or huber loss"),
    ],
)
def test_settings_are_checked_before_rows_are_learned(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        OMKLRegressor(**settings).fit([[0.0], [1.0]], [0.0, 1.0])


def test_losses_and_methods_as_objects_and_by_name(rng: np.random.Generator) -> None:
    X = rng.normal(size=(200, 2))
    for settings in ({"loss": omkl.Huber(delta=0.5)}, {"method": "local", "loss": "huber"}, {"kernels": 0.5}):
        model = OMKLRegressor(**settings).fit(X, X[:, 0])
        assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("warmup", [100, 512])
def test_some_weights_among_many_rows_and_any_cuts(warmup: int, rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(180, 2)), rng.normal(size=180)
    weights = np.where(np.arange(180) % 7 == 3, 2.5, 1.0)
    whole = OMKLRegressor(warmup=warmup).partial_fit(X, y, weights)
    cut = OMKLRegressor(warmup=warmup)
    for k in range(0, 180, 5):
        cut.partial_fit(X[k : k + 5], y[k : k + 5], weights[k : k + 5]).predict(X[:2])
    np.testing.assert_array_equal(cut.predict(X), whole.predict(X))


def test_columns_that_are_no_numbers_are_named(moons: Any) -> None:
    pd = pytest.importorskip("pandas")
    X, y = moons
    times = pd.date_range("2024-01-01", periods=len(y))
    frame = pd.DataFrame(X, columns=["u", "v"]).assign(
        t="red", k=pd.Categorical(["a"] * len(y)), sure=True, day="2024-01-01", zoned=times.tz_localize("UTC"),
        long=times - times[0],
    )  # fmt: skip
    learned = OMKLClassifier().fit(frame[["u", "v"]].assign(t=1.0), y)
    encode = r"make_column_transformer\(\(OneHotEncoder\(sparse_output=False, handle_unknown=\"ignore\"\), \['t'\]\)"
    for call in (lambda: OMKLClassifier().fit(frame[["u", "t"]], y), lambda: learned.predict(frame[["u", "v", "t"]])):
        with pytest.raises(InputError, match=rf"X has texts in \['t'\]; an estimator takes numbers; put {encode}"):
            call()
    with pytest.raises(InputError, match=r"numbers with a decimal comma in \['k'\]; .*; read them .*decimal=\",\""):
        OMKLClassifier().fit(pd.DataFrame({"k": ["20,5", "1.021,25"], "v": [1.0, 2.0]}), [0, 1])
    with pytest.raises(InputError, match=r"X has texts in \['k'\]"):
        OMKLClassifier().fit(frame[["u", "sure", "k"]], y)
    every = r"X has texts in \['t', 'k'\] and dates in \['day', 'zoned'\] and spans of time in \['long'\]; .*numbers of"
    with pytest.raises(InputError, match=every):
        OMKLClassifier().fit(frame, y)
    with pytest.raises(InputError, match=r"X has texts; .*make_column_transformer"):
        OMKLClassifier().fit(np.array([["a", "b"]] * len(y), dtype=object), y)
    with pytest.raises(InputError, match="without columns"):
        OMKLClassifier().fit(pd.DataFrame(), [])
    for texts in (np.array(["dry", "wet"] * len(y))[: len(y)], pd.Series(["dry"] * len(y))):
        for rows in (X, frame[["u", "v"]]):
            with pytest.raises(InputError, match=r"y has texts, as .*dry.*; a regressor .* use OMKLClassifier"):
                OMKLRegressor().fit(rows, texts)


@pytest.mark.parametrize("kind", [OMKLClassifier, OMKLRegressor])
def test_a_target_that_is_missing_is_refused(kind: Any, moons: Any) -> None:
    y = moons[1].astype(object)
    y[3] = None
    for call in (kind().fit, kind().partial_fit):
        with pytest.raises(InputError, match="y has no value in row 3; "):
            call(moons[0], y)


def test_inputs_whose_squares_are_infinite(moons: Any) -> None:
    X, y = moons
    score = OMKLClassifier().fit(X * 2.0**990, y).score(X * 2.0**990, y)
    assert score == OMKLClassifier().fit(X, y).score(X, y)
