"""OMKL on the complete graph: one model in common, gradients and losses broadcast to all."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from omkl import algorithm, compressors
from omkl.arrays import Array, namespace
from omkl.errors import InputError
from omkl.methods.ensemble import Ensemble
from omkl.methods.protocol import Info, Network, Round
from omkl.quantizers import QSGD, Quantizer, restore
from omkl.topology import Topology
from omkl.wire import message_bytes

LOSS_BYTES = 4  # of each loss that a message carries besides


class CommonState(NamedTuple):
    """What all nodes hold alike: models ``(1, ..., P, C, 2D)`` and log weights ``(1, ..., P)``."""

    theta: Array
    log_weights: Array
    nodes: Array
    """An empty array ``(J, 0)``: how many nodes share the state."""


@dataclass(frozen=True, init=False, repr=False)
class Complete(Ensemble):
    """Every node broadcasts its quantized gradients and its P losses to all others; all apply the same mean.

    Attributes
    ----------
    quantizer
        How messages are rounded. ``QSGD(bits=3)`` is the paper's; None sends exact float32.
    exchange
        What nodes send: ``"gradients"``, or ``"models"``. With models, each node takes its step, and the quantized
        results are averaged.
    combine
        Whether kernel weights follow the ``"mean"`` or the ``"sum"`` of the nodes' losses.

    Notes
    -----
    The paper compares itself with this method of Y. Shen, S. Karimi-Bidhendi and H. Jafarkhani (IEEE TSP 69, 2021).
    From the paper it is known that the graph is complete, that losses are communicated and that there is no hidden
    state. The rest is our reading, consistent with that; the paper itself was not consulted.
    """

    name: ClassVar[str] = "complete"
    only_sgd: ClassVar[str] = "Complete applies one mean gradient step"
    endures_faults: ClassVar[bool] = False

    quantizer: Quantizer = QSGD(bits=3)  # noqa: RUF009 - it is frozen
    exchange: Literal["gradients", "models"] = "gradients"
    combine: Literal["mean", "sum"] = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value, known in (
            ("exchange", self.exchange, ("gradients", "models")),
            ("combine", self.combine, ("mean", "sum")),
        ):
            if value not in known:
                raise InputError(f"{name} is {value!r}; it must be {known[0]!r} or {known[1]!r}")
        object.__setattr__(self, "quantizer", compressors.named(self.quantizer))
        self.quantizer.check(self.sent)

    @property
    def dithered(self) -> bool:
        """Whether the quantizer needs uniforms."""
        return self.quantizer.dithered

    def check(self, topology: Topology) -> None:
        """Refuse any graph but the complete one."""
        nodes, edges = topology.nodes, len(topology.graph.edges)
        if edges != nodes * (nodes - 1) // 2:
            raise InputError(
                f"the graph has {edges} edges between {nodes} nodes; Complete needs all of them; "
                'use topology="complete", or Gossip on this graph'
            )

    def init(self, xp: Any, leading: tuple[int, ...], outputs: int, spectrum: Array | None = None) -> CommonState:
        """Return zero models and equal weights."""
        theta = self.bank.zeros(xp, (1, *leading[1:]), outputs)
        log_weights = xp.zeros(theta.shape[:-2], dtype=theta.dtype)
        return CommonState(theta, log_weights, xp.zeros((leading[0], 0), dtype=theta.dtype))

    def step(self, state: CommonState, inputs: Round, network: Network) -> tuple[CommonState, Info]:
        """Return the common model after every node's message has been applied."""
        xp = namespace(state.theta)
        loss, lam, eta = self.objective, self.regularization, self.eta
        theta, log_weights = self.models(state)
        outputs = algorithm.predict(theta, log_weights, inputs.z).kernel_outputs
        losses = algorithm.kernel_losses(theta, outputs, inputs.y, loss, lam)
        together = xp.mean if self.combine == "mean" else xp.sum
        combined = together(losses, axis=0, keepdims=True)
        weighed = algorithm.weigh(state.log_weights, combined, self.hedge_rate)
        slopes = algorithm.gradient(theta, outputs, inputs.z, inputs.y, loss, lam)
        sent = slopes if self.exchange == "gradients" else theta - eta * slopes
        message = self.quantizer.quantize(sent, inputs.uniforms)
        mean = xp.mean(restore(message), axis=0, keepdims=True)
        common = state.theta - eta * mean if self.exchange == "gradients" else mean
        after = CommonState(common, weighed, state.nodes)
        scored = self.models(after)[1] if self.weights.first else log_weights
        info = self.score(algorithm.predict(theta, scored, inputs.z).output, theta, scored, inputs.y)
        size = message_bytes(message, self.quantizer) + LOSS_BYTES * self.members * self.views
        return after, info._replace(message_bytes=size)

    def models(self, state: CommonState) -> tuple[Array, Array]:
        """Return the common models and log weights once for every node."""
        xp, nodes = namespace(state.theta), state.nodes.shape[0]
        theta = xp.broadcast_to(state.theta, (nodes, *state.theta.shape[1:]))
        return theta, xp.broadcast_to(state.log_weights, (nodes, *state.log_weights.shape[1:]))
