"""Keeps the limits of a volume in the control groups of the pods that have it mounted.

Nothing is remembered: the volume's record, the mount table and the groups are read each time. A
group goes with its pod, and its limits with it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from localvolume.backends.held import held_in
from localvolume.backends.model import BackendFailed, Source
from localvolume.dynamic.plan.throttling import pod_of, target_of, to_write
from localvolume.host.cgroups import GONE, Hierarchy, NoGroups, hierarchy_in
from localvolume.host.mount.mounts import Mount, MountTable, read_mount_table
from localvolume.host.tree.entries import device_number
from localvolume.volumes.attributes import Attributes

DISABLED = (
    "limits of reading and writing are switched off: csi.ioLimits of the chart, or the agent's flag"
    " --cgroup-dir"
)


@dataclass(frozen=True, slots=True)
class Throttle:
    """`hierarchy` has the groups, or is why there are none; `kubelet` is the kubelet's directory,
    without links."""

    hierarchy: Hierarchy | str
    kubelet: str

    @property
    def why_not(self) -> str:
        """Why no volume of this node can be limited, "" if some can."""
        return self.hierarchy if isinstance(self.hierarchy, str) else ""

    @property
    def by_container(self) -> bool:
        """Whether each container of a pod has the limits for itself, from soon after its start."""
        return isinstance(self.hierarchy, Hierarchy) and not self.hierarchy.unified

    def unkept(self, limited: Mapping[str, Attributes]) -> set[str]:
        """The names of those volumes whose limits are not kept in all pods that have them mounted.

        A cheap look, which asks no pool: by the kubelet's names, which are those of the volumes.
        Raises BackendFailed, OSError.
        """
        if isinstance(self.hierarchy, str):
            return set()
        hierarchy, groups = self.hierarchy, self.hierarchy.pods()
        found = set()
        for mount in self._mounts():
            target = target_of(mount.mount_point, self.kubelet)
            if target is None or target.volume not in limited:
                continue
            if not (device := _device_at(mount)):
                continue
            seen = _limits_of(hierarchy, groups.get(target.uid, ()), device)
            if to_write(limited[target.volume], seen):
                found.add(target.volume)
        return found

    def keep(self, source: Source, also: str = "") -> None:
        """Let each pod that has the volume mounted read and write as its attributes say; `also`
        is the UID of one that is about to have it.

        Raises BackendFailed if they cannot be kept, OSError.
        """
        attributes = source.record.attributes
        if not attributes.limits:
            return
        if isinstance(self.hierarchy, str):
            if any(attributes.limits.values()):
                raise BackendFailed(self.hierarchy)
            return
        number = os.fstat(source.fd).st_rdev
        if not number:
            if not attributes.is_limited:
                return
            raise BackendFailed("it has no device of its own, and limits are those of a device")
        device, hierarchy = device_number(number), self.hierarchy
        groups = hierarchy.pods()
        if also and also not in groups and attributes.is_limited:
            raise BackendFailed(f"pod {also} has no control group yet")
        pods = sorted(self._pods_with(source) | ({also} if also else set()))
        own = [group for uid in pods for group in groups.get(uid, ())]
        try:
            seen = _limits_of(hierarchy, own, device)
        except BackendFailed:
            if attributes.is_limited:
                raise
            # A group that can have no limits has none to be taken away.
            return
        for write in to_write(attributes, seen):
            try:
                hierarchy.limit(write.group, device, write.limits)
            except OSError as error:
                _check_gone(error, write.group)

    def _pods_with(self, source: Source) -> set[str]:
        table = self._mounts()
        held = held_in(table, source)
        mounts = [one for one in table.of_device(held.device) if one.root == held.root]
        return {pod_of(one.mount_point, self.kubelet) for one in mounts} - {""}

    def _mounts(self) -> MountTable:
        table = read_mount_table()
        if not table.settled:
            raise OSError(errno.EAGAIN, "the mounts of this node keep changing", self.kubelet)
        return table


def _limits_of(
    hierarchy: Hierarchy, groups: Iterable[str], device: str
) -> dict[str, dict[str, int]]:
    """What each of these groups has that is still there. Raises BackendFailed."""
    found = {}
    for group in groups:
        try:
            found[group] = hierarchy.limits(group, device)
        except OSError as error:
            _check_gone(error, group)
    return found


def _device_at(mount: Mount) -> str:
    """The device of what is mounted: the filesystem's, or that of a node of /dev; "" if gone.

    No volume's filesystem is asked: its disk may hang.
    """
    if mount.fs_type != "devtmpfs":
        return mount.device
    try:
        return device_number(os.stat(mount.mount_point).st_rdev)
    except OSError:
        return ""


def throttle_for(cgroup_dir: str, kubelet: str | None) -> Throttle:
    """What keeps limits in the groups at that directory, "" for none."""
    where = os.path.realpath(kubelet) if kubelet else ""
    if not cgroup_dir:
        return Throttle(DISABLED, where)
    try:
        return Throttle(hierarchy_in(cgroup_dir), where)
    except NoGroups as error:
        return Throttle(f"limits of reading and writing cannot be kept: {error}", where)


def _check_gone(error: OSError, group: str) -> None:
    """Raise BackendFailed, unless the group is gone, and its pod with it."""
    if error.errno in GONE and not os.path.isdir(group):
        return
    why = error.strerror or str(error)
    if error.errno in GONE:
        why = "the controller io is not handed down to it"
    raise BackendFailed(f"the limits of {group} cannot be set: {why}") from error
