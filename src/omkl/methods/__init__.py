"""The methods, one file each, under one protocol (see ``protocol.py``), and settings of them by name."""

from collections import ChainMap
from collections.abc import Callable, Mapping

from omkl.methods.bank import Bank
from omkl.methods.channel import Channel
from omkl.methods.choco import Choco
from omkl.methods.complete import Complete
from omkl.methods.ensemble import for_inputs, suited
from omkl.methods.gossip import Gossip
from omkl.methods.local import Local
from omkl.methods.mixing import Mixing
from omkl.methods.presets import alone, frugal, paper, recommended
from omkl.methods.protocol import Algorithm, Info, Method, Neighbors, Network, Round
from omkl.methods.weights import GossipedWeights, Weights
from omkl.registry import Registry
from omkl.registry import named as _named

METHODS: Registry[type[Method]] = Registry(
    "omkl.methods", {method.name: method for method in (Gossip, Complete, Choco, Local)}
)
PRESETS: dict[str, Callable[..., Gossip | Local]] = {
    "recommended": recommended, "frugal": frugal, "paper": paper, "alone": alone
}  # fmt: skip


def named(method: Method | str | None) -> Method:
    """Return the method of that name, of a class with its defaults or of a preset, or the method itself.

    None is the recommended one.
    """
    if method is None:
        return recommended()
    known: Mapping[str, Callable[[], Method]] = ChainMap(PRESETS, METHODS)  # type: ignore[arg-type]
    found: Method = _named("method", method, known, Algorithm, "omkl.recommended()")
    return found


__all__ = [
    "METHODS",
    "PRESETS",
    "Algorithm",
    "Bank",
    "Channel",
    "Choco",
    "Complete",
    "Gossip",
    "GossipedWeights",
    "Info",
    "Local",
    "Method",
    "Mixing",
    "Neighbors",
    "Network",
    "Round",
    "Weights",
    "alone",
    "for_inputs",
    "frugal",
    "named",
    "paper",
    "recommended",
    "suited",
]
