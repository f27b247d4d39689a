"""The logical volumes of one group, made, tagged, activated and removed: nothing else does that.

Each method is one change that LVM commits as a whole, or a look and such a change. The caller
decides on it and knows what the tags mean: the pools of the dynamic provisioner
(`backends/lvm/store.py`), or FlexVolume's driver (`flexvolume/drivers/lvm/driver.py`).

All methods raise LvmFailed, BadReport, BadTag and OSError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from localvolume.backends.model import BackendFailed, Busy, NotThisVolume
from localvolume.config.pools import LvmConfig
from localvolume.host.lvm.commands import LogicalVolume, VolumeGroup, device_path
from localvolume.host.lvm.gate import GatedLvm
from localvolume.host.lvm.kernel import device_of
from localvolume.host.process.commandsync import Run
from localvolume.volumes.lvtags import change, encode

Fields = Mapping[str, str]
"""What our tags say, as ``lvtags`` encodes it."""

Check = Callable[[LogicalVolume, Sequence[LogicalVolume]], None]
"""Raises if a volume, as it is now among all of its group, is not to be removed."""


@dataclass(frozen=True, slots=True)
class Engine:
    """LVM in the group that `of` names."""

    of: LvmConfig
    lvm: GatedLvm

    def made(self, name: str) -> LogicalVolume:
        """The volume that LVM has just made; raises BackendFailed if LVM does not report it."""
        found = self.lvm.volume(self.of.group, name)
        if found is None:
            raise BackendFailed(f"LVM says that it made {name}, and does not report it")
        return found

    def created(
        self,
        group: VolumeGroup,
        name: str,
        fields: Fields,
        *,
        thin_pool: str = "",
        option_class: str = "",
    ) -> LogicalVolume:
        """As `made`, of what `create` has just made of these; LVM is asked where the kernel does
        not tell enough."""
        device = device_of(group.name, group.uuid, name)
        # With options, it may be of another kind.
        if device is None or self.of.layout(option_class)[2]:
            return self.made(name)
        return LogicalVolume(
            name=name,
            uuid=device.uuid,
            group=group.name,
            group_uuid=group.uuid,
            size_bytes=device.size_bytes,
            kind="thin" if thin_pool else "thick",
            tags=encode(fields),
            active=True,
            path=device_path(group.name, name),
            device=device.number,
            pool=thin_pool,
        )

    def again(self, volume: LogicalVolume) -> LogicalVolume:
        """The same volume as it is now. Raises NotThisVolume if it is gone or another."""
        found = self.lvm.volume(volume.group, volume.name)
        if found is None or not _is_same(found, volume):
            raise NotThisVolume(f"{volume.full_name} is not the volume any more that it was")
        return found

    def still(self, volume: LogicalVolume) -> LogicalVolume:
        """As `again`, for an active volume that is no classic snapshot: LVM is asked only where the
        kernel does not tell that it is still that one. Tags are those of `volume`."""
        device = device_of(volume.group, volume.group_uuid, volume.name)
        if device is None or (device.uuid, device.number) != (volume.uuid, volume.device):
            return self.again(volume)
        return replace(volume, size_bytes=device.size_bytes)

    def create(
        self,
        name: str,
        size_bytes: int,
        fields: Fields,
        *,
        thin_pool: str = "",
        option_class: str = "",
    ) -> None:
        """Make an active volume, thin if a pool is named, with these fields in its tags from the
        start. Raises NameTaken, NoSpaceInGroup; KeyError for an unknown option class.
        """
        stripes, stripe_bytes, options = self.of.layout(option_class)
        self.lvm.create(
            self.of.group,
            name,
            size_bytes,
            thin_pool=thin_pool,
            tags=encode(fields),
            stripes=stripes,
            stripe_bytes=stripe_bytes,
            options=options,
        )

    def retag(self, volume: LogicalVolume, fields: Fields) -> LogicalVolume:
        """Make these fields the only ones of ours in its tags, in one step; others' tags stay."""
        gone, new = change(volume.tags, fields)
        self.lvm.retag(volume, gone, new)
        return replace(volume, tags=(volume.tags - gone) | encode(fields))

    def active(self, volume: LogicalVolume) -> LogicalVolume:
        """The volume with its device: activated if need be, and resumed if it is suspended.

        A volume has no device after a reboot, and a killed command may leave it suspended.
        """
        if volume.suspended:
            self.lvm.refresh(volume)
        if not volume.active:
            self.lvm.activate(volume)
        if is_down(volume) or not volume.device:
            volume = self.again(volume)
        if is_down(volume) or not volume.device:
            why = f" ({volume.health})" if volume.health else ""
            raise BackendFailed(f"{volume.full_name} cannot be activated{why}")
        return volume

    def remove(self, volume: LogicalVolume, check: Check, *, keep_blocks: bool = False) -> None:
        """Remove the same volume, unless `check` raises for it as it is now.

        `keep_blocks`: LVM must not discard what is freed. Does nothing if the volume is gone.
        Raises NotThisVolume, Busy, HasSnapshots, and what `check` raises.
        """
        volumes = self.lvm.volumes(volume.group)
        found = next((one for one in volumes if one.name == volume.name), None)
        if found is None:
            return
        check(found, volumes)
        if not _is_same(found, volume):
            raise NotThisVolume(f"{found.full_name} is another volume: it is left alone")
        if found.kind == "pool":
            raise NotThisVolume(f"{found.full_name} is a thin pool: it is left alone")
        if found.open:
            raise Busy(f"{found.full_name} is in use")
        if found.suspended:
            self.lvm.refresh(found)
        if found.active and found.kind != "snapshot":
            # Deactivating a classic snapshot deactivates its origin; lvremove refuses one in use.
            self.lvm.deactivate(found)
        self.lvm.remove(found, keep_blocks=keep_blocks)
        left = self.lvm.volume(volume.group, volume.name)
        if left is not None and _is_same(left, volume):
            raise BackendFailed(f"{found.full_name} was removed, says LVM, and it is still there")


def gated(of: LvmConfig, run: Run) -> GatedLvm:
    """LVM's commands for the group that a configuration names."""
    return GatedLvm(run, of.command_prefix, of.group, discovery=of.discovery)


def is_down(volume: LogicalVolume) -> bool:
    """Whether it cannot be used as it is, for example after a reboot or a killed command."""
    return volume.suspended or not volume.active


def _is_same(found: LogicalVolume, volume: LogicalVolume) -> bool:
    return (found.uuid, found.group_uuid) == (volume.uuid, volume.group_uuid)
