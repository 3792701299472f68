"""Rounds of a method in NumPy, as it states them and one after another; a node need not have a sample in each."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from omkl import noise
from omkl.errors import InputError
from omkl.methods.gossip import Gossip
from omkl.methods.protocol import Algorithm, Info, Method, Network, Round, S
from omkl.storage import mapped
from omkl.wire import message_bytes

REMEDY = "omkl.testing.check_method(method) says more"

Dither: TypeAlias = Callable[[int], npt.NDArray[np.float32] | None]
"""What the quantizers of all nodes are given in a round of gossip, ``(J, P, C, n)``; None where they need nothing."""


def dither(method: Method, nodes: int, outputs: int, seed: int | Sequence[int]) -> Dither:
    """Return the dither of a seed, or of several, ``(J, S, P, C, n)``."""
    if not method.dithered:
        return lambda round_: None
    key = noise.key(seed, "quantizer")
    key = noise.fold(key, np.arange(nodes).reshape(-1, *(1,) * key.low.ndim))
    shape = (method.bank.members, outputs, method.sent)
    return lambda round_: noise.dither(noise.fold(key, round_), shape)


def advance(
    method: Algorithm[S],
    state: S,
    sample: Round,
    network: Network,
    dither: Dither,
    seen: npt.NDArray[np.bool_] | None = None,
) -> tuple[S, Info]:
    """Return the network after a sample of every node and the gossip that goes with it, and what was measured.

    ``sample.round`` counts samples, and has the dither of as many rounds of gossip; one that has a pace draws its own.
    Where ``seen (J,)`` is False a node has no sample: it mixes and sends, and learns nothing.
    """
    if isinstance(method, Gossip):
        rest, sent = _gossiped(method, state, sample, network, dither)
        after, info = method.learn(rest, sample)
        info = info._replace(message_bytes=sent)
    else:
        after, info = step(method, state, sample, network)
        own = {"memory": state.memory} if hasattr(state, "memory") else {}
        rest = after._replace(theta=info.theta, log_weights=info.log_weights, **own)  # type: ignore[attr-defined]
    return (after if seen is None or seen.all() else _rested(rest, after, seen)), info


def step(method: Algorithm[S], state: S, sample: Round, network: Network) -> tuple[S, Info]:
    """Return what a method's own ``step`` does; refuse what a class of the user's may return instead."""
    made: Any = method.step(state, sample, network)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], Info)):
        raise InputError(f"{method.name}.step returns no pair (state, Info); {REMEDY}")
    if not hasattr(made[1].message_bytes, "shape"):
        given = made[1].message_bytes
        raise InputError(f"{method.name}.step gives message_bytes {given!r}; it must be an array of nodes; {REMEDY}")
    return made[0], made[1]


def _gossiped(method: Gossip, state: Any, sample: Round, network: Network, dither: Dither) -> tuple[Any, Any]:
    """Return the state after as many rounds of gossip as go with the sample, and what was sent in all."""
    sent, t, pace = np.zeros(state.theta.shape[:-3]), int(sample.round), method.schedule
    first, last = (t, t + 1) if pace is None else (pace.rounds(t), pace.rounds(t + 1))
    for round_ in range(first, last):
        uniforms = sample.uniforms if pace is None else dither(round_)
        state, message = method.gossip(state, uniforms, network, round_)
        sent += message_bytes(message, method.channel.quantizer)
    return state, sent


def _rested(rest: Any, after: Any, seen: npt.NDArray[np.bool_]) -> Any:
    """Return the state in which nodes without a sample have what they would have predicted with."""
    return mapped(lambda new, old: np.where(seen.reshape(-1, *(1,) * (new.ndim - 1)), new, old), after, rest)
