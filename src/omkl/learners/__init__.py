"""Local update rules: what a node does with the gradient of its own sample."""

from omkl.learners.pooled import Pooled, PooledMemory
from omkl.learners.rules import (
    SGD,
    AdaGrad,
    Learner,
    Memory,
    Newton,
    NewtonMemory,
    Rule,
    Sample,
    Shared,
    SharedMemory,
)

__all__ = [
    "LEARNERS",
    "SGD",
    "AdaGrad",
    "Learner",
    "Memory",
    "Newton",
    "NewtonMemory",
    "Pooled",
    "PooledMemory",
    "Rule",
    "Sample",
    "Shared",
    "SharedMemory",
]

LEARNERS: dict[str, type[Learner]] = {rule.name: rule for rule in (SGD, AdaGrad, Newton, Shared, Pooled)}
