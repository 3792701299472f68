"""Settings by name: those of the letter, and those that learn most from the bits they send."""

from dataclasses import replace

from omkl.features import gaussian
from omkl.landmarks import Landmarks
from omkl.learners import Pooled
from omkl.methods.gossip import Gossip
from omkl.quantizers import QSGD, Nearest
from omkl.reach import Reach
from omkl.sending import Pace


def letter() -> Gossip:
    """Return the letter's experiments: eta 0.01, gamma 0.009, three Gaussian kernels, D = 20, seven levels."""
    return Gossip(
        kernels=gaussian(1, 3, 5),
        features=20,
        eta=0.01,
        gamma=0.009,
        regularization=1e-3,
        quantizer=QSGD(bits=3),
    )


def recommended() -> Gossip:
    """Return one setting for everything: no more than 80 bytes a round and output, and nothing to tune.

    Bandwidths follow the inputs, whose 160 strongest directions for each kernel are learned and sent, at about a bit a
    coefficient. The learner's curvature and the kernel weights are common to all nodes, so that nodes which see
    different data learn one model, and mixing carries on, so that it travels along a path. There is more gossip with
    the first samples than later, and less of kernels that hardly count. It is calibrated on 300 unlabelled inputs,
    which all nodes must hold; a simulation draws them from its stream.

    Examples
    --------
    >>> import omkl
    >>> letter, best = (omkl.simulate("banana", "path", nodes=20, method=method) for method in
    ...                 (omkl.letter(), omkl.recommended()))
    >>> bool(best.loss.mean() < 0.5 * letter.loss.mean())
    True
    """
    return Gossip(
        kernels=gaussian(0.35, 0.7, 1.4, 2.8, 5.6),
        sigma="median",
        basis=Landmarks(rank=100, rows=300),
        learner=Pooled(priors=(300, 10)),
        reach=Reach(most=12),
        regularization=0.0,
        weight_rate=1.0,
        common_weights=True,
        gamma=0.5,
        momentum=0.5,
        quantizer=Nearest(2.5),
        pace=Pace(8, until=5, least=1),
    )


def frugal() -> Gossip:
    """Return the recommended setting for a third of the bytes: a coarser quantizer, and less gossip throughout."""
    return replace(
        recommended(),
        momentum=0.4,
        quantizer=Nearest(2.9),
        pace=Pace(2, until=6, least=0.5),
    )
