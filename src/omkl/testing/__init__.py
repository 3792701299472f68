"""Checks for a method, a quantizer, a learner or a loss of your own.

Each check is a small function that takes the object and raises ``AssertionError`` with the value that it found, the
rule, and what to change. ``check_method(MyMethod())`` runs all of them; with pytest run them one by one:

    @pytest.mark.parametrize("check", omkl.testing.QUANTIZER, ids=lambda check: check.__name__)
    def test_my_quantizer(check):
        check(MyQuantizer())

They need NumPy alone. Where array-api-strict and JAX are installed, the object has to give the same on them.
"""

from omkl.testing.learners import LEARNER, check_learner
from omkl.testing.losses import LOSS, check_loss
from omkl.testing.methods import METHOD, check_method
from omkl.testing.quantizers import QUANTIZER, check_quantizer
from omkl.testing.running import Check, Failed, Report, Skipped

__all__ = [
    "LEARNER",
    "LOSS",
    "METHOD",
    "QUANTIZER",
    "Check",
    "Failed",
    "Report",
    "Skipped",
    "check_learner",
    "check_loss",
    "check_method",
    "check_quantizer",
]
