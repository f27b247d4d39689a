"""The built FlexVolume client as a process, and a scripted agent on a real socket.

Whatever is called, `call` holds it to kubelet's terms: one JSON object, silence, exit code 0.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "flexvolume-client"
BUILT = ROOT / "build" / "localvolume-flexvolume"
LEGAL = {"Success", "Failure", "Not supported"}
KEYS = {
    *("status", "message", "device", "volumeName", "attached", "capabilities", "volumeNewSize"),
}
PATIENCE = 120.0
SOCKET, TIMEOUT = "LOCALVOLUME_FLEXVOLUME_SOCKET", "LOCALVOLUME_FLEXVOLUME_TIMEOUT"
TARGET = "/var/lib/kubelet/pods/uid/volumes/volumes.k8s.elastic.co~elastic-local/pvc-1"
OPTIONS = {
    "kubernetes.io/fsType": "ext4",
    "kubernetes.io/readwrite": "rw",
    "kubernetes.io/pvOrVolumeName": "pvc-1",
    "kubernetes.io/mounterArgs.FsGroup": "1000",
    "sizeBytes": "1000000",
}
MADE = {"status": "Success", "message": "successfully created the volume"}


def built() -> Path:
    """The client as `make flexvolume-client` builds it; its tests need "go"."""
    done = subprocess.run(
        ["make", "--silent", "flexvolume-client"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return BUILT


def place(executable: Path, directory: Path, content: str | bytes | None = None) -> Path:
    """The client where kubelet finds it, with `.socket` beside it where it has a content."""
    directory.mkdir(parents=True, exist_ok=True)
    client = directory / "elastic-local"
    shutil.copy2(executable, client)
    if content is not None:
        raw = content if isinstance(content, bytes) else content.encode()
        (directory / ".socket").write_bytes(raw)
    return client


def one_object(output: bytes) -> dict[str, Any]:
    """The only JSON object of an output; anything before or after it fails."""
    answer = json.loads(output.decode("utf-8"), object_pairs_hook=without_duplicates)
    assert isinstance(answer, dict), output
    assert answer["status"] in LEGAL, output
    assert isinstance(answer["message"], str), output
    assert set(answer) <= KEYS, output
    assert output.endswith(b"}\n"), output
    return answer


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key comes twice")
    return dict(pairs)


def call(
    client: Path, *arguments: str | bytes, environment: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What the client answers, in an environment that has nothing but what is given here."""
    done = subprocess.run(
        [client, *arguments],
        env=dict(environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )
    assert done.stderr == b"", done.stderr
    assert done.returncode == 0, done
    return one_object(done.stdout)


def mount(client: Path, **environment: str) -> dict[str, Any]:
    return call(client, "mount", TARGET, json.dumps(OPTIONS), environment=environment)


def refused(client: Path, *words: str, **environment: str) -> str:
    """The message of a mount that fails and says these words."""
    answer = mount(client, **environment)
    assert answer["status"] == "Failure"
    for word in words:
        assert word in answer["message"]
    return str(answer["message"])


@dataclass(frozen=True)
class Request:
    line: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def http(
    body: str | bytes | Mapping[str, Any],
    *,
    code: int = 200,
    headers: Sequence[str] = (),
    length: int | None = None,
) -> bytes:
    """A whole HTTP answer; `length` lies about the body's."""
    if isinstance(body, Mapping):
        body = json.dumps(body)
    raw = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {code} Whatever", *headers]
    lines.append(f"Content-Length: {len(raw) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode() + raw


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + end


#: What is done with a caller; what it returns is sent before the connection is closed.
Script = Callable[[socket.socket], bytes]


@dataclass
class Agent:
    """Listens at `path` until the end of its block; `script` may be exchanged between calls."""

    path: Path
    script: bytes | Script = b""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def __enter__(self) -> Self:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen(64)
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()
        self._server = threading.Thread(target=self._serve)
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        # Wakes up accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._server.join(PATIENCE)
        for thread in self._threads:
            thread.join(PATIENCE)
        self._listener.close()

    def wait_for_the_end(self) -> None:
        """For scripts that say nothing more, however long the caller waits."""
        self._ended.wait(PATIENCE)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            thread = threading.Thread(target=self._meet, args=(connection,))
            self._threads = [one for one in self._threads if one.is_alive()]
            self._threads.append(thread)
            thread.start()

    def _meet(self, connection: socket.socket) -> None:
        script = self.script
        with connection, contextlib.suppress(OSError):
            if callable(script):
                connection.sendall(script(connection))
                return
            self.requests.append(read_request(connection))
            connection.sendall(script)


def read_request(connection: socket.socket) -> Request:
    """A whole request with a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _more(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    line, *rest = head.decode().split("\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (one.partition(":") for one in rest)
    }
    while len(body) < int(headers.get("content-length", 0)):
        body += _more(connection)
    return Request(line, headers, body)


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    if not data:
        raise ConnectionError("the caller has gone")
    return data


def spawn_without(client: Path, closed: int, *arguments: str) -> int:
    """Run the client with a standard descriptor closed; its exit code."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        kept = [descriptor for descriptor in (0, 1, 2) if descriptor != closed]
        actions = [(os.POSIX_SPAWN_DUP2, null, descriptor) for descriptor in kept]
        process = os.posix_spawn(
            client,
            [str(client), *arguments],
            {},
            file_actions=[*actions, (os.POSIX_SPAWN_CLOSE, closed)],
        )
    finally:
        os.close(null)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
