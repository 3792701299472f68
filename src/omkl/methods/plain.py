"""Which methods the fast paths know: Algorithm 1 as it stands, with the losses and quantizers that each has."""

from omkl.learners import SGD
from omkl.methods import Choco, Gossip, Method, Mixing


def is_plain(method: Method, losses: tuple[type, ...], quantizers: tuple[type, ...]) -> bool:
    """Return whether a method is gossip with gradient steps, one of these losses, and one of these quantizers."""
    return (
        (type(method) is Gossip or (type(method) is Choco and not method.fresh))
        and not method.weights.first
        and type(method.mixing) is Mixing
        and method.mixing.clip is None
        and method.mixing.momentum == 0
        and not method.weights.common
        and method.channel.pace is None
        and method.channel.sending is None
        and method.reach is None
        and method.bank.basis is None
        and type(method.learner) is SGD
        and method.learner.decay == "none"
        and type(method.objective) in losses
        and type(method.channel.quantizer) in quantizers
        and getattr(method.channel.quantizer, "block", None) is None
    )
