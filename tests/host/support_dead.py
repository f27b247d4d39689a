"""A raw disk that stops answering, and answers again: a loop device above a file of FUSE's.

The tests' own process serves the file, which is the root of its filesystem. Who waits for it gets
an error at the latest when the server is closed, as it is when the process dies.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import struct
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from localvolume.host.block.operations import flush_buffers
from tests.host.support_devices import LoopDevice, loop_device
from tests.host.support_mounts import MNT_DETACH, mount, umount
from tests.suite.units import MIB

# linux/fuse.h
_FORGET, _GETATTR, _OPEN, _READ, _RELEASE = 2, 3, 14, 15, 18
_FLUSH, _INIT, _INTERRUPT, _BATCH_FORGET = 25, 26, 36, 42
_HEADER = struct.Struct("=IIQQIIII")  # length, request, its id, inode, user, group, process, -
_ANSWER = struct.Struct("=IiQ")  # length, error, the request's id
_READ_OF = struct.Struct("=QQI")  # handle, offset, bytes
_ATTRIBUTES = struct.Struct("=QIIQQQQQQIIIIIIIIII")
_INITIAL = struct.Struct("=IIIIHHII36x")
_MOST_BYTES = 1 << 17
_DIRECT_IO = 1  # nothing that was read is kept
_ROOM = _MOST_BYTES + 4096
_FOREVER = 1 << 30


class DeadDisk:
    """Serves the file at `where` to the kernel: `content`, over and over; nobody writes to it."""

    def __init__(self, where: Path, size: int, content: bytes) -> None:
        self.device: LoopDevice
        self._size = size
        self._content = content
        self._waiting: list[tuple[int, int]] = []
        self._dead = self._failing = False
        self._lock = threading.Lock()
        self._fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        self._end, self._tell = os.pipe()
        options = f"fd={self._fuse},rootmode=100600,user_id=0,group_id=0"
        mount("dead", str(where), "fuse", data=options)
        self._thread = threading.Thread(target=self._serve, name="dead disk")
        self._thread.start()

    def die(self) -> None:
        """Answer no reading from now on."""
        with self._lock:
            self._dead, self._failing = True, False
        # What was read before is still known to the kernel, as long as anybody has it open.
        fd = os.open(self.device.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            flush_buffers(fd)
        finally:
            os.close(fd)

    def fail(self) -> None:
        """Answer with an error all that wait, and everybody from now on."""
        with self._lock:
            self._failing = True
            waiting, self._waiting = self._waiting, []
            for number, _ in waiting:
                self._reply(number, error=errno.EIO)

    def asked(self) -> int:
        """How many readings wait for an answer."""
        with self._lock:
            return len(self._waiting)

    def answer(self) -> None:
        """Answer all that wait, and everybody from now on."""
        with self._lock:
            self._dead = self._failing = False
            waiting, self._waiting = self._waiting, []
            for number, length in waiting:
                self._reply(number, self._content * length)

    def close(self) -> None:
        """Whoever waits for it, or asks from now on, gets an error."""
        os.close(self._tell)
        self._thread.join()
        os.close(self._end)
        os.close(self._fuse)

    def _serve(self) -> None:
        poll = select.poll()
        poll.register(self._fuse, select.POLLIN)
        poll.register(self._end, select.POLLIN)
        while self._end not in dict(poll.poll()):
            try:
                message = os.read(self._fuse, _ROOM)
            except OSError as error:
                # The kernel took it back (ENOENT), or it was unmounted.
                if error.errno == errno.ENODEV:
                    return
                continue
            _, request, number, *_ = _HEADER.unpack_from(message)
            self._handle(request, number, message[_HEADER.size :])

    def _handle(self, request: int, number: int, body: bytes) -> None:
        if request == _INIT:
            self._reply(number, _INITIAL.pack(7, 31, 0, 0, 16, 8, _MOST_BYTES, 1))
        elif request == _GETATTR:
            self._reply(number, self._attributes())
        elif request == _OPEN:
            self._reply(number, struct.pack("=QII", 0, _DIRECT_IO, 0))
        elif request == _READ:
            _, offset, length = _READ_OF.unpack_from(body)
            self._read(number, max(0, min(length, self._size - offset)))
        elif request in (_RELEASE, _FLUSH):
            self._reply(number)
        elif request not in (_FORGET, _BATCH_FORGET, _INTERRUPT):
            self._reply(number, error=errno.ENOSYS)

    def _read(self, number: int, length: int) -> None:
        with self._lock:
            if self._failing:
                self._reply(number, error=errno.EIO)
            elif self._dead:
                self._waiting.append((number, length))
            else:
                self._reply(number, self._content * length)

    def _reply(self, number: int, body: bytes = b"", error: int = 0) -> None:
        # Whoever has given up asking waits for no answer (ENOENT).
        with contextlib.suppress(FileNotFoundError):
            os.write(self._fuse, _ANSWER.pack(_ANSWER.size + len(body), -error, number) + body)

    def _attributes(self) -> bytes:
        of_file = (1, self._size, self._size // 512)
        times, owner = (0,) * 6, (0, 0)
        return _ATTRIBUTES.pack(
            _FOREVER, 0, 0, *of_file, *times, stat.S_IFREG | 0o600, 1, *owner, 0, 4096, 0
        )


@contextlib.contextmanager
def dead_disk(size: int = 16 * MIB, content: bytes = b"\0") -> Iterator[DeadDisk]:
    """A raw disk full of that byte, which answers no reading until it is told to; to be marked
    `needs("fuse")`."""
    with tempfile.TemporaryDirectory(prefix="localvolume-dead-") as name:
        where = Path(name).resolve() / "disk"
        where.touch()
        disk = DeadDisk(where, size, content)
        try:
            with loop_device(backing=where, read_only=True) as disk.device:
                disk.die()
                try:
                    yield disk
                finally:
                    # Who still waits has its answer before the device goes.
                    disk.answer()
        finally:
            disk.close()
            with contextlib.suppress(OSError):
                umount(str(where), MNT_DETACH)
