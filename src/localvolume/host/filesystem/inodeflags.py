"""What a former tenant may have set on a directory or file besides its content: flags, attributes.

chattr's immutable and append-only flags keep even root from deleting; extended attributes and
access lists of a directory outlive its content.
"""

import errno
import fcntl
import os
import stat
import struct

from localvolume.host.syscalls import closed_after, ioc
from localvolume.host.tree.beneath import open_beneath

# linux/fs.h; declared with long, but the kernel moves an int
_FS_IOC_GETFLAGS = ioc(2, ord("f"), 1, struct.calcsize("l"))
_FS_IOC_SETFLAGS = ioc(1, ord("f"), 2, struct.calcsize("l"))
_IMMUTABLE, _APPEND = 0x10, 0x20
# struct fsxattr { u32 xflags, extsize, nextents, projid, cowextsize; u8 pad[8]; }
_FSXATTR = struct.Struct("=IIIII8x")
_FS_IOC_FSGETXATTR = ioc(2, ord("X"), 31, _FSXATTR.size)
_FS_IOC_FSSETXATTR = ioc(1, ord("X"), 32, _FSXATTR.size)
# linux/btrfs.h
_SUBVOL_GETFLAGS = ioc(2, 0x94, 25, 8)
_SUBVOL_SETFLAGS = ioc(1, 0x94, 26, 8)
_SUBVOL_RDONLY = 2
_SUBVOL_ROOT_INODE = 256

_ACLS = ("system.posix_acl_access", "system.posix_acl_default")
NO_FLAGS_HERE = frozenset({errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


def read_flags(fd: int) -> int | None:
    """The flags of an open file or directory; None if its filesystem has none. Raises OSError."""
    try:
        answer = fcntl.ioctl(fd, _FS_IOC_GETFLAGS, bytes(8))
    except OSError as error:
        if error.errno in NO_FLAGS_HERE:
            return None
        raise
    return int(struct.unpack_from("=I", answer)[0])


def write_flags(fd: int, flags: int) -> None:
    """Set the flags of an open file or directory. Raises OSError."""
    fcntl.ioctl(fd, _FS_IOC_SETFLAGS, struct.pack("=I4x", flags))


Attributes = tuple[int, int, int, int, int]
"""xflags, bytes of an extent, extents, project, and bytes of an extent that is copied on write."""


def read_attributes(fd: int) -> Attributes:
    """What FS_IOC_FSGETXATTR tells of an open file or directory. Raises OSError."""
    answer = fcntl.ioctl(fd, _FS_IOC_FSGETXATTR, bytes(_FSXATTR.size))
    xflags, extent, extents, project, cow = _FSXATTR.unpack(answer)
    return xflags, extent, extents, project, cow


def write_attributes(fd: int, attributes: Attributes) -> None:
    """Set these on an open file or directory; the extents are ignored. Raises OSError."""
    fcntl.ioctl(fd, _FS_IOC_FSSETXATTR, _FSXATTR.pack(*attributes))


def unlock(fd: int) -> bool:
    """Clear the immutable and append-only flags of an open file or directory.

    Returns whether one was set. Raises OSError: EPERM without CAP_LINUX_IMMUTABLE.
    """
    flags = read_flags(fd)
    if flags is None or not flags & (_IMMUTABLE | _APPEND):
        return False
    write_flags(fd, flags & ~(_IMMUTABLE | _APPEND))
    return True


def unlock_beneath(parent: int, name: str) -> bool:
    """Like ``unlock`` for ``name`` in ``parent``; opens nothing but files and directories.

    Raises ``LeadsOutside`` when another mount begins there, OSError.
    """
    with closed_after(open_beneath(parent, name, os.O_PATH | os.O_NOFOLLOW)) as place:
        mode = os.fstat(place).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            return False
        fd = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with closed_after(fd):
        return unlock(fd)


def unlock_subvolume(fd: int) -> None:
    """Make a read-only btrfs snapshot writable if ``fd`` is its root; raises OSError."""
    if os.fstat(fd).st_ino != _SUBVOL_ROOT_INODE:
        return
    flags = _subvolume_flags(fd)
    if flags & _SUBVOL_RDONLY:
        fcntl.ioctl(fd, _SUBVOL_SETFLAGS, struct.pack("=Q", flags & ~_SUBVOL_RDONLY))


def lock_subvolume(fd: int) -> None:
    """Make the btrfs subvolume whose root ``fd`` is read-only, if it is not; raises OSError."""
    flags = _subvolume_flags(fd)
    if not flags & _SUBVOL_RDONLY:
        fcntl.ioctl(fd, _SUBVOL_SETFLAGS, struct.pack("=Q", flags | _SUBVOL_RDONLY))


def _subvolume_flags(fd: int) -> int:
    return int(struct.unpack("=Q", fcntl.ioctl(fd, _SUBVOL_GETFLAGS, bytes(8)))[0])


def strip_attributes(fd: int) -> None:
    """Remove ``user.*`` attributes and POSIX access lists; mode, owner and labels stay.

    Raises OSError.
    """
    try:
        names = os.listxattr(fd)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            return
        raise
    for name in names:
        if name.startswith("user.") or name in _ACLS:
            try:
                os.removexattr(fd, name)
            except OSError as error:
                if error.errno != errno.ENODATA:
                    raise
