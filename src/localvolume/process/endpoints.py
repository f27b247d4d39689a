"""Serves metrics, readiness and liveness over HTTP or HTTPS.

The WSGI server that comes with prometheus_client serves them in threads: it costs an agent 2 MB
less than aiohttp's server, and can still answer when the event loop does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app

from localvolume.config.flags.listening import ListenAddress
from localvolume.process.guard import Guard, Secured
from localvolume.process.server import CLIENT_SECONDS, App, Server, listen

log = logging.getLogger(__name__)

Checks = Callable[[], Mapping[str, str]]
"""Returns what is wrong now, by name; empty if nothing is. Called in the event loop."""

LOOP_SECONDS = 2.0
"""How long the event loop may take to answer a probe before it counts as hung."""


class Endpoints:
    """`/metrics`, `/ready` and `/healthz`; the last two answer 200 or 500.

    Ready means that every configured class is served; live means that the event loop runs and no
    look at the node is stuck. If the loop hangs, the answer is 500. `says` returns the text, for
    people, with which a ready process answers. The event loop may take `loop_seconds` to answer a
    probe, and a client may take `client_seconds` for its request. With a `guard`, all pages are
    served over TLS. The probes need no token: the kubelet has none to send.
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
        guard: Guard | None = None,
    ) -> None:
        self._address = address
        self._loop_seconds = loop_seconds
        self._client_seconds = client_seconds
        self._accept = guard.accept if guard else None
        self._server: Server | None = None
        metrics: App = make_wsgi_app(registry)
        self._pages: dict[str, App] = {
            metrics_path: _guarded(metrics, guard) if guard else metrics,
            "/ready": self._answer(ready, says),
            # Upstream's check has a path of its own, which probes written for upstream use.
            "/ready/DiscovererReadyzCheck": self._answer(ready, says),
            "/healthz": self._answer(healthy),
        }
        self.port = address.port
        """The port in use, once started: the system's choice if 0 was asked for."""

    async def start(self) -> None:
        """Begin to serve. Raises OSError if the address is taken."""
        self._loop = asyncio.get_running_loop()
        # Requests come only after this line.
        self._server = Server(listen(self._address), self._page, self._client_seconds, self._accept)
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

    def _answer(self, checks: Checks, says: Callable[[], str] = lambda: "ok") -> App:
        def page(_environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            wrong = self._ask(checks)
            if not wrong:
                return _text(start, "200 OK", f"{says()}\n")
            lines = [f"{name or 'node'}: {text}\n" for name, text in sorted(wrong.items())]
            return _text(start, "500 Internal Server Error", "".join(lines))

        return page

    def _ask(self, checks: Checks) -> Mapping[str, str]:
        """Have the event loop call `checks`; if it does not get to that, this is what is wrong."""
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
    secured: Secured | None = None,
) -> AsyncIterator[None]:
    """Serve the endpoints within the block; serves nothing if `address` is None.

    Raises OSError if the address is taken or there is no certificate, and AccessInvalid if the API
    server is to be asked but cannot be reached as configured.
    """
    if address is None:
        yield
        return
    async with contextlib.AsyncExitStack() as stack:
        guard = None
        if secured is not None:
            # Imported here: a process that serves everyone need not load it.
            from localvolume.process.secured import guarding

            guard = await stack.enter_async_context(guarding(secured, metrics_path))
        endpoints = Endpoints(
            address, metrics_path, registry, ready=ready, healthy=healthy, says=says, guard=guard
        )
        await endpoints.start()
        stack.push_async_callback(endpoints.close)
        yield


def _guarded(page: App, guard: Guard) -> App:
    def guarded(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        refused = guard.refusal(environ.get("HTTP_AUTHORIZATION", ""))
        if not refused:
            return page(environ, start)
        asks = [("WWW-Authenticate", "Bearer")] if refused.startswith("401") else []
        return _text(start, refused, f"{refused}\n", *asks)

    return guarded


def _text(
    start: Callable[..., Any], status: str, text: str, *headers: tuple[str, str]
) -> Iterable[bytes]:
    body = text.encode("utf-8", "backslashreplace")
    content_type = ("Content-Type", "text/plain; charset=utf-8")
    start(status, [content_type, ("Content-Length", str(len(body))), *headers])
    return [body]
