"""The daemon's end of the unix socket: HTTP as elastic's client speaks it, for root only.

There is one request for each connection, of bounded size and time; the standard library's streams
suffice. The kernel says who connects (SO_PEERCRED), whatever the file's mode allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, NoReturn

from localvolume.flexvolume.protocol import BadCall
from localvolume.host.unixsockets import ANSWERED, bound, in_the_way, inode_at

log = logging.getLogger(__name__)

MOST_BYTES: Final = 1 << 20
"""The longest body of a request."""

READ_SECONDS: Final = 10.0
"""How long a client may take to say what it wants, and to take the answer."""

WAIT_SECONDS: Final = 0.5
"""How often a socket that another process serves is looked at."""

_HEAD_BYTES: Final = 16 << 10
_TEXT: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
_PEER: Final = struct.Struct("3i")  # pid, uid, gid: struct ucred, unix(7)

Route = Callable[[bytes], Awaitable[bytes]]
"""Takes a body and returns one of JSON. What it raises is answered as text, with status 500."""


class Failed(Exception):
    """An answer as plain text with status 500: the call was not even a FlexVolume call, or the API
    server did not do its part."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    type: str = _TEXT
    allow: str = ""

    def encode(self) -> bytes:
        """As it goes over the wire; elastic's answers end with a newline, too."""
        body = self.body.rstrip(b"\n") + b"\n"
        lines = [
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}",
            f"Content-Type: {self.type}",
            f"Content-Length: {len(body)}",
            "X-Content-Type-Options: nosniff",
            *([f"Allow: {self.allow}"] if self.allow else []),
            "Connection: close",
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.answer = Answer(status, text.encode())


@dataclass(eq=False)
class Server:
    """`routes` by path, each with its method. `serving` is set while the socket is ours.

    A client may take `read_seconds` to say what it wants, and to take the answer.
    """

    path: str
    routes: Mapping[str, tuple[str, Route]]
    read_seconds: float = READ_SECONDS

    def __post_init__(self) -> None:
        self._talks: set[asyncio.Task[None]] = set()
        self.serving = asyncio.Event()
        self.problem = ""
        """Why the socket cannot be served now; it is no problem if another process serves it."""

    async def run(self) -> NoReturn:
        """Serve until cancelled; calls under way are then waited for.

        While another process serves the socket, this one waits; it takes over when that ends.
        """
        async with self._turn():
            listening = await self._listen()
            inode = inode_at(self.path)
            server = await asyncio.start_unix_server(
                self._connected, sock=listening, limit=_HEAD_BYTES, start_serving=False
            )
            try:
                # Only here: one that is cancelled as it begins, and never closed, would answer on,
                # and keep us waiting as another process does.
                await server.start_serving()
                self.serving.set()
                log.info("serving FlexVolume at %s", self.path)
                await asyncio.Event().wait()
            finally:
                self.serving.clear()
                server.close()
                with contextlib.suppress(OSError):
                    if inode_at(self.path) == inode:
                        os.unlink(self.path)
                # Who was let in just now is known to us after one turn of the loop.
                await asyncio.sleep(0)
                if self._talks:
                    await asyncio.wait(self._talks)
        raise AssertionError("it waits for ever")

    # --- the socket ----------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """The lock that says which process of this node serves the socket."""
        said = ""
        while True:
            try:
                os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                lock = os.open(f"{self.path}.lock", flags, 0o600)
            except OSError as error:
                self.problem = f"the socket {self.path} cannot be made: {error}"
                said = await self._wait(said, self.problem)
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                said = await self._wait(said, f"another agent serves {self.path}")
                continue
            except OSError:
                os.close(lock)
                raise
            break
        self.problem = ""
        try:
            yield
        finally:
            os.close(lock)

    async def _listen(self) -> socket.socket:
        """Returns a listening socket at the path; waits while something is `in_the_way`."""
        said = ""
        while True:
            try:
                reason = in_the_way(self.path)
                if not reason:
                    listening = bound(self.path)
                    self.problem = ""
                    return listening
                # elastic's daemon does not know our lock: wait until it ends.
                answers = reason == ANSWERED
                self.problem = "" if answers else f"{self.path} {reason}"
                said = await self._wait(said, f"{self.path} {reason}")
            except OSError as error:
                self.problem = f"the socket {self.path} cannot be made: {error}"
                said = await self._wait(said, self.problem)

    @staticmethod
    async def _wait(said: str, text: str) -> str:
        if text != said:
            log.warning("%s: waiting", text)
        await asyncio.sleep(WAIT_SECONDS)
        return text

    # --- one connection ------------------------------------------------------------------------

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """No coroutine: that would begin later, and whoever ends the server must know of it."""
        task = asyncio.get_running_loop().create_task(self._talk(reader, writer))
        self._talks.add(task)
        task.add_done_callback(self._talks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._answer(reader, writer)
            if answer is not None:
                writer.write(answer.encode())
                async with asyncio.timeout(self.read_seconds):
                    await writer.drain()
        except (OSError, TimeoutError):
            log.debug("a client of %s went away", self.path)
        finally:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(self.read_seconds):
                    await writer.wait_closed()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Answer | None:
        """Returns None if the client said nothing: it only checked whether we are here."""
        try:
            uid = _uid_of(writer)
            async with asyncio.timeout(self.read_seconds):
                asked = await _request(reader)
            if asked is None:
                return None
            if uid != 0:
                # No earlier: a connection that is closed with something unread loses the answer.
                return Answer(403, f"only root may ask, not the user {uid}".encode())
            method, path, body = asked
            if path not in self.routes:
                return Answer(404, b"404 page not found")
            allowed, route = self.routes[path]
            if method != allowed:
                return Answer(405, f"{path} is for {allowed}".encode(), allow=allowed)
            return Answer(200, await route(body), _JSON)
        except _Refused as refused:
            return refused.answer
        except TimeoutError:
            return Answer(408, b"the request did not come in time")
        except (BadCall, Failed) as error:
            return Answer(500, str(error).encode())
        except Exception:  # a mistake of ours about one call must not end what serves all others
            log.exception("a call of FlexVolume failed: unexpected")
            return Answer(500, b"unexpected: see the agent's log")


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, bytes] | None:
    """Method, path and body. Raises _Refused."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as short:
        if not short.partial:
            return None
        raise _Refused(400, "the request is cut short") from None
    except asyncio.LimitOverrunError:
        raise _Refused(400, "the head of the request is too long") from None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise _Refused(400, "this is no request of HTTP/1")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not name or name != name.strip() or name in headers:
            raise _Refused(400, "a header is malformed or given twice")
        headers[name] = value.strip()
    if "transfer-encoding" in headers:
        raise _Refused(411, "the body needs a Content-Length")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit() and len(length) < 10):
        raise _Refused(400, "Content-Length is no number")
    if int(length) > MOST_BYTES:
        raise _Refused(413, f"a body may have {MOST_BYTES} bytes")
    try:
        body = await reader.readexactly(int(length))
    except asyncio.IncompleteReadError:
        raise _Refused(400, "the request is cut short") from None
    return words[0], words[1].partition("?")[0], body


def _uid_of(writer: asyncio.StreamWriter) -> int:
    peer: socket.socket = writer.get_extra_info("socket")
    found = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    uid: int = _PEER.unpack(found)[1]
    return uid
