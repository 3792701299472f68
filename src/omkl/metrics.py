"""Metrics, as functions of arrays.

``simulate`` already records the loss before learning, accuracy, disagreement, bits and, if asked for, the pooled loss.
Here are the same metrics for arrays of your own, and some more. Outputs are those of ``Model.decision_function``.
Labels are yours: -1 and +1, 0 ... C-1, or real numbers.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl import algorithm, comparator
from omkl.errors import InputError, extra
from omkl.losses import Logistic, Loss, Softmax, named

Floats: TypeAlias = npt.NDArray[np.float64]


def progressive(values: npt.ArrayLike) -> Floats:
    """Return the mean of all values so far, along the last axis. For losses before learning it is the progressive loss.

    >>> progressive([1.0, 0.0, 0.5]).tolist()
    [1.0, 0.5, 0.5]
    """
    given = np.asarray(values, dtype=np.float64)
    return np.cumsum(given, axis=-1) / np.arange(1, given.shape[-1] + 1)


def half_interval(values: npt.ArrayLike) -> Floats:
    """Return half the width of the 95 % interval of the mean over the first axis, by Student's t; nan of one value.

    >>> half_interval([0.5, 0.7, 0.6]).round(3).tolist()
    0.248
    """
    given = np.asarray(values, dtype=np.float64)
    if len(given) < 2:
        return np.full(given.shape[1:], np.nan)
    with extra("sim", "scipy"):
        from scipy.special import stdtrit  # it takes a while to import
    return np.asarray(stdtrit(len(given) - 1, 0.975) * given.std(axis=0, ddof=1) / len(given) ** 0.5)


def accuracy(predicted: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the share of correct labels."""
    predicted, labels = _alike(predicted, labels)
    return float(np.mean(predicted == labels))


def log_loss(outputs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the mean of -ln p(label), for outputs ``(n,)`` of two classes or ``(n, C)`` of several."""
    f = np.asarray(outputs, dtype=np.float64)
    f = f[:, None] if f.ndim == 1 else f
    loss: Loss = Logistic() if f.shape[-1] == 1 else Softmax(f.shape[-1])
    return float(np.mean(loss.value(f, loss.encode(labels).astype(np.float64))))


def auc(outputs: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Return the probability that a sample of the upper class has a larger output than one of the lower class.

    Ties count one half.

    >>> auc([0.1, 0.4, 0.35, 0.8], [-1, -1, 1, 1])
    0.75
    """
    f, y = _alike(outputs, labels)
    upper = y == y.max()
    if upper.all():
        raise InputError(f"labels are all {y.max():g}; the area under a curve compares two classes; give both")
    _, place, counts = np.unique(f, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    n = np.count_nonzero(upper)
    return float((ranks[upper].sum() - n * (n + 1) / 2) / (n * (len(y) - n)))


def r2(predicted: npt.ArrayLike, targets: npt.ArrayLike) -> float:
    """Return the share of the targets' variance that is explained; with several outputs, of all together."""
    f, y = _alike(predicted, targets)
    spread = np.sum((y - y.mean(axis=0)) ** 2)
    if not spread > 0:
        raise InputError("targets are all alike; there is no variance to explain; give others")
    return float(1 - np.sum((y - f) ** 2) / spread)


def pooled_losses(
    theta: npt.ArrayLike, log_weights: npt.ArrayLike, z: npt.ArrayLike, y: npt.ArrayLike, loss: Loss | str
) -> Floats:
    """Return the loss of every node's model on every sample, ``(J, n)``; its mean is the pooled loss.

    Give models ``theta (J, P, C, m)`` with ``log_weights (J, P)``, features ``z (n, P, m)``, and labels ``y (n,)``.
    """
    objective, features = named(loss), np.asarray(z)
    models = zip(np.asarray(theta), np.asarray(log_weights), strict=True)
    outputs = np.stack([algorithm.predict(*model, features).output for model in models])
    return np.asarray(objective.value(outputs, objective.encode(y)), dtype=np.float64)


def disagreement(theta: npt.ArrayLike) -> float:
    """Return the root mean square distance of the nodes' models from the mean model; nodes are the first axis."""
    models = np.asarray(theta, dtype=np.float64)
    return float(np.sqrt(np.sum((models - models.mean(axis=0)) ** 2) / len(models)))


def regret(losses: npt.ArrayLike, reference: npt.ArrayLike) -> Floats:
    """Return the sum of losses beyond a reference up to every round, along the last axis.

    With the reference ``hindsight(z, y, loss)`` it is the regret. With ``changes`` there, or with any sequence of
    models, it is the dynamic regret.

    >>> regret([1.0, 0.5, 0.5], [0.25, 0.25, 0.25]).tolist()
    [0.75, 1.0, 1.25]
    """
    return np.cumsum(np.asarray(losses, dtype=np.float64) - np.asarray(reference, dtype=np.float64), axis=-1)


def hindsight(
    z: npt.ArrayLike,
    y: npt.ArrayLike,
    loss: Loss | str,
    regularization: float = 1e-3,
    changes: Sequence[int] = (),
) -> Floats:
    """Return the loss of every sample under the best fixed model in hindsight, ``(T,)`` or ``(T, J)``.

    The best model is one kernel and one theta for all samples. It minimizes the mean loss plus ``regularization`` times
    the square of its norm. The loss must have one output.

    Parameters
    ----------
    z, y
        Features ``(T, P, m)`` and labels ``(T,)``, or ``(T, J, P, m)`` and ``(T, J)``.
    changes
        Rounds at which the best model may change: each stretch between them has its own.
    """
    objective, features, labels = named(loss), np.asarray(z), np.asarray(y)
    targets = objective.encode(labels)
    if targets.shape[-1] != 1 or features.shape[:-2] != labels.shape:
        raise InputError(
            f"z has shape {features.shape}, targets {targets.shape}; hindsight takes (T, P, m) and one output a sample"
        )
    stretches = zip(*(np.split(part, list(changes)) for part in (features, targets)), strict=True)
    return np.concatenate([_best_of(own, wanted, objective, regularization) for own, wanted in stretches])


def _best_of(z: npt.NDArray[Any], targets: npt.NDArray[Any], loss: Loss, regularization: float) -> Floats:
    rows, y = z.reshape(-1, *z.shape[-2:]), targets.reshape(-1)
    found = [comparator.best(own, y, loss, regularization) for own in np.moveaxis(rows, 1, 0)]
    p = int(np.argmin([one.objective for one in found]))
    f = z[..., p, :].astype(np.float64) @ found[p].theta
    return np.asarray(loss.value(f[..., None], targets), dtype=np.float64)


def _alike(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Floats, Floats]:
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape or not first.size:
        raise InputError(f"arrays of shapes {first.shape} and {second.shape}; they must be alike, and not empty")
    return first, second
