"""Settings by name: those of the letter, and those that learn most from the bits they send."""

from typing import Any

from omkl.features import gaussian
from omkl.landmarks import Landmarks
from omkl.learners import Pooled
from omkl.methods.gossip import Gossip
from omkl.quantizers import QSGD, Nearest
from omkl.reach import Reach
from omkl.sending import Budget


def letter(**changes: Any) -> Gossip:
    """Return the letter's experiments: eta 0.01, gamma 0.009, three Gaussian kernels, D = 20, seven levels."""
    return Gossip(
        kernels=gaussian(1, 3, 5),
        features=20,
        eta=0.01,
        gamma=0.009,
        regularization=1e-3,
        quantizer=QSGD(bits=3),
    ).replace(**changes)


def recommended(**changes: Any) -> Gossip:
    """Return one setting for everything: 22 to 48 bytes a sample, and nothing to tune.

    Inputs are compared with 500 unlabelled ones, the landmarks, which all nodes must hold; a simulation draws them from
    its stream. A model has a coefficient for each of the 120 strongest directions of those similarities, and about a
    bit of each is sent in a message. A node's step counts for all whose samples have reached it, up to eleven nodes,
    with the curvature of the loss as it is measured. The model is read under two priors, and what they are worth is
    learned and common to all. Most gossip goes with the first samples: 48 bytes a sample over fifty of them, and one
    message a sample later.

    ``changes`` are settings or parts of ``Gossip``: ``recommended(gamma=0.2, loss="squared")``.

    Examples
    --------
    >>> import omkl
    >>> letter, best = (omkl.simulate("banana", "path", nodes=20, method=method) for method in
    ...                 (omkl.letter(), omkl.recommended()))
    >>> bool(best.loss.mean() < 0.4 * letter.loss.mean())
    True
    """
    return Gossip(
        kernels=gaussian(0.35, 0.7, 1.4, 2.8, 5.6),
        sigma="median",
        basis=Landmarks(rank=120, rows=500),
        learner=Pooled(priors=(400, 20)),
        reach=Reach(most=11),
        regularization=0.0,
        weight_rate=1.0,
        common_weights=True,
        gamma=0.6,
        momentum=0.4,
        quantizer=Nearest(2.5),
        pace=Budget(48),
    ).replace(**changes)


def frugal(**changes: Any) -> Gossip:
    """Return the recommended setting for a third of the bytes: fewer coefficients, and less gossip throughout."""
    own = recommended(basis=Landmarks(rank=70, rows=500), reach=Reach(most=8), pace=Budget(16, least=0.5))
    return own.replace(**changes)
