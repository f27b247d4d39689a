"""A check at the last moment before a write: may it still be sent?"""

from __future__ import annotations

from collections.abc import Callable

from localvolume.kube.http.lean import importing_lean

with importing_lean():
    from aiohttp import ClientRequest, ClientResponse
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.connector import Connection

# Called right before a write goes on the wire; what it raises reaches the caller unchanged.
BeforeWrite = Callable[[], None]


def request_class(before_write: BeforeWrite | None) -> type[ClientRequest]:
    """A class of requests that ask once they have a connection: getting one may take a while."""
    if before_write is None:
        return ClientRequest

    ask = before_write

    class Asking(ClientRequest):
        async def send(self, conn: Connection) -> ClientResponse:
            if self.method != "GET" and not self.body:
                ask()
            return await super().send(conn)

        async def write_bytes(
            self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
        ) -> None:
            # With a body, this sends the head too. Before Python 3.12 it runs as a separate task,
            # one turn of the event loop after `send`. If we asked there, a process that is stopped
            # in between could send a write whose check is long out of date.
            try:
                ask()
            except Exception as error:  # noqa: BLE001 - it comes to whoever waits for the answer
                if conn.protocol is not None:
                    conn.protocol.set_exception(error)
                conn.close()
                return
            await super().write_bytes(writer, conn, content_length)

    return Asking
