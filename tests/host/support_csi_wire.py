"""A CSI server on a real socket, with handlers of a test, and a client for every RPC."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpclib.client import Channel, UnaryStreamMethod, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from localvolume.csi.wire import messages
from localvolume.csi.wire.server import Handle, Server

RPCS = {rpc: one for rpcs in messages.SERVICES.values() for rpc, one in rpcs.items()}


@dataclass
class Counts:
    """What a server counted: the method and the status of each call."""

    seen: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, method: str, status: str, seconds: float) -> None:
        assert seconds >= 0
        self.seen.append((method.rpartition("/")[2], status))


@contextlib.asynccontextmanager
async def serving(
    path: Path, handlers: Mapping[str, Handle], counts: Counts | None = None
) -> AsyncIterator[Server]:
    server = Server(str(path), handlers, counts or Counts())
    await server.ensure()
    try:
        yield server
    finally:
        await server.close()


async def call(path: Path, rpc: str, timeout: float | None = None, **fields: Any) -> Any:
    """The answer to one call on a connection of its own, as the kubelet does it."""
    channel = Channel(path=str(path))
    try:
        return await call_on(channel, rpc, timeout, **fields)
    except AttributeError as error:
        # grpclib 0.4.9 takes the transport from a connection that it has just lost.
        if "_transport" not in str(error):
            raise
        raise ConnectionResetError("the connection was lost before the call") from error
    finally:
        channel.close()


async def call_on(channel: Channel, rpc: str, timeout: float | None = None, **fields: Any) -> Any:
    """The answer to one call on a connection that stays; a list of them if it is a stream."""
    one = RPCS[rpc]
    request = getattr(messages, one.request)(**fields)
    kind = UnaryStreamMethod if one.streamed else UnaryUnaryMethod
    method = kind(channel, one.path, type(request), getattr(messages, one.response))
    return await method(request, timeout=timeout)


async def status(path: Path, rpc: str, **fields: Any) -> tuple[Status, str]:
    """How a call fails."""
    try:
        answer = await call(path, rpc, **fields)
    except GRPCError as error:
        return error.status, error.message or ""
    raise AssertionError(f"{rpc} was answered with {answer}")
