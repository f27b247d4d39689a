"""Loop devices by ioctl: attached once, found again, detached only when nobody has them."""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.host.block.blockdev import InUse
from localvolume.host.loop import attach as loopattach
from localvolume.host.loop.attach import Loop, StillInUse
from tests.suite.units import MIB
from tests.suite.until import until

from .support_devices import command

pytestmark = pytest.mark.needs("root", "loop")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "image", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(fd, 4 * MIB)
    try:
        yield fd
        assert not loopattach.on_file(fd)
    finally:
        for loop in loopattach.on_file(fd):
            loopattach.detach(loop)
        os.close(fd)


@contextlib.contextmanager
def attached(file: int, block_size: int = 4096) -> Iterator[Loop]:
    loop = loopattach.attach(file, block_size=block_size)
    try:
        yield loop
    finally:
        loopattach.detach(loop)


@pytest.mark.parametrize("block_size", [512, 4096])
def test_what_is_written_to_the_device_is_in_the_file(file: int, block_size: int) -> None:
    with attached(file, block_size) as loop:
        name = os.path.basename(loop.node)
        assert Path(f"/sys/block/{name}/queue/logical_block_size").read_text() == f"{block_size}\n"
        assert Path(f"/sys/block/{name}/loop/autoclear").read_text() == "0\n"
        with open(loop.node, "r+b", buffering=0) as device:
            device.write(b"\xa5" * 4096)
            os.fsync(device.fileno())
    assert os.pread(file, 4096, 0) == b"\xa5" * 4096


def test_what_was_written_while_another_looked_on_is_in_the_file(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = loopattach.attach(file, block_size=4096)
    looker = os.open(loop.node, os.O_RDONLY)
    Path(loop.node).write_bytes(b"\xa5" * 4096)  # without fsync; the close is not the last one
    ioctl = fcntl.ioctl

    def looked(*args: Any) -> Any:
        """The looker ends once we have claimed the device, and our claim is open longest."""
        os.close(looker)
        monkeypatch.undo()
        return ioctl(*args)

    monkeypatch.setattr(fcntl, "ioctl", looked)
    loopattach.detach(loop)
    assert os.pread(file, 4096, 0) == b"\xa5" * 4096


def test_a_file_is_attached_once_whoever_asks(file: int, tmp_path: Path) -> None:
    other = os.open(tmp_path / "image", os.O_RDWR)
    found: list[Loop] = []
    with attached(file) as loop:
        threads = [
            threading.Thread(target=lambda: found.append(loopattach.attach(other, block_size=4096)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [loop] * 4
        assert loopattach.on_file(other) == [loop]
    os.close(other)
    assert loopattach.look(loop.node) != loop


def test_two_processes_never_attach_it_at_once(file: int, tmp_path: Path) -> None:
    other = os.open(tmp_path / "image", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(StillInUse, match="another process"):
        loopattach.attach(file, block_size=4096)
    os.close(other)
    # Nor does the device keep the lock that attaching took.
    with attached(file):
        other = os.open(tmp_path / "image", os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)


def test_many_at_once_get_devices_of_their_own(tmp_path: Path) -> None:
    files = []
    for number in range(12):
        files.append(os.open(tmp_path / str(number), os.O_RDWR | os.O_CREAT))
        os.ftruncate(files[-1], MIB)
    loops: dict[int, Loop] = {}

    def attach(fd: int) -> None:
        loops[fd] = loopattach.attach(fd, block_size=4096)

    threads = [threading.Thread(target=attach, args=(fd,)) for fd in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert len({loop.node for loop in loops.values()}) == len(files)
        for fd, loop in loops.items():
            found = os.fstat(fd)
            assert loop.behind == (found.st_dev, found.st_ino)
    finally:
        for loop in loops.values():
            loopattach.detach(loop)
        for fd in files:
            os.close(fd)


def test_who_must_know_is_told_before_the_device_has_the_file(file: int) -> None:
    seen: list[tuple[str, Loop | None]] = []
    loop = loopattach.attach(
        file, block_size=4096, chosen=lambda node: seen.append((node, loopattach.look(node)))
    )
    try:
        assert seen[-1] == (loop.node, None)
    finally:
        loopattach.detach(loop)


def test_a_file_that_is_attached_in_another_way_is_left_so(file: int, tmp_path: Path) -> None:
    node = command("losetup", "--find", "--show", "--offset", "4096", tmp_path / "image").strip()
    try:
        with pytest.raises(StillInUse, match=node):
            loopattach.attach(file, block_size=4096)
    finally:
        command("losetup", "--detach", node)
        # Where another process looks at the device just then, it goes when that closes it.
        until(lambda: not loopattach.on_file(file))


def test_a_device_that_is_open_elsewhere_is_not_detached(file: int) -> None:
    with attached(file) as loop:
        held = os.open(loop.node, os.O_RDONLY)
        try:
            with pytest.raises(StillInUse):
                loopattach.detach(loop)
        finally:
            os.close(held)
        # Nor does it go by itself at the last close.
        assert loopattach.look(loop.node) == loop
        claimed = os.open(loop.node, os.O_RDONLY | os.O_EXCL)
        try:
            with pytest.raises(InUse):
                loopattach.detach(loop)
        finally:
            os.close(claimed)


def test_a_device_that_has_another_file_by_now_is_left_alone(file: int, tmp_path: Path) -> None:
    with attached(file) as loop:
        found = os.fstat(file)
        stale = loop._replace(behind=(found.st_dev, found.st_ino + 1))
        loopattach.detach(stale)
        assert loopattach.look(loop.node) == loop
        with pytest.raises(OSError, match="another file"):
            loopattach.set_capacity(stale)


def test_a_borrowed_device_goes_with_its_process(file: int) -> None:
    with loopattach.borrowed(file, block_size=4096) as loop:
        assert not loop.ours
        with pytest.raises(StillInUse):
            loopattach.attach(file, block_size=4096)
    # Where another process looks at the device just then, it goes when that closes it.
    until(lambda: not loopattach.on_file(file))
    child = os.fork()
    if child == 0:
        loopattach.borrowed(file, block_size=4096).__enter__()
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    until(lambda: not loopattach.on_file(file))


def test_the_device_gets_the_size_that_the_file_has_grown_to(file: int) -> None:
    with attached(file) as loop:
        os.ftruncate(file, 8 * MIB)
        loopattach.set_capacity(loop)
        with open(loop.node, "rb") as device:
            assert device.seek(0, os.SEEK_END) == 8 * MIB


def test_only_loop_devices_are_asked(tmp_path: Path) -> None:
    assert loopattach.look("/dev/null") is None
    assert loopattach.look(str(tmp_path / "none")) is None
    (tmp_path / "file").touch()
    assert loopattach.look(str(tmp_path / "file")) is None
