"""What waits for a node's thread, within bounds: no neighbor fills the memory or keeps others waiting for long.

A frame that is too large, or comes while too many of its sender wait, is dropped and counted. That is safe: whoever
misses a frame asks for what it lacks. In lock step a neighbor has a frame or two under way, so only one that floods
meets the bound, and the frames of another wait behind so many of its at most: this is the limit on its rate. Of a
neighbor's comings and goings only the latest waits.
"""

import queue
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from omkl.node.events import Dropped
from omkl.node.learning import outputs
from omkl.node.role import Role
from omkl.node.transports import Arrival
from omkl.wire import FRAME_BYTES, MOST_CONTRACT, Codec

MOST_PENDING = 64  # frames of a neighbor that wait; four times what a link keeps for later
SLACK = 64  # bytes that a frame may be longer than those of this version
NUMBER = 64  # bytes of a number in a sample, as JSON; 25 do

STRANGERS = "(others)"  # stands for whoever is no neighbor: anyone may claim any name
CLIENTS = "(clients)"  # stands for whoever asks for what a node serves

WHY = {
    "size": "larger than anything that is of use here",
    "pending": "too many wait already",
}


def largest_frame(role: Role) -> int:
    """Return how many bytes the largest frame has that a neighbor may need to send: a snapshot, most often."""
    method = role.method
    shape = (method.members, outputs(method.objective), method.sent)
    snapshot = 4 * shape[0] * shape[1] * shape[2]
    return FRAME_BYTES + SLACK + max(snapshot, MOST_CONTRACT, Codec(shape, method.channel.quantizer).most_bytes)


def largest_sample(role: Role) -> int:
    """Return how many bytes a sample may have."""
    return 1024 + NUMBER * (role.inputs + outputs(role.method.objective))


class Wake(NamedTuple):
    """Nothing has come, but something may be due."""


class Inbox:
    """A queue of arrivals, bounded by peer, and of what the process itself asks for.

    Parameters
    ----------
    peers
        The neighbors; all others count as one.
    most_bytes
        Of a frame.
    """

    def __init__(self, peers: Iterable[str], most_bytes: int) -> None:
        self._peers, self._most_bytes = frozenset(peers), most_bytes
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()  # of those who deliver; the node's thread seldom needs it
        self._came, self._taken = Counter[str](), Counter[str]()  # frames by peer; only the node's thread takes
        self._presence: dict[str, bool] = {}
        self._dropped: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        return self._queue.qsize()

    def put(self, item: Any) -> None:
        """Add what this process itself asks for."""
        self._queue.put(item)

    def deliver(self, arrival: Arrival) -> None:
        """Add what a transport delivers, or drop it; from any thread, never blocks."""
        peer = arrival.peer if arrival.peer in self._peers else STRANGERS
        with self._lock:
            wanted = self._admit(peer, arrival)
        if wanted:  # without the lock: whoever this wakes may want it
            self._queue.put(arrival)

    def drop(self, peer: str, reason: str) -> None:
        """Count something that was dropped before it came here; from any thread."""
        with self._lock:
            self._drop(peer, reason)

    def get(self, timeout: float) -> Any:
        """Return what has waited longest, or a ``Wake`` if nothing comes in time."""
        try:
            item = self._queue.get(timeout=timeout)
        except queue.Empty:
            return Wake()
        if type(item) is not Arrival:
            return item
        peer = item.peer if item.peer in self._peers else STRANGERS
        if item.data is None:
            with self._lock:
                return item._replace(came=self._presence.pop(peer))
        self._taken[peer] += 1
        return item

    def dropped(self) -> list[Dropped]:
        """Return what was dropped since the last call."""
        if not self._dropped:
            return []
        with self._lock:
            counts, self._dropped = self._dropped, Counter()
        return [Dropped(peer, WHY[reason], reason, count) for (peer, reason), count in counts.items()]

    def _admit(self, peer: str, arrival: Arrival) -> bool:
        """Return whether an arrival is to wait; count it, or that it was dropped."""
        if arrival.data is None:
            waits, self._presence[peer] = peer in self._presence, arrival.came
            return not waits
        if len(arrival.data) > self._most_bytes:
            self._drop(peer, "size")
        elif self._came[peer] - self._taken[peer] >= MOST_PENDING:
            self._drop(peer, "pending")
        else:
            self._came[peer] += 1
            return True
        return False

    def _drop(self, peer: str, reason: str) -> None:
        if not self._dropped:
            self._queue.put(Wake())  # or nobody would look
        self._dropped[peer, reason] += 1
