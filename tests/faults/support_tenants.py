"""Volumes as tenants see them: each writes what names its PersistentVolume, and looks for others'.

A tenant is known by the UID of the PersistentVolume it got. Whatever of another one can be read
through the volume is a leak; whatever of its own is missing was destroyed.
"""

import os
import subprocess
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.host.support_devices import LoopDevice, command, unmount


class Volume(Protocol):
    """One place on the node that is offered, with the kind of data its tenants leave."""

    class_name: str
    entry: str
    lock: threading.RLock
    there: bool

    def write(self, uid: str) -> None:
        """Be the tenant of that PersistentVolume: leave data that names it."""

    def found(self) -> set[str]:
        """The tenants of whom anything can be read; "?" for what nobody can have written."""

    def missing(self, uid: str) -> str:
        """What of this tenant's data is not there any more; empty where all is."""


class FileVolume:
    """A mounted filesystem; tenants fill it with many small files in several directories."""

    def __init__(
        self,
        class_name: str,
        path: Path,
        mount: Callable[[], None],
        *,
        files: int,
        returns: bool = True,
    ) -> None:
        self.class_name, self.entry, self.path = class_name, path.name, path
        self.lock = threading.RLock()
        self.there = False
        #: Whether it is the same volume again after it was unmounted.
        self.returns = returns
        self._mount = mount
        self._files = files

    def mount(self) -> None:
        self._mount()
        self.there = True

    def unmount(self) -> bool:
        """Whether it could be: not while somebody uses it."""
        if subprocess.run(["umount", self.path], capture_output=True, timeout=120).returncode:
            return False
        self.there = False
        return True

    def close(self) -> None:
        """Unmount it, once nobody uses it any more."""
        with self.lock:
            if self.there:
                unmount(self.path)
                self.there = False

    def write(self, uid: str) -> None:
        (self.path / f"{uid}.file").write_text(uid)
        (self.path / f"{uid}.link").symlink_to("../neighbour")
        for number in range(4):
            directory = self.path / f"{uid}.{number}" / "deep" / "er"
            directory.mkdir(parents=True)
            for file in range(self._files // 4):
                os.close(os.open(directory / str(file), os.O_WRONLY | os.O_CREAT, 0o644))

    def found(self) -> set[str]:
        names = set(os.listdir(self.path)) - {"lost+found"}
        return {name.split(".")[0] if name.count("-") == 4 else "?" for name in names}

    def missing(self, uid: str) -> str:
        try:
            if (self.path / f"{uid}.file").read_text() != uid:
                return "the file has other content"
            if not (self.path / f"{uid}.link").is_symlink():
                return "the link is gone"
            for number in range(4):
                count = len(os.listdir(self.path / f"{uid}.{number}" / "deep" / "er"))
                if count != self._files // 4:
                    return f"{count} of {self._files // 4} files are left in a directory"
        except FileNotFoundError as error:
            return str(error)
        return ""


class RawVolume:
    """A raw device; tenants write their name at places all over it."""

    def __init__(self, class_name: str, path: Path, device: LoopDevice, size: int) -> None:
        self.class_name, self.entry, self.device = class_name, path.name, device
        self.lock = threading.RLock()
        self.there = True
        step = size // 24
        self._places = [0, *(step * n // 4096 * 4096 for n in range(1, 24)), size - 4096]
        path.symlink_to(device.path)

    def write(self, uid: str) -> None:
        record = uid.encode().ljust(512, b".")
        fd = os.open(self.device.path, os.O_WRONLY)
        try:
            for place in self._places:
                os.pwrite(fd, record, place)
            os.fsync(fd)
        finally:
            os.close(fd)

    def found(self) -> set[str]:
        found = set()
        fd = os.open(self.device.path, os.O_RDONLY)
        try:
            for place in self._places:
                record = os.pread(fd, 512, place)
                if record.strip(b"\0"):
                    name = record.rstrip(b".").decode(errors="replace")
                    found.add(name if name.count("-") == 4 else "?")
        finally:
            os.close(fd)
        return found

    def missing(self, uid: str) -> str:
        fd = os.open(self.device.path, os.O_RDONLY)
        try:
            gone = [p for p in self._places if not os.pread(fd, 512, p).startswith(uid.encode())]
        finally:
            os.close(fd)
        return f"overwritten at {gone}" if gone else ""


class SignedVolume:
    """A device in volumeMode Filesystem; tenants leave a signature whose UUID names them."""

    def __init__(self, class_name: str, path: Path, device: LoopDevice) -> None:
        self.class_name, self.entry, self.device = class_name, path.name, device
        self.lock = threading.RLock()
        self.there = True
        path.symlink_to(device.path)

    def write(self, uid: str) -> None:
        command("mkswap", "-U", uid, self.device.path)

    def found(self) -> set[str]:
        fd = os.open(self.device.path, os.O_RDONLY)
        try:
            page = os.pread(fd, 4096, 0)
        finally:
            os.close(fd)
        # include/linux/swap.h: the signature ends the first page; sws_uuid is at byte 1036.
        if not page.endswith(b"SWAPSPACE2"):
            return set()
        return {str(uuid.UUID(bytes=page[1036:1052]))}

    def missing(self, uid: str) -> str:
        return "" if uid in self.found() else "the signature is gone"
