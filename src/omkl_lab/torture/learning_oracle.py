"""Checks what nodes have learned against the algorithm.

A node that forgets a sample, or learns it wrongly, still has models that are finite and close to its neighbors'. So
``omkl.algorithm`` computes every sample again, from the state that the node had before it.
"""

from collections import defaultdict, deque
from typing import Any, NamedTuple

import numpy as np

from omkl import features, storage
from omkl.algorithm import State
from omkl.learners import Learner
from omkl.methods import Gossip, Round
from omkl.node.halves import Floats
from omkl.node.learning import Learning
from omkl.scaling import Inputs
from omkl_lab.torture.violation import require

BATCH = 64  # lessons that are computed again at once, which costs little more than one
ROUNDING = 1e-5  # relative, of a sum of few float32


class Lesson(NamedTuple):
    """A sample that a node has learned."""

    id: str
    round: int
    before: State
    x: Inputs
    seen: Floats
    """x as features took it."""
    y: Floats
    after: State
    output: Floats
    loss: float


class LearningOracle:
    """All samples that the nodes of a network have learned.

    Attributes
    ----------
    untold
        Lessons of each node that it has not reported yet, in order.
    """

    def __init__(self) -> None:
        self.untold: dict[str, deque[Lesson]] = defaultdict(deque)
        self._unchecked: dict[Learner, list[Lesson]] = defaultdict(list)

    def note(self, lesson: Lesson, learning: Learning) -> None:
        """Note a lesson; nodes of one network learn alike, but for the learner."""
        self.untold[lesson.id].append(lesson)
        lessons = self._unchecked[learning.method.learner]
        lessons.append(lesson)
        if len(lessons) == BATCH:
            self._check(learning.method, learning.features, lessons)

    def check(self, learning: Learning) -> None:
        """Compute all samples again that were learned since the last call."""
        for learner, lessons in self._unchecked.items():
            if lessons:
                self._check(learning.method.replace(learner=learner), learning.features, lessons)

    def _check(self, method: Gossip, made: features.Features, lessons: list[Lesson]) -> None:
        before = _stacked([lesson.before for lesson in lessons])
        z = features.transform(np.array([lesson.seen for lesson in lessons]), made)
        sample = Round(z, np.array([lesson.y for lesson in lessons]), None)
        after, info = method.learn(before, sample)
        _compare("models", lessons, [lesson.after.theta for lesson in lessons], after.theta)
        # A log weight is what losses differ by: it may be near zero where these are large, and rounded by as much.
        losses = np.asarray(info.loss)
        _compare("log weights", lessons, [lesson.after.log_weights for lesson in lessons], after.log_weights, losses)
        for k, part in enumerate(after.memory):
            _compare("memory", lessons, [lesson.after.memory[k] for lesson in lessons], part)
        _compare("prediction", lessons, [lesson.output for lesson in lessons], info.output)
        _compare("loss", lessons, [lesson.loss for lesson in lessons], info.loss)
        lessons.clear()


def _stacked(states: list[Any]) -> Any:
    """Return the states of several nodes as one, array by array."""
    return storage.mapped(lambda *arrays: np.array(arrays), *states)


def _compare(
    what: str, lessons: list[Lesson], found: list[Floats] | list[float], due: Floats, summed: Floats | float = 0.0
) -> None:
    """Require what was found to be what is due, up to rounding of it and of what was summed up to it."""
    rows = len(lessons), -1
    apart = np.abs(np.array(found) - due).reshape(rows).max(axis=1)
    excess = apart - ROUNDING * (1 + np.abs(due).reshape(rows).max(axis=1) + summed)
    worst = int(np.argmax(excess))
    id, at = lessons[worst][:2]
    told = f"{id} learned a sample in round {at}, and its {what} is {apart[worst]:.3g} from the algorithm's"
    require(bool(excess[worst] <= 0), told)
