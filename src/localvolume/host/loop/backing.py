"""What stands behind a loop device: by its status alone, as its number says nothing.

Layouts: linux/loop.h.
"""

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from typing import NamedTuple

from localvolume.host.block import sysfs
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.entries import device_number

# struct loop_info64: lo_offset at 24, lo_sizelimit at 32, lo_flags at 52.
INFO_BYTES, INFO_FLAGS = 232, 52
READ_ONLY, AUTOCLEAR, DIRECT_IO = 1, 4, 16
_GET_STATUS64 = 0x4C05
_LOOP_MAJOR = 7


class Loop(NamedTuple):
    """A loop device and what stands behind it."""

    #: ``/dev/loop3``.
    node: str
    #: Its own number, ``major:minor``.
    device: str
    #: Of the file behind it: ``st_dev`` and ``st_ino``.
    behind: tuple[int, int]
    direct: bool
    #: The whole file, for writing, until it is detached: as ``attach`` does it.
    ours: bool


def look(node: str) -> Loop | None:
    """Ask a loop device what stands behind it; None where nothing does or there is no such node.

    Raises OSError.
    """
    try:
        fd = open_loop(node)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ENXIO:  # being detached
            return None
        raise
    with closed_after(fd):
        return status(fd, node)


def attached() -> Iterator[Loop]:
    """Yield every loop device in use. Raises OSError, also where one has no node here: what cannot
    be asked may stand on anything.
    """
    for name in sysfs.listing(f"{sysfs.SYS}/block"):
        if name.startswith("loop") and os.path.exists(f"{sysfs.SYS}/block/{name}/loop"):
            found = look(f"/dev/{name}")
            if found is not None:
                yield found
            elif not os.path.exists(f"/dev/{name}") and os.path.exists(
                f"{sysfs.SYS}/block/{name}/loop"
            ):
                raise FileNotFoundError(
                    errno.ENOENT, "in use, and not to be seen: give the agent the host's /dev", name
                )


def on_file(file: int) -> list[Loop]:
    """Return the loop devices that stand on the open file. Raises OSError."""
    behind = identity(file)
    return [loop for loop in attached() if loop.behind == behind]


def open_loop(node: str, mode: int = os.O_RDONLY) -> int:
    """Open the node if it is a loop device's; FileNotFoundError where it is anything else."""
    fd = os.open(node, mode | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(fd)
    if not stat.S_ISBLK(found.st_mode) or os.major(found.st_rdev) != _LOOP_MAJOR:
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "not a loop device", node)
    return fd


def info(fd: int) -> bytes | None:
    """The raw status of an open loop device; None where nothing stands behind it. OSError."""
    try:
        return fcntl.ioctl(fd, _GET_STATUS64, bytes(INFO_BYTES))
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def status(fd: int, node: str) -> Loop | None:
    """What stands behind the open loop device; None where nothing does. Raises OSError."""
    answer = info(fd)
    if answer is None:
        return None
    number, inode, _, offset, limit = struct.unpack_from("=QQQQQ", answer)
    flags = struct.unpack_from("=I", answer, INFO_FLAGS)[0]
    # The kernel's own form of a device number (huge_encode_dev), unlike libc's.
    major, minor = (number & 0xFFF00) >> 8, (number & 0xFF) | ((number >> 12) & 0xFFF00)
    return Loop(
        node,
        device_number(os.fstat(fd).st_rdev),
        (os.makedev(major, minor), inode),
        bool(flags & DIRECT_IO),
        not offset and not limit and not flags & (READ_ONLY | AUTOCLEAR),
    )


def identity(file: int) -> tuple[int, int]:
    """The numbers of the open file, as ``Loop.behind`` has them. Raises OSError."""
    found = os.fstat(file)
    return found.st_dev, found.st_ino
