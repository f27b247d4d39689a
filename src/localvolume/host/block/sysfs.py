"""Small reads of sysfs and of udev's records about block devices; absent is None or empty."""

import os
import re
import stat
from collections.abc import Iterator
from typing import Final

from localvolume.host.tree.entries import device_number

SYS = "/sys"
UDEV_DATA = "/run/udev/data"
_OF_GROUP: Final = re.compile(r"((?:[^-]|--)+)-[^-]")
_UUID: Final = 32


def real(path: str) -> str:
    """Return ``path`` with its links resolved, whether or not it exists, or exists any more."""
    try:
        return os.path.realpath(path)
    except OSError:  # Python saw a link that was gone when it came to read it
        return path


def base_of(device: str) -> str:
    """Return the sysfs directory of ``major:minor``, links resolved, whether or not it exists."""
    return real(f"{SYS}/dev/block/{device}")


def disk_of(base: str) -> str:
    """Return the sysfs directory of the whole disk: the parent of a partition's."""
    return os.path.dirname(base) if os.path.exists(f"{base}/partition") else base


def partitions_of(base: str) -> Iterator[str]:
    """Yield the kernel names of the partitions of the disk at ``base``."""
    name = os.path.basename(base)
    for entry in listing(base):
        if entry.startswith(name) and os.path.exists(f"{base}/{entry}/partition"):
            yield entry


def logical_volumes_below(base: str) -> dict[str, str]:
    """The logical volumes that the device at ``base`` is or is made of: UUID (without its dashes)
    and volume group.

    Device mapper's name tells the group; it doubles each "-" in LVM's names.
    """
    disk = disk_of(base)
    found: dict[str, str] = {}
    for below in listing(f"{disk}/slaves"):
        found |= logical_volumes_below(real(f"{SYS}/class/block/{below}"))
    maker, _, uuid = (read(f"{disk}/dm/uuid") or "").partition("-")
    named = _OF_GROUP.match(read(f"{disk}/dm/name") or "")
    if maker == "LVM" and named:
        # The group's UUID comes first, and something may follow: "-tpool".
        found[uuid[_UUID:][:_UUID]] = named[1].replace("--", "-")
    return found


def block_number(path: str) -> str | None:
    """Return ``major:minor`` of the block device at ``path``, None when there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return device_number(found.st_rdev) if stat.S_ISBLK(found.st_mode) else None


def udev_properties(device: str) -> dict[str, str]:
    """Return udev's properties of a device; empty if udev does not run or is not visible here."""
    lines = (read(f"{UDEV_DATA}/b{device}") or "").splitlines()
    return dict(line[2:].partition("=")[::2] for line in lines if line.startswith("E:"))


def uevent(base: str) -> dict[str, str]:
    """Return the kernel's own properties of the device at ``base``."""
    lines = (read(f"{base}/uevent") or "").splitlines()
    return dict(line.partition("=")[::2] for line in lines)


def words(text: str) -> str:
    """Replace runs of white space by one underscore, as udev does in serial numbers and models."""
    return "_".join(text.split())


def read(path: str) -> str | None:
    """Read a small file of sysfs or udev; None if it is not there or the device is going away."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            text = file.read()
    except OSError:
        return None
    return text.removesuffix("\n").strip(" \0")


def listing(path: str) -> list[str]:
    """Return the sorted names in a directory; empty when it is not there."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []
