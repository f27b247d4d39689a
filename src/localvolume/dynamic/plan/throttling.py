"""What is to be written to the control groups of pods that use a limited volume. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from localvolume.volumes.attributes import Attributes

_UID = r"([0-9A-Za-z-]{1,64})"


@dataclass(frozen=True, slots=True)
class Write:
    """Set these limits of a group; others of it stay."""

    group: str
    limits: Mapping[str, int]


def to_write(attributes: Attributes, groups: Mapping[str, Mapping[str, int]]) -> list[Write]:
    """The limits that are not as they should be. `groups` has what each has now.

    What the volume's attributes never named is not ours, and is left alone.
    """
    found = []
    for group, has in groups.items():
        limits = attributes.limits.items()
        changed = {key: count for key, count in limits if has.get(key, 0) != count}
        if changed:
            found.append(Write(group, changed))
    return found


@dataclass(frozen=True, slots=True)
class Target:
    """Where a pod has a volume, by the names of the kubelet's directories."""

    volume: str
    uid: str


def target_of(path: str, kubelet: str) -> Target | None:
    """Which volume is mounted there for which pod; None for anything but a target of CSI's."""
    inside = path.removeprefix(f"{kubelet}/")
    if inside == path:
        return None
    if found := re.fullmatch(rf"pods/{_UID}/volumes/kubernetes\.io~csi/([^/]+)/mount", inside):
        return Target(found[2], found[1])
    found = re.fullmatch(
        rf"plugins/kubernetes\.io/csi/volumeDevices/publish/([^/]+)/{_UID}", inside
    )
    return Target(found[1], found[2]) if found else None


def pod_of(path: str, kubelet: str) -> str:
    """The UID of the pod whose mount of a volume that is; "" for anything else.

    `kubelet` is the kubelet's directory.
    """
    inside = path.removeprefix(f"{kubelet}/")
    if inside == path:
        return ""
    found = re.match(rf"pods/{_UID}/", inside) or re.fullmatch(
        rf"plugins/kubernetes\.io/csi/volumeDevices/publish/[^/]+/{_UID}", inside
    )
    return found[1] if found else ""
