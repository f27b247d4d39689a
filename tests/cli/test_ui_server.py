"""Who may see the page of `localvolume ui`: its bearer, on this machine, and no other."""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from localvolume.cli.main import main
from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.page.pictures import Pictures
from localvolume.cli.seeing.page.server import PageServer
from tests.cli.support_page import cluster, ui
from tests.decisions.support_seeing import facts, klass, volume


@dataclass
class Answer:
    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Server:
    """The address with the token; requests go through a socket of their own."""

    url: str

    @property
    def port(self) -> int:
        found = urlsplit(self.url).port
        assert found is not None
        return found

    @property
    def token(self) -> str:
        return urlsplit(self.url).query

    async def ask(self, target: str, method: str = "GET", **headers: str) -> Answer:
        return await asyncio.to_thread(self._ask, target, method, headers)

    def _ask(self, target: str, method: str, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, target, headers=dict(headers))
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode(), dict(answer.getheaders()))
        finally:
            connection.close()

    async def entered(self) -> tuple[str, str]:
        """Where the page is, and the cookie for it."""
        answer = await self.ask(f"/?{self.token}")
        assert answer.status == 303
        return answer.headers["Location"], answer.headers["Set-Cookie"].split(";")[0]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """One that has read one volume."""
    known = facts(klass(), volume("pv-1"))

    async def read() -> Facts:
        return known

    async def deepen(found: Facts, _namespace: str) -> Facts:
        return found

    pictures = Pictures(read=read, deepen=deepen, every=60.0)
    made = PageServer(pictures, every=60.0)
    await made.start(0)
    try:
        yield Server(made.url)
    finally:
        await made.stop()


async def test_with_the_token_and_its_cookie_it_is_seen(server: Server) -> None:
    place, cookie = await server.entered()
    page = await server.ask(place, Cookie=cookie)
    assert page.status == 200
    assert "<title>Local volumes</title>" in page.body
    found = json.loads((await server.ask(f"{place}data", Cookie=cookie)).body)
    assert [one["name"] for one in found["data"]["volumes"]] == ["pv-1"]
    again = json.loads((await server.ask(f"{place}data?have=1", Cookie=cookie)).body)
    assert (again["number"], again["data"]) == (1, None)
    why = await server.ask(f"{place}why?about=pv/pv-1", Cookie=cookie)
    assert json.loads(why.body)["about"] == "pv/pv-1"
    assert (await server.ask(f"{place}why?about=pv/none", Cookie=cookie)).status == 404
    assert (await server.ask(f"{place}why", Cookie=cookie)).status == 404
    assert (await server.ask(f"{place}none", Cookie=cookie)).status == 404


async def test_without_the_token_nothing_is_seen(server: Server) -> None:
    place, cookie = await server.entered()
    name = cookie.split("=")[0]
    for target in ("/", "/?token=", "/?token=x", f"/?{server.token}x", "/none", "/?token=%ff%c3"):
        answer = await server.ask(target)
        assert (answer.status, "pv-1" in answer.body) == (403, False), target
    for target in (place, f"{place}data", f"{place}why?about=pv/pv-1", f"{place}none"):
        for given in ("", f"{name}=", f"{name}=x", f"{cookie}x", f"other={cookie}"):
            answer = await server.ask(target, Cookie=given)
            assert (answer.status, "pv-1" in answer.body) == (403, False), (target, given)
        # The token is for entering only; it opens nothing else.
        assert (await server.ask(f"{target}?{server.token}")).status == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "localhost", "evil.example:{port}", "127.0.0.1:1", ""]
)
async def test_a_name_that_was_bent_to_this_machine_is_refused(server: Server, host: str) -> None:
    place, cookie = await server.entered()
    named = host.format(port=server.port)
    for target in (f"/?{server.token}", f"{place}data"):
        answer = await server.ask(target, Host=named, Cookie=cookie)
        assert answer.status == 403
        assert "Set-Cookie" not in answer.headers
    local = await server.ask(f"{place}data", Host=f"localhost:{server.port}", Cookie=cookie)
    assert local.status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
async def test_it_is_only_read(server: Server, method: str) -> None:
    place, cookie = await server.entered()
    for target in (f"/?{server.token}", place, f"{place}data"):
        answer = await server.ask(target, method, Cookie=cookie)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")


async def test_every_answer_forbids_what_it_does_not_need(server: Server) -> None:
    place, cookie = await server.entered()
    for answer in (
        await server.ask(f"/?{server.token}"),
        await server.ask(place, Cookie=cookie),
        await server.ask(f"{place}data", Cookie=cookie),
        await server.ask("/"),
        await server.ask("/", "POST"),
        await server.ask(f"{place}none", Cookie=cookie),
    ):
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"


async def test_the_cookie_is_for_this_page_only(server: Server) -> None:
    answer = await server.ask(f"/?{server.token}")
    flags = [part.strip() for part in answer.headers["Set-Cookie"].split(";")[1:]]
    place = answer.headers["Location"]
    assert {"HttpOnly", "SameSite=Lax", f"Path={place}"} <= set(flags)
    # Cookies are sent to every port: a path that nobody can guess keeps it from other servers.
    assert len(place) > 16


async def test_no_other_address_of_the_machine_is_listened_on(server: Server) -> None:
    for address in ("127.0.0.2", "::1"):
        with pytest.raises(OSError):
            await asyncio.open_connection(address, server.port)


async def test_two_servers_do_not_share_their_secrets(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as (_, _made, kubeconfig),
        ui(kubeconfig) as one,
        ui(kubeconfig) as other,
    ):
        assert (await Server(one).ask(f"/?{Server(one).token}")).status == 303
        assert (await Server(one).ask(f"/?{Server(other).token}")).status == 403


async def test_a_port_that_is_taken_is_said(server: Server, tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, _made, kubeconfig):
        words = ["ui", "--kubeconfig", str(kubeconfig), "--port", str(server.port)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "localvolume", *words, stderr=asyncio.subprocess.PIPE
        )
        _, err = await process.communicate()
    assert process.returncode == 1
    assert "address already in use" in err.decode()
    assert "another by --port" in err.decode()
    assert "Errno" not in err.decode()


async def test_what_is_no_http_fills_no_terminal(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, _made, kubeconfig):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "localvolume", "ui", "--kubeconfig", str(kubeconfig)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        port = urlsplit((await process.stdout.readline()).decode().split()[1]).port
        for words in (b"\x16\x03\x01\r\n\r\n", b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(words)
            assert (await reader.read(100)).startswith(b"HTTP/1.0 400 ")
            writer.close()
        process.terminate()
        _, err = await process.communicate()
    assert err == b""


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--port", "-1"), ("--port", "65536"), ("--port", "x"), ("--every", "0"), ("--every", "nan")],
)
def test_a_flag_that_makes_no_sense_is_refused(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["ui", f"{flag}={value}"])
    assert ended.value.code == 2
    assert f"{value} is not a" in capsys.readouterr().err
