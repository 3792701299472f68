"""Local update rules: what a node does with the gradient of its own sample."""

from omkl.learners.pooled import Pooled, PooledMemory
from omkl.learners.rules import (
    FLOOR,
    LOGISTIC,
    SGD,
    STEEPEST,
    AdaGrad,
    Learner,
    Memory,
    Newton,
    NewtonMemory,
    Sample,
    Shared,
    SharedMemory,
)

__all__ = [
    "FLOOR",
    "LEARNERS",
    "LOGISTIC",
    "SGD",
    "STEEPEST",
    "AdaGrad",
    "Learner",
    "Memory",
    "Newton",
    "NewtonMemory",
    "Pooled",
    "PooledMemory",
    "Sample",
    "Shared",
    "SharedMemory",
]

LEARNERS: dict[str, type[Learner]] = {rule.name: rule for rule in (SGD, AdaGrad, Newton, Shared, Pooled)}
