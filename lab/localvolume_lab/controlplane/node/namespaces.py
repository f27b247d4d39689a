"""The calls that Python 3.11 lacks: leaving and entering namespaces, and dying with the parent."""

import ctypes
import os
import signal

_libc = ctypes.CDLL(None, use_errno=True)

# linux/sched.h
NEW_MOUNTS = 0x00020000
NEW_PIDS = 0x20000000
NEW_NETWORK = 0x40000000

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def unshare(kinds: int) -> None:
    """Leave the namespaces in `kinds` for new ones (a new PID namespace: for children only).

    Raises OSError: EPERM without the right to.
    """
    _check(_libc.unshare(ctypes.c_int(kinds)), "unshare")


def enter(path: str) -> None:
    """setns(2) with a namespace's file, such as /proc/1/ns/net; raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(descriptor, 0), path)
    finally:
        os.close(descriptor)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0), "prctl")
