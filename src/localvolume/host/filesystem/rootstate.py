"""How the root directory of a filesystem is set up: mode, owner, inode flags, project.

A tenant may change all of it, and none of it goes away with the files. It is read when a volume is
first offered, and restored after a cleaning.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import Final

from localvolume.host.filesystem.inodeflags import (
    NO_FLAGS_HERE,
    Attributes,
    read_attributes,
    read_flags,
    unlock,
    write_attributes,
    write_flags,
)

# What chattr can set on at least one filesystem: s u c S i a d A, j t D T, C x F P.
_FLAGS: Final = 0x000000FF | 0x0003C000 | 0x00800000 | 0x02000000 | 0x40000000 | 0x20000000
# FS_XFLAG_*: all but those that describe the inode itself (realtime, prealloc, hasattr).
_XFLAGS: Final = 0x0001FFF8


@dataclass(frozen=True, slots=True)
class RootState:
    """`mode` holds the permission bits. From `flags` on, None: the filesystem has no such thing.

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
    """Read how an open directory is set up now; raises OSError."""
    found = os.fstat(fd)
    flags, extended = read_flags(fd), _extended(fd)
    return RootState(
        mode=stat.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        flags=None if flags is None else flags & _FLAGS,
        xflags=None if extended is None else extended[0] & _XFLAGS,
        extent_bytes=None if extended is None else extended[1],
        cow_extent_bytes=None if extended is None else extended[4],
        project=None if extended is None else extended[3],
    )


def restore_root(fd: int, state: RootState) -> None:
    """Set up an open directory like that again, and sync it to disk; raises OSError."""
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
            write_attributes(fd, wanted)
    flags = read_flags(fd)
    if flags is not None and state.flags is not None and flags & _FLAGS != state.flags:
        write_flags(fd, flags & ~_FLAGS | state.flags)
    os.fsync(fd)
    if (now := read_root(fd)) != state:
        raise OSError(errno.EIO, f"the root is {now} after it was to be {state}")


def _extended(fd: int) -> Attributes | None:
    try:
        return read_attributes(fd)
    except OSError as error:
        if error.errno in NO_FLAGS_HERE:
            return None
        raise
