"""Settings by name: the default, a cheaper one, its learner without messages, and those of the paper."""

from dataclasses import replace
from typing import Any

from omkl.features import gaussian
from omkl.landmarks import Landmarks
from omkl.learners import Pooled
from omkl.methods.gossip import Gossip
from omkl.methods.local import Local
from omkl.methods.protocol import Method
from omkl.quantizers import QSGD, Nearest
from omkl.reach import Reach
from omkl.sending import Budget


def paper(**changes: Any) -> Gossip:
    """Return the settings of the paper: eta 0.01, gamma 0.009, three Gaussian kernels, D = 20, seven levels."""
    return Gossip(
        kernels=gaussian(1, 3, 5),
        features=20,
        eta=0.01,
        gamma=0.009,
        regularization=1e-3,
        quantizer=QSGD(bits=3),
    ).replace(**changes)


def recommended(**changes: Any) -> Gossip:
    """Return the default method: one setting for all data, 22 to 48 bytes a sample, nothing to tune.

    ``changes`` are settings or parts of ``omkl.Gossip``: ``recommended(gamma=0.2, loss="squared")``.

    Notes
    -----
    What it does:

    - It compares each input with 500 landmarks. These are inputs without labels that all nodes hold. A simulation
      draws them from its stream.
    - A model has one coefficient for each of the 120 strongest directions of these similarities. A message has about
      one bit for each.
    - A learning step counts for all nodes whose samples have come here by gossip, up to eleven. Its length follows the
      measured curvature of the loss.
    - It reads the model under two priors. Nodes learn how much each of them is worth, and gossip that too.
    - Most gossip goes with the first samples: 48 bytes a sample over the first fifty, later one message a sample.

    Examples
    --------
    >>> import omkl
    >>> paper, best = (omkl.simulate("banana", "path", nodes=20, method=method) for method in
    ...                 (omkl.paper(), omkl.recommended()))
    >>> bool(best.loss.mean() < 0.4 * paper.loss.mean())
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


def called(method: Method) -> str:
    """Return the name of the preset that a method is, but for its loss and where its landmarks come from; or its own.

    >>> called(recommended(loss="squared")), called(recommended(gamma=0.1))
    ('recommended', 'gossip')
    """
    if isinstance(method, Gossip):
        for make in (recommended, frugal, paper):
            own, basis = make(loss=method.loss), method.bank.basis
            if isinstance(own.bank.basis, Landmarks) and isinstance(basis, Landmarks):
                own = own.replace(basis=replace(own.bank.basis, source=basis.source))
            if own == method:
                return make.__name__
    return method.name


def frugal(**changes: Any) -> Gossip:
    """Return the default for a third of its bytes: fewer coefficients, and less gossip."""
    own = recommended(basis=Landmarks(rank=70, rows=500), reach=Reach(most=8), pace=Budget(16, least=0.5))
    return own.replace(**changes)


def alone(**changes: Any) -> Local:
    """Return the default's learner without messages: nodes that never talk, to see what gossip is worth.

    Compare it with ``recommended()``. ``Local()`` has other kernels and another learner, and loses for these too.

    Examples
    --------
    >>> import omkl
    >>> cases = {"together": (omkl.recommended(), "path"), "alone": (omkl.alone(), "path")}
    >>> results = omkl.compare("banana", cases, nodes=20)
    >>> bool(results["together"].loss.mean() < results["alone"].loss.mean())
    True
    """
    best = recommended().settings()
    return Local(**{name: value for name, value in best.items() if name in Local.known()}).replace(**changes)
