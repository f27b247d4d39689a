"""What the node's monitoring asks: metrics, readiness, liveness, over HTTP.

Served in threads by the WSGI server that comes with prometheus_client: that costs an agent 2 MB
less than aiohttp's server, and it can still answer when the loop does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from localvolume.config.environment import ListenAddress

log = logging.getLogger(__name__)

Checks = Callable[[], Mapping[str, str]]
"""What is wrong now, by name; empty where nothing is. Called in the event loop."""

LOOP_SECONDS = 2.0
"""How long the event loop may take to answer a probe before it is held to hang."""

CLIENT_SECONDS = 5.0
"""How long a client may take to send its request, and how long to read the answer."""

HEAD_BYTES = 16 * 1024
"""How long a request may be, with its headers: those of Prometheus and the kubelet have hundreds
of bytes, and a token in one some thousands."""

CLIENTS = 16
"""How many requests may be open; the oldest is cut for one more, so a probe always gets in."""

_App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Endpoints:
    """`/metrics`, `/ready` and `/healthz`; the last two answer 200 or 500.

    Readiness says that every configured class is served; liveness that the loop turns and no look
    at the node is stuck. A loop that hangs is answered for with 500. `says` is the text for people
    with which a process that is ready answers. The event loop may take `loop_seconds` to answer a
    probe, and a client may take `client_seconds` for its request.
    """

    def __init__(
        self,
        address: ListenAddress,
        metrics_path: str,
        registry: CollectorRegistry,
        *,
        ready: Checks,
        healthy: Checks,
        says: Callable[[], str] = lambda: "ok",
        loop_seconds: float = LOOP_SECONDS,
        client_seconds: float = CLIENT_SECONDS,
    ) -> None:
        self._address = address
        self._loop_seconds = loop_seconds
        self._client_seconds = client_seconds
        self._server: _Server | None = None
        self._pages: dict[str, _App] = {
            metrics_path: make_wsgi_app(registry),
            "/ready": self._answer(ready, says),
            # Upstream's check has an address of its own; so have probes written for it.
            "/ready/DiscovererReadyzCheck": self._answer(ready, says),
            "/healthz": self._answer(healthy),
        }
        self.port = address.port
        """The port in use, once started: what the system chose where 0 was asked for."""

    async def start(self) -> None:
        """Raises OSError where the address is taken."""
        self._loop = asyncio.get_running_loop()
        # Requests come after this line only.
        self._server = _Server(_listen(self._address), self._page, self._client_seconds)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve, name="endpoints", daemon=True).start()
        log.info("metrics and health are served on port %d", self.port)

    async def close(self) -> None:
        """Stop answering; requests under way are left to end by themselves."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def _page(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        page = self._pages.get(environ["PATH_INFO"])
        if page is None:
            return _text(start, "404 Not Found", "there is no such page\n")
        return page(environ, start)

    def _answer(self, checks: Checks, says: Callable[[], str] = lambda: "ok") -> _App:
        def page(_environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            wrong = self._ask(checks)
            if not wrong:
                return _text(start, "200 OK", f"{says()}\n")
            lines = [f"{name or 'node'}: {text}\n" for name, text in sorted(wrong.items())]
            return _text(start, "500 Internal Server Error", "".join(lines))

        return page

    def _ask(self, checks: Checks) -> Mapping[str, str]:
        """Have the event loop call it; that it does not get to it is what is wrong, then."""
        answer: Future[Mapping[str, str]] = Future()

        def ask() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(checks())
                except BaseException as error:  # noqa: BLE001 - raised where it was asked for
                    answer.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(ask)
        except RuntimeError as error:
            return {"loop": f"the process is ending: {error}"}
        try:
            return answer.result(self._loop_seconds)
        except TimeoutError:
            answer.cancel()
            return {"loop": f"the event loop has not answered for {self._loop_seconds:g} s"}


@contextlib.asynccontextmanager
async def serving(
    address: ListenAddress | None,
    metrics_path: str,
    registry: CollectorRegistry,
    *,
    ready: Checks,
    healthy: Checks,
    says: Callable[[], str] = lambda: "ok",
) -> AsyncIterator[None]:
    """Serve the endpoints within the block; nothing is served where `address` is None.

    Raises OSError where the address is taken.
    """
    if address is None:
        yield
        return
    endpoints = Endpoints(address, metrics_path, registry, ready=ready, healthy=healthy, says=says)
    await endpoints.start()
    try:
        yield
    finally:
        await endpoints.close()


def _text(start: Callable[..., Any], status: str, text: str) -> Iterable[bytes]:
    body = text.encode("utf-8", "backslashreplace")
    content_type = ("Content-Type", "text/plain; charset=utf-8")
    start(status, [content_type, ("Content-Length", str(len(body)))])
    return [body]


def _listen(address: ListenAddress) -> socket.socket:
    """A listening socket; without a host for IPv4 and IPv6 alike. Raises OSError."""
    if address.host is None and socket.has_dualstack_ipv6():
        return socket.create_server(
            ("", address.port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=CLIENTS
        )
    host = address.host or "0.0.0.0"  # noqa: S104 - every address is what was asked for
    family = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, address.port), family=family, backlog=CLIENTS)


_TOO_LARGE = b"HTTP/1.0 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n"


class _Handler(WSGIRequestHandler):
    server: _Server

    def handle(self) -> None:
        """What the library parses is what has been read whole, of a bounded size.

        By itself it would keep a hundred headers of 64 KiB for each client, and wait anew for each
        line of them.
        """
        head = self._head()
        if head is None:
            return
        self.rfile.close()
        self.rfile = io.BytesIO(head)
        super().handle()

    def _head(self) -> bytes | None:
        """The request up to the empty line; None where the client ends it before, or is refused.

        Raises TimeoutError where it takes too long.
        """
        until = time.monotonic() + self.server.client_seconds
        head = b""
        while b"\r\n\r\n" not in head and b"\n\n" not in head:
            if len(head) >= HEAD_BYTES:
                self.connection.sendall(_TOO_LARGE)
                return None
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError("the request did not come to its end in time")
            self.connection.settimeout(left)
            piece = self.connection.recv(HEAD_BYTES - len(head))
            if not piece:
                return None
            head += piece
        self.connection.settimeout(self.server.client_seconds)
        return head

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it has there
        """Probes and scrapes are no news."""


class _Server(ThreadingWSGIServer):
    """A thread per request, `CLIENTS` at most; between requests it sleeps without waking up."""

    def __init__(self, listening: socket.socket, app: _App, client_seconds: float) -> None:
        host, port = listening.getsockname()[:2]
        super().__init__((host, port), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        # What server_bind would do, but for asking DNS for our own name.
        self.server_name, self.server_port = host, port
        self.setup_environ()
        self.set_app(app)
        self.client_seconds = client_seconds
        self._closing = False
        self._open: dict[socket.socket, None] = {}
        self._at_work = 0
        self._lock = threading.Lock()

    def serve(self) -> None:
        while not self._closing:
            self.handle_request()
        self.server_close()

    def close(self) -> None:
        """From any thread: `serve` returns."""
        self._closing = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a client

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            client, address = self.socket.accept()
        except OSError:
            if not self._closing:
                time.sleep(0.1)  # out of descriptors, most likely: not in a circle
            raise
        client.settimeout(self.client_seconds)
        return client, address

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= CLIENTS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread reads an end, and ends
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
