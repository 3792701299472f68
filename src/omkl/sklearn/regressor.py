"""The regressor."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from omkl.errors import InputError
from omkl.losses import Loss
from omkl.model import Model
from omkl.online import Regression, Task, files
from omkl.sklearn.base import ROWS, Estimator, Floats, Table


@dataclass(kw_only=True, eq=False, repr=False)
class OMKLRegressor(RegressorMixin, Estimator):  # type: ignore[misc]
    """A multi-kernel regressor that learns rows one after another, for one output or several.

    Targets are learned in units of the rows that it is calibrated on, mean 0 and deviation 1.

    Parameters
    ----------
    loss
        What is learned, by name; ``"squared"`` has the mean for its optimum.
    forget
        As in ``OMKLClassifier``. Default: (1, 0.99, 0.9).
    kernels, rank, learner, weight_rate, warmup, shuffle, nodes, topology, method, random_state
        As in ``OMKLClassifier``.

    Attributes
    ----------
    kernel_weights_
        The weights of the models, which sum to one: each rate of forgetting under each prior, and the straight line.
    n_features_in_, feature_names_in_
        The columns that ``fit`` saw.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(600, 1))
    >>> bool(OMKLRegressor().fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.98)
    True
    """

    loss: Loss | str = "squared"

    def fit(self, X: Table, y: Any, sample_weight: Any = None, node: Any = None) -> Self:
        """Return the estimator after it has learned these rows and no others."""
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, **ROWS)
        weights = self._weights(sample_weight, len(y))
        if not weights.any():
            raise InputError("every sample weight is zero; rows of weight zero are not there; give some rows weight")
        self._expect(y.shape[1:])
        return self._learn(X, y.reshape(len(y), -1).astype(np.float64), weights, node, self.shuffle)

    def partial_fit(self, X: Table, y: Any, sample_weight: Any = None, node: Any = None) -> Self:
        """Return the estimator after it has learned these rows too."""
        first = not hasattr(self, "_online")
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, reset=first, **ROWS)
        weights = self._weights(sample_weight, len(y))
        if first:
            self._expect(y.shape[1:])
        elif y.shape[1:] != self._shape:
            raise InputError(f"y has shape {y.shape}; rows before had targets of shape {self._shape}; give the same")
        return self._learn(X, y.reshape(len(y), -1).astype(np.float64), weights, node)

    def predict(self, X: Table, node: int | None = None) -> Floats:
        """Return the values ``(n,)``, or ``(n, C)`` where the targets were."""
        outputs = self._outputs(X, node)
        return outputs.reshape(len(outputs), *self._shape)

    @classmethod
    def from_model(cls, model: Model | str | Path) -> Self:
        """Return an estimator that predicts with a model of ``simulate`` or of a node, or with its file."""
        estimator = cls()
        model = estimator._fix(model)
        if model.loss.name in ("logistic", "smoothed_hinge", "softmax"):
            raise InputError(f"the model was learned with {model.loss.name} loss; it has classes; use OMKLClassifier")
        estimator._shape = () if model.theta.shape[1] == 1 else (model.theta.shape[1],)
        return estimator

    def _expect(self, shape: tuple[int, ...]) -> None:
        self._online = self._begin(self._task(shape))
        self._shape = shape

    def _task(self, shape: tuple[int, ...]) -> Task:
        return Regression(shape[0] if shape else 1, self.loss)

    def _own_arrays(self) -> files.Arrays:
        return {"shape": np.array(self._shape, dtype=int)}

    def _own_task(self, arrays: files.Arrays) -> Task:
        self._shape = tuple(int(size) for size in arrays["shape"])
        return self._task(self._shape)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
