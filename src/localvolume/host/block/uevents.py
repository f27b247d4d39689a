"""Kernel uevents of block devices: which appeared, went away, or changed (its size, its medium).

Format: ``lib/kobject_uevent.c`` of the kernel: ``action@devpath``, then ``KEY=value`` …, each ended
by a NUL. No udev is needed. The kernel sends them to every network namespace of the initial user
namespace, so a pod without the host's network hears them as well.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable

_log = logging.getLogger(__name__)

_NETLINK_KOBJECT_UEVENT = 15
_KERNEL_GROUP = 1
# Bytes of events the kernel may hold for us; a disk shelf coming up sends a few hundred at once.
_BUFFER_BYTES = 1 << 20
_SO_RCVBUFFORCE = 33
# Longest message of the kernel: 2048 bytes of variables after the first line.
_MESSAGE_BYTES = 8192
# Messages taken per wake, so that a flood leaves the loop time for others.
_BATCH = 64

#: The action reported when events were lost: look at everything again.
OVERFLOW = "overflow"


def parse_uevent(message: bytes) -> dict[str, str]:
    """Return the properties of one message; empty if it is not in the kernel's form."""
    header, *fields = message.split(b"\0")
    if b"@" not in header:
        return {}
    properties: dict[str, str] = {}
    for field in fields:
        key, equals, value = field.partition(b"=")
        if equals:
            properties[os.fsdecode(key)] = os.fsdecode(value)
    return properties


class UeventListener:
    """Calls back, on the running loop, with every uevent of the block subsystem.

    The callback gets the action (``add``, ``remove``, ``change``, ``move``, ``online``, ``bind`` …)
    and all properties as the kernel names them (``DEVNAME``, ``MAJOR``, ``MINOR``, ``DEVTYPE``,
    ``DISKSEQ``, ``RESIZE`` …). Lost events are reported as ``("overflow", {})``. It must not block.
    """

    def __init__(
        self, callback: Callable[[str, dict[str, str]], None], *, buffer: int = _BUFFER_BYTES
    ) -> None:
        self._callback = callback
        self._buffer = buffer
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def listening(self) -> bool:
        """Whether events arrive: false before ``start``, after ``close``, or if the socket died."""
        return self._socket is not None

    def start(self) -> None:
        """Begin to listen. Raises OSError if netlink is not available."""
        if self._socket is not None:
            return
        self._loop = asyncio.get_running_loop()
        listener = socket.socket(
            socket.AF_NETLINK,
            socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
            _NETLINK_KOBJECT_UEVENT,
        )
        try:
            try:
                listener.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, self._buffer)
            except PermissionError:  # without CAP_NET_ADMIN the system's maximum applies
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._buffer)
            listener.bind((0, _KERNEL_GROUP))
            self._loop.add_reader(listener.fileno(), self._readable)
        except BaseException:
            listener.close()
            raise
        self._socket = listener

    def _readable(self) -> None:
        for _ in range(_BATCH):
            if self._socket is None:  # the callback closed us
                return
            try:
                message, sender = self._socket.recvfrom(_MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    # Not known to happen; a socket failing for good would keep the loop spinning.
                    _log.error("kernel uevents: %s; no longer listening", error)
                    self.close()
                self._callback(OVERFLOW, {})
                continue
            # Port 0 is the kernel; anybody else with the privilege may send to the group, too.
            if sender[0] != 0:
                continue
            properties = parse_uevent(message)
            if properties.get("SUBSYSTEM") == "block":
                self._callback(properties.get("ACTION", ""), properties)

    def close(self) -> None:
        """Stop listening; harmless when not started or already closed."""
        if self._socket is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
