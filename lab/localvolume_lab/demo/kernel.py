"""The calls to the kernel that the demo needs: namespaces, mounts, loop devices.

Through ctypes, so that neither Python 3.12 (os.unshare) nor util-linux is needed: the demo runs
on a machine with only Python.
"""

import ctypes
import errno
import fcntl
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

# linux/sched.h
CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000

# linux/mount.h, sys/mount.h
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SLAVE = 1 << 19
_MNT_DETACH = 2

# linux/loop.h
_LOOP_CTL_GET_FREE = 0x4C82
_LOOP_CONFIGURE = 0x4C0A  # Linux 5.8: attaches and sets the flags in one step
_LO_FLAGS_AUTOCLEAR = 4
# struct loop_config: fd, block_size, struct loop_info64 (232 bytes), 8 reserved u64.
_LOOP_CONFIG_BYTES = 304
_LO_FLAGS_OFFSET = 8 + 52


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def unshare(flags: int) -> None:
    """Leave the namespaces in `flags` for new ones; the process must have one thread only.

    Raises OSError: EPERM where that is not allowed.
    """
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, fs_type: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2); raises OSError naming the target."""
    words = [os.fsencode(word) if word else None for word in (source, target, fs_type)]
    data = options.encode() or None
    _check(_libc.mount(*words, ctypes.c_ulong(flags), data), target)


def unmount(target: str, *, lazy: bool = False) -> None:
    """umount2(2) of the topmost mount at `target`; raises OSError (EBUSY while it is in use)."""
    flags = ctypes.c_int(_MNT_DETACH if lazy else 0)
    _check(_libc.umount2(ctypes.c_char_p(os.fsencode(target)), flags), target)


def attach_loop(path: str) -> tuple[int, str]:
    """A loop device over the file `path` that detaches itself once nobody has it open or mounted.

    Returns an open descriptor of the device, whose owner keeps it attached, and its path. Raises
    OSError where the kernel or the container gives no loop devices.
    """
    backing = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        try:
            config = bytearray(_LOOP_CONFIG_BYTES)
            struct.pack_into("=I", config, 0, backing)
            struct.pack_into("=I", config, _LO_FLAGS_OFFSET, _LO_FLAGS_AUTOCLEAR)
            while True:
                name = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
                device = os.open(name, os.O_RDWR | os.O_CLOEXEC)
                try:
                    fcntl.ioctl(device, _LOOP_CONFIGURE, config)
                except OSError as error:
                    os.close(device)
                    # Somebody else took it between the two calls.
                    if error.errno != errno.EBUSY:
                        raise
                else:
                    return device, name
        finally:
            os.close(control)
    finally:
        os.close(backing)


def backing_file(device: str) -> str | None:
    """What a loop device (`/dev/loop3`) is attached to; None where nothing is."""
    try:
        with open(f"/sys/block/{os.path.basename(device)}/loop/backing_file") as file:
            return file.read().rstrip("\n").removesuffix(" (deleted)")
    except (FileNotFoundError, OSError):
        return None
