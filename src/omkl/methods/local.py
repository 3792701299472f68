"""No communication: every node learns alone (Raker)."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from omkl.arrays import Array
from omkl.learners import Memory
from omkl.methods.ensemble import Ensemble
from omkl.methods.protocol import Info, Network, Round


class LocalState(NamedTuple):
    """Models, log weights and the learner's memory of every node."""

    theta: Array
    log_weights: Array
    memory: Memory


@dataclass(frozen=True, init=False, repr=False)
class Local(Ensemble):
    """No communication: every node learns by itself, with a model for each kernel and multiplicative weights.

    It takes the settings of ``omkl.Gossip`` that need no neighbors: ``kernels``, ``features``, ``orthogonal``,
    ``basis``, ``sigma``, ``loss``, ``regularization``, ``learner``, ``eta``, ``weight_rate`` and ``weigh_first``.

    References
    ----------
    Y. Shen, T. Chen, G. B. Giannakis, "Random feature-based online multi-kernel learning in environments with unknown
    dynamics", JMLR 20 (2019).
    """

    name: ClassVar[str] = "local"

    @property
    def loss_gap_cap(self) -> float | None:
        """Ten, where the loss has no bound on its slope: an outlier would choose the kernel for good."""
        return None if self.has_bounded_slope else 10.0

    def init(self, xp: Any, leading: tuple[int, ...], outputs: int, spectrum: Array | None = None) -> LocalState:
        """Return zero models and equal weights."""
        theta = self.bank.zeros(xp, leading, outputs)
        return LocalState(theta, self.equal_weights(theta), self.learner.init(theta, spectrum))

    def step(self, state: LocalState, inputs: Round, network: Network) -> tuple[LocalState, Info]:
        """Return the nodes after each has learned its own sample."""
        theta, log_weights, memory, info = self.observe(*state, inputs)
        return LocalState(theta, log_weights, memory), info
