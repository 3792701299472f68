"""Estimators in the manner of scikit-learn: ``OMKLClassifier`` and ``OMKLRegressor``."""

from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl.errors import InputError, MissingExtraError
from omkl.features import Kernel, gaussian
from omkl.learners import LEARNERS, Learner
from omkl.methods import Method
from omkl.online import Classification, Online, Regression, Row, Settings
from omkl.topology import build

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, unique_labels
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ModuleNotFoundError as error:
    raise MissingExtraError(error.name or "scikit-learn", "sklearn") from None

SIGMAS = tuple(kernel.sigma for kernel in Settings.kernels)
Table: TypeAlias = Any
Floats: TypeAlias = npt.NDArray[np.float64]


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both estimators share."""

    def __init__(
        self,
        *,
        kernels: Any = SIGMAS,
        features: int = Settings.features,
        rank: int | None = Settings.rank,
        learner: Learner | str | None = None,
        weight_rate: float = Settings.weight_rate,
        warmup: int = Settings.warmup,
        shuffle: bool = True,
        nodes: int = 1,
        topology: Any = "ring",
        method: Method | None = None,
        random_state: Any = 0,
    ) -> None:
        self.kernels = kernels
        self.features = features
        self.rank = rank
        self.learner = learner
        self.weight_rate = weight_rate
        self.warmup = warmup
        self.shuffle = shuffle
        self.nodes = nodes
        self.topology = topology
        self.method = method
        self.random_state = random_state

    def _begin(self, task: Any) -> Online:
        """Return a learner that has seen nothing."""
        bank = tuple(k if isinstance(k, Kernel) else gaussian(k)[0] for k in self.kernels)
        rule = Settings.learner if self.learner is None else self.learner
        rule = LEARNERS[rule]() if isinstance(rule, str) else rule
        settings = Settings(bank, self.features, self.rank, rule, self.weight_rate, self.warmup)
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31)
        topology = None if self.nodes == 1 else build(self.topology, self.nodes)
        return Online(task, self.method or settings.method(self.nodes), int(seed), self.warmup, topology)

    def _learn(self, X: Floats, y: Floats, sample_weight: Any, node: Any, order: Any = None) -> Self:
        """Learn rows in order, or in the order given; those of weight zero are not there."""
        online: Online = self._online
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        nodes = self._nodes(node, len(X))
        for k in range(len(X)) if order is None else order:
            if weights[k] > 0:
                at = online.seen % online.nodes if nodes is None else int(nodes[k])
                online.learn(Row(X[k].copy(), y[k].copy(), float(weights[k]), at))
        return self

    def _nodes(self, node: Any, rows: int) -> npt.NDArray[np.int64] | None:
        if node is None:
            return None
        nodes = np.broadcast_to(np.asarray(node), (rows,))
        if not (np.issubdtype(nodes.dtype, np.integer) and ((nodes >= 0) & (nodes < self._online.nodes)).all()):
            raise InputError(
                f"node is {node!r}; nodes are numbered 0 ... {self._online.nodes - 1}; give one for each row"
            )
        return nodes

    def _order(self, rows: int) -> npt.NDArray[np.int64] | None:
        return np.random.default_rng(self._online.seed).permutation(rows) if self.shuffle else None

    def _outputs(self, X: Table, node: int | None) -> Floats:
        check_is_fitted(self, "_online")
        X = validate_data(self, X, reset=False, dtype=np.float64)
        if node is not None:
            self._nodes(node, 1)
        outputs: Floats = self._online.outputs(X, node)
        return outputs

    @property
    def kernel_weights_(self) -> Floats:
        """The weights of the kernels, which sum to one; in a network, of the mean of the log weights."""
        check_is_fitted(self, "_online")
        weights = np.exp(self._online.models()[1])
        return np.asarray(weights / weights.sum())


class OMKLClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A classifier that learns rows one after another, each once."""

    def fit(self, X: Table, y: Any, sample_weight: Any = None, node: Any = None) -> Self:
        """Return the estimator after it has learned these rows and no others, in random order unless told."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self._know(unique_labels(y))
        return self._learn(X, self._numbers(y), sample_weight, node, self._order(len(X)))

    def partial_fit(self, X: Table, y: Any, classes: Any = None, sample_weight: Any = None, node: Any = None) -> Self:
        """Return the estimator after it has learned these rows too, in order."""
        first = not hasattr(self, "_online")
        X, y = validate_data(self, X, y, dtype=np.float64, reset=first)
        check_classification_targets(y)
        if first:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit; give all there will be")
            self._know(unique_labels(classes))
        elif classes is not None and not np.array_equal(self.classes_, unique_labels(classes)):
            raise ValueError(f"classes is {classes!r}; the first call had {self.classes_}; give the same, or none")
        return self._learn(X, self._numbers(y), sample_weight, node)

    def decision_function(self, X: Table, node: int | None = None) -> Floats:
        """Return outputs: ``(n,)`` for two classes, positive for the second of them; else ``(n, C)``."""
        outputs = self._outputs(X, node)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def predict_proba(self, X: Table, node: int | None = None) -> Floats:
        """Return the probability of every class, ``(n, C)``."""
        outputs = self._outputs(X, node)
        if outputs.shape[1] == 1:
            outputs = outputs * [-0.5, 0.5]
        shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))

    def predict(self, X: Table, node: int | None = None) -> npt.NDArray[Any]:
        """Return the likeliest class of every row."""
        outputs = self._outputs(X, node)
        numbers = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
        return np.asarray(self.classes_[numbers.astype(int)])

    def _know(self, classes: npt.NDArray[Any]) -> None:
        if len(classes) < 2:
            raise ValueError(f"the number of classes has to be greater than one; got {len(classes)} class")
        self._online = self._begin(Classification(len(classes)))
        self.classes_ = classes

    def _numbers(self, y: npt.NDArray[Any]) -> Floats:
        numbers = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (unknown := self.classes_[numbers] != y).any():
            raise ValueError(
                f"label {y[unknown][0]!r} is not among the classes {self.classes_}; name all on the first call"
            )
        return numbers.astype(np.float64)[:, None]


class OMKLRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A regressor that learns rows one after another, each once."""

    def fit(self, X: Table, y: Any, sample_weight: Any = None, node: Any = None) -> Self:
        """Return the estimator after it has learned these rows and no others, in random order unless told."""
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        self._expect(y)
        return self._learn(X, y.reshape(len(X), -1).astype(np.float64), sample_weight, node, self._order(len(X)))

    def partial_fit(self, X: Table, y: Any, sample_weight: Any = None, node: Any = None) -> Self:
        """Return the estimator after it has learned these rows too, in order."""
        first = not hasattr(self, "_online")
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, reset=first)
        if first:
            self._expect(y)
        elif y.shape[1:] != self._shape:
            raise ValueError(f"y has shape {y.shape}; rows before had targets of shape {self._shape}; give the same")
        return self._learn(X, y.reshape(len(X), -1).astype(np.float64), sample_weight, node)

    def predict(self, X: Table, node: int | None = None) -> Floats:
        """Return the values ``(n,)``, or ``(n, C)`` where the targets were."""
        outputs = self._outputs(X, node)
        return outputs.reshape(len(outputs), *self._shape)

    def _expect(self, y: npt.NDArray[Any]) -> None:
        self._shape = y.shape[1:]
        self._online = self._begin(Regression(y.shape[1] if y.ndim > 1 else 1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
