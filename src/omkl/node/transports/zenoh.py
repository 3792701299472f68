"""Frames over zenoh: peer to peer, each node linked to its graph neighbors alone.

Keys, under ``omkl/<network>/<id>/``:

    gossip        published by the node: a frame for all its neighbors
    ask/<from>    a queryable: a neighbor's question, answered by what it lacks
    alive         a liveliness token, declared last: a neighbor that sees it can be spoken to

and what the node serves to anyone in reach, see ``omkl.node.services``.

Discovery is off: it would link everyone with everyone. Publishing blocks rather than drops, but not for long: a
neighbor that has not read for a while, and whose buffers are full, is disconnected, and asks for what it missed when it
comes back.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import zenoh

from omkl.errors import InputError
from omkl.node.neighbors import Send
from omkl.node.role import Role
from omkl.node.settings import WORD
from omkl.node.transports import Arrival
from omkl.wire import Kind

LONGEST_PUT = 0.25  # seconds that a neighbor which does not read may hold up the node, once

MOST_MESSAGE = 2**24  # bytes that are taken in as one: a snapshot of four million numbers
MOST_ANSWER = 2**30

log = logging.getLogger(__name__)

# One thread for all that zenoh does: a node has few links and short messages, and handing them from thread to thread
# costs a quarter more. Zenoh reads this once, when the first session of the process is opened.
os.environ.setdefault(
    "ZENOH_RUNTIME",
    "(rx: (handover: net), tx: (handover: net), acc: (handover: net), app: (handover: net), net: (worker_threads: 1))",
)


Deliver: TypeAlias = Callable[[Arrival], None]
Answer: TypeAlias = Callable[[bytes], bytes]


@dataclass(frozen=True, kw_only=True)
class Endpoints:
    """Where a node listens and to whom it connects, as zenoh writes it: ``tcp/192.168.1.10:7447``."""

    listen: str | None = None
    connect: Sequence[str] = ()
    tls: Mapping[str, str] | None = None
    """Files for mutual TLS: ``ca``, ``certificate``, ``key``."""


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
    """

    def __init__(self, role: Role, endpoints: Endpoints, deliver: Deliver) -> None:
        self._base, self._id, self._lease, self._deliver = (
            f"omkl/{role.network}",
            role.id,
            role.timing.deadline,
            deliver,
        )
        try:
            self.session = zenoh.open(_config(endpoints, self._lease, MOST_MESSAGE))
        except zenoh.ZError as error:
            raise InputError(
                f"{endpoints.listen} cannot be listened on ({_short(error)}); is the port taken?"
            ) from None
        self._publisher = self.session.declare_publisher(
            f"{self._base}/{role.id}/gossip",
            congestion_control=zenoh.CongestionControl.BLOCK,
            reliability=zenoh.Reliability.RELIABLE,
            express=True,
        )
        self._held: list[Any] = []  # what is declared lasts as long as its object
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

    def serve(self, name: str, answer: Answer) -> None:
        """Answer queries on a key of the node's, in a thread of zenoh's; an ``InputError`` is the error of a reply."""
        key = f"{self._base}/{self._id}/{name}"

        def reply(query: zenoh.Query) -> None:
            try:
                query.reply(key, answer(_bytes(query.payload)))
            except InputError as error:
                query.reply_err(str(error))

        self._held.append(self.session.declare_queryable(key, reply))

    def subscribe(self, name: str, take: Callable[[bytes], None]) -> None:
        """Take what is put on a key of the node's, in a thread of zenoh's."""
        key = f"{self._base}/{self._id}/{name}"
        self._held.append(self.session.declare_subscriber(key, lambda sample: take(_bytes(sample.payload))))

    def close(self) -> None:
        """End the session: an open one would keep the process from ending."""
        self.session.close()  # type: ignore[no-untyped-call]

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
    config = _config(endpoints, timeout, MOST_ANSWER)
    config.insert_json5("mode", json.dumps("client"))
    config.insert_json5("connect/exit_on_failure", "true")
    config.insert_json5("connect/timeout_ms", json.dumps(int(1000 * timeout)))
    where = f"{id} at {', '.join(endpoints.connect)}"
    try:
        with zenoh.open(config) as session:
            for reply in session.get(f"omkl/{network}/{id}/{name}", payload=payload, timeout=timeout):
                if reply.ok:
                    return _bytes(reply.ok.payload)
                raise InputError(_bytes(reply.err and reply.err.payload).decode(errors="replace"))
    except zenoh.ZError:
        raise InputError(f"{where} is not reached in {timeout:g} s; is the node running?") from None
    raise InputError(f"{where} has not answered in {timeout:g} s; is the node running, and of this network?")


def _bytes(payload: zenoh.ZBytes | None) -> bytes:
    return payload.to_bytes() if payload else b""


def _config(endpoints: Endpoints, lease: float, most_bytes: int) -> zenoh.Config:
    config = zenoh.Config()
    settings = {
        "mode": "peer",
        "listen/endpoints": [endpoints.listen] if endpoints.listen else [],
        "connect/endpoints": list(endpoints.connect),
        "connect/timeout_ms": -1,
        "connect/exit_on_failure": False,
        "connect/retry": {"period_init_ms": 250, "period_max_ms": 8000, "period_increase_factor": 2},
        "listen/exit_on_failure": True,
        "scouting/multicast/enabled": False,
        "scouting/gossip/enabled": False,
        "transport/shared_memory/enabled": False,  # of no use to short messages; every session keeps descriptors of it
        "transport/link/tx/lease": max(100, int(1000 * lease)),
        "transport/link/rx/max_message_size": most_bytes,
        "transport/link/tx/queue/congestion_control/block/wait_before_close": int(1e6 * LONGEST_PUT),
    }
    for key, value in settings.items():
        config.insert_json5(key, json.dumps(value))
    if endpoints.tls is not None:
        files = endpoints.tls
        tls = {"root_ca_certificate": files["ca"], "enable_mtls": True, "verify_name_on_connect": False}
        for side in ("listen", "connect"):
            tls |= {f"{side}_certificate": files["certificate"], f"{side}_private_key": files["key"]}
        config.insert_json5("transport/link/tls", json.dumps(tls))
    return config


def _short(error: Exception) -> str:
    return str(error).partition(" at ")[0].rpartition("[")[2].strip()
