"""What both estimators share: parameters, learning, files."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from omkl import storage
from omkl.data import cells
from omkl.data.reading import is_frame
from omkl.errors import InputError
from omkl.features import Kernel
from omkl.learners import Learner
from omkl.methods import Method, named
from omkl.model import Model, load_model
from omkl.online import BLOCK, Online, Row, Settings, Task, begin, files
from omkl.topology import build

Floats: TypeAlias = npt.NDArray[np.float64]
Table: TypeAlias = Any
"""What scikit-learn takes for rows: an array ``(n, d)``, a data frame, lists."""


ROWS: dict[str, Any] = {"dtype": np.float64, "accept_sparse": "csr", "ensure_all_finite": "allow-nan"}
"""What rows may be, for ``validate_data``: missing values are nan, and sparse rows are filled up block by block."""


REMEDIES = {
    "numbers with a decimal comma": 'read them as numbers, as pandas.read_csv(path, decimal=",") does',
    "dates": "make numbers of the dates, such as days and hours, or drop them",
    "spans of time": "make seconds of the spans, as X[name].dt.total_seconds()",
    "texts": (
        'put make_column_transformer((OneHotEncoder(sparse_output=False, handle_unknown="ignore"), {}), '
        'remainder="passthrough") before it'
    ),
}


class Fixed:
    """A model that was learned elsewhere: it predicts, and there is nothing to go on learning from."""

    nodes = 1

    def __init__(self, model: Model) -> None:
        self.model = model

    def outputs(self, X: Floats, node: int | None = None) -> Floats:
        """Return the outputs ``(n, C)``."""
        return self.model.decision_function(X).astype(np.float64)

    def models(self, node: int | None = None) -> tuple[Floats, Floats]:
        """Return models and log weights."""
        return self.model.theta.astype(np.float64), self.model.log_weights.astype(np.float64)


@dataclass(kw_only=True, eq=False, repr=False)
class Estimator(BaseEstimator):  # type: ignore[misc]
    """Parameters, learning and files of both estimators."""

    kernels: tuple[float | Kernel, ...] = Settings.sigmas
    rank: int = Settings.rank
    learner: Learner | str | None = None
    forget: float | tuple[float, ...] | None = None
    weight_rate: float = Settings.weight_rate
    warmup: int = Settings.warmup
    shuffle: bool = True
    nodes: int = 1
    topology: Any = "ring"
    method: Method | str | None = None
    random_state: Any = 0

    _targets: ClassVar[dict[str, Any]] = {}
    """What targets may be, for ``validate_data``."""

    @property
    def kernel_weights_(self) -> Floats:
        """The weights of the models, which sum to one; in a network, the weights of the mean log weights."""
        check_is_fitted(self, "_online")
        weights = np.exp(self._online.models()[1])
        return np.asarray(weights / weights.sum())

    def save(self, path: str | Path) -> None:
        """Write the estimator as npz with a JSON header. What ``load`` returns goes on learning as this one would.

        The file contains the landmarks, which are rows that it was calibrated on, without their targets.
        """
        check_is_fitted(self, "_online")
        if isinstance(self._online, Fixed):
            raise InputError("the model was learned elsewhere; an estimator's file would add nothing; use Model.save")
        params = self._begun | {"random_state": self._online.seed}
        if not isinstance(params["topology"], str):
            params["topology"] = build(params["topology"]).matrix().tolist()
        header, arrays = files.dump(self._online)
        header |= {"estimator": type(self).__name__, "params": {key: files.plain(params[key]) for key in params}}
        header |= {"columns": self.n_features_in_, "names": list(getattr(self, "feature_names_in_", []))}
        storage.write(path, arrays | self._own_arrays(), header)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the estimator that ``save`` wrote."""
        header, arrays = files.read(path, cls.__name__)
        known = cls._get_param_names()  # parameters that are gone were of another version
        with storage.refusing(f"{path} is not an omkl estimator", files.REMEDY):
            params = {key: files.setting(value) for key, value in header["params"].items() if key in known}
            estimator = cls(**params)
            estimator.n_features_in_ = header["columns"]
            if header["names"]:
                estimator.feature_names_in_ = np.array(header["names"], dtype=object)
            # Not by the parameters, of which those left open may mean something else in another version.
            method = files.setting(header["method"])
            estimator._online = estimator._begin(estimator._own_task(arrays), method)
            files.fill(estimator._online, header, arrays)
        return estimator

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags

    def _begin(self, task: Task, method: Method | None = None) -> Online:
        """Return a learner that has seen nothing."""
        is_one = self.nodes == 1
        topology = (
            None if is_one and isinstance(self.topology, str) else build(self.topology, None if is_one else self.nodes)
        )
        if method is None and self.method is None:
            parts = self.kernels, self.rank, self.learner, self.forget, self.weight_rate, self.warmup
            method = Settings.of(*parts).method(1 if topology is None else topology.nodes)
        method = named(self.method) if method is None else method
        is_seed = isinstance(self.random_state, int | np.integer)
        seed = self.random_state if is_seed else check_random_state(self.random_state).randint(2**31)
        self._begun = self.get_params()
        return begin(task, method, int(seed), self.warmup, topology)

    def _read(self, X: Any, y: Any, sample_weight: Any, first: bool = True) -> tuple[Any, Any, Floats]:
        """Return rows, targets and a weight for every row; refuse what is none."""
        with _explaining(X, y if self._targets else None):
            X, y = validate_data(self, X, y, reset=first, **ROWS, **self._targets)
            y = y.astype(np.float64) if self._targets else y
        if y.dtype.kind in "Of" and (gone := np.array([label is None or label != label for label in y.flat])).any():
            row = int(gone.argmax()) // (y.size // len(y))
            raise InputError(f"y has no value in row {row}; a row that is learned must have a target; leave it out")
        rule = f"there are {len(y)} rows; give each a finite weight of zero or more"
        try:
            weights = np.asarray(1.0 if sample_weight is None else sample_weight, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"sample_weight is {sample_weight!r}; {rule}") from None
        if weights.shape not in ((), (len(y),)) or not (np.isfinite(weights) & (weights >= 0)).all():
            raise InputError(f"sample_weight has shape {weights.shape} and minimum {weights.min(initial=0):g}; {rule}")
        return X, y, np.broadcast_to(weights, (len(y),))

    def fit(self, X: Table, y: Any, sample_weight: Any = None, node: Any = None) -> Self:
        """Learn these rows and no others, and return the estimator."""
        X, y, weights = self._read(X, y, sample_weight)
        if not weights.any():
            raise InputError("every sample weight is zero; rows of weight zero are ignored; give some rows weight")
        self._expect(y)
        return self._learn(X, self._numbered(y, weights), weights, node, self.shuffle)

    def _learn(self, X: Any, y: Floats, weights: Floats, node: Any, shuffle: bool = False) -> Self:
        """Learn rows; those of weight zero are ignored."""
        online = self._online
        if isinstance(online, Fixed):
            raise InputError("the model was learned elsewhere and has no learner's memory; call fit to learn anew")
        nodes = None if node is None else self._checked(np.asarray(node), len(y))
        order = np.random.default_rng(online.seed).permutation(len(y)) if shuffle else np.arange(len(y))
        kept, before = order[weights[order] > 0], online.seen
        for start in range(0, len(kept), BLOCK):
            some = kept[start : start + BLOCK]
            online.learn_many([
                Row(x, y[k].copy(), float(weights[k]),
                    (before + turn) % online.nodes if nodes is None else int(nodes[k]))
                for turn, (k, x) in enumerate(zip(some, _dense(X[some]), strict=True), start)
            ])  # fmt: skip
        return self

    def _checked(self, nodes: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
        """Return a node for every row; refuse what is none."""
        count, is_whole = self._online.nodes, np.issubdtype(nodes.dtype, np.integer)
        if nodes.shape not in ((), (rows,)) or not is_whole or ((nodes < 0) | (nodes >= count)).any():
            raise InputError(f"node is {nodes}; nodes are numbered 0 ... {count - 1}; give one, or one for each row")
        return np.broadcast_to(nodes, (rows,))

    def _outputs(self, X: Table, node: int | None) -> Floats:
        check_is_fitted(self, "_online")
        with _explaining(X):
            X = validate_data(self, X, reset=False, **ROWS)
        if node is not None:
            self._checked(np.asarray(node), 0)
        blocks = (_dense(X[start : start + BLOCK]) for start in range(0, X.shape[0], BLOCK))
        return np.concatenate([self._online.outputs(block, node) for block in blocks])

    def _fix(self, model: Model | str | Path) -> Model:
        """Take a model for what has been learned."""
        model = model if isinstance(model, Model) else load_model(model)
        if model.encoding is not None:
            raise InputError(
                "the model is of a table, and its inputs are encoded columns; an estimator takes numbers as they are; "
                "predict with the model: omkl.load_model(path).predict(table)"
            )
        self._online: Online | Fixed = Fixed(model)
        self.n_features_in_ = model.features.inputs
        return model


@contextmanager
def _explaining(X: Any, y: Any = None) -> Iterator[None]:
    """Tell of columns that are no numbers by their names, and of what to do, where scikit-learn refuses rows.

    ``y`` is a target that must be a number.
    """
    names = list(X.columns) if is_frame(X) else None
    if names == []:
        raise InputError("X has 0 feature(s), a data frame without columns; one is needed at least; add a column")
    try:
        yield
    except (TypeError, ValueError) as error:
        kinds: dict[str, Any] = {}
        for name in names or ():
            if kind := _kind(np.asarray(X[name])):
                kinds.setdefault(kind, []).append(name)
        if not kinds and y is not None and _kind(given := np.asarray(y)):
            raise InputError(
                f"y has {_kind(given)}, as {given.flat[0]!r}; a regressor takes numbers; for classes use OMKLClassifier"
            ) from None
        if names is None and "could not convert string" in str(error):
            kinds = {"texts": "[the numbers of these columns]"}
        if not kinds:
            raise
        which = " and ".join(kind if names is None else f"{kind} in {found}" for kind, found in kinds.items())
        remedies = [REMEDIES[kind].format(found) for kind, found in kinds.items()]
        raise InputError(f"X has {which}; an estimator takes numbers; {'; '.join(remedies)}") from None


def _kind(column: npt.NDArray[Any]) -> str | None:
    """Return what cells are if they are no numbers."""
    if column.dtype.kind in "mM":
        return "dates" if column.dtype.kind == "M" else "spans of time"
    try:
        column.astype(np.float64)
    except (TypeError, ValueError):
        found = cells.texts(column)
        if cells.style_of(found, has_decimal_commas=True) == cells.DECIMAL_COMMA:
            return "numbers with a decimal comma"
        return "dates" if cells.look_like_dates(found) else "texts"
    return None


def _dense(X: Any) -> Floats:
    """Return rows as an array of their own."""
    return np.array(X.toarray() if hasattr(X, "toarray") else X)
