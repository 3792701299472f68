"""AdaRaker: several learners that start anew after 1, 2, 4, ... samples, for data that drift."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from omkl import algorithm
from omkl.arrays import Array, namespace
from omkl.errors import InputError, whole
from omkl.learners import SGD, Learner
from omkl.methods.ensemble import Ensemble
from omkl.methods.protocol import Info, Network, Round
from omkl.topology import Topology

LARGEST_RATE = 0.5
MOST_LEVELS = 31  # samples are counted in 32 bits


class LevelsState(NamedTuple):
    """The state of every node: K learners of P models each, and how much each learner counts."""

    theta: Array
    """``(J, ..., K, P, C, 2D)``."""
    log_weights: Array
    """Of the kernels, each learner's own, ``(J, ..., K, P)``."""
    log_shares: Array
    """ln h of the learners, ``(J, ..., K)``."""
    count: Array
    """Samples that a node has seen, ``(J, ...)``."""


@dataclass(frozen=True, init=False, repr=False)
class AdaRaker(Ensemble):
    """Every node alone combines K learners, of which learner k begins anew after every 2^k samples.

    Learner k is ``Local`` at rate eta_k = min(1/2, eta / sqrt(2^k)), for its models and its kernel weights. The node's
    output is the mean of theirs, by shares that begin at eta_k together with the learner and follow

        ln h_k = ln h_k - eta_k (C(f_k, y) - C(f, y))

    so that after a change the learners take over that have not seen the old data.

    Attributes
    ----------
    eta
        eta_0. At the default of 30 every one of the twelve rates is 1/2, the largest: learners differ in their memory
        alone. Take 1 for rates that fall with the interval from the fourth learner on.
    weight_rate
        Rate of the kernel weights in all learners; None takes eta_k.
    levels
        K, of which the last keeps its models: only its share begins anew.

    Notes
    -----
    After Y. Shen, T. Chen, G. B. Giannakis, "Random feature-based online multi-kernel learning in environments with
    unknown dynamics", JMLR 20 (2019). Raker, a learner of theirs, is ``Local``: online gradient descent for every
    kernel and multiplicative weights. The idea around it is theirs: intervals of lengths 2^k, rates that fall with
    them, and a second layer of multiplicative weights. The rest differs, and no fidelity is claimed. In their public
    code for regression (github.com/N1cekiko/AdaRaker) models are never begun anew, only the shares of learners are; a
    learner is added whenever log2 t reaches a whole number; rates are min(.05, .1 / sqrt(2^k)), k from 1 on; and
    errors are scaled to [-1, 1] over the learners of a round before shares follow them. Here models begin anew, the
    number of levels is fixed, so that a node's memory is, all learners start at the first sample, and the last one
    goes on, for all others begin together at multiples of the longest interval.
    """

    name: ClassVar[str] = "adaraker"
    dithered = False  # nothing is quantized
    only_sgd: ClassVar[str] = "AdaRaker has rates for gradient steps"

    learner: Learner = SGD(30.0)  # noqa: RUF009 - it is frozen
    levels: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "levels", whole("levels", self.levels))
        if self.levels > MOST_LEVELS:
            raise InputError(f"levels is {self.levels}; it must be at most {MOST_LEVELS}; try 12")
        if self.weights.first:
            raise InputError("weigh_first is True; AdaRaker predicts before it sees the label; leave it out")

    @property
    def rates(self) -> list[float]:
        """eta_k of every learner."""
        return [min(LARGEST_RATE, self.eta / 2 ** (k / 2)) for k in range(self.levels)]

    def check(self, topology: Topology) -> None:
        """Accept any network."""

    def init(self, xp: Any, leading: tuple[int, ...], outputs: int, spectrum: Array | None = None) -> LevelsState:
        """Return learners that have seen nothing."""
        theta = self.bank.zeros(xp, (*leading, self.levels), outputs)
        log_weights = xp.zeros(theta.shape[:-2], dtype=theta.dtype)
        log_shares = xp.zeros(theta.shape[:-3], dtype=theta.dtype) + xp.log(self._rates(theta))
        return LevelsState(theta, log_weights, log_shares, xp.zeros(leading, dtype=xp.int32))

    def step(self, state: LevelsState, inputs: Round, network: Network) -> tuple[LevelsState, Info]:
        """Return the nodes after all learners had the sample, those whose interval is over begun anew."""
        theta, log_weights, log_shares, count = state
        loss, lam, rates = self.objective, self.regularization, self._rates(theta)
        z, y = inputs.z[..., None, :, :], inputs.y[..., None, :]
        each, outputs = algorithm.predict(theta, log_weights, z)
        mean = namespace(theta).sum(algorithm.normalize(log_shares)[..., None] * each, axis=-2)
        info = self.score(mean, *self.models(state), inputs.y)
        losses = algorithm.kernel_losses(theta, outputs, y, loss, lam)
        weight_rate = rates[:, None] if self.weights.rate is None else self.weights.rate
        learned = LevelsState(
            theta - rates[:, None, None, None] * algorithm.gradient(theta, outputs, z, y, loss, lam),
            algorithm.weigh(log_weights, losses, weight_rate),
            log_shares - rates * (loss.value(each, y) - info.loss[..., None]),
            count + 1,
        )
        return self._renewed(learned), info

    def _rates(self, theta: Array) -> Array:
        return namespace(theta).asarray(self.rates, dtype=theta.dtype)

    def _renewed(self, state: LevelsState) -> LevelsState:
        """Return the nodes with those learners begun anew whose interval is over."""
        theta, log_weights, log_shares, count = state
        xp = namespace(theta)
        lengths = xp.asarray([2**k for k in range(self.levels)], dtype=xp.int32)
        over = count[..., None] % lengths == 0
        begins = (over & (lengths < 2 ** (self.levels - 1)))[..., None]
        return LevelsState(
            xp.where(begins[..., None, None], xp.zeros_like(theta), theta),
            xp.where(begins, xp.zeros_like(log_weights), log_weights),
            xp.where(over, xp.log(self._rates(theta)), log_shares),
            count,
        )

    def models(self, state: LevelsState) -> tuple[Array, Array]:
        """Return one model for every kernel and its log weight, which predict what the learners do together."""
        xp = namespace(state.theta)
        shares = algorithm.normalize(state.log_shares)[..., None] * algorithm.normalize(state.log_weights)
        weights = xp.clip(xp.sum(shares, axis=-2), xp.finfo(shares.dtype).smallest_normal, None)
        theta = xp.sum(shares[..., None, None] * state.theta, axis=-4) / weights[..., None, None]
        return theta, xp.log(weights)
