"""Credentials that change while we run: tokens, plugins, certificates, authorities."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from localvolume.kube.access.auth import FILE_AGE_SECONDS, FixedToken, TokenFile, find_access
from localvolume.kube.access.tls import Pem, Tls
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, NotThere, TellTheAdministrator
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from tests.contract.support_kube import FaultServer, client_of, failure, fault_server, volume
from tests.contract.support_kube_certificates import Authority

NOTHING = Pem("")


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with fault_server() as running:
        yield running


def accepts(*tokens: str) -> Any:
    """A server that knows these tokens."""

    async def step(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization") in [f"Bearer {token}" for token in tokens]:
            return web.json_response(volume("a", 1))
        return await failure(401, "Unauthorized")(request)

    return step


async def test_a_token_file_is_read_again_every_minute(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    now = 1000.0
    source = TokenFile(str(path), field="tokenFile", clock=lambda: now)
    path.write_text("two")
    now += FILE_AGE_SECONDS - 1
    assert await source.get() == "one"
    now += 1
    assert await source.get() == "two"
    # One that cannot be read, or is empty in the middle of being written, changes nothing.
    for spoil in (lambda: path.write_text(""), path.unlink):
        spoil()
        now += FILE_AGE_SECONDS
        assert await source.get() == "two"


async def test_a_refused_token_is_read_again_at_once(server: FaultServer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    server.others = [accepts("new")]
    async with client_of(server, token=TokenFile(str(path), field="tokenFile")) as client:
        path.write_text("new")
        assert (await client.get(PERSISTENT_VOLUMES, "a")).metadata.name == "a"
        assert len(server.seen) == 2
        # Refused although it is the newest: once is enough.
        path.write_text("wrong")
        server.others = [accepts("none")]
        with pytest.raises(TellTheAdministrator) as caught:
            await client.get(PERSISTENT_VOLUMES, "a")
        assert caught.value.status == 401
        assert len(server.seen) == 4
        with pytest.raises(TellTheAdministrator):
            await client.get(PERSISTENT_VOLUMES, "a")
        assert len(server.seen) == 5


async def test_a_fixed_token_is_refused_once(server: FaultServer) -> None:
    server.others = [accepts("other")]
    async with client_of(server, token=FixedToken("mine")) as client:
        with pytest.raises(TellTheAdministrator):
            await client.get(PERSISTENT_VOLUMES, "a")
    assert len(server.seen) == 1


async def test_a_watch_renews_its_token_too(server: FaultServer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    server.watches = [failure(401, "Unauthorized"), failure(404, "NotFound")]
    async with client_of(server, token=TokenFile(str(path), field="tokenFile")) as client:
        path.write_text("new")
        with pytest.raises(NotThere):
            await anext(client.watch(PERSISTENT_VOLUMES, resource_version="1"))
    sent = [seen.headers["Authorization"] for seen in server.of("watch")]
    assert sent == ["Bearer old", "Bearer new"]


PLUGIN = """
import json, os, pathlib, sys
here = pathlib.Path(sys.argv[0]).parent
runs = here / "runs"
number = len(runs.read_text().split()) + 1 if runs.exists() else 1
with runs.open("a") as file: file.write(f"{number}\\n")
asked = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
(here / "asked").write_text(json.dumps(asked))
status = json.loads((here / "status").read_text().replace("TOKEN", f"token-{number}"))
print(json.dumps({"kind": "ExecCredential", "apiVersion": asked["apiVersion"], "status": status}))
print(os.environ.get("EXTRA", ""), file=sys.stderr)
sys.exit(int(os.environ.get("EXIT", "0")))
"""


def plugin_kubeconfig(
    directory: Path, url: str, *, authority: bytes = b"", env: dict[str, str] | None = None
) -> str:
    (directory / "plugin.py").write_text(PLUGIN)
    (directory / "ca.pem").write_bytes(authority)
    cluster = {"server": url}
    if authority:
        cluster["certificate-authority"] = "ca.pem"
    execute = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(directory / "plugin.py")],
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    config = {
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": {"exec": execute}}],
        "contexts": [{"name": "x", "context": {"cluster": "k", "user": "u"}}],
        "current-context": "x",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def runs(directory: Path) -> int:
    return len((directory / "runs").read_text().split())


async def test_an_exec_plugin(server: FaultServer, tmp_path: Path) -> None:
    (tmp_path / "status").write_text('{"token": "TOKEN"}')
    server.others = [accepts("token-1", "token-3")]
    access = find_access(plugin_kubeconfig(tmp_path, server.url), environ={})
    async with Client(access, user_agent="test") as client:
        for _ in range(3):
            await client.get(PERSISTENT_VOLUMES, "a")
        assert runs(tmp_path) == 1
        asked = json.loads((tmp_path / "asked").read_text())
        assert asked["spec"] == {"interactive": False, "cluster": {"server": server.url}}
        # The server knows it no longer: asked again, once per request.
        server.others = [accepts("token-3")]
        with pytest.raises(TellTheAdministrator):
            await client.get(PERSISTENT_VOLUMES, "a")
        await client.get(PERSISTENT_VOLUMES, "a")
        assert runs(tmp_path) == 3


async def test_an_expired_credential_is_not_used(server: FaultServer, tmp_path: Path) -> None:
    status = {"token": "TOKEN", "expirationTimestamp": "2020-01-01T00:00:00Z"}
    (tmp_path / "status").write_text(json.dumps(status))
    server.others = [accepts("token-1", "token-2")]
    access = find_access(plugin_kubeconfig(tmp_path, server.url), environ={})
    async with Client(access, user_agent="test") as client:
        await client.get(PERSISTENT_VOLUMES, "a")
        await client.get(PERSISTENT_VOLUMES, "a")
    assert runs(tmp_path) == 2


@pytest.mark.parametrize(
    ("status", "env", "says"),
    [
        ("{}", {}, "neither a token nor"),
        ('{"clientCertificateData": "x"}', {}, "without its key"),
        ('{"token": 5}', {}, "no ExecCredential"),
        ('{"token": "x"}', {"EXIT": "3", "EXTRA": "log in first"}, "exit 3: log in first"),
    ],
)
async def test_a_plugin_that_fails_says_why(
    server: FaultServer, tmp_path: Path, status: str, env: dict[str, str], says: str
) -> None:
    (tmp_path / "status").write_text(status)
    access = find_access(plugin_kubeconfig(tmp_path, server.url, env=env), environ={})
    async with Client(access, user_agent="test") as client:
        with pytest.raises(TellTheAdministrator, match=says) as caught:
            await client.get(PERSISTENT_VOLUMES, "a")
    assert caught.value.reason == "NoCredentials"
    assert "kubeconfig: user.exec.command" in caught.value.message


async def peer(request: web.BaseRequest) -> web.StreamResponse:
    """Names the volume after who the client's certificate says it is."""
    certificate = request.get_extra_info("peercert") or {"subject": []}
    names = [value for part in certificate["subject"] for key, value in part]
    return web.json_response(volume(names[0] if names else "nobody", 1))


def tls_server(authority: Authority, directory: Path) -> AbstractAsyncContextManager[FaultServer]:
    return fault_server(authority.server_context(directory))


def tls(directory: Path, *, insecure: bool = False, pair: bool = False) -> Tls:
    certificate = Pem("user.client-certificate", path=str(directory / "cert.pem"))
    key = Pem("user.client-key", path=str(directory / "key.pem"))
    return Tls(
        authority=Pem("cluster.certificate-authority", path=str(directory / "ca.pem")),
        certificate=certificate if pair else NOTHING,
        key=key if pair else NOTHING,
        insecure=insecure,
    )


def issue(authority: Authority, name: str, directory: Path) -> None:
    signed = authority.sign(name)
    (directory / "cert.pem").write_bytes(signed.certificate)
    (directory / "key.pem").write_bytes(signed.key)


async def test_the_server_must_be_the_clusters(tmp_path: Path) -> None:
    ours, theirs = Authority(), Authority("somebody else")
    async with tls_server(ours, tmp_path) as server:
        server.others = [peer]
        (tmp_path / "ca.pem").write_bytes(theirs.pem)
        async with client_of(server, tls=tls(tmp_path)) as client:
            with pytest.raises(TellTheAdministrator) as caught:
                await client.get(PERSISTENT_VOLUMES, "a")
            assert caught.value.reason == "Certificate"
            # The cluster's authority was rotated and the file rewritten: no restart.
            (tmp_path / "ca.pem").write_bytes(ours.pem)
            assert (await client.get(PERSISTENT_VOLUMES, "a")).metadata.name == "nobody"
        (tmp_path / "ca.pem").write_bytes(theirs.pem)
        async with client_of(server, tls=tls(tmp_path, insecure=True)) as client:
            assert (await client.get(PERSISTENT_VOLUMES, "a")).metadata.name == "nobody"


async def test_the_name_in_the_certificate_counts(tmp_path: Path) -> None:
    authority = Authority()
    async with tls_server(authority, tmp_path) as server:
        server.others = [peer]
        config = {
            "clusters": [
                {
                    "name": "k",
                    "cluster": {
                        # It leads to the same server. A name would take an /etc/hosts.
                        "server": server.url.replace("127.0.0.1", "0.0.0.0"),
                        "certificate-authority": "ca.pem",
                    },
                }
            ],
            "contexts": [{"name": "x", "context": {"cluster": "k"}}],
            "current-context": "x",
        }
        (tmp_path / "ca.pem").write_bytes(authority.pem)
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        async with Client(find_access(str(path), environ={}), user_agent="test") as client:
            with pytest.raises(TellTheAdministrator, match="certificate"):
                await client.get(PERSISTENT_VOLUMES, "a")
        config["clusters"][0]["cluster"]["tls-server-name"] = "api.test"  # type: ignore[index]
        path.write_text(yaml.safe_dump(config))
        async with Client(find_access(str(path), environ={}), user_agent="test") as client:
            assert (await client.get(PERSISTENT_VOLUMES, "a")).metadata.name == "nobody"


async def test_a_client_certificate_that_is_renewed(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    issue(authority, "one", tmp_path)
    async with tls_server(authority, tmp_path) as server:
        server.others = [peer]
        async with client_of(server, tls=tls(tmp_path, pair=True)) as client:
            assert (await client.get(PERSISTENT_VOLUMES, "a")).metadata.name == "one"
            issue(authority, "two", tmp_path)
            # Refused on the connection that still carries the old one.
            server.others = [failure(401, "Unauthorized"), peer]
            assert (await client.get(PERSISTENT_VOLUMES, "a")).metadata.name == "two"


async def test_requests_that_are_refused_together_all_go_with_the_new_certificate(
    tmp_path: Path,
) -> None:
    """The first reads it; the others, answered later, find nothing new but are as outdated."""
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    issue(authority, "one", tmp_path)
    together = asyncio.Barrier(3)

    async def refuse(request: web.BaseRequest) -> web.StreamResponse:
        await together.wait()
        return await failure(401, "Unauthorized")(request)

    async with tls_server(authority, tmp_path) as server:
        server.others = [refuse, refuse, refuse, peer]
        async with client_of(server, tls=tls(tmp_path, pair=True)) as client:
            issue(authority, "two", tmp_path)
            names = ("a", "b", "c")
            got = await asyncio.gather(*(client.get(PERSISTENT_VOLUMES, name) for name in names))
    assert [one.metadata.name for one in got] == ["two"] * 3


async def test_an_authority_that_is_rotated_is_read_for_all_requests_under_way(
    tmp_path: Path,
) -> None:
    ours, theirs = Authority(), Authority("somebody else")
    (tmp_path / "ca.pem").write_bytes(theirs.pem)
    async with tls_server(ours, tmp_path) as server:
        server.others = [peer]
        async with client_of(server, tls=tls(tmp_path)) as client:
            (tmp_path / "ca.pem").write_bytes(ours.pem)
            names = ("a", "b", "c")
            got = await asyncio.gather(*(client.get(PERSISTENT_VOLUMES, name) for name in names))
    assert [one.metadata.name for one in got] == ["nobody"] * 3


def test_a_new_certificate_that_could_not_be_loaded_once_is_loaded_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Descriptors had run out when it came: the files do not change again once there are some."""
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    issue(authority, "one", tmp_path)
    made = tls(tmp_path, pair=True)
    old = made.context
    issue(authority, "two", tmp_path)

    def out_of_descriptors(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "memfd_create", out_of_descriptors)
        with pytest.raises(OSError, match="Too many open files"):
            made.reload()
    assert made.context is old
    made.reload()
    assert made.context is not old


async def test_a_plugins_client_certificate(tmp_path: Path) -> None:
    authority = Authority()
    signed = authority.sign("from-plugin")
    status = {
        "clientCertificateData": signed.certificate.decode(),
        "clientKeyData": signed.key.decode(),
    }
    (tmp_path / "status").write_text(json.dumps(status))
    async with tls_server(authority, tmp_path) as server:
        server.others = [peer]
        path = plugin_kubeconfig(tmp_path, server.url, authority=authority.pem)
        async with Client(find_access(path, environ={}), user_agent="test") as client:
            assert (await client.get(PERSISTENT_VOLUMES, "a")).metadata.name == "from-plugin"
    asked = json.loads((tmp_path / "asked").read_text())
    assert asked["spec"]["cluster"]["certificate-authority-data"]


def test_certificates_that_do_not_load_are_named(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "cert.pem").write_bytes(authority.sign("a").certificate)
    (tmp_path / "key.pem").write_bytes(authority.sign("b").key)
    with pytest.raises(AccessInvalid, match=r"client-certificate.*do not load"):
        tls(tmp_path, pair=True)


def test_without_an_authority_the_systems_count() -> None:
    made = Tls(authority=NOTHING, certificate=NOTHING, key=NOTHING)
    assert made.context.verify_mode is ssl.CERT_REQUIRED
    assert made.context.check_hostname
