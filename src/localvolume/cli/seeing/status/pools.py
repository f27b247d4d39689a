"""What the API knows of a node's pools and raw disks: pure. What nobody has told it is `None`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.kinds import SeenEvent
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
    agent does not say how large the pool is.
    """
    totals = _totals(facts.capacities_by_node.get(marks.node_key(node), ()))
    found: dict[str, list[int | None]] = {name: [] for name in totals}
    for volume in volumes:
        pool = volume.metadata.annotations.get(marks.POOL_ANNOTATION, "").partition("/")[0]
        if pool:
            sizes = found.setdefault(pool, [])
            sizes.append(bytes_of(volume.spec.capacity.get("storage", "")))
    return [
        {
            "name": name,
            "volumeCount": len(sizes),
            "promisedBytes": None if None in sizes else sum(size or 0 for size in sizes),
            "totalBytes": totals.get(name),
        }
        for name, sizes in sorted(found.items())
    ]


def _totals(capacities: Sequence[CSIStorageCapacity]) -> dict[str, int]:
    """The sizes of pools that their agent has written down; what is not such a note is left out."""
    found: dict[str, int] = {}
    for thing in capacities:
        try:
            told = json.loads(thing.metadata.annotations.get(marks.POOLS_ANNOTATION, "{}"))
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict):
            found |= {name: size for name, size in told.items() if type(size) is int and size > 0}
    return found


def last_of_disks(facts: Facts, node: str) -> SeenEvent | None:
    """The last Event in which the node's agent told of raw disks, while the API keeps it."""
    said = facts.events_of_node(node)
    return next((event for event in said if event.reason in _OF_DISKS), None)
