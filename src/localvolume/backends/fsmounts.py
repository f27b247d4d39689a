"""Where a device's filesystem is mounted, and what it holds: seen through a mount, or on itself."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from localvolume.backends.fstools import ext_super
from localvolume.backends.model import Usage
from localvolume.host.mount.mounts import MountTable, read_mount_table
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.entries import device_number


@contextmanager
def mounted_root(device: str) -> Iterator[int | None]:
    """The root of a mount of ``major:minor`` that we see, open; None where we see none.

    Raises OSError.
    """
    fd = _open_root(device)
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


def _open_root(device: str) -> int | None:
    for mount in read_mount_table().of_device(device):
        if mount.root != "/":
            continue
        try:
            fd = os.open(mount.mount_point, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # unmounted meanwhile, or hidden: another may do
        if device_number(os.fstat(fd).st_dev) == device:
            return fd
        os.close(fd)
    return None


def mounted_usage(table: MountTable, device: str) -> Usage | None:
    """What the filesystem on ``major:minor`` says of itself; None where it is mounted nowhere."""
    for mount in table.of_device(device):
        if (usage := _usage_at(mount.mount_point, device)) is not None:
            return usage
    return None


def _usage_at(point: str, device: str) -> Usage | None:
    try:
        fd = os.open(point, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    with closed_after(fd):
        if device_number(os.fstat(fd).st_dev) != device:
            return None  # something else is mounted over it
        found = os.fstatvfs(fd)
    return Usage(
        used_bytes=(found.f_blocks - found.f_bfree) * found.f_frsize,
        available_bytes=found.f_bavail * found.f_frsize,
        used_inodes=found.f_files - found.f_ffree,
        available_inodes=found.f_favail,
    )


def unmounted_ext4_usage(place: int | str) -> Usage | None:
    """What an ext4 that is mounted nowhere holds; None where it may be out of date.

    Raises OSError, BackendFailed where it is no ext4.
    """
    found = ext_super(place)
    if not found.clean:
        return None
    return Usage(
        used_bytes=(found.blocks - found.overhead(found.blocks) - found.free) * found.block_size,
        available_bytes=found.available * found.block_size,
        used_inodes=found.inodes - found.inodes_free,
        available_inodes=found.inodes_free,
    )
