"""An approved plan is carried out exactly, or nothing is: real loop devices, mkfs and mounts."""

import asyncio
import contextlib
import dataclasses
import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.config.mkfsoptions import mkfs_options
from localvolume.disks import act, claim
from localvolume.disks.act import PlanChanged, mkfs_command
from localvolume.disks.model import Claim
from localvolume.disks.plan.naming import stable, uuid_of
from localvolume.host.locks import is_device_locked
from localvolume.host.process.workers import Workers
from tests.host.support_devices import LoopDevice, command, filesystem, loop_device, mounted
from tests.host.support_disks import Bench
from tests.host.support_failing import waits_for_a_disk
from tests.suite.units import GIB, MIB
from tests.suite.until import until, until_async

pytestmark = pytest.mark.needs("root", "loop", "ext4")

XFS = pytest.param("xfs", marks=pytest.mark.needs("xfs"))


def is_blank(disk: LoopDevice) -> bool:
    """Whether nobody ever wrote anything but zeros to it, as far as its backing file tells."""
    command("blockdev", "--flushbufs", disk.path)
    with disk.backing.open("rb") as file:
        end = os.fstat(file.fileno()).st_size
        at = 0
        while at < end:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                return True
            stop = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            while at < stop:
                piece = os.pread(file.fileno(), min(MIB, stop - at), at)
                if piece.strip(b"\0"):
                    return False
                at += len(piece)
    return True


class TestFormatting:
    @pytest.mark.parametrize("fs_type", ["ext4", XFS])
    def test_a_blank_disk_becomes_a_mounted_filesystem(
        self, made: Bench, stack: contextlib.ExitStack, fs_type: str
    ) -> None:
        made.fs_type = fs_type
        disk = made.disk(stack)
        approved = made.approve()
        assert [row.verdict for row in approved.rows] == ["format"]
        (outcome,) = made.carry_out(approved)
        assert not outcome.failure
        said = command("blkid", "-p", "-o", "export", disk.path)
        assert f"TYPE={fs_type}" in said
        assert "LABEL=localvolume" in said
        assert os.path.ismount(outcome.path)
        assert outcome.path.startswith(str(made.directory))
        assert command("findmnt", "-rno", "SOURCE", outcome.path).strip() == disk.path
        row = made.row(disk)
        assert (row.verdict, row.digest) == ("done", approved.digest)
        command("umount", outcome.path)
        # Nothing is left of the marks of its making.
        fd = os.open(disk.path, os.O_RDONLY)
        try:
            assert claim.read(fd, made.size) is None
        finally:
            os.close(fd)
        command(*(("xfs_repair", "-n") if fs_type == "xfs" else ("e2fsck", "-fn")), disk.path)
        again = made.row(disk)
        assert again.verdict == "mount"
        assert made.mount_again(again).path == outcome.path
        assert os.path.ismount(outcome.path)

    @pytest.mark.parametrize(
        ("fs_type", "text", "said"),
        [
            ("ext4", "-m 0 -E lazy_itable_init=1,discard", ("dumpe2fs", "-h")),
            pytest.param(
                *("xfs", "-m reflink=0 -i size=1024 -K", ("xfs_db", "-c", "info", "-r")),
                marks=pytest.mark.needs("xfs"),
            ),
        ],
    )
    def test_options_of_mkfs(
        self,
        made: Bench,
        stack: contextlib.ExitStack,
        fs_type: str,
        text: str,
        said: tuple[str, ...],
    ) -> None:
        made.fs_type, made.mkfs_options = fs_type, mkfs_options(fs_type, text)
        disk = made.disk(stack)
        (outcome,) = made.carry_out(made.approve())
        assert not outcome.failure
        told = command(*said, disk.path)
        if fs_type == "ext4":
            assert "Reserved block count:     0" in told
        else:
            assert "isize=1024" in told
            assert "reflink=0" in told

    def test_all_disks_of_the_plan_and_no_other(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        one, two = made.disk(stack), made.disk(stack)
        with loop_device(made.size + MIB) as larger, loop_device(made.size - MIB) as smaller:
            outcomes = made.carry_out(made.approve())
            assert sorted(o.judged.disk.node for o in outcomes) == sorted([one.path, two.path])
            assert all(os.path.ismount(outcome.path) for outcome in outcomes)
            assert is_blank(larger)
            assert is_blank(smaller)

    def test_a_raw_disk_is_linked_to_and_not_written_to(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        made.fs_type = ""
        disk = made.disk(stack)
        (made.by_id / "wwn-0x5").symlink_to(disk.path)
        approved = made.approve()
        assert [row.verdict for row in approved.rows] == ["link"]
        (outcome,) = made.carry_out(approved)
        assert os.readlink(outcome.path) == f"{made.by_id}/wwn-0x5"
        assert is_blank(disk)
        assert made.row(disk).verdict == "done"

    def test_a_disk_that_fails_is_told_and_the_others_are_made(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        disks = [made.disk(stack), made.disk(stack)]
        approved = made.approve()
        # One entry is taken at the last moment: too late to change what was begun.
        bad = approved.todo[0]
        name = approved.text.split('"path":"/host/fast/')[1].split('"')[0]
        (made.directory / name).write_text("somebody's")
        outcomes = made.carry_out(approved)
        failed = [outcome for outcome in outcomes if outcome.failure]
        assert len(failed) == 1
        assert "is there already" in failed[0].failure
        assert (made.directory / name).read_text() == "somebody's"
        assert sum(bool(outcome.path) for outcome in outcomes) == 1
        # What was formatted and could not be mounted is mounted later, once it can be.
        (made.directory / name).unlink()
        (row,) = [made.row(d) for d in disks if made.row(d).verdict == "mount"]
        assert made.mount_again(row).path
        assert bad.filter is not None


class TestChangedMeanwhile:
    """Between the plan and the deed: nothing is done, on no disk of the plan."""

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda disk: disk.format("ext4"), "it holds ext4"),
            (lambda disk: command("mkswap", disk.path), "it holds swap"),
            (lambda disk: write(disk, disk.backing.stat().st_size - 9), "it is not blank"),
            (lambda disk: disk.partition("+64M"), "partitions"),
        ],
    )
    def test_something_is_written_to_one(
        self,
        made: Bench,
        stack: contextlib.ExitStack,
        change: Callable[[LoopDevice], object],
        said: str,
    ) -> None:
        one, two = made.disk(stack), made.disk(stack)
        approved = made.approve()
        change(two)
        try:
            with pytest.raises(PlanChanged, match=said):
                made.carry_out(approved)
        finally:
            two.forget_partitions()
        assert is_blank(one)
        assert not list(made.directory.iterdir())

    def test_the_approval_is_withdrawn(self, made: Bench, stack: contextlib.ExitStack) -> None:
        disks = [made.disk(stack), made.disk(stack)]
        approved = made.approve()
        with pytest.raises(PlanChanged, match="not in force"):
            made.carry_out(approved, False)
        assert all(is_blank(disk) for disk in disks)
        # Or when some of it is done: the rest stays as it is.
        first, second = made.carry_out(approved, True, True, False)
        assert first.path
        assert "not in force" in second.failure
        assert [is_blank(disk) for disk in disks].count(True) == 1

    def test_another_disk_gets_the_name(
        self, made: Bench, stack: contextlib.ExitStack, tmp_path: Path
    ) -> None:
        one, two = made.disk(stack), made.disk(stack)
        approved = made.approve()
        path = two.path
        two.detach()
        other = stack.enter_context(loop_device(made.size, at=path))
        with pytest.raises(PlanChanged, match=r"identity|sequence"):
            made.carry_out(approved)
        assert is_blank(one)
        assert is_blank(other)

    def test_the_same_disk_was_detached_meanwhile(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        disk = made.disk(stack)
        approved = made.approve()
        path = disk.path
        disk.detach()
        disk.attach(at=path)
        with pytest.raises(PlanChanged, match="sequence"):
            made.carry_out(approved)
        assert is_blank(disk)

    def test_one_is_gone(self, made: Bench, stack: contextlib.ExitStack) -> None:
        one, two = made.disk(stack), made.disk(stack)
        approved = made.approve()
        two.detach()
        with pytest.raises(PlanChanged):
            made.carry_out(approved)
        assert is_blank(one)

    def test_one_is_opened_exclusively(self, made: Bench, stack: contextlib.ExitStack) -> None:
        one, two = made.disk(stack), made.disk(stack)
        approved = made.approve()
        fd = os.open(two.path, os.O_RDONLY | os.O_EXCL)
        try:
            with pytest.raises(PlanChanged, match="in use"):
                made.carry_out(approved)
        finally:
            os.close(fd)
        assert is_blank(one)
        assert is_blank(two)

    def test_a_loop_device_is_put_on_one(self, made: Bench, stack: contextlib.ExitStack) -> None:
        one, two = made.disk(stack), made.disk(stack)
        approved = made.approve()
        with (
            loop_device(backing=Path(two.path)),
            pytest.raises(PlanChanged, match="loop device"),
        ):
            made.carry_out(approved)
        assert is_blank(one)

    def test_a_plan_that_is_not_approved(self, made: Bench, stack: contextlib.ExitStack) -> None:
        disk = made.disk(stack)
        with pytest.raises(PlanChanged, match="not approved"):
            made.carry_out(made.plan())
        assert is_blank(disk)

    def test_what_is_mounted_is_the_filesystem_that_was_made(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        disk = made.disk(stack)
        (outcome,) = made.carry_out(made.approve())
        command("umount", outcome.path)
        row = made.row(disk)
        disk.format("ext4")
        again = made.mount_again(row)
        assert "does not hold the filesystem" in again.failure
        assert not os.path.ismount(outcome.path)

    def test_what_is_to_be_mounted_is_in_use_by_now(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        disk = made.disk(stack)
        (outcome,) = made.carry_out(made.approve())
        command("umount", outcome.path)
        row = made.row(disk)
        fd = os.open(disk.path, os.O_RDONLY | os.O_EXCL)
        try:
            assert "in use" in made.mount_again(row).failure
        finally:
            os.close(fd)

    def test_a_link_that_leads_elsewhere_by_now(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        made.fs_type = ""
        disk = made.disk(stack)
        link = made.by_id / "wwn-0x5"
        link.symlink_to(disk.path)
        approved = made.approve()
        other = stack.enter_context(loop_device(made.size + MIB))
        link.unlink()
        link.symlink_to(other.path)
        with pytest.raises(PlanChanged, match="links"):
            made.carry_out(approved)
        assert not list(made.directory.iterdir())


def write(disk: LoopDevice, at: int, data: bytes = b"tenant") -> None:
    with open(disk.path, "r+b") as file:
        file.seek(at)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def begin(made: Bench, disk: LoopDevice) -> Claim:
    """Leave behind what an agent does that is killed right before mkfs."""
    approved = made.approve()
    (row,) = approved.todo
    assert row.filter is not None
    uuid = uuid_of(approved.digest, row.disk, row.filter)
    begun = Claim(approved.digest, uuid, stable(row.disk.identity))
    fd = os.open(disk.path, os.O_RDWR)
    try:
        claim.write(fd, made.size, begun)
    finally:
        os.close(fd)
    return begun


class TestBegun:
    """A formatting that was interrupted."""

    @pytest.mark.parametrize("fs_type", ["ext4", XFS])
    def test_it_is_finished(self, made: Bench, stack: contextlib.ExitStack, fs_type: str) -> None:
        made.fs_type = fs_type
        disk = made.disk(stack)
        begun = begin(made, disk)
        # mkfs had come to its end, or nearly.
        command(*mkfs_command(fs_type, begun.uuid, (), disk.path))
        write(disk, 300 * MIB, os.urandom(64 * MIB))
        found = made.plan()
        assert [(row.verdict, row.begun) for row in found.rows] == [("format", True)]
        assert found.approved
        (outcome,) = made.carry_out(found)
        assert not outcome.failure
        assert os.path.ismount(outcome.path)

    def test_not_once_the_approval_is_withdrawn(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        disk = made.disk(stack)
        begin(made, disk)
        made.approved = frozenset()
        assert not made.plan().approved

    @pytest.mark.parametrize("fs_type", ["ext4", XFS])
    def test_not_once_somebody_has_used_what_was_made(
        self, made: Bench, stack: contextlib.ExitStack, fs_type: str
    ) -> None:
        made.fs_type = fs_type
        disk = made.disk(stack)
        begun = begin(made, disk)
        command(*mkfs_command(fs_type, begun.uuid, (), disk.path))
        with mounted(disk) as where:
            (where / "file").write_text("tenant data")
        assert (made.row(disk).verdict, made.row(disk).code) == ("hold", "signature")

    def test_not_with_a_filesystem_of_somebody_else(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        disk = made.disk(stack)
        begin(made, disk)
        command("mkfs.ext4", "-q", "-E", "nodiscard", disk.path)
        assert (made.row(disk).verdict, made.row(disk).code) == ("hold", "signature")

    def test_a_claim_that_is_damaged_is_data(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        disk = made.disk(stack)
        begin(made, disk)
        for place in claim.places(made.size):
            write(disk, place + 40, b"x")
        assert made.row(disk).code == "data"

    def test_one_copy_of_the_claim_is_enough(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        disk = made.disk(stack)
        begin(made, disk)
        for place in list(claim.places(made.size))[:-1]:
            write(disk, place, bytes(claim.BLOCK))
        assert made.row(disk).begun


class TestHanging:
    """The file under the disk is on a frozen filesystem: what is written waits in the kernel."""

    @pytest.fixture
    def disk(self, made: Bench, stack: contextlib.ExitStack) -> Iterator[LoopDevice]:
        """A disk that stopped answering when its formatting was begun anew."""
        below = stack.enter_context(filesystem("ext4", size=made.size + GIB))
        disk = stack.enter_context(loop_device(made.size, backing=below / "disk"))
        begin(made, disk)
        (row,) = made.plan().todo
        assert row.begun
        self.below = below
        command("fsfreeze", "--freeze", below)
        try:
            yield disk
        finally:
            self.thaw()

    def thaw(self) -> None:
        subprocess.run(["fsfreeze", "--unfreeze", str(self.below)], capture_output=True, timeout=60)

    def released(self, made: Bench, disk: LoopDevice) -> None:
        """Nobody may take it before the write has come back; then it can be tried again."""
        assert is_device_locked(disk.path)
        with pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
            os.open(disk.path, os.O_RDONLY | os.O_EXCL)
        self.thaw()
        # Nothing works on it any more.
        until(lambda: not is_device_locked(disk.path))
        (outcome,) = made.carry_out(made.plan())
        assert not outcome.failure
        assert os.path.ismount(outcome.path)

    def test_it_is_held_until_the_write_returns(self, made: Bench, disk: LoopDevice) -> None:
        class Impatient(Workers):
            """They wait for no call longer than for those that answer."""

            async def call(self, key: str, seconds: float, fn: Any, *args: Any) -> Any:
                return await super().call(key, min(seconds, 5.0), fn, *args)

        found, workers = made.plan(), Impatient()
        (outcome,) = asyncio.run(act.carry_out(found, workers, by_id=str(made.by_id)))
        workers.close()
        assert "no answer from the host" in outcome.failure
        self.released(made, disk)

    def test_also_when_nobody_waits_any_more(self, made: Bench, disk: LoopDevice) -> None:
        """The agent ends, or another configuration ends the role."""
        found = made.plan()

        async def cancelled() -> None:
            workers = Workers()
            task = asyncio.create_task(act.carry_out(found, workers, by_id=str(made.by_id)))
            # Opened, read, and now written to: the third call, and the kernel has it.
            await until_async(lambda: workers.calls_total == 3 and waits_for_a_disk())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            workers.close()

        asyncio.run(cancelled())
        self.released(made, disk)


@pytest.mark.parametrize("size", [300 * MIB, 5 << 30, 40 << 30])
@pytest.mark.parametrize("fs_type", ["ext4", XFS])
def test_mkfs_leaves_most_copies_of_the_claim(
    tmp_path: Path, stack: contextlib.ExitStack, fs_type: str, size: int
) -> None:
    """Of 8 copies, or a killed mkfs could not be told from data."""
    disk = stack.enter_context(loop_device(size))
    begun = Claim("sha256:" + "0" * 64, "6d1c4b7e-0a52-5f0e-9d0c-4b3c1e0f7a11", {"wwn": "naa.5"})
    fd = os.open(disk.path, os.O_RDWR)
    try:
        claim.write(fd, size, begun)
        command(*mkfs_command(fs_type, begun.uuid, (), disk.path))
        command("blockdev", "--flushbufs", disk.path)
        left = [claim.decode(os.pread(fd, claim.BLOCK, place)) for place in claim.places(size)]
        assert left.count(begun) >= claim.COPIES // 2
        assert claim.read(fd, size) == begun
        claim.erase(fd, size)
        assert claim.read(fd, size) is None
    finally:
        os.close(fd)
    command(*(("xfs_repair", "-n") if fs_type == "xfs" else ("e2fsck", "-fn")), disk.path)


def test_what_mkfs_wrote_over_a_claim_is_not_erased(tmp_path: Path) -> None:
    size = 64 * MIB
    image = tmp_path / "image"
    image.touch()
    os.truncate(image, size)
    begun = Claim("sha256:" + "0" * 64, "6d1c4b7e-0a52-5f0e-9d0c-4b3c1e0f7a11", {"wwn": "naa.5"})
    fd = os.open(image, os.O_RDWR)
    try:
        claim.write(fd, size, begun)
        taken, *others = claim.places(size)
        os.pwrite(fd, b"a table of the filesystem", taken)
        claim.erase(fd, size)
        assert os.pread(fd, 7, taken) == b"a table"
        assert all(os.pread(fd, claim.BLOCK, at) == bytes(claim.BLOCK) for at in others)
    finally:
        os.close(fd)


def test_a_plan_is_not_altered_by_carrying_it_out(made: Bench, stack: contextlib.ExitStack) -> None:
    disk = made.disk(stack)
    approved = made.approve()
    before = dataclasses.replace(approved)
    made.carry_out(approved)
    assert approved == before
    assert made.plan().digest == ""
    assert made.row(disk).digest == approved.digest
