"""The methods, one file each, under one protocol (see ``protocol.py``)."""

from omkl.methods.adaraker import AdaRaker
from omkl.methods.choco import Choco
from omkl.methods.complete import Complete
from omkl.methods.domkl import DOMKL
from omkl.methods.ensemble import suited
from omkl.methods.gossip import Gossip
from omkl.methods.local import Local
from omkl.methods.presets import frugal, letter, recommended
from omkl.methods.protocol import Info, Method, Neighbors, Network, Round

METHODS: dict[str, type[Method]] = {method.name: method for method in (Gossip, Complete, Choco, Local, DOMKL, AdaRaker)}

__all__ = [
    "DOMKL",
    "METHODS",
    "AdaRaker",
    "Choco",
    "Complete",
    "Gossip",
    "Info",
    "Local",
    "Method",
    "Neighbors",
    "Network",
    "Round",
    "frugal",
    "letter",
    "recommended",
    "suited",
]
