"""A small HTTP server for a few pages: metrics and health."""

import errno
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple, Self, TypeAlias

from omkl.errors import AddressError, InputError

MOST_REQUESTS = 8  # at a time; more are turned away, so that they cannot starve the node
TIMEOUT = 5.0  # seconds that a client may take in all


class Page(NamedTuple):
    """What is answered."""

    status: int
    kind: str
    body: bytes


Pages: TypeAlias = Mapping[str, Callable[[], Page]]


class Server(socketserver.ThreadingTCPServer):
    """Serves pages by path, in threads of its own, from ``start`` to ``close``.

    Parameters
    ----------
    address
        Where to listen: ``"127.0.0.1:17447"``.
    pages
        What each path gives.
    """

    daemon_threads = allow_reuse_address = True

    def __init__(self, address: str, pages: Pages) -> None:
        host, _, port = address.rpartition(":")
        self.pages, self._room = pages, threading.BoundedSemaphore(MOST_REQUESTS)
        self._since: dict[socket.socket, float] = {}  # when each client came
        self.address_family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        try:
            super().__init__((host.strip("[]"), int(port)), _Handler)
        except OSError as error:
            absent = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
            kind, rule = (AddressError, "is it of this device?") if absent else (InputError, "is the port taken?")
            told = f"metrics: {address} cannot be listened on ({error.strerror or error}); {rule}"
            raise kind(f"{told} choose another in the network's file, or by --metrics") from None

    def start(self) -> Self:
        """Begin to serve."""
        threading.Thread(target=self.serve_forever, name="omkl-web", daemon=True).start()
        return self

    def close(self) -> None:
        """Serve no more."""
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, or not at all if too many do."""
        if self._room.acquire(blocking=False):
            self._since[request] = time.monotonic()
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            del self._since[request]
            self._room.release()

    def service_actions(self) -> None:
        """Hang up on clients that take too long, be it byte by byte; called twice a second."""
        late = time.monotonic() - TIMEOUT
        for client in [client for client, since in list(self._since.items()) if since < late]:
            with suppress(OSError):  # it may have gone
                client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: Any) -> None:
        """Say nothing of clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        make = self.server.pages.get(self.path.partition("?")[0])
        page = make() if make else Page(404, "text/plain", f"known: {', '.join(self.server.pages)}\n".encode())
        self.send_response(page.status)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        self.wfile.write(page.body)

    def log_message(self, *_: Any) -> None:
        """Keep requests out of the log."""
