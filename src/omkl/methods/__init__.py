"""The methods, one file each, under one protocol (see ``protocol.py``)."""

from omkl.methods.gossip import Gossip
from omkl.methods.local import Local
from omkl.methods.protocol import Info, Method, Neighbors, Network, Round

METHODS: dict[str, type[Method]] = {"gossip": Gossip, "local": Local}

__all__ = ["METHODS", "Gossip", "Info", "Local", "Method", "Neighbors", "Network", "Round"]
