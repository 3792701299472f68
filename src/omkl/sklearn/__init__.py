"""Estimators in the manner of scikit-learn: ``OMKLClassifier`` and ``OMKLRegressor``.

They learn online: one row at a time, each row once, in memory that does not grow. ``fit`` takes rows in random order,
and ``partial_fit`` takes them as they come. One call with n rows gives the same as n calls with one row, to the bit.
``omkl.online`` explains why they need no units or bandwidths.
"""

from omkl.errors import extra

with extra("sklearn", "scikit-learn"):
    from omkl.sklearn.classifier import OMKLClassifier
    from omkl.sklearn.regressor import OMKLRegressor

__all__ = ["OMKLClassifier", "OMKLRegressor"]
