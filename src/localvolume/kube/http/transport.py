"""One HTTP exchange with the API server: credentials, a turn, a deadline, and errors by name.

There is no client-side QPS limit: API servers have API Priority and Fairness for that. We limit
only the requests in flight, and wait for as long as the server asks with Retry-After.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

from localvolume.kube.access.auth import Access
from localvolume.kube.errors import (
    AccessInvalid,
    ApiError,
    TellTheAdministrator,
    TryAgainLater,
    error_for_answer,
    without_credentials,
)
from localvolume.kube.http.beforewrite import BeforeWrite, request_class
from localvolume.kube.http.lean import importing_lean, trim_tls_buffers
from localvolume.kube.http.serverclock import ServerClock
from localvolume.kube.kinds import Kind

_HANG_UP_SECONDS: Final = 2.0


class Sockets:
    """The sockets of one session: give `make` to its connector, and hang up once it is closed."""

    def __init__(self) -> None:
        self._made: Final = weakref.WeakSet[socket.socket]()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket on which the kernel notices a dead peer within 75 s, at no cost to us.

        This catches a server that vanished (a half-open connection). `Client.watch` cuts a
        connection that is alive but silent.
        """
        family, kind, protocol = address[:3]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 75_000)
        self._made.add(made)
        return made

    async def hang_up(self) -> None:
        """Wait until all sockets are closed, and let no server delay that.

        The connection of an abandoned request, or one idle for long, does its TLS shutdown in the
        background, even after the session has been closed: a loop that ends meanwhile leaves the
        socket open.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_HANG_UP_SECONDS):
                while left := [one for one in self._made if one.fileno() >= 0]:
                    for one in left:
                        with suppress(OSError):
                            one.shutdown(socket.SHUT_RDWR)
                    await asyncio.sleep(0.001)


with importing_lean():
    import aiohttp
    from yarl import URL

trim_tls_buffers()

# (verb, kind, seconds, error): verb is get, create, patch, delete, list or watch; for a watch,
# seconds is the time until it was open. Requests cancelled or held back are not reported.
OnRequest = Callable[[str, Kind[Any], float, ApiError | None], None]


class Transport:
    """A session with one API server. `timeout` in seconds, `concurrency` in requests in flight."""

    def __init__(
        self,
        access: Access,
        *,
        user_agent: str,
        timeout: float,
        concurrency: int,
        on_request: OnRequest | None,
        before_write: BeforeWrite | None = None,
    ) -> None:
        self.access: Final = access
        self.on_request = on_request
        self.clock: Final = ServerClock()
        self._request_class: Final = request_class(before_write)
        self._timeout: Final = timeout
        self._slots: Final = asyncio.Semaphore(concurrency)
        # Compression would cost both sides CPU, and us zlib's memory; the network path is short.
        self._headers: Final = {
            "User-Agent": user_agent,
            "Accept": "application/json",
            "Accept-Encoding": "identity",
        }
        self._session: aiohttp.ClientSession | None = None
        self._sockets: Final = Sockets()
        self._closed_until = 0.0

    def open(self) -> None:
        """Call with the event loop running."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, socket_factory=self._sockets.make),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            auto_decompress=False,
            request_class=self._request_class,
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await self._sockets.hang_up()

    async def request(
        self,
        verb: str,
        kind: Kind[Any],
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Return the body of a successful answer. The timeout includes the wait for a turn."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        try:
            async with asyncio.timeout_at(deadline):
                await self._wait_for_leave()
                await self._slots.acquire()
        except TimeoutError as error:
            raise self._too_late() from error
        try:
            with self._reported(verb, kind):
                async with asyncio.timeout_at(deadline):
                    response = await self._send(method, path, body, content_type)
                    try:
                        return await response.read()
                    finally:
                        _drop(response)
        finally:
            self._slots.release()

    @asynccontextmanager
    async def stream(
        self, verb: str, kind: Kind[Any], path: str
    ) -> AsyncIterator[Callable[[float], Any]]:
        """Open a streamed answer; gives an async function that returns the next bytes, or b"" at
        the end. Its argument: after how many seconds of silence it raises TryAgainLater.
        """
        await self._wait_for_leave()
        with self._reported(verb, kind):
            async with asyncio.timeout(self._timeout):
                response = await self._send("GET", path, None, "")

        async def read_some(silence: float) -> bytes:
            try:
                async with asyncio.timeout(silence):
                    return await response.content.readany()
            except TimeoutError as error:
                message = f"the watch was silent for {silence:.0f} s"
                raise TryAgainLater(message, reason="Silent") from error
            except (aiohttp.ClientError, OSError) as error:
                raise _unreachable(error, "the watch was cut") from error

        try:
            yield read_some
        finally:
            _drop(response)

    @contextmanager
    def _reported(self, verb: str, kind: Kind[Any]) -> Iterator[None]:
        """Turn what can go wrong into an ApiError, and report it to `on_request`."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        failure: ApiError | None = None
        try:
            yield
        except ApiError as error:
            failure = error
            if error.after and error.status in (429, 503):
                self._closed_until = max(self._closed_until, loop.time() + error.after)
            raise
        except AccessInvalid as error:
            failure = TellTheAdministrator(str(error), reason="NoCredentials")
            raise failure from error
        except TimeoutError as error:
            failure = self._too_late()
            raise failure from error
        except (aiohttp.ClientError, OSError) as error:
            failure = _unreachable(error, "no connection, or it was cut")
            raise failure from error
        except BaseException:
            # Cancelled, or held back by `before_write`: this says nothing about the server.
            started = -1.0
            raise
        finally:
            if self.on_request is not None and started >= 0:
                self.on_request(verb, kind, loop.time() - started, failure)

    async def _send(
        self, method: str, path: str, body: bytes | None, content_type: str
    ) -> aiohttp.ClientResponse:
        """Send once, and once more if renewed certificates or credentials can help."""
        renewed = False
        while True:
            token = await self.access.token()
            context = self.access.context
            try:
                response = await self._send_once(method, path, body, content_type, token, context)
            except aiohttp.ClientConnectorCertificateError as error:
                if renewed or not self.access.renew_tls(context):
                    message = f"the server's certificate does not verify: {_why_not(error)}"
                    raise TellTheAdministrator(message, reason="Certificate") from error
                renewed = True
                continue
            if response.status < 300:
                return response
            try:
                answer = await response.read()
            finally:
                response.close()
            if response.status == 401 and not renewed and await self.access.renew(token, context):
                renewed = True
                continue
            raise error_for_answer(
                response.status,
                answer,
                retry_after=response.headers.get("Retry-After"),
                json_patch=content_type == "application/json-patch+json",
            )

    async def _send_once(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        token: str,
        context: ssl.SSLContext | None,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the client is not open; use `async with`")
        headers = list(self.access.headers)
        if token:
            headers.append(("Authorization", f"Bearer {token}"))
        if body is not None:
            headers.append(("Content-Type", content_type))
        asked = self.clock.steady()
        response = await self._session.request(
            method,
            URL(f"{self.access.server}{path}", encoded=True),
            data=body,
            headers=headers,
            ssl=context if context is not None else True,
            server_hostname=self.access.server_hostname,
            proxy=self.access.proxy,
            allow_redirects=False,
        )
        self.clock.told(response.headers.get("Date"), asked, self.clock.steady())
        return response

    async def _wait_for_leave(self) -> None:
        """Wait for as long as the server asked us to wait."""
        loop = asyncio.get_running_loop()
        while (wait := self._closed_until - loop.time()) > 0:
            if wait > self._timeout:
                raise TryAgainLater(
                    "the server asked us to wait", status=429, reason="StayAway", after=wait
                )
            # With jitter, so that requests do not all resume at the same moment.
            await asyncio.sleep(wait + random.uniform(0, 0.1))  # noqa: S311 - not a secret

    def _too_late(self) -> TryAgainLater:
        return TryAgainLater(f"no answer within {self._timeout:g} s", reason="Timeout")


def _why_not(error: aiohttp.ClientConnectorCertificateError) -> str:
    why = error.certificate_error
    return why.verify_message if isinstance(why, ssl.SSLCertVerificationError) else str(why)


def _drop(response: aiohttp.ClientResponse) -> None:
    """Release an answer. If it is not complete, cut its connection at once.

    Closing it would wait for the server's TLS shutdown in the background, even after the session
    has been closed, and a loop that ends meanwhile leaves the socket open.
    """
    connection = response.connection
    if connection is not None and connection.protocol is not None:
        connection.protocol.abort()
    response.close()


def _unreachable(error: BaseException, what: str) -> TryAgainLater:
    match error:
        case aiohttp.ClientHttpProxyError():
            return TryAgainLater(f"the proxy answered {error.status}", reason="Proxy")
        case aiohttp.ClientProxyConnectionError():
            return TryAgainLater(f"no connection to the proxy: {error.strerror}", reason="Proxy")
        case aiohttp.ClientConnectorDNSError():
            text = f"no address of {error.host} was found: {error.strerror}"
            return TryAgainLater(text, reason="NoSuchHost")
        case aiohttp.ClientConnectorSSLError():
            return TryAgainLater(f"no TLS connection: {error.strerror}", reason="Tls")
        case aiohttp.ClientConnectorError(os_error=ConnectionRefusedError()):
            return TryAgainLater("the connection was refused", reason="Refused")
        case aiohttp.ClientConnectorError():
            # aiohttp's own message shows the TLS context's address in memory.
            error = error.os_error
    why = without_credentials(str(error)) or type(error).__name__
    return TryAgainLater(f"{what}: {why}", reason="Unreachable")
