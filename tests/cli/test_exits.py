"""How commands end that are not understood, not read to the end, or interrupted."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from localvolume.cli.main import COMMANDS, main
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.kinds import PERSISTENT_VOLUMES
from localvolume_lab.sandbox import Sandbox

QUIET = (141, b"")
VOLUME = {
    "metadata": {"name": "one"},
    "spec": {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "hostPath": {"path": "/mnt/one"},
    },
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_word_that_a_command_does_not_know_is_wrong_usage(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--no-such-flag"])
    assert caught.value.code == 2
    assert "usage: " in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "orphans"])
def test_a_configuration_that_is_not_understood_is_wrong_usage(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "storageClasMap").write_text("fast: {}\n")
    assert main([command, "--config", str(tmp_path), "--node", "x"]) == 2
    assert "storageClassMap" in capsys.readouterr().err


def test_a_path_that_is_no_text_is_printed_escaped(tmp_path: Path) -> None:
    """As a terminal's encoding has it; that of C.UTF-8 would pass the bytes on."""
    where = os.fsencode(tmp_path) + b"/a\xff"
    os.mkdir(where)
    with open(where + b"/pools", "w") as file:
        file.write("fast: {path: relative}\n")
    words = [sys.executable, "-m", "localvolume", "check-config", os.fsdecode(where)]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(words, capture_output=True, env=environment, timeout=300)
    assert (done.returncode, done.stderr) == (1, b"")
    assert b"/a\\udcff/pools: " in done.stdout


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "--config", "{wrong}"],
        ["orphans", "--config", "{wrong}"],
        ["check-config", "{none}"],
        ["forget", "{none}", "--records-dir", "{wrong}"],
        ["restamp", "{none}"],
        ["status", "--watch", "-o", "json"],
        *(
            [*command, "--kubeconfig", "{none}"]
            for command in (
                ["plan", "--config", "{good}", "--node", "x"],
                ["orphans", "--config", "{good}", "--node", "x"],
                ["status"],
                ["why", "pv/x"],
                ["version"],
                ["support-bundle"],
                ["undo", "x"],
                ["move-to-csi", "x"],
                ["remove-finalizers", "--node", "x"],
            )
        ),
    ],
    ids=" ".join,
)
def test_what_is_refused_begins_with_the_commands_name(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So does each further line, unless it is indented."""
    good = "fast:\n  hostDir: /mnt/fast\n  mountDir: /mnt/fast\n"
    for name, key, text in (
        ("wrong", "storageClasMap", "fast: {}\n"),
        ("good", "storageClassMap", good),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / key).write_text(text)
    (tmp_path / "wrong" / "labelsForPV").write_text("[")
    places = {name: str(tmp_path / name) for name in ("wrong", "good", "none")}
    assert main([word.format(**places) for word in words]) != 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line[:2] != "  "]
    assert lines
    assert [line for line in lines if not line.startswith(f"localvolume {words[0]}: ")] == []


@pytest.mark.parametrize("buffered", [True, False], ids=["buffered", "unbuffered"])
async def test_output_that_nobody_reads_is_no_error(tmp_path: Path, *, buffered: bool) -> None:
    """As `| head -1` does it, at a moment that is always the same: before the first byte."""
    good = "fast:\n  hostDir: /mnt/fast\n  mountDir: /mnt/fast\n"
    (tmp_path / "storageClassMap").write_text(good)
    offline = ["--config", str(tmp_path), "--node", "x", "--offline"]
    assert _unread(["check-config", "--no-host-checks", str(tmp_path)], buffered) == QUIET
    assert _unread(["plan", *offline], buffered) == QUIET
    async with Sandbox() as sandbox:
        access = ["--kubeconfig", str(sandbox.kubeconfig(tmp_path / "kubeconfig"))]
        async with Client(find_access(access[1]), user_agent="test") as client:
            await client.create(PERSISTENT_VOLUMES, VOLUME)
        for words in (["why", "pv/one"], ["status"], ["status", "-o", "json"], ["undo"]):
            assert await asyncio.to_thread(_unread, [*words, *access], buffered) == QUIET, words


@pytest.mark.parametrize("command", COMMANDS)
def test_nobody_reads_the_help(command: str) -> None:
    status, errors = _unread([command, "--help"], buffered=True)
    # argparse takes no notice of an error when it writes, only we do when Python has a buffer.
    assert (status in (0, 141), errors) == (True, b"")


def _unread(words: list[str], buffered: bool) -> tuple[int, bytes]:
    """The exit status and the errors of a command whose output nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "localvolume", *words],
            stdout=writing,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"},
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.parametrize("buffered", [True, False], ids=["buffered", "unbuffered"])
def test_output_that_cannot_be_written_is_told(*, buffered: bool) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "localvolume", "completion", "bash"],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"},
            timeout=60,
            check=False,
        )
    told = b"localvolume: the output could not be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)


@pytest.mark.parametrize(
    ("words", "closed", "status"),
    [("version --client", ">&-", 0), ("bogus", "2>&-", 2), ("check-config -", "<&-", 1)],
)
def test_an_input_or_output_that_is_closed(words: str, closed: str, status: int) -> None:
    shell = f'exec "$0" -m localvolume {words} {closed}'
    done = subprocess.run(
        ["bash", "-c", shell, sys.executable], stderr=subprocess.PIPE, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (status, b"")


def test_a_command_that_is_interrupted_says_nothing(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        path = tmp_path / "kubeconfig"
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        path.write_text(
            "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: ''}}]\n"
            f"clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n"
        )
        command = subprocess.Popen(
            [sys.executable, "-m", "localvolume", "status", "--kubeconfig", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        # It has asked, and waits for the answer.
        asked, _ = silent.accept()
        with asked:
            assert asked.recv(1)
            command.send_signal(signal.SIGINT)
            out, err = command.communicate(timeout=60)
    assert (command.returncode, out, err) == (130, b"", b"")
