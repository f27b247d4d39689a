"""Carries connections from a node's own network to the API server on the machine's loopback."""

import asyncio
import contextlib
import socket
from collections.abc import Sequence


async def serve(listening: Sequence[socket.socket], target: int, until: asyncio.Event) -> None:
    """Join what connects to `listening` with 127.0.0.1:`target` until the event is set.

    The sockets may belong to another network namespace: a socket keeps the one it was made in.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        try:
            onward = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.transport.abort()  # as refused as a connection already made can be
            return
        try:
            await asyncio.gather(_copy(reader, onward[1]), _copy(onward[0], writer))
        finally:
            writer.transport.abort()
            onward[1].transport.abort()

    servers = [await asyncio.start_server(join, sock=one) for one in listening]
    await until.wait()
    for server in servers:
        server.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    # One direction that breaks breaks the other too; one that ends does not.
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        with contextlib.suppress(OSError):
            writer.transport.abort()
