"""The door of a node: how many strangers may come in, so that descriptors are left for disk, health and members.

Whoever connects takes a descriptor, and with TLS holds it until the handshake has failed. Zenoh takes in all who come,
and gets rid of ten in a second. At the limit it does not even do that: it tries to take in the next one, fails, and
looks at nobody else, for ever. No checkpoint can be written then either, so nothing is acknowledged.

So the door is shut while few descriptors are left: the kernel drops what asks for a new connection, those who wait to
be taken in are turned away, and those who have no link are cut. Links stand. With room the door opens again.
"""

import ctypes
import logging
import os
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeAlias

from omkl.node.journal import BURST, PAUSE, Throttle

DESCRIPTORS = Path("/proc/self/fd")
LINUX = sys.platform == "linux"
if LINUX:
    import resource

log = logging.getLogger(__name__)

ROOM = 128  # descriptors that a daemon may have beyond one for each neighbor: its own, and those of who comes
RESERVE = 32  # are left when the door is shut, and twice as many are free when it opens
SPARE = 8  # are held while the door is open: at the limit, without one, nobody can even be turned away
BACKLOG = 64  # may wait to be taken in
LOOK = 0.5  # seconds between two looks,
BREATH = 0.05  # while the door is shut, or somebody waits to be taken in

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # of Linux
NOTHING = struct.pack("HBBI", 6, 0, 0, 0)  # a filter of one step: of any packet let 0 bytes through

Address: TypeAlias = tuple[str, int]


class Link(Protocol):
    """A connection that the transport knows."""

    @property
    def dst(self) -> str:
        """Where its other end is: ``tls/192.168.1.11:40112``."""


class Door:
    """Stands before a socket of this process that listens, until ``close``; on Linux.

    Parameters
    ----------
    id
        The node's, for the log.
    endpoint
        Where this process listens: ``tls/192.168.1.10:7447``.
    links
        Returns all links that stand.
    """

    def __init__(self, id: str, endpoint: str, links: Callable[[], Iterable[Link]]) -> None:
        self._id, self._links = id, links
        self._listener = _listener(_address(endpoint))
        self._listener.listen(BACKLOG)
        self._bell = os.eventfd(0)
        self._reserve = min(RESERVE, (_limit() - _used()) // 4)
        self._spare = [os.dup(self._bell) for _ in range(SPARE)]
        self._shut, self._throttle = False, Throttle(PAUSE, BURST)
        self._thread = threading.Thread(target=self._run, name="omkl-door", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave it."""
        os.eventfd_write(self._bell, 1)
        self._thread.join()
        self._listener.close()
        for number in (self._bell, *self._spare):
            os.close(number)

    def _run(self) -> None:
        end, come = select.poll(), select.poll()
        for poll in (end, come):
            poll.register(self._bell, select.POLLIN)
        come.register(self._listener, select.POLLIN)
        while not end.poll(1000 * BREATH):
            if not self._shut:
                come.poll(1000 * LOOK)  # at the limit somebody always waits
            self._look()

    def _look(self) -> None:
        limit = _limit()
        if self._lowest_free(limit) >= limit - self._reserve:
            self._keep_out()
        elif self._shut and _used() + SPARE <= limit - 2 * self._reserve:
            self._spare = [os.dup(self._bell) for _ in range(SPARE)]
            self._listener.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
            self._shut = False

    def _lowest_free(self, limit: int) -> int:
        """Return the number that the next descriptor gets, which nearly is how many there are, and costs little."""
        try:
            os.close(number := os.dup(self._bell))
        except OSError:
            return limit
        return number

    def _keep_out(self) -> None:
        if not self._shut:
            step = ctypes.create_string_buffer(NOTHING)
            program = struct.pack("HP", 1, ctypes.addressof(step))
            self._listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
            self._shut = True
            self._say()
        while self._spare:
            os.close(self._spare.pop())
        with suppress(OSError):
            while True:
                self._listener.accept()[0].close()
        self._cut()

    def _cut(self) -> None:
        """End the connections that are no links, which zenoh then lets go of."""
        here, links = self._listener.getsockname()[:2], [_address(link.dst) for link in self._links()]
        with suppress(OSError):
            for number in _sockets():
                with suppress(OSError), socket.socket(fileno=os.dup(number)) as one:
                    if one.getsockname()[:2] == here and one.getpeername()[:2] not in links:
                        one.shutdown(socket.SHUT_RDWR)

    def _say(self) -> None:
        if (unsaid := self._throttle.pass_on("shut", time.monotonic())) is not None:
            extra = {"omkl": {"node": self._id, "event": "strangers", "limit": _limit(), "unsaid": unsaid}}
            text = "strangers have taken nearly all descriptors: nobody is let in until they are gone; links stand"
            log.warning(text, extra=extra)


def stand(id: str, endpoint: str | None, links: Callable[[], Iterable[Link]]) -> Door | None:
    """Return a door before what listens there; None where there can be none."""
    if not LINUX or endpoint is None:
        return None
    try:
        return Door(id, endpoint, links)
    except (OSError, LookupError) as error:
        log.warning("no door before %s (%s); strangers could take all descriptors", endpoint, error)
        return None


@contextmanager
def fitted(neighbors: int) -> Iterator[None]:
    """Give the process as many descriptors as a node with so many neighbors may need; more would be strangers'."""
    if not LINUX:
        yield
        return
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _used() + neighbors + ROOM
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if most < 0 else min(wanted, most), most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _used() -> int:
    try:
        return len(list(DESCRIPTORS.iterdir()))
    except OSError:  # which takes one itself
        return _limit()


def _sockets() -> list[int]:
    return [int(entry.name) for entry in DESCRIPTORS.iterdir() if entry.is_socket()]


def _listener(address: Address) -> socket.socket:
    """Return a descriptor of one's own for the socket that listens there in this process."""
    places = [info[4][:2] for info in socket.getaddrinfo(*address, type=socket.SOCK_STREAM)]
    for number in _sockets():
        one = socket.socket(fileno=os.dup(number))
        if one.getsockname()[:2] in places and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return one
        one.close()
    raise LookupError(f"nobody listens at {address} in this process")


def _address(endpoint: str) -> Address:
    host, _, port = endpoint.partition("/")[2].partition("?")[0].rpartition(":")
    return host.strip("[]"), int(port)
