"""What the API knows of a node's pools: pure. What nobody has told it is `None`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.kinds import SeenEvent
from localvolume.dynamic.plan.fullness import PoolSize, pools_in
from localvolume.kube.objects import CSIStorageCapacity, PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.capacity import bytes_of

_OF_DISKS: Final = frozenset(
    {
        "DisksNotApproved",
        "DiskPlanChanged",
        "DiskFormatted",
        "DiskMounted",
        "DiskFormatFailed",
        "DiskMountFailed",
    }
)
"""The Events on a Node with which its agent tells of raw disks."""


def pools_of(
    facts: Facts, node: str, volumes: Sequence[PersistentVolume]
) -> list[Mapping[str, Any]]:
    """The pools that a node's volumes name, or its agent when it publishes their room.

    `promisedBytes` is None if the size of one of the volumes cannot be read, `totalBytes` if the
    agent does not say how large the pool is, `usedBytes` if not how full.
    """
    sizes = _sizes(facts.capacities_by_node.get(marks.node_key(node), ()))
    found: dict[str, list[int | None]] = {name: [] for name in sizes}
    for volume in volumes:
        pool = volume.metadata.annotations.get(marks.POOL_ANNOTATION, "").partition("/")[0]
        if pool:
            own = found.setdefault(pool, [])
            own.append(bytes_of(volume.spec.capacity.get("storage", "")))
    return [
        {
            "name": name,
            "volumeCount": len(own),
            "promisedBytes": None if None in own else sum(size or 0 for size in own),
            "totalBytes": sizes[name].total_bytes if name in sizes else None,
            "usedBytes": sizes[name].used_bytes if name in sizes else None,
        }
        for name, own in sorted(found.items())
    ]


def _sizes(capacities: Sequence[CSIStorageCapacity]) -> dict[str, PoolSize]:
    """The pools that their agent has written down; of several notes, the fullest counts."""
    found: dict[str, PoolSize] = {}
    for thing in capacities:
        note = thing.metadata.annotations.get(marks.POOLS_ANNOTATION, "")
        for name, size in pools_in(note).items():
            used = found[name].used_bytes if name in found else None
            if size.used_bytes is None or (used or 0) > size.used_bytes:
                size = size._replace(used_bytes=used)
            if size.used_bytes is not None and size.used_bytes > size.total_bytes:
                size = size._replace(used_bytes=None)
            found[name] = size
    return found


def last_of_disks(facts: Facts, node: str) -> SeenEvent | None:
    """The last Event in which the node's agent told of raw disks, while the API keeps it."""
    said = facts.events_of_node(node)
    return next((event for event in said if event.reason in _OF_DISKS), None)
