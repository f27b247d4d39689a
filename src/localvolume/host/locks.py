"""Locks that say "this volume is being cleaned" to every process of the machine.

They belong to an open descriptor, not to a process: they end when the last process that has it open
is gone. So they outlive a killed agent for as long as a cleaner that it started lives. They are
advisory: only agents ask for them.

A directory can only be opened for reading, and only flock(2) locks such a descriptor. On a device
node, udev and mkfs use flock (systemd.io, "Locking Block Device Access"): a cleaner that takes it
would wait for us forever. There we use an open file description lock (fcntl(2), F_OFD_SETLK).
"""

import errno
import fcntl
import os
import struct
import time

_OFD_GETLK, _OFD_SETLK = 36, 37  # asm-generic/fcntl.h
#: How long another agent's look at a directory may hold us up, in seconds.
_PATIENCE = 1.0


def lock_directory(fd: int) -> bool:
    """Lock an open directory while its descriptor is open; False if another has the lock."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        except OSError as error:
            return _cannot(error)
        else:
            return True


def is_directory_locked(path: str) -> bool:
    """Whether somebody has locked the directory; raises OSError if it cannot be opened."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        return not _cannot(error)
    finally:
        os.close(fd)
    return False


def lock_device(path: str) -> int | None:
    """Lock a device; return a descriptor that holds the lock while open, None if another does.

    Raises OSError if the device cannot be opened for writing.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.fcntl(fd, _OFD_SETLK, _whole(fcntl.F_WRLCK))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            os.close(fd)
            return None
        if not _cannot(error):
            os.close(fd)
            raise
    return fd


def is_device_locked(path: str) -> bool:
    """Whether somebody has locked the device; raises OSError if it cannot be opened."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = fcntl.fcntl(fd, _OFD_GETLK, _whole(fcntl.F_RDLCK))
    except OSError as error:
        return not _cannot(error)
    finally:
        os.close(fd)
    return int(struct.unpack_from("@h", found)[0]) != fcntl.F_UNLCK


def _cannot(error: OSError) -> bool:
    """Whether this filesystem has no locks at all: then only the API server keeps agents apart."""
    return error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOLCK)


def _whole(kind: int) -> bytes:
    """A struct flock of 64 bits for the whole file."""
    return struct.pack("@hhqqi0q", kind, os.SEEK_SET, 0, 0, 0)
