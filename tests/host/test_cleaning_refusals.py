"""Whose data is it? A block device that is not what was planned, or is in use, is left alone."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.cleaning.method import Method
from localvolume.cleaning.receipt import CleaningRefused
from localvolume.cleaning.target import Target
from localvolume.host.block import blockdev
from localvolume.host.locks import lock_device
from localvolume.host.process.workers import Workers
from tests.host.support_cleaning import (
    DELETE_FILES,
    DISCARD,
    OVERWRITE,
    RESET_SIGNATURES,
    ZERO,
    block_target,
    fill,
    holds_secret,
    run_clean,
)
from tests.host.support_devices import LoopDevice, command, formatted, loop_device, mounted
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop")

MARKER = "ran"
ALL = [ZERO, DISCARD, OVERWRITE, RESET_SIGNATURES, Method("command", command=("touch", MARKER))]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopDevice]:
    monkeypatch.chdir(tmp_path)  # where the command leaves its mark
    with loop_device(16 * MIB) as device:
        fill(device)
        yield device
    assert not os.path.exists(MARKER), "the administrator's command was run"


async def refused(target: Target, method: Method, why: str) -> None:
    with pytest.raises(CleaningRefused, match=why) as caught:
        await run_clean(target, method)
    assert not caught.value.touched


def content(device: LoopDevice) -> bytes:
    with open(device.path, "rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(4 * MIB), b""))


@pytest.mark.parametrize("method", ALL, ids=str)
async def test_a_link_that_was_turned_to_another_disk(
    disk: LoopDevice, method: Method, tmp_path: Path
) -> None:
    link = tmp_path / "volume"
    link.symlink_to(disk.path)
    target = block_target(str(link))
    with loop_device(16 * MIB) as other:
        fill(other)
        link.unlink()
        link.symlink_to(other.path)
        before = content(other)
        await refused(target, method, f"now the device {other.number}, not {disk.number}")
        assert content(other) == before
    assert holds_secret(disk)


@pytest.mark.parametrize("method", ALL, ids=str)
async def test_another_disk_under_the_same_name_and_number(
    disk: LoopDevice, method: Method, tmp_path: Path
) -> None:
    target = block_target(disk)
    path, number = disk.path, disk.number
    disk.detach()
    disk.backing = tmp_path / "stranger"
    disk.backing.write_bytes(bytes(16 * MIB))
    disk.attach(at=path)
    assert disk.number == number
    fill(disk)
    await refused(target, method, "not the volume that was planned")
    assert holds_secret(disk)


@pytest.mark.needs("ext4")
@pytest.mark.parametrize("method", ALL, ids=str)
async def test_a_mounted_device(disk: LoopDevice, method: Method) -> None:
    disk.format("ext4")
    target = block_target(disk)
    with mounted(disk) as where:
        (where / "file").write_text("in use")
        await refused(target, method, "in use by .*mounted at")
        assert (where / "file").read_text() == "in use"


@pytest.mark.needs("ext4")
async def test_a_mounted_partition_of_the_device() -> None:
    with loop_device(96 * MIB) as device:
        target = block_target(device)
        (partition,) = device.partition("64M")
        try:
            command("mkfs.ext4", "-q", partition)
            with mounted(partition) as where:
                await refused(target, ZERO, "in use by .*mounted at")
                assert (where / "lost+found").is_dir()
        finally:
            device.forget_partitions()


@pytest.mark.parametrize("method", ALL, ids=str)
async def test_a_device_under_another_loop_device(disk: LoopDevice, method: Method) -> None:
    # A loop device does not claim what is below it: an exclusive open succeeds.
    with loop_device(backing=Path(disk.path)) as upper:
        await refused(block_target(disk), method, f"in use by .*{upper.name}")
        assert holds_secret(disk)


async def test_a_device_somebody_else_holds_exclusively(disk: LoopDevice) -> None:
    theirs = os.open(disk.path, os.O_RDONLY | os.O_EXCL)
    try:
        await refused(block_target(disk), ZERO, "in use")
    finally:
        os.close(theirs)
    assert holds_secret(disk)


async def test_a_read_only_device(tmp_path: Path) -> None:
    # The kernel refuses to open it for writing.
    backing = tmp_path / "disk"
    backing.write_bytes(bytes(4 * MIB))
    with loop_device(backing=backing, read_only=True) as device:
        for method in ALL:
            await refused(block_target(device), method, "denied|[Rr]ead-only")
    assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("what", ["directory", "file", "fifo", "char", "nothing"])
async def test_a_path_that_leads_to_something_else_now(
    disk: LoopDevice, what: str, tmp_path: Path
) -> None:
    path = tmp_path / "volume"
    path.symlink_to(disk.path)
    target = block_target(str(path))
    path.unlink()
    match what:
        case "directory":
            path.mkdir()
            (path / "data").write_text("somebody's")
        case "file":
            path.write_bytes(b"somebody's")
        case "fifo":
            os.mkfifo(path)
        case "char":
            path.symlink_to("/dev/null")
    await refused(target, ZERO, "not a block device|No such file")
    if what == "directory":
        assert (path / "data").read_text() == "somebody's"
    if what == "file":
        assert path.read_bytes() == b"somebody's"


async def test_what_the_caller_finds_out_at_the_last_moment(disk: LoopDevice) -> None:
    held: list[bool] = []

    def recheck() -> None:
        with pytest.raises(blockdev.InUse):  # nobody can take it between this and the cleaning
            blockdev.exclusive_open(disk.path)
        held.append(True)
        raise CleaningRefused("the PersistentVolume is bound again")

    target = dataclasses.replace(block_target(disk), recheck=recheck)
    for method in ALL:
        await refused(target, method, "bound again")
    assert len(held) == len(ALL)
    assert holds_secret(disk)


async def test_a_recorded_fact_that_cannot_be_seen_any_more(disk: LoopDevice) -> None:
    target = block_target(disk)
    assert target.identity is not None
    target = dataclasses.replace(target, identity={**target.identity, "wwn": "0x5000c500a1b2"})
    await refused(target, ZERO, "wwn was '0x5000c500a1b2' and cannot be read now")
    assert holds_secret(disk)


@pytest.mark.parametrize("method", [ZERO, OVERWRITE, DISCARD, RESET_SIGNATURES], ids=str)
async def test_nobody_can_take_the_device_while_it_is_cleaned(
    disk: LoopDevice, method: Method
) -> None:
    tried: list[str] = []

    class Watched(Workers):
        """Somebody tries before each call but the first, which opens it."""

        async def call(self, key: str, seconds: float, fn: Any, *args: Any) -> Any:
            if tried:
                with pytest.raises(blockdev.InUse):
                    blockdev.exclusive_open(disk.path)
            tried.append(key)
            return await super().call(key, seconds, fn, *args)

    workers = Watched(limit=4)
    await run_clean(block_target(disk), method, workers=workers)
    workers.close()
    assert len(tried) > 3


async def test_a_method_for_the_other_kind_of_volume_is_a_mistake(disk: LoopDevice) -> None:
    with pytest.raises(ValueError, match="no way to clean a block"):
        await run_clean(block_target(disk), DELETE_FILES)
    assert holds_secret(disk)


@pytest.mark.needs("ext4")
async def test_a_device_that_grew_is_still_itself() -> None:
    with formatted("ext4") as device:
        target = block_target(device)
        os.truncate(device.backing, 80 * MIB)
        command("losetup", "--set-capacity", device.path)
        receipt = await run_clean(target, ZERO)
        assert receipt.bytes == 80 * MIB


@pytest.mark.parametrize("method", ALL, ids=str)
async def test_what_another_agent_is_at_work_on(disk: LoopDevice, method: Method) -> None:
    """An administrator's cleaner may have it open for itself: not even exclusively."""
    lock = lock_device(disk.path)
    assert lock is not None
    try:
        await refused(block_target(disk), method, "is being cleaned by another process")
    finally:
        os.close(lock)
    assert holds_secret(disk)


@pytest.mark.parametrize("method", ALL, ids=str)
async def test_a_device_without_a_medium(disk: LoopDevice, method: Method) -> None:
    """It would be proved empty at once."""
    with loop_device(0) as nothing:
        await refused(block_target(nothing), method, "has no size: is there a medium in it")
