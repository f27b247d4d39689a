"""`localvolume clean`: what a cleaning Job runs. The volume it was meant for, or none at all."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import localvolume
from localvolume.cleaning.order import Order
from localvolume.host.locks import lock_device
from localvolume.host.process.workers import Workers
from localvolume.static.facts.survey import Survey
from localvolume.static.model import Entry
from tests.host.support_devices import LoopDevice, formatted, loop_device, mounted
from tests.host.support_paces import PATIENT
from tests.suite import measured

pytestmark = pytest.mark.needs("root", "loop", "ext4")

SECRET = b"the former tenant's secret "
SIZE = 4 << 20
SOURCE = os.path.dirname(os.path.dirname(localvolume.__file__))


def order_for(path: Path, **changes: object) -> Order:
    """What the agent would order for the volume at this path."""

    async def look() -> Entry:
        workers = Workers()
        try:
            entry = Entry("", path.name, str(path), str(path))
            return await Survey(workers, PATIENT).read_now(entry, offered=True)
        finally:
            workers.close()

    entry = asyncio.run(look())
    assert entry.problem is None
    block = entry.kind == "block"
    order = Order(
        kind="block" if block else "filesystem",
        mode="Block" if block else "Filesystem",
        path=entry.path,
        device=entry.device,
        size_bytes=entry.size_bytes,
        identity=entry.identity,
    )
    return replace(order, **changes)  # type: ignore[arg-type]


class Container:
    """Runs the command as a container would have it: these variables, and no others."""

    def __init__(self, directory: Path) -> None:
        self.words = directory / "termination-log"
        self.words.touch()
        self.output = ""

    def start(self, order: Order, *before: str) -> subprocess.Popen[str]:
        return self.start_with(order.arguments(), {order.variable: order.path}, *before)

    def start_with(
        self, arguments: list[str], environment: dict[str, str], *before: str
    ) -> subprocess.Popen[str]:
        words = ["-m", "localvolume", "clean", "--termination-log", str(self.words), *arguments]
        return subprocess.Popen(
            [*before, sys.executable, *words],
            env={
                **measured.environment(),
                "PATH": os.environ["PATH"],
                "PYTHONPATH": SOURCE,
                **environment,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd="/",
        )

    def run(self, order: Order, *before: str) -> int:
        return self.end(self.start(order, *before))

    def end(self, process: subprocess.Popen[str]) -> int:
        self.output, _ = process.communicate(timeout=60)
        assert "Traceback" not in self.output, self.output
        return process.returncode

    def said(self) -> str:
        return self.words.read_text()


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A mounted filesystem with data in it."""
    where = tmp_path / "a disk"
    where.mkdir()
    with formatted("ext4") as device, mounted(device, where):
        (where / "tenant").mkdir()
        (where / "tenant" / "data").write_text("secret")
        yield where


@pytest.fixture
def device() -> Iterator[LoopDevice]:
    with loop_device(SIZE) as device:
        Path(device.path).write_bytes(SECRET * (SIZE // len(SECRET)))
        yield device


def left_in(where: Path) -> list[str]:
    return sorted(path.name for path in where.iterdir() if path.name != "lost+found")


def test_a_filesystem_is_emptied_and_the_receipt_is_the_last_word(
    disk: Path, container: Container
) -> None:
    assert container.run(order_for(disk)) == 0, container.output
    assert left_in(disk) == []
    (line,) = container.said().splitlines()
    receipt = json.loads(line)
    assert receipt["summary"].startswith("delete-files: 2 files and directories")
    assert (receipt["method"], receipt["result"], receipt["files"]) == ("delete-files", "proved", 2)


@pytest.mark.parametrize(
    ("words", "method", "gone"),
    [
        (None, "zero", True),
        (("/scripts/shred.sh", "1"), "overwrite x1", True),
        (("localvolume", "reset-signatures"), "reset-signatures", False),
    ],
)
def test_a_device_is_cleaned_as_its_class_says(
    device: LoopDevice, container: Container, words: tuple[str, ...] | None, method: str, gone: bool
) -> None:
    order = order_for(Path(device.path), command=words)
    assert container.run(order) == 0, container.output
    assert json.loads(container.said())["method"] == method
    assert (SECRET not in Path(device.path).read_bytes()) == gone


def test_a_device_reached_by_a_link_and_offered_as_a_filesystem(
    device: LoopDevice, container: Container, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(device.path)
    order = order_for(tmp_path / "link", mode="Filesystem")
    assert container.run(order) == 0, container.output
    assert json.loads(container.said())["result"] == "signatures-only"


def test_the_administrators_command_has_upstreams_variable(
    device: LoopDevice, container: Container, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    script = f'echo "$LOCAL_PV_BLKDEVICE" > "{seen}"; echo "$@"'
    words = ("/bin/sh", "-c", script, "sh", "--", "--kind", "-x")
    assert container.run(order_for(Path(device.path), command=words)) == 0, container.output
    assert seen.read_text().strip() == device.path
    assert "cleaner: -- --kind -x" in container.output


def test_a_failing_command_is_not_clean_and_says_why(
    device: LoopDevice, container: Container
) -> None:
    words = ("/bin/sh", "-c", "echo no luck today; exit 3")
    assert container.run(order_for(Path(device.path), command=words)) == 1
    assert "ended with 3; its last words: no luck today" in container.said()


@pytest.mark.parametrize(
    "changes",
    [
        {"identity": {"kind": "filesystem", "fsType": "ext4", "uuid": "another", "root": "/"}},
        {"identity": {"kind": "filesystem", "fsType": "ext4", "serial": "S"}},
        {"size_bytes": 12345},
        {"device": "8:250"},
        {"kind": "block"},
    ],
    ids=["uuid", "unseen", "size", "device", "kind"],
)
def test_what_is_not_the_volume_that_was_meant_is_left_alone(
    disk: Path, container: Container, changes: dict[str, object]
) -> None:
    assert container.run(order_for(disk, **changes)) == 1
    assert left_in(disk) == ["tenant"]
    assert str(disk) in container.said()


def test_a_directory_that_is_not_mounted_is_not_emptied(
    tmp_path: Path, container: Container
) -> None:
    where = tmp_path / "disk"
    where.mkdir()
    with formatted("ext4") as device:
        with mounted(device, where):
            order = order_for(where)
        (where / "below").write_text("what lies under the mount point")
        assert container.run(order) == 1
    assert left_in(where) == ["below"]
    assert "is not a valid mount point" in container.said()


def test_a_device_in_use_is_left_alone(container: Container, tmp_path: Path) -> None:
    where = tmp_path / "mounted"
    where.mkdir()
    with formatted("ext4") as device, mounted(device, where):
        (where / "data").write_text("somebody's")
        assert container.run(order_for(Path(device.path))) == 1
        assert "in use" in container.said()
        assert (where / "data").read_text() == "somebody's"


def test_a_volume_that_another_cleans_is_left_to_it(
    device: LoopDevice, container: Container
) -> None:
    order = order_for(Path(device.path))
    held = lock_device(device.path)
    assert held is not None
    try:
        assert container.run(order) == 1
    finally:
        os.close(held)
    assert "being cleaned by another process" in container.said()
    assert SECRET in Path(device.path).read_bytes()


def test_it_works_as_the_first_process_of_a_container(disk: Path, container: Container) -> None:
    """Namespaces of its own: other mount numbers, other process numbers, its own /proc."""
    unshare = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--propagation", "slave")
    assert container.run(order_for(disk), *unshare) == 0, container.output
    assert left_in(disk) == []


def test_told_to_stop_it_stops_soon_and_says_so(device: LoopDevice, container: Container) -> None:
    words = ("/bin/sh", "-c", "echo begun; exec sleep 1000")
    process = container.start(order_for(Path(device.path), command=words))
    assert process.stdout is not None
    for line in process.stdout:
        if "cleaner: begun" in line:
            break
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert container.end(process) == 1
    assert time.monotonic() - began < 60
    assert "stopped while running /bin/sh" in container.said()


def test_its_time_is_limited(device: LoopDevice, container: Container) -> None:
    words = ("/bin/sh", "-c", "exec sleep 1000")
    order = order_for(Path(device.path), command=words, timeout_seconds=1.0)
    assert container.run(order) == 1
    # In whichever step it is over: a machine that is busy may not have begun the command by then.
    assert "not finished after" in container.said()


def test_without_a_place_for_last_words_it_makes_none(
    disk: Path, container: Container, tmp_path: Path
) -> None:
    container.words = tmp_path / "nowhere"
    assert container.run(order_for(disk)) == 0, container.output
    assert not container.words.exists()
    assert "cleaned: delete-files" in container.output


@pytest.mark.parametrize(
    ("arguments", "environment", "why"),
    [
        (["--kind", "tape"], {}, "invalid choice"),
        (["--device", "/dev/sda"], {}, 'no device like "8:16"'),
        (["--size", "-1"], {}, "no number of bytes"),
        (["--size", "much"], {}, "no number of bytes"),
        (["--identity", "{}"], {}, "would fit any volume"),
        (["--identity", "scribble"], {}, "unreadable"),
        (["--timeout", "5"], {}, "lacks a unit"),
        ([], {}, "LOCAL_PV_BLKDEVICE must be the absolute path"),
        ([], {"LOCAL_PV_BLKDEVICE": "dev/sdb"}, "must be the absolute path"),
        ([], {"LOCAL_PV_FILESYSTEM": "/mnt"}, "LOCAL_PV_BLKDEVICE must be"),
        (["--", "/scripts/shred.sh", "0x"], {"LOCAL_PV_BLKDEVICE": "/dev/null"}, "passes"),
    ],
)
def test_what_is_not_understood_is_not_begun(
    container: Container, arguments: list[str], environment: dict[str, str], why: str
) -> None:
    order = Order("block", "Block", "/dev/null", "1:3", 4096, {"kind": "block", "serial": "S"})
    words = [word for word in order.arguments() if word != "--"]
    assert container.end(container.start_with([*words, *arguments], environment)) == 2
    assert why in container.output
