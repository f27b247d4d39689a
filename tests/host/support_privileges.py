"""A thread of a test with less than the others: no capability, or mounts of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import threading
from collections.abc import Callable, Iterator

from tests.host.support_mounts import MS_PRIVATE, mount

CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 21, 24
_CLONE_NEWNS = 0x20000
_MS_REC = 16384
_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def without_capability(number: int) -> Iterator[None]:
    """This thread may not do what takes that capability; whatever it starts may."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", _VERSION_3, 0))
    before = ctypes.create_string_buffer(24)
    _check(_libc.capget(header, before))
    words = list(struct.unpack("=6I", before.raw))
    words[3 * (number // 32)] &= ~(1 << number % 32)
    _check(_libc.capset(header, ctypes.create_string_buffer(struct.pack("=6I", *words))))
    try:
        yield
    finally:
        _check(_libc.capset(header, before))


def in_own_mounts(act: Callable[[], None]) -> None:
    """Do it in a thread that mounts what nobody else sees, and whose mounts end with it."""
    failed: list[BaseException] = []

    def apart() -> None:
        try:
            _check(_libc.unshare(_CLONE_NEWNS))
            mount("", "/", flags=MS_PRIVATE | _MS_REC)
            act()
        except BaseException as error:  # noqa: BLE001 - told where it was asked for
            failed.append(error)

    thread = threading.Thread(target=apart)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _check(answer: int) -> None:
    if answer:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
