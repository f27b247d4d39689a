"""Finds, makes, grows and tags the logical volumes of one group, for the driver.

Each step is one command of LVM, so a crash leaves it done or not done.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from localvolume.backends.lvm.engine import Check, Engine, gated
from localvolume.backends.model import BackendFailed
from localvolume.config.pools import LvmConfig
from localvolume.flexvolume.driver import (
    MAKING,
    TAG_FS,
    TAG_STATE,
    DriverFailed,
    Volume,
)
from localvolume.flexvolume.drivers.lvm.content import Device, visible_on
from localvolume.flexvolume.drivers.lvm.marks import POOL_TAGS, Tags, fields_of, is_half_pool
from localvolume.host.block.blockdev import InUse, NotABlockDevice
from localvolume.host.block.sysfs import read
from localvolume.host.lvm.commands import (
    BadReport,
    LogicalVolume,
    LvmFailed,
    NameTaken,
    NoSpaceInGroup,
    check_name,
)
from localvolume.host.process.commands import CommandMissing, CommandTimedOut
from localvolume.host.process.commandsync import Run
from localvolume.host.tree.entries import device_number
from localvolume.volumes.capacity import quantity
from localvolume.volumes.lvtags import BadTag

_FULL = 100.0

log = logging.getLogger(__name__)


@contextmanager
def translated() -> Iterator[None]:
    """Turn errors of the host within the block into DriverFailed."""
    try:
        yield
    except (LvmFailed, BadReport, BadTag, BackendFailed, CommandMissing, CommandTimedOut) as error:
        raise DriverFailed(str(error)) from error
    except (InUse, NotABlockDevice, OSError) as error:
        raise DriverFailed(str(error)) from error


class Group:
    """All methods raise DriverFailed and what `translated` turns into it."""

    def __init__(self, run: Run, config: LvmConfig) -> None:
        self._config = config
        self.name = check_name(config.group)
        self.engine = Engine(config, gated(config, run))
        # The group that is seen first is the only right one as long as this process lives.
        self._uuid = ""

    # --- looking -------------------------------------------------------------------------------

    def volumes(self) -> list[LogicalVolume]:
        """All volumes of the group, ours or not."""
        found = self.engine.lvm.volumes(self.name)
        for volume in found:
            self._must_be(volume.group_uuid)
        return found

    def look(self, name: str) -> LogicalVolume | None:
        """The volume of that name, ours or not."""
        check_name(name)
        return next((one for one in self.volumes() if one.name == name), None)

    def _must_be(self, uuid: str) -> None:
        """Raise DriverFailed if another group has the name now: nothing may be done in that."""
        if self._uuid and uuid != self._uuid:
            raise DriverFailed(
                f"the volume group {self.name} was {self._uuid}, and is {uuid} now: its disks were"
                " exchanged, or it was made anew; nothing is done in it until the agent is started"
                " again"
            )
        self._uuid = uuid

    def is_it(self, name: str, device: str) -> bool:
        """Whether `major:minor` is the device of that volume, by what the kernel calls it.

        Does not ask LVM, which may not answer just when a volume must be unmounted.
        """
        doubled = (part.replace("-", "--") for part in (self.name, check_name(name)))
        base = f"/sys/dev/block/{device}/dm"
        ours = (read(f"{base}/uuid") or "").startswith("LVM-")
        return ours and read(f"{base}/name") == "-".join(doubled)

    def device(self, volume: LogicalVolume) -> Device:
        """The device node of an active volume, checked to be the right one."""
        try:
            found = os.stat(volume.path)
        except OSError as error:
            raise DriverFailed(
                f"the device {volume.path} is not there: {error.strerror}; the agent needs the"
                " host's /dev"
            ) from error
        if not stat.S_ISBLK(found.st_mode) or device_number(found.st_rdev) != volume.device:
            raise DriverFailed(f"{volume.path} does not lead to {volume.full_name}")
        return Device(volume.path, volume.device)

    # --- changing ------------------------------------------------------------------------------

    def make(self, volume: Volume, volumes: Sequence[LogicalVolume]) -> LogicalVolume:
        """Returns a new volume with our tags in the state MAKING, or one that was made meanwhile.

        `volumes` are those of the group, as they were just listed.
        """
        group = self.engine.lvm.group(self.name)
        self._must_be(group.uuid)
        if group.missing:
            raise DriverFailed(
                f"nothing is made in the volume group {self.name}: {group.missing} of its physical"
                " volumes are missing"
            )
        noted = {**volume.tags, TAG_STATE: MAKING, TAG_FS: volume.fs_type}
        pool = self._pool(volumes)
        try:
            self.engine.create(volume.name, volume.size_bytes, fields_of(noted), thin_pool=pool)
        except NameTaken:
            pass
        except NoSpaceInGroup as error:
            raise DriverFailed(
                f"no room for {volume.name}: {quantity(volume.size_bytes)} are wanted, and"
                f" {quantity(group.free_bytes)} are free in the volume group {self.name} ({error})"
            ) from error
        found = self.engine.made(volume.name)
        self._must_be(found.group_uuid)
        return found

    def note(self, volume: LogicalVolume, noted: Tags) -> LogicalVolume:
        """Set just these tags of ours; others' tags stay. Returns the volume."""
        return self.engine.retag(volume, fields_of(noted))

    def extend(self, volume: LogicalVolume, size_bytes: int) -> LogicalVolume:
        """Grow the volume to at least that many bytes; never shrinks it. Returns the volume."""
        if size_bytes <= volume.size_bytes:
            return volume
        try:
            self.engine.lvm.extend(volume, size_bytes)
        except NoSpaceInGroup as error:
            raise DriverFailed(
                f"{volume.full_name} has {quantity(volume.size_bytes)}, and there is no room for"
                f" {quantity(size_bytes)} ({error})"
            ) from error
        return self.engine.again(volume)

    def fullness(self, volume: LogicalVolume) -> str:
        """A sentence saying that the volume's thin pool is full; "" if it is not."""
        pool = self.look(volume.pool) if volume.pool else None
        return _full(pool) if pool else ""

    # --- thin pools ----------------------------------------------------------------------------

    def _pool(self, volumes: Sequence[LogicalVolume]) -> str:
        """The thin pool to make volumes in, "" for thick ones; made of what is free, if absent."""
        name = self._config.thin_pool
        if not name:
            return ""
        found = next((one for one in volumes if one.name == name), None)
        if found is not None and is_half_pool(found):
            self._remove_half(found)
            found = None
        if found is None:
            self._make_pool(name)
            return name
        if found.kind != "pool":
            raise DriverFailed(f"{found.full_name} is no thin pool: left as it is")
        if text := _full(found):
            raise DriverFailed(text)
        return name

    def _remove_half(self, found: LogicalVolume) -> None:
        """Remove a half-made pool. Nobody was ever given anything in it; if somebody put a
        filesystem there all the same, it is left."""
        # The command that was killed may have left the kernel's device half done, too.
        self.engine.lvm.put_right()
        found = self.engine.again(found)
        refuse_unless(is_half_pool)(found, ())
        found = self.engine.active(found)
        if fs_type := visible_on(self.device(found)):
            raise DriverFailed(
                f"{found.full_name} was to be a thin pool, and holds {fs_type}: left as it is"
            )
        self.engine.remove(found, refuse_unless(is_half_pool))
        log.warning("removed %s, half of a thin pool: it is made anew", found.full_name)

    def _make_pool(self, name: str) -> None:
        try:
            self.engine.lvm.create_pool(self.name, name, None, tags=POOL_TAGS)
        except NameTaken:
            pass
        except NoSpaceInGroup as error:
            raise DriverFailed(
                f"no room for the thin pool {name} in the volume group {self.name} ({error})"
            ) from error


def refuse_unless(may_go: Callable[[LogicalVolume], bool]) -> Check:
    """Returns a check before a removal, which raises DriverFailed if the volume may not go."""

    def check(found: LogicalVolume, _: Sequence[LogicalVolume]) -> None:
        if not may_go(found):
            raise DriverFailed(f"{found.full_name} has changed meanwhile: ask again")

    return check


def _full(pool: LogicalVolume) -> str:
    data, metadata = pool.data_percent or 0.0, pool.metadata_percent or 0.0
    if data < _FULL and metadata < _FULL:
        return ""
    return (
        f"the thin pool {pool.full_name} is full (data {data:.1f} %, metadata {metadata:.1f} %):"
        " its volumes take no more data until it is extended (lvextend) or volumes are removed"
    )


def size_in(noted: Mapping[str, str], key: str) -> int:
    """A number among what is noted; 0 if there is none."""
    text = noted.get(key, "")
    return int(text) if text.isascii() and text.isdigit() else 0
