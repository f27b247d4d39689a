"""How the root directory of a filesystem is set up: mode, owner, inode flags, project.

A tenant may change all of it, and nothing of it goes with the files. It is read when a volume is
offered first, and given back after a cleaning.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from dataclasses import dataclass
from typing import Final

from localvolume.host.filesystem.inodeflags import unlock
from localvolume.host.syscalls import ioc

# linux/fs.h; declared with long, but the kernel moves an int
_FS_IOC_GETFLAGS: Final = ioc(2, ord("f"), 1, struct.calcsize("l"))
_FS_IOC_SETFLAGS: Final = ioc(1, ord("f"), 2, struct.calcsize("l"))
# struct fsxattr { u32 xflags, extsize, nextents, projid, cowextsize; u8 pad[8]; }
_FSXATTR: Final = struct.Struct("=IIIII8x")
_FS_IOC_FSGETXATTR: Final = ioc(2, ord("X"), 31, _FSXATTR.size)
_FS_IOC_FSSETXATTR: Final = ioc(1, ord("X"), 32, _FSXATTR.size)

# What chattr may set, on one filesystem or another: s u c S i a d A, j t D T, C x F P.
_FLAGS: Final = 0x000000FF | 0x0003C000 | 0x00800000 | 0x02000000 | 0x40000000 | 0x20000000
# FS_XFLAG_*: all but what the kernel says of the inode itself (realtime, prealloc, hasattr).
_XFLAGS: Final = 0x0001FFF8
_NO_FLAGS_HERE: Final = frozenset({errno.ENOTTY, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})


@dataclass(frozen=True, slots=True)
class RootState:
    """`mode` are permission bits; the others are None where the filesystem has no such thing.

    `flags` are those of FS_IOC_GETFLAGS, `xflags`, `project` and the sizes in bytes those of
    FS_IOC_FSGETXATTR (linux/fs.h).
    """

    mode: int
    uid: int
    gid: int
    flags: int | None = None
    xflags: int | None = None
    extent_bytes: int | None = None
    cow_extent_bytes: int | None = None
    project: int | None = None


def read_root(fd: int) -> RootState:
    """How an open directory is set up now; raises OSError."""
    found = os.fstat(fd)
    extended = _extended(fd)
    return RootState(
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        flags=_flags(fd),
        xflags=None if extended is None else extended[0] & _XFLAGS,
        extent_bytes=None if extended is None else extended[1],
        cow_extent_bytes=None if extended is None else extended[4],
        project=None if extended is None else extended[3],
    )


def restore_root(fd: int, state: RootState) -> None:
    """Have an open directory set up like that again, on disk; raises OSError."""
    if read_root(fd) == state:
        return
    unlock(fd)
    os.fchown(fd, state.uid, state.gid)
    os.fchmod(fd, state.mode)
    extended = _extended(fd)
    if extended is not None and state.xflags is not None:
        xflags, extent, extents, project, cow = extended
        wanted = (
            xflags & ~_XFLAGS | state.xflags,
            extent if state.extent_bytes is None else state.extent_bytes,
            extents,
            project if state.project is None else state.project,
            cow if state.cow_extent_bytes is None else state.cow_extent_bytes,
        )
        if wanted != extended:
            fcntl.ioctl(fd, _FS_IOC_FSSETXATTR, _FSXATTR.pack(*wanted))
    flags = _flags(fd)
    if flags is not None and state.flags is not None and flags != state.flags:
        whole = struct.unpack_from("=I", fcntl.ioctl(fd, _FS_IOC_GETFLAGS, bytes(8)))[0]
        fcntl.ioctl(fd, _FS_IOC_SETFLAGS, struct.pack("=I4x", whole & ~_FLAGS | state.flags))
    os.fsync(fd)
    if (now := read_root(fd)) != state:
        raise OSError(errno.EIO, f"the root is {now} after it was to be {state}")


def _flags(fd: int) -> int | None:
    try:
        answer = fcntl.ioctl(fd, _FS_IOC_GETFLAGS, bytes(8))
    except OSError as error:
        if error.errno in _NO_FLAGS_HERE:
            return None
        raise
    found: int = struct.unpack_from("=I", answer)[0]
    return found & _FLAGS


def _extended(fd: int) -> tuple[int, int, int, int, int] | None:
    try:
        answer = fcntl.ioctl(fd, _FS_IOC_FSGETXATTR, bytes(_FSXATTR.size))
    except OSError as error:
        if error.errno in _NO_FLAGS_HERE:
            return None
        raise
    xflags, extent, extents, project, cow = _FSXATTR.unpack(answer)
    return xflags, extent, extents, project, cow
