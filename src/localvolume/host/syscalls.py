"""The few system calls Python does not offer: statfs, syncfs, openat2, mount ids, ioctl numbers;
and writing all of something where pwrite(2) may write a part.

Plain ``ioctl`` goes through ``fcntl``; ctypes is only for calls that have no other way in. All
numbers and layouts are the kernel's user API (linux/fs.h, linux/openat2.h, linux/stat.h) and the
same on every 64-bit architecture Kubernetes runs on.
"""

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

_libc = ctypes.CDLL(None, use_errno=True)

_NR_OPENAT2 = 437  # the same on every architecture: it came after the tables were unified
# Only s390x has 32-bit type and block size fields in statfs.
_STATFS_WORD = ctypes.c_uint if platform.machine() == "s390x" else ctypes.c_ulong

# linux/magic.h
EXT_MAGIC = 0xEF53
XFS_MAGIC = 0x58465342
BTRFS_MAGIC = 0x9123683E
TMPFS_MAGIC = 0x01021994

# linux/openat2.h
RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

_AT_EMPTY_PATH = 0x1000
_STATX_MNT_ID = 0x1000  # Linux 5.8
_STATX_BYTES = 256
_STATX_MNT_ID_OFFSET = 144


def ioc(direction: int, kind: int, number: int, size: int) -> int:
    """Compose an ioctl number as asm-generic/ioctl.h does: direction 1 writes, 2 reads, 3 both."""
    if platform.machine().startswith(("ppc", "mips", "sparc")):
        # These have 13 size bits and their own direction codes (none 1, read 2, write 4).
        direction = {0: 1, 1: 4, 2: 2, 3: 6}[direction]
        return direction << 29 | size << 16 | kind << 8 | number
    return direction << 30 | size << 16 | kind << 8 | number


def write_at(fd: int, data: bytes | memoryview, start: int) -> None:
    """Write all of it there: pwrite(2) may take a part. Raises OSError."""
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, start)
        left, start = left[written:], start + written


@contextmanager
def closed_after(fd: int) -> Iterator[int]:
    """Yield the open descriptor, and close it at the end."""
    try:
        yield fd
    finally:
        os.close(fd)


class _Statfs(ctypes.Structure):
    _fields_ = (
        ("type", _STATFS_WORD),
        ("bsize", _STATFS_WORD),
        ("blocks", ctypes.c_ulong),
        ("bfree", ctypes.c_ulong),
        ("bavail", ctypes.c_ulong),
        ("files", ctypes.c_ulong),
        ("ffree", ctypes.c_ulong),
        ("fsid", ctypes.c_int * 2),
        ("namelen", _STATFS_WORD),
        ("frsize", _STATFS_WORD),
        ("flags", _STATFS_WORD),
        ("spare", ctypes.c_ulong * 8),
    )


class StatFs(NamedTuple):
    """What statfs(2) says, in its own units: ``blocks``, ``free``, ``available`` of ``block_size``.

    ``available`` leaves out what is reserved for root; the counts of inodes are 0 on filesystems
    that make them as needed (btrfs).
    """

    magic: int
    block_size: int
    blocks: int
    free: int
    available: int
    inodes: int
    inodes_free: int
    #: f_fsid: for most filesystems derived from their device number, for tmpfs (Linux 5.13) random.
    fsid: int


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


def failed(name: str | None = None) -> OSError:
    """The error of the C library's function that has just failed."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), name)


def syscall(number: int, name: str | None, *arguments: Any) -> int:
    """Make a call that the C library has no function for; `name` is for errors. Raises OSError."""
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise failed(name)
    return result


def fstatfs(fd: int) -> StatFs:
    """Return what statfs(2) says of the filesystem ``fd`` lies in; raises OSError."""
    found = _Statfs()
    if _libc.fstatfs(ctypes.c_int(fd), ctypes.byref(found)):
        raise failed()
    return StatFs(
        # Some libcs sign-extend the 32-bit magic.
        int(found.type) & 0xFFFFFFFF,
        int(found.bsize),
        int(found.blocks),
        int(found.bfree),
        int(found.bavail),
        int(found.files),
        int(found.ffree),
        int.from_bytes(bytes(found.fsid), "little"),
    )


def syncfs(fd: int) -> None:
    """Write out everything of the filesystem ``fd`` lies in; raises OSError if that failed."""
    if _libc.syncfs(ctypes.c_int(fd)):
        raise failed()


def openat2(dir_fd: int, path: str, flags: int, mode: int, resolve: int) -> int:
    """Open as openat2(2) (Linux 5.6) does, always close-on-exec; returns the descriptor.

    Raises OSError: ENOSYS where the kernel lacks it, EPERM also where an old seccomp profile
    refuses calls it does not know.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve)
    size = ctypes.sizeof(how)
    return syscall(_NR_OPENAT2, path, dir_fd, os.fsencode(path), ctypes.byref(how), size)


def mount_id(fd: int) -> int:
    """Return the id (first field of mountinfo) of the mount that ``fd`` was opened through."""
    statx: Any = getattr(_libc, "statx", None)
    if statx is not None:
        buffer = ctypes.create_string_buffer(_STATX_BYTES)
        failed = statx(
            ctypes.c_int(fd),
            ctypes.c_char_p(b""),
            ctypes.c_int(_AT_EMPTY_PATH),
            ctypes.c_uint(_STATX_MNT_ID),
            buffer,
        )
        if not failed and int.from_bytes(buffer.raw[:4], sys.byteorder) & _STATX_MNT_ID:
            return int.from_bytes(
                buffer.raw[_STATX_MNT_ID_OFFSET : _STATX_MNT_ID_OFFSET + 8], sys.byteorder
            )
    # Before Linux 5.8, or a libc without statx: the kernel also writes it here (Linux 3.15).
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("mnt_id:"):
                return int(line.split()[1])
    raise OSError(errno.ENOSYS, "the kernel does not tell mount ids")
