"""Volumes that are copied in tests: made of any kind, written to, compared and checked."""

import hashlib
import mmap
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from localvolume.backends.model import (
    Record,
)
from tests.suite.units import MIB

from .support_images import (
    ImagePool,
)

SIZES = {"ext4": 32, "xfs": 300, "raw": 16}


def kind(content: str) -> dict[str, str]:
    return {"volume_mode": "Block"} if content == "raw" else {"fs_type": content}


def made(pool: ImagePool, content: str, name: str = "pvc-1", **fields: object) -> Record:
    mib = fields.pop("mib", SIZES[content])
    record = pool.make(name, mib, **kind(content), **fields)  # type: ignore[arg-type]
    return replace(record, state="offered")


def written(pool: ImagePool, record: Record, mib: int, at: int = 0) -> bytes:
    """New content in so many MiB of a raw volume, and on disk."""
    data = os.urandom(mib * MIB)
    with open(pool.node(record), "r+b") as device:
        device.seek(at * MIB)
        device.write(data)
        device.flush()
        os.fsync(device.fileno())
    return data


def content_of(image: Path) -> str:
    with image.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def clean(pool: ImagePool, record: Record) -> None:
    """Nothing is wrong with the unmounted filesystem of a volume."""
    check = ["e2fsck", "-fn"] if record.fs_type == "ext4" else ["xfs_repair", "-n"]
    done = subprocess.run([*check, pool.node(record)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def available(pool: ImagePool) -> int:
    found = os.statvfs(pool.root)
    return found.f_bavail * found.f_frsize


class Writer:
    """Writes each number to one file and, once it is on disk, to the next."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.turn = 0
        self._ended = threading.Event()
        self._begun = threading.Event()
        self._paths = paths
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_SYNC
        fds = [os.open(path, flags) for path in self._paths]
        page = mmap.mmap(-1, 4096)
        while not self._ended.is_set():
            self.turn += 1
            page[:8] = self.turn.to_bytes(8, "big")
            for fd in fds:
                os.pwrite(fd, page, 0)
            self._begun.set()
        for fd in fds:
            os.close(fd)

    def __enter__(self) -> "Writer":
        self._thread.start()
        assert self._begun.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def last_of(path: Path) -> int:
    """The last number that such a writer had on disk there."""
    with path.open("rb") as file:
        return int.from_bytes(file.read(8), "big")
