"""Tells by its bytes what a logical volume holds: a filesystem, nothing at all, or something else.

A volume is formatted only if our own mark says that it is being made, or if it is all zeros at both
ends.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, Literal

from localvolume.backends.fstools import command
from localvolume.backends.lvm.filesystem import check_filesystem
from localvolume.backends.model import BackendFailed
from localvolume.flexvolume.driver import DriverFailed
from localvolume.host.block import blockdev
from localvolume.host.block.signatures import EDGE_BYTES, Signature, parse
from localvolume.host.process.commandsync import Run

FsType = Literal["ext4", "xfs"]

_LOOK_SECONDS: Final = 60.0
_ZEROS: Final = bytes(1 << 16)


@dataclass(frozen=True, slots=True)
class Device:
    """An active volume's device: `number` is `major:minor`."""

    node: str
    number: str


def content_of(run: Run, device: Device, noted: str = "") -> FsType | None:
    """The filesystem on a volume; None if nothing was ever written to it.

    `noted` is what was made on it, as far as is known. Raises DriverFailed if it holds anything
    else, saying what may bring the filesystem back, and OSError if it cannot be read.
    """
    if fs_type := visible_on(device):
        return fs_type
    found = _signature(run, device)
    if found is None and _is_blank(device.node):
        return None
    raise DriverFailed(_left(device, f"holds {found.type}" if found else "", noted))


def visible_on(device: Device) -> FsType | None:
    """The filesystem where a mount looks for it; no command is needed to see it. Raises OSError."""
    with open(device.node, "rb", buffering=0) as file:
        head = file.read(4096)
    if head[:4] == b"XFSB":
        return "xfs"
    return "ext4" if head[1080:1082] == b"\x53\xef" else None


def must_hold(run: Run, device: Device, noted: str) -> FsType:
    """The filesystem on a finished volume; if none, DriverFailed, saying what may bring it back."""
    found = content_of(run, device, noted)
    if found is None:
        raise DriverFailed(_left(device, "is all zeros at its ends", noted))
    return found


def check(run: Run, device: Device, fs_type: FsType) -> None:
    """Let e2fsck repair what a crash left, if it is sure how; does nothing if it is mounted.

    Raises DriverFailed if people must decide.
    """
    try:
        check_filesystem(run, device.node, device.number, fs_type)
    except BackendFailed as error:
        raise DriverFailed(
            f"the {fs_type} on {device.node} has errors that must not be repaired unseen, and is"
            f" left as it is; on the node, to repair it: e2fsck -f {device.node} ({error})"
        ) from error


def _left(device: Device, holds: str, noted: str) -> str:
    what = holds or "holds something, and no filesystem that is known"
    if not noted:
        return (
            f"{device.node} {what}: left as it is. If nothing in it is wanted, remove the logical"
            " volume, and it is made anew"
        )
    repair = "xfs_repair" if noted == "xfs" else "e2fsck -b 32768"
    return (
        f"{device.node} had an {noted} and {what}: left as it is, for no volume is formatted twice."
        f" On the node, to repair it: {repair} {device.node}"
    )


def _signature(run: Run, device: Device) -> Signature | None:
    done = command(run, ["wipefs", "--json", device.node], _LOOK_SECONDS)
    try:
        return parse(device.node, done.stdout)
    except blockdev.SignatureUnknown as error:
        raise DriverFailed(str(error)) from error


def _is_blank(node: str) -> bool:
    """Whether both ends can be read and are zeros: libblkid takes what is unreadable for empty."""
    with open(node, "rb", buffering=0) as file:
        fd = file.fileno()
        size = blockdev.size_bytes(fd)
        edge = min(EDGE_BYTES, size)
        return _is_zero(fd, 0, edge) and _is_zero(fd, size - edge, size)


def _is_zero(fd: int, start: int, end: int) -> bool:
    while start < end:
        piece = os.pread(fd, min(len(_ZEROS), end - start), start)
        if not piece:
            raise OSError(f"the device ends at {start}, before {end}")
        if piece != _ZEROS[: len(piece)]:
            return False
        start += len(piece)
    return True
