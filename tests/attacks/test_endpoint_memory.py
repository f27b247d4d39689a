"""Clients that have the endpoints keep what they send, or keep a place: neither grows, nor stays.

Whoever reaches the pod's address may open connections. Sixteen of them with a hundred headers of
60 KiB each took an agent from 26 MiB to 203: with a limit on its memory it would have been killed,
by whoever likes, in the midst of a cleaning.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from prometheus_client import CollectorRegistry

from localvolume.config.flags.listening import ListenAddress
from localvolume.process.endpoints import Endpoints
from localvolume.process.server import CLIENTS, HEAD_BYTES
from tests.suite.until import until_async

HEADER = b"X-Kept: " + b"x" * 60_000 + b"\r\n"
MOST = 8 << 20
"""Bytes: what sixteen requests of the largest size take, with their threads, many times over."""


@asynccontextmanager
async def served(client_seconds: float = 60.0) -> AsyncIterator[Endpoints]:
    one = Endpoints(
        ListenAddress("127.0.0.1", 0),
        "/metrics",
        CollectorRegistry(),
        ready=dict,
        healthy=dict,
        # The loop here is the test's own, which a busy machine may hold up.
        loop_seconds=60.0,
        client_seconds=client_seconds,
    )
    await one.start()
    try:
        yield one
    finally:
        await one.close()


async def connect(
    one: Endpoints, request: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
    writer.write(request)
    return reader, writer


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """All that comes until the server ends it, which may be by a reset: it has not read all."""
    got = b""
    try:
        while piece := await asyncio.wait_for(reader.read(4096), 60):
            got += piece
    except ConnectionError:
        pass
    writer.close()
    return got


async def flood(one: Endpoints) -> bool:
    """A hundred large headers, without the line that ends them; whether all could be sent."""
    reader, writer = await connect(one, b"GET /metrics HTTP/1.1\r\n")
    try:
        for _ in range(99):
            writer.write(HEADER)
            await writer.drain()
        # It is kept open, as an attacker would, until the server ends it.
        await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return False
    finally:
        writer.close()
    return True


async def test_large_headers_from_as_many_as_may_come_are_not_kept() -> None:
    async with served(client_seconds=5.0) as one:
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            await asyncio.gather(*(flood(one) for _ in range(CLIENTS)))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most - before < MOST


async def test_what_is_too_large_is_refused_with_its_status() -> None:
    async with served() as one:
        # No byte more than is read, so that no reset overtakes the answer.
        request = b"GET /metrics HTTP/1.1\r\nX-Kept: "
        request += b"x" * (HEAD_BYTES - len(request))
        said = await answer(*await connect(one, request))
    assert said.startswith(b"HTTP/1.0 431 ")


async def test_a_request_that_comes_drop_by_drop_is_cut_in_time() -> None:
    """Each byte comes long before the server would call the client silent."""
    async with served(client_seconds=1.0) as one:
        reader, writer = await connect(one, b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        ended = asyncio.ensure_future(reader.read())

        async def drop() -> bool:
            if not ended.done():
                writer.write(b"x")
            return ended.done()

        await until_async(drop)
        # By an end or a reset; it has no answer in either case.
        with suppress(ConnectionError):
            assert await ended == b""
        writer.close()


@pytest.mark.parametrize("end", [b"\r\n\r\n", b"\n\n"])
async def test_what_prometheus_may_send_is_answered(end: bytes) -> None:
    token = b"Authorization: Bearer " + b"t" * 8_000
    async with served() as one:
        said = await answer(*await connect(one, b"GET /metrics HTTP/1.1\r\n" + token + end))
    assert b" 200 OK" in said.splitlines()[0]


async def test_a_request_in_pieces_is_answered() -> None:
    async with served() as one:
        reader, writer = await connect(one, b"GET /heal")
        await writer.drain()
        writer.write(b"thz HTTP/1.0\r\n\r")
        await writer.drain()
        writer.write(b"\n")
        said = await answer(reader, writer)
    assert b" 200 OK" in said.splitlines()[0]
