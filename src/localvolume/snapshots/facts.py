"""What the snapshots' role knows of contents, and of the volumes and snapshots on this node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from localvolume.backends.model import lost
from localvolume.dynamic.calls import Volumes
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent, VolumeSnapshotContent
from localvolume.volumes.objects import volumes_of_claims
from localvolume.volumes.snapshots import group_in_status, owner_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`volumes` are as of ``volumes_of_claims``; `snapshots` are the handles of this node's
    snapshots, each with the handle of the volume that it was cut of."""

    node_key: str
    contents: Mapping[str, VolumeSnapshotContent]
    volumes: frozenset[tuple[str, str]]
    snapshots: Mapping[str, str]
    groups: Mapping[str, str] = field(default_factory=dict)
    """The groups that snapshots of this node are of, by the handles of both."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """The snapshots whose content is lost, by their handles, each with what is said of it."""
    fills: Mapping[str, float] = field(default_factory=dict)
    """How full the reserves of the others are, in percent, as far as that is known."""
    offered_groups: frozenset[tuple[str, str]] = frozenset()
    """The groups that this node has told of: the namespace that has each, and its handle. Those
    that are being deleted are left out."""
    complete: bool = True
    """Whether no other snapshot can be on this node."""


def gather(
    node_key: str,
    contents: Mapping[str, VolumeSnapshotContent],
    objects: Iterable[PersistentVolume],
    volumes: Volumes,
    groups: Iterable[VolumeGroupSnapshotContent],
) -> Facts:
    """As of the last look at the pools. Raises calls.NotNow before the first one."""
    known = volumes.snapshots()
    cut = [one.record for one in known]
    full = [(one.record, one.fill) for one in known if one.fill is not None]
    return Facts(
        node_key=node_key,
        contents=dict(contents),
        volumes=volumes_of_claims(objects),
        snapshots={one.name: one.snapshot_of for one in cut},
        groups={one.name: one.group for one in cut if one.group},
        lost={record.name: lost(record) for record, fill in full if fill.lost},
        fills={record.name: fill.percent for record, fill in full if not fill.lost},
        offered_groups=frozenset(
            (one.spec.volume_group_snapshot_ref.namespace, group_in_status(one))
            for one in groups
            if owner_of(one) == node_key and not one.metadata.deletion_timestamp
        ),
        complete=not volumes.unseen(),
    )
