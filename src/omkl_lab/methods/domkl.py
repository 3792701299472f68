"""DOMKL: online ADMM for every kernel and Hedge over them, with messages in full precision."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from omkl import algorithm
from omkl.arrays import Array, namespace
from omkl.errors import InputError, positive
from omkl.learners import SGD, Learner
from omkl.losses import Loss, Softmax
from omkl.methods.ensemble import Ensemble
from omkl.methods.protocol import Info, Network, Round
from omkl.quantizers import Exact
from omkl.topology import Topology
from omkl.wire import message_bytes

SEARCHES = 16  # eight serve the logistic loss, twelve such with kinks, at energies to 1000


class DualState(NamedTuple):
    """Models, dual variables and log weights of every node."""

    theta: Array
    dual: Array
    """mu, in the shape of the models; over all nodes it adds up to zero."""
    log_weights: Array


@dataclass(frozen=True, init=False, repr=False)
class DOMKL(Ensemble):
    """Every node sends its models as they are, and solves for those that suit its sample and its neighbors.

    With theta_i the models that were exchanged, r the ``penalty`` and s = 1 / ``eta``, a round of node i does

        mu   = mu + r/2 sum_j w_ij (theta_i - theta_j)
        theta_i' = argmin C(theta.z, y) + lambda |theta|^2 + mu.theta
                   + r/2 sum_j w_ij |theta - (theta_i + theta_j)/2|^2 + s/2 |theta - theta_i|^2

    and weighs the kernels by their losses, each node by its own.

    Attributes
    ----------
    eta
        1 / s, how far a sample moves a model.
    penalty
        r, how hard a node holds to its neighbors.

    Notes
    -----
    After S. Hong and J. Chae, "Distributed online learning with multiple kernels", arXiv 2102.12733. Confirmed is that
    it is decentralized online ADMM for every kernel with Hedge over them, and that messages have full precision. The
    update above is from memory of that literature, the paper itself was not consulted, and no fidelity is claimed; nor
    is it known whether its nodes weigh kernels by the losses of neighbors too.

    Links count by the gossip weights, and a node's own weight w_ii as a link to itself, so that sum_j w_ij = 1: it adds
    r w_ii to s. On regular graphs with ``weights="max_degree"`` all links count alike, as they do in the common form,
    with a penalty of r / degree. Where links fail, what they weighed falls to the node itself, and dual variables still
    add up to zero; that models then agree is seen in tests, without proof.

    The argmin is theta_i' = b - a C'(f', y) z, with a = 1 / (r + s + 2 lambda), b what it would be without the sample,
    and f' = b.z - a |z|^2 C'(f', y) the output after it: one unknown for every output. Newton's steps find it, the
    first of them under the squared loss, where it is the formula of Sherman and Morrison.
    """

    name: ClassVar[str] = "domkl"
    dithered = False  # nothing is quantized
    only_sgd: ClassVar[str] = "DOMKL solves for its models"

    learner: Learner = SGD(1.0)  # noqa: RUF009 - it is frozen
    penalty: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "penalty", positive("penalty", self.penalty, "try 1"))
        if isinstance(self.objective, Softmax):
            raise InputError(
                "loss is softmax; DOMKL solves for one output at a time, and softmax couples them; use Gossip, or one "
                "class against the rest"
            )

    def check(self, topology: Topology) -> None:
        """Refuse weights below zero, which would push neighbors apart."""
        least = min(topology.weights.min(initial=0), topology.self_weights.min(initial=0))
        if least < 0:
            raise InputError(f'a gossip weight is {least:.3g}; to DOMKL they are penalties, >= 0; use "metropolis"')

    def init(self, xp: Any, leading: tuple[int, ...], outputs: int, spectrum: Array | None = None) -> DualState:
        """Return zero models and equal weights."""
        theta = self.bank.zeros(xp, leading, outputs)
        return DualState(theta, xp.zeros_like(theta), xp.zeros(theta.shape[:-2], dtype=theta.dtype))

    def step(self, state: DualState, inputs: Round, network: Network) -> tuple[DualState, Info]:
        """Return the nodes after they exchanged their models and learned a sample."""
        theta, dual, log_weights = state
        loss, channel = self.objective, Exact()
        outputs = algorithm.predict(theta, log_weights, inputs.z).kernel_outputs
        losses = algorithm.kernel_losses(theta, outputs, inputs.y, loss, self.regularization)
        weighed = algorithm.weigh(log_weights, losses, self.hedge_rate)
        scored = weighed if self.weights.first else log_weights
        info = self.score(algorithm.predict(theta, scored, inputs.z).output, theta, scored, inputs.y)
        pull = self.penalty / 2 * network.mix(namespace(theta).zeros_like(theta), theta, 1.0)
        dual = dual - pull
        after = DualState(self.solve(theta, pull - dual, inputs.z, inputs.y), dual, weighed)
        return after, info._replace(message_bytes=message_bytes(channel.quantize(theta, None), channel))

    def solve(self, theta: Array, push: Array, z: Array, y: Array) -> Array:
        """Return argmin C(theta'.z, y) + lambda |theta'|^2 - push.theta' + (r + s)/2 |theta' - theta|^2."""
        xp, hold = namespace(theta), self.penalty + 1 / self.eta
        a = 1 / (hold + 2 * self.regularization)
        b = a * (hold * theta + push)
        energy = a * xp.sum(z * z, axis=-1, keepdims=True)
        before = xp.sum(b * z[..., None, :], axis=-1)
        slope = self.objective.derivative(nearest(before, energy, y[..., None, :], self.objective), y[..., None, :])
        return b - a * slope[..., None] * z[..., None, :]

    def models(self, state: DualState) -> tuple[Array, Array]:
        """Return every node's models and log weights."""
        return state.theta, state.log_weights


def nearest(f: Array, energy: Array, y: Array, loss: Loss) -> Array:
    """Return argmin energy * C(f', y) + |f' - f|^2 / 2, for a loss that is a sum over outputs, ``(..., C)``.

    Its derivative rises, and is of either sign at f and at f - energy C'(f). Newton's step is taken where it stays
    between the bounds that are known by then, and half of what is left where it does not: across a kink it may lead
    from one end to the other and back. It begins at zero, if that is between: there the curvature of the logistic loss
    is greatest, and no step from there overshoots.
    """
    xp = namespace(f)
    most = energy * loss.derivative(f, y)
    spare = 0.01 * xp.abs(most)  # so that a step to the very end is one that stays between
    low, high = xp.minimum(f, f - most) - spare, xp.maximum(f, f - most) + spare
    found = xp.minimum(xp.maximum(xp.zeros_like(f), low), high)
    for _ in range(SEARCHES):
        rise = found - f + energy * loss.derivative(found, y)
        low, high = xp.where(rise < 0, found, low), xp.where(rise < 0, high, found)
        step = found - rise / (1 + energy * xp.sum(loss.curvature(found, y), axis=-1))
        found = xp.where(((low < step) & (step < high)) | (step == found), step, (low + high) / 2)
    return found
