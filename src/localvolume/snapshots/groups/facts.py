"""What the role for groups knows of their contents, and of the volumes and groups on this node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from localvolume.dynamic.calls import Volumes
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent
from localvolume.snapshots.facts import volumes_here


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`volumes` as of single snapshots; `groups` are the handles of the groups of this node, each
    with those of its snapshots that are there."""

    node_key: str
    contents: Mapping[str, VolumeGroupSnapshotContent]
    volumes: frozenset[str]
    groups: Mapping[str, frozenset[str]]


def gather(
    node_key: str,
    contents: Mapping[str, VolumeGroupSnapshotContent],
    objects: Iterable[PersistentVolume],
    volumes: Volumes,
) -> Facts:
    """As of the last look at the pools. Raises calls.NotNow before the first one."""
    groups: dict[str, set[str]] = {}
    for one in volumes.snapshots():
        if one.record.group:
            groups.setdefault(one.record.group, set()).add(one.record.name)
    return Facts(
        node_key=node_key,
        contents=dict(contents),
        volumes=volumes_here(objects, volumes),
        groups={name: frozenset(members) for name, members in groups.items()},
    )
