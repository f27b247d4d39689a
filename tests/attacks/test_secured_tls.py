"""Clients that misuse TLS of the endpoints, and certificates that change under it.

Handshakes are work and memory before anything was asked: they have the bounds that requests have.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from localvolume.config.flags.listening import ListenAddress
from localvolume.process.endpoints import Endpoints
from localvolume.process.guard import Guard
from localvolume.process.secured import Certificate, CertificateInvalid
from localvolume.process.server import CLIENTS, HEAD_BYTES
from tests.attacks.support_certificates import NAME, Mounted
from tests.contract.support_kube_certificates import Signed
from tests.suite.until import until_async

MANY = 5 * CLIENTS


@pytest.fixture
def mounted(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path / "certificate")


@asynccontextmanager
async def served(
    mounted: Mounted,
    client_seconds: float = 60.0,
    refusal: Callable[[str], str] = lambda _: "",
    guard: Guard | None = None,
) -> AsyncIterator[Endpoints]:
    registry = CollectorRegistry()
    Gauge("water", "Metres", registry=registry).set(7)
    one = Endpoints(
        ListenAddress("127.0.0.1", 0),
        "/metrics",
        registry,
        ready=dict,
        healthy=dict,
        # The loop here is the test's own, which a busy machine may hold up.
        loop_seconds=60.0,
        client_seconds=client_seconds,
        guard=guard or Guard(Certificate(str(mounted.directory)).accept, refusal),
    )
    await one.start()
    try:
        yield one
    finally:
        await one.close()


async def get(one: Endpoints, mounted: Mounted, path: str) -> tuple[int, str]:
    return await asyncio.to_thread(mounted.get, one.port, path)


def shown(one: Endpoints) -> bytes:
    """The certificate that a client is shown, as DER."""
    anyone = ssl._create_unverified_context()
    with (
        socket.create_connection(("127.0.0.1", one.port), timeout=60) as plain,
        anyone.wrap_socket(plain) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


async def test_all_pages_are_served_over_tls_alone(mounted: Mounted) -> None:
    async with served(mounted) as one:
        for path in ("/metrics", "/ready", "/healthz"):
            assert (await get(one, mounted, path))[0] == 200
            reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            said = b""
            with suppress(ConnectionError):
                said = await asyncio.wait_for(reader.read(), 60)
            assert b"HTTP" not in said
            assert b"water" not in said
            writer.close()


async def test_probes_pass_where_metrics_are_refused(mounted: Mounted) -> None:
    async with served(mounted, refusal=lambda _: "403 Forbidden") as one:
        assert await get(one, mounted, "/metrics") == (403, "403 Forbidden\n")
        assert await get(one, mounted, "/ready") == (200, "ok\n")
        assert await get(one, mounted, "/healthz") == (200, "ok\n")


async def test_no_way_of_writing_the_path_leads_around_the_guard(mounted: Mounted) -> None:
    async with served(mounted, refusal=lambda _: "401 Unauthorized") as one:
        for path in ("/metrics?a=b", "/%6detrics", "/metrics/", "//metrics", "/ready/../metrics"):
            status, text = await get(one, mounted, path)
            assert status in (401, 404), path
            assert "water" not in text, path


async def test_no_sessions_are_kept_for_clients(mounted: Mounted) -> None:
    """Of TLS 1.2, OpenSSL keeps thousands of them."""
    old = mounted.trust()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with served(mounted) as one:

        def ask() -> None:
            with (
                socket.create_connection(("127.0.0.1", one.port), timeout=60) as plain,
                old.wrap_socket(plain, server_hostname="127.0.0.1"),
            ):
                pass

        with pytest.raises(ssl.SSLError, match=r"(?i)version"):
            await asyncio.to_thread(ask)


async def test_hung_handshakes_keep_no_probe_out_and_no_place(mounted: Mounted) -> None:
    """Neither silent ones nor those that stop in the midst hold up the thread that accepts."""
    async with served(mounted) as one:
        hung = []
        try:
            for number in range(MANY):
                client = socket.create_connection(("127.0.0.1", one.port))
                client.sendall(b"\x16\x03\x01\x02\x00"[: number % 6])
                hung.append(client)
                await asyncio.sleep(0.002)
            server = one._server
            assert server is not None
            assert (await get(one, mounted, "/healthz"))[0] == 200
            # Those that were cut end when their threads get their turn, long before their minute.
            await until_async(lambda: server._at_work, lambda count: count <= CLIENTS)
        finally:
            for client in hung:
                client.close()


@pytest.mark.parametrize("shakes_hands", [False, True])
async def test_what_comes_drop_by_drop_is_cut_in_time(mounted: Mounted, shakes_hands: bool) -> None:
    """Each byte comes long before the server would call the client silent: of the handshake, or,
    in records of one byte each, of the request."""
    async with served(mounted, client_seconds=3.0) as one:
        trust = mounted.trust() if shakes_hands else None

        async def connected() -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
            # On a machine that stalls, the handshake itself may be cut.
            with suppress(OSError):
                return await asyncio.open_connection(
                    "127.0.0.1", one.port, ssl=trust, server_hostname="127.0.0.1" if trust else None
                )
            return None

        found = await until_async(connected, bool)
        assert found is not None
        reader, writer = found
        # A record of a ClientHello that never comes to its end.
        writer.write(b"GET / HTTP/1.0\r\nX: " if shakes_hands else b"\x16\x03\x01\x40\x00\x01\x00")
        ended = asyncio.ensure_future(reader.read())

        async def drop() -> bool:
            if not ended.done():
                writer.write(b"x")
            return ended.done()

        await until_async(drop)
        with suppress(ConnectionError, ssl.SSLError):
            assert await ended == b""
        writer.close()


async def test_the_handshake_takes_of_the_requests_time(mounted: Mounted) -> None:
    """A client that was slow with the one has no time of its own for the other."""

    def slowly(client: socket.socket) -> socket.socket:
        time.sleep(1.5)
        return client

    guard = Guard(slowly, lambda _: "")
    async with served(mounted, client_seconds=1.0, guard=guard) as one:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        writer.write(b"GET /ready HTTP/1.0\r\n\r\n")
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


def test_who_reads_drop_by_drop_is_cut_in_time(mounted: Mounted) -> None:
    """The answer has as long as a whole, not each record of it."""
    served, client = socket.socketpair()
    served.settimeout(60)
    client.settimeout(60)

    def read_slowly() -> None:
        # Longer than a second; then it goes, which the server is told of otherwise.
        with mounted.trust().wrap_socket(client, server_hostname=NAME) as secured:
            for _ in range(200):
                if not secured.recv(16_384):
                    break
                time.sleep(0.1)

    reader = threading.Thread(target=read_slowly)
    reader.start()
    with served, Certificate(str(mounted.directory)).accept(served) as secured:
        secured.settimeout(1.0)
        with pytest.raises(TimeoutError):
            secured.sendall(bytes(64 << 20))
        assert reader.is_alive()
        served.shutdown(socket.SHUT_RDWR)
    reader.join()


async def test_a_request_of_the_largest_size_with_its_token_is_read(mounted: Mounted) -> None:
    async with served(mounted) as one:
        seen = "Bearer " + "t" * (HEAD_BYTES // 2)
        status, _ = await asyncio.to_thread(mounted.get, one.port, "/metrics", seen)
    assert status == 200


async def test_a_new_certificate_serves_the_next_client(mounted: Mounted) -> None:
    async with served(mounted) as one:
        for _ in range(2):
            renewed = mounted.renew()
            assert await asyncio.to_thread(shown, one) == renewed


@pytest.mark.parametrize("wrong", ["text", "half", "mixed", "gone", "locked"])
async def test_a_broken_new_pair_leaves_the_old_one_in_use(
    mounted: Mounted, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "localvolume")
    whole = mounted.renew()
    async with served(mounted) as one:
        other = mounted.authority.sign("other")
        if wrong == "text":
            mounted.write(Signed(b"not a certificate", b"nor a key"))
        elif wrong == "half":
            mounted.write(Signed(other.certificate[:200], other.key))
        elif wrong == "mixed":
            mounted.write(Signed(other.certificate, mounted.authority.sign("third").key))
        elif wrong == "locked":
            mounted.write(Signed(other.certificate, encrypted(other.key)))
        else:
            (mounted.directory / "..data").unlink()
        for _ in range(3):
            assert await asyncio.to_thread(shown, one) == whole
        told = [line for line in caplog.messages if "stays in use" in line]
        assert len(told) == 1
        renewed = mounted.renew()
        assert await asyncio.to_thread(shown, one) == renewed
        assert "a new certificate is in use" in caplog.text


async def test_a_new_pair_that_could_not_be_read_once_serves_a_later_client(
    mounted: Mounted, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Descriptors had run out when it came: the files do not change again once there are some."""

    def out_of_descriptors(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with served(mounted) as one:
        old = await asyncio.to_thread(shown, one)
        renewed = mounted.renew()
        with monkeypatch.context() as patch:
            patch.setattr(ssl.SSLContext, "load_cert_chain", out_of_descriptors)
            for _ in range(2):
                assert await asyncio.to_thread(shown, one) == old
        assert await asyncio.to_thread(shown, one) == renewed
    told = [line for line in caplog.messages if "stays in use" in line]
    assert len(told) == 1


def encrypted(key: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )


def test_without_a_pair_nothing_begins(mounted: Mounted) -> None:
    (mounted.directory / "tls.key").unlink()
    with pytest.raises(CertificateInvalid, match=r"tls\.key"):
        Certificate(str(mounted.directory))
    mounted.write(Signed(mounted.authority.sign("other").certificate, b"no key"))
    with pytest.raises(CertificateInvalid, match="no certificate with its key"):
        Certificate(str(mounted.directory))
