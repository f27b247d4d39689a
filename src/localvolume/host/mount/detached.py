"""A mount that nobody else sees: in no mount table, gone with its last descriptor (Linux 5.2).

It serves for what a filesystem can only do while mounted (xfs: grow, say what is free). And a
filesystem that is to be mounted for good can be looked at in one before anybody sees it.
"""

import contextlib
import os
from collections.abc import Iterator

from localvolume.host.syscalls import closed_after, syscall

# The same on every architecture: they came after the tables were unified.
_NR_MOVE_MOUNT, _NR_FSOPEN, _NR_FSCONFIG, _NR_FSMOUNT = 429, 430, 431, 432
# linux/mount.h
_CLOEXEC = 1
_SET_STRING, _CMD_CREATE = 1, 6
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_FROM_EMPTY_PATH, _TO_EMPTY_PATH = 0x4, 0x40
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextlib.contextmanager
def detached_mount(device: str, fs_type: str) -> Iterator[int]:
    """Mount a device for writing and yield a descriptor of its root directory.

    Other mounts of it, at the same time, are the same filesystem and harmless. Raises OSError:
    EBUSY if the device is claimed, EUCLEAN, EINVAL and others if it does not hold that filesystem,
    ENODEV if the kernel lacks the filesystem, ENOSYS before Linux 5.2.
    """
    with (
        closed_after(open_mount(device, fs_type, _NOSUID | _NODEV | _NOEXEC)) as place,
        closed_after(os.open(".", _DIRECTORY, dir_fd=place)) as root,
    ):
        yield root


def open_mount(device: str, fs_type: str, attributes: int = 0) -> int:
    """Mount a device for writing where nobody sees it; returns the mount's descriptor (O_PATH).

    `attributes` are linux/mount.h's MOUNT_ATTR_*. Raises as `detached_mount` does.
    """
    with closed_after(syscall(_NR_FSOPEN, device, fs_type.encode(), _CLOEXEC)) as context:
        syscall(_NR_FSCONFIG, device, context, _SET_STRING, b"source", os.fsencode(device), 0)
        syscall(_NR_FSCONFIG, device, context, _CMD_CREATE, None, None, 0)
        return syscall(_NR_FSMOUNT, device, context, _CLOEXEC, attributes)


def put_mount(mount_fd: int, directory_fd: int, path: str) -> None:
    """Put such a mount on an open directory, for all to see; `path` names that in errors.

    Raises OSError.
    """
    flags = _FROM_EMPTY_PATH | _TO_EMPTY_PATH
    syscall(_NR_MOVE_MOUNT, path, mount_fd, b"", directory_fd, b"", flags)
