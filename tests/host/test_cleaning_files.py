"""Emptying real filesystems: only while they are what was planned, and nothing beside them."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from localvolume.cleaning import priority
from localvolume.cleaning.paces import CleaningPaces
from localvolume.cleaning.receipt import (
    CleaningFailed,
    CleaningRefused,
    CleaningStopped,
    Progress,
)
from localvolume.cleaning.target import Target
from localvolume.host.filesystem.filesystems import looks_empty
from localvolume.host.process.workers import Workers
from tests.host.support_cleaning import DELETE_FILES, ZERO, mount_target, run_clean
from tests.host.support_devices import (
    bind,
    command,
    filesystem,
    formatted,
    immutable,
    loop_device,
    mounted,
    tmpfs,
    unmount,
)
from tests.host.support_failing import waits_for_a_disk
from tests.suite.clock import LONG, Clock
from tests.suite.units import MIB
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("root")

EXT4 = pytest.mark.needs("loop", "ext4")
EACH = [
    pytest.param("ext4", marks=EXT4),
    pytest.param("xfs", marks=pytest.mark.needs("loop", "xfs")),
    pytest.param("btrfs", marks=pytest.mark.needs("loop", "btrfs")),
    "tmpfs",
]


def fill(where: Path, count: int = 200) -> None:
    """The old tenant: files, directories, links, a FIFO, names that are not text."""
    for number in range(count):
        directory = where / f"d{number % 7}" / f"e{number % 3}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"file {number}\n").write_bytes(b"secret" * number)
    (where / "link").symlink_to("/etc")
    os.mkfifo(where / "fifo")
    with open(os.fsencode(where) + b"/\xff\xfe", "wb") as file:
        file.write(b"x")
    if (where / "lost+found").is_dir():
        (where / "lost+found" / "#12").write_text("found by fsck")


def names(where: Path) -> set[str]:
    return {str(path.relative_to(where)) for path in where.rglob("*")}


async def refused(target: Target, why: str) -> None:
    with pytest.raises(CleaningRefused, match=why) as caught:
        await run_clean(target, DELETE_FILES)
    assert not caught.value.touched


@pytest.mark.parametrize("fstype", EACH)
async def test_nothing_is_left_but_the_filesystem(fstype: str) -> None:
    with filesystem(fstype) as where:
        fill(where)
        receipt = await run_clean(mount_target(where), DELETE_FILES)
        assert names(where) == ({"lost+found"} if fstype == "ext4" else set())
        assert looks_empty(str(where)).empty
        assert (receipt.result, receipt.detail) == ("proved", "read back empty")
        assert receipt.files > 200 + 7
        assert receipt.bytes > 100_000
        assert receipt.summary().startswith(f"delete-files: {receipt.files} files and directories")


@pytest.mark.parametrize("fstype", EACH)
async def test_an_empty_one_is_clean(fstype: str) -> None:
    with filesystem(fstype) as where:
        receipt = await run_clean(mount_target(where), DELETE_FILES)
        assert (receipt.files, receipt.bytes, receipt.result) == (0, 0, "proved")


@pytest.mark.parametrize("fstype", EACH)
async def test_unmounted_since_the_plan_the_directory_below_is_not_touched(
    fstype: str, tmp_path: Path
) -> None:
    # Upstream empties it, deletes the PV, and publishes the old data when it is mounted again.
    (tmp_path / "host file").write_text("the host's")
    with filesystem(fstype) as elsewhere, bind(elsewhere, tmp_path):
        fill(tmp_path)
        target = mount_target(tmp_path)
        unmount(tmp_path)
        await refused(target, "no longer the mount")
        assert names(tmp_path) == {"host file"}
        assert len(names(elsewhere)) > 200


@EXT4
async def test_detached_in_the_moment_it_is_cleaned(tmp_path: Path) -> None:
    # Held open, it cannot be unmounted, only detached; the path then leads to the host's directory.
    (tmp_path / "host file").write_text("the host's")
    with formatted("ext4") as device:
        with mounted(device, tmp_path):
            fill(tmp_path)

            def detach() -> None:
                command("umount", "--lazy", tmp_path)

            await refused(dataclasses.replace(mount_target(tmp_path), recheck=detach), "mount")
        assert names(tmp_path) == {"host file"}
        with mounted(device) as again:
            assert len(names(again)) > 200


@EXT4
async def test_another_filesystem_in_its_place() -> None:
    with formatted("ext4") as ours, formatted("ext4") as theirs, tmpfs() as base:
        where = base / "volume"
        where.mkdir()
        with mounted(ours, where):
            planned = mount_target(where)
        with mounted(theirs, where):
            fill(where)
            now = mount_target(where)
            before = names(where)
            # As it is; and with a mount id, or also a device number, that the kernel used again.
            await refused(planned, "no longer the mount|not the volume|device")
            same_mount = dataclasses.replace(planned, mount_id=now.mount_id)
            await refused(same_mount, "is now on device|not the volume that was planned")
            same_numbers = dataclasses.replace(same_mount, device=now.device)
            await refused(same_numbers, "not the volume that was planned: its uuid was")
            assert names(where) == before


@EXT4
async def test_mounted_anew_it_must_be_planned_anew() -> None:
    with formatted("ext4") as device, tmpfs() as base:
        where = base / "volume"
        where.mkdir()
        with mounted(device, where):
            fill(where)
            target = dataclasses.replace(mount_target(where), mount_id=1)
            await refused(target, "no longer the mount 1 ")
            assert len(names(where)) > 200


async def test_on_another_device_than_planned() -> None:
    with tmpfs() as where:
        fill(where)
        target = dataclasses.replace(mount_target(where), device="8:1")
        await refused(target, "not 8:1")
        assert len(names(where)) > 200


async def test_a_directory_within_the_mount_is_not_the_volume() -> None:
    with tmpfs() as where:
        (where / "inside").mkdir()
        fill(where / "inside")
        target = dataclasses.replace(mount_target(where), path=str(where / "inside"))
        await refused(target, "no longer the mount")
        assert len(names(where)) > 200


async def test_something_mounted_over_it() -> None:
    with tmpfs() as where:
        fill(where)
        target = mount_target(where)
        with tmpfs(where):
            (where / "upper").write_text("theirs")
            await refused(target, "no longer the mount")
            assert names(where) == {"upper"}
        assert len(names(where)) > 200


async def test_a_link_to_the_mount_point(tmp_path: Path) -> None:
    with tmpfs() as where:
        fill(where)
        link = tmp_path / "link"
        link.symlink_to(where)
        target = dataclasses.replace(mount_target(where), path=str(link))
        await refused(target, "Not a directory|symbolic")
        assert len(names(where)) > 200


@pytest.mark.parametrize("kind", ["tmpfs", "bind from elsewhere", "bind of itself"])
async def test_a_mount_inside_it(kind: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("somebody's")
    with tmpfs() as where:
        fill(where)
        inside = where / "d1" / "deep" / "inside"
        inside.mkdir(parents=True)
        (where / "own").mkdir()
        (where / "own" / "file").write_text("own")
        ways: dict[str, Callable[[], AbstractContextManager[Path]]] = {
            "tmpfs": lambda: tmpfs(inside),
            "bind from elsewhere": lambda: bind(tmp_path, inside),
            "bind of itself": lambda: bind(where / "own", inside),
        }
        before = names(where)
        with ways[kind]():
            if kind == "tmpfs":
                (inside / "other tenant").write_text("somebody's")
            await refused(mount_target(where), "something is mounted at .*inside")
            assert names(where) >= before
        assert names(where) == before
    assert (tmp_path / "elsewhere").read_text() == "somebody's"


@EXT4
async def test_of_a_bind_mount_only_its_own_directory_is_emptied(tmp_path: Path) -> None:
    with filesystem("ext4") as whole:
        (whole / "volume").mkdir()
        fill(whole / "volume")
        (whole / "neighbour").write_text("somebody's")
        with bind(whole / "volume", tmp_path):
            target = mount_target(tmp_path)
            receipt = await run_clean(target, DELETE_FILES)
        assert receipt.result == "proved"
        assert names(whole) == {"volume", "neighbour", "lost+found"}


async def test_another_directory_of_the_same_filesystem(tmp_path: Path) -> None:
    with tmpfs() as whole:
        for name in ("ours", "theirs"):
            (whole / name).mkdir()
            fill(whole / name)
        with bind(whole / "ours", tmp_path):
            planned = mount_target(tmp_path)
        with bind(whole / "theirs", tmp_path):
            now = mount_target(tmp_path)
            target = dataclasses.replace(planned, mount_id=now.mount_id, device=now.device)
            await refused(target, "its root was '/ours' and is '/theirs'")
        assert len(names(whole / "theirs")) > 200


async def test_mounted_read_only(tmp_path: Path) -> None:
    with tmpfs() as where:
        fill(where)
        command("mount", "-o", "remount,ro", where)
        await refused(mount_target(where), "read-only")


@EXT4
async def test_what_cannot_be_deleted_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlink(path: str, *, dir_fd: int | None = None) -> None:
        if path == "file 5\n":
            raise PermissionError(1, "Operation not permitted")
        os.remove(path, dir_fd=dir_fd)

    with filesystem("ext4") as where:
        fill(where)
        monkeypatch.setattr(os, "unlink", unlink)
        with pytest.raises(CleaningFailed, match="file 5") as failed:
            await run_clean(mount_target(where), DELETE_FILES)
        assert failed.value.touched
        assert len(names(where)) < 10


@EXT4
async def test_immutable_files_go_too() -> None:
    with filesystem("ext4") as where:
        (where / "file").write_text("mine for ever")
        with immutable(where / "file"):
            await run_clean(mount_target(where), DELETE_FILES)
            assert not (where / "file").exists()


class Watched(Workers):
    """They tell of each call before they make it."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        super().__init__(limit=4)
        self._tell = tell

    async def call(self, key: str, seconds: float, fn: Any, *args: Any) -> Any:
        self._tell(getattr(args[0] if args else fn, "__qualname__", ""))
        return await super().call(key, seconds, fn, *args)


async def test_files_that_are_there_again_are_a_failure() -> None:
    with tmpfs() as where:

        def write(call: str) -> None:
            if call == looks_empty.__qualname__:
                (where / "file").write_text("secret")

        workers = Watched(write)
        with pytest.raises(CleaningFailed, match="'file' is there"):
            await run_clean(mount_target(where), DELETE_FILES, workers=workers)
        workers.close()


def slow_deletion(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    real = os.unlink

    def unlink(path: str, *, dir_fd: int | None = None) -> None:
        time.sleep(seconds)
        real(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)


@pytest.mark.parametrize("how", ["stop", "cancel", "timeout"])
async def test_ended_in_the_middle(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with tmpfs() as where:
        fill(where, 2000)
        slow_deletion(monkeypatch, 0.05)
        stop = asyncio.Event()
        # No step is too long by itself.
        task = asyncio.create_task(
            run_clean(
                mount_target(where),
                DELETE_FILES,
                stop=stop,
                timeout=LONG,
                paces=CleaningPaces(step=4 * LONG),
            )
        )
        await until_async(lambda: _files_in(where) <= 1900)
        if how == "cancel":
            task.cancel()
        elif how == "stop":
            stop.set()
        else:
            passed = time.monotonic
            monkeypatch.setattr(time, "monotonic", lambda: passed() + LONG)
        ends: dict[str, type[BaseException]] = {
            "stop": CleaningStopped,
            "cancel": asyncio.CancelledError,
            "timeout": CleaningFailed,
        }
        with pytest.raises(ends[how]):
            await task
        left = _files_in(where)
        assert 100 < left < 2000, "it ended long before the last file"
        await asyncio.sleep(0.5)
        # Each of its threads may have been in the midst of one.
        assert _files_in(where) >= left - 4, "something went on deleting"
        monkeypatch.undo()
        await run_clean(mount_target(where), DELETE_FILES)
        assert not names(where)


def _files_in(where: Path) -> int:
    """Counted also while they go."""
    return sum(len(files) for _, _, files in os.walk(where))


async def test_a_long_deletion_goes_on_in_slices_and_counts_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[Progress] = []
    calls: list[str] = []
    workers = Watched(calls.append)
    with tmpfs() as where:
        fill(where, 1000)
        count = len(names(where))
        slow_deletion(monkeypatch, 0.005)
        receipt = await run_clean(
            mount_target(where),
            DELETE_FILES,
            progress=told.append,
            paces=CleaningPaces(first_slice=0.3, progress=0.25),
            workers=workers,
        )
        assert not names(where)
    workers.close()
    # Opening it is told of only where it takes long.
    told = [progress for progress in told if progress.step != "opening"]
    assert sum("_Slice" in call for call in calls) > 1
    assert receipt.files == count
    done = [progress.done_files for progress in told]
    assert len(done) > 2
    assert done == sorted(done)
    assert told[0].step == "deleting files"
    assert told[0].total_bytes is None


@EXT4
async def test_a_filesystem_that_stops_answering() -> None:
    clock, paces = Clock(), CleaningPaces(step=LONG)
    calls: list[str] = []
    workers = Watched(calls.append)
    try:
        with filesystem("ext4") as where:
            fill(where)
            target = mount_target(where)
            command("fsfreeze", "--freeze", where)
            try:
                task = asyncio.create_task(
                    run_clean(target, DELETE_FILES, workers=workers, paces=paces)
                )
                await until_async(lambda: "_Slice.run" in calls and waits_for_a_disk())
                # A slice of the deletion has its own time besides that of a step.
                clock.move_on(2 * LONG)
                with pytest.raises(CleaningFailed, match="no answer from the host"):
                    await task
                with pytest.raises(CleaningFailed, match="still stuck"):
                    await run_clean(target, DELETE_FILES, workers=workers, paces=paces)
            finally:
                command("fsfreeze", "--unfreeze", where)
            await until_async(lambda: not workers.hung)
            await run_clean(target, DELETE_FILES, workers=workers)
            assert names(where) == {"lost+found"}
    finally:
        workers.close()


async def test_deleting_is_at_idle_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    real: Callable[..., None] = os.unlink

    def unlink(path: str, *, dir_fd: int | None = None) -> None:
        seen.add((priority.current() or 0) >> 13)
        real(path, dir_fd=dir_fd)

    before = threading.active_count()
    with tmpfs() as where:
        fill(where)
        monkeypatch.setattr(os, "unlink", unlink)
        await run_clean(mount_target(where), DELETE_FILES)
    assert seen == {3}
    # Threads at idle priority are not lent to anybody else, so they must not be kept either.
    assert threading.active_count() < before + 10


@EXT4
async def test_a_block_device_never_has_its_files_deleted_nor_a_filesystem_zeroed() -> None:
    with loop_device(4 * MIB), tmpfs() as where:
        fill(where)
        with pytest.raises(ValueError, match="no way to clean a filesystem"):
            await run_clean(mount_target(where), ZERO)
        assert len(names(where)) > 200
