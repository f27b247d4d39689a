"""What the FlexVolume driver makes of an agent that answers late, wrongly, or rightly."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.support_flexclient import (
    MADE,
    TARGET,
    TIMEOUT,
    Agent,
    built,
    call,
    chunked,
    http,
    mount,
    place,
    read_request,
    refused,
)

pytestmark = pytest.mark.needs("flexclient")


@pytest.fixture(scope="module")
def executable() -> Path:
    return built()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with Agent(tmp_path / "agent.sock", http(MADE)) as running:
        yield running


@pytest.fixture
def client(executable: Path, agent: Agent, tmp_path: Path) -> Path:
    return place(executable, tmp_path / "volumes.k8s.elastic.co~elastic-local", f"{agent.path}\n")


class TestDeadline:
    def scripts(self, agent: Agent) -> dict[str, Callable[[socket.socket], bytes]]:
        def silent(connection: socket.socket) -> bytes:
            read_request(connection)
            agent.wait_for_the_end()
            return b""

        def deaf(connection: socket.socket) -> bytes:
            agent.wait_for_the_end()
            return b""

        def dripping(connection: socket.socket) -> bytes:
            read_request(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            for _ in range(1000):
                connection.sendall(b"x")
                time.sleep(0.05)
            return b""

        def dripping_body(connection: socket.socket) -> bytes:
            read_request(connection)
            connection.sendall(http("", length=1000))
            for _ in range(1000):
                connection.sendall(b" ")
                time.sleep(0.05)
            return b""

        return {
            "silent": silent,
            "deaf": deaf,
            "dripping": dripping,
            "dripping body": dripping_body,
        }

    @pytest.mark.parametrize("name", ["silent", "deaf", "dripping", "dripping body"])
    def test_it_is_for_the_whole_call(self, client: Path, agent: Agent, name: str) -> None:
        agent.script = self.scripts(agent)[name]
        began = time.monotonic()
        refused(client, "has not answered mount within 400ms", "log", **{TIMEOUT: "0.4"})
        # What drips does so for fifty seconds.
        assert 0.4 <= time.monotonic() - began < 45

    def test_a_request_that_nobody_reads_ends_too(self, client: Path, agent: Agent) -> None:
        agent.script = self.scripts(agent)["deaf"]
        # Escaped as JSON it has 700 KB, more than a socket holds.
        options = json.dumps({"large": "<" * 120_000})
        answer = call(client, "mount", TARGET, options, environment={TIMEOUT: "0.4"})
        assert "has not answered" in answer["message"]

    @pytest.mark.parametrize("said", ["0", "-1", "soon", "nan", "inf", "1e300", "86401"])
    def test_a_wrong_one_is_said(self, client: Path, agent: Agent, said: str) -> None:
        refused(client, TIMEOUT, "seconds", **{TIMEOUT: said})
        assert not agent.connections


GOOD = json.dumps(MADE).encode()
WRONG = {
    "nothing": b"",
    "garbage": b"\x00\xff\xfe garbage",
    "no HTTP": GOOD,
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "head only": b"HTTP/1.1 200 OK\r\nContent-Le",
    "bad length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n" + GOOD,
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n" + GOOD,
    "empty": http(""),
    "html": http("<html><body>It works!</body></html>", headers=["Content-Type: text/html"]),
    "text": http("Success"),
    "two objects": http(GOOD + GOOD),
    "object and text": http(GOOD + b"\nwarning"),
    "text and object": http(b"warning\n" + GOOD),
    "byte order mark": http(b"\xef\xbb\xbf" + GOOD),
    "array": http(b"[" + GOOD + b"]"),
    "string": http(json.dumps(GOOD.decode())),
    "null": http("null"),
    "empty object": http("{}"),
    "status twice": http('{"status":"Failure","status":"Success","message":""}'),
    "no status": http({"message": "fine"}),
    "null status": http({"status": None}),
    "status in another case": http({"Status": "Success"}),
    "unknown status": http({"status": "OK"}),
    "small success": http({"status": "success"}),
    "wrong spelling": http({"status": "Not Supported"}),
    "number as status": http({"status": 200}),
    "number as message": http({**MADE, "message": 5}),
    "object as device": http({**MADE, "device": {}}),
    "list as volumeName": http({**MADE, "volumeName": []}),
    "text as attached": http({**MADE, "attached": "true"}),
    "list as capabilities": http({**MADE, "capabilities": []}),
    "text in capabilities": http({**MADE, "capabilities": {"attach": "no"}}),
    "text as size": http({**MADE, "volumeNewSize": "5"}),
    "float as size": http('{"status":"Success","volumeNewSize":1e3}'),
    "negative size": http({**MADE, "volumeNewSize": -1}),
    "size beyond int64": http({**MADE, "volumeNewSize": 2**63}),
    "nested too deep": http('{"status":"Success","x":' + "[" * 20_000 + "]" * 20_000 + "}"),
    "shorter than said": http(GOOD, length=len(GOOD) + 1),
    "longer than said": http(GOOD, length=len(GOOD) - 1),
    "cut": http(GOOD[:-1]),
    "cut chunk": chunked(GOOD[:10], end=b"40\r\nabc"),
    "no last chunk": chunked(GOOD, end=b""),
    "bad chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "longer than 1 MiB": http(GOOD + b" " * (1 << 20)),
    "longer than 1 MiB, chunked": chunked(GOOD, *[b" " * 65_536] * 16),
    "redirect": http(GOOD, code=302, headers=["Location: http://localvolume/mount"]),
    "redirect without body": http("", code=307, headers=["Location: /init"]),
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "success with an error's code": http(GOOD, code=500),
    "switching": b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + GOOD,
    "compressed": http(b"\x1f\x8b\x08" + GOOD, headers=["Content-Encoding: gzip"]),
}
RIGHT = {
    "spaces": http(b" \r\n\t" + GOOD + b"\n\n"),
    "chunked": chunked(GOOD[:5], GOOD[5:]),
    "by bytes": chunked(*(bytes([byte]) for byte in GOOD)),
    "HTTP/1.0 until the end": b"HTTP/1.0 200 OK\r\n\r\n" + GOOD,
    "other type": http(GOOD, headers=["Content-Type: text/plain"]),
    "with nulls": http({**MADE, "device": None, "capabilities": None, "volumeNewSize": None}),
    "of 1 MiB": http(GOOD + b" " * ((1 << 20) - len(GOOD))),
    "with other keys": http({**MADE, "Status": "Failure", "state": {"x": [1]}, "code": 0}),
}


class TestReplies:
    @pytest.mark.parametrize("name", WRONG)
    def test_what_is_not_a_reply_is_a_failure_that_says_so(
        self, client: Path, agent: Agent, name: str
    ) -> None:
        agent.script = WRONG[name]
        message = refused(client, str(agent.path))
        assert "log of its pod" in message or "not the agent" in message or "refused" in message

    @pytest.mark.parametrize("name", RIGHT)
    def test_a_right_one_is_passed_on(self, client: Path, agent: Agent, name: str) -> None:
        agent.script = RIGHT[name]
        assert mount(client) == MADE

    def test_only_known_keys_are(self, client: Path, agent: Agent) -> None:
        known = {
            **MADE,
            "device": "/dev/vg/lv",
            "volumeName": "pvc-1",
            "attached": True,
            "capabilities": {"attach": False, "fsGroup": True},
            "volumeNewSize": 2**63 - 1,
        }
        more = {**known, "capabilities": {"attach": False, "fsGroup": True, "more": 1}, "x": []}
        agent.script = http(more)
        assert mount(client) == known

    def test_what_broke_its_encoding_is_readable_still(self, client: Path, agent: Agent) -> None:
        agent.script = http(b'{"status":"Failure","message":"caf\xe9 \\ud800 \\u0000"}')
        assert refused(client) == "caf\ufffd \ufffd \0"

    def test_not_supported_is_not_passed_on(self, client: Path, agent: Agent) -> None:
        # Kubelet would not call mount again until it restarts.
        agent.script = http({"status": "Not supported", "message": "no such driver"})
        refused(client, "no such driver", "not supported")
        assert call(client, "unmount", TARGET)["status"] == "Failure"

    def test_an_error_in_plain_text_is_quoted(self, client: Path, agent: Agent) -> None:
        agent.script = http("EOF\n", code=500, headers=["Content-Type: text/plain"])
        refused(client, "HTTP 500: EOF")
        agent.script = http("x" * 100_000, code=500)
        assert len(refused(client, "HTTP 500")) < 1000

    def test_a_failure_with_an_errors_code_is_passed_on(self, client: Path, agent: Agent) -> None:
        agent.script = http({"status": "Failure", "message": "too long"}, code=413)
        assert refused(client) == "too long"

    def test_a_failure_always_has_a_reason(self, client: Path, agent: Agent) -> None:
        agent.script = http({"status": "Failure", "message": ""})
        assert "log" in refused(client)

    def test_who_refuses_before_it_has_read_is_heard(self, client: Path, agent: Agent) -> None:
        agent.script = lambda _: http({"status": "Failure", "message": "too long"}, code=413)
        options = json.dumps({"large": "<" * 120_000})
        for _ in range(10):
            answer = call(client, "mount", TARGET, options)
            assert answer == {"status": "Failure", "message": "too long"}

    def test_a_body_of_100_mb_is_not_read(self, client: Path, agent: Agent) -> None:
        sent = 0

        def script(connection: socket.socket) -> bytes:
            nonlocal sent
            read_request(connection)
            connection.sendall(http("", length=100 << 20))
            for _ in range(100):
                connection.sendall(b" " * (1 << 20))
                sent += 1
            return b""

        agent.script = script
        refused(client, "longer than 1048576 bytes")
        # What the client has read, and what a socket holds.
        assert sent < 3

    def test_headers_without_end_are_not_read(self, client: Path, agent: Agent) -> None:
        sent = 0

        def script(connection: socket.socket) -> bytes:
            nonlocal sent
            read_request(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            for _ in range(100):
                connection.sendall(b"X: " + b"x" * (1 << 20) + b"\r\n")
                sent += 1
            return b""

        agent.script = script
        refused(client, "no whole answer")
        assert sent < 30
