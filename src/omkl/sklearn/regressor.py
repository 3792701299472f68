"""The regressor."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import RegressorMixin

from omkl.errors import InputError
from omkl.losses import Loss
from omkl.model import Model
from omkl.online import Regression, Task, files
from omkl.sklearn.base import Estimator, Floats, Table


@dataclass(kw_only=True, eq=False, repr=False)
class OMKLRegressor(RegressorMixin, Estimator):  # type: ignore[misc]
    """A regressor that learns rows one after another, adapts to drift, and needs no scaling or tuning.

    It takes one target or several. Targets are standardized by the rows that it is calibrated on.

    Parameters
    ----------
    loss
        The loss that is learned, by name; ``"squared"`` predicts the mean.
    forget
        As in ``OMKLClassifier``. Default: (1, 0.99, 0.9).
    kernels, rank, learner, weight_rate, warmup, shuffle, nodes, topology, method, random_state
        As in ``OMKLClassifier``.

    Attributes
    ----------
    kernel_weights_
        The weights of the models. They sum to one; there is one for each rate of forgetting under each prior, and one
        for the straight line.
    n_features_in_, feature_names_in_
        The columns that ``fit`` saw.

    Examples
    --------
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(600, 1))
    >>> bool(OMKLRegressor().fit(X, np.sin(X[:, 0])).score(X, np.sin(X[:, 0])) > 0.98)
    True
    """

    loss: Loss | str = "squared"

    _targets: ClassVar[dict[str, Any]] = {"multi_output": True, "y_numeric": True}

    def partial_fit(self, X: Table, y: Any, sample_weight: Any = None, node: Any = None) -> Self:
        """Learn these rows too, and return the estimator."""
        first = not hasattr(self, "_online")
        X, y, weights = self._read(X, y, sample_weight, first)
        if first:
            self._expect(y)
        elif y.shape[1:] != self._shape:
            raise InputError(f"y has shape {y.shape}; rows before had targets of shape {self._shape}; give the same")
        return self._learn(X, self._numbered(y, weights), weights, node)

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

    def _expect(self, y: npt.NDArray[Any]) -> None:
        self._shape = y.shape[1:]
        self._online = self._begin(self._task(self._shape))

    def _numbered(self, y: npt.NDArray[Any], weights: Floats) -> Floats:
        return np.asarray(y.reshape(len(y), -1), dtype=np.float64)

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
