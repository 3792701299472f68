"""Certificates, looked at before zenoh uses them: it tells nobody why a handshake failed.

A node checks its own files when it starts, by a handshake with itself. One that does not reach a neighbor tries a
handshake of its own there, and says what came of it.
"""

import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from omkl.errors import ClockError, InputError

Files = Mapping[str, str]
"""``ca``, ``certificate`` and ``key``."""

PATIENCE = 2.0  # seconds for a connection and its handshake
LATE = 0.5  # seconds in which a refusal of our certificate comes: with TLS 1.3, after the handshake
MOST_STEPS = 8  # a handshake takes three from each side

NOT_YET = 9  # X509_V_ERR_CERT_NOT_YET_VALID
STRANGE = ("unable to get local issuer certificate", "self-signed certificate", "certificate signature failure")


class Certificate(NamedTuple):
    """What a certificate says."""

    name: str
    expires: float
    """Seconds since 1970."""


def check(files: Files) -> Certificate:
    """Return what the certificate says; refuse files that no neighbor would accept."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        client = _context(files, ssl.PROTOCOL_TLS_CLIENT).wrap_bio(to_client, to_server)
        server = _context(files, ssl.PROTOCOL_TLS_SERVER).wrap_bio(to_server, to_client, server_side=True)
        for _ in range(MOST_STEPS):
            for side in (client, server):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLError as error:
        if getattr(error, "verify_code", None) == NOT_YET:  # as where a device without a battery has no time yet
            now = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
            raise ClockError(f"{files['certificate']}: not valid yet at {now}; compare this device's clock") from None
        raise InputError(
            f"{files['certificate']}: {_own_fault(error)}; neighbors would refuse it; make another: omkl node "
            "certificates"
        ) from None
    return _read(client.getpeercert())


def check_own(files: Files, id: str) -> Certificate:
    """Return what a node's certificate says; refuse another node's."""
    found = check(files)
    if found.name != id:
        raise InputError(
            f"{files['certificate']}: the certificate of {found.name!r}; {id} needs one with the common name {id}; "
            "copy it here"
        )
    return found


ANSWERS = "its port answers"
NEIGHBOR = "is it a node of this network, with this one among its neighbors?"


def diagnose(endpoint: str, peer: str, files: Files | None, rest: str = NEIGHBOR) -> str:
    """Return why a node is not reached at an endpoint, as ``tls/192.168.1.10:7447``, as far as can be found out.

    ``rest`` is asked where its port answers as it should.
    """
    host, _, port = endpoint.partition("/")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PATIENCE) as connection:
            name = None if files is None else _greet(connection, files)
    except ConnectionRefusedError:
        return "nobody listens there; is it running, or does its own file say another port?"
    except ssl.SSLError as error:
        return _fault(error)
    except TimeoutError:
        return "no answer from there; is the device on, is a firewall between, does it speak TLS?"
    except OSError as error:
        return f"{error.strerror or error}; is the address right?"
    if name not in (None, peer):
        return f"the certificate there is that of {name!r}, so nothing it says is heard; is the address right?"
    return f"{ANSWERS}; {rest}"


def _greet(connection: socket.socket, files: Files) -> str:
    """Return the name that is proved on a connection, once the other end has had time to refuse ours."""
    with _context(files, ssl.PROTOCOL_TLS_CLIENT).wrap_socket(connection) as secured:
        secured.settimeout(LATE)
        with suppress(TimeoutError):  # it waits for us to speak: no refusal
            secured.recv(1)
        return _read(secured.getpeercert()).name


def _context(files: Files, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname, context.verify_mode = False, ssl.CERT_REQUIRED
    context.load_verify_locations(files["ca"])
    context.load_cert_chain(files["certificate"], files["key"])
    return context


def _read(fields: Mapping[str, Any] | None) -> Certificate:
    assert fields
    names = [value for part in fields["subject"] for key, value in part if key == "commonName"]
    return Certificate(names[0] if names else "", ssl.cert_time_to_seconds(fields["notAfter"]))


def _own_fault(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key beside it is another's"
    message = getattr(error, "verify_message", None)
    if message in STRANGE:
        return "it is not of this authority (tls.ca)"
    return message or f"no certificate and key that can be read ({error.reason or error})"


def _fault(error: ssl.SSLError) -> str:
    reason, message = error.reason or str(error), getattr(error, "verify_message", None)
    if message in STRANGE:
        return "its certificate is not of this node's authority; compare tls.ca on both"
    if message:
        return f"its certificate is refused here: {message}; make it another, and compare the clocks"
    if "ALERT" in reason:
        told = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return f"it refuses this node's certificate ({told}); compare tls.ca, the dates and the clocks on both"
    return f"no TLS is spoken there ({reason.replace('_', ' ').lower()}); compare listen and [tls] on both"


def days_left(certificate: Certificate) -> float:
    """Return how long it will be accepted."""
    return (certificate.expires - time.time()) / 86400
