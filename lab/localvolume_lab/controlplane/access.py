"""Who may enter the plane and how: tokens fresh per start, kubeconfigs, and plain requests."""

import base64
import csv
import http.client
import io
import json
import os
import secrets
import select
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ADMIN = "admin"


class RequestFailed(Exception):
    """The API server answered with an error; `status` is the HTTP code, `body` what it said."""

    def __init__(self, method: str, path: str, status: int, body: str) -> None:
        super().__init__(f"{method} {path}: {status}: {body[:500]}")
        self.status, self.body = status, body


class Access:
    """The users of one plane and the certificate that its API server made for itself."""

    def __init__(self, url: str, certificate: Path, users: Mapping[str, Sequence[str]]) -> None:
        self.url, self.certificate = url, certificate
        self._groups = {ADMIN: ("system:masters",), **{k: tuple(v) for k, v in users.items()}}
        self.tokens = {user: secrets.token_urlsafe(24) for user in self._groups}
        self._trust: ssl.SSLContext | None = None
        self._idle: list[http.client.HTTPSConnection] = []

    def close(self) -> None:
        """Close the connections that are kept for the next requests."""
        while self._idle:
            self._idle.pop().close()

    def write_tokens(self, path: Path) -> None:
        """The API server's --token-auth-file: token, user, uid, "group,group"."""
        text = io.StringIO()
        writer = csv.writer(text)
        for user, token in self.tokens.items():
            writer.writerow([token, user, user, ",".join(self._groups[user])])
        write_private(path, text.getvalue())

    def write_kubeconfig(self, path: Path, user: str = ADMIN) -> None:
        """A kubeconfig that stands for itself: the certificate is inside, no other file is named.

        Written as JSON, which every reader of kubeconfigs takes for the YAML it also is.
        """
        trust = base64.b64encode(self.certificate.read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "plane",
                    "cluster": {"server": self.url, "certificate-authority-data": trust},
                }
            ],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": user}}],
            "current-context": "plane",
        }
        write_private(path, json.dumps(config, indent=1) + "\n")

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        user: str = ADMIN,
        timeout: float = 60.0,
    ) -> Any:
        """One request; the answer decoded, or its text if not JSON. From any thread.

        Raises RequestFailed for an error status and OSError where there is no answer.
        """
        connection = self._connection(timeout)
        headers = {
            "Authorization": f"Bearer {self.tokens[user]}",
            "Content-Type": content_type,
            "Accept": "application/json",
        }
        text = None if body is None else json.dumps(body)
        try:
            status, text = _exchange(connection, method, path, text, headers)
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None:
            self._idle.append(connection)
        if status >= 400:
            raise RequestFailed(method, path, status, text)
        return json.loads(text) if text.startswith(("{", "[")) else text

    def _connection(self, timeout: float) -> http.client.HTTPSConnection:
        """One that is kept, unless the server has closed it; else a new one.

        A handshake takes longer than most requests do, and half of a server's time.
        """
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was quicker
                break
            if not _has_news(connection):
                connection.sock.settimeout(timeout)
                return connection
            connection.close()
        if self._trust is None:
            self._trust = ssl.create_default_context(cafile=str(self.certificate))
        server = self.url.removeprefix("https://")
        return http.client.HTTPSConnection(server, timeout=timeout, context=self._trust)


def healthy(url: str) -> bool:
    """Whether a component's own endpoint answers 200; its certificate, made in memory, is not
    verified, as nothing is told and nothing is trusted."""
    trust = ssl.create_default_context()
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
    server, _, path = url.removeprefix("https://").partition("/")
    connection = http.client.HTTPSConnection(server, timeout=5.0, context=trust)
    try:
        status, _ = _exchange(connection, "GET", f"/{path}", None, {})
    except OSError:
        return False
    finally:
        connection.close()
    return status == 200


def _exchange(
    connection: http.client.HTTPSConnection,
    method: str,
    path: str,
    body: str | None,
    headers: Mapping[str, str],
) -> tuple[int, str]:
    try:
        connection.request(method, path, body, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace")
    except http.client.HTTPException as error:
        raise ConnectionError(f"{method} {path}: {error!r}") from error


def _has_news(connection: http.client.HTTPSConnection) -> bool:
    """Whether a server says something unasked: that it closes the connection, or has done so."""
    asked = select.poll()
    asked.register(connection.sock, select.POLLIN)
    return bool(asked.poll(0))


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, never readable in between."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
