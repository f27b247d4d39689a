"""FlexVolume volumes as logical volumes, thick or thin: one for each PersistentVolume, by its name.

    lvcreate with tags (state=making) -> mkfs -> state=made -> fsck -> growth -> mount

Each arrow may be a crash: the tags say what is done, and the next call goes on from there. Inactive
volumes are activated, suspended ones are refreshed, and what holds data is never formatted.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from localvolume.backends.lvm.filesystem import check_fs, grow_filesystem, make_filesystem
from localvolume.backends.model import BackendFailed
from localvolume.config.flexvolume import FlexVolumeConfig
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
    Owned,
    Volume,
    same_owner,
)
from localvolume.flexvolume.drivers.devicemount import (
    Filesystem,
    give_to_group,
    mount,
    mounted_at,
    must_be_free,
    unmount,
)
from localvolume.flexvolume.drivers.lvm import removal
from localvolume.flexvolume.drivers.lvm.content import (
    Device,
    FsType,
    check,
    content_of,
    must_hold,
    visible_on,
)
from localvolume.flexvolume.drivers.lvm.group import Group, refuse_unless, size_in, translated
from localvolume.flexvolume.drivers.lvm.marks import (
    Tags,
    is_begun_thin,
    is_unmarked,
    noted_on,
    ours,
    owned_of,
    unmarked_of,
)
from localvolume.host.locks import lock_device
from localvolume.host.lvm.commands import LogicalVolume, LvmFailed, LvmUnfinished
from localvolume.host.process.commandsync import Run

MOUNTED: Final = "successfully created the volume"
UNMOUNTED: Final = "successfully unmounted the volume"
"""What elastic's driver said."""

log = logging.getLogger(__name__)


class Steps:
    """The steps between a logical volume of one group and its mounted filesystem; each may be
    repeated. All raise DriverFailed and what `group.translated` turns into it."""

    def __init__(self, run: Run, group: Group) -> None:
        self._run = run
        self._group = group

    def taken(self, found: LogicalVolume, volume: Volume) -> LogicalVolume:
        """The volume, noted as this PersistentVolume's; DriverFailed if it is another's."""
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
        """The volume with a filesystem, and which; makes one if there never was one."""
        noted = ours(found)
        if noted.get(TAG_STATE) == MADE:
            return found, must_hold(self._run, device, noted.get(TAG_FS, ""))
        with _alone(device):
            # Another agent may have completed it, and a pod may have written since.
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
        """Grow it to what was asked for. If that fails, it is mounted smaller: its data matters."""
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
        """Say in a failure that the thin pool is full, if it is: the kernel says "I/O error"."""
        try:
            with translated():
                yield
        except DriverFailed as error:
            why = self._group.fullness(found)
            if not why:
                raise
            raise DriverFailed(f"{why} ({error})") from error


def must_stay(found: LogicalVolume, noted: Tags) -> None:
    """Raise DriverFailed if its data is being removed, or gone."""
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


class LvmDriver:
    """A `driver.Driver`; `config.lvm` names one volume group. Raises ValueError if it does not."""

    def __init__(self, config: FlexVolumeConfig, run: Run) -> None:
        if config.lvm is None or not config.lvm.group:
            raise ValueError("volumes of the driver lvm need a volume group")
        self._run = run
        self._group = Group(run, config.lvm)
        self._steps = Steps(run, self._group)

    # --- the kubelet's calls -------------------------------------------------------------------

    def mount(self, volume: Volume, target: str) -> str:
        """See `driver.Driver`."""
        with translated():
            volumes = self._group.volumes()
            found = next((one for one in volumes if one.name == volume.name), None)
            # Before anything is made, or changed.
            is_mounted = must_be_free(target, {found.device} if found and found.device else ())
            if found is None:
                if volume.must_exist:
                    raise DriverFailed(
                        f"the logical volume {self._group.name}/{volume.name} is not there any"
                        " more, and its claim has had it: no empty one is made in its place"
                    )
                check_fs(volume.fs_type, volume.size_bytes)
                found = self._group.make(volume, volumes)
            found = self._awake(self._steps.taken(found, volume), volume)
            device = self._group.device(found)
            with self._steps.explained(found):
                found, fs_type = self._steps.filled(found, volume, device)
                if not is_mounted:
                    check(self._run, device, fs_type)
                    self._steps.enlarged(found, volume, device, fs_type)
                what = Filesystem(
                    device=device.number,
                    node=device.node,
                    fs_type=fs_type,
                    options=volume.mount_options,
                    read_only=volume.read_only,
                    writable=found.writable,
                )
                mount(self._run, what, target)
                if volume.fs_group is not None and not volume.read_only and found.writable:
                    give_to_group(device.number, target, volume.fs_group)
            return MOUNTED

    def _awake(self, found: LogicalVolume, volume: Volume) -> LogicalVolume:
        """The volume, active. One that never can be is made again if nobody ever had it.

        A killed lvcreate may leave a thin volume in LVM's metadata that its pool does not know.
        """
        try:
            return self._group.engine.active(found)
        except LvmUnfinished:
            raise
        except LvmFailed as error:
            # Look at it again: another agent may have completed it meanwhile.
            found = self._group.engine.again(found)
            if not is_begun_thin(found) or volume.must_exist:
                raise
            log.warning("made anew: %s", error, extra={"persistentvolume": volume.name})
            self._group.engine.remove(found, refuse_unless(is_begun_thin))
            return self._group.engine.active(self._group.make(volume, self._group.volumes()))

    def unmount(self, name: str, target: str) -> str:
        """See `driver.Driver`."""
        with translated():
            there = mounted_at(target) if os.path.lexists(target) else None
            if there is not None:
                its = {there.device} if self._group.is_it(name, there.device) else frozenset[str]()
                unmount(self._run, target, its)
            return UNMOUNTED

    # --- the role's ----------------------------------------------------------------------------

    def list_volumes(self) -> list[Owned]:
        """See `driver.Driver`."""
        with translated():
            # Also if nothing is to be changed: reads from a device that a killed command left
            # suspended wait until somebody resumes it.
            self._group.engine.lvm.put_right()
            return owned_of(self._group.volumes())

    def unmarked(self) -> list[str]:
        """See `driver.Driver`."""
        with translated():
            return unmarked_of(self._group.volumes())

    def note(self, name: str, tags: Mapping[str, str]) -> None:
        """See `driver.Driver`."""
        with translated():
            found = self._group.look(name)
            noted = noted_on(found) if found else None
            if found is not None and noted is not None:
                self._group.note(found, {**noted, **tags})

    def is_in_use(self, name: str) -> bool:
        """See `driver.Driver`."""
        try:
            with translated():
                found = self._group.look(name)
                return found is not None and removal.users_of(found) != ""
        except DriverFailed as error:
            log.warning("treated as in use: %s", error, extra={"persistentvolume": name})
            return True

    def remove(self, volume: Owned) -> None:
        """See `driver.Driver`."""
        with translated():
            removal.remove(self._group, volume)

    def grow(self, name: str, size_bytes: int) -> int:
        """See `driver.Driver`."""
        with translated():
            found = self._group.look(name)
            if found is None:
                raise DriverFailed(f"there is no logical volume {self._group.name}/{name}")
            must_stay(found, ours(found))
            found = self._group.engine.active(self._group.extend(found, size_bytes))
            noted = ours(found)
            device = self._group.device(found)
            state = noted.get(TAG_STATE, "")
            # A volume without a filesystem gets one at its next mount, over its whole size.
            fs_type = (
                None if state == MAKING else content_of(self._run, device, noted.get(TAG_FS, ""))
            )
            if fs_type is not None:
                self._steps.fill_up(found, device, fs_type)
            return found.size_bytes

    def adopt(self, volumes: Mapping[str, Mapping[str, str]]) -> list[str]:
        """See `driver.Driver`. A volume on which a filesystem is seen is noted as MADE; one that is
        not active, or holds none, is looked at when it is mounted."""
        adopted = []
        with translated():
            for found in self._group.volumes():
                tags = volumes.get(found.name)
                if tags is not None and is_unmarked(found):
                    self._group.note(found, {**tags, **self._seen(found)})
                    adopted.append(found.name)
        return adopted

    def _seen(self, found: LogicalVolume) -> dict[str, str]:
        """What can be noted of its content without activating it."""
        if not found.active or found.suspended or not found.device:
            return {}
        try:
            fs_type = visible_on(self._group.device(found))
        except (DriverFailed, OSError) as error:
            log.info("not looked into: %s", error, extra={"persistentvolume": found.name})
            return {}
        return {TAG_STATE: MADE, TAG_FS: fs_type} if fs_type else {}
