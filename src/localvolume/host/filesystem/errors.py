"""What the kernel knows of a filesystem or disk that has failed: read from sysfs and mount options.

Nothing here asks a disk: it reads what earlier requests have met. So it is cheap, never waits for
hardware, and covers a filesystem wherever it is mounted, in any mount namespace.

- ext4 counts the errors it meets in its superblock until e2fsck resets them
  (Documentation/ABI/testing/sysfs-fs-ext4), and stops writing where it is told to, which newer
  kernels show as emergency_ro.
- btrfs counts the errors of each of its devices until `btrfs device stats --reset`, and makes
  itself read-only when it cannot commit.
- xfs counts nothing that lasts. It shuts down, and every use of it fails with EIO from then on.
- SCSI and NVMe disks that the kernel has given up have a state that says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from localvolume.host.block.sysfs import SYS, listing, read, real
from localvolume.host.mount.mounts import Mount

_STOPPED: Final = frozenset({"emergency_ro"})
_SHUT_DOWN: Final = frozenset({"shutdown"})
_GIVEN_UP: Final = frozenset({"offline", "transport-offline", "dead"})
_LEAVING: Final = frozenset({"cancel", "deleted", "deleting", "deleting (no IO)"})
_DEEPEST: Final = 8
"""Nobody has this many layers of device mapper, md and partitions."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What is wrong, each as a clause; "" if nothing is known to be.

    `stopped`: the filesystem takes no writes any more. `errors`: there were errors that nobody has
    dealt with since. `leaving`: the kernel is taking the disk away.
    """

    stopped: str = ""
    errors: str = ""
    leaving: str = ""

    def __str__(self) -> str:
        return self.leaving or ": ".join(text for text in (self.stopped, self.errors) if text)


SOUND: Final = Failure()


def kernel_name(device: str, sys: str = SYS) -> str:
    """The kernel's name of `major:minor` ("sda1", "dm-3"), or "" if it has no such device."""
    try:
        return os.path.basename(os.readlink(f"{sys}/dev/block/{device}"))
    except OSError:
        return ""


def btrfs_filesystems(sys: str = SYS) -> dict[str, str]:
    """The UUIDs of the mounted btrfs, by the kernel's names of their devices."""
    root = f"{sys}/fs/btrfs"
    return {
        name: uuid
        for uuid in listing(root)
        if "-" in uuid
        for name in listing(f"{root}/{uuid}/devices")
    }


def filesystem_failure(
    name: str, mounts: Sequence[Mount], btrfs: Mapping[str, str], sys: str = SYS
) -> Failure:
    """What is wrong with the filesystem on the device with that kernel name.

    `mounts` are its visible mounts, maybe none; `btrfs` comes from `btrfs_filesystems`.
    """
    stopped, errors = _by_mounts(mounts), _shut_down(mounts)
    if name in btrfs:
        counted = _btrfs_errors(name, btrfs[name], sys)
    else:
        counted = _ext_errors(name, sys) if name else ""
    return Failure(stopped=stopped, errors=errors or counted)


def mounted_failure(mount: Mount, sys: str = SYS) -> Failure:
    """What is wrong with the filesystem mounted there and the disks below it."""
    name = device_of(mount, sys)
    btrfs = btrfs_filesystems(sys) if mount.fs_type == "btrfs" else {}
    found = filesystem_failure(name, (mount,), btrfs, sys)
    return both(found, device_failure(name, sys)) if name else found


def device_of(mount: Mount, sys: str = SYS) -> str:
    """The kernel's name of the device (for btrfs, of one) that the filesystem is on, or ""."""
    name = kernel_name(mount.device, sys)
    if not name and mount.fs_type == "btrfs":
        name = os.path.basename(real(mount.source))
    return name


def both(filesystem: Failure, disk: Failure) -> Failure:
    """Join what is wrong with a filesystem and what is wrong with the disks below it."""
    errors = disk.errors or filesystem.errors
    return Failure(stopped=filesystem.stopped, errors=errors, leaving=disk.leaving)


def forced_read_only(mount: Mount) -> bool:
    """Whether the filesystem takes no writes although this mount of it is for writing.

    Mounting or remounting read-only on purpose marks the mount too. The kernel, when it stops
    because of an error, marks only the filesystem.
    """
    supers = mount.super_options.split(",")
    if not _STOPPED.isdisjoint(supers):
        return True
    return "ro" in supers and "ro" not in mount.options.split(",")


def _by_mounts(mounts: Sequence[Mount]) -> str:
    for mount in mounts:
        if forced_read_only(mount):
            return f"its {mount.fs_type} takes no writes any more"
    return ""


def _shut_down(mounts: Sequence[Mount]) -> str:
    for mount in mounts:
        if not _SHUT_DOWN.isdisjoint(mount.super_options.split(",")):
            return f"its {mount.fs_type} has shut down"
    return ""


def _ext_errors(name: str, sys: str) -> str:
    """ext4's own errors, "" if it is no ext4. Leaves out their number: the text must not vary."""
    base = f"{sys}/fs/ext4/{name}"
    if (read(f"{base}/errors_count") or "0") == "0":
        return ""
    first = read(f"{base}/first_error_time")
    if first is None and read(f"{base}/errors_count") is None:
        return ""  # It has just been unmounted: the text would differ.
    return f"its ext4 on {name} counts errors{_since(first)}, until e2fsck has repaired it"


def _since(seconds: str | None) -> str:
    if not seconds or not seconds.isdigit() or seconds == "0":
        return ""
    try:
        return f" since {datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, ValueError):  # it comes from the disk
        return ""


def _btrfs_errors(name: str, uuid: str, sys: str) -> str:
    """Errors of all its devices: what one has lost, the others may no longer have."""
    base = f"{sys}/fs/btrfs/{uuid}/devinfo"
    kinds = set()
    for number in listing(base):
        if (read(f"{base}/{number}/missing") or "0") != "0":
            return f"its btrfs on {name} lacks a device"
        for line in (read(f"{base}/{number}/error_stats") or "").splitlines():
            kind, _, count = line.partition(" ")
            if count not in ("", "0"):
                kinds.add(kind.removesuffix("_errs"))
    if not kinds:
        return ""
    what = ", ".join(sorted(kinds))
    return f"its btrfs on {name} counts errors ({what}), until btrfs device stats --reset"


def device_failure(name: str, sys: str = SYS) -> Failure:
    """What is wrong with the disks below the block device with that kernel name."""
    for disk in _disks(name, sys):
        state = (read(f"{sys}/class/block/{disk}/device/state") or "").strip()
        if state in _GIVEN_UP:
            return Failure(errors=f"the kernel has taken the disk {disk} offline ({state})")
        if state in _LEAVING:
            return Failure(leaving=f"the kernel is taking the disk {disk} away ({state})")
    return SOUND


def _disks(name: str, sys: str, depth: int = 0) -> Iterator[str]:
    """The whole disks that a device is made of."""
    try:
        link = os.readlink(f"{sys}/class/block/{name}")
    except OSError:
        return
    base = os.path.normpath(os.path.join(sys, "class/block", link))
    if os.path.exists(f"{base}/partition"):
        base = os.path.dirname(base)
    below = listing(f"{base}/slaves")
    if not below or depth >= _DEEPEST:
        yield os.path.basename(base)
        return
    for slave in below:
        yield from _disks(slave, sys, depth + 1)
