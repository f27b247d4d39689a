"""What a mounted filesystem is: its size, its UUID, its identity, and whether it looks empty."""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from localvolume.host.block.identity import identity_below
from localvolume.host.mount.mounts import Mount
from localvolume.host.syscalls import EXT_MAGIC, StatFs, closed_after, fstatfs, ioc
from localvolume.host.tree.entries import device_number

# linux/fs.h, Linux 6.9: struct fsuuid2 { __u8 len; __u8 uuid[16]; }
_FS_IOC_GETFSUUID = ioc(2, 0x15, 0, 17)
# fs/ext4/ext4.h, Linux 6.0: struct fsuuid { __u32 fsu_len, fsu_flags; __u8 fsu_uuid[]; }
_EXT4_IOC_GETFSUUID = ioc(2, ord("f"), 44, 8)
# libxfs/xfs_fs.h: struct xfs_fsop_geom_v1, 112 bytes, the UUID at 64
_XFS_IOC_FSGEOMETRY_V1 = ioc(2, ord("X"), 100, 112)
# linux/btrfs.h: struct btrfs_ioctl_fs_info_args, 1,024 bytes, the UUID at 16
_BTRFS_IOC_FS_INFO = ioc(2, 0x94, 31, 1024)

# On-disk ext superblock: at byte 1,024, its magic at 56 and its UUID at 104 of it.
_EXT_SUPERBLOCK = 1024

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# "This filesystem has no such call", however it says so.
_NOT_OFFERED = frozenset({errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})

# Filesystems whose source column does not say which data is mounted.
_SOURCE_IS_NO_NAME = frozenset({"tmpfs", "ramfs", "overlay", "rootfs", "devtmpfs"})


class Changed(Exception):
    """What is at the path now is not what the mount table said: read the table again."""


class Filesystem(NamedTuple):
    """One mounted filesystem as the kernel describes it at one moment; sizes in bytes."""

    #: ``f_blocks * f_bsize``, as the upstream provisioner counts it.
    total_bytes: int
    #: All that is free, and the part of it that is not reserved for root.
    free_bytes: int
    available_bytes: int
    #: 0 and 0 on filesystems that make inodes as they need them.
    inodes: int
    inodes_free: int
    fs_type: str
    #: In the usual form, lower case with dashes, or a short hexadecimal serial number (FAT); None
    #: when it has none, or this kernel does not tell it.
    uuid: str | None
    #: ``major:minor`` from the mount table. Good for comparing now, never as an identity.
    device: str
    read_only: bool


class Emptiness(NamedTuple):
    """Whether a directory holds nothing, and if it does, the first thing found."""

    empty: bool
    found: str | None


def probe_filesystem(path: str, mount: Mount) -> Filesystem:
    """Describe the filesystem at ``path``, which ``mount`` of the mount table says is there.

    Raises ``Changed`` when another mount is at the path by now, and OSError.
    """
    with closed_after(os.open(path, _DIRECTORY)) as fd:
        sizes = fstatfs(fd)
        if not _same_device(fd, mount):
            raise Changed(f"{path}: no longer the mount the table shows there")
        return Filesystem(
            total_bytes=sizes.blocks * sizes.block_size,
            free_bytes=sizes.free * sizes.block_size,
            available_bytes=sizes.available * sizes.block_size,
            inodes=sizes.inodes,
            inodes_free=sizes.inodes_free,
            fs_type=mount.fs_type,
            uuid=_uuid(fd, sizes, mount),
            device=mount.device,
            read_only=mount.read_only or bool(os.fstatvfs(fd).f_flag & os.ST_RDONLY),
        )


def identity_of_mount(mount: Mount, filesystem: Filesystem) -> dict[str, str]:
    """Say which data this is, in words that outlive unmounting, rebooting and renumbering.

    ``kind``, ``fsType`` and ``root`` always; ``uuid`` if the filesystem has one; without one,
    ``source`` if that is a name and not a device path (``server:/export``, ``pool/dataset``). An
    identity with neither cannot tell two filesystems apart and proves nothing. A copy has the same
    UUID, so the device's own identity is included (``block.identity.identity_below``).
    """
    identity = {"kind": "filesystem", "fsType": mount.fs_type, "root": mount.root}
    if filesystem.uuid is not None:
        identity["uuid"] = filesystem.uuid
    elif (
        mount.source
        and not mount.source.startswith("/dev/")
        and mount.fs_type not in _SOURCE_IS_NO_NAME
    ):
        identity["source"] = mount.source
    return identity | identity_below(mount.device)


def looks_empty(path: str) -> Emptiness:
    """Look for anything at all in a directory, ignoring only an empty ``lost+found`` of ext*.

    Raises OSError, also for a symbolic link as the last component.
    """
    with closed_after(os.open(path, _DIRECTORY)) as fd:
        lost_and_found = fstatfs(fd).magic == EXT_MAGIC
        with os.scandir(fd) as entries:
            for entry in entries:
                if (
                    lost_and_found
                    and entry.name == "lost+found"
                    and entry.is_dir(follow_symlinks=False)
                ):
                    within = _first_within(fd, entry.name)
                    if within is None:
                        continue
                    return Emptiness(False, f"lost+found/{within}")
                return Emptiness(False, entry.name)
    return Emptiness(True, None)


def _first_within(parent: int, name: str) -> str | None:
    with closed_after(os.open(name, _DIRECTORY, dir_fd=parent)) as fd, os.scandir(fd) as entries:
        return next((entry.name for entry in entries), None)


def _same_device(fd: int, mount: Mount) -> bool:
    # A btrfs subvolume has a device number of its own, unlike the one in the mount table.
    return mount.fs_type == "btrfs" or device_number(os.fstat(fd).st_dev) == mount.device


def _uuid(fd: int, sizes: StatFs, mount: Mount) -> str | None:
    """Ask the kernel first, then the filesystem itself, then (ext*) its superblock."""
    ways: list[Callable[[], bytes]] = [lambda: _generic_uuid(fd)]
    if mount.fs_type == "xfs":
        ways.append(lambda: fcntl.ioctl(fd, _XFS_IOC_FSGEOMETRY_V1, bytes(112))[64:80])
    elif mount.fs_type == "btrfs":
        ways.append(lambda: fcntl.ioctl(fd, _BTRFS_IOC_FS_INFO, bytes(1024))[16:32])
    elif sizes.magic == EXT_MAGIC:
        ways.append(lambda: _ext_uuid(fd))
        ways.append(lambda: _ext_superblock_uuid(mount.device))
    elif mount.fs_type == "tmpfs":
        # Before Linux 6.9 only this number tells one tmpfs from another.
        ways.append(lambda: sizes.fsid.to_bytes(8, "big"))
    for way in ways:
        try:
            found = way()
        except OSError as error:
            if error.errno not in _NOT_OFFERED:
                raise
            continue
        # Some images carry a UUID of zeros: as good as none.
        if any(found):
            return _format(found)
    return None


def _generic_uuid(fd: int) -> bytes:
    answer = fcntl.ioctl(fd, _FS_IOC_GETFSUUID, bytes(17))
    return answer[1 : 1 + answer[0]]


def _ext_uuid(fd: int) -> bytes:
    answer = fcntl.ioctl(fd, _EXT4_IOC_GETFSUUID, struct.pack("=II16x", 16, 0))
    return answer[8:24]


def _ext_superblock_uuid(device: str) -> bytes:
    """Read the UUID of a mounted ext* filesystem off its device: kernels before 6.0.

    The kernel keeps the superblock of a mounted ext* in the device's own page cache, so this is
    what is mounted, not what was on the disk before. Returns nothing if the device node is not
    visible (a container without the host's /dev).
    """
    try:
        with open(f"/sys/dev/block/{device}/uevent", encoding="utf-8") as lines:
            fields = dict(line.rstrip("\n").partition("=")[::2] for line in lines)
        node = os.open(f"/dev/{fields['DEVNAME']}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, PermissionError, KeyError):
        return b""
    with closed_after(node):
        found = os.fstat(node)
        if not stat.S_ISBLK(found.st_mode) or device_number(found.st_rdev) != device:
            return b""
        superblock = os.pread(node, 120, _EXT_SUPERBLOCK)
    if struct.unpack_from("<H", superblock, 56)[0] != EXT_MAGIC:
        return b""
    return superblock[104:120]


def _format(found: bytes) -> str:
    return str(UUID(bytes=found)) if len(found) == 16 else found.hex()
