"""What the API knows of a node's pools and raw disks: pure. What only the node knows is `None`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.kinds import SeenEvent
from localvolume.kube.objects import PersistentVolume
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


def pools_of(volumes: Sequence[PersistentVolume]) -> list[Mapping[str, Any]]:
    """The pools that a node's volumes name. A pool without a volume is not known to the API.

    `promisedBytes` is None if the size of one of the volumes cannot be read.
    """
    found: dict[str, list[int | None]] = {}
    for volume in volumes:
        pool = volume.metadata.annotations.get(marks.POOL_ANNOTATION, "").partition("/")[0]
        if pool:
            sizes = found.setdefault(pool, [])
            sizes.append(bytes_of(volume.spec.capacity.get("storage", "")))
    return [
        {
            "name": name,
            "volumes": len(sizes),
            "promisedBytes": None if None in sizes else sum(size or 0 for size in sizes),
            "totalBytes": None,
        }
        for name, sizes in sorted(found.items())
    ]


def last_of_disks(facts: Facts, node: str) -> SeenEvent | None:
    """The last Event in which the node's agent told of raw disks, while the API keeps it."""
    said = facts.events_of_node(node)
    return next((event for event in said if event.reason in _OF_DISKS), None)
