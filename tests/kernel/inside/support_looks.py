"""What there is in the guest, behind the back of whoever works there."""

import contextlib
import errno
import hashlib
import os
from pathlib import Path

from localvolume.host.filesystem.extsuper import read_super
from localvolume.host.filesystem.growing import xfs_geometry
from tests.host.support_devices import command
from tests.suite.units import MIB

GROUP = "vg0"


def halves() -> list[str]:
    """The devices of GROUP to which I/O waits, or which a death left half made."""
    text = _told("name,suspended,tables_loaded").replace(" ", "")
    lines = [line.split(":") for line in text.splitlines() if ":" in line]
    return [
        name
        for name, suspended, tables in lines
        if name.startswith(f"{GROUP}-") and (suspended, tables) != ("Active", "Live")
    ]


def _told(fields: str) -> str:
    """What dmsetup tells of all devices; it fails where one of them goes meanwhile."""
    asked = ("dmsetup", "info", "--columns", "--noheadings", "--options", fields)
    for _ in range(5):
        with contextlib.suppress(AssertionError):
            return command(*asked)
    return command(*asked)


def state() -> str:
    """All that LVM, the kernel and the processes say, to be read by people after a failure."""
    fields = "lv_name,lv_active,lv_device_open,lv_suspended,transaction_id,thin_id,lv_tags"
    commands = (
        ("lvs", "--all", "--noheadings", "--separator", " | ", "--options", fields, GROUP),
        ("dmsetup", "status"),
        ("ps", "--ppid", "2", "-p", "2", "-N", "wwf"),
    )
    return "\n".join(command(*argv) for argv in commands)


def bytes_of(capacity: dict[str, str]) -> int:
    """What a claim or PersistentVolume says of its size; 0 where it says nothing."""
    text = capacity.get("storage", "0")
    for unit, factor in (("Mi", MIB), ("Gi", 1024 * MIB), ("Ki", 1024)):
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    return int(text)


def digest(name: str) -> str:
    """Of what the disk has of a volume; "" while it is not active."""
    try:
        with open(f"/dev/{GROUP}/{name}", "rb") as device:
            os.posix_fadvise(device.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return hashlib.sha256(device.read(MIB // 4)).hexdigest()
    except OSError as error:
        # The kernel's device goes, and its node a moment after it.
        if error.errno not in (errno.ENOENT, errno.ENXIO):
            raise
        return ""


def write_file(path: Path, content: bytes) -> None:
    """Write it and have it on disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def filesystem(target: Path, node: str, fs: str) -> tuple[int, int]:
    """The bytes of room in a filesystem, and all that it has, by its own account."""
    found = os.statvfs(target)
    fd = os.open(str(target) if fs == "xfs" else node, os.O_RDONLY)
    try:
        if fs == "xfs":
            geometry = xfs_geometry(fd)
            return found.f_blocks * found.f_frsize, geometry.blocks * geometry.block_size
        present = read_super(fd)
        assert present is not None
        return found.f_blocks * found.f_frsize, present.blocks * present.block_size
    finally:
        os.close(fd)
