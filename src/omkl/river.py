"""Estimators in the manner of river: ``OMKLClassifier``, ``OMKLRegressor``, ``OMKLMultiTargetRegressor``.

Rows are dictionaries, and columns go by their names. A missing value, None or nan, counts as the mean of its column. A
name that first appears in the first ``warmup`` rows becomes a column at the next calibration; there is one each time
the number of rows has doubled. A name that first appears later is ignored, because nothing is known about its unit; the
first such name gives a warning. New classes may appear at any time. ``omkl.online`` has the rest.
"""

import math
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from omkl.data import cells
from omkl.errors import InputError, extra
from omkl.features import Kernel
from omkl.learners import Learner
from omkl.losses import Loss
from omkl.methods import Method, named
from omkl.online import Classification, Online, Regression, Row, Settings, Task, begin, probabilities
from omkl.scaling import Floats

with extra("river", "river"):
    from river import base

TEXT = (
    "write (compose.SelectType(str) | preprocessing.OneHotEncoder()) + compose.SelectType((int, float)) | the estimator"
)
DATE = "make numbers of it, such as the days and hours of a date, or leave it out"

Named: TypeAlias = dict[Any, Any]
"""A row: values by the names of their columns."""


@dataclass(eq=False, repr=False)
class _Estimator:
    """What all of them share."""

    _has_warned = False  # of the class, so that a model that an earlier version pickled has it

    kernels: tuple[float | Kernel, ...] = Settings.sigmas
    rank: int = Settings.rank
    learner: Learner | str | None = None
    forget: float | tuple[float, ...] | None = None
    weight_rate: float = Settings.weight_rate
    warmup: int = Settings.warmup
    method: Method | str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        self._columns: dict[Any, int] = {}
        self._labels: dict[Any, int] = {}
        self._online: Online | None = None

    def _begin(self, task: Task) -> Online:
        if self.method is not None:
            return begin(task, named(self.method), self.seed, self.warmup)
        settings = Settings.of(self.kernels, self.rank, self.learner, self.forget, self.weight_rate, self.warmup)
        return begin(task, settings.method(), self.seed, self.warmup)

    def _learn(self, online: Online, values: dict[Any, float], y: Sequence[float], w: float) -> None:
        try:
            target = np.array([math.nan if value is None else value + 0.0 for value in y], dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(f"y is {y!r}; a target must be a number; leave the row out, or use a classifier") from None
        if not np.isfinite(target).all():
            raise InputError(f"y is {y}; targets must be finite; leave the row out")
        if online.kept is not None:
            for name in _sorted(values.keys() - self._columns.keys()):
                self._columns[name] = len(self._columns)
        elif not self._has_warned and (late := values.keys() - self._columns.keys()):
            self._has_warned = True
            names, those = ", ".join(map(repr, _sorted(late))), f"the first {self.warmup} rows"
            warnings.warn(
                f"{names} first came after {those}; only columns that have a value in those are learned, so this is "
                "ignored; begin a new model to use it, with a larger warmup if it comes late",
                stacklevel=3,  # of learn_one
            )
        online.learn(Row(self._row(values), target, float(w), 0))
        if 2 * online.seen == self.warmup:
            online.models()  # so that all the memory it will need is taken early, also where nobody predicts

    def _row(self, values: dict[Any, float]) -> Floats:
        return np.array([values.get(name, math.nan) for name in self._columns] or [math.nan])

    def _outputs(self, rows: list[Named]) -> Floats:
        assert self._online is not None
        return self._online.outputs(np.stack([self._row(_numbers(x)) for x in rows]))


class OMKLClassifier(_Estimator, base.MiniBatchClassifier):
    """A classifier that learns rows one after another, adapts to drift, and needs no scaling or tuning.

    Two classes are learned with the logistic loss, more with the softmax loss. If a third class appears after the first
    ``warmup`` rows, the one output becomes two, and the output of the new class begins at zero.

    Parameters
    ----------
    kernels
        Bandwidths of Gaussian kernels, in units of the median distance between inputs. Default:
        (0.35, 0.7, 1.4, 2.8, 5.6).
    rank
        Number of coefficients of a model, at most: directions of the similarities to the landmarks. Default: 120.
    learner
        The update rule, by name or as an object, such as ``omkl.Newton(forget=0.999)``. Default:
        ``omkl.Pooled((600, 20))``.
    forget
        Rate of forgetting: each row multiplies the count of earlier rows by this, from 0.5 to 1; 1 forgets nothing.
        With several rates there is a model for each, weighed by their losses. Default: (1, 0.995); for numbers
        (1, 0.99, 0.9).
    weight_rate
        How fast the weights of models follow their losses. Default: 1.0.
    warmup
        Number of first rows to calibrate on. They are kept until there are so many. Default: 512.
    method
        A method of one node. It replaces the parameters above; the loss is that of the task.
    seed
        Seed of features that are random. Default: 0.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> accuracy = evaluate.progressive_val_score(datasets.Phishing(), OMKLClassifier(), metrics.Accuracy())
    >>> accuracy.get() > 0.88
    True
    """

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Named, y: Any, w: float = 1.0) -> None:
        """Learn a row with weight ``w``, which multiplies its loss; a row of weight zero is ignored."""
        values = _numbers(x)
        if not _is_there(w):
            return
        if not isinstance(y, Hashable):
            raise InputError(f"the class is {y!r}; a class is a name or a number; give one for each row")
        if y is None or y != y:
            raise InputError(f"the class is {y!r}; a row that is learned must have one; leave the row out")
        if self._online is None:
            self._online = self._begin(Classification())
        if y not in self._labels:
            self._labels[y] = len(self._labels)
            self._online.grow(max(2, len(self._labels)))
        self._learn(self._online, values, [self._labels[y]], w)

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows of a data frame, one after another."""
        for x, label in zip(X.to_dict("records"), y, strict=True):
            self.learn_one(x, label)

    def predict_proba_one(self, x: Named, **kwargs: Any) -> dict[Any, float]:
        """Return the probability of every class that has appeared."""
        return self._probabilities([x])[0]

    def predict_proba_many(self, X: Any) -> Any:
        """Return the same for the rows of a data frame, a column for every class."""
        import pandas as pd

        return pd.DataFrame(self._probabilities(X.to_dict("records")), index=X.index, columns=list(self._labels))

    def _probabilities(self, rows: list[Named]) -> list[dict[Any, float]]:
        if len(self._labels) < 2 or not rows:
            return [dict.fromkeys(self._labels, 1.0) for _ in rows]
        return [dict(zip(self._labels, p, strict=True)) for p in probabilities(self._outputs(rows)).tolist()]


@dataclass(eq=False, repr=False)
class _Lossy:
    """What those of values have besides, before the rest."""

    loss: Loss | str = "squared"


@dataclass(eq=False, repr=False)
class OMKLRegressor(_Estimator, _Lossy, base.MiniBatchRegressor):
    """A regressor that learns rows one after another, adapts to drift, and needs no scaling or tuning.

    Targets are standardized by the rows that it is calibrated on. Before the first row it predicts 0.

    Parameters
    ----------
    loss
        The loss that is learned, by name; ``"squared"`` predicts the mean.
    kernels, rank, learner, forget, weight_rate, warmup, method, seed
        As in ``OMKLClassifier``.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> error = evaluate.progressive_val_score(datasets.TrumpApproval(), OMKLRegressor(), metrics.MAE())
    >>> error.get() < 1
    True
    """

    def learn_one(self, x: Named, y: float, w: float = 1.0) -> None:
        """Learn a row with weight ``w``, which multiplies its loss; a row of weight zero is ignored."""
        values = _numbers(x)
        if not _is_there(w):
            return
        if self._online is None:
            self._online = self._begin(Regression(1, self.loss))
        self._learn(self._online, values, [y], w)

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows of a data frame, one after another."""
        for x, value in zip(X.to_dict("records"), y, strict=True):
            self.learn_one(x, value)

    def predict_one(self, x: Named) -> float:
        """Return the predicted value."""
        return self._values([x])[0]

    def predict_many(self, X: Any) -> Any:
        """Return the same for the rows of a data frame."""
        import pandas as pd

        return pd.Series(self._values(X.to_dict("records")), index=X.index, dtype="float64")

    def _values(self, rows: list[Named]) -> list[float]:
        if self._online is None or not rows:
            return [0.0] * len(rows)
        values: list[float] = self._outputs(rows)[:, 0].tolist()
        return values


@dataclass(eq=False, repr=False)
class OMKLMultiTargetRegressor(_Estimator, _Lossy, base.MultiTargetRegressor):
    """A regressor for several targets, each with its name. The first row must have all of them.

    Parameters
    ----------
    loss, kernels, rank, learner, forget, weight_rate, warmup, method, seed
        As in ``OMKLRegressor``.

    Examples
    --------
    >>> model = OMKLMultiTargetRegressor()
    >>> for k in range(100):
    ...     model.learn_one({"x": k % 10}, {"up": k % 10, "down": -(k % 10)})
    >>> {name: round(value) for name, value in model.predict_one({"x": 3}).items()}
    {'down': -3, 'up': 3}
    """

    def learn_one(self, x: Named, y: Named, w: float = 1.0, **kwargs: Any) -> None:
        """Learn a row with weight ``w``, which multiplies its loss; a row of weight zero is ignored."""
        values = _numbers(x)
        if not _is_there(w):
            return
        if self._online is None:
            self._labels = {name: k for k, name in enumerate(_sorted(y))}
            self._online = self._begin(Regression(len(y), self.loss))
        if y.keys() != self._labels.keys():
            raise InputError(f"targets are {list(y)}; the first row had {list(self._labels)}; give all in every row")
        self._learn(self._online, values, [y[name] for name in self._labels], w)

    def predict_one(self, x: Named) -> dict[Any, float]:
        """Return the predicted value of every target; an empty dict before the first row."""
        if self._online is None:
            return {}
        return dict(zip(self._labels, self._outputs([x])[0].tolist(), strict=True))


def _is_there(w: float) -> bool:
    """Return whether a row of that weight counts; refuse what is no weight."""
    if not 0 <= w < math.inf:
        raise InputError(f"w is {w}; a weight must be finite and zero or more; leave the row out")
    return w > 0


def _sorted(names: Iterable[Any]) -> list[Any]:
    """Return names in an order that does not depend on the one they came in, whatever they are."""
    return sorted(names, key=lambda name: (type(name).__name__, str(name)))


def _numbers(x: Named) -> dict[Any, float]:
    """Return the values that are there, as numbers."""
    if not isinstance(x, Mapping):
        raise InputError(f"the row is {str(x)[:40]}; a row is a dict, values by the names of columns; pass a dict")
    values = {}
    for name, value in x.items():
        if type(value) is float and -math.inf < value < math.inf:
            values[name] = value
            continue
        if value is None:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            is_date = not isinstance(value, str) or cells.look_like_dates(np.array([value]))
            raise InputError(f"{name!r} is {value!r}; a value must be a number; {DATE if is_date else TEXT}") from None
        if math.isinf(number):
            raise InputError(f"{name!r} is {value!r}; a value must be finite; leave it out where it is not known")
        if not math.isnan(number):
            values[name] = number
    return values
