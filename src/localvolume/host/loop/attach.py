"""Put a file under a loop device with direct I/O, find it there again, and take it away.

Uses ioctls (linux/loop.h, Linux 5.8), as losetup's answer would have to be checked anyway: the
number of a loop device says nothing, only its backing file's device and inode number do.
"""

import contextlib
import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from localvolume.host import locks
from localvolume.host.block import sysfs
from localvolume.host.block.blockdev import exclusive_open
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.entries import device_number

_CONTROL = "/dev/loop-control"
_GET_FREE, _CONFIGURE = 0x4C82, 0x4C0A
_CLR_FD, _SET_STATUS64, _SET_CAPACITY = 0x4C01, 0x4C04, 0x4C07
# How often another process may take the free device before we do.
_ATTEMPTS = 64
# Seconds to wait: udev opens every device that changes, for a moment.
_PATIENCE = 2.0

# struct loop_info64: lo_offset at 24, lo_sizelimit at 32, lo_flags at 52.
_INFO_BYTES, _INFO_FLAGS = 232, 52
_READ_ONLY, _AUTOCLEAR, _DIRECT_IO = 1, 4, 16
_GET_STATUS64 = 0x4C05
_LOOP_MAJOR = 7


class Loop(NamedTuple):
    """A loop device and its backing file."""

    #: ``/dev/loop3``.
    node: str
    #: Its own number, ``major:minor``.
    device: str
    #: ``st_dev`` and ``st_ino`` of its backing file.
    behind: tuple[int, int]
    direct: bool
    #: As ``attach`` sets it up: the whole file, for writing, until it is detached.
    ours: bool


class NoLoopDevice(Exception):
    """The kernel or the container gives none: fix that; the text says what is missing."""


class StillInUse(Exception):
    """Somebody has the loop device open, or attached the file in another way: let them finish."""


def why_none() -> str:
    """Say why there can be no loop devices here; "" if there can."""
    if not os.path.exists(_CONTROL):
        return f"there is no {_CONTROL}: load the module loop and give the agent the host's /dev"
    if not os.access(_CONTROL, os.R_OK | os.W_OK):
        return f"{_CONTROL} is not ours to use: run as root, privileged"
    return ""


def attach(file: int, *, block_size: int, chosen: Callable[[str], None] | None = None) -> Loop:
    """Put a file (open for writing) under a loop device, or find it there; never attach it twice.

    ``block_size`` is the device's logical sector size, 512 or 4096. ``chosen`` is told the node
    before it gets a backing file. Uses direct I/O if the filesystem can. Raises ``NoLoopDevice``,
    ``StillInUse`` (attached in another way, or another process works on it) and OSError.
    """
    # Opened separately: the loop device keeps `file` open, and a lock on that would stay.
    with closed_after(os.open(f"/proc/self/fd/{file}", os.O_RDONLY | os.O_CLOEXEC)) as lock:
        if not locks.lock_directory(lock):
            raise StillInUse("another process is attaching or detaching it")
        found = on_file(file)
        for loop in found:
            if loop.ours:
                return loop
        if found:
            raise StillInUse(f"{found[0].node} stands on it already, in another way")
        fd, loop = _configure(file, block_size, 0, chosen)
        os.close(fd)
        return loop


@contextlib.contextmanager
def borrowed(
    file: int, *, block_size: int, chosen: Callable[[str], None] | None = None
) -> Iterator[Loop]:
    """Put an open file under a loop device for a while, until this process ends at the latest.

    Raises as ``attach`` does, and ``StillInUse`` when the device does not go at the end.
    """
    fd, loop = _configure(file, block_size, _AUTOCLEAR, chosen)
    with closed_after(fd):
        yield loop
    _await_gone(loop)


def detach(loop: Loop) -> None:
    """Detach the file from the loop device, if it is still that file; nobody may have it open.

    What was written to the device is in the file then, unless the disk below fails: that must not
    keep a volume from being removed. Raises ``StillInUse`` and ``blockdev.InUse`` (then it stays
    attached) and OSError.
    """
    try:
        # Claim the device, so that nobody mounts it between our look and the detaching.
        fd = exclusive_open(loop.node, write=False, device=loop.device)
    except FileNotFoundError:
        return
    with closed_after(fd):
        found = _status(fd, loop.node)
        if found is None or found.behind != loop.behind:
            return
        # A writer's last close flushes nothing while another process looks at the device, and the
        # ioctl drops what was not flushed.
        with contextlib.suppress(OSError):
            os.fsync(fd)
        try:
            fcntl.ioctl(fd, _CLR_FD)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
    try:
        _await_gone(loop)
    except StillInUse:
        # Others have it open: the kernel would detach it once they close it, at a time when the
        # volume may be offered again.
        _keep(loop)
        raise


def set_capacity(loop: Loop) -> None:
    """Set the device's size to the present size of its backing file. Raises OSError."""
    with closed_after(_open(loop.node)) as fd:
        found = _status(fd, loop.node)
        if found is None or found.behind != loop.behind:
            raise OSError(errno.ENXIO, "another file is behind the loop device", loop.node)
        fcntl.ioctl(fd, _SET_CAPACITY)


def _configure(
    file: int, block_size: int, flags: int, chosen: Callable[[str], None] | None
) -> tuple[int, Loop]:
    """Return the open loop device and what it is."""
    if reason := why_none():
        raise NoLoopDevice(reason)
    wanted = bytearray(_INFO_BYTES)
    struct.pack_into("=I", wanted, _INFO_FLAGS, flags | _DIRECT_IO)
    # Only for people: 63 bytes at most.
    name = os.path.basename(os.readlink(f"/proc/self/fd/{file}"))
    wanted[56 : 56 + 63] = os.fsencode(name)[:63].ljust(63, b"\0")
    # struct loop_config: the file, the sector size, the info, 64 bytes reserved
    config = struct.pack("=II", file, block_size) + bytes(wanted) + bytes(64)
    for _ in range(_ATTEMPTS):
        fd, node = _free()
        try:
            if chosen is not None:
                chosen(node)
            fcntl.ioctl(fd, _CONFIGURE, config)
            loop = _verified(fd, node, file)
        except OSError as error:
            os.close(fd)
            if error.errno == errno.EBUSY:
                continue
            if error.errno in (errno.EINVAL, errno.ENOTTY):
                raise NoLoopDevice(
                    f"{node}: {error.strerror}: it takes Linux 5.8 and a file on a filesystem that"
                    " loop devices can stand on"
                ) from error
            raise
        except BaseException:
            os.close(fd)
            raise
        return fd, loop
    raise StillInUse("others kept taking the free loop devices")


def _verified(fd: int, node: str, file: int) -> Loop:
    loop = _status(fd, node)
    if loop is None or loop.behind != _identity(file):
        raise OSError(errno.ENXIO, "the loop device does not stand on the file", node)
    return loop


def _free() -> tuple[int, str]:
    """Open a loop device that is free, for now."""
    try:
        control = os.open(_CONTROL, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise NoLoopDevice(f"{_CONTROL}: {error.strerror}") from error
    try:
        number: int = fcntl.ioctl(control, _GET_FREE)
    except OSError as error:
        raise NoLoopDevice(f"the kernel gives no more loop devices: {error.strerror}") from error
    finally:
        os.close(control)
    node = f"/dev/loop{number}"
    try:
        return _open(node, os.O_RDWR), node
    except FileNotFoundError as error:
        raise NoLoopDevice(f"there is no {node}: give the agent the host's /dev") from error


def _await_gone(loop: Loop) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        found = look(loop.node)
        if found is None or found.behind != loop.behind:
            return
        if time.monotonic() > deadline:
            raise StillInUse(f"{loop.node} is open elsewhere")
        time.sleep(0.01)


def _keep(loop: Loop) -> None:
    """Clear the flag that makes the kernel detach the device at its last close."""
    fd = _open(loop.node)
    try:
        answer, found = _info(fd), _status(fd, loop.node)
        if answer is None or found is None or found.behind != loop.behind:
            return
        changed = bytearray(answer)
        flags = struct.unpack_from("=I", answer, _INFO_FLAGS)[0]
        struct.pack_into("=I", changed, _INFO_FLAGS, flags & ~_AUTOCLEAR)
        fcntl.ioctl(fd, _SET_STATUS64, bytes(changed))
    except OSError as error:
        if error.errno != errno.ENXIO:  # it went by itself after all
            raise
    finally:
        os.close(fd)


# --- backing files, from the status only ---------------------------------------------------------


def look(node: str) -> Loop | None:
    """Ask a loop device for its backing file; None if it has none or there is no such node.

    Raises OSError.
    """
    try:
        fd = _open(node)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.ENXIO:  # being detached
            return None
        raise
    with closed_after(fd):
        return _status(fd, node)


def attached() -> Iterator[Loop]:
    """Yield every loop device in use. Raises OSError, also if one has no node here: a device that
    cannot be asked may stand on anything.
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
    behind = _identity(file)
    return [loop for loop in attached() if loop.behind == behind]


def _open(node: str, mode: int = os.O_RDONLY) -> int:
    """Open the node if it is a loop device's; FileNotFoundError if it is anything else."""
    fd = os.open(node, mode | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    found = os.fstat(fd)
    if not stat.S_ISBLK(found.st_mode) or os.major(found.st_rdev) != _LOOP_MAJOR:
        os.close(fd)
        raise FileNotFoundError(errno.ENOENT, "not a loop device", node)
    return fd


def _info(fd: int) -> bytes | None:
    """The raw status of an open loop device; None if it has no backing file. Raises OSError."""
    try:
        return fcntl.ioctl(fd, _GET_STATUS64, bytes(_INFO_BYTES))
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        raise


def _status(fd: int, node: str) -> Loop | None:
    """Describe the open loop device; None if it has no backing file. Raises OSError."""
    answer = _info(fd)
    if answer is None:
        return None
    number, inode, _, offset, limit = struct.unpack_from("=QQQQQ", answer)
    flags = struct.unpack_from("=I", answer, _INFO_FLAGS)[0]
    # The kernel's own form of a device number (huge_encode_dev), unlike libc's.
    major, minor = (number & 0xFFF00) >> 8, (number & 0xFF) | ((number >> 12) & 0xFFF00)
    return Loop(
        node,
        device_number(os.fstat(fd).st_rdev),
        (os.makedev(major, minor), inode),
        bool(flags & _DIRECT_IO),
        not offset and not limit and not flags & (_READ_ONLY | _AUTOCLEAR),
    )


def _identity(file: int) -> tuple[int, int]:
    """The numbers of the open file, as ``Loop.behind`` has them. Raises OSError."""
    found = os.fstat(file)
    return found.st_dev, found.st_ino
