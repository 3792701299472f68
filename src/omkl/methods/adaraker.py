"""AdaRaker: learners that begin anew at intervals of every length, for data that drift."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from omkl import algorithm
from omkl.arrays import Array, namespace
from omkl.errors import InputError, whole
from omkl.learners import Memory
from omkl.methods.ensemble import Ensemble
from omkl.methods.protocol import Info, Network, Round
from omkl.topology import Topology

LARGEST_RATE = 0.5
MOST_LEVELS = 31  # samples are counted in 32 bits


class LevelsState(NamedTuple):
    """What every node has: K learners, each of P models, and how much each of them counts."""

    theta: Array
    """``(J, ..., K, P, C, 2D)``."""
    log_weights: Array
    """Of the kernels, each learner's own, ``(J, ..., K, P)``."""
    memory: Memory
    """Of the learners; empty where they take gradient steps."""
    log_shares: Array
    """ln h of the learners, ``(J, ..., K)``."""
    count: Array
    """Samples that a node has seen, ``(J, ...)``."""
    spectrum: Any
    """Eigenvalues of the basis, which memories begin with, ``(J, ..., P, n)``; empty where there is none."""


@dataclass(frozen=True, kw_only=True)
class AdaRaker(Ensemble):
    """Every node alone combines K learners, of which learner k begins anew after every 2^k samples.

    Learner k is ``Local`` at rate eta_k = min(1/2, eta / sqrt(2^k)), for its models and its kernel weights. The node's
    output is the mean of theirs, by shares that begin at eta_k together with the learner and follow

        ln h_k = ln h_k - eta_k (C(f_k, y) - C(f, y))

    so that after a change those take over who have not seen what was before.

    Attributes
    ----------
    eta
        eta_0.
    levels
        K; the last learner never begins anew.
    learner
        The update rule of all learners, whose memory begins anew with them; None is the gradient step at rate eta_k.

    Notes
    -----
    After Y. Shen, T. Chen, G. B. Giannakis, "Random feature-based online multi-kernel learning in environments with
    unknown dynamics", JMLR 20 (2019). Confirmed is that a learner of theirs, Raker, is online gradient descent for
    every kernel and multiplicative weights, which is ``Local``. What is around it here is from memory: intervals of
    geometric lengths, the rates, a second layer of multiplicative weights. The paper and its public code differ, and no
    fidelity is claimed to either. Ours are a number of levels that is fixed, so that a node's memory is; a last learner
    that goes on, for all others begin together at multiples of the longest interval; the start of all of them at the
    first sample; and other update rules.
    """

    name: ClassVar[str] = "adaraker"

    eta: float = 1.0
    levels: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "levels", whole("levels", self.levels))
        if self.levels > MOST_LEVELS:
            raise InputError(f"levels is {self.levels}; it must be at most {MOST_LEVELS}; use 12")
        if self.weigh_first:
            raise InputError("weigh_first is True; AdaRaker predicts before it sees the label; leave it out")

    @property
    def dithered(self) -> bool:
        """False: nothing is quantized."""
        return False

    @property
    def rates(self) -> list[float]:
        """eta_k of every learner."""
        return [min(LARGEST_RATE, self.eta / 2 ** (k / 2)) for k in range(self.levels)]

    def check(self, topology: Topology) -> None:
        """Accept any network."""

    def init(self, xp: Any, leading: tuple[int, ...], outputs: int, spectrum: Array | None = None) -> LevelsState:
        """Return learners that have seen nothing."""
        theta = self.zeros(xp, (*leading, self.levels), outputs)
        own: Any = ()
        if spectrum is not None:
            own = xp.zeros((*leading, *theta.shape[-3:-2], theta.shape[-1]), dtype=theta.dtype) + xp.asarray(spectrum)
        return self._fresh(theta, xp.zeros(leading, dtype=xp.int32), own)

    def _fresh(self, theta: Array, count: Array, spectrum: Any) -> LevelsState:
        """Return learners in the shape of theta as they begin."""
        xp = namespace(theta)
        log_weights = xp.zeros(theta.shape[:-2], dtype=theta.dtype)
        given = None if isinstance(spectrum, tuple) else spectrum[..., None, :, :]
        memory = () if self.learner is None else self.learner.init(theta, given)
        shares = xp.log(self._rates(theta)) + xp.zeros(theta.shape[:-3], dtype=theta.dtype)
        return LevelsState(xp.zeros_like(theta), log_weights, memory, shares, count, spectrum)

    def _rates(self, theta: Array) -> Array:
        return namespace(theta).asarray(self.rates, dtype=theta.dtype)

    def step(self, state: LevelsState, inputs: Round, network: Network) -> tuple[LevelsState, Info]:
        """Return the nodes after all learners had the sample, those whose interval is over begun anew."""
        theta, log_weights, memory, log_shares, count, spectrum = state
        loss, lam, rates = self.objective, self.regularization, self._rates(theta)
        z, y = inputs.z[..., None, :, :], inputs.y[..., None, :]
        each, outputs = algorithm.predict(theta, log_weights, z)
        mean = namespace(theta).sum(algorithm.normalize(log_shares)[..., None] * each, axis=-2)
        info = self.score(mean, *self.models(state), inputs.y)
        losses = algorithm.kernel_losses(theta, outputs, y, loss, lam)
        log_weights = algorithm.weigh(
            log_weights, losses, rates[:, None] if self.weight_rate is None else self.weight_rate
        )
        log_shares = log_shares - rates * (loss.value(each, y) - info.loss[..., None])
        if self.learner is None:
            slopes = algorithm.gradient(theta, outputs, z, y, loss, lam)
            theta = theta - rates[:, None, None, None] * slopes
        else:
            theta, memory = algorithm.learn(theta, memory, outputs, z, y, loss, lam, self.learner)
        return self._begun(LevelsState(theta, log_weights, memory, log_shares, count + 1, spectrum)), info

    def _begun(self, state: LevelsState) -> LevelsState:
        """Return the nodes with those learners begun anew whose interval is over."""
        xp, fresh = namespace(state.theta), self._fresh(state.theta, state.count, state.spectrum)
        lengths = xp.asarray([2**k for k in range(self.levels - 1)] + [2**31 - 1], dtype=xp.int32)
        begins = state.count[..., None] % lengths == 0

        def chosen(new: Any, old: Any) -> Any:
            if isinstance(new, tuple):
                parts = map(chosen, new, old)
                return type(new)(*parts) if hasattr(new, "_make") else tuple(parts)
            return xp.where(xp.reshape(begins, (*begins.shape, *(1,) * (new.ndim - begins.ndim))), new, old)

        return LevelsState(*map(chosen, fresh[:4], state[:4]), state.count, state.spectrum)

    def models(self, state: LevelsState) -> tuple[Array, Array]:
        """Return one model for every kernel and its log weight, which predict what the learners do together."""
        xp = namespace(state.theta)
        shares = algorithm.normalize(state.log_shares)[..., None] * algorithm.normalize(state.log_weights)
        weights = xp.sum(shares, axis=-2)
        smallest = xp.finfo(weights.dtype).smallest_normal
        weights = xp.clip(weights, smallest, None)
        theta = xp.sum(shares[..., None, None] * state.theta, axis=-4) / weights[..., None, None]
        return theta, xp.log(weights)
