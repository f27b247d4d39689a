"""Idle input/output priority for the thread that cleans: tenants' own traffic goes first."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# ioprio_set(2), ioprio_get(2): glibc has no wrapper. Numbers from the kernel's syscall tables.
_SYSCALLS: Final = {
    "x86_64": (251, 252),
    "aarch64": (30, 31),
    "riscv64": (30, 31),
    "loongarch64": (30, 31),
    "armv7l": (314, 315),
    "ppc64le": (273, 274),
    "s390x": (282, 283),
}
_WHO_PROCESS: Final = 1  # with 0 as the id: the calling thread
_IDLE: Final = 3 << 13  # IOPRIO_CLASS_IDLE, IOPRIO_CLASS_SHIFT (linux/ioprio.h)

_libc = ctypes.CDLL(None, use_errno=True)


def current() -> int | None:
    """The calling thread's priority as the kernel encodes it, None if that is unknown."""
    numbers = _SYSCALLS.get(os.uname().machine)
    if numbers is None:
        return None
    priority: int = _libc.syscall(numbers[1], _WHO_PROCESS, 0)
    return None if priority < 0 else priority


def at_idle(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call `fn` while the calling thread has idle priority, as upstream's scripts do with ionice.

    This is a courtesy, not a guard: if the kernel refuses it, `fn` runs anyway. Only some I/O
    schedulers (bfq) honour it.
    """
    before = current()
    if before is None:
        return fn(*args, **kwargs)
    set_number = _SYSCALLS[os.uname().machine][0]
    _libc.syscall(set_number, _WHO_PROCESS, 0, _IDLE)
    try:
        return fn(*args, **kwargs)
    finally:
        # Worker threads serve other calls next. Class 0 ("none") must not carry a level.
        _libc.syscall(set_number, _WHO_PROCESS, 0, before if before >> 13 else 0)
