"""Mounts a device's filesystem at a directory of the kubelet, and unmounts only that again.

A volume that several pods have is mounted once for each. Read-only is a property of each such
mount, never of the filesystem: the kernel does not mount one both ways.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from localvolume.flexvolume.driver import DriverFailed
from localvolume.host.mount.mounts import Mount, MountTable, read_mount_table
from localvolume.host.process.commands import CommandMissing, CommandTimedOut, Finished
from localvolume.host.process.commandsync import Run
from localvolume.host.tree.entries import device_number
from localvolume.volumes.mountoptions import faults_of

MOUNT_SECONDS: Final = 120.0
"""Replaying the journal of a large filesystem takes a while."""

_GROUP_MODE: Final = stat.S_ISGID | stat.S_IRWXG
_REPAIR: Final = {"xfs": "xfs_repair", "ext4": "e2fsck -f"}
_MOST_STACKED: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Filesystem:
    """What is to be mounted: `device` is `major:minor`, `node` its device node; `options` those of
    mount -o. `writable` False: the device takes no writes."""

    device: str
    node: str
    fs_type: str
    options: tuple[str, ...] = ()
    read_only: bool = False
    writable: bool = True


def mount_table() -> MountTable:
    """All mounts. Raises DriverFailed if they keep changing."""
    try:
        table = read_mount_table()
    except (OSError, ValueError) as error:
        raise DriverFailed(f"the mounts of this node cannot be read: {error}") from error
    if not table.settled:
        raise DriverFailed("the mounts of this node keep changing: ask again")
    return table


def mounted_at(target: str) -> Mount | None:
    """What is mounted there, None if nothing is. Raises DriverFailed."""
    if os.path.realpath(target) != target:
        raise DriverFailed(f"{target} leads elsewhere, to {os.path.realpath(target)}")
    return mount_table().at(target)


def must_be_free(target: str, devices: Collection[str]) -> bool:
    """Whether one of these devices (`major:minor`) is mounted there, whole.

    Raises DriverFailed if anything else is.
    """
    found = mounted_at(target)
    if found is None:
        return False
    if found.device in devices and found.root == "/":
        return True
    raise DriverFailed(
        f"at {target} something else is mounted already: {found.source} ({found.fs_type})"
    )


def mount(run: Run, what: Filesystem, target: str) -> None:
    """Mount it; if it is mounted there already, do what is still missing. Raises DriverFailed."""
    if faults := faults_of(what.options):
        raise DriverFailed(faults[0])
    if not must_be_free(target, {what.device}):
        _make_directory(target)
        options = list(what.options)
        if what.fs_type == "xfs":
            # A snapshot or clone has the UUID of what it was made from.
            options.append("nouuid")
        if not what.writable:
            options.append("ro")
        words = ["-o", ",".join(options)] if options else []
        argv = ["mount", "-t", what.fs_type, *words, "--", what.node, target]
        done = _run(run, argv)
        if done.returncode:
            raise DriverFailed(_why_not(done, what))
    found = mounted_at(target)
    if found is None or found.device != what.device:
        raise DriverFailed(f"{what.node} was mounted at {target}, and is not there now")
    if what.read_only and not found.read_only:
        done = _run(run, ["mount", "-o", "remount,bind,ro", "--", target])
        if done.returncode:
            raise DriverFailed(f"{target} cannot be made read-only: {_said(done)}")


def give_to_group(device: str, target: str, group: int) -> None:
    """Give the root directory mounted there to the group. Raises DriverFailed."""
    try:
        fd = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if device_number(os.fstat(fd).st_dev) != device:
                raise DriverFailed(f"the volume is not mounted at {target} any more")
            give(fd, group)
        finally:
            os.close(fd)
    except OSError as error:
        raise DriverFailed(f"{target} cannot be given to the group {group}: {error}") from error


def give(fd: int, group: int) -> None:
    """Let the group own a volume's root directory, open as `fd`, and all that is made in it.

    The kubelet does this for other volumes. What is in the volume already is left to the kubelet.
    """
    found = os.fstat(fd)
    mode = stat.S_IMODE(found.st_mode) | _GROUP_MODE
    if found.st_gid != group:
        os.fchown(fd, -1, group)
    if found.st_gid != group or mode != stat.S_IMODE(found.st_mode):
        # After the group: changing that may clear setgid.
        os.fchmod(fd, mode)


def unmount(run: Run, target: str, devices: Collection[str]) -> bool:
    """Unmount these devices there, however often they are; returns whether any was. The directory
    stays. Raises DriverFailed if it is busy, or something else is mounted there.
    """
    if not os.path.lexists(target):
        return False
    for times in range(_MOST_STACKED):
        if not must_be_free(target, devices):
            return times > 0
        done = _run(run, ["umount", "--", target])
        if done.returncode and must_be_free(target, devices):
            raise DriverFailed(f"{target} cannot be unmounted: {_said(done)}")
    raise DriverFailed(f"{target} is mounted again and again")


def _make_directory(target: str) -> None:
    """Make it, but no parents, if the kubelet has not: elastic's driver did so too."""
    try:
        os.mkdir(target, 0o750)
    except FileExistsError:
        if not os.path.isdir(target):
            raise DriverFailed(f"{target} is no directory") from None
    except OSError as error:
        raise DriverFailed(f"{target} cannot be made: {error.strerror}") from error


def _run(run: Run, argv: list[str]) -> Finished:
    try:
        return run(argv, MOUNT_SECONDS, env={"LC_ALL": "C"})
    except (CommandMissing, CommandTimedOut, OSError) as error:
        raise DriverFailed(f"{argv[0]}: {error}") from error


def _said(done: Finished) -> str:
    return " ".join((done.stderr or done.stdout).split())[:1000] or f"exit status {done.returncode}"


def _why_not(done: Finished, what: Filesystem) -> str:
    text = f"{what.node} cannot be mounted: {_said(done)}"
    if "needs cleaning" in text or "superblock" in text:
        repair = f"{_REPAIR.get(what.fs_type, 'fsck')} {what.node}"
        text += f". Its data is left as it is; on the node, to repair it: {repair}"
    return text
