"""The FlexVolume driver as kubelet runs it: each callout, its arguments, its place, its output.

The built executable runs with an empty environment against real sockets.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.support_flexclient import (
    MADE,
    OPTIONS,
    ROOT,
    SOCKET,
    SOURCES,
    TARGET,
    Agent,
    built,
    call,
    http,
    mount,
    place,
    read_request,
    refused,
    spawn_without,
)

pytestmark = pytest.mark.needs("flexclient")

OTHERS = [
    *("getvolumename", "attach", "detach", "isattached", "waitforattach"),
    *("mountdevice", "unmountdevice", "expandvolume", "expandfs"),
]


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


class TestCallouts:
    def test_init_is_answered_where_no_agent_runs(self, executable: Path, tmp_path: Path) -> None:
        """E-FV-06, E-FV-10, W-14."""
        client = place(executable, tmp_path / "driver", str(tmp_path / "absent"))
        assert call(client, "init") == {
            "status": "Success",
            "message": "driver is available",
            "capabilities": {
                "attach": False,
                "selinuxRelabel": True,
                "supportsMetrics": True,
                "fsGroup": True,
                "requiresFSResize": False,
            },
        }

    def test_mount_posts_the_directory_and_the_options(self, client: Path, agent: Agent) -> None:
        """E-FV-11: client: Post, its errors, a body that is no JSON."""
        assert mount(client) == MADE
        (request,) = agent.requests
        assert request.line == "POST /mount HTTP/1.1"
        assert request.headers["content-type"] == "application/json"
        assert request.headers["connection"] == "close"
        assert request.json == {"targetDir": TARGET, "options": OPTIONS}

    def test_mount_without_options_has_none(self, client: Path, agent: Agent) -> None:
        assert call(client, "mount", TARGET) == MADE
        assert agent.requests[0].json == {"targetDir": TARGET, "options": {}}

    def test_unmount_posts_the_directory(self, client: Path, agent: Agent) -> None:
        gone = {"status": "Success", "message": "successfully unmounted the volume"}
        agent.script = http(gone)
        assert call(client, "unmount", TARGET) == gone
        (request,) = agent.requests
        assert request.line == "POST /unmount HTTP/1.1"
        assert request.json == {"targetDir": TARGET}

    @pytest.mark.parametrize("callout", [*OTHERS, "Mount", "", "MOUNT", "mount ", "--help", "é"])
    def test_every_other_callout_is_not_supported(
        self, client: Path, agent: Agent, callout: str
    ) -> None:
        """W-12, W-13."""
        answer = call(client, callout, json.dumps(OPTIONS), "/dev/x", "1", "2")
        # To the letter: kubelet takes "Not Supported" for a failure.
        assert answer["status"] == "Not supported"
        assert not agent.connections

    def test_version_is_the_packages(self, executable: Path) -> None:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        assert call(executable, "version") == {"status": "Success", "message": project["version"]}


class TestArguments:
    @pytest.mark.parametrize(
        "arguments",
        [
            (),
            ("mount",),
            ("mount", ""),
            ("mount", "relative", "{}"),
            ("mount", b"/not-\xff-utf8", "{}"),
            ("mount", TARGET, "{}", "{}"),
            ("unmount",),
            ("unmount", ""),
            ("unmount", b"/\xc3"),
            ("unmount", TARGET, "{}"),
        ],
    )
    def test_wrong_arguments_fail_without_the_agent(
        self, client: Path, agent: Agent, arguments: tuple[str | bytes, ...]
    ) -> None:
        assert call(client, *arguments)["status"] == "Failure"
        assert not agent.connections

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ("", "not one JSON value"),
            ("sizeBytes=1", "not one JSON value"),
            ("{}{}", "not one JSON value"),
            ('{"a":"1"', "not one JSON value"),
            ("null", "not an object"),
            ('["a"]', "not an object"),
            ('"a"', "not an object"),
            ('{"a": 1}', "is a number"),
            ('{"a" : null}', "is null"),
            ('{"a":true}', "is a boolean"),
            ('{"a":{"b":"c"}}', "is an object"),
            ('{"a":[]}', "is an array"),
            ('{"a":"1","a":"2"}', "twice"),
            (b'{"a":"\xff"}', "not UTF-8"),
            ("[" * 60_000, "not one JSON value"),
        ],
    )
    def test_options_that_are_no_map_of_strings_fail_without_the_agent(
        self, client: Path, agent: Agent, options: str | bytes, why: str
    ) -> None:
        answer = call(client, "mount", TARGET, options)
        assert answer["status"] == "Failure"
        assert why in answer["message"]
        assert not agent.connections

    def test_who_calls_it_without_any_learns_which_there_are(self, executable: Path) -> None:
        assert "init | mount | unmount" in call(executable)["message"]

    def test_a_failure_does_not_show_the_values_of_options(self, client: Path) -> None:
        answer = call(client, "mount", TARGET, '{"kubernetes.io/secret/key":"hidden","a":1}')
        assert "hidden" not in json.dumps(answer)

    def test_whatever_json_can_carry_arrives_unchanged(self, client: Path, agent: Agent) -> None:
        options = {"": "", "é\u2028 😀": 'quotes " \\ </script>\n\t\u0001', "sizeBytes": " 1 "}
        target = "/var/ ü\n\"'/pvc"
        assert call(client, "mount", target, json.dumps(options)) == MADE
        assert agent.requests[0].json == {"targetDir": target, "options": options}

    def test_as_much_as_the_kernel_passes(self, client: Path, agent: Agent) -> None:
        # One argument has at most 128 KiB; all of them a quarter of the stack's limit.
        options = {"large": "<" * 120_000}
        assert call(client, "mount", TARGET, json.dumps(options)) == MADE
        assert agent.requests[0].json["options"] == options
        many = ["x" * 100_000] * 15
        assert call(client, "mount", *many)["status"] == "Failure"
        assert call(client, "attach", *many)["status"] == "Not supported"
        assert len(call(client, "x" * 130_000)["message"]) < 200

    def test_a_message_is_cut_to_what_an_event_can_show(self, client: Path, agent: Agent) -> None:
        agent.script = http({"status": "Failure", "message": "é" * 9000})
        assert refused(client) == "é" * 4095 + "…"


class TestWhereTheAgentIs:
    def test_the_path_may_end_without_a_newline(self, client: Path, agent: Agent) -> None:
        (client.parent / ".socket").write_text(str(agent.path))
        assert mount(client) == MADE

    def test_the_file_counts_beside_what_a_link_points_to(
        self, client: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / ".socket").write_text("/nowhere\n")
        link = tmp_path / "elsewhere" / "driver"
        link.symlink_to(client)
        assert mount(link) == MADE

    def test_it_counts_before_the_default(self, executable: Path, tmp_path: Path) -> None:
        alone = place(executable, tmp_path / "alone")
        refused(alone, "/run/localvolume/flexvolume.sock", "is its pod running on this node?")

    def test_the_environment_counts_before_the_file(
        self, executable: Path, agent: Agent, tmp_path: Path
    ) -> None:
        client = place(executable, tmp_path / "driver", "/nowhere\n")
        assert mount(client, **{SOCKET: str(agent.path)}) == MADE
        refused(client, SOCKET, "absolute", **{SOCKET: "relative.sock"})

    @pytest.mark.parametrize(
        "content",
        [
            *(b"", b"\n", b"relative.sock\n", b"/a/../b\n", b"/a//b", b"/a\n/b\n", b"/a\0b"),
            *(b"/\xff", b"/a\r\n", b"/" + b"x" * 107, b"/x" * 40_000),
        ],
    )
    def test_a_wrong_file_is_not_passed_over(
        self, executable: Path, tmp_path: Path, content: bytes
    ) -> None:
        client = place(executable, tmp_path / "driver", content)
        message = refused(client, str(client.parent / ".socket"))
        assert "/run/localvolume" not in message
        assert call(client, "init")["status"] == "Success"

    def test_a_file_that_is_none_is_not_waited_for(self, executable: Path, tmp_path: Path) -> None:
        client = place(executable, tmp_path / "driver")
        os.mkfifo(client.parent / ".socket")
        refused(client, "not a regular file")
        (client.parent / ".socket").unlink()
        (client.parent / ".socket").mkdir()
        refused(client, "not a regular file")

    def test_an_upgrade_of_the_executable_does_not_move_it(
        self, client: Path, agent: Agent
    ) -> None:
        asked, replaced = threading.Event(), threading.Event()

        def script(connection: socket.socket) -> bytes:
            read_request(connection)
            asked.set()
            assert replaced.wait(120)
            return http(MADE)

        agent.script = script
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(mount, client)
            assert asked.wait(120)
            shutil.copy2(client, client.with_name(".new"))
            client.with_name(".new").rename(client)
            replaced.set()
            assert running.result(240) == MADE


class TestAgentThatIsNotThere:
    def test_no_socket(self, executable: Path, tmp_path: Path) -> None:
        """E-FV-11: client: Post, its errors, a body that is no JSON."""
        client = place(executable, tmp_path / "driver", f"{tmp_path}/absent.sock\n")
        refused(client, f"{tmp_path}/absent.sock", "no such socket", "is its pod running")

    def test_something_that_is_no_socket(self, executable: Path, tmp_path: Path) -> None:
        (tmp_path / "plain").write_text("")
        client = place(executable, tmp_path / "driver", str(tmp_path / "plain"))
        refused(client, "not a socket", "is its pod running")
        client = place(executable, tmp_path / "driver", str(tmp_path))
        refused(client, "not a socket")

    def test_a_socket_where_nobody_listens(self, executable: Path, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(tmp_path / "left.sock"))
        client = place(executable, tmp_path / "driver", str(tmp_path / "left.sock"))
        refused(client, "nobody listens", "is its pod running")

    def test_a_socket_of_another_kind(self, executable: Path, tmp_path: Path) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
            datagrams.bind(str(tmp_path / "datagram.sock"))
            client = place(executable, tmp_path / "driver", str(tmp_path / "datagram.sock"))
            refused(client, "wrong type")

    def test_a_queue_before_the_socket_is_waited_for(
        self, executable: Path, tmp_path: Path
    ) -> None:
        path = str(tmp_path / "busy.sock")
        client = place(executable, tmp_path / "driver", path)
        with socket.socket(socket.AF_UNIX) as listener, ThreadPoolExecutor(1) as pool:
            listener.bind(path)
            listener.listen(0)
            first = socket.socket(socket.AF_UNIX)
            with first:
                first.connect(path)
                running = pool.submit(mount, client)
                time.sleep(0.3)
                assert not running.done()
                listener.accept()[0].close()
                connection, _ = listener.accept()
                with connection:
                    read_request(connection)
                    connection.sendall(http(MADE))
                assert running.result(240) == MADE


class TestOutput:
    """What the answer is written to, and what may get between it and kubelet."""

    def test_a_reader_that_has_gone_is_an_error_and_no_signal(self, client: Path) -> None:
        ours, its = os.pipe()
        os.close(ours)
        with os.fdopen(its, "wb") as output:
            done = subprocess.run([client, "init"], env={}, stdout=output, stderr=subprocess.PIPE)
        assert (done.returncode, done.stderr) == (1, b"")

    def test_a_full_disk_is_an_error(self, client: Path) -> None:
        with Path("/dev/full").open("wb") as output:
            done = subprocess.run([client, "init"], env={}, stdout=output, stderr=subprocess.PIPE)
        assert (done.returncode, done.stderr) == (1, b"")

    @pytest.mark.parametrize("closed", [0, 1, 2])
    def test_a_closed_descriptor_is_not_taken_for_the_socket(
        self, client: Path, agent: Agent, closed: int
    ) -> None:
        received = b""
        ended = threading.Event()

        def script(connection: socket.socket) -> bytes:
            nonlocal received
            read_request(connection)
            connection.sendall(http(MADE))
            try:
                while data := connection.recv(1000):
                    received += data
            finally:
                ended.set()
            return b""

        agent.script = script
        assert spawn_without(client, closed, "mount", TARGET) == 0
        assert ended.wait(120)
        assert received == b""

    def test_the_runtimes_own_words_are_not_heard(self, client: Path, agent: Agent) -> None:
        agent.script = http(json.dumps(MADE).ljust(1 << 20))
        assert mount(client, GODEBUG="gctrace=1") == MADE

    @pytest.mark.parametrize(
        ("fault", "status"),
        [
            ('panic("broken")', "Failure"),
            ("_ = arguments[99]; return reply{}", "Failure"),
            (
                'print("noise"); os.Stderr.WriteString("more"); return reply{Status: success}',
                "Success",
            ),
        ],
    )
    def test_a_bug_is_answered_as_well(
        self, executable: Path, tmp_path: Path, fault: str, status: str
    ) -> None:
        shutil.copytree(SOURCES, tmp_path / "sources")
        (tmp_path / "sources" / "fault.go").write_text(
            'package main\n\nimport "os"\n\nvar _ = os.Args\n\n'
            f'func init() {{ callouts["mount"] = func(arguments []string) reply {{ {fault} }} }}\n'
        )
        subprocess.run(
            ["go", "build", "-trimpath", "-buildvcs=false", "-o", tmp_path / "broken", "."],
            cwd=tmp_path / "sources",
            env={**os.environ, "CGO_ENABLED": "0"},
            check=True,
        )
        answer = call(tmp_path / "broken", "mount", TARGET)
        assert answer["status"] == status
        assert status == "Success" or "please report" in answer["message"]


class TestExecutable:
    def test_it_needs_no_interpreter_and_no_library(self, executable: Path) -> None:
        with executable.open("rb") as file:
            head = file.read(64)
            assert head[:5] == b"\x7fELF\x02"
            (start,) = struct.unpack_from("<Q", head, 32)
            size, count = struct.unpack_from("<HH", head, 54)
            file.seek(start)
            table = file.read(size * count)
        kinds = {struct.unpack_from("<I", table, index * size)[0] for index in range(count)}
        assert 1 in kinds  # PT_LOAD: the table was read right
        assert not kinds & {2, 3}  # PT_DYNAMIC, PT_INTERP

    def test_it_is_made_of_the_standard_library_only(self) -> None:
        assert "require" not in (SOURCES / "go.mod").read_text()
        assert not (SOURCES / "go.sum").exists()

    @pytest.mark.parametrize("tool", [("gofmt", "-l", "."), ("go", "vet", "-trimpath", "./...")])
    def test_its_sources_are_in_order(self, tool: tuple[str, ...]) -> None:
        environment = {**os.environ, "CGO_ENABLED": "0"}
        done = subprocess.run(tool, cwd=SOURCES, capture_output=True, env=environment)
        assert (done.returncode, done.stdout) == (0, b""), done.stderr

    def test_it_holds_no_path_of_the_machine_that_built_it(self, executable: Path) -> None:
        assert str(ROOT).encode() not in executable.read_bytes()

    @pytest.mark.needs("root")
    def test_it_runs_where_there_is_nothing_else(self, client: Path, tmp_path: Path) -> None:
        root = tmp_path / "root"
        root.mkdir()
        shutil.copy2(client, root / "driver")
        (root / "dev").mkdir()
        (root / "dev" / "null").touch()
        done = subprocess.run(
            ["chroot", str(root), "/driver", "init"], capture_output=True, timeout=120
        )
        assert (done.returncode, done.stderr) == (0, b"")
        assert json.loads(done.stdout)["status"] == "Success"


class TestElasticUnits:
    """The unit behaviours of elastic's packages `client` and `flex`, by their names there."""

    def test_client_init_returns_the_body(self, client: Path) -> None:
        """E-FV-06: client: Init."""
        answer = call(client, "init")
        assert answer["message"] == "driver is available"
        assert answer["capabilities"]["attach"] is False

    @pytest.mark.parametrize("command", ["mount", "unmount"])
    def test_client_mount_and_unmount_return_the_body(
        self, client: Path, agent: Agent, command: str
    ) -> None:
        """E-FV-07, E-FV-08."""
        body = {**MADE, "capabilities": {"attach": False}}
        agent.script = http(json.dumps(body) + "\n\n")
        assert call(client, command, TARGET) == body

    @pytest.mark.parametrize("command", ["mount", "unmount"])
    def test_client_mount_and_unmount_return_the_error_text(
        self, client: Path, agent: Agent, command: str
    ) -> None:
        """E-FV-07, E-FV-08."""
        agent.script = http("EOF", code=500)
        answer = call(client, command, TARGET)
        assert answer["status"] == "Failure"
        assert "EOF" in answer["message"]

    def test_client_mount_accepts_options(self, client: Path, agent: Agent) -> None:
        """E-FV-09: client: Mount accepts options, rejects what is no JSON."""
        assert call(client, "mount", TARGET, '{"sizeBytes":"123"}') == MADE
        assert agent.requests[0].json["options"] == {"sizeBytes": "123"}

    def test_client_mount_rejects_non_json(self, client: Path) -> None:
        """E-FV-09: client: Mount accepts options, rejects what is no JSON."""
        assert call(client, "mount", TARGET, "{sizeBytes}")["status"] == "Failure"

    def test_client_post_unmarshalable_body(self, client: Path) -> None:
        """E-FV-11: client: Post, its errors, a body that is no JSON."""
        assert call(client, "mount", b"/\xff")["status"] == "Failure"

    def test_client_transport_is_never_nil(self, executable: Path, tmp_path: Path) -> None:
        """E-FV-12: client: there is always a transport."""
        client = place(executable, tmp_path / "driver", str(tmp_path / "absent"))
        assert call(client, "unmount", TARGET)["status"] == "Failure"

    @pytest.mark.parametrize(
        ("arguments", "status"),
        [(("init",), "Success"), (("mount",), "Failure"), (("attach",), "Not supported")],
    )
    def test_flex_success_failure_not_supported(
        self, client: Path, arguments: tuple[str, ...], status: str
    ) -> None:
        """E-FV-05: flex: NotSupported."""
        assert call(client, *arguments)["status"] == status
