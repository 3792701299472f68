"""The loss of one learner with all data: gradient descent tuned in hindsight, and the best model of all samples."""

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from omkl import calibration
from omkl.comparator import best
from omkl.data import as_stream
from omkl.features import Features, draw, gaussian, transform
from omkl.losses import Logistic
from omkl_lab.paper.experiments import Arrays, Floats, Tell, dealt, spread

BANDWIDTHS = (0.25, 0.35, 0.5, 0.7, 1.0)  # in units of the median distance between inputs
RATES = (0.3, 1.0, 3.0, 10.0)
POWERS = (0.0, 0.25, 0.5)  # of the falling rate: eta / t^power
FEATURES = 60  # sines and cosines each: scikit-learn users would say 120
BATCH_FEATURES = 512
PRIORS = (1.0, 10.0, 100.0)  # variances of a coefficient, 1 / (2 lambda n)
FOLDS = 5
SELECTED = 8000  # samples that bandwidth and prior of the batch optimum are chosen on
SGD_GRID = {"sigma": BANDWIDTHS, "eta": RATES, "power": POWERS, "features": FEATURES}
BATCH_GRID = {"sigma": BANDWIDTHS, "prior": PRIORS, "features": BATCH_FEATURES, "selected": SELECTED}


class Table(NamedTuple):
    """All samples in the order of a shuffle, and the median distance between some of them."""

    X: Floats
    y: Floats
    unit: float

    def features(self, bandwidth: float, count: int, seed: int) -> Floats:
        """Return the features of a Gaussian kernel, and a one for the intercept."""
        V = draw(gaussian(bandwidth * self.unit), count, self.X.shape[1], seed)[0]
        z = transform(self.X, Features(V))
        return np.concatenate([z, np.ones((len(z), 1))], axis=1)

    def held_out(self, bandwidth: float, prior: float, fold: int) -> float:
        """Return the mean loss on every fifth sample of the best model for all others."""
        z, out = self.features(bandwidth, BATCH_FEATURES, 0), np.arange(len(self.y)) % FOLDS == fold
        model = best(z[~out], self.y[~out], Logistic(), 1 / (2 * prior * float((~out).sum())))
        return float(np.logaddexp(0, -self.y[out] * (z[out] @ model.theta)).mean())


def tuned_sgd(data: str, seeds: int, tell: Tell) -> Arrays:
    """Return the loss of online logistic regression by gradient descent, at the best of all settings in hindsight.

    One learner sees all samples in order, on 120 random features of one kernel and an intercept: scikit-learn's
    ``SGDClassifier`` without a penalty, to the digit.
    """
    shares, losses, shuffles = dealt(seeds), list[Floats](), list[int]()
    grid = np.array(list(itertools.product(RATES, POWERS)))
    for shuffle, share in enumerate(shares):
        table = _table(data, shuffle)
        for seed in share:
            each = [online(table.features(width, FEATURES, seed), table.y, *grid.T) for width in BANDWIDTHS]
            losses.append(np.stack(each))
            shuffles.append(shuffle)
            tell(len(losses), seeds)
    mean = np.mean(losses, axis=0)
    k, i = np.unravel_index(np.argmin(mean), mean.shape)
    found = spread(np.array([one[k, i] for one in losses]), np.array(shuffles))
    return _found(found.mean, found.half, f"sigma {BANDWIDTHS[k]:g} medians, eta {grid[i, 0]:g} / t^{grid[i, 1]:g}")


def online(z: Floats, y: Floats, rates: Floats, powers: Floats) -> Floats:
    """Return the mean progressive logistic loss of gradient descent from zero, for every pair of rate and power."""
    theta, total = np.zeros((len(rates), z.shape[1])), np.zeros(len(rates))
    for t, (row, label) in enumerate(zip(z, y, strict=True), start=1):
        margin = label * (theta @ row)
        total += np.logaddexp(0, -margin)
        theta += (rates * t**-powers * label * expit(-margin))[:, None] * row
    return total / len(y)


def batch_optimum(data: str, tell: Tell) -> Arrays:
    """Return the loss of kernel logistic regression on samples that were held out, five-fold.

    Bandwidth and prior are the best in hindsight for the first samples; features and order are those of seed 0.
    """
    table = _table(data, 0)
    grid = list(itertools.product(BANDWIDTHS, PRIORS))
    work, few = len(grid) + FOLDS, table._replace(X=table.X[:SELECTED], y=table.y[:SELECTED])
    scores = []
    for k, setting in enumerate(grid):
        scores.append(few.held_out(*setting, 0))
        tell(k + 1, work)
    width, prior = grid[int(np.argmin(scores))]
    losses = []
    for k in range(FOLDS):
        losses.append(table.held_out(width, prior, k))
        tell(len(grid) + k + 1, work)
    found = spread(np.array(losses), np.zeros(FOLDS, dtype=np.int64))
    return _found(found.mean, found.half, f"sigma {width:g} medians, prior {prior:g}, {2 * BATCH_FEATURES} features")


def _found(loss: float, half: float, what: str) -> Arrays:
    return {"loss": np.array(loss), "half": np.array(half), "what": np.array(what)}


def _table(data: str, shuffle: int) -> Table:
    stream, _ = as_stream(data, 1, shuffle)
    X = stream.X[:, 0].astype(np.float64)
    unit = calibration.median_distance(calibration.sample(X, calibration.ROWS, 0).astype(np.float64))
    return Table(X, stream.y[:, 0].astype(np.float64), unit)
