"""What cleaning does to an open block device through the kernel; positions and lengths in bytes.

The calls block until the device is done: give them pieces, not whole disks. ioctl numbers:
linux/fs.h.
"""

import errno
import fcntl
import os
import struct
from typing import NamedTuple

from localvolume.host.syscalls import ioc
from localvolume.host.tree.entries import device_number

_BLKROGET = ioc(0, 0x12, 94, 0)
_BLKFLSBUF = ioc(0, 0x12, 97, 0)
_BLKGETSIZE64 = ioc(2, 0x12, 114, struct.calcsize("N"))
_BLKDISCARD = ioc(0, 0x12, 119, 0)
_BLKZEROOUT = ioc(0, 0x12, 127, 0)


class DiscardLimits(NamedTuple):
    """How a device takes discards.

    It forgets whole granules only: the first one begins at byte ``first``, and each is
    ``granularity`` bytes long, which need not be a power of two.

    No field that the kernel still fills promises that a discarded block reads as zeros: prove it
    by reading.
    """

    granularity: int
    first: int


def size_bytes(fd: int) -> int:
    """Return the size of the open device (BLKGETSIZE64); raises OSError."""
    answer = fcntl.ioctl(fd, _BLKGETSIZE64, bytes(8))
    return int(struct.unpack("=Q", answer)[0])


def read_only(fd: int) -> bool:
    """Return whether the kernel refuses writes to the open device; raises OSError."""
    return bool(struct.unpack("=i", fcntl.ioctl(fd, _BLKROGET, bytes(4)))[0])


def discard(fd: int, start: int, length: int) -> None:
    """Tell the device that a range is not needed; both multiples of the logical sector.

    Raises OSError: EOPNOTSUPP when the device cannot, EBADF when not open for writing.
    """
    fcntl.ioctl(fd, _BLKDISCARD, struct.pack("=QQ", start, length))


def zero_out(fd: int, start: int, length: int) -> None:
    """Make a range read as zeros, by the device's own means or by writing; raises OSError.

    The kernel drops what it had cached of the range, and what it writes bypasses the cache.
    """
    fcntl.ioctl(fd, _BLKZEROOUT, struct.pack("=QQ", start, length))


def flush_buffers(fd: int) -> None:
    """Write what is cached of the device and drop it, so that reading asks the disk (BLKFLSBUF)."""
    os.fsync(fd)
    fcntl.ioctl(fd, _BLKFLSBUF, 0)


def set_direct(fd: int, on: bool) -> bool:
    """Switch a descriptor to direct I/O, past the page cache, or back; return whether it is on."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if on else flags & ~os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return on


def discard_limits(fd: int) -> DiscardLimits:
    """Return what sysfs says of the device, or of a partition's disk; raises OSError."""
    base = os.path.realpath(f"/sys/dev/block/{device_number(os.fstat(fd).st_rdev)}")
    disk = os.path.dirname(base) if os.path.exists(f"{base}/partition") else base

    def limit(path: str) -> int:
        with open(path, encoding="ascii") as file:
            return int(file.read())

    return DiscardLimits(
        limit(f"{disk}/queue/discard_granularity"),
        # A partition has its own: the kernel counts from where the partition begins.
        limit(f"{base}/discard_alignment"),
    )
