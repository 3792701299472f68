"""A node that runs: one thread reads a queue, drives the protocol, and sends what it says.

Everything that touches the protocol happens in that thread, in the order of the queue: what neighbors send, what the
stream observes, and calls from elsewhere. Only predictions are made where they are asked for:
they see a model between rounds.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, NamedTuple, TypeAlias, TypeVar

from omkl.node.events import Event, Scored
from omkl.node.halves import Floats
from omkl.node.inbox import Inbox, Wake, largest_frame
from omkl.node.neighbors import Send
from omkl.node.protocol import MOST_WAITING, Protocol
from omkl.node.transports import Arrival, Transport
from omkl.scaling import Inputs

T = TypeVar("T")

logger = logging.getLogger(__name__)

TOGETHER = 8  # frames that are taken in before the node goes on: half of what a link keeps for later
LOOK = 1.0  # seconds between two looks whether the thread that is waited for is alive, or observations may be settled

Watch: TypeAlias = Callable[[Event], None]
"""Called with every event, in the node's thread."""

Tap: TypeAlias = Callable[[Any, list[Send]], None]
"""Called in the node's thread with each thing it has done, be it an ``Arrival``, and what was sent for it."""

Done: TypeAlias = Callable[[Scored], None]
"""Called in the node's thread when an observation has been taken: it is acknowledged."""

Refuse: TypeAlias = Callable[[str], None]
"""Called with what is wrong with an observation, in any thread."""

Settle: TypeAlias = Callable[[], bool]
"""Called in the node's thread before observations are acknowledged; returns whether they may be, or must wait."""


class Observation(NamedTuple):
    """A sample, checked."""

    x: Inputs
    y: Floats | None
    done: Done | None = None


class Call(NamedTuple):
    """Something to do in the node's thread, and where its result goes."""

    function: Callable[[], Any]
    result: "Future[Any]"


class Runtime:
    """The thread of a node.

    Attributes
    ----------
    protocol
        Only to be touched in the node's thread: see ``call``.
    inbox
        What waits for the thread.
    """

    def __init__(
        self,
        protocol: Protocol,
        watch: Watch,
        clock: Callable[[], float] = time.monotonic,
        tap: Tap | None = None,
        settle: Settle | None = None,
    ) -> None:
        self.protocol = protocol
        self._watch, self._clock, self._tap, self._settle = watch, clock, tap, settle
        self.inbox = Inbox(protocol.links, largest_frame(protocol.role))
        self._room = Room(MOST_WAITING, len(protocol.waiting))
        self._done: deque[Done | None] = deque([None] * len(protocol.waiting))  # of each that waits, in their order
        self._came = deque([clock()] * len(protocol.waiting))  # when each of these came
        self._scored: deque[Scored] = deque()  # taken, and not acknowledged
        self._finish = Guarded(lambda done, event: done(event))
        self._thread: threading.Thread | None = None
        self._gate, self._closed = threading.Lock(), False
        self._began: float | None = None  # when it took up what it is at; None while it waits
        self._failure: BaseException | None = None

    def carried(self, done: Done) -> None:
        """Call a function with each observation of the checkpoint when it is taken; to be said before the start."""
        self._done = deque([done] * len(self._done))

    def start(self, transport: Transport) -> None:
        """Begin to run."""
        self.inbox.put(Wake())  # the protocol may have something to tell
        self._thread = threading.Thread(target=self._run, args=(transport,), name="omkl-node", daemon=True)
        self._thread.start()

    def observe(self, observation: Observation, timeout: float | None = None) -> bool:
        """Queue a sample, waiting while too many are; return whether there was room in time.

        It is taken, or in the last checkpoint, once this returns ``True``.
        """
        if not self._room.take(timeout):
            return False
        with self._gate:  # nothing may come behind the word that ends the thread
            if self._closed:
                raise RuntimeError("the node leaves, and takes no more observations") from self._failure
            self.inbox.put(observation)
        return True

    def call(self, function: Callable[[], T]) -> T:
        """Return what a function gives in the node's thread, between rounds."""
        self.check()
        result: Future[T] = Future()
        self.inbox.put(Call(function, result))
        while not wait([result], timeout=LOOK).done:
            self.check()
        return result.result()

    def after_all(self, then: Callable[[], None]) -> None:
        """Call a function when all samples at hand are taken; in the node's thread."""
        if not self._done:
            then()
            return
        last = self._done.pop()

        def done(event: Scored) -> None:
            if last is not None:
                last(event)
            then()

        self._done.append(done)

    @property
    def oldest(self) -> float:
        """Return for how many seconds the oldest observation waits, 0 if none does; from any thread."""
        try:
            return self._clock() - self._came[0]
        except IndexError:
            return 0.0

    def stop(self) -> None:
        """End the thread when it is done with what waits for it, and take no more observations."""
        with self._gate:
            self._closed = True
            self.inbox.put(None)
        if self._thread is not None:
            self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def is_at_one_thing(self, seconds: float) -> bool:
        """Return whether the thread has been at the same thing for longer than so many seconds; from any thread."""
        began = self._began
        return began is not None and self._clock() - began > seconds

    def acknowledge(self) -> None:
        """Acknowledge what has been taken; in the node's thread, or when that has ended."""
        while self._scored:
            event = self._scored.popleft()
            self._room.give()
            self._came.popleft()
            if (done := self._done.popleft()) is not None:
                self._finish(done, event)

    def check(self) -> None:
        """Raise what ended the thread, if it has ended."""
        if not self.is_alive:
            raise RuntimeError("the node's thread has ended") from self._failure

    def _run(self, transport: Transport) -> None:
        try:
            while self._turn(transport):
                pass
        except BaseException as failure:
            self._failure = failure
            raise
        finally:
            with self._gate:
                self._closed = True
            self._cancel_calls()

    def _turn(self, transport: Transport) -> bool:
        """Do one thing, with the frames that wait before it, and return whether to go on."""
        heard: list[Arrival] = []
        pause, self._began = self._pause(), None
        item = self.inbox.get(pause)
        self._began = self._clock()
        for _ in range(min(TOGETHER, len(self.inbox))):
            if type(item) is not Arrival or item.data is None or item.query is not None:
                break
            self.protocol.hear(item.peer, item.data, self._clock())
            heard.append(item)
            item = self.inbox.get(0.0)
        if item is None:
            return False
        events = self._do(item, self._clock()) + self.inbox.dropped()
        sends = self.protocol.outgoing()
        for send in sends:
            transport.send(send, item.query if type(item) is Arrival and item.peer == send.peer else None)
        self._acknowledge(events)
        for event in events:
            self._watch(event)
        if self._tap is not None:
            for one in heard:
                self._tap(one, [])
            self._tap(item, sends)
        return True

    def _pause(self) -> float:
        """Return how long to wait for something to do."""
        if len(self.inbox):
            return 0.0
        pause = self.protocol.wake_at() - self._clock()
        return max(0.0, min(pause, LOOK if self._scored else threading.TIMEOUT_MAX))

    def _acknowledge(self, events: list[Event]) -> None:
        self._scored += [event for event in events if type(event) is Scored]
        if self._scored and (self._settle is None or self._settle()):
            self.acknowledge()

    def _do(self, item: Any, now: float) -> list[Event]:
        if type(item) is Arrival:
            if item.data is not None:
                return self.protocol.receive(item.peer, item.data, now)
            return self.protocol.came(item.peer, now) if item.came else self.protocol.gone(item.peer, now)
        if type(item) is Observation:
            self._done.append(item.done)
            self._came.append(now)
            return self.protocol.take(item.x, item.y, now)
        if type(item) is Call:
            _resolve(item.function, item.result)
        return self.protocol.wake(now)

    def _cancel_calls(self) -> None:
        while len(self.inbox):
            if isinstance(item := self.inbox.get(0.0), Call):
                item.result.cancel()


class Room:
    """Places for observations that wait; when all are taken, callers wait until half of them are free.

    To wake a caller for every place would cost the node more than a round.
    """

    def __init__(self, places: int, taken: int = 0) -> None:
        self._places = places
        self._taken, self._given = taken, 0
        self._lock, self._free = threading.Lock(), threading.Event()

    def take(self, timeout: float | None) -> bool:
        """Take a place, waiting for one if need be; return whether there was one in time."""
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            return False
        try:
            if self._taken - self._given >= self._places:
                self._free.clear()
                if 2 * (self._taken - self._given) > self._places and not self._free.wait(timeout):
                    return False
            self._taken += 1
            return True
        finally:
            self._lock.release()

    def give(self) -> None:
        """Free a place; always from the same thread."""
        self._given += 1
        if 2 * (self._taken - self._given) <= self._places and not self._free.is_set():
            self._free.set()


class Guarded:
    """A function whose errors are logged, the first of them, and do not end the node."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function, self._failed = function, False

    def __call__(self, *args: Any) -> None:
        """Call it."""
        try:
            self._function(*args)
        except Exception:
            if not self._failed:
                self._failed = True
                logger.exception("%r failed; the node goes on; this is said once", self._function)


class Each(list[Callable[..., object]]):
    """Functions that are called one after the other."""

    def __call__(self, *args: Any) -> None:
        """Call them all."""
        for one in self:
            one(*args)


def _resolve(function: Callable[[], Any], result: "Future[Any]") -> None:
    try:
        result.set_result(function())
    except Exception as error:
        result.set_exception(error)
