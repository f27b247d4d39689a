"""Errors of LVM's commands, told apart by their messages (LC_ALL=C), never by exit status.

The exit status is 5 for nearly every error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final


class LvmFailed(Exception):
    """LVM did not do it; nothing is lost, and trying again may help. The text is LVM's own."""


class LvmUnfinished(LvmFailed):
    """A command was killed, by us for taking too long or by others: call ``Lvm.recover`` next."""


class GroupMissing(LvmFailed):
    """There is no such volume group."""


class VolumeMissing(LvmFailed):
    """There is no such logical volume, or thin pool."""


class NameTaken(LvmFailed):
    """There is a logical volume of that name already."""


class NoSpaceInGroup(LvmFailed):
    """The volume group, or the thin pool, does not have enough room for it."""


class VolumeInUse(LvmFailed):
    """It is mounted, or held by a process or device."""


class HasSnapshots(LvmFailed):
    """It has classic snapshots, which have to go first."""


class BadName(LvmFailed):
    """LVM does not allow such a name: nothing was run."""


_SAID: Final[Sequence[tuple[type[LvmFailed], str]]] = (
    (NoSpaceInGroup, r"insufficient (suitable |free )|not enough (free )?(space|extents)"),
    (NoSpaceInGroup, r"free space in thin pool \S+ reached threshold|thin pool \S+ is out of data"),
    (NameTaken, r"already exists in volume group"),
    (VolumeMissing, r"failed to find logical volume|logical volume\(s\) not found"),
    (VolumeMissing, r"\b(volume|lv|pool) \S+ not found in volume group"),
    (GroupMissing, r'volume group "\S+" not found'),
    (VolumeInUse, r"logical volume \S+ (in use|contains a filesystem in use|is used by another)"),
    # It came into use between LVM's check and the kernel's.
    (VolumeInUse, r"remove ioctl on .* failed: device or resource busy"),
    (HasSnapshots, r"snapshot origin volumes can be resized only while inactive"),
)

# If the host has a devices file, LVM says the second of the filter that we give it.
_BESIDE: Final = ("WARNING:", "Please remove the lvm.conf ")


def failed(command: str, code: int, said: str) -> LvmFailed:
    """The error that the message tells of; the text keeps all lines that are not warnings."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(_BESIDE)] or lines
    text = "; ".join(told)[:2000] or f"exit status {code}"
    if code == 127:  # env(1) or nsenter(1) did not find it
        return missing(command, text)
    kind = next(
        (error for error, words in _SAID if re.search(words, text, re.IGNORECASE)), LvmFailed
    )
    return kind(f"{command}: {text}")


def missing(command: str, text: str) -> LvmFailed:
    """The error where a program is not there."""
    if command == "thin_delta":
        return LvmFailed(f"{text}; install thin-provisioning-tools")
    return LvmFailed(f"LVM is not there: {text}; install lvm2")
