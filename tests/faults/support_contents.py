"""What tenants leave in dynamic volumes, and what can be read of them: directories and images."""

import fcntl
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Protocol

from tests.faults.support_tenants import FileVolume
from tests.host.support_devices import unmount

_MARK = re.compile(rb"tenant:([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_FILES = 240
_BLKFLSBUF = 0x1261  # linux/fs.h


class Contents(Protocol):
    """One volume through its path; tenants are known by the UID of their claim."""

    def is_there(self) -> bool:
        """Whether the path leads to a volume."""

    def write(self, uid: str) -> None:
        """Leave data that names the tenant."""

    def found(self) -> set[str]:
        """The tenants of whom anything can be read; "?" for what nobody can have written."""

    def missing(self, uid: str) -> str:
        """What of this tenant's data is not there any more; empty where all is."""

    def size(self) -> int | None:
        """How many bytes it has, None where nothing bounds it."""


class Directory(FileVolume):
    """A directory full of small files."""

    def __init__(self, path: str) -> None:
        super().__init__("", Path(path), lambda: None, files=_FILES)

    def is_there(self) -> bool:
        return self.path.is_dir() and not self.path.is_symlink()

    def size(self) -> int | None:
        return None


class Device:
    """A link to a loop device, raw or with an ext4 in it; what is written is sought on the device
    itself, so that looking never uses the filesystem."""

    def __init__(self, path: str, *, raw: bool) -> None:
        self.path = path
        self._raw = raw

    def is_there(self) -> bool:
        return Path(self.path).is_block_device()

    def write(self, uid: str) -> None:
        data = f"tenant:{uid}".encode().ljust(4096, b".")
        if self._raw:
            fd = os.open(self.path, os.O_WRONLY)
            try:
                for share in range(8):
                    os.pwrite(fd, data, self._end(fd) * share // 8 // 4096 * 4096)
                os.fsync(fd)
            finally:
                os.close(fd)
            return
        with tempfile.TemporaryDirectory(prefix="localvolume-tenant-") as where:
            subprocess.run(["mount", self.path, where], check=True, timeout=120)
            try:
                for number in range(8):
                    (Path(where) / f"{number}").write_bytes(data)
            finally:
                unmount(Path(where))

    def found(self) -> set[str]:
        return set(self._marks())

    def missing(self, uid: str) -> str:
        left = self._marks().count(uid)
        return "" if left >= 8 else f"{left} of 8 blocks are left"

    def size(self) -> int | None:
        fd = os.open(self.path, os.O_RDONLY)
        try:
            return self._end(fd)
        finally:
            os.close(fd)

    def _marks(self) -> list[str]:
        fd = os.open(self.path, os.O_RDONLY)
        try:
            # What was read before a mount is not what was written through it.
            fcntl.ioctl(fd, _BLKFLSBUF)
            data = os.pread(fd, self._end(fd), 0)
        finally:
            os.close(fd)
        return [uid.decode() for uid in _MARK.findall(data)]

    @staticmethod
    def _end(fd: int) -> int:
        return os.lseek(fd, 0, os.SEEK_END)


def path_of(volume: dict[str, Any]) -> str:
    spec = volume["spec"]
    return str((spec.get("local") or spec["hostPath"])["path"])


def contents_of(volume: dict[str, Any], *, image: bool) -> Contents:
    """The contents of a PersistentVolume."""
    path = path_of(volume)
    return Device(path, raw=volume["spec"]["volumeMode"] == "Block") if image else Directory(path)
