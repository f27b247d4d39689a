"""Bind mounts by descriptor: source and target are those that were looked at (mount(2))."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

_libc = ctypes.CDLL(None, use_errno=True)

# linux/mount.h
_READ_ONLY: Final = 1
_REMOUNT: Final = 32
_BIND: Final = 4096
_NO_FOLLOW: Final = 8  # UMOUNT_NOFOLLOW
FLAGS: Final = {
    "nosuid": 2,
    "nodev": 4,
    "noexec": 8,
    "noatime": 1024,
    "nodiratime": 2048,
    "relatime": 1 << 21,
}
"""The mount options that a bind mount can have of its own."""


def bind(source_fd: int, target: str) -> None:
    """Mount an open directory at a path without links on the way. Raises OSError."""
    target_fd = os.open(target, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        _mount(f"/proc/self/fd/{source_fd}", f"/proc/self/fd/{target_fd}", _BIND, target)
    finally:
        os.close(target_fd)


def set_options(target: str, options: frozenset[str], *, read_only: bool) -> None:
    """Give the bind mount at that path just these options (names of FLAGS). Raises OSError."""
    flags = _REMOUNT | _BIND | (_READ_ONLY if read_only else 0)
    for name in options:
        flags |= FLAGS[name]
    _mount("none", target, flags, target)


def unmount(target: str) -> bool:
    """Take away the topmost mount there; False if there is none. Raises OSError."""
    if _libc.umount2(ctypes.c_char_p(os.fsencode(target)), ctypes.c_int(_NO_FOLLOW)) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOENT):
        return False
    raise OSError(number, os.strerror(number), target)


def _mount(source: str, path: str, flags: int, target: str) -> None:
    failed = _libc.mount(
        ctypes.c_char_p(os.fsencode(source)),
        ctypes.c_char_p(os.fsencode(path)),
        None,
        ctypes.c_ulong(flags),
        None,
    )
    if failed:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)
