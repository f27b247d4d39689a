"""quotactl_fd(2), and quotactl(2) where the kernel is older: the calls that set and read quotas.

Only the commands of linux/dqblk_xfs.h are meant to go through here: the kernel answers them alike
for xfs and for every filesystem of the generic quota layer (ext4).
"""

import contextlib
import ctypes
import errno
import os

from localvolume.host.block import sysfs
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.syscalls import mount_id
from localvolume.host.tree.entries import device_number

_libc = ctypes.CDLL(None, use_errno=True)

_NR_QUOTACTL_FD = 443  # Linux 5.14; the same on every architecture Kubernetes runs on
_PROJECTS = 2  # PRJQUOTA

# "Not known here", as the kernel and as old seccomp profiles say it. The kernel says the first also
# of a filesystem without quota, and the second without privilege: then the older call says it too.
_TRY_OLDER = frozenset({errno.ENOSYS, errno.EPERM})


def kernel_has_quotactl() -> bool:
    """Whether this kernel was built with quota calls at all."""
    # No device is named: ENODEV from a kernel that knows the call, ENOSYS from another.
    ctypes.set_errno(0)
    _libc.quotactl(ctypes.c_int(_command(0)), None, ctypes.c_int(0), None)
    return ctypes.get_errno() != errno.ENOSYS


def quotactl(fd: int, command: int, project: int, structure: bytes) -> bytes:
    """Do ``command`` to the project quota of the filesystem ``fd`` lies in.

    ``fd`` must be open for reading (not ``O_PATH``). ``structure`` is what the command takes;
    returned is what the kernel made of it. Raises OSError: ENOSYS where neither call knows what
    to do, EPERM without CAP_SYS_ADMIN, ENOENT or ESRCH where there is no such quota.
    """
    buffer = ctypes.create_string_buffer(structure, len(structure))
    try:
        _by_descriptor(fd, command, project, buffer)
    except OSError as refused:
        if refused.errno not in _TRY_OLDER:
            raise
        if (device := _block_device(fd)) is None:
            raise
        _by_device(device, command, project, buffer)
    return buffer.raw


def _command(command: int) -> int:
    return command << 8 | _PROJECTS


def _by_descriptor(
    fd: int, command: int, project: int, buffer: ctypes.Array[ctypes.c_char]
) -> None:
    _check(
        _libc.syscall(
            ctypes.c_long(_NR_QUOTACTL_FD),
            ctypes.c_uint(fd),
            ctypes.c_uint(_command(command)),
            ctypes.c_uint(project),
            buffer,
        )
    )


def _by_device(
    device: str, command: int, project: int, buffer: ctypes.Array[ctypes.c_char]
) -> None:
    _check(
        _libc.quotactl(
            ctypes.c_int(_command(command)),
            ctypes.c_char_p(os.fsencode(device)),
            ctypes.c_uint(project),
            buffer,
        ),
        device,
    )


def _check(answer: int, name: str | None = None) -> None:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def _block_device(fd: int) -> str | None:
    """The node of the block device that holds the filesystem of ``fd``, if it is in sight."""
    device = device_number(os.fstat(fd).st_dev)
    candidates = []
    if name := sysfs.uevent(sysfs.base_of(device)).get("DEVNAME"):
        candidates.append(f"/dev/{name}")
    with contextlib.suppress(OSError, ValueError):
        here = mount_id(fd)
        candidates += [mount.source for mount in read_mount_table() if mount.mount_id == here]
    return next((path for path in candidates if sysfs.block_number(path) == device), None)
