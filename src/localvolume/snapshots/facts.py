"""What the snapshots' role knows of contents, and of the volumes and snapshots on this node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from localvolume.backends.model import lost
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.calls import Volumes
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.snapshotobjects import VolumeSnapshotContent


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`volumes` are the handles of volumes that this node has or is said to have; `snapshots` are
    those of its snapshots, each with the handle of the volume that it was cut of."""

    node_key: str
    contents: Mapping[str, VolumeSnapshotContent]
    volumes: frozenset[str]
    snapshots: Mapping[str, str]
    groups: Mapping[str, str] = field(default_factory=dict)
    """The groups that snapshots of this node are of, by the handles of both."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """The snapshots whose content is lost, by their handles, each with what is said of it."""
    fills: Mapping[str, float] = field(default_factory=dict)
    """How full the reserves of the others are, in percent, as far as that is known."""


def gather(
    node_key: str,
    contents: Mapping[str, VolumeSnapshotContent],
    objects: Iterable[PersistentVolume],
    volumes: Volumes,
) -> Facts:
    """As of the last look at the pools. Raises calls.NotNow before the first one.

    A volume whose PersistentVolume has this node's label belongs here, even if its pool cannot be
    looked at: then the call for its snapshot says why it has to wait.
    """
    known = volumes.snapshots()
    cut = [one.record for one in known]
    full = [(one.record, one.fill) for one in known if one.fill is not None]
    return Facts(
        node_key=node_key,
        contents=dict(contents),
        volumes=volumes_here(objects, volumes),
        snapshots={one.name: one.snapshot_of for one in cut},
        groups={one.name: one.group for one in cut if one.group},
        lost={record.name: lost(record) for record, fill in full if fill.lost},
        fills={record.name: fill.percent for record, fill in full if not fill.lost},
    )


def volumes_here(objects: Iterable[PersistentVolume], volumes: Volumes) -> frozenset[str]:
    """The handles of the volumes that this node has, or is said to have by the objects."""
    said = {
        one.spec.csi.volume_handle
        for one in objects
        if one.spec.csi is not None and one.spec.csi.driver == CSI_DRIVER
    }
    return frozenset(said | {one.record.name for one in volumes.all()})
