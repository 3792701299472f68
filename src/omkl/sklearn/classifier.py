"""The classifier."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import validate_data

from omkl.errors import InputError
from omkl.model import Model
from omkl.online import Classification, Task, files, probabilities
from omkl.sklearn.base import Estimator, Floats, Table


class OMKLClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """A multi-kernel classifier that learns rows one after another.

    Two classes are learned by the logistic loss, more by the softmax.

    Parameters
    ----------
    kernels
        Bandwidths of Gaussian kernels, in units of the median distance between inputs; or ``Kernel`` objects.
    features
        D, spectral samples of a kernel.
    rank
        Directions of the 2D features of a kernel that are learned; None learns all of them.
    learner
        The update rule, by name or as an object, such as ``omkl.Newton(prior=10)``; None is that of ``omkl.online``.
    weight_rate
        Rate of the kernel weights.
    warmup
        Rows to calibrate on, which are kept until they are complete.
    shuffle
        Whether ``fit`` takes rows in random order. ``partial_fit`` never does.
    nodes, topology
        Learn as a network of so many nodes, by the gossip of ``omkl.recommended``: rows are dealt out in turn, or go
        to the ``node`` that ``fit`` and ``partial_fit`` are told. A name such as ``"ring"``; or a
        graph or a matrix, which says their number itself.
    method
        Any method, such as ``omkl.letter()``, instead of one made of the parameters before; the loss is that of the
        task.
    random_state
        Seed of the features and of the order of ``fit``.

    Attributes
    ----------
    classes_
        The labels, sorted.
    kernel_weights_
        The weights of the kernels, which sum to one.
    n_features_in_, feature_names_in_
        The columns that ``fit`` saw.

    Notes
    -----
    Predictions of a network are those of the mean of its models, which gossip keeps and draws every node to; with
    ``node=3`` those of a node. A sample weight multiplies the loss of its row, in the learning of models and of kernel
    weights, and a learner that counts its samples counts that many; a row of weight zero is not there. Weights leave
    the calibration as it is, and a row of weight 2 is not the same as two rows: an online learner depends on order.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(400, noise=0.1, random_state=0)
    >>> bool(OMKLClassifier().fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.97)
    True
    """

    def fit(self, X: Table, y: Any, sample_weight: Any = None, node: Any = None) -> Self:
        """Return the estimator after it has learned these rows and no others."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        weights = self._weights(sample_weight, len(X))
        if not weights.any():
            raise InputError("every sample weight is zero; rows of weight zero are not there; give some rows weight")
        self._know(unique_labels(y), y)
        return self._learn(X, _numbers(y, self.classes_), weights, node, self.shuffle)

    def partial_fit(self, X: Table, y: Any, classes: Any = None, sample_weight: Any = None, node: Any = None) -> Self:
        """Return the estimator after it has learned these rows too; the first call names all ``classes``."""
        first = not hasattr(self, "_online")
        X, y = validate_data(self, X, y, dtype=np.float64, reset=first)
        check_classification_targets(y)
        weights = self._weights(sample_weight, len(X))
        if first:
            if classes is None:
                raise InputError("classes is None; the first call to partial_fit needs all there will be; pass classes")
            self._know(unique_labels(classes), y)
        elif classes is not None and not np.array_equal(self.classes_, unique_labels(classes)):
            raise InputError(f"classes is {classes!r}; the first call had {self.classes_}; give the same, or none")
        return self._learn(X, _numbers(y, self.classes_), weights, node)

    def decision_function(self, X: Table, node: int | None = None) -> Floats:
        """Return outputs: ``(n,)`` for two classes, positive for the second of them; else ``(n, C)``."""
        outputs = self._outputs(X, node)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def predict_proba(self, X: Table, node: int | None = None) -> Floats:
        """Return the probability of every class, ``(n, C)``."""
        return probabilities(self._outputs(X, node))

    def predict(self, X: Table, node: int | None = None) -> npt.NDArray[Any]:
        """Return the likeliest class of every row."""
        outputs = self._outputs(X, node)
        numbers = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
        return np.asarray(self.classes_[numbers.astype(int)])

    @classmethod
    def from_model(cls, model: Model | str | Path, classes: Any = None) -> Self:
        """Return an estimator that predicts with a model of ``simulate`` or of a node, or with its file.

        ``classes`` names the labels that the model has as -1 and +1, or as 0, 1, 2, ...
        """
        estimator = cls()
        model = estimator._fix(model)
        two = np.array([-1, 1])
        known = {"logistic": two, "smoothed_hinge": two, "softmax": np.arange(model.theta.shape[1])}
        if model.loss.name not in known:
            raise InputError(f"the model was learned with {model.loss.name} loss; it has no classes; use OMKLRegressor")
        estimator.classes_ = known[model.loss.name] if classes is None else np.asarray(classes)
        if len(estimator.classes_) != len(known[model.loss.name]):
            raise InputError(f"classes is {classes!r}; this model has {len(known[model.loss.name])}; name each of them")
        return estimator

    def _know(self, classes: npt.NDArray[Any], y: npt.NDArray[Any]) -> None:
        """Begin with these classes, if there are enough and all labels are among them."""
        if len(classes) < 2:
            raise InputError(f"y has {len(classes)} class; a classifier needs two or more; give rows of others")
        _numbers(y, classes)
        self._online = self._begin(Classification(len(classes)))
        self.classes_ = classes

    def _own_arrays(self) -> files.Arrays:
        classes = self.classes_.astype(str) if self.classes_.dtype == object else self.classes_
        if not np.array_equal(classes, self.classes_):
            raise InputError(f"the classes are {self.classes_}; a file holds numbers or strings; encode them first")
        return {"classes": classes, "object": np.array(self.classes_.dtype == object)}

    def _own_task(self, arrays: files.Arrays) -> Task:
        self.classes_ = arrays["classes"].astype(object) if arrays["object"] else arrays["classes"]
        return Classification(len(self.classes_))


def _numbers(y: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Floats:
    """Return the place of each label among the classes, ``(n, 1)``."""
    numbers = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    if (unknown := classes[numbers] != y).any():
        raise InputError(f"label {y[unknown][0]} is not among the classes {classes}; name all on the first call")
    return numbers.astype(np.float64)[:, None]
