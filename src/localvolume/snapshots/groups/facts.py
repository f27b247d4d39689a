"""What the role for groups knows of their contents, and of the volumes and groups on this node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from localvolume.dynamic.calls import Volumes
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent, VolumeSnapshotContent
from localvolume.volumes.objects import volumes_of_claims


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`volumes` as of ``volumes_of_claims``; `groups` are the handles of the groups of this node,
    each with those of its snapshots that are there."""

    node_key: str
    contents: Mapping[str, VolumeGroupSnapshotContent]
    volumes: frozenset[tuple[str, str]]
    groups: Mapping[str, frozenset[str]]
    offered: Mapping[str, tuple[VolumeSnapshotContent, ...]] = field(default_factory=dict)
    """The contents by which somebody offers snapshots that are there, by the snapshots' handles."""
    complete: bool = True
    """Whether no other group can be on this node."""


def gather(
    node_key: str,
    contents: Mapping[str, VolumeGroupSnapshotContent],
    objects: Iterable[PersistentVolume],
    volumes: Volumes,
    singles: Iterable[VolumeSnapshotContent],
) -> Facts:
    """As of the last look at the pools. Raises calls.NotNow before the first one.

    `singles` are all contents of single snapshots. Those that the snapshot-controller made for the
    snapshots of a group name the volumes that were cut, and offer nothing.
    """
    groups: dict[str, set[str]] = {}
    for one in volumes.snapshots():
        if one.record.group:
            groups.setdefault(one.record.group, set()).add(one.record.name)
    offered: dict[str, list[VolumeSnapshotContent]] = {}
    for single in singles:
        if handle := single.spec.source.snapshot_handle:
            offered.setdefault(handle, []).append(single)
    return Facts(
        node_key=node_key,
        contents=dict(contents),
        volumes=volumes_of_claims(objects),
        groups={name: frozenset(members) for name, members in groups.items()},
        offered={handle: tuple(those) for handle, those in offered.items()},
        complete=not volumes.unseen(),
    )
