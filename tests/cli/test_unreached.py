"""A cluster that cannot be asked: which server, which kubeconfig, what to try; never a secret."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from localvolume.cli.main import main
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_accounts import kubeconfig as kubeconfig_of

SECRETS = ("s3cret-token", "hunter2")
COMMANDS = (
    ("status",),
    ("status", "--check", "-o", "json"),
    ("why", "pv/x"),
    ("support-bundle", "-o", "{directory}/bundle.tar.gz"),
    ("undo",),
    ("undo", "x"),
    ("move-to-csi", "x", "--yes"),
    ("remove-finalizers", "--all"),
    ("orphans", "--config", "{directory}/config"),
    ("plan", "--config", "{directory}/config", "--node", "x"),
)


def _kubeconfig(directory: Path, server: str) -> Path:
    path = directory / "kubeconfig"
    path.write_text(
        "current-context: prod\n"
        "contexts: [{name: prod, context: {cluster: c, user: u}}]\n"
        f"clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
        f"users: [{{name: u, user: {{token: {SECRETS[0]}}}}}]\n"
    )
    return path


@pytest.fixture
def refusing() -> Iterator[str]:
    """A server at whose address nobody listens, for as long as the test runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"https://127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_says_which_server_and_which_kubeconfig(
    words: tuple[str, ...], refusing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").mkdir()
    path = _kubeconfig(tmp_path, refusing)
    asked = [word.format(directory=tmp_path) for word in words]
    assert main([*asked, "--kubeconfig", str(path)]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"localvolume {words[0]}: the connection was refused",
        f"  server      {refusing}",
        f"  kubeconfig  {path}, context prod",
        "  try         nothing listens at that address: see that the API server runs there",
    ]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_says_that_there_is_no_such_kubeconfig(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").mkdir()
    asked = [word.format(directory=tmp_path) for word in words]
    assert main([*asked, "--kubeconfig", str(tmp_path / "none")]) == 3
    first, advice = capsys.readouterr().err.splitlines()
    assert first == f"localvolume {words[0]}: {tmp_path}/none: no such file"
    assert "--kubeconfig FILE" in advice


def _said(server: str, directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["status", "--kubeconfig", str(_kubeconfig(directory, server))]) == 3
    said = capsys.readouterr()
    assert not [secret for secret in SECRETS if secret in said.out + said.err]
    return said.err


def test_a_name_that_nobody_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # RFC 2606 promises that this name never exists.
    said = _said("https://nowhere.invalid:6443", tmp_path, capsys)
    assert "no address of nowhere.invalid was found" in said
    assert "this host's DNS" in said


@contextlib.contextmanager
def _answering(status: int, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that gives everybody this answer. Gives its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "22")
            self.end_headers()
            self.wfile.write(b"go away\x1b[31m, \xe2\x80\xaestranger"[:22])

        do_CONNECT = do_GET  # noqa: N815 - the name of the verb

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_server_without_tls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with _answering(200) as address:
        said = _said(f"https://{address}", tmp_path, capsys)
    assert "no TLS connection" in said
    assert "with https" in said


def test_an_answer_cannot_write_to_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _answering(403) as address:
        said = _said(f"http://{address}", tmp_path, capsys)
    assert "go away\\x1b[31m" in said
    assert "\x1b" not in said
    assert "\u202e" not in said
    assert "ask for the right that is named" in said


def test_a_proxy_that_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with _answering(407) as address:
        monkeypatch.setenv("HTTPS_PROXY", f"http://bob:hunter2@{address}")
        said = _said("https://192.0.2.1:6443", tmp_path, capsys)
    assert "the proxy answered 407" in said
    assert f"server      https://192.0.2.1:6443, through the proxy http://{address}\n" in said


@pytest.mark.parametrize("proxy", ["http://bob:hun/hunter2@h", "http://bob:hunter2@[::1"])
def test_a_proxys_url_that_is_none_is_not_repeated(
    proxy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    said = _said("https://192.0.2.1:6443", tmp_path, capsys)
    assert "proxy-url, or HTTPS_PROXY, is not a URL: its host or port is not understood" in said


def test_a_password_in_the_servers_url_is_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said("https://bob:hunter2@192.0.2.1:6443", tmp_path, capsys)
    assert "server https://192.0.2.1:6443 has a user name in its URL" in said


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ("https://bob:hun/hunter2@192.0.2.1", "its host or port is not understood"),
        ("https://[::1/hunter2", "its host or port is not understood"),
        ("https://192.0.2.1?token=hunter2", "server https://192.0.2.1 has a query"),
        ("https://bob:hunter2@192.0.2.1/#hunter2", "server https://192.0.2.1/ has a query"),
    ],
)
def test_a_servers_url_that_is_none_is_not_repeated(
    server: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why in _said(server, tmp_path, capsys)


@pytest.mark.needs("controlplane")
def test_a_certificate_of_another_authority(
    control_plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _said(control_plane.url, tmp_path, capsys)
    assert "the server's certificate does not verify" in said
    assert "certificate-authority" in said
    assert control_plane.url in said


@pytest.mark.needs("controlplane")
def test_credentials_that_the_server_does_not_know(
    control_plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kubeconfig_of(control_plane, SECRETS[0], tmp_path)
    assert main(["status", "--kubeconfig", str(path)]) == 3
    said = capsys.readouterr().err
    assert "Unauthorized (401 Unauthorized)" in said
    assert "log in to the cluster again" in said
    assert SECRETS[0] not in said
