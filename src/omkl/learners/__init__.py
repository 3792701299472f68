"""Local update rules: what a node does with the gradient of its own sample."""

from omkl import registry
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
from omkl.registry import Registry

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
    "named",
]

LEARNERS: Registry[type[Learner]] = Registry(
    "omkl.learners", {rule.name: rule for rule in (SGD, AdaGrad, Newton, Shared, Pooled)}
)


def named(learner: str | Learner) -> Learner:
    """Return the learner of that name with its defaults, or the learner itself."""
    found: Learner = registry.named("learner", learner, LEARNERS, Rule, "omkl.SGD(eta=0.1)")
    return found
