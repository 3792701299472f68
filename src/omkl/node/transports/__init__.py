"""What carries frames between nodes: ``memory``, deterministic and faulty on demand, and ``zenoh``."""

from typing import Any, NamedTuple, Protocol

from omkl.node.neighbors import Send


class Arrival(NamedTuple):
    """Something of a neighbor: bytes, or that it came or is gone."""

    peer: str
    data: bytes | None = None
    query: Any = None
    """Where the answer goes, if the bytes are a question."""
    came: bool = False


class Transport(Protocol):
    """What a running node asks of its transport."""

    def send(self, send: Send, query: Any = None) -> None:
        """Send a frame to all neighbors, ask one, or answer its ``query``; blocks for a moment at most."""
