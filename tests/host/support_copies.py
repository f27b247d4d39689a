"""Volumes that are copied in tests: made of any kind, written to, compared and checked."""

import hashlib
import os
import subprocess
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
