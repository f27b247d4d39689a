"""What a probe and a scrape get, also from a process that is in trouble."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from localvolume.config.flags.listening import ListenAddress
from localvolume.process.endpoints import Endpoints
from localvolume.process.server import CLIENTS
from tests.suite.sockets import own_sockets
from tests.suite.until import until_async


class Served:
    """The endpoints on a free port, with checks that a test can change."""

    def __init__(
        self,
        host: str | None = "127.0.0.1",
        # None of them is over because the machine has no time for this process.
        loop_seconds: float = 60.0,
        client_seconds: float = 60.0,
    ) -> None:
        self.wrong: dict[str, str] = {}
        self.sick: dict[str, str] = {}
        self.registry = CollectorRegistry()
        Gauge("water", "Metres", registry=self.registry).set(7)
        self.endpoints = Endpoints(
            ListenAddress(host, 0),
            "/metrics",
            self.registry,
            ready=self._ready,
            healthy=self._well,
            loop_seconds=loop_seconds,
            client_seconds=client_seconds,
        )

    def _ready(self) -> Mapping[str, str]:
        return self.wrong

    def _well(self) -> Mapping[str, str]:
        return self.sick


@asynccontextmanager
async def served(host: str | None = "127.0.0.1", **seconds: float) -> AsyncIterator[Served]:
    it = Served(host, **seconds)
    await it.endpoints.start()
    try:
        yield it
    finally:
        await it.endpoints.close()


async def get(it: Served, path: str, host: str = "127.0.0.1") -> tuple[int, str, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{host}:{it.endpoints.port}{path}") as answer,
    ):
        return answer.status, answer.headers.get("Content-Type", ""), await answer.text()


async def test_metrics_are_served_in_the_text_format() -> None:
    async with served() as it:
        status, kind, text = await get(it, "/metrics")
    assert (status, kind.partition(";")[0]) == (200, "text/plain")
    assert "water 7.0" in text


@pytest.mark.parametrize("path", ["/ready", "/ready/DiscovererReadyzCheck"])
async def test_ready_says_what_is_wrong(path: str) -> None:
    async with served() as it:
        assert (await get(it, path))[::2] == (200, "ok\n")
        it.wrong = {"": "no API server", "fast": "no StorageClass"}
        assert (await get(it, path))[::2] == (
            500,
            "node: no API server\nfast: no StorageClass\n",
        )
        assert (await get(it, "/healthz"))[::2] == (200, "ok\n")
        it.sick = {"discovery": "stuck"}
        assert (await get(it, "/healthz"))[::2] == (500, "discovery: stuck\n")


async def test_a_page_that_is_not_there() -> None:
    async with served() as it:
        assert (await get(it, "/"))[0] == 404


async def test_every_address_means_both_protocols() -> None:
    async with served(None) as it:
        assert (await get(it, "/ready"))[0] == 200
        if socket.has_dualstack_ipv6():
            assert (await get(it, "/ready", "[::1]"))[0] == 200


async def test_a_taken_port_is_an_error() -> None:
    async with served() as it:
        second = Endpoints(
            ListenAddress("127.0.0.1", it.endpoints.port),
            "/metrics",
            it.registry,
            ready=dict,
            healthy=dict,
        )
        with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
            await second.start()


async def test_the_port_is_free_again_once_closed() -> None:
    def held() -> bool:
        """Whether this process has the port: another may take it as soon as it is free."""
        address = f":{it.endpoints.port:04X}"
        return any(local.endswith(address) for _, local, *_ in own_sockets("tcp"))

    async with served() as it:
        assert held()
    await until_async(lambda: not held())


async def test_a_loop_that_hangs_is_answered_for() -> None:
    async with served(loop_seconds=0.2) as it:
        with socket.create_connection(("127.0.0.1", it.endpoints.port)) as probe:
            probe.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            probe.settimeout(60)
            answer = b""
            # Reading blocks this loop, as a bug would.
            while piece := probe.recv(4096):
                answer += piece
    assert b" 500 " in answer.splitlines()[0]
    assert b"the event loop has not answered" in answer


async def test_a_check_that_fails_is_no_good_health() -> None:
    async with served() as it:
        it.sick = None  # type: ignore[assignment]
        it.endpoints._pages["/healthz"] = it.endpoints._answer(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
        assert (await get(it, "/healthz"))[0] == 500


async def test_silent_clients_neither_pile_up_nor_keep_a_probe_out() -> None:
    async with served() as it:
        silent = []
        try:
            for _ in range(5 * CLIENTS):
                one = socket.create_connection(("127.0.0.1", it.endpoints.port))
                one.sendall(b"GET /metrics HT")
                silent.append(one)
                await asyncio.sleep(0.002)
            server = it.endpoints._server
            assert server is not None
            # Those that were cut end when their threads get their turn.
            await until_async(lambda: server._at_work, lambda count: count <= CLIENTS)
            began = time.monotonic()
            assert (await get(it, "/healthz"))[0] == 200
            # Until then the silent ones may stay.
            assert time.monotonic() - began < 60
            assert len(server._open) <= CLIENTS
            assert server._at_work <= 2 * CLIENTS
        finally:
            for one in silent:
                one.close()


async def test_a_silent_client_is_cut_in_time() -> None:
    async with served(client_seconds=1.0) as it:
        reader, writer = await asyncio.open_connection("127.0.0.1", it.endpoints.port)
        writer.write(b"GET /ready HTTP/1.0\r\n")
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
