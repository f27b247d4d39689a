"""Filesystems as the kernel shows them: sizes as upstream counts them, identities that last."""

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localvolume.host.filesystem import filesystems
from localvolume.host.filesystem.filesystems import (
    Changed,
    Emptiness,
    Filesystem,
    identity_of_mount,
    looks_empty,
    probe_filesystem,
)
from localvolume.host.mount.mounts import Mount, read_mount_table
from tests.host.support_devices import (
    LoopDevice,
    bind,
    command,
    filesystem,
    flush,
    formatted,
    loop_device,
    mounted,
    spare_loop_name,
    tmpfs,
)
from tests.suite.units import MIB
from tests.suite.until import until

EACH = [
    pytest.param("ext4", marks=pytest.mark.needs("root", "loop", "ext4")),
    pytest.param("xfs", marks=pytest.mark.needs("root", "loop", "xfs")),
    pytest.param("btrfs", marks=pytest.mark.needs("root", "loop", "btrfs")),
]
EACH_AND_TMPFS = [*EACH, pytest.param("tmpfs", marks=pytest.mark.needs("root"))]


def mount_at(where: Path) -> Mount:
    mount = read_mount_table().at(str(where))
    assert mount is not None
    return mount


def probe(where: Path) -> Filesystem:
    return probe_filesystem(str(where), mount_at(where))


def identity(where: Path) -> dict[str, str]:
    return identity_of_mount(mount_at(where), probe(where))


def blkid_uuid(device: LoopDevice) -> str:
    return command("blkid", "--probe", "-o", "value", "-s", "UUID", device.path).strip()


@pytest.mark.parametrize("fstype", EACH_AND_TMPFS)
def test_sizes_are_those_statfs_gives(fstype: str) -> None:
    with filesystem(fstype) as where:
        (where / "some").write_bytes(b"x" * MIB)
        flush(where)
        # %b blocks, %s their size for transfers (f_bsize, Go's Bsize), %f free, %a available
        words = command("stat", "-f", "-c", "%b %s %f %a %c %d", where).split()
        blocks, size, free, available, inodes, inodes_free = map(int, words)
        found = probe(where)
        assert found.total_bytes == blocks * size
        assert found.total_bytes > 32 * MIB
        assert found.free_bytes == free * size
        assert found.available_bytes == available * size
        assert (found.inodes, found.inodes_free) == (inodes, inodes_free)
        assert found.fs_type == fstype
        assert found.read_only is False


@pytest.mark.parametrize("fstype", EACH)
def test_uuid_is_the_one_on_disk(fstype: str) -> None:
    with formatted(fstype) as device, mounted(device) as where:
        found = probe(where)
        assert found.uuid == blkid_uuid(device)
        assert found.device == mount_at(where).device


@pytest.mark.parametrize("fstype", EACH)
@pytest.mark.parametrize("refuses", ["generic", "generic and its own"])
def test_uuid_on_older_kernels(fstype: str, refuses: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without FS_IOC_GETFSUUID the filesystem's own call, without that the ext superblock."""
    refused = [filesystems._FS_IOC_GETFSUUID]
    if refuses != "generic":
        refused.append(filesystems._EXT4_IOC_GETFSUUID)
    real = fcntl.ioctl

    def older(fd: int, request: int, argument: bytes) -> bytes:
        if request in refused:
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        answer: bytes = real(fd, request, argument)
        return answer

    with formatted(fstype) as device, mounted(device) as where:
        monkeypatch.setattr(fcntl, "ioctl", older)
        assert probe(where).uuid == blkid_uuid(device)


@pytest.mark.parametrize("fstype", EACH)
def test_identity_survives_unmounting_and_another_loop_number(fstype: str) -> None:
    with (
        spare_loop_name() as name,
        spare_loop_name() as second_name,
        formatted(fstype, at=name) as device,
    ):
        with mounted(device) as where:
            first = identity(where)
        with mounted(device) as where:
            assert identity(where) == first
        device.detach()
        # The old number now belongs to something else.
        with loop_device(MIB, at=name):
            device.attach(at=second_name)
            with mounted(device) as where:
                assert identity(where) == first
    assert first["kind"] == "filesystem"
    assert first["fsType"] == fstype
    assert first["root"] == "/"
    assert name not in first.values()


@pytest.mark.parametrize("fstype", EACH)
def test_identity_differs_after_mkfs_and_for_another_disk_under_the_same_name(
    fstype: str,
) -> None:
    with spare_loop_name() as name:
        with formatted(fstype, at=name) as device:
            with mounted(device) as where:
                first = identity(where)
            device.format(fstype)
            with mounted(device) as where:
                assert identity(where) != first
        with formatted(fstype, at=name) as device, mounted(device) as where:
            assert identity(where) != first


@pytest.mark.needs("root")
def test_each_tmpfs_is_another() -> None:
    with tmpfs() as one, tmpfs() as two:
        assert probe(one).total_bytes == 64 * MIB
        if "uuid" in identity(one):
            assert identity(one) != identity(two)
        else:
            # Before Linux 6.9: no identity, and it must not pretend to one.
            assert "source" not in identity(one)


@pytest.mark.needs("root", "loop", "ext4")
def test_identity_of_a_bind_mount_names_the_directory() -> None:
    with filesystem("ext4") as where:
        for name in ("a", "b"):
            (where / name).mkdir()
        with bind(where / "a") as a, bind(where / "a") as again, bind(where / "b") as b:
            assert identity(a)["root"] == "/a"
            assert identity(b)["root"] == "/b"
            assert identity(a) == identity(again)
            assert identity(a)["uuid"] == identity(b)["uuid"] == identity(where)["uuid"]
            assert probe(a).total_bytes == probe(where).total_bytes


@pytest.mark.needs("root", "loop", "btrfs")
def test_btrfs_subvolumes_have_their_own_identity() -> None:
    with formatted("btrfs") as device:
        with mounted(device) as where:
            command("btrfs", "subvolume", "create", where / "tenant")
            whole = identity(where)
        with mounted(device, options="subvol=tenant") as where:
            assert identity(where) == {**whole, "root": "/tenant"}


@pytest.mark.needs("root", "loop", "ext4")
def test_read_only_is_seen_on_the_filesystem_and_on_a_bind_mount() -> None:
    with formatted("ext4") as device:
        with mounted(device, options="ro") as where:
            assert probe(where).read_only is True
        with mounted(device) as where:
            with bind(where, read_only=True) as view:
                assert probe(view).read_only is True
            assert probe(where).read_only is False


@pytest.mark.needs("root", "loop", "ext4")
def test_a_uuid_of_zeros_is_none() -> None:
    with formatted("ext4", "-U", "clear") as device, mounted(device) as where:
        assert probe(where).uuid is None
        found = identity(where)
        inode = str(device.backing.stat().st_ino)
        assert found == {
            "kind": "filesystem",
            "fsType": "ext4",
            "root": "/",
            "deviceLoopInode": inode,
        }


def test_a_network_mount_is_known_by_its_source() -> None:
    mount = Mount(1, 0, "0:99", "/", "/mnt/x", "rw", "nfs4", "server:/export")
    found = Filesystem(1, 1, 1, 0, 0, "nfs4", None, "0:99", False)
    assert identity_of_mount(mount, found)["source"] == "server:/export"
    on_device = mount._replace(fs_type="exfat", source="/dev/sdb1")
    assert "source" not in identity_of_mount(on_device, found)


@pytest.mark.needs("root")
def test_another_mount_than_the_table_shows_is_noticed() -> None:
    with tmpfs() as where:
        before = mount_at(where)
        with tmpfs(where), pytest.raises(Changed):
            probe_filesystem(str(where), before)


def test_probing_something_else_than_a_directory_never_opens_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path)
    mount = Mount(1, 0, "0:1", "/", "/", "rw", "ext4", "x")
    for name in ("fifo", "link"):
        with pytest.raises(NotADirectoryError):
            probe_filesystem(str(tmp_path / name), mount)
        with pytest.raises(NotADirectoryError):
            looks_empty(str(tmp_path / name))


class TestLooksEmpty:
    @pytest.mark.parametrize("fstype", EACH_AND_TMPFS)
    def test_fresh_filesystems_are_empty(self, fstype: str) -> None:
        with filesystem(fstype) as where:
            assert looks_empty(str(where)) == Emptiness(True, None)

    @pytest.mark.parametrize("fstype", EACH_AND_TMPFS)
    @pytest.mark.parametrize("name", [b".hidden", b"\xff\xfe", b"new\nline", b"lost+found "])
    def test_anything_is_data(self, fstype: str, name: bytes) -> None:
        with filesystem(fstype) as where:
            os.close(os.open(os.fsencode(where) + b"/" + name, os.O_CREAT | os.O_WRONLY))
            assert looks_empty(str(where)) == Emptiness(False, os.fsdecode(name))

    @pytest.mark.needs("root", "loop", "ext4")
    def test_what_lies_in_lost_and_found_is_data(self) -> None:
        with filesystem("ext4") as where:
            (where / "lost+found" / "#12").write_text("recovered")
            assert looks_empty(str(where)) == Emptiness(False, "lost+found/#12")

    @pytest.mark.needs("root", "loop", "ext4")
    def test_lost_and_found_must_be_a_directory(self) -> None:
        with filesystem("ext4") as where:
            (where / "lost+found").rmdir()
            (where / "lost+found").write_text("data")
            assert looks_empty(str(where)) == Emptiness(False, "lost+found")

    @pytest.mark.needs("root")
    def test_elsewhere_lost_and_found_is_a_name_like_any_other(self) -> None:
        with tmpfs() as where:
            (where / "lost+found").mkdir()
            assert looks_empty(str(where)) == Emptiness(False, "lost+found")

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            looks_empty(str(tmp_path / "nothing"))


@pytest.mark.needs("root", "loop", "ext4")
def test_support_leaves_nothing_behind() -> None:
    made: list[Path] = []

    def fails() -> None:
        with formatted("ext4") as device, mounted(device) as where:
            made.extend((device.backing, where))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    backing, where = made
    assert not backing.exists()
    assert not where.exists()
    assert str(backing) not in subprocess.check_output(["losetup", "--all"], text=True)


@pytest.mark.needs("root", "loop")
def test_a_killed_test_leaves_no_loop_device(tmp_path: Path) -> None:
    backing = tmp_path / "disk"
    program = (
        "import os, pathlib\n"
        "from tests.host.support_devices import loop_device\n"
        f"with loop_device(backing=pathlib.Path({str(backing)!r})):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parents[2], timeout=60
    )
    assert done.returncode == -9
    assert backing.exists()
    # Where another process looks at the device just then, it goes when that closes it.
    until(lambda: str(backing) not in subprocess.check_output(["losetup", "--all"], text=True))
