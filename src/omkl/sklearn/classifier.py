"""The classifier."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels

from omkl.errors import InputError
from omkl.model import Model
from omkl.online import Classification, Task, files, probabilities
from omkl.sklearn.base import Estimator, Fixed, Floats, Table

LEAST = 1e-300  # weight of a class whose logarithm is taken


@dataclass(kw_only=True, eq=False, repr=False)
class OMKLClassifier(ClassifierMixin, Estimator):  # type: ignore[misc]
    """A classifier that learns rows one after another, adapts to drift, and needs no scaling or tuning.

    Two classes are learned with the logistic loss, more with the softmax loss.

    Parameters
    ----------
    kernels
        Bandwidths of Gaussian kernels, in units of the median distance between inputs. Default:
        (0.35, 0.7, 1.4, 2.8, 5.6).
    rank
        Number of coefficients of a model, at most: directions of the similarities to the landmarks. Default: 120.
    learner
        The update rule, by name or as an object, such as ``omkl.Newton(prior=10)``. Default:
        ``omkl.Pooled((600, 20))``.
    forget
        Rate of forgetting: each row multiplies the count of earlier rows by this, from 0.5 to 1; 1 forgets nothing.
        With several rates there is a model for each, weighed by their losses. Default: (1, 0.995).
    weight_rate
        How fast the weights of models follow their losses. Default: 1.0.
    warmup
        Number of first rows to calibrate on. They are kept until there are so many. Default: 512.
    class_weight
        Weight of each class: a dict, or ``"balanced"``, which makes up for different numbers of rows so far. The odds
        are multiplied by it when classes are predicted. Default: None, all alike.
    shuffle
        Whether ``fit`` takes rows in random order. ``partial_fit`` never does. Default: True.
    nodes, topology
        Learn as a network of ``nodes`` nodes, by the gossip of ``omkl.recommended``. Rows are dealt out in turn, or go
        to the ``node`` that you give to ``fit`` or ``partial_fit``. ``topology`` is a name such as ``"ring"``; or a
        graph or a matrix, which also sets the number of nodes. Default: 1 node.
    method
        Any method, such as ``omkl.paper()``. It replaces the parameters above; the loss is that of the task.
    random_state
        Seed of the order of ``fit``. Default: 0.

    Attributes
    ----------
    classes_
        The labels, sorted.
    kernel_weights_
        The weights of the models. They sum to one; there is one for each rate of forgetting under each prior, in order.
    n_features_in_, feature_names_in_
        The columns that ``fit`` saw.

    Notes
    -----
    Missing values are nan, and count as the mean of their column. Sparse rows are filled up, 256 at a time. New classes
    in ``partial_fit`` are learned from then on.

    A network predicts with the mean of its models; with ``node=3`` it predicts with the model of that node. A sample
    weight multiplies the loss of its row, and the row counts as that many samples. Rows of weight zero are ignored. A
    row of weight 2 is not the same as two rows, because an online learner depends on the order.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, y = make_moons(400, noise=0.1, random_state=0)
    >>> bool(OMKLClassifier().fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.97)
    True
    """

    class_weight: dict[Any, float] | str | None = None

    def partial_fit(self, X: Table, y: Any, classes: Any = None, sample_weight: Any = None, node: Any = None) -> Self:
        """Learn these rows too, and return the estimator.

        The first call needs at least two classes, in ``y`` or in ``classes``. Other classes may appear later.
        """
        first = not hasattr(self, "_online")
        X, y, weights = self._read(X, y, sample_weight, first)
        check_classification_targets(y)
        named = unique_labels(y) if classes is None else unique_labels(classes)
        if (unknown := ~np.isin(y, named)).any():
            raise InputError(
                f"label {y[unknown][0]} is not among the classes {named}; name it too, or leave out classes"
            )
        if first:
            self._know(named)
        elif classes is not None:
            self._grow(named)
        for rows in self._until_new(y):
            self._grow(y[rows.start : rows.start + 1])
            told = node if np.ndim(node) == 0 else np.asarray(node)[rows]
            self._learn(X[rows], self._numbered(y[rows], weights[rows]), weights[rows], told)
        return self

    def decision_function(self, X: Table, node: int | None = None) -> Floats:
        """Return outputs: ``(n,)`` for two classes, positive for the second class; else ``(n, C)``."""
        outputs = self._outputs(X, node)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def predict_proba(self, X: Table, node: int | None = None) -> Floats:
        """Return the probability of every class, ``(n, C)``."""
        return probabilities(self._outputs(X, node))

    def predict(self, X: Table, node: int | None = None) -> npt.NDArray[Any]:
        """Return the most likely class of every row."""
        outputs = self._outputs(X, node)
        numbers = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
        return np.asarray(self.classes_[numbers.astype(int)])

    @classmethod
    def from_model(cls, model: Model | str | Path, classes: Any = None) -> Self:
        """Return an estimator that predicts with a model from ``simulate`` or from a node, or with its file.

        ``classes`` are the names of the model's labels -1 and +1, or 0, 1, 2, ...
        """
        estimator = cls()
        model = estimator._fix(model)
        two = np.array([-1, 1])
        known = {"logistic": two, "smoothed_hinge": two, "softmax": np.arange(model.theta.shape[1])}
        if model.loss.name not in known:
            raise InputError(f"the model was learned with {model.loss.name} loss; it has no classes; use OMKLRegressor")
        estimator.classes_ = known[model.loss.name] if classes is None else np.asarray(classes)
        estimator._place, estimator._counts = np.arange(len(estimator.classes_)), np.zeros(len(estimator.classes_), int)
        if len(estimator.classes_) != len(known[model.loss.name]):
            raise InputError(f"classes is {classes!r}; this model has {len(known[model.loss.name])}; name each of them")
        return estimator

    def _outputs(self, X: Table, node: int | None) -> Floats:
        """Return outputs in the order of ``classes_``, in which later ones may stand before earlier ones.

        Models learn how likely classes are; what a class counts is added. Learning with rows that weigh more comes to
        the same in the end, and a heavy row would pull its neighbors with it.
        """
        outputs, offsets = super()._outputs(X, node), self._offsets()
        return outputs + (offsets[1] - offsets[0]) if outputs.shape[1] == 1 else outputs[:, self._place] + offsets

    def _expect(self, y: npt.NDArray[Any]) -> None:
        check_classification_targets(y)
        self._know(unique_labels(y))

    def _know(self, classes: npt.NDArray[Any]) -> None:
        """Begin with these classes, if there are enough."""
        if len(classes) < 2:
            raise InputError(
                f"there is {len(classes)} class; a classifier begins with two or more; give rows of others, or name "
                "them: partial_fit(X, y, classes=...)"
            )
        self._online = self._begin(Classification(len(classes)))
        self.classes_, self._place, self._counts = classes, np.arange(len(classes)), np.zeros(len(classes), int)

    def _until_new(self, y: npt.NDArray[Any]) -> Iterator[slice]:
        """Yield rows up to each that has a new class: it becomes known there, however calls cut the rows."""
        labels, first = np.unique(y, return_index=True)
        starts = sorted({0, *first[~np.isin(labels, self.classes_)].tolist()})
        for start, stop in zip(starts, [*starts[1:], len(y)], strict=True):
            yield slice(start, stop)

    def _grow(self, classes: npt.NDArray[Any]) -> None:
        """Know these classes too."""
        if (classes.dtype.kind in "USO") != (self.classes_.dtype.kind in "USO"):
            raise InputError(
                f"label {classes[0]!r} beside classes {self.classes_}; labels are all numbers or all text; encode y"
            )
        classes = classes[~np.isin(classes, self.classes_)]
        if not len(classes):
            return
        if isinstance(self._online, Fixed):
            raise InputError(f"classes {classes} are new; the model was learned elsewhere; call fit to learn anew")
        known = len(self.classes_)
        every = np.concatenate([self.classes_, classes])
        places = np.concatenate([self._place, known + np.arange(len(classes))])
        self._online.grow(len(every))
        order = np.argsort(every, kind="stable")
        self.classes_, self._place = every[order], places[order]
        self._counts = np.concatenate([self._counts, np.zeros(len(classes), int)])

    def _numbered(self, y: npt.NDArray[Any], weights: Floats) -> Floats:
        """Return the number of each label ``(n, 1)``, in the order in which classes became known, and count them."""
        numbers = self._place[np.searchsorted(self.classes_, y)]
        self._counts += np.bincount(numbers[weights > 0], minlength=len(self._counts))
        return np.asarray(numbers, dtype=np.float64)[:, None]

    def _offsets(self) -> Floats:
        """Return the logarithms of the class weights, in the order of ``classes_``."""
        if self.class_weight is None:
            return np.zeros(len(self.classes_))
        if isinstance(self.class_weight, dict):
            weights = [float(self.class_weight.get(label, 1)) for label in self.classes_.tolist()]
        elif self.class_weight == "balanced":
            counts = self._counts[self._place]
            weights = np.where(counts > 0, 1 / np.maximum(counts, 1), 0).tolist()  # what has no row yet counts nothing
        else:
            raise InputError(f"class_weight is {self.class_weight!r}; give a dict by class, or 'balanced', or None")
        if not all(0 <= weight < np.inf for weight in weights):
            raise InputError(
                f"class_weight is {self.class_weight}; a weight must be zero or more, and finite; leave a class out"
            )
        return np.log(np.maximum(weights, LEAST))

    def _own_arrays(self) -> files.Arrays:
        classes = self.classes_.astype(str) if self.classes_.dtype == object else self.classes_
        if not np.array_equal(classes, self.classes_):
            raise InputError(f"the classes are {self.classes_}; a file holds numbers or strings; encode them first")
        own = {"classes": classes, "object": np.array(self.classes_.dtype == object)}
        return own | {"place": self._place, "counts": self._counts}

    def _own_task(self, arrays: files.Arrays) -> Task:
        self.classes_ = arrays["classes"].astype(object) if arrays["object"] else arrays["classes"]
        count = len(self.classes_)
        self._place, self._counts = arrays.get("place", np.arange(count)), arrays.get("counts", np.zeros(count, int))
        return Classification(count)
