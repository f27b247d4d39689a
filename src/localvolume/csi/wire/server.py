"""A gRPC server on a unix socket, with every RPC of CSI 1.13 and of the kubelet's registration.

One without a handler is UNIMPLEMENTED. grpclib itself would answer it without a content type, which
grpc-go takes for UNKNOWN, and callers take that to be final.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from weakref import WeakSet

from google.protobuf.message import DecodeError
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import H2Protocol
from grpclib.server import Server as GrpcServer
from grpclib.server import Stream

from localvolume.csi.wire import messages
from localvolume.csi.wire.descriptors import Signature
from localvolume.csi.wire.errors import (
    EXPECTED,
    Aborted,
    CallFailed,
    InvalidArgument,
    Unavailable,
    Unimplemented,
    failure_of,
)
from localvolume.csi.wire.underway import UnderWay, key_of
from localvolume.host.unixsockets import ANSWERED, bound, in_the_way, inode_at

log = logging.getLogger(__name__)

END_SECONDS: Final = 5.0
"""How long a server, when it ends, waits for calls under way."""

_SPELT: Final = {Status.OK: "OK", Status.CANCELLED: "Canceled"}

Handle = Callable[[Any], Awaitable[Any]]
"""Takes a request and returns its response, or for a stream an AsyncIterator of its messages.

Raises CallFailed or `dynamic.calls.Refused`, and so does the iterator.
"""

Counted = Callable[[str, str, float], None]
"""Is told of each call that ended: the method, the status as grpc-go writes it, and the seconds."""


class Server:
    """Serves `handlers`, by the name of their RPC, at the path of a socket.

    `ensure` puts the socket there. It may be called again at any time: then it does so only if the
    socket is gone, or another process left its own there and does not serve it any more.
    """

    def __init__(self, path: str, handlers: Mapping[str, Handle], counted: Counted) -> None:
        self.path: Final = path
        self._counted: Final = counted
        self._under_way: Final = UnderWay()
        self._mapping: Final = {
            signature.path: self._handler(rpc, signature, handlers.get(rpc))
            for rpcs in messages.SERVICES.values()
            for rpc, signature in rpcs.items()
        }
        self._server: _Listening | None = None
        self._answering: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._inode = 0
        self._ending = False
        self._said = ""

    def is_ours(self) -> bool:
        """Whether the socket at the path is ours. Raises OSError."""
        return self._server is not None and inode_at(self.path) == self._inode

    async def ensure(self) -> None:
        """Listen at the path if nobody does. Raises OSError.

        The first time, another process is replaced: it is of an agent that this one follows.
        Later, the other one is the newer.
        """
        if self.is_ours():
            return
        reason = in_the_way(self.path)
        if reason and reason != ANSWERED:
            raise OSError(errno.EEXIST, reason, self.path)
        if reason and self._server is not None:
            self._say(f"{self.path} {reason}: it is the newer one, and this one leaves it alone")
            return
        await self._listen()
        self._say(f"serving {self.path}")

    async def renew(self) -> None:
        """Put a new socket in the place of ours, for those who wait for one to appear."""
        if self.is_ours():
            await self._listen()

    async def close(self) -> None:
        """Remove the socket if it is ours, let calls under way end, and answer them."""
        if self._server is None:
            return
        self._ending = True
        with contextlib.suppress(OSError):
            if self.is_ours():
                os.unlink(self.path)
        await self._under_way.end(END_SECONDS)
        if self._answering:
            await asyncio.wait(set(self._answering), timeout=END_SECONDS)
        await self._server.end()
        self._server = None
        self._ending = False

    async def _listen(self) -> None:
        listening = bound(self.path)
        inode = inode_at(self.path)
        server = _Listening(self)
        await server.start(sock=listening)
        before, self._server, self._inode = self._server, server, inode
        if before is not None:
            await before.end()

    def _check_goes_on(self) -> None:
        """Raise Unavailable once the server ends: a stream may be long."""
        if self._ending:
            raise Unavailable("this agent is ending: go on from what you have received")

    def _say(self, text: str) -> None:
        if text != self._said:
            log.info("%s", text)
        self._said = text

    # --- the calls -----------------------------------------------------------------------------

    def __mapping__(self) -> dict[str, Handler]:
        """What grpclib asks a service for."""
        return self._mapping

    def _handler(self, rpc: str, signature: Signature, handle: Handle | None) -> Handler:
        response_type = getattr(messages, signature.response)

        def ended(status: Status, began: float) -> None:
            self._counted(signature.path, code(status), time.monotonic() - began)

        def failure(request: Any, error: Exception, began: float) -> CallFailed:
            failed = failure_of(error)
            _tell(rpc, request, failed, error)
            ended(failed.status, began)
            return failed

        async def handled(request: Any) -> Any:
            if handle is None:
                raise Unimplemented("this driver does not serve it")
            return await handle(request)

        def checked(response: Any) -> Any:
            if not isinstance(response, response_type):
                raise TypeError(f"answered with a {type(response).__name__}")
            return response

        async def work(request: Any) -> Any:
            began = time.monotonic()
            try:
                response = checked(await handled(request))
            except Exception as error:
                raise failure(request, error, began) from error
            ended(Status.OK, began)
            return response

        async def answer(stream: Stream[Any, Any]) -> None:
            request = await _received(stream)
            try:
                call = self._under_way.begin(rpc, request, work)
            except Aborted as failed:
                raise failure(request, failed, time.monotonic()) from None
            await stream.send_message(await call.result())

        async def answer_all(stream: Stream[Any, Any]) -> None:
            began = time.monotonic()
            request = await _received(stream)
            try:
                async with contextlib.aclosing(await handled(request)) as responses:
                    async for response in responses:
                        self._check_goes_on()
                        await stream.send_message(checked(response))
            except asyncio.CancelledError:
                ended(Status.CANCELLED, began)
                raise
            except Exception as error:
                raise failure(request, error, began) from error
            ended(Status.OK, began)

        async def answered(stream: Stream[Any, Any]) -> None:
            if (task := asyncio.current_task()) is not None:
                self._answering.add(task)
            try:
                await (answer_all if signature.streamed else answer)(stream)
            except CallFailed as failed:
                raise GRPCError(failed.status, str(failed)) from None

        return Handler(
            answered,
            Cardinality.UNARY_STREAM if signature.streamed else Cardinality.UNARY_UNARY,
            getattr(messages, signature.request),
            response_type,
        )


class _Listening(GrpcServer):
    """grpclib's server, which does not close the connections that it has."""

    def __init__(self, handlers: Server) -> None:
        super().__init__([handlers])
        self._protocols: WeakSet[H2Protocol] = WeakSet()

    def _protocol_factory(self) -> H2Protocol:
        protocol = super()._protocol_factory()
        self._protocols.add(protocol)
        return protocol

    async def end(self) -> None:
        """Listen no more, and close all connections. Callers are told UNAVAILABLE."""
        self.close()
        for protocol in list(self._protocols):
            protocol.processor.close("this agent ends")
        # A client that does not take its last answer must not hold us up.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await self.wait_closed()


def _tell(rpc: str, request: Any, failed: CallFailed, error: Exception) -> None:
    """Log the failure. No field of the request but its key is shown: others may be secret."""
    expected = isinstance(error, EXPECTED)
    log.log(
        logging.WARNING if expected else logging.ERROR,
        "%s %s: %s: %s",
        rpc,
        key_of(rpc, request),
        code(failed.status),
        failed,
        exc_info=None if expected else error,
    )


async def _received(stream: Stream[Any, Any]) -> Any:
    """The request, which must be received even to be refused. Raises InvalidArgument."""
    try:
        request = await stream.recv_message()
    except DecodeError as error:
        raise InvalidArgument(f"the request cannot be read: {error}") from error
    if request is None:
        raise InvalidArgument("the call has no request")
    return request


def code(status: Status) -> str:
    """A status as grpc-go writes it, and with it the metrics of sidecars."""
    return _SPELT.get(status) or status.name.title().replace("_", "")
