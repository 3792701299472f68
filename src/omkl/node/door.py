"""The door of a node: how many strangers may come in, so that descriptors are left for disk, health and members.

Whoever connects takes a descriptor, and with TLS holds it until the handshake has failed. Zenoh takes in all who come,
and gets rid of ten in a second. At the limit it does not even do that: it tries to take in the next one, fails, and
looks at nobody else, for ever. No checkpoint can be written then either, so nothing is acknowledged.

So the door is shut while few descriptors are left: the kernel drops what asks for a new connection, those who wait to
be taken in are turned away, and those who have no link are cut. Links stand. With room the door opens again.
"""

import ctypes
import errno
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
SHUT = 1.0  # seconds that it stays shut at least: whoever waits outside is at once as many again
LOOK = 0.5  # seconds between two looks,
BREATH = 0.01  # while the door is shut, or somebody waits to be taken in

SO_ATTACH_FILTER, SO_DETACH_FILTER = 26, 27  # of Linux
NOTHING = struct.pack("HBBI", 6, 0, 0, 0)  # a filter of one step: of any packet let 0 bytes through

Address: TypeAlias = tuple[str, int]


class Link(Protocol):
    """A connection that the transport knows."""

    @property
    def dst(self) -> str:
        """Where its other end is: ``tls/192.168.1.11:40112``."""


class Door:
    """Stands before a socket of this process that listens, from ``stand`` to ``close``; on Linux.

    It is made before anybody listens: strangers who wait already may leave no descriptor when somebody does.

    Parameters
    ----------
    id
        The node's, for the log.
    endpoint
        Where this process is going to listen: ``tls/192.168.1.10:7447``.
    """

    def __init__(self, id: str, endpoint: str) -> None:
        self._id, self._endpoint = id, endpoint
        self._places = {info[4][:2] for info in socket.getaddrinfo(*_address(endpoint), type=socket.SOCK_STREAM)}
        self._reserve = min(RESERVE, (_limit() - _used()) // 4)
        self._bell = os.eventfd(0)
        self._spare = [os.dup(self._bell) for _ in range(SPARE + self._reserve)]
        self._listener: socket.socket | None = None
        self._shut, self._until, self._throttle = False, 0.0, Throttle(PAUSE, BURST)

    def stand(self, links: Callable[[], Iterable[Link]], neighbors: int) -> None:
        """Begin, now that somebody listens; ``links`` returns all links that stand."""
        for one in _sockets():
            if one.getsockname()[:2] in self._places and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                # In the place of a spare one: there may be no other left.
                number = os.dup2(one.fileno(), self._spare.pop(), inheritable=False)
                self._listener = socket.socket(fileno=number)
                self._listener.listen(BACKLOG)
                if len(list(_connections(self._listener.getsockname()[1]))) > neighbors + SPARE:
                    self._keep_out(self._listener, links)
                while len(self._spare) > SPARE:
                    os.close(self._spare.pop())
                self._thread = threading.Thread(
                    target=self._run, args=(self._listener, links), name="omkl-door", daemon=True
                )
                self._thread.start()
                return
        log.warning("no door before %s: nobody listens there; strangers could take all descriptors", self._endpoint)

    def close(self) -> None:
        """Leave it."""
        if self._listener is not None:
            os.eventfd_write(self._bell, 1)
            self._thread.join()
            self._listener.close()
        for number in (self._bell, *self._spare):
            os.close(number)

    def _run(self, listener: socket.socket, links: Callable[[], Iterable[Link]]) -> None:
        end, come = select.poll(), select.poll()
        for poll in (end, come):
            poll.register(self._bell, select.POLLIN)
        come.register(listener, select.POLLIN)
        while not end.poll(1000 * BREATH):
            if not self._shut:
                come.poll(1000 * LOOK)  # at the limit somebody always waits
            self._look(listener, links)

    def _look(self, listener: socket.socket, links: Callable[[], Iterable[Link]]) -> None:
        limit = _limit()
        if self._lowest_free(limit) >= limit - self._reserve:
            self._keep_out(listener, links)
        elif self._shut and time.monotonic() >= self._until and _used() + SPARE <= limit - 2 * self._reserve:
            self._spare = [os.dup(self._bell) for _ in range(SPARE)]
            listener.setsockopt(socket.SOL_SOCKET, SO_DETACH_FILTER, 0)
            self._shut = False

    def _lowest_free(self, limit: int) -> int:
        """Return the number that the next descriptor gets, which nearly is how many there are, and costs little."""
        try:
            os.close(number := os.dup(self._bell))
        except OSError:
            return limit
        return number

    def _keep_out(self, listener: socket.socket, links: Callable[[], Iterable[Link]]) -> None:
        self._until = time.monotonic() + SHUT
        if not self._shut:
            step = ctypes.create_string_buffer(NOTHING)
            program = struct.pack("HP", 1, ctypes.addressof(step))
            listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
            self._shut = True
            self._say()
        while _turn_away(listener) and self._spare:  # the transport may have taken the last one that was let go of
            os.close(self._spare.pop())
        while self._spare:
            os.close(self._spare.pop())
        # Those who are in and are no links: the transport lets go of them then.
        known = [_address(link.dst) for link in links()]
        for one in _connections(listener.getsockname()[1]):
            with suppress(OSError):
                if one.getpeername()[:2] not in known:
                    one.shutdown(socket.SHUT_RDWR)

    def _say(self) -> None:
        if (unsaid := self._throttle.pass_on("shut", time.monotonic())) is not None:
            extra = {"omkl": {"node": self._id, "event": "strangers", "limit": _limit(), "unsaid": unsaid}}
            text = "strangers have taken nearly all descriptors: nobody is let in until they are gone; links stand"
            log.warning(text, extra=extra)


def before(id: str, endpoint: str | None) -> Door | None:
    """Return a door for where somebody is going to listen; None where there can be none."""
    if not LINUX or endpoint is None:
        return None
    try:
        return Door(id, endpoint)
    except (socket.gaierror, UnicodeError):  # it is no address, which the transport says
        return None
    except OSError as error:
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


def _turn_away(listener: socket.socket) -> bool:
    """End the connections that wait to be taken in, and return whether there may be more."""
    try:
        while True:
            listener.accept()[0].close()
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)


def _connections(port: int) -> Iterator[socket.socket]:
    """Yield the connections to a port of this process, each for a moment only."""
    for one in _sockets():
        with suppress(OSError):
            if one.getsockname()[1] == port and not one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                yield one


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _used() -> int:
    try:
        return len(list(DESCRIPTORS.iterdir()))
    except OSError:  # which takes one itself
        return _limit()


def _sockets() -> Iterator[socket.socket]:
    """Yield the internet sockets of this process, each for a moment, without taking a descriptor: there may be none."""
    try:
        numbers: Iterable[int] = [int(entry.name) for entry in DESCRIPTORS.iterdir()]
    except OSError:
        numbers = range(_limit())
    for number in numbers:
        with suppress(OSError):
            one = socket.socket(fileno=number)
            try:
                if one.family in (socket.AF_INET, socket.AF_INET6):
                    yield one
            finally:
                one.detach()


def _address(endpoint: str) -> Address:
    host, _, port = endpoint.partition("/")[2].partition("?")[0].rpartition(":")
    return host.strip("[]"), int(port)
