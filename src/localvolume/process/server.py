"""A small threaded HTTP server that bounds time and memory, whatever its clients do."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client.exposition import ThreadingWSGIServer

from localvolume.config.flags.listening import ListenAddress

log = logging.getLogger(__name__)

CLIENT_SECONDS = 5.0
"""How long a client may take to send its request, and how long to read the answer."""

HEAD_BYTES = 16 * 1024
"""How long a request may be, with its headers. Those of Prometheus and the kubelet have hundreds
of bytes; a bearer token adds a few thousand."""

CLIENTS = 16
"""How many requests may be open. One more cuts off the oldest, so a probe always gets in."""

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Accept = Callable[[socket.socket], socket.socket]


def listen(address: ListenAddress) -> socket.socket:
    """A listening socket; without a host, for both IPv4 and IPv6. Raises OSError, saying what to
    do where the address is taken."""
    try:
        return _listening(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise OSError(
            f"{address} is an address already in use: stop what listens "
            "there, or choose another by --listen-address"
        ) from error


def _listening(address: ListenAddress) -> socket.socket:
    if address.host is None and socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", address.port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=CLIENTS
        )
    host = address.host or "0.0.0.0"  # noqa: S104 - every address is what was asked for
    family = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, address.port), family=family, backlog=CLIENTS)


_TOO_LARGE = b"HTTP/1.0 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n"


class _Handler(WSGIRequestHandler):
    server: Server

    def setup(self) -> None:
        self._until = time.monotonic() + self.server.client_seconds
        if self.server.accept is not None:
            # In the request's own thread, so that a slow handshake holds up no other client.
            self.request = self.server.accept(self.request)
        super().setup()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            if self.server.accept is not None:
                self.request.close()

    def handle(self) -> None:
        """Read the whole request, of a bounded size, before the library parses it.

        The library alone would keep a hundred headers of 64 KiB for each client, and start a new
        timeout for each line.
        """
        head = self._head()
        if head is None:
            return
        self.rfile.close()
        self.rfile = io.BytesIO(head)
        super().handle()

    def _head(self) -> bytes | None:
        """The request up to the empty line; None if the client ends it earlier, or is refused.

        Raises TimeoutError if it takes too long.
        """
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            if len(head) >= HEAD_BYTES:
                self.connection.sendall(_TOO_LARGE)
                return None
            left = self._until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the request did not end in time")
            self.connection.settimeout(left)
            piece = self.connection.recv(HEAD_BYTES - len(head))
            if not piece:
                return None
            head += piece
        self.connection.settimeout(self.server.client_seconds)
        return head

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it has there
        """Log nothing: probes and scrapes are no news."""


class Server(ThreadingWSGIServer):
    """A thread per request, `CLIENTS` open at most; it sleeps between requests without waking up.

    `accept` turns a client's socket into another one by a handshake within the client's timeout;
    the server closes it when the request is done.
    """

    def __init__(
        self,
        listening: socket.socket,
        app: App,
        client_seconds: float,
        accept: Accept | None = None,
    ) -> None:
        host, port = listening.getsockname()[:2]
        super().__init__((host, port), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        # As server_bind does it, without asking DNS for our own name.
        self.server_name, self.server_port = host, port
        self.setup_environ()
        self.set_app(app)
        self.client_seconds = client_seconds
        self.accept = accept
        self._closing = False
        self._open: dict[socket.socket, None] = {}
        self._at_work = 0
        self._lock = threading.Lock()

    def serve(self) -> None:
        while not self._closing:
            self.handle_request()
        self.server_close()

    def close(self) -> None:
        """Make `serve` return. May be called from any thread."""
        self._closing = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a client

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            client, address = self.socket.accept()
        except OSError:
            if not self._closing:
                time.sleep(0.1)  # most likely out of descriptors: avoid a busy loop
            raise
        client.settimeout(self.client_seconds)
        return client, address

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= CLIENTS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread reads EOF, and ends
            self._open[request] = None
            room = self._at_work < 2 * CLIENTS
            self._at_work += room
        if not room:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # the system gives no more threads
            with self._lock:
                self._at_work -= 1
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._at_work -= 1

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request from %s failed", client_address, exc_info=sys.exception())
