"""A client that is closed leaves no socket behind, whatever it was doing when its loop ended."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from localvolume.kube.access.auth import Access
from localvolume.kube.access.tls import Pem, Tls
from localvolume.kube.client import Client
from localvolume.kube.kinds import NODES, PERSISTENT_VOLUMES
from tests.contract.support_kube_certificates import Authority


@contextmanager
def server_that_says_nothing(context: ssl.SSLContext | None) -> Iterator[str]:
    """Takes every connection, with TLS where it has a context, and then not even its end."""
    held: list[socket.socket] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                taken, _ = listening.accept()
            except OSError:
                return
            with suppress(OSError):
                held.append(context.wrap_socket(taken, server_side=True) if context else taken)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(30)
        for one in held:
            one.close()


async def _give_up(access: Access, seconds: float) -> None:
    async with Client(access, user_agent="closing") as client:

        async def watch() -> None:
            async for _ in client.watch(
                PERSISTENT_VOLUMES, resource_version="1", timeout_seconds=60
            ):
                raise AssertionError("it says nothing")

        tasks = [asyncio.create_task(client.get(NODES, "a")), asyncio.create_task(watch())]
        await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("greets", [True, False], ids=["asked", "connecting"])
def test_what_was_given_up_is_closed_with_it(tmp_path: Path, greets: bool) -> None:
    """TLS says goodbye in the background, and a server that is busy answers late: nobody waits."""
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    # What other tests left is not this one's.
    gc.collect()
    with (
        server_that_says_nothing(authority.server_context(tmp_path) if greets else None) as url,
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("always", ResourceWarning)
        pem = Pem("certificate-authority", path=str(tmp_path / "ca.pem"))
        tls = Tls(authority=pem, certificate=Pem(""), key=Pem(""), insecure=False)
        asyncio.run(_give_up(Access(url, source="a test", tls=tls), 0.5))
        gc.collect()
    left = [str(one.message) for one in said if issubclass(one.category, ResourceWarning)]
    assert left == []
