"""A client of the daemon's socket, as bare as can be, and servers for it to talk to."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from localvolume.flexvolume.server import READ_SECONDS, Route, Server


async def raw(path: Path, data: bytes, *, end: bool = True) -> bytes:
    """Everything the server says to these bytes."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(data)
        await writer.drain()
        if end:
            writer.write_eof()
        async with asyncio.timeout(120):
            return await reader.read()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def request(method: str, target: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: unix", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def ask(path: Path, method: str, target: str, body: Any = None) -> tuple[int, str, str]:
    """Status, type and body of the answer; `body` is sent as JSON unless it is bytes already."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""
    answer = await raw(path, request(method, target, data), end=False)
    head, _, text = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    assert int(headers["content-length"]) == len(text)
    assert headers["connection"] == "close"
    return int(first.split()[1]), headers["content-type"], text.decode()


@contextlib.asynccontextmanager
async def serving(
    path: Path, routes: dict[str, tuple[str, Route]], read_seconds: float = READ_SECONDS
) -> AsyncIterator[Server]:
    server = Server(str(path), routes, read_seconds)
    task = asyncio.create_task(server.run())
    try:
        async with asyncio.timeout(60):
            await server.serving.wait()
        yield server
    finally:
        task.cancel()
        await asyncio.wait([task])
