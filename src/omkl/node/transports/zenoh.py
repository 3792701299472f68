"""Frames over zenoh: peer to peer, each node linked to its graph neighbors alone.

Keys, under ``omkl/<network>/<id>/``:

    gossip        published by the node: a frame for all its neighbors
    ask/<from>    a queryable: a neighbor's question, answered by what it lacks
    alive         a liveliness token, declared last: a neighbor that sees it can be spoken to

and what the node serves to anyone in reach, see ``omkl.node.services``.

Discovery is off: it would link everyone with everyone. Publishing blocks rather than drops, but not for long: a
neighbor that has not read for a while, and whose buffers are full, is disconnected, and asks for what it missed when it
comes back.

With TLS every connection has the name of its certificate, and says what that name may (see ``rules``); zenoh denies the
rest without a word. ``RUST_LOG=zenoh=debug`` makes it tell, on standard output.
"""

import errno
import json
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import zenoh

from omkl.errors import AddressError, DivergedError, InputError
from omkl.node import certificates, door
from omkl.node.inbox import CLIENTS, largest_frame, largest_sample
from omkl.node.journal import BURST, PAUSE, Throttle
from omkl.node.neighbors import Send
from omkl.node.role import Role
from omkl.node.settings import WORD, Access
from omkl.node.transports import Arrival
from omkl.node.transports.rules import access_control
from omkl.process import shared
from omkl.wire import Kind

LONGEST_PUT = 0.25  # seconds that a neighbor which does not read may hold up the node, once

LEAST_LIMIT = 2**16  # bytes; zenoh drops larger messages uncounted, the node those beyond its own limits, counted
MOST_ANSWER = 2**30
OTHERS = 1.0  # seconds in which other nodes tell who they are
MOST_QUERIES = 64  # that wait for an answer, of each service
SOON = 30  # days before its end in which a certificate is warned of

log = logging.getLogger(__name__)

# One thread for all that zenoh does: a node has few links and short messages, and handing them from thread to thread
# costs a quarter more. Zenoh reads this from the environment, once, when the first session of the process is opened.
RUNTIME = (
    "(rx: (handover: net), tx: (handover: net), acc: (handover: net), app: (handover: net), net: (worker_threads: 1))"
)
_started = threading.Event()

Deliver: TypeAlias = Callable[[Arrival], None]
Drop: TypeAlias = Callable[[str, str], None]
Answer: TypeAlias = Callable[[bytes], "bytes | Future[bytes]"]


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """Where a node listens and to whom it connects, as zenoh writes it: ``tcp/192.168.1.10:7447``."""

    listen: str | None = None
    connect: Sequence[str] = ()
    tls: Mapping[str, str] | None = None
    """Files for mutual TLS: ``ca``, ``certificate``, ``key``."""
    access: Access = Access.open()  # noqa: RUF009 - it is frozen


class ZenohTransport:
    """A session with the neighbors of one node.

    Parameters
    ----------
    role
        Gives the names that make up the keys, and the deadline: a neighbor that froze counts as gone after it.
    endpoints
        Where to listen and to connect; a neighbor that is not there yet is tried again, ever more rarely.
    deliver
        Called with every arrival, from zenoh's threads.
    drop
        Called with ``CLIENTS`` and the reason where a query is dropped.
    """

    def __init__(self, role: Role, endpoints: Endpoints, deliver: Deliver, drop: Drop) -> None:
        self._base, self._id, self._lease = f"omkl/{role.network}", role.id, role.timing.deadline
        self._deliver, self._drop, self._most_sample = deliver, drop, largest_sample(role)
        self._desks: list[Desk] = []
        config = _config(endpoints, self._lease, max(LEAST_LIMIT, largest_frame(role), self._most_sample))
        if endpoints.tls is not None:
            _warn_of_end(certificates.check_own(endpoints.tls, role.id), role.id)
            rules = access_control(role.network, role.id, role.neighbors, endpoints.access)
            config.insert_json5("access_control", json.dumps(rules))
        zenoh.try_init_log_from_env()  # type: ignore[no-untyped-call]
        self._door = door.before(role.id, endpoints.listen)
        try:
            self.session = _open(config)
        except zenoh.ZError as error:
            if self._door:
                self._door.close()
            absent = "lookup" in str(error) or f"(os error {errno.EADDRNOTAVAIL})" in str(error)
            kind, rule = (
                (AddressError, "is it of this device?")
                if absent
                else (
                    InputError,
                    "is the port taken? end what has it, or choose another in every network.toml",
                )
            )
            raise kind(f"{endpoints.listen} cannot be listened on ({_short(error)}); {rule}") from None
        if self._door:
            self._door.stand(self.session.info.links, len(role.neighbors))
        self._publisher = self.session.declare_publisher(
            f"{self._base}/{role.id}/gossip",
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
            express=True,
        )
        self._held: list[Any] = []  # what is declared lasts as long as its object
        if endpoints.tls is not None:
            visitors = Visitors(role, endpoints.access)
            self._held.append(self.session.info.declare_link_events_listener(visitors.note, history=True))
        for peer in role.neighbors:
            self._listen_to(peer)
        self._held.append(self.session.declare_queryable(f"{self._base}/{role.id}/ask/*", self._asked))
        self._held.append(self.session.liveliness().declare_token(f"{self._base}/{role.id}/alive"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, send: Send, query: Any = None) -> None:
        """Send a frame to all neighbors, or ask one, or answer its question; blocks for ``LONGEST_PUT`` at most."""
        try:
            if send.peer is None:
                self._publisher.put(send.data)
            elif send.data[0] & 15 == Kind.ASK:
                self._ask(send.peer, send.data)
            elif query is not None:
                query.reply(query.key_expr, send.data)  # the query ends with its last reference
        except zenoh.ZError as error:  # the neighbor is gone, and will ask when it is back
            log.debug("not sent to %s: %s", send.peer or "neighbors", _short(error))

    def serve(self, name: str, answer: Answer, puts: bool = False) -> None:
        """Answer queries on a key of the node's, and take puts too if asked to.

        The asker is told of an ``InputError``, and after a ``TimeoutError`` or a ``DivergedError`` to ask again.
        """
        key = f"{self._base}/{self._id}/{name}"
        desk = Desk(key, answer, self._most_sample, lambda reason: self._drop(CLIENTS, reason))
        self._desks.append(desk)
        self._held.append(self.session.declare_queryable(key, desk.take))
        if puts:
            self._held.append(self.session.declare_subscriber(key, desk.take))

    def close(self) -> None:
        """End the session: an open one would keep the process from ending."""
        if self._door:
            self._door.close()
        self.session.close()  # type: ignore[no-untyped-call]
        for desk in self._desks:
            desk.close()

    def _listen_to(self, peer: str) -> None:
        def frame(sample: zenoh.Sample) -> None:
            self._deliver(Arrival(peer, sample.payload.to_bytes()))

        def presence(sample: zenoh.Sample) -> None:
            self._deliver(Arrival(peer, came=sample.kind == zenoh.SampleKind.PUT))

        presences = self.session.liveliness()
        self._held.append(self.session.declare_subscriber(f"{self._base}/{peer}/gossip", frame))
        self._held.append(presences.declare_subscriber(f"{self._base}/{peer}/alive", presence, history=True))

    def _asked(self, query: zenoh.Query) -> None:
        peer = str(query.key_expr).rpartition("/")[2]
        if not WORD.fullmatch(peer):
            return  # nobody's id, and not fit for a log
        self._deliver(Arrival(peer, _bytes(query.payload), query))

    def _ask(self, peer: str, data: bytes) -> None:
        def answer(reply: zenoh.Reply) -> None:
            if reply.ok:
                self._deliver(Arrival(peer, reply.ok.payload.to_bytes()))

        key, every = f"{self._base}/{peer}/ask/{self._id}", zenoh.ConsolidationMode.NONE
        self.session.get(key, answer, payload=data, timeout=self._lease, consolidation=every)


class Desk:
    """Answers on one key in a thread of its own; questions that find too many waiting are dropped.

    Zenoh's thread, which brings the frames of neighbors as well, is never kept waiting.
    """

    def __init__(self, key: str, answer: Answer, most_bytes: int, drop: Callable[[str], None]) -> None:
        self._key, self._answer, self._most_bytes, self._drop = key, answer, most_bytes, drop
        self._queue: queue.Queue[zenoh.Query | zenoh.Sample | None] = queue.Queue(MOST_QUERIES)
        self._thread = threading.Thread(target=self._work, name=f"omkl-{key.rpartition('/')[2]}", daemon=True)
        self._thread.start()

    def take(self, question: zenoh.Query | zenoh.Sample) -> None:
        """Take a question; whoever asks in vain is told at once that there is no answer."""
        if question.payload and len(question.payload) > self._most_bytes:
            self._drop("size")
            return
        try:
            self._queue.put_nowait(question)
        except queue.Full:
            self._drop("pending")

    def close(self) -> None:
        """End the thread."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while self._next():
            pass

    def _next(self) -> bool:
        """Answer one, and return whether to go on; a query ends with its last reference, here."""
        question = self._queue.get()
        if question is None:
            return False
        try:
            self._reply(question)
        except Exception as error:  # one that fails must not keep the others from an answer
            log.debug("not answered: %s", _short(error))
        return True

    def _reply(self, question: zenoh.Query | zenoh.Sample) -> None:
        query = question if isinstance(question, zenoh.Query) else None
        try:
            answer = self._answer(_bytes(question.payload))
            if query and isinstance(answer, Future):  # others are answered meanwhile
                answer.add_done_callback(lambda done: query.reply(self._key, done.result()))
            elif query:
                query.reply(self._key, answer)
        except (InputError, TimeoutError) as error:
            if query:
                retry = isinstance(error, TimeoutError | DivergedError)  # no fault of what was asked
                query.reply_err(json.dumps({"error": str(error), "retry": retry}))


class Visitors:
    """Logs whose certificates come that are no neighbor's, and what each may ask for."""

    def __init__(self, role: Role, access: Access) -> None:
        self._role, self._access = role, access
        self._throttle = Throttle(PAUSE, BURST)

    def note(self, event: zenoh.LinkEvent) -> None:
        """Note a connection."""
        name = event.link.auth_identifier or ""
        if name in self._role.neighbors or event.kind != zenoh.SampleKind.PUT:
            return
        services = self._access.services(name)
        level = logging.INFO if services else logging.WARNING
        if (unsaid := self._throttle.pass_on(level, time.monotonic())) is not None:
            may = f"it may ask for {', '.join(services)}" if services else "neither neighbor nor in [access], not heard"
            fields = {"event": "visitor", "name": name, "address": event.link.dst, "unsaid": unsaid}
            extra = {"omkl": {"node": self._role.id} | fields}
            log.log(level, "the certificate of %r connects from %s: %s", name, event.link.dst, may, extra=extra)


class Guest:
    """Asks all nodes of a network again and again, without being one of them: it says nothing by itself.

    Parameters
    ----------
    network
        The network's name.
    endpoints
        Where the nodes listen, in ``connect``, and the files of TLS. One that is not there is tried again and again.
    timeout
        Seconds to wait for an answer.
    """

    def __init__(self, network: str, endpoints: Endpoints, timeout: float) -> None:
        self._base, self._timeout = f"omkl/{network}", timeout
        if endpoints.tls is not None:
            certificates.check(endpoints.tls)
        config = _config(endpoints, timeout, MOST_ANSWER)
        retry = {"period_init_ms": 250, "period_max_ms": 1000, "period_increase_factor": 2}
        config.insert_json5("connect/retry", json.dumps(retry))
        self._session = _open(config)

    def ask(self, ids: Sequence[str], name: str, payload: bytes = b"") -> dict[str, bytes]:
        """Return what the nodes answer on a key, of those that do; all are asked the same at once."""
        base, within = self._base, self._timeout
        asked = {id: self._session.get(f"{base}/{id}/{name}", timeout=within, payload=payload) for id in ids}
        answers = {}
        for id, replies in asked.items():
            for reply in replies:
                if reply.ok:
                    answers[id] = _bytes(reply.ok.payload)
        return answers

    def close(self) -> None:
        """End the session."""
        self._session.close()  # type: ignore[no-untyped-call]


def ask(network: str, id: str, name: str, payload: bytes, endpoints: Endpoints, timeout: float) -> bytes:
    """Return what a node answers on one of its keys, asked from outside of the network.

    Parameters
    ----------
    network, id, name
        Make up the key: ``omkl/<network>/<id>/<name>``.
    payload
        The question.
    endpoints
        Where the node listens, in ``connect``, and the files of TLS.
    timeout
        Seconds to wait for it.
    """
    shown = None if endpoints.tls is None else certificates.check(endpoints.tls).name
    config, began = _config(endpoints, timeout, MOST_ANSWER), time.monotonic()
    config.insert_json5("mode", json.dumps("client"))
    config.insert_json5("connect/exit_on_failure", "true")
    config.insert_json5("connect/timeout_ms", json.dumps(int(1000 * timeout)))
    where = f"{id} at {', '.join(endpoints.connect)}"
    whom = f", and does its [access] let {shown!r} {name}? --as shows another certificate" if shown else "?"
    try:
        with _open(config) as session:
            for reply in session.get(f"omkl/{network}/{id}/{name}", payload=payload, timeout=timeout):
                if reply.ok:
                    return _bytes(reply.ok.payload)
                if (why := _bytes(reply.err and reply.err.payload)) != b"Timeout":  # zenoh's own
                    raise RefusedError(_why(why.decode(errors="replace")))
            waited = time.monotonic() - began
            others = _others(session, network, id)
    except zenoh.ZError:
        (place, *_) = endpoints.connect
        cause = certificates.diagnose(place, id, endpoints.tls, "is it a node of this network, with or without [tls]?")
        raise InputError(f"{where} is not reached in {timeout:g} s: {cause}") from None
    if others:
        raise InputError(f"{where} has not answered; {others} is there; compare name, ids and listen of both files")
    raise InputError(f"{where} has not answered in {waited:.1f} s; is the node running, and of this network{whom}")


class RefusedError(InputError):
    """A node was reached, and did not take the question."""


def _others(session: zenoh.Session, network: str, id: str) -> str:
    """Return which nodes answer that were not asked."""
    replies = session.get("omkl/*/*/status", timeout=OTHERS)
    found = {tuple(str(reply.ok.key_expr).split("/")[1:3]) for reply in replies if reply.ok} - {(network, id)}
    return " and ".join(f"{other} of network {name}" for name, other in sorted(found))


@shared
@contextmanager
def _told() -> Iterator[None]:
    """Put ``RUNTIME`` where zenoh looks for it, unless the user has put something there."""
    chosen = "ZENOH_RUNTIME" in os.environ
    os.environ.setdefault("ZENOH_RUNTIME", RUNTIME)
    try:
        yield
    finally:
        if not chosen:
            del os.environ["ZENOH_RUNTIME"]


def _open(config: zenoh.Config) -> zenoh.Session:
    """Return a session; the first of the process starts zenoh's threads."""
    with nullcontext() if _started.is_set() else _told():
        session = zenoh.open(config)
    _started.set()
    return session


def _why(text: str) -> str:
    """Return what an error says; nodes before 0.2 told it without JSON."""
    return str(json.loads(text)["error"]) if text.startswith('{"error"') else text


def _bytes(payload: zenoh.ZBytes | None) -> bytes:
    return payload.to_bytes() if payload else b""


def _config(endpoints: Endpoints, lease: float, most_bytes: int) -> zenoh.Config:
    config, pause = zenoh.Config(), max(250, min(8000, int(500 * lease)))  # met before its first round is due
    settings = {
        "mode": "peer",
        "listen/endpoints": [endpoints.listen] if endpoints.listen else [],
        "connect/endpoints": list(endpoints.connect),
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "connect/retry": {"period_init_ms": 250, "period_max_ms": pause, "period_increase_factor": 2},
        "listen/exit_on_failure": True,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/shared_memory/enabled": False,  # of no use to short messages; every session keeps descriptors of it
        "transport/link/tx/lease": max(100, int(1000 * lease)),
        "transport/link/rx/max_message_size": most_bytes,  # measured: it holds from 16 MiB on; so there is the filter
        "low_pass_filter": [_filter(most_bytes)],
        "transport/link/tx/queue/congestion_control/block/wait_before_close": int(1e6 * LONGEST_PUT),
    }
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    if endpoints.tls is not None:
        files = endpoints.tls
        tls = {"root_ca_certificate": files["ca"], "enable_mtls": True, "close_link_on_expiration": True}
        tls["verify_name_on_connect"] = False  # names are those of nodes, not of hosts, and rules go by them
        for side in ("listen", "connect"):
            tls |= {f"{side}_certificate": files["certificate"], f"{side}_private_key": files["key"]}
        config.insert_json5("transport/link/tls", json.dumps(tls))
    return config


def _filter(most_bytes: int) -> Mapping[str, Any]:
    messages = ["put", "delete", "query", "reply"]
    return {"id": "size", "flows": ["ingress"], "messages": messages, "key_exprs": ["**"], "size_limit": most_bytes}


def _warn_of_end(certificate: certificates.Certificate, id: str) -> None:
    if (days := certificates.days_left(certificate)) < SOON:
        extra = {"omkl": {"node": id, "event": "certificate", "days": round(days, 1)}}
        log.warning("the certificate ends in %.1f days; neighbors drop it then; make another", days, extra=extra)


def _short(error: Exception) -> str:
    return str(error).partition(" at ")[0].rpartition("[")[2].strip()
