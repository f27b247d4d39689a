"""A mount that nobody else sees: in no mount table, gone with its last descriptor (Linux 5.2).

It serves for what a filesystem can only do while mounted (xfs: grow, say what is free). And what is
to be mounted for good can be looked at in one, and gets all its options, before anybody sees it.
"""

import contextlib
import os
import struct
from collections.abc import Iterator, Sequence

from localvolume.host.syscalls import closed_after, syscall

# The same on every architecture: they came after the tables were unified.
_NR_OPEN_TREE, _NR_MOVE_MOUNT, _NR_FSOPEN, _NR_FSCONFIG, _NR_FSMOUNT = 428, 429, 430, 431, 432
_NR_MOUNT_SETATTR = 442
# linux/mount.h
_CLOEXEC = 1
_SET_FLAG, _SET_STRING, _CMD_CREATE = 0, 1, 6
_CLONE = 1
_EMPTY_PATH = 0x1000
_PRIVATE = 2 | 4 | 8  # nosuid, nodev, noexec
_FROM_EMPTY_PATH, _TO_EMPTY_PATH = 0x4, 0x40
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@contextlib.contextmanager
def detached_mount(device: str, fs_type: str, options: Sequence[str] = ()) -> Iterator[int]:
    """Mount a device for writing and yield a descriptor of its root directory.

    `options` are those of the filesystem ("nouuid"; "ro": not for writing). Other mounts of it, at
    the same time, are the same filesystem and harmless. Raises OSError: EBUSY if the device is
    claimed, EUCLEAN, EINVAL and others if it does not hold that filesystem, ENODEV if the kernel
    lacks the filesystem, ENOSYS before Linux 5.2.
    """
    with (
        closed_after(open_mount(device, fs_type, _PRIVATE, options)) as place,
        closed_after(os.open(".", _DIRECTORY, dir_fd=place)) as root,
    ):
        yield root


def open_mount(device: str, fs_type: str, attributes: int = 0, options: Sequence[str] = ()) -> int:
    """Mount a device for writing where nobody sees it; returns the mount's descriptor (O_PATH).

    `attributes` are linux/mount.h's MOUNT_ATTR_*, `options` those of the filesystem ("discard").
    Raises as `detached_mount` does; what the kernel says of the filesystem is in the error.
    """
    with closed_after(syscall(_NR_FSOPEN, device, fs_type.encode(), _CLOEXEC)) as context:
        try:
            syscall(_NR_FSCONFIG, device, context, _SET_STRING, b"source", os.fsencode(device), 0)
            for option in options:
                key, given, value = option.encode().partition(b"=")
                kind, text = (_SET_STRING, value) if given else (_SET_FLAG, None)
                syscall(_NR_FSCONFIG, device, context, kind, key, text, 0)
            syscall(_NR_FSCONFIG, device, context, _CMD_CREATE, None, None, 0)
        except OSError as error:
            raise OSError(error.errno, _said(context) or error.strerror, device) from error
        return syscall(_NR_FSMOUNT, device, context, _CLOEXEC, attributes)


def _said(context: int) -> str:
    """What the kernel says of a filesystem that it did not mount; "" if it says nothing."""
    lines = []
    # A read returns one message, and fails once there are no more.
    with contextlib.suppress(OSError):
        while line := os.read(context, 4096):
            lines.append(line.decode(errors="replace").strip())
    # Errors begin with "e", warnings with "w", all else with "i".
    return "; ".join(line[2:] for line in lines if line.startswith("e "))


def clone_mount(fd: int, path: str, attributes: int = 0, cleared: int = 0) -> int:
    """Make a bind mount of an open directory or file where nobody sees it; returns its descriptor.

    It has the attributes of the mount that `fd` was opened through (O_PATH is enough), without
    those `cleared` and with those given (MOUNT_ATTR_*; Linux 5.12). Mounts below are left out.
    `path` names it in errors. Raises OSError.
    """
    flags = _CLONE | os.O_CLOEXEC | _EMPTY_PATH
    mount_fd = syscall(_NR_OPEN_TREE, path, fd, b"", flags)
    try:
        if attributes or cleared:
            # struct mount_attr: set, cleared, propagation, user namespace
            wanted = struct.pack("=QQQQ", attributes, cleared, 0, 0)
            syscall(_NR_MOUNT_SETATTR, path, mount_fd, b"", _EMPTY_PATH, wanted, len(wanted))
    except OSError:
        os.close(mount_fd)
        raise
    return mount_fd


def put_mount(mount_fd: int, place_fd: int, path: str) -> None:
    """Put such a mount on an open directory (or file, if it is one), for all to see.

    `path` names the place in errors. Raises OSError.
    """
    flags = _FROM_EMPTY_PATH | _TO_EMPTY_PATH
    syscall(_NR_MOVE_MOUNT, path, mount_fd, b"", place_fd, b"", flags)
