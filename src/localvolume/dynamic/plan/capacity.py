"""Decides which CSIStorageCapacity objects publish a node's capacity: pure.

There is one object for each StorageClass that a pool of the node serves. A volume lies in one pool,
so it is at most as large as the largest capacity; the scheduler compares a claim with that
(maximumVolumeSize, if set). It heeds the objects only if a CSIDriver of the provisioner's name says
so. Our controller reads the same objects to route claims of Immediate classes.

Objects that are not `ours` are left alone, whatever they say about this node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from localvolume.dynamic.plan.fullness import PoolSize, note_of, totals_in
from localvolume.kube.objects import CSIStorageCapacity
from localvolume.volumes import marks
from localvolume.volumes.capacity import MIB, bytes_of, quantity
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.storagecapacities import (
    is_kept_by,
    labels_of,
    topology_of,
    why_not_about,
)

# The cap of a resource.Quantity: beyond it, what is read back would always differ.
_MOST: Final = (1 << 63) - 1

_LONGEST: Final = 1000
"""How many characters of a problem are kept on the object."""


@dataclass(frozen=True, slots=True)
class ClassCapacity:
    """A StorageClass served here, the capacity in bytes of each of its pools, and why some of them
    cannot serve it.

    Pools on one filesystem share one capacity. A pool with a problem has capacity 0, so that the
    node is not chosen for it. Without any pool the class has no object. `largest` is the largest
    volume that fits into any of the pools, as not all that is free in a volume group can always go
    into one volume; None: the largest capacity. `pools` are the sizes of pools, by name.
    """

    class_name: str
    provisioner: str
    capacities: tuple[int, ...]
    problem: str = ""
    largest: int | None = None
    pools: tuple[tuple[str, PoolSize], ...] = ()


@dataclass(frozen=True, slots=True)
class CapacityFacts:
    """All that is to be published for a node, for classes of both binding modes."""

    node: NodeFacts
    classes: Sequence[ClassCapacity]


@dataclass(frozen=True, slots=True)
class Desired:
    """What the object of one class should say; sizes in bytes, in whole MiB."""

    class_name: str
    provisioner: str
    capacity: int
    maximum: int
    problem: str = ""
    pools: tuple[tuple[str, PoolSize], ...] = ()

    @property
    def sizes(self) -> dict[str, str]:
        """The only fields besides annotations that can be changed, as the API names them."""
        return {"capacity": quantity(self.capacity), "maximumVolumeSize": quantity(self.maximum)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What should happen to one object, and why. `key` is the class: one is under way at a time."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(Action):
    """Create the object under that name."""

    name: str
    desired: Desired


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch(Action):
    """Correct the sizes of this very object. `only_used`: nothing but how full pools are."""

    object: CSIStorageCapacity
    desired: Desired
    only_used: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete(Action):
    """Delete this very object, unless it changed."""

    object: CSIStorageCapacity


def object_name(node_name: str, class_name: str, number: int = 0) -> str:
    """The same at every start, so that a crash makes no twins; `number` others if it is taken."""
    text = "/".join([marks.node_key(node_name), class_name, *([str(number)] if number else [])])
    return f"csisc-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def ours(thing: CSIStorageCapacity, node_name: str) -> bool:
    """Whether an agent of this node keeps the object: both labels say so."""
    return is_kept_by(thing, node_name, marks.MANAGER)


def desired_objects(classes: Sequence[ClassCapacity]) -> dict[str, Desired]:
    """By class name. Rounded down: never more than there is, and small changes cause no write."""
    return {
        capacity.class_name: Desired(
            capacity.class_name,
            capacity.provisioner,
            _whole(sum(max(0, size) for size in capacity.capacities)),
            _whole(max(capacity.capacities) if capacity.largest is None else capacity.largest),
            _clause(capacity.problem),
            tuple(
                (name, PoolSize(_whole(size.total_bytes), size.used_bytes))
                for name, size in capacity.pools
                # What is less than any unit would be read as no size, and written again and again.
                if size.total_bytes >= MIB
            ),
        )
        for capacity in classes
        if capacity.capacities
    }


def plan_objects(
    facts: CapacityFacts, existing: Collection[CSIStorageCapacity], taken: Collection[str] = ()
) -> list[Action]:
    """Returns all actions, grouped by class; those of one class must be done in order.

    `existing` are the objects seen in the agent's namespace; `taken` are the names of others in it
    that are not among them.
    """
    node, actions = facts.node, list[Action]()
    wanted = desired_objects(facts.classes)
    found: dict[str, list[CSIStorageCapacity]] = {key: [] for key in wanted}
    # Which of our classes has a name; None: the object is not ours.
    holders: dict[str, str | None] = dict.fromkeys(taken)
    for thing in existing:
        if ours(thing, node.name) and not thing.metadata.deletion_timestamp:
            found.setdefault(thing.storage_class_name, []).append(thing)
            holders[thing.metadata.name] = thing.storage_class_name
        else:
            holders[thing.metadata.name] = None
    for key, things in sorted(found.items()):
        actions += _of_class(key, wanted.get(key), things, node, holders)
    return actions


def _of_class(
    key: str,
    desired: Desired | None,
    things: list[CSIStorageCapacity],
    node: NodeFacts,
    holders: Mapping[str, str | None],
) -> list[Action]:
    if desired is None:
        reason = "no pool of this node serves the class"
        return [Delete(key=key, reason=reason, object=thing) for thing in _sorted(things, "")]
    actions, fit = list[Action](), list[CSIStorageCapacity]()
    for thing in _sorted(things, object_name(node.name, key)):
        wrong = _mismatch(thing, desired, node)
        if not wrong and fit:
            wrong = f"{fit[0].metadata.name} says the same"
        if wrong:
            actions.append(Delete(key=key, reason=wrong, object=thing))
        else:
            fit.append(thing)
    if not fit:
        number = 0
        # The names that this class itself has are freed by the deletions before.
        while holders.get(name := object_name(node.name, key, number), key) != key:
            number += 1
        reason = "the class is served here and has no such object"
        return [*actions, Create(key=key, reason=reason, name=name, desired=desired)]
    if difference := _difference(fit[0], desired):
        actions.append(Patch(key=key, reason=difference, object=fit[0], desired=desired))
    elif notes(desired, fit[0]) != notes_of(fit[0]):
        reason = "its pools are fuller or emptier than it says"
        patch = Patch(key=key, reason=reason, object=fit[0], desired=desired, only_used=True)
        actions.append(patch)
    return actions


def shrinks(before: Desired | None, after: Desired | None) -> bool:
    """Whether less is promised than before, which must be published at once. None: nothing is."""
    if before is None or after is None:
        return before is not None
    return after.capacity < before.capacity or after.maximum < before.maximum


def manifest(create: Create, node: NodeFacts, namespace: str) -> dict[str, Any]:
    """The object to create (Kubernetes API, storage/v1 CSIStorageCapacity), owned by its Node."""
    return {
        "metadata": {
            "name": create.name,
            "namespace": namespace,
            "annotations": notes(create.desired),
            "labels": {
                **labels_of(node.name, marks.MANAGER),
                marks.DRIVER_LABEL: marks.driver_label(create.desired.provisioner),
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
            ],
        },
        "storageClassName": create.desired.class_name,
        "nodeTopology": topology_of(node),
        **create.desired.sizes,
    }


def notes(desired: Desired, there: CSIStorageCapacity | None = None) -> dict[str, str]:
    """The annotations of an object that says this; `there` is the object if there is one."""
    before = notes_of(there).get(marks.POOLS_ANNOTATION, "") if there else ""
    found = {
        marks.PROBLEM_ANNOTATION: desired.problem,
        marks.POOLS_ANNOTATION: note_of(desired.pools, before),
    }
    return {key: text for key, text in found.items() if text}


def notes_of(there: CSIStorageCapacity) -> dict[str, str]:
    """Those of its annotations that we write."""
    found = there.metadata.annotations
    ours = (marks.PROBLEM_ANNOTATION, marks.POOLS_ANNOTATION)
    return {key: found[key] for key in ours if found.get(key)}


def _mismatch(thing: CSIStorageCapacity, desired: Desired, node: NodeFacts) -> str:
    """What is wrong with an object and cannot be changed, or not safely; "" if nothing is."""
    if elsewhere := why_not_about(thing, node):
        return elsewhere
    if all(owner.uid != node.uid for owner in thing.metadata.owner_references):
        return f"it does not belong to the Node with the UID {node.uid}"
    if thing.metadata.labels.get(marks.DRIVER_LABEL) != marks.driver_label(desired.provisioner):
        return f"it is not labelled with the provisioner {desired.provisioner}"
    return ""


def _difference(thing: CSIStorageCapacity, desired: Desired) -> str:
    """How the sizes, or what is said of a problem, differ; "" if they do not.

    How full pools are does not count.
    """
    said = {"capacity": thing.capacity, "maximumVolumeSize": thing.maximum_volume_size}
    changed = [
        f"{field} {wanted} (before: {said[field] or 'not set'})"
        for field, wanted in desired.sizes.items()
        if bytes_of(said[field] or "") != bytes_of(wanted)
    ]
    # Read in the log whenever volumes come and go: nothing is wrong, and nobody has to do anything.
    told = f"the scheduler is told the room that is left: {', '.join(changed)}"
    differences = [told] if changed else []
    there = notes_of(thing)
    if there.get(marks.PROBLEM_ANNOTATION, "") != desired.problem:
        differences.append("its pools have a problem" if desired.problem else "no problem is left")
    totals = {name: size.total_bytes for name, size in desired.pools}
    if totals_in(there.get(marks.POOLS_ANNOTATION, "")) != totals:
        differences.append("its pools have other sizes")
    return "; ".join(differences)


def _sorted(things: list[CSIStorageCapacity], first: str) -> list[CSIStorageCapacity]:
    return sorted(things, key=lambda thing: (thing.metadata.name != first, thing.metadata.name))


def _clause(text: str) -> str:
    """In one line, and no longer than an Event."""
    return " ".join(text.split())[:_LONGEST]


def _whole(size_bytes: int) -> int:
    size_bytes = min(max(0, size_bytes), _MOST)
    return size_bytes - size_bytes % MIB
