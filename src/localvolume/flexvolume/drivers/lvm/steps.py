"""The steps between a logical volume and its mounted filesystem; each may be repeated.

See `lvm`. All raise DriverFailed and what `group.translated` turns into it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

from localvolume.backends.lvm.filesystem import grow_filesystem, make_filesystem
from localvolume.backends.model import BackendFailed
from localvolume.flexvolume.driver import (
    MADE,
    MAKING,
    NOTES_OF_THE_END,
    REMOVING,
    TAG_CLAIM,
    TAG_FS,
    TAG_SIZE,
    TAG_STATE,
    DriverFailed,
    Volume,
    same_owner,
)
from localvolume.flexvolume.drivers.lvm.content import Device, FsType, check, content_of, must_hold
from localvolume.flexvolume.drivers.lvm.group import Group, size_in, translated
from localvolume.flexvolume.drivers.lvm.marks import Tags, ours
from localvolume.host.locks import lock_device
from localvolume.host.lvm.commands import LogicalVolume
from localvolume.host.process.commandsync import Run

log = logging.getLogger(__name__)


class Steps:
    """The steps, on the volumes of one group."""

    def __init__(self, run: Run, group: Group) -> None:
        self._run = run
        self._group = group

    def taken(self, found: LogicalVolume, volume: Volume) -> LogicalVolume:
        """The volume, noted as this PersistentVolume's; DriverFailed where it is another's."""
        noted = ours(found)
        must_stay(found, noted)
        if not same_owner(noted, volume.tags):
            raise DriverFailed(
                f"the logical volume {found.full_name} is another PersistentVolume's, of the claim"
                f" {noted.get(TAG_CLAIM) or 'unknown'}: left as it is"
            )
        now = {**noted, **{key: value for key, value in volume.tags.items() if value}}
        for note in NOTES_OF_THE_END:
            now.pop(note, None)
        return self._group.note(found, now)

    def filled(
        self, found: LogicalVolume, volume: Volume, device: Device
    ) -> tuple[LogicalVolume, FsType]:
        """The volume with a filesystem, and which; it is made where there never was one."""
        noted = ours(found)
        if noted.get(TAG_STATE) == MADE:
            return found, must_hold(self._run, device, noted.get(TAG_FS, ""))
        with _alone(device):
            # Another agent may have ended it, and a pod may have written since.
            found = self._group.engine.again(found)
            noted = ours(found)
            if noted.get(TAG_STATE) == MADE:
                return found, must_hold(self._run, device, noted.get(TAG_FS, ""))
            if noted.get(TAG_STATE) != MAKING:
                fs_type = content_of(self._run, device)
                if fs_type is not None:
                    done = {**noted, TAG_STATE: MADE, TAG_FS: fs_type}
                    return self._group.note(found, done), fs_type
            if volume.must_exist:
                raise DriverFailed(
                    f"{found.full_name} is empty, and its claim has had it: left as it is"
                )
            making = {**noted, TAG_STATE: MAKING, TAG_FS: volume.fs_type}
            found = self._group.note(found, making)
            make_filesystem(
                self._run,
                device.node,
                device.number,
                volume.fs_type,
                options=volume.mkfs_options,
            )
            made = {**making, TAG_STATE: MADE, TAG_SIZE: str(found.size_bytes)}
            return self._group.note(found, made), must_hold(self._run, device, volume.fs_type)

    def enlarged(
        self, found: LogicalVolume, volume: Volume, device: Device, fs_type: FsType
    ) -> None:
        """Let it have what was asked for, as far as there is room: what is in it matters more."""
        try:
            found = self._group.extend(found, volume.size_bytes)
            self.fill_up(found, device, fs_type)
        except (DriverFailed, BackendFailed, OSError) as error:
            log.warning("mounted smaller: %s", error, extra={"persistentvolume": volume.name})

    def fill_up(self, found: LogicalVolume, device: Device, fs_type: FsType) -> None:
        """Let the filesystem have all of the volume, also after an attempt that ended half way."""
        noted = ours(found)
        if size_in(noted, TAG_SIZE) != found.size_bytes:
            check(self._run, device, fs_type)
            grow_filesystem(self._run, device.node, device.number, fs_type)
            self._group.note(found, {**noted, TAG_SIZE: str(found.size_bytes)})

    @contextmanager
    def explained(self, found: LogicalVolume) -> Iterator[None]:
        """Say of a failure that the thin pool is full, where it is: the kernel says "I/O error"."""
        try:
            with translated():
                yield
        except DriverFailed as error:
            why = self._group.fullness(found)
            if not why:
                raise
            raise DriverFailed(f"{why} ({error})") from error


def must_stay(found: LogicalVolume, noted: Tags) -> None:
    """Raise DriverFailed where its data is going, or gone."""
    if noted.get(TAG_STATE) == REMOVING:
        raise DriverFailed(f"{found.full_name} is being removed, and its data is gone already")


@contextmanager
def _alone(device: Device) -> Iterator[None]:
    """Keep other agents of this node from making the same filesystem."""
    fd = lock_device(device.node)
    if fd is None:
        raise DriverFailed(f"another process is making the filesystem on {device.node}")
    try:
        yield
    finally:
        os.close(fd)
