"""Block devices: size, identity, who uses them, exclusive opening, the kernel's operations."""

import errno
import os
from pathlib import Path

import pytest

from localvolume.host.block import blockdev, sysfs
from localvolume.host.block.blockdev import (
    InUse,
    NotABlockDevice,
    exclusive_open,
    loops_on,
    probe_block_device,
    users_of,
)
from localvolume.host.block.identity import identity_below, identity_of
from localvolume.host.loop.users import loop_status
from tests.host.support_devices import (
    command,
    formatted,
    loop_device,
    mounted,
    spare_loop_name,
    unmount,
)
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop")


@pytest.mark.parametrize("size", [MIB, 64 * MIB, 10 * MIB + 512])
def test_size_and_number_are_the_kernels(size: int) -> None:
    with loop_device(size) as device:
        found = probe_block_device(device.path)
        asked = command("blockdev", "--getsize64", "--getro", device.path).split()
        assert found.size_bytes == size == int(asked[0])
        assert found.read_only is False
        assert found.device == device.number
        assert (found.holders, found.partitions) == ((), ())


def test_read_only() -> None:
    with loop_device(read_only=True) as device:
        assert probe_block_device(device.path).read_only is True


def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    with loop_device() as device:
        (tmp_path / "a").symlink_to(device.path)
        (tmp_path / "b").symlink_to(tmp_path / "a")
        assert probe_block_device(str(tmp_path / "b")) == probe_block_device(device.path)


def test_other_things_are_refused_unopened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("fifo", "file", "directory", "link"):
        with pytest.raises(NotABlockDevice):
            probe_block_device(str(tmp_path / name))
        with pytest.raises(NotABlockDevice):
            exclusive_open(str(tmp_path / name))
    with pytest.raises(FileNotFoundError):
        probe_block_device(str(tmp_path / "nothing"))


def test_a_node_without_a_device_behind_it(tmp_path: Path) -> None:
    node = str(tmp_path / "node")
    os.mknod(node, 0o600 | 0o060000, os.makedev(240, 77))
    with pytest.raises(FileNotFoundError, match="no block device 240:77"):
        probe_block_device(node)


class TestIdentity:
    def test_outlives_detaching_and_another_number(self) -> None:
        with (
            spare_loop_name() as name,
            spare_loop_name() as second_name,
            loop_device(at=name) as device,
        ):
            first = probe_block_device(device.path)
            device.detach()
            with loop_device(at=name) as other:
                device.attach(at=second_name)
                again = probe_block_device(device.path)
                assert again.identity == first.identity
                assert again.device != first.device
                # The name means another disk now, and says so.
                assert probe_block_device(other.path).device == first.device
                assert probe_block_device(other.path).identity != first.identity
        assert first.identity["kind"] == "block"
        assert first.identity["loopFile"] == str(device.backing)
        assert name not in first.identity.values()

    def test_attaching_anew_is_noticed_within_one_boot(self) -> None:
        with spare_loop_name() as name, loop_device(at=name) as device:
            first = probe_block_device(name).sequence
            device.detach()
            device.attach(at=name)
            second = probe_block_device(name).sequence
            assert first is not None
            assert second is not None
            assert second > first

    def test_another_file_under_the_same_name(self, tmp_path: Path) -> None:
        path = tmp_path / "disk"
        with spare_loop_name() as name:
            with loop_device(backing=path, at=name):
                first = probe_block_device(name).identity
            path.rename(tmp_path / "kept")  # so that its inode is not given out again
            with loop_device(backing=path, at=name):
                second = probe_block_device(name).identity
        assert first["loopFile"] == second["loopFile"]
        assert first != second

    def test_another_part_of_the_same_file(self, tmp_path: Path) -> None:
        path = tmp_path / "disk"
        with loop_device(backing=path) as whole, loop_device(backing=path, offset=MIB) as part:
            first, second = (probe_block_device(one.path).identity for one in (whole, part))
        assert first != second

    def test_does_not_change_with_what_the_tenant_writes(self) -> None:
        with loop_device() as device:
            before = probe_block_device(device.path).identity
            device.format("ext4")
            assert probe_block_device(device.path).identity == before
            device.write_table("label: gpt\n")
            assert probe_block_device(device.path).identity == before

    def test_outlives_growing(self) -> None:
        with loop_device(MIB) as device:
            before = probe_block_device(device.path)
            os.truncate(device.backing, 2 * MIB)
            command("losetup", "--set-capacity", device.path)
            after = probe_block_device(device.path)
            assert (before.size_bytes, after.size_bytes) == (MIB, 2 * MIB)
            assert before.identity == after.identity

    @pytest.mark.parametrize("label", ["gpt", "dos"])
    @pytest.mark.parametrize("sector", [512, 4096])
    def test_partitions_are_known_by_their_uuid(self, label: str, sector: int) -> None:
        with loop_device(sector_size=sector) as device:
            one, two = device.partition("8M", "16M", label=label)
            try:
                disk, first, second = map(probe_block_device, (device.path, one, two))
                assert disk.partitions == (f"{device.name}p1", f"{device.name}p2")
                assert "partUuid" not in disk.identity
                assert first.size_bytes == 8 * MIB
                assert first.sequence == disk.sequence
                for part, path in ((first, one), (second, two)):
                    said = command(
                        "blkid", "--probe", "-o", "value", "-s", "PART_ENTRY_UUID", path
                    ).strip()
                    assert said
                    assert part.identity["partUuid"] == said
                # The table was rewritten behind the kernel's back: its word is no longer taken.
                device.write_table(f"label: {label}\nstart=20MiB, size=8MiB\n")
                later = probe_block_device(one).identity
                assert "partUuid" not in later
                assert later["partStart"] == "2048"
                assert later["sizeBytes"] == str(8 * MIB)
            finally:
                device.forget_partitions()


class TestIdentityFromSysfs:
    """Disks this machine does not have, as trees of files written after real ones."""

    @pytest.fixture
    def tree(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(sysfs, "SYS", str(tmp_path / "sys"))
        monkeypatch.setattr(sysfs, "UDEV_DATA", str(tmp_path / "udev"))
        (tmp_path / "udev").mkdir()
        return tmp_path

    def disk(self, tree: Path, name: str, number: str, files: dict[str, str | bytes]) -> str:
        base = tree / "sys/devices" / name
        for file, content in {"dev": number, **files}.items():
            path = base / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                path.write_text(content + "\n")
        link = tree / "sys/dev/block" / number
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(base)
        return sysfs.base_of(number)

    def test_nvme(self, tree: Path) -> None:
        base = self.disk(
            tree,
            "nvme0n1",
            "259:0",
            {
                "wwid": "eui.0025385b01400001",
                "device/serial": "S4EVNX0M  00001 ",
                "device/model": "Samsung SSD 970 EVO 1TB                 ",
            },
        )
        assert identity_of(base, "259:0", "/dev/nvme0n1", 1) == {
            "kind": "block",
            "wwn": "eui.0025385b01400001",
            "serial": "S4EVNX0M_00001",
            "model": "Samsung_SSD_970_EVO_1TB",
        }

    def test_scsi_with_and_without_udev(self, tree: Path) -> None:
        page = b"\0\x80\0\x08  Z1X2Y3"
        base = self.disk(
            tree, "sda", "8:0", {"device/wwid": "naa.5000c500a1b2c3d4", "device/vpd_pg80": page}
        )
        expected = {"kind": "block", "wwn": "naa.5000c500a1b2c3d4", "serial": "Z1X2Y3"}
        assert identity_of(base, "8:0", "/dev/sda", 1) == expected
        # An older kernel, where udev asked the disk: the same words.
        other = self.disk(tree, "sdb", "8:16", {})
        (tree / "udev/b8:16").write_text(
            "S:disk/by-id/x\nE:ID_WWN=0x5000c500a1b2c3d4\nE:ID_SERIAL_SHORT=Z1X2Y3\nE:ID_BUS=ata\n"
        )
        assert identity_of(other, "8:16", "/dev/sdb", 1) == expected

    def test_logical_volume(self, tree: Path) -> None:
        base = self.disk(tree, "dm-3", "253:3", {"dm/uuid": "LVM-abcd", "dm/name": "vg-lv"})
        assert identity_of(base, "253:3", "/dev/dm-3", 1) == {"kind": "block", "dmUuid": "LVM-abcd"}

    def test_nothing_to_go_by(self, tree: Path) -> None:
        """Then how this boot's kernel has numbered it."""
        base = self.disk(tree, "vdb", "254:16", {"diskseq": "9"})
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert identity_of(base, "254:16", "/dev/vdb", 4096) == {
            "kind": "block",
            "sizeBytes": "4096",
            "bootId": boot,
            "diskSeq": "9",
        }
        part = self.disk(tree, "vdb/vdb1", "254:17", {"partition": "1", "start": "2048"})
        assert identity_of(part, "254:17", "/dev/vdb1", 4096) == {
            "kind": "block",
            "sizeBytes": "4096",
            "partStart": "2048",
            "bootId": boot,
            "diskSeq": "9",
        }

    def test_below_a_filesystem(self, tree: Path) -> None:
        """What is weak or a place does not count there."""
        files: dict[str, str | bytes] = {"device/wwid": "naa.5", "uevent": "DEVNAME=sda"}
        self.disk(tree, "sda", "8:0", files | {"device/model": "Fast"})
        assert identity_below("8:0") == {"deviceWwn": "naa.5"}
        self.disk(tree, "vdb", "254:16", {"uevent": "DEVNAME=vdb"})
        assert identity_below("254:16") == {}
        assert identity_below("0:99") == {}

    def test_partition_of_a_known_disk(self, tree: Path) -> None:
        self.disk(tree, "sda", "8:0", {"device/wwid": "naa.5"})
        files: dict[str, str | bytes] = {
            "partition": "1",
            "start": "2048",
            "uevent": "DEVNAME=sda1\nPARTUUID=0b1c",
        }
        base = self.disk(tree, "sda/sda1", "8:1", files)
        assert identity_of(base, "8:1", "/dev/sda1", 4096) == {
            "kind": "block",
            "wwn": "naa.5",
            "partUuid": "0b1c",
        }


class TestExclusiveOpen:
    def test_keeps_mounts_and_others_away(self, tmp_path: Path) -> None:
        with formatted("ext4") as device:
            fd = exclusive_open(device.path, device=device.number)
            try:
                with pytest.raises(AssertionError, match=r"already mounted|busy"):
                    command("mount", device.path, tmp_path, wait=0)
                with pytest.raises(InUse):
                    exclusive_open(device.path, write=False)
            finally:
                os.close(fd)
            with mounted(device):
                pass

    @pytest.mark.parametrize(
        "fstype",
        [
            "ext4",
            pytest.param("xfs", marks=pytest.mark.needs("xfs")),
            pytest.param("btrfs", marks=pytest.mark.needs("btrfs")),
        ],
    )
    @pytest.mark.parametrize("write", [True, False])
    def test_says_where_it_is_mounted(self, fstype: str, write: bool) -> None:
        with formatted(fstype) as device, mounted(device) as where:
            with pytest.raises(InUse) as caught:
                exclusive_open(device.path, write=write)
            assert caught.value.by == (f"{device.name}: mounted at {where}",)
            assert str(where) in str(caught.value)
            unmount(where)
            os.close(exclusive_open(device.path, write=write))

    def test_a_mounted_partition_keeps_the_disk(self) -> None:
        with loop_device() as device:
            (part,) = device.partition("32M")
            try:
                command("mkfs.ext4", "-q", part)
                with mounted(part) as where:
                    with pytest.raises(InUse) as caught:
                        exclusive_open(device.path)
                    assert caught.value.by == (f"{device.name}p1: mounted at {where}",)
                os.close(exclusive_open(device.path))
            finally:
                device.forget_partitions()

    def test_another_device_than_expected(self) -> None:
        with (
            loop_device() as device,
            loop_device() as other,
            pytest.raises(NotABlockDevice, match=other.number),
        ):
            exclusive_open(device.path, device=other.number)

    def test_read_only_device(self) -> None:
        with loop_device(read_only=True) as device:
            with pytest.raises(OSError, match="read-only") as caught:
                exclusive_open(device.path)
            assert caught.value.errno == errno.EROFS
            os.close(exclusive_open(device.path, write=False))


class TestLoopsOn:
    def test_found_by_number_whatever_the_name(self, tmp_path: Path) -> None:
        """The kubelet's way: a loop device over a bind-mounted or made node, not /dev/sdX."""
        with loop_device() as device:
            assert loops_on(device.number) == []
            node = tmp_path / "node"
            os.mknod(node, 0o600 | 0o060000, os.stat(device.path).st_rdev)
            with loop_device(backing=node) as upper:
                assert loops_on(device.number) == [upper.path]
                assert users_of(device.number) == [f"{device.name}: loop device {upper.path}"]
                assert loops_on(upper.number) == []
                # It does not hold the device against an exclusive open: hence the question.
                os.close(exclusive_open(device.path))
            assert loops_on(device.number) == []

    def test_without_the_loop_devices_own_node(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from localvolume.host.loop import users

        monkeypatch.setattr(users, "loop_status", lambda node: None)
        with loop_device() as device, loop_device(backing=Path(device.path)) as upper:
            assert loops_on(device.number) == [upper.path]


def test_a_loop_device_that_is_being_removed_says_nothing(tmp_path: Path) -> None:
    """The kernel answers who opens it as it does where a node has no device at all."""
    text = Path("/proc/devices").read_text().partition("Block devices:")[2]
    taken = {int(line.split()[0]) for line in text.splitlines() if line}
    unused = next(major for major in range(240, 255) if major not in taken)
    node = tmp_path / "node"
    os.mknod(node, 0o600 | 0o060000, os.makedev(unused, 0))
    with pytest.raises(OSError, match="No such device or address") as caught:
        os.close(os.open(node, os.O_RDONLY))
    assert caught.value.errno == errno.ENXIO
    assert loop_status(str(node)) is None


def test_swap_is_named() -> None:
    with loop_device(16 * MIB) as device:
        # Swapping to a sparse file through a loop device works, for a moment.
        command("mkswap", device.path)
        command("swapon", device.path)
        try:
            with pytest.raises(InUse) as caught:
                exclusive_open(device.path)
            assert caught.value.by == (f"{device.name}: swap",)
        finally:
            command("swapoff", device.path)


class TestOperations:
    def test_sizes(self) -> None:
        with loop_device(64 * MIB, sector_size=4096) as device:
            fd = os.open(device.path, os.O_RDONLY)
            try:
                assert blockdev.size_bytes(fd) == 64 * MIB
            finally:
                os.close(fd)

    @pytest.mark.parametrize("way", ["discard", "zero_out"])
    def test_clears_just_the_range(self, way: str) -> None:
        with loop_device(8 * MIB) as device:
            fd = exclusive_open(device.path)
            try:
                os.pwrite(fd, b"x" * (8 * MIB), 0)
                blockdev.flush_buffers(fd)
                getattr(blockdev, way)(fd, MIB, 2 * MIB)
                blockdev.flush_buffers(fd)
                content = os.pread(fd, 8 * MIB, 0)
            finally:
                os.close(fd)
            assert content == b"x" * MIB + bytes(2 * MIB) + b"x" * (5 * MIB)
            assert device.backing.read_bytes() == content

    def test_limits(self) -> None:
        with loop_device() as device:
            fd = os.open(device.path, os.O_RDONLY)
            try:
                limits = blockdev.discard_limits(fd)
            finally:
                os.close(fd)
            said = command("lsblk", "-dbno", "DISC-GRAN", device.path).strip()
            assert str(limits.granularity) == said

    def test_refused_on_a_descriptor_for_reading(self) -> None:
        with loop_device() as device:
            fd = exclusive_open(device.path, write=False)
            try:
                for way in (blockdev.discard, blockdev.zero_out):
                    with pytest.raises(OSError, match="Bad file descriptor"):
                        way(fd, 0, MIB)
            finally:
                os.close(fd)
