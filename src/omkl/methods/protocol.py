"""What a method is: ``init`` and ``step``, the same shape for every algorithm.

The first axis of every array is the nodes; further axes before the model's own (P, C, 2D) are free, for seeds.
"""

from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias, TypeVar

from omkl import algorithm
from omkl.arrays import Array, namespace
from omkl.losses import Loss
from omkl.methods.bank import Bank
from omkl.topology import Topology

MethodState: TypeAlias = tuple[Any, ...]
"""A NamedTuple of arrays, a method's own."""

S = TypeVar("S", bound=MethodState)


class Round(NamedTuple):
    """What the nodes get in one round."""

    z: Array
    """Features of each node's sample, ``(J, ..., P, 2D)``."""
    y: Array
    """Targets, ``(J, ..., C)``."""
    uniforms: Array | None
    """Uniform random numbers for the quantizer, ``(J, ..., P, C, 2D)``, if the method is ``dithered``."""
    round: Array | int = 0
    """The number of the round, from zero."""
    weight: Array | None = None
    """How many samples each sample counts as, ``(J, ...)``; None is one."""
    reach: Array | None = None
    """How many nodes' samples a step counts for, ``(J, ...)``; None is one."""
    alike: Array | None = None
    """How alike those samples are, ``(J, ..., P)``, from 0 to 1; None is 0, not at all."""


class Info(NamedTuple):
    """What is measured in one round. It is no part of the state."""

    output: Array
    """The output f of the ensemble before the sample is learned, ``(J, ..., C)``."""
    loss: Array
    """C(f, y), ``(J, ...)``."""
    theta: Array
    """The models that nodes predicted with, ``(J, ..., P, C, 2D)``."""
    log_weights: Array
    """The log weights that nodes predicted with, ``(J, ..., P)``."""
    message_bytes: Array
    """The size of each node's message as the codec packs it, header and all, ``(J, ...)``; zero where none is sent."""
    readings: Array | None = None
    """The factors of the coefficients in every reading of a model, ``(J, ..., P, V, n)``; None is one."""


class Network(Protocol):
    """Who hears whom, and with what weight."""

    def mix(self, theta: Array, hidden: Array, gamma: Array | float, radius: Array | float | None = None) -> Array:
        """Return ``algorithm.mix`` at every node; with a radius, of copies that are ``algorithm.clipped`` to it."""

    def degrees(self, nodes: int) -> Array:
        """Return how many nodes hear each node, ``(J,)`` or ``(J, ...)``; a weight of zero is no link."""

    def heard(self) -> Array | float:
        """Return the share of its links, by weight, that each node hears, ``(J,)`` or ``(J, ...)``; 1 for all links."""

    def weight(self, nodes: int) -> Array:
        """Return the sum of the weights of the links that each node hears, ``(J,)`` or ``(J, ...)``."""


class Algorithm(Protocol[S]):
    """An algorithm that the simulator can run."""

    name: ClassVar[str]
    endures_faults: ClassVar[bool]
    """Whether it runs on networks that change. If not, every node must hear all nodes in every round."""

    @property
    def bank(self) -> Bank:
        """Kernels, and the features that models are learned in."""

    @property
    def labels(self) -> list[str]:
        """Names of the models that are weighed."""

    @property
    def sent(self) -> int:
        """How many numbers are sent for each model and output."""

    @property
    def objective(self) -> Loss:
        """The loss C."""

    @property
    def dithered(self) -> bool:
        """Whether ``step`` needs uniforms."""

    def replace(self, **changes: Any) -> Self:
        """Return the same with other parts or settings."""

    def check(self, topology: Topology) -> None:
        """Refuse a network the method cannot run on, before any computation."""

    def init(self, xp: Any, leading: tuple[int, ...], outputs: int, spectrum: Array | None = None) -> S:
        """Return the state before the first round; ``leading`` is (J, ...).

        ``spectrum`` has the eigenvalues of the basis of the features, ``(..., P, n)``, if there is one.
        """

    def step(self, state: S, inputs: Round, network: Network) -> tuple[S, Info]:
        """Return the state after one round, and what was measured in it."""

    def models(self, state: S) -> tuple[Array, Array]:
        """Return theta ``(J, ..., P, C, 2D)`` and log weights ``(J, ..., P)`` that each node predicts with."""


Method: TypeAlias = Algorithm[Any]
"""An algorithm with any state."""


class Neighbors(NamedTuple):
    """The network as lists of neighbors, ids and weights ``(J, K)``, padded with the node itself at weight zero."""

    ids: Array
    weights: Array

    def mix(self, theta: Array, hidden: Array, gamma: float, radius: Array | float | None = None) -> Array:
        """Return ``algorithm.mix`` at every node, each given copies of its neighbors' hidden states."""
        xp = namespace(theta)
        nodes, most = self.ids.shape
        copies = xp.take(hidden, xp.reshape(self.ids, (-1,)), axis=0)
        copies = xp.moveaxis(xp.reshape(copies, (nodes, most, *hidden.shape[1:])), 1, -4)
        copies = algorithm.clipped(hidden[..., None, :, :, :], copies, radius)
        weights = xp.reshape(self.weights, (nodes, *(1,) * (hidden.ndim - 4), most))
        return algorithm.mix(theta, hidden, copies, weights, gamma)

    def degrees(self, nodes: int) -> Array:
        """Return how many neighbors each node has."""
        return namespace(self.weights).count_nonzero(self.weights, axis=1)

    def heard(self) -> float:
        """Return one."""
        return 1.0

    def weight(self, nodes: int) -> Array:
        """Return the sums of the weights."""
        return namespace(self.weights).sum(self.weights, axis=1)
