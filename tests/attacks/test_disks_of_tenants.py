"""A raw disk that is a tenant's looks blank to whoever prepares disks: its tenant has made
partitions of it, or its entry is gone and little is written on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.disks.act import PlanChanged
from tests.host.support_devices import LoopDevice, command, loop_device
from tests.host.support_disks import Bench, bench, odd_size
from tests.suite.units import GIB, MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4")


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as made:
        yield made


@pytest.fixture
def whole(stack: contextlib.ExitStack) -> LoopDevice:
    """A disk that is a tenant's as a whole, by whatever."""
    return stack.enter_context(loop_device(3 * GIB))


@pytest.fixture
def made(tmp_path: Path, whole: LoopDevice, stack: contextlib.ExitStack) -> Bench:
    """What should have been left alone is unmounted before the disk goes."""
    return stack.enter_context(bench(tmp_path))


@pytest.fixture
def partition(made: Bench, whole: LoopDevice, stack: contextlib.ExitStack) -> str:
    """What the tenant wrote onto it; the kernel reads it as soon as udev tells it to."""
    # Of a size of its own: another test's partition would be in the same plans.
    size = odd_size(1100 * MIB)
    (found,) = whole.partition(f"+{size // 512}")
    stack.callback(whole.forget_partitions)
    made.size, made.partitions = size, True
    assert made.row(found).verdict == "format"
    return found


@contextlib.contextmanager
def loop_on(device: str) -> Iterator[str]:
    """As kubelet has one on each raw volume that a pod uses."""
    made = command("losetup", "--find", "--show", device).strip()
    try:
        yield made
    finally:
        command("losetup", "-d", made)


class TestPartitions:
    def test_of_a_disk_that_is_offered(
        self, made: Bench, whole: LoopDevice, partition: str
    ) -> None:
        (made.directory / "raw").symlink_to(whole.path)
        row = made.row(partition)
        assert (row.verdict, row.code) == ("hold", "taken")
        assert f"{made.directory}/raw leads to its disk" in row.reason

    def test_of_a_disk_that_a_persistent_volume_names(
        self, made: Bench, whole: LoopDevice, partition: str
    ) -> None:
        made.named = {whole.path: "pv-1"}
        row = made.row(partition)
        assert (row.verdict, row.code) == ("hold", "taken")
        assert "PersistentVolume pv-1 names its disk" in row.reason

    def test_of_a_disk_that_a_pod_uses(
        self, made: Bench, whole: LoopDevice, partition: str
    ) -> None:
        approved = made.approve()
        with loop_on(whole.path) as loop:
            row = made.row(partition)
            assert (row.verdict, row.code) == ("hold", "users")
            assert loop in row.reason
            # Begun between the look and the deed.
            with pytest.raises(PlanChanged, match=loop):
                made.carry_out(approved)
        assert command("wipefs", partition) == ""

    def test_of_a_disk_by_its_volumes_identity(
        self, made: Bench, whole: LoopDevice, partition: str
    ) -> None:
        made.recorded = {"pv-1": {"kind": "block", "loopFile": str(whole.backing)}}
        row = made.row(partition)
        assert (row.verdict, row.code) == ("hold", "taken")
        assert "PersistentVolume pv-1 was published of it" in row.reason


def test_a_disk_without_an_identity_hides_no_other(
    made: Bench, tmp_path: Path, stack: contextlib.ExitStack
) -> None:
    """A virtual disk without a serial number, a logical volume."""
    disk = made.disk(stack)
    lost = tmp_path / "lost"
    lost.mkdir()
    command("mount", "-t", "tmpfs", "none", lost)
    with (lost / "0").open("wb") as file:
        file.truncate(made.size)
    nameless = command("losetup", "--find", "--show", lost / "0").strip()
    stack.callback(command, "losetup", "-d", nameless)
    # All that is left of its file's name is a zero.
    command("umount", "-l", lost)
    assert made.row(disk).verdict == "format"
    row = made.row(nameless)
    assert (row.verdict, row.code) == ("hold", "nameless")


class TestWithoutAnEntry:
    """Somebody has removed the link, or udev did not make what it leads to; the claim is there."""

    def test_a_sparsely_written_disk_is_not_blank(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        disk = made.disk(stack)
        row = made.row(disk)
        assert row.verdict == "format"
        made.recorded = {"pv-1": dict(row.disk.identity)}
        row = made.row(disk)
        assert (row.verdict, row.code) == ("hold", "taken")

    def test_its_own_volume_does_not_keep_it_from_being_mounted(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        disk = made.disk(stack)
        (done,) = made.carry_out(made.approve())
        command("umount", done.path)
        own = f"/host/fast/{Path(done.path).name}"
        made.recorded = {"pv-1": {"kind": "block", **made.row(disk).disk.identity}}
        made.named = {own: "pv-1"}
        assert made.row(disk).verdict == "mount"
        made.named = {"/host/raw/disk": "pv-1"}
        row = made.row(disk)
        assert (row.verdict, row.code) == ("hold", "elsewhere")

    def test_what_we_made_once_is_not_mounted_below_a_tenant(
        self, made: Bench, stack: contextlib.ExitStack
    ) -> None:
        disk = made.disk(stack)
        (done,) = made.carry_out(made.approve())
        command("umount", done.path)
        assert made.row(disk).verdict == "mount"
        with loop_on(disk.path) as loop:
            row = made.row(disk)
            assert (row.verdict, row.code) == ("hold", "elsewhere")
            assert loop in row.reason
        made.named = {disk.path: "pv-1"}
        assert made.row(disk).code == "elsewhere"
