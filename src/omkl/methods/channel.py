"""The channel: what is sent, in which rounds, and how coarsely."""

from dataclasses import dataclass

import numpy as np

from omkl import algorithm, compressors, sending
from omkl.arrays import Array
from omkl.errors import InputError
from omkl.methods.composed import Part
from omkl.quantizers import QSGD, Message, Quantizer
from omkl.sending import Budget, Pace, Schedule, Sending


@dataclass(frozen=True, kw_only=True)
class Channel(Part):
    """What goes from a node to its neighbors.

    Attributes
    ----------
    quantizer
        How coarsely a message is sent; ``QSGD(bits=3)`` is the paper's. None sends exact float32.
    pace
        How many rounds of gossip go with a sample: as many as a number of bytes pays for, ``Budget(48)``, or a number
        of rounds, ``Pace(8)``. None is one round, as in the paper.
    sending
        Which kernels are in a message: some of them, by ``Sampled()`` or ``Triggered()``; None, the paper's, sends all.
    """

    quantizer: Quantizer = QSGD(bits=3)  # noqa: RUF009 - it is frozen
    pace: Budget | Pace | None = None
    sending: Sending | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "quantizer", compressors.named(self.quantizer))
        object.__setattr__(self, "sending", sending.named(self.sending))
        if not isinstance(self.pace, Budget | Pace | None):
            raise InputError(f"pace is {self.pace!r}; it says how much gossip goes with a sample; pass omkl.Budget(48)")

    def schedule(self, members: int, sent: int) -> Schedule | None:
        """Return how many rounds there are for each sample, for messages of ``sent`` numbers a model; None is one."""
        return self.pace.schedule(members, sent) if isinstance(self.pace, Budget) else self.pace

    def least_share(self, members: int) -> float:
        """Return the smallest fraction of rounds in which any model is sent."""
        return 1.0 if self.sending is None else float(self.sending.share(np.eye(members)[0]).min())

    def emit(
        self,
        own: Array,
        hidden: Array,
        uniforms: Array | None,
        weights: Array | None,
        moved: Array | tuple[()],
        round_: Array | int,
    ) -> Message:
        """Return the messages of a round: the quantized differences of the models that are sent in it."""
        sent = None if self.sending is None else self.sending.sends(own - hidden, weights, moved, round_)
        return algorithm.emit(own, hidden, self.quantizer, uniforms, sent)
