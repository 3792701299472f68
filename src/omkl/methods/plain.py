"""Which methods the fast paths know: Algorithm 1 as it stands, with the losses and quantizers that each has."""

from omkl.learners import SGD
from omkl.methods import Choco, Gossip, Method


def is_plain(method: Method, losses: tuple[type, ...], quantizers: tuple[type, ...]) -> bool:
    """Return whether a method is gossip with gradient steps, one of these losses, and one of these quantizers."""
    return (
        (type(method) is Gossip or (type(method) is Choco and not method.fresh))
        and not method.weigh_first
        and method.clip is None
        and method.momentum == 0
        and not method.common_weights
        and method.pace is None
        and method.sending is None
        and method.reach is None
        and method.basis is None
        and type(method.rule) is SGD
        and method.rule.decay == "none"
        and type(method.objective) in losses
        and type(method.channel) in quantizers
        and getattr(method.channel, "block", None) is None
    )
