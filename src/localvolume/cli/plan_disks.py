"""The disks in `localvolume plan`: each with its verdict and why, and how to approve the plan."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from localvolume.cli.rows import print_columns
from localvolume.config.model import Configuration
from localvolume.disks.facts import look
from localvolume.disks.model import DiskPlan, Judged
from localvolume.disks.plan.naming import entry_name, stable
from localvolume.disks.plan.owners import identities
from localvolume.disks.plan.plan import plan
from localvolume.host.process.workers import Workers
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.podmounts import PodMounts
from localvolume.volumes.capacity import quantity
from localvolume.volumes.objects import path_of


async def disk_plan(
    configuration: Configuration,
    node_name: str,
    volumes: Collection[PersistentVolume],
    pod: PodMounts | None,
) -> DiskPlan | None:
    """What the agent would do with the disks here; None if no filter is configured.

    `volumes` are the node's PersistentVolumes, `pod` the agent's own. Raises OSError, ValueError,
    Hung.
    """
    config = configuration.disks
    if config is None:
        return None
    named = {path_of(volume): volume.metadata.name for volume in volumes if path_of(volume)}
    workers = Workers()
    try:
        classes = configuration.storage_classes.values()
        facts = await look(
            *(node_name, config, classes, named, workers),
            recorded=identities(volumes),
            pod=pod,
        )
        return plan(facts)
    finally:
        workers.close()


def disk_rows(found: DiskPlan | None) -> list[dict[str, Any]]:
    """One row per disk, for programs."""
    return [_row(row, found) for row in found.rows] if found else []


def _row(row: Judged, found: DiskPlan) -> dict[str, Any]:
    disk, wanted = row.disk, row.filter
    made: dict[str, Any] = {
        "class": wanted.class_name if wanted else "",
        "path": disk.node,
        "verdict": row.verdict,
        "reason": row.reason,
        "capacityBytes": disk.size_bytes,
        "identity": stable(disk.identity),
        "disk": {
            "model": disk.model,
            "vendor": disk.vendor,
            "rotational": disk.rotational,
            "transport": disk.transport,
            "links": list(disk.links),
            "partitionOf": disk.parent,
        },
    }
    if row.code:
        made["code"] = row.code
    if wanted:
        made |= {"filter": wanted.name, "volumePath": f"{wanted.host_dir}/{entry_name(disk)}"}
    if row in found.todo:
        made |= {"plan": found.digest, "approved": found.approved}
    elif row.digest:
        made |= {"plan": row.digest, "approved": True}
    return made


def print_disks(found: DiskPlan | None) -> None:
    """A table for people, and the line that approves the plan."""
    if found is None:
        return
    print()
    print_columns(
        ("DISK", "SIZE", "MODEL", "TRANSPORT", "ROTATES", "FILTER", "VERDICT", "REASON"),
        [_cells(row) for row in found.rows],
        none="no disks",
    )
    if not found.digest:
        return
    if found.approved:
        print(f"\nThe plan {found.digest} is approved: the agent carries it out.")
        return
    print(
        f"\nNothing is done with the disks, as this plan is not approved: {found.digest}"
        "\nTo approve exactly this, add to the ConfigMap, in the key disks:"
        f"\n\napproved:\n  - {found.digest}"
    )
    if found.partly:
        print("\nAnother plan was approved, and is done in part only: " + ", ".join(found.partly))


def _cells(row: Judged) -> tuple[str, ...]:
    disk = row.disk
    rotates = {True: "yes", False: "no", None: "?"}[disk.rotational]
    name = row.filter.name if row.filter else ""
    size = quantity(disk.size_bytes)
    return (disk.node, size, disk.model, disk.transport, rotates, name, row.verdict, row.reason)
