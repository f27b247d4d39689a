"""What is there: looks at all volumes in one pass, and leaves out each one whose disk hangs.

Most facts are what the kernel remembers (host/filesystem/errors.py). Of the disks, only the top of
each volume is asked, by stat: this shows whether its filesystem has shut down.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from localvolume.health.model import Filled, Image, Location, Seen, Space
from localvolume.host.block.sysfs import SYS, read, real
from localvolume.host.filesystem.errors import (
    Failure,
    both,
    btrfs_filesystems,
    device_failure,
    device_of,
    filesystem_failure,
    kernel_name,
)
from localvolume.host.loop import attach
from localvolume.host.mount.mounts import Mount, MountTable, read_mount_table
from localvolume.host.process.workers import Hung, Workers
from localvolume.host.syscalls import StatFs, fstatfs
from localvolume.host.tree.entries import device_number

LOOK_SECONDS: Final = 5.0
"""How long one volume may keep all the others waiting."""

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV, errno.ELOOP})
_FAILED: Final = frozenset({errno.EIO, errno.EUCLEAN, errno.ESHUTDOWN, errno.EBADMSG, errno.ESTALE})


class Survey:
    """Looks at locations; remembers those that hang, so that nobody waits for them again.

    One volume may keep all the others waiting for `look_seconds`.
    """

    def __init__(
        self, workers: Workers, sys: str = SYS, look_seconds: float = LOOK_SECONDS
    ) -> None:
        self._workers = workers
        self._look_seconds = look_seconds
        self._sys = sys
        self._turn = 0
        self._stuck: dict[str, str] = {}

    async def look(self, locations: Mapping[str, Location]) -> dict[str, Seen]:
        """What is seen at each location, by the same keys. One that hangs is `unknown`."""
        hung = self._workers.hung
        self._stuck = {key: call for key, call in self._stuck.items() if call in hung}
        found = {
            key: Seen(unknown="it does not answer") for key in self._stuck.keys() & locations.keys()
        }
        left = {key: location for key, location in locations.items() if key not in found}
        while left:
            self._turn += 1
            call, turn = f"health {self._turn}", _Turn(left, self._sys)
            try:
                await self._workers.call(call, self._look_seconds + len(left) / 100, turn.run)
            except Hung as error:
                turn.given_up.set()
                key = turn.at
                if key is None:  # no thread was free, or the tables hang: nothing is known
                    return found | dict.fromkeys(left, Seen(unknown=str(error)))
                self._stuck[key] = call
                found[key] = Seen(unknown="it does not answer")
            except (OSError, ValueError) as error:
                unknown = Seen(unknown=f"the node cannot be looked at: {error}")
                return found | dict.fromkeys(left, unknown)
            done = dict(turn.found)
            found |= {key: seen for key, seen in done.items() if key not in found}
            left = {key: location for key, location in left.items() if key not in found}
        return found


class _Turn:
    """One pass in a worker thread: `found` so far, and the key of the location it is `at`."""

    def __init__(self, locations: Mapping[str, Location], sys: str) -> None:
        self._locations = locations
        self._sys = sys
        self.found: dict[str, Seen] = {}
        self.at: str | None = None
        self.given_up = threading.Event()

    def run(self) -> None:
        look = Look(read_mount_table(), self._sys)
        for key, location in self._locations.items():
            self.at = key
            seen = look.at(location)
            if self.given_up.is_set():
                return
            self.found[key] = seen


class Look:
    """What the tables of one moment say about each location; nothing is read twice.

    Blocks. Raises nothing for what is wrong with a location.
    """

    def __init__(self, table: MountTable, sys: str = SYS) -> None:
        self._table = table
        self._sys = sys
        self._btrfs = btrfs_filesystems(sys)
        self._failures: dict[tuple[str, str, str], Failure] = {}
        self._disks: dict[str, Failure] = {}
        self._pools: dict[str, Seen] = {}

    def at(self, location: Location) -> Seen:
        """What can be seen there now."""
        seen = self._below(location.below) if location.below else Seen()
        if seen.gone or seen.unknown:
            return seen
        own = self._own(location)
        return replace(
            seen,
            gone=own.gone,
            stopped=own.stopped or seen.stopped,
            errors=own.errors or seen.errors,
            filled=own.filled,
            unknown=own.unknown,
        )

    def _own(self, location: Location) -> Seen:
        try:
            found = os.stat(location.path)
        except OSError as error:
            return _of_error(location.path, error)
        if location.kind != "directory" and stat.S_ISBLK(found.st_mode):
            return self._device(location, device_number(found.st_rdev))
        if location.kind == "device":
            return Seen(gone=f"{location.path} is no block device")
        if not stat.S_ISDIR(found.st_mode):
            return Seen(gone=f"{location.path} is no directory")
        if location.below:
            return Seen()  # on its pool's filesystem, which `_below` has looked at
        if location.kind == "directory":
            mount = self._table.holding(os.path.realpath(location.path))
        else:
            # Mostly there are no symlinks in the path, and resolving them costs more than all else.
            mount = self._table.at(location.path) or self._table.at(os.path.realpath(location.path))
            if mount is None and self._table.settled:
                return Seen(gone=f"nothing is mounted at {location.path}")
        if mount is None:
            return Seen(unknown=f"it is not known what is mounted at {location.path}")
        seen = self._filesystem(mount, written=location.written)
        return seen if location.kind == "directory" else _with_filled(seen, location.path)

    def _device(self, location: Location, device: str) -> Seen:
        path, name = location.path, kernel_name(device, self._sys)
        if not name:
            return Seen(gone=f"the kernel has no device {path} any more")
        if read(f"{self._sys}/class/block/{name}/size") == "0":
            return Seen(gone=f"the device {path} has no size: nothing is attached to it")
        if location.image is not None:
            astray = _astray(path, location.image)
            if astray.gone or astray.unknown:
                return astray
        mounts = self._table.of_device(device)
        if not mounts and name in self._btrfs:
            mounts = self._btrfs_mounts(name)
        disk, visible = self._disk(name), self._visible(mounts)
        failed = filesystem_failure(name, mounts, self._btrfs, self._sys)
        seen = Seen(
            gone=disk.leaving,
            stopped=failed.stopped,
            errors=disk.errors or failed.errors or _answers(visible),
        )
        # In a pool, the backend counts what a volume holds.
        return seen if location.pool or not visible else _with_filled(seen, visible)

    def _filesystem(self, mount: Mount, *, written: bool) -> Seen:
        # Other mounts of the filesystem differ only in their own options.
        key = mount.device, mount.options, mount.super_options
        failed = self._failures.get(key)
        if failed is None:
            name = device_of(mount, self._sys)
            found = filesystem_failure(name, (mount,), self._btrfs, self._sys)
            failed = both(found, self._disk(name)) if name else found
            self._failures[key] = failed
        stopped = failed.stopped
        if written and not stopped and "ro" in mount.super_options.split(","):
            stopped = f"its {mount.fs_type} is mounted read-only"
        return Seen(gone=failed.leaving, stopped=stopped, errors=failed.errors)

    def _disk(self, name: str) -> Failure:
        known = self._disks.get(name)
        if known is None:
            known = self._disks[name] = device_failure(name, self._sys)
        return known

    def _btrfs_mounts(self, name: str) -> list[Mount]:
        return [
            mount
            for mount in self._table
            if mount.fs_type == "btrfs" and os.path.basename(mount.source) == name
        ]

    def _visible(self, mounts: list[Mount]) -> str:
        """A mount point where a filesystem can be asked; "" if its mounts are not visible here."""
        return next(
            (one.mount_point for one in mounts if self._table.at(one.mount_point) is one), ""
        )

    def _below(self, directory: str) -> Seen:
        """What is wrong with the pool's filesystem, and so with every volume on it."""
        if directory not in self._pools:
            self._pools[directory] = self._pool(directory)
        return self._pools[directory]

    def _pool(self, directory: str) -> Seen:
        seen = self._own(Location(path=directory, kind="directory", written=True))
        if seen.gone or seen.unknown or seen.errors:
            return seen
        try:
            return replace(seen, space=_space(directory))
        except OSError as error:
            return _of_error(directory, error)


def _astray(path: str, image: Image) -> Seen:
    """Whether the loop device that a volume's link leads to has anything but its image behind it:
    the kernel gives the number of a detached loop device to the next that asks for one."""
    node = real(path)
    try:
        loop = attach.look(node)
        filesystem = os.stat(image.directory).st_dev
    except OSError as error:
        return Seen(unknown=f"it is not known what is behind {node}: {error.strerror}")
    if loop is None or loop.behind != (filesystem, image.inode):
        return Seen(gone=f"{path} leads to {node}, and its image is not behind that")
    if not loop.ours:
        return Seen(
            gone=f"{path} leads to {node}, and its image is behind that only in part, for reading,"
            " or until nobody uses it"
        )
    return Seen()


def _of_error(path: str, error: OSError) -> Seen:
    if error.errno in _GONE:
        return Seen(gone=f"{path} is not there")
    text = f"{path} cannot be used: {error.strerror}"
    return Seen(errors=text) if error.errno in _FAILED else Seen(unknown=text)


def _answers(mount_point: str) -> str:
    """Why the filesystem mounted there gives errors; "" if it does not, or if none is visible."""
    if not mount_point:
        return ""
    try:
        os.stat(mount_point)
    except OSError as error:
        return f"its filesystem cannot be used: {error.strerror}" if error.errno in _FAILED else ""
    return ""


def _with_filled(seen: Seen, directory: str) -> Seen:
    """The same with how full the filesystem there is, if it is there and answers."""
    if seen.gone:
        return seen
    try:
        found = _statfs(directory)
    except OSError:
        return seen
    return replace(
        seen,
        filled=Filled(
            used_bytes=(found.blocks - found.free) * found.block_size,
            available_bytes=found.available * found.block_size,
            used_inodes=found.inodes - found.inodes_free if found.inodes else None,
            available_inodes=found.inodes_free if found.inodes else None,
        ),
    )


def _statfs(directory: str) -> StatFs:
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return fstatfs(fd)
    finally:
        os.close(fd)


def _space(directory: str) -> Space:
    found = _statfs(directory)
    return Space(
        total_bytes=found.blocks * found.block_size,
        available_bytes=found.available * found.block_size,
        inodes=found.inodes_free if found.inodes else None,
    )
