"""The radius of ``clip``: how far from a node's own state a neighbor's counts as at most.

It is clip * s / sqrt(gamma / (1 - momentum)), with s the length of a step, a distance that every node knows and no
neighbor can change. Under a loss of slope 1 at most, such as the logistic, the eta of gradient steps is the farthest
that a sample moves a model. Neighbors whose samples all did so would stand about eta / sqrt(gamma) apart: each adds
eta^2 to their squared distance in a round, and mixing removes a share of order gamma. Honest neighbors on one task
stand at about half of that, for small steps and for large ones. A neighbor that lies moves a node in a round by
clip * w_ij * sqrt(gamma) of what a sample may, at most. With momentum a pull goes on for 1 / (1 - momentum) rounds, and
gamma / (1 - momentum) stands in the place of gamma. Under the squared loss bring the targets to a deviation near 1, as
for eta itself. ``Pooled`` has no eta: in its place is the length of the step that a sample makes in that round, at a
slope of 1, where no link has failed.
"""

from typing import TYPE_CHECKING

import numpy as np

from omkl.algorithm import State
from omkl.arrays import Array, namespace
from omkl.learners import Pooled, PooledMemory
from omkl.methods.protocol import Method
from omkl.reach import between_knots

if TYPE_CHECKING:
    from omkl.methods.gossip import Gossip

Lists = tuple[list[float], list[float]]


def clips(method: Method) -> bool:
    """Return whether a method bounds what one neighbor can do."""
    mixing = getattr(method, "mixing", None)
    return mixing is not None and mixing.clip is not None


def radius(method: "Gossip", state: State, round_: Array | int) -> Array | float | None:
    """Return how far a neighbor's state counts as at most in a round; None where it is not bounded.

    A number, or one for every seed. It depends on what both ends of a link have in common in lock step, settings,
    features and the number of the round, and on nothing that a node has seen: else mixing would move the mean of
    the models. By the clock, where each node counts its own rounds, the two ends may differ a little.
    """
    if method.mixing.clip is None:
        return None
    unit, learner = method.mixing.clip / method.mixing.pull**0.5, method.learner
    if not (isinstance(learner, Pooled) and isinstance(state.memory, PooledMemory)):
        return unit * method.eta
    spectrum = state.memory.spectrum
    if state.theta.ndim > 3:
        spectrum = spectrum[0]  # all nodes have the same
    rounds = namespace(spectrum).asarray(round_, dtype=spectrum.dtype) + 1
    alpha = 1.0 if method.reach is None else method.reach.grown(rounds)
    own, count = (between_knots(values, rounds) for values in method.samples_by_round)
    return unit * learner.stride(spectrum, own, count, alpha, method.objective)


def samples_by_round(method: "Gossip") -> Lists:
    """Return how many samples a node remembers, and for how many it has learned, after 1, 2^(1/2), 2, ... rounds.

    Where no link has failed, and in lock step there was a sample whenever one was due.
    """
    forget, schedule = float(getattr(method.learner, "forget", 1.0)), method.schedule
    before, own, count = 0.0, [0.0], [0.0]
    for rounds in 2 ** (np.arange(61) / 2):
        samples = float(rounds if schedule is None else schedule.learned(int(rounds)))
        alpha = 1.0 if method.reach is None else float(method.reach.grown(np.asarray(rounds, dtype=np.float32)))
        kept = forget ** (samples - before)
        fresh = samples - before if forget == 1 else (1 - kept) / (1 - forget)
        own.append(kept * own[-1] + fresh)
        count.append(kept * count[-1] + alpha * fresh)
        before = samples
    return own[1:], count[1:]
