"""Disks that are not what they were, and tools that do not do as they are told: nothing is lost."""

from __future__ import annotations

import contextlib
import linecache
import os
import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.disks import claim
from localvolume.disks.act import Hold, PlanChanged, link, mount
from localvolume.disks.facts import read_inside
from localvolume.disks.model import DiskPlan, Judged
from localvolume.disks.plan.naming import entry_name
from localvolume.host.block.blockdev import NotABlockDevice
from localvolume.host.locks import lock_device
from tests.host.support_devices import LoopDevice, command, loop_device
from tests.host.support_disks import Bench, in_place_of
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "ext4")


@pytest.fixture
def disk(made: Bench, stack: contextlib.ExitStack) -> LoopDevice:
    return made.disk(stack)


def content(disk: LoopDevice) -> bytes:
    """What lies at its beginning, where every filesystem has something."""
    with disk.backing.open("rb") as file:
        return file.read(2 * MIB)


def without_filter(plan: DiskPlan) -> DiskPlan:
    return replace(plan, rows=tuple(replace(row, filter=None) for row in plan.rows))


def to_mount(made: Bench, disk: LoopDevice) -> Judged:
    """A finished disk, as the next start finds it."""
    (outcome,) = made.carry_out(made.approve())
    command("umount", outcome.path)
    row = made.row(disk)
    assert row.verdict == "mount"
    return row


class TestRefused:
    def test_one_that_another_process_has_locked(self, made: Bench, disk: LoopDevice) -> None:
        """A cleaner, or another agent, whose locks say what no exclusive open does."""
        approved = made.approve()
        lock = lock_device(disk.path)
        assert lock is not None
        try:
            with pytest.raises(PlanChanged, match="another process that formats or cleans it"):
                made.carry_out(approved)
        finally:
            os.close(lock)
        assert not any(content(disk))

    def test_one_that_no_filter_means(self, made: Bench, disk: LoopDevice) -> None:
        (outcome,) = made.carry_out(without_filter(made.approve()))
        assert "no filter matches" in outcome.failure
        assert not any(content(disk))

    def test_only_what_is_to_be_mounted_is_mounted(self, made: Bench, disk: LoopDevice) -> None:
        for row in (made.plan().rows[0], replace(to_mount(made, disk), digest="")):
            with pytest.raises(ValueError, match="is not to be mounted"):
                made.mount_again(row)
        assert not os.path.ismount(made.directory / entry_name(row.disk))

    def test_a_disk_that_was_let_go_is_not_worked_on(self, made: Bench, disk: LoopDevice) -> None:
        """A call that begins after its caller has given up."""
        called: list[Hold] = []
        hold = Hold(made.row(disk))
        hold.let_go()
        with pytest.raises(ValueError, match="given up before it began"):
            hold.use(called.append)
        assert called == []


class TestTools:
    """mkfs, in whose place something else is."""

    def test_it_does_nothing(
        self, made: Bench, disk: LoopDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        approved = made.approve()
        with in_place_of("mkfs.ext4", "exit 0", tmp_path / "bin", monkeypatch):
            (outcome,) = made.carry_out(approved)
        assert "does not hold what it should" in outcome.failure
        assert not list(made.directory.iterdir())
        # It is known for one that was begun, and ended by the next attempt.
        assert made.row(disk).begun
        (outcome,) = made.carry_out(made.plan())
        assert os.path.ismount(outcome.path)

    @pytest.mark.parametrize("briefly", [True, False])
    def test_somebody_has_the_disk_afterwards(
        self,
        made: Bench,
        disk: LoopDevice,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        briefly: bool,
    ) -> None:
        """udev, for a moment, and that is waited for; whoever has it for longer is told of."""
        approved = made.approve()
        ended, held, over = tmp_path / "ended", tmp_path / "held", threading.Event()
        script = (
            f'{shutil.which("mkfs.ext4")} "$@" || exit; : > {ended};'
            f" while ! [ -e {held} ]; do sleep 0.01; done"
        )

        def hold() -> None:
            until(ended.exists)
            fd = os.open(disk.path, os.O_RDONLY | os.O_EXCL)
            held.touch()
            until(waits_for_the_disk if briefly else over.is_set)
            os.close(fd)

        holder = threading.Thread(target=hold)
        holder.start()
        try:
            with in_place_of("mkfs.ext4", script, tmp_path / "bin", monkeypatch):
                (outcome,) = made.carry_out(approved, reclaim_seconds=60.0 if briefly else 0.05)
        finally:
            over.set()
            holder.join()
        if not briefly:
            assert "is in use" in outcome.failure
            assert made.row(disk).begun
            (outcome,) = made.carry_out(made.plan())
        assert os.path.ismount(outcome.path)


def waits_for_the_disk() -> bool:
    """Whether a thread of ours rests before it tries again to have a disk for itself."""
    return any(
        frame.f_code.co_name == "_retaken"
        and "time.sleep" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        for frame in sys._current_frames().values()
    )


class TestAttaching:
    def test_a_name_that_leads_to_another_disk_by_now(
        self, made: Bench, disk: LoopDevice, stack: contextlib.ExitStack
    ) -> None:
        row = to_mount(made, disk)
        assert row.filter is not None
        uuid = command("blkid", "-s", "UUID", "-o", "value", disk.path).strip()
        # With a filesystem that looks the same.
        other = stack.enter_context(loop_device(made.size))
        other.format("ext4", "-U", uuid)
        swapped = replace(row.disk, node=other.path)
        # It is not even tried to mount it, which would say that it is in use.
        holder = os.open(other.path, os.O_RDONLY | os.O_EXCL)
        try:
            with pytest.raises(NotABlockDevice, match="another device by now"):
                mount(swapped, "ext4", uuid, str(made.directory), "volume")
        finally:
            os.close(holder)
        assert not (made.directory / "volume").exists()

    def test_a_link_that_leads_to_another_disk_by_now(
        self, made: Bench, disk: LoopDevice, stack: contextlib.ExitStack
    ) -> None:
        row, other = made.row(disk), stack.enter_context(loop_device(MIB))
        (made.by_id / "wwn-0x5").symlink_to(other.path)
        with pytest.raises(NotABlockDevice, match="does not lead to"):
            link(row.disk, str(made.directory), "volume", "wwn-0x5", by_id=str(made.by_id))
        assert not list(made.directory.iterdir())

    def test_a_filesystem_that_the_kernel_does_not_mount(
        self, made: Bench, disk: LoopDevice
    ) -> None:
        row = to_mount(made, disk)
        # Its superblock is as it was; what that tells of is not.
        with open(disk.path, "r+b") as file:
            file.seek(4096)
            file.write(b"\xff" * 4096)
        outcome = made.mount_again(row)
        assert outcome.failure
        assert "in use" not in outcome.failure
        assert not os.path.ismount(made.directory / entry_name(row.disk))


class TestSizes:
    def test_one_that_is_not_as_large_as_the_kernel_says(
        self, made: Bench, disk: LoopDevice
    ) -> None:
        row = made.row(disk)
        fd = os.open(disk.path, os.O_RDONLY)
        try:
            assert not read_inside(fd, row.disk, idle=True).unknown
            larger = replace(row.disk, size_bytes=made.size + 4096)
            assert f"it has {made.size} bytes" in read_inside(fd, larger, idle=True).unknown
        finally:
            os.close(fd)

    def test_one_that_ends_before_its_end_is_not_blank(self, tmp_path: Path) -> None:
        """What cannot be read may be data."""
        (tmp_path / "disk").write_bytes(bytes(3 * MIB))
        fd = os.open(tmp_path / "disk", os.O_RDONLY)
        try:
            assert claim.first_data(fd, 3 * MIB) is None
            with pytest.raises(OSError, match="shorter than it says"):
                claim.first_data(fd, 4 * MIB)
        finally:
            os.close(fd)
