"""Removes files whose class demands more than unlink(2): overwrites them first, or goes slowly."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from typing import Final

from localvolume.host.filesystem.allocation import data_ranges
from localvolume.host.syscalls import closed_after
from localvolume.host.tree.beneath import open_beneath

_CHUNK: Final = 1 << 20
_ZEROS: Final = bytes(_CHUNK)
# How often a name may become another file while we look at it, before we give up.
_ATTEMPTS: Final = 16


class Stopped(Exception):
    """The caller's stop event is set; some files are still there."""


class Eraser:
    """Removes names as os.unlink does, from several threads at once.

    With `overwrite`, a regular file's content is overwritten with zeros, and these are on disk,
    before its last name goes. A file with another name elsewhere is not overwritten. This reaches
    the old blocks on filesystems that write in place (ext4, xfs), not on btrfs, and never what a
    snapshot, a reflink or the disk itself keeps. At most `per_second` names go in a second.
    """

    def __init__(self, *, overwrite: bool, per_second: float | None, stop: threading.Event) -> None:
        self._overwrite = overwrite
        self._pause = 1.0 / per_second if per_second else 0.0
        self._stop = stop
        self._lock = threading.Lock()
        self._next = time.monotonic()
        # When two names of a file are removed at once, one must be seen to be the last.
        self._several_names = threading.Lock()

    def __call__(self, name: str, *, dir_fd: int) -> None:
        """Remove one name; raises Stopped, OSError."""
        if self._pause:
            self._wait()
        if not self._overwrite:
            os.unlink(name, dir_fd=dir_fd)
            return
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            os.unlink(name, dir_fd=dir_fd)
        elif found.st_nlink > 1:
            with self._several_names:
                self._erase(name, dir_fd)
        else:
            self._erase(name, dir_fd)

    def _wait(self) -> None:
        with self._lock:
            now = time.monotonic()
            at = max(self._next, now)
            self._next = at + self._pause
        if self._stop.wait(max(0.0, at - now)):
            raise Stopped

    def _erase(self, name: str, dir_fd: int) -> None:
        for _ in range(_ATTEMPTS):
            # Look before opening: opening a device or a FIFO has effects.
            with closed_after(open_beneath(dir_fd, name, os.O_PATH | os.O_NOFOLLOW)) as place:
                found = os.fstat(place)
                if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
                    self._zero(place)
                now = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
                if (now.st_dev, now.st_ino) == (found.st_dev, found.st_ino):
                    os.unlink(name, dir_fd=dir_fd)
                    return
        raise OSError(errno.EAGAIN, "somebody keeps changing it", name)

    def _zero(self, place: int) -> None:
        with closed_after(os.open(f"/proc/self/fd/{place}", os.O_WRONLY | os.O_CLOEXEC)) as fd:
            size = os.fstat(fd).st_size
            for start, end in data_ranges(fd):
                # The last block is left alone beyond the file's end: it holds zeros already.
                self._zero_range(fd, start, min(end, size))
                if end >= size:
                    break
            # Otherwise the zeros never reach the disk: an unlinked file's data is not written.
            os.fdatasync(fd)

    def _zero_range(self, fd: int, start: int, end: int) -> None:
        while start < end:
            if self._stop.is_set():
                raise Stopped
            start += os.pwrite(fd, _ZEROS[: min(_CHUNK, end - start)], start)
