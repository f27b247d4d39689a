"""Loop devices: which of them stand on a device, and what stands behind one."""

import errno
import fcntl
import os
import struct
from typing import NamedTuple

from localvolume.host.block import sysfs
from localvolume.host.block.sysfs import block_number, listing, read, uevent

# linux/loop.h: struct loop_info64, 232 bytes: device, inode, rdevice, offset, sizelimit (u64 each)
_LOOP_GET_STATUS64 = 0x4C05
#: What the kernel appends to the name of a backing file that was removed.
DELETED = " (deleted)"


def loops_on(device: str) -> list[str]:
    """Return the loop devices (``/dev/loop3``) whose backing file is the node of ``major:minor``.

    The kubelet publishes raw block volumes through such a loop device.
    Raises OSError.
    """
    devname = uevent(f"{sysfs.SYS}/dev/block/{device}").get("DEVNAME")
    found = []
    for name in listing(f"{sysfs.SYS}/block"):
        if not name.startswith("loop"):
            continue
        backing = read(f"{sysfs.SYS}/block/{name}/loop/backing_file")
        if not backing:
            continue
        backing = backing.removesuffix(DELETED)
        if status := loop_status(f"/dev/{name}"):
            on: str | None = status.rdevice
        else:
            # Its node is not visible here; the backing file's may be.
            on = device if backing == f"/dev/{devname}" else block_number(backing)
        if on == device:
            found.append(f"/dev/{name}")
    return found


class LoopStatus(NamedTuple):
    """What a loop device says of its backing file."""

    inode: int
    #: ``major:minor`` when the backing file is itself a device, else ``0:0``.
    rdevice: str


def loop_status(node: str) -> LoopStatus | None:
    """Ask a loop device; None if its node is not visible here or nothing is attached to it."""
    try:
        fd = os.open(node, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (FileNotFoundError, PermissionError):
        return None
    except OSError as error:
        # The device is just being removed, and its node is still there.
        if error.errno == errno.ENXIO:
            return None
        raise
    try:
        answer = fcntl.ioctl(fd, _LOOP_GET_STATUS64, bytes(232))
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOTTY):
            return None
        raise
    finally:
        os.close(fd)
    _, inode, number = struct.unpack_from("=QQQ", answer)
    # The kernel's own 32-bit form of a device number (new_encode_dev), unlike libc's.
    major, minor = (number & 0xFFF00) >> 8, (number & 0xFF) | ((number >> 12) & 0xFFF00)
    return LoopStatus(inode, f"{major}:{minor}")
