"""Filesystems over whole devices: made of each size, grown, measured, and refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.backends.fstools import ext_super, mounted_root, mounted_usage
from localvolume.backends.lvm import filesystem
from localvolume.backends.lvm.filesystem import grow_filesystem, make_filesystem, was_never_mounted
from localvolume.backends.model import BackendFailed, Impossible
from localvolume.host.mount.mounts import read_mount_table
from tests.host.support_devices import (
    LoopDevice,
    bind,
    command,
    formatted,
    loop_device,
    mounted,
    tmpfs,
    unmount,
)
from tests.host.support_images import run_here
from tests.host.support_privileges import CAP_SYS_ADMIN, CAP_SYS_RESOURCE, without_capability
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4")

xfs = pytest.mark.needs("xfs")


@pytest.fixture
def device() -> Iterator[LoopDevice]:
    with loop_device(16 * MIB) as device:
        yield device


def grow(device: LoopDevice, size: int) -> None:
    """Let the device be larger, as its volume is before its filesystem."""
    os.truncate(device.backing, size)
    command("losetup", "--set-capacity", device.path)


@pytest.mark.parametrize("mib", [4, 8, 12, 16])
def test_an_ext4_is_made_on_the_smallest_volumes(mib: int) -> None:
    """Of two extents (8 MiB), mke2fs refuses a journal that takes half."""
    with loop_device(mib * MIB) as device:
        make_filesystem(run_here, device.path, device.number, "ext4")
        with mounted(device) as where:
            (where / "file").write_text("tenant data")


@pytest.mark.parametrize("options", [("-E", "stride=16"), ("-Estride=16",)])
def test_extended_options_stand_beside_our_own(
    device: LoopDevice, options: tuple[str, ...]
) -> None:
    """Of several -E mke2fs heeds the last one alone: the owner would be lost."""
    make_filesystem(
        *(run_here, device.path, device.number, "ext4"),
        options=(*options, "-L", "named"),
        uid=7,
        gid=8,
    )
    told = command("dumpe2fs", "-h", device.path)
    assert "RAID stride:              16" in told
    assert "named" in told
    with mounted(device) as where:
        assert (where.stat().st_uid, where.stat().st_gid) == (7, 8)


class TestRefused:
    @pytest.mark.parametrize(
        ("fs", "size", "said"),
        [
            ("ext4", MIB - 1, "at least 1Mi"),
            ("xfs", 299 * MIB, "at least 300Mi"),
            ("btrfs", 1 << 40, "hold ext4 or xfs, not 'btrfs'"),
        ],
    )
    def test_what_no_filesystem_can_be_made_of(self, fs: str, size: int, said: str) -> None:
        with pytest.raises(Impossible, match=said):
            filesystem.check_fs(fs, size)

    def test_a_device_that_somebody_uses_gets_no_filesystem(self, device: LoopDevice) -> None:
        device.format("ext4")
        before = Path(device.path).read_bytes()
        holder = os.open(device.path, os.O_RDONLY | os.O_EXCL)
        try:
            with pytest.raises(BackendFailed, match="is in use"):
                make_filesystem(run_here, device.path, device.number, "ext4")
        finally:
            os.close(holder)
        assert Path(device.path).read_bytes() == before

    def test_nor_does_another_device_that_has_got_the_name(self, device: LoopDevice) -> None:
        for deed in (make_filesystem, grow_filesystem):
            with pytest.raises(BackendFailed, match="is now the device"):
                deed(run_here, device.path, "7:999999", "ext4")

    def test_a_filesystem_that_is_not_known_does_not_grow(self, device: LoopDevice) -> None:
        with pytest.raises(Impossible, match="not 'btrfs'"):
            grow_filesystem(run_here, device.path, device.number, "btrfs")

    def test_what_holds_no_ext4(self, device: LoopDevice) -> None:
        with pytest.raises(BackendFailed, match="there is no ext4"):
            ext_super(device.path)
        with pytest.raises(BackendFailed, match="there is no ext4"):
            grow_filesystem(run_here, device.path, device.number, "ext4")

    def test_only_an_ext4_tells_that_nobody_ever_mounted_it(self, device: LoopDevice) -> None:
        make_filesystem(run_here, device.path, device.number, "ext4")
        assert was_never_mounted(device.path, device.number, "ext4")
        assert not was_never_mounted(device.path, device.number, "xfs")
        with mounted(device):
            pass
        assert not was_never_mounted(device.path, device.number, "ext4")


class TestGrowing:
    def test_an_ext4_takes_a_capability_to_grow(self, device: LoopDevice) -> None:
        """resize2fs does not, and leaves what nobody mends when it is killed."""
        make_filesystem(run_here, device.path, device.number, "ext4")
        before = ext_super(device.path).blocks
        with without_capability(CAP_SYS_RESOURCE):
            # One that has all of its device already takes none.
            grow_filesystem(run_here, device.path, device.number, "ext4")
            grow(device, 64 * MIB)
            with pytest.raises(BackendFailed, match="CAP_SYS_RESOURCE: give it to the agent"):
                grow_filesystem(run_here, device.path, device.number, "ext4")
        assert ext_super(device.path).blocks == before

    @xfs
    def test_an_xfs_that_has_all_of_its_device_is_left_alone(self) -> None:
        with formatted("xfs") as device, mounted(device) as where:
            grow_filesystem(run_here, device.path, device.number, "xfs")
            before = os.statvfs(where).f_blocks
            grow(device, 400 * MIB)
            grow_filesystem(run_here, device.path, device.number, "xfs")
            grown = os.statvfs(where).f_blocks
            assert grown > before
            # Of a few blocks more the kernel makes nothing.
            for size in (400 * MIB, 400 * MIB + (MIB >> 3)):
                grow(device, size)
                # So it is not even asked: what it would refuse would count as a failure.
                with without_capability(CAP_SYS_ADMIN):
                    grow_filesystem(run_here, device.path, device.number, "xfs")
                assert os.statvfs(where).f_blocks == grown


class TestMounts:
    def test_a_part_of_it_is_not_its_root(self, device: LoopDevice, tmp_path: Path) -> None:
        device.format("ext4")
        with mounted(device) as where:
            (where / "part").mkdir()
            with bind(where / "part", _made(tmp_path / "bound")):
                unmount(where)
                with mounted_root(device.number) as root:
                    assert root is None

    def test_what_is_mounted_over_it_is_never_taken_for_it(self, device: LoopDevice) -> None:
        """Another filesystem would be grown, or measured, in its place."""
        device.format("ext4")
        with mounted(device) as where, mounted(device) as elsewhere:
            free = os.statvfs(where).f_bavail * 1024
            with tmpfs(where), tmpfs(elsewhere):
                with mounted_root(device.number) as root:
                    assert root is None
                assert mounted_usage(read_mount_table(), device.number) is None
            with tmpfs(where):
                usage = mounted_usage(read_mount_table(), device.number)
                assert usage is not None
                assert usage.available_bytes == free
                with mounted_root(device.number) as root:
                    assert root is not None
                    assert os.fstat(root).st_dev == os.stat(elsewhere).st_dev


def _made(place: Path) -> Path:
    place.mkdir()
    return place
