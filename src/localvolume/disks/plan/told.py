"""Decides what an agent writes down of its node's raw disks, for people to see from afar: pure.

It is an annotation of a CSIStorageCapacity without capacity, which no scheduler heeds: the one kind
of object that an agent may make and that is surely about its own node. It belongs to the agent's
pod, so it goes when an agent that no longer tells of disks takes that pod's place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from localvolume.disks.model import DiskPlan, Judged, Verdict
from localvolume.disks.plan.naming import best_link, written
from localvolume.kube.objects import CSIStorageCapacity, OwnerReference
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.storagecapacities import (
    is_kept_by,
    labels_of,
    topology_of,
    why_not_about,
)

MOST: Final = 64
LONGEST: Final = 16 << 10
"""How many disks are told of, and how many characters all of it may have: kube-scheduler and our
controller read the objects of all nodes."""

_LONGEST_TEXT: Final = 300
_ORDER: Final[Mapping[Verdict, int]] = {
    "format": 0,
    "link": 0,
    "hold": 1,
    "mount": 2,
    "done": 3,
    "skip": 4,
}
"""What somebody may have to do something about comes first."""


@dataclass(frozen=True, slots=True)
class Telling:
    """What is to be told, of which node, and the object to which it belongs."""

    note: str
    node: NodeFacts
    owner: OwnerReference


class Step(NamedTuple):
    """A write. `object` is the one to correct or delete, None for one to make."""

    do: Literal["create", "correct", "delete"]
    object: CSIStorageCapacity | None
    reason: str


def note_of(plan: DiskPlan) -> str:
    """The annotation: at most MOST disks, and how many `more` there are."""
    rows = sorted(filter(_is_told, plan.rows), key=lambda row: (_ORDER[row.verdict], row.disk.name))
    shown = [_shape(row, plan) for row in rows[:MOST]]
    while len(note := written({"disks": shown, "more": len(rows) - len(shown)})) > LONGEST:
        shown.pop()
    return note


def steps(
    telling: Telling | None, node_name: str, existing: Collection[CSIStorageCapacity]
) -> list[Step]:
    """What to write, in order; `existing` are the objects for disks with this node's label."""
    there = sorted(
        (one for one in existing if ours(one, node_name) and not one.metadata.deletion_timestamp),
        key=lambda one: one.metadata.name,
    )
    if telling is None:
        return [Step("delete", one, "no raw disks are told of any more") for one in there]
    fit, found = None, list[Step]()
    for one in there:
        wrong = _mismatch(one, telling)
        if not wrong and fit is not None:
            wrong = f"{fit.metadata.name} says the same"
        if wrong:
            found.append(Step("delete", one, wrong))
        else:
            fit = one
    if fit is None:
        return [*found, Step("create", None, "the node's raw disks are told of")]
    if fit.metadata.annotations.get(marks.DISKS_ANNOTATION) != telling.note:
        found.append(Step("correct", fit, "the node's raw disks, or what is planned, changed"))
    return found


def ours(thing: CSIStorageCapacity, node_name: str) -> bool:
    """Whether an agent of this node tells of raw disks by that object."""
    return is_kept_by(thing, node_name, marks.DISKS_MANAGER)


def object_name(node_name: str) -> str:
    """The same at every start, so that a crash makes no twins."""
    key = marks.node_key(node_name)
    return f"localvolume-disks-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def manifest(telling: Telling, namespace: str, *, is_taken: bool = False) -> dict[str, Any]:
    """The object to create (Kubernetes API, storage/v1 CSIStorageCapacity).

    `is_taken`: another's object has its name. Nobody can guess the name that it gets then, and take
    that as well.
    """
    name, owner = object_name(telling.node.name), telling.owner
    return {
        "metadata": {
            **({"generateName": f"{name}-"} if is_taken else {"name": name}),
            "namespace": namespace,
            "annotations": {marks.DISKS_ANNOTATION: telling.note},
            "labels": labels_of(telling.node.name, marks.DISKS_MANAGER),
            "ownerReferences": [
                {
                    "apiVersion": owner.api_version,
                    "kind": owner.kind,
                    "name": owner.name,
                    "uid": owner.uid,
                }
            ],
        },
        "storageClassName": marks.DISKS_CLASS,
        "nodeTopology": topology_of(telling.node),
    }


def _is_told(row: Judged) -> bool:
    """Loop devices, partitions and what the kernel makes of something else come and go with
    volumes: they are told of only if a filter means them."""
    disk = row.disk
    return row.filter is not None or not (disk.parent or disk.virtual or disk.transport == "loop")


def _shape(row: Judged, plan: DiskPlan) -> dict[str, Any]:
    disk, link = row.disk, best_link(row.disk)
    made: dict[str, Any] = {
        "path": f"/dev/disk/by-id/{link}" if link else disk.node,
        "device": disk.node,
        "sizeBytes": disk.size_bytes,
        "model": disk.model,
        "serial": disk.identity.get("serial", ""),
        "wwn": disk.identity.get("wwn", ""),
        "transport": disk.transport,
        "class": row.filter.class_name if row.filter else "",
        "verdict": row.verdict,
        "code": row.code,
        "reason": row.reason,
    }
    if row in plan.todo:
        made |= {"plan": plan.digest, "approved": plan.approved}
    elif row.digest:
        made |= {"plan": row.digest, "approved": True}
    cut = {key: _cut(value) if isinstance(value, str) else value for key, value in made.items()}
    return {key: value for key, value in cut.items() if value != ""}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"


def _mismatch(thing: CSIStorageCapacity, telling: Telling) -> str:
    """What is wrong with an object and cannot be changed, or not safely; "" if nothing is."""
    if elsewhere := why_not_about(thing, telling.node):
        return elsewhere
    if [one.uid for one in thing.metadata.owner_references] != [telling.owner.uid]:
        return f"it does not belong to the {telling.owner.kind} {telling.owner.name} alone"
    # A scheduler takes either size for room.
    is_room = thing.capacity is not None or thing.maximum_volume_size is not None
    if is_room or thing.storage_class_name != marks.DISKS_CLASS:
        return "it may be taken for room"
    return ""
