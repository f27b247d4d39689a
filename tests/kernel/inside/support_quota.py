"""Filesystems with project quotas on the guest's disks, and a tenant who writes to them."""

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.host.support_devices import command, mounted
from tests.suite.units import MIB

TENANT = 65534
#: ±1 % of a limit, of which the volume's own directory takes a block.
EXACT = 0.01

_MKFS = {
    "xfs": ("mkfs.xfs", "-q", "-f", "-K"),
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "nodiscard"),
}
_WITH_PROJECTS = {"xfs": (), "ext4": ("-O", "project,quota", "-E", "quotatype=prjquota")}
DISKS = {"xfs": "/dev/ubda", "ext4": "/dev/ubdb", "spare": "/dev/ubdc"}


@contextlib.contextmanager
def formatted(
    kind: str, disk: str, *, projects: bool = True, options: str = "prjquota"
) -> Iterator[Path]:
    """A fresh filesystem on a disk of the guest's, mounted."""
    command(*_MKFS[kind], *(_WITH_PROJECTS[kind] if projects else ()), disk)
    with mounted(disk, options=options, fstype=kind) as where:
        yield where


@contextlib.contextmanager
def as_tenant() -> Iterator[None]:
    """Without root's privileges: ext4 stops nobody who has CAP_SYS_RESOURCE."""
    os.seteuid(TENANT)
    try:
        yield
    finally:
        os.seteuid(0)


# linux/fs.h: FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR and their struct fsxattr
_GET, _SET, _FSXATTR = 0x801C581F, 0x401C5820, struct.Struct("=IIIII8x")
_PROJINHERIT = 0x200


def charge(fd: int, project: int, *, inherit: bool = True) -> None:
    """What `chattr -p` does for the owner of a file, and `chattr -P` for that of a directory."""
    with as_tenant():
        flags, *sizes, _, cow = _FSXATTR.unpack(fcntl.ioctl(fd, _GET, bytes(_FSXATTR.size)))
        flags = flags | _PROJINHERIT if inherit else flags & ~_PROJINHERIT
        fcntl.ioctl(fd, _SET, _FSXATTR.pack(flags, *sizes, project, cow))


def fill(
    directory: int, *, tenant: bool = True, name: str = "filling", most: int = 512 * MIB
) -> int:
    """Append to a file until the kernel refuses; the bytes written. Fails if `most` are."""
    written = 0
    with as_tenant() if tenant else contextlib.nullcontext():
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        file = os.open(name, flags, 0o600, dir_fd=directory)
        try:
            while written < most:
                written += os.write(file, bytes(64 << 10))
        except OSError as refused:
            if refused.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            return written
        finally:
            os.close(file)
    raise AssertionError(f"nothing stopped the writing of {written} bytes")
