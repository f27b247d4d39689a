"""Serves the page on loopback, to whoever has the token, and to nobody else.

Other users of the machine and pages of other sites reach loopback too. So every request needs the
token, or the cookie that it was exchanged for, and names this very address as its host. The cookie
is for a path that nobody can guess: other servers of this machine, on other ports, do not get it.
"""

from __future__ import annotations

import errno
import hmac
import json
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from localvolume.cli.seeing.page.document import document, policy
from localvolume.cli.seeing.page.pictures import Pictures

ADDRESS: Final = "127.0.0.1"
_COOKIE: Final = "localvolume-ui"
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"{policy(live=True)}; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class PageServer:
    """`await start(port)`, then `url`; `await stop()` at the end. Port 0 takes a free one."""

    def __init__(self, pictures: Pictures, every: float) -> None:
        self._pictures = pictures
        self._every = every
        self._token = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)
        self._place = f"/{secrets.token_urlsafe(16)}/"
        self._port = 0

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guarded(request, handler)

        app = web.Application(middlewares=[guarded])
        app.add_routes(
            [
                web.get("/", self._enter),
                web.get(self._place, self._page),
                web.get(f"{self._place}data", self._data),
                web.get(f"{self._place}why", self._why),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, logger=_logger(), shutdown_timeout=0.5)

    @property
    def url(self) -> str:
        """Where somebody who is handed the token sees the page."""
        return f"http://{ADDRESS}:{self._port}/?token={self._token}"

    async def start(self, port: int) -> None:
        """Raises OSError if the port is not to be had, saying what to do if it is taken."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, ADDRESS, port).start()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise OSError(
                f"{ADDRESS}:{port} is an address already in use: stop what listens there, choose "
                "another by --port, or leave that out for a free one"
            ) from error
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Lets a request through that may see the page; every answer has the headers."""
        answer: web.StreamResponse
        if request.method != "GET":
            answer = web.Response(status=405, headers={"Allow": "GET"}, text="It is only read.\n")
        elif request.host not in (f"{ADDRESS}:{self._port}", f"localhost:{self._port}"):
            text = f"This is {ADDRESS}:{self._port}: ask for it by that name, and no other.\n"
            answer = web.Response(status=403, text=text)
        elif not self._may_see(request):
            text = "Open the address that localvolume ui printed: it has the token.\n"
            answer = web.Response(status=403, text=text)
        else:
            try:
                answer = await handler(request)
            except web.HTTPException as error:
                answer = web.Response(status=error.status, headers=error.headers, text=error.text)
        answer.headers.update(_HEADERS)
        return answer

    def _may_see(self, request: web.Request) -> bool:
        if request.path == "/":
            return _same(request.query.get("token", ""), self._token)
        return _same(request.cookies.get(_COOKIE, ""), self._session)

    async def _enter(self, _request: web.Request) -> web.StreamResponse:
        """Exchanges the token for the cookie, so that it does not stay in the address.

        Not SameSite=Strict: a browser would not send it on this redirect where the address was
        clicked in a page, as in a terminal within a browser.
        """
        answer = web.Response(status=303, headers={"Location": self._place})
        answer.set_cookie(_COOKIE, self._session, path=self._place, httponly=True, samesite="Lax")
        return answer

    async def _page(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(text=document(None, every=self._every), content_type="text/html")

    async def _data(self, request: web.Request) -> web.StreamResponse:
        found = await self._pictures.current()
        return web.json_response(text=json.dumps(found.answer(request.query.get("have", ""))))

    async def _why(self, request: web.Request) -> web.StreamResponse:
        why = await self._pictures.explained(request.query.get("about", ""))
        if why is None:
            return web.Response(status=404, text="There is no such volume or claim any more.")
        return web.json_response(text=json.dumps(why))


def _logger() -> logging.Logger:
    """Without what is no HTTP: anybody on this machine could fill our terminal by it."""
    found = logging.getLogger(__name__)

    def is_ours(record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))

    found.addFilter(is_ours)
    return found


def _same(given: str, secret: str) -> bool:
    """Compares in constant time, whatever characters are given."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), secret.encode())
