"""Estimators in the manner of scikit-learn: ``OMKLClassifier`` and ``OMKLRegressor``.

They learn online: a row at a time, each once, in memory that does not grow. ``fit`` takes rows in random order,
``partial_fit`` as they come, and there it makes no difference how calls cut them: n rows in one are n calls of one row,
to the bit. See ``omkl.online`` for how they get by without being told units or bandwidths.
"""

from omkl.errors import extra

with extra("sklearn", "scikit-learn"):
    from omkl.sklearn.classifier import OMKLClassifier
    from omkl.sklearn.regressor import OMKLRegressor

__all__ = ["OMKLClassifier", "OMKLRegressor"]
