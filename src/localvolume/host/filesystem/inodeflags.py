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
# linux/btrfs.h
_SUBVOL_GETFLAGS = ioc(2, 0x94, 25, 8)
_SUBVOL_SETFLAGS = ioc(1, 0x94, 26, 8)
_SUBVOL_RDONLY = 2
_SUBVOL_ROOT_INODE = 256

_ACLS = ("system.posix_acl_access", "system.posix_acl_default")
_NO_FLAGS_HERE = frozenset({errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


def unlock(fd: int) -> bool:
    """Clear the immutable and append-only flags of an open file or directory.

    Returns whether one was set. Raises OSError: EPERM without CAP_LINUX_IMMUTABLE.
    """
    try:
        answer = fcntl.ioctl(fd, _FS_IOC_GETFLAGS, bytes(8))
    except OSError as error:
        if error.errno in _NO_FLAGS_HERE:
            return False
        raise
    flags = struct.unpack_from("=I", answer)[0]
    if not flags & (_IMMUTABLE | _APPEND):
        return False
    fcntl.ioctl(fd, _FS_IOC_SETFLAGS, struct.pack("=I4x", flags & ~(_IMMUTABLE | _APPEND)))
    return True


def unlock_beneath(parent: int, name: str) -> bool:
    """As ``unlock`` for ``name`` in ``parent``; anything but files and directories is not opened.

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
    """Make a read-only btrfs snapshot writable if ``fd`` is one's root; raises OSError."""
    if os.fstat(fd).st_ino != _SUBVOL_ROOT_INODE:
        return
    flags = struct.unpack("=Q", fcntl.ioctl(fd, _SUBVOL_GETFLAGS, bytes(8)))[0]
    if flags & _SUBVOL_RDONLY:
        fcntl.ioctl(fd, _SUBVOL_SETFLAGS, struct.pack("=Q", flags & ~_SUBVOL_RDONLY))


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
