"""The sockets of an HTTP session, so that none outlives it."""

from __future__ import annotations

import asyncio
import socket
import weakref
from contextlib import suppress
from typing import Any, Final

_HANG_UP_SECONDS: Final = 2.0


class Sockets:
    """For one session: give `make` to its connector, and hang up once it is closed."""

    def __init__(self) -> None:
        self._made: Final = weakref.WeakSet[socket.socket]()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket on which the kernel notices a dead peer within 75 s, at no cost to us.

        That is for a server that vanished without a word (a half-open connection); what keeps the
        connection but says nothing is cut by `watch`.
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
        """Wait until all are closed, and let no server delay it.

        A request that was given up, and a connection that was idle for long, say TLS's goodbye in
        the background, after the session has been closed as well: a loop that ends meanwhile
        leaves the socket open.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_HANG_UP_SECONDS):
                while left := [one for one in self._made if one.fileno() >= 0]:
                    for one in left:
                        with suppress(OSError):
                            one.shutdown(socket.SHUT_RDWR)
                    await asyncio.sleep(0.001)
