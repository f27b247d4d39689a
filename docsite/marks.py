"""The page of labels, annotations and finalizers: the constants of volumes.marks."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping

from docsite.markdown import Missing, code, page, table
from localvolume.controller.plan import copies
from localvolume.volumes import lvtags, marks, snapshots
from localvolume.volumes.claims import CLONING_FINALIZER

OWN: Mapping[str, tuple[str, str]] = {
    "NODE_LABEL": (
        (
            "label of a PersistentVolume, a claim, a Job, a CSIStorageCapacity; annotation of a "
            "VolumeSnapshotContent or VolumeGroupSnapshotContent, whose labels are the "
            "snapshot-controller's"
        ),
        (
            "to which node the object belongs: the node's name, or a short hash form if the name "
            "is no valid label. Agents list and watch only by this label, except for "
            "VolumeSnapshotContents and VolumeGroupSnapshotContents"
        ),
    ),
    "FINALIZER": (
        "finalizer of a PersistentVolume",
        "keeps the object until its agent has cleaned what a claim left in the volume",
    ),
    "IDENTITY_ANNOTATION": (
        "annotation of a PersistentVolume",
        "what the volume is, as JSON: compared before anything is done to the volume",
    ),
    "GENERATION_ANNOTATION": (
        "annotation of a PersistentVolume",
        (
            "which offer of the volume it is, by the volume's own record; for the CSI driver, how "
            "often the volume was given to a further claim. An object that says less than the "
            "record is from a backup: `VolumeKeptFromClaim`"
        ),
    ),
    "CLAIMED_ANNOTATION": (
        "annotation of a PersistentVolume",
        "the UID of the last claim that held it: from then on it may contain a tenant's data",
    ),
    "CLEANED_ANNOTATION": (
        "annotation of a PersistentVolume",
        (
            "when the volume was last cleaned before this offer, and the receipt: "
            "`<RFC 3339> <sentence>`. Absent if it was never cleaned, if a claim has held it "
            "since, or if no record can be kept"
        ),
    ),
    "LOST_ANNOTATION": (
        "annotation of a PersistentVolume",
        "since when there has been no node that could serve it; the controller writes it",
    ),
    "POOL_ANNOTATION": (
        "annotation of a PersistentVolume",
        "in which pool of its node it was made: `<name of the pool>/<id of the pool>`",
    ),
    "REFUSED_ANNOTATION": (
        "annotation of a claim",
        "by which node the claim was given back, and when",
    ),
    "REFUSED_WHY_ANNOTATION": (
        "annotation of a claim",
        "the same, and why: the controller's Event and `localvolume why` repeat it",
    ),
    "PROBLEM_ANNOTATION": (
        "annotation of a CSIStorageCapacity",
        (
            "why pools of the node that are for the class cannot serve it: the controller repeats "
            "it on claims that no node takes, and so does `localvolume why`. Absent if all can"
        ),
    ),
    "POOLS_ANNOTATION": (
        "annotation of a CSIStorageCapacity",
        (
            "how large the pools for the class are on the node, as JSON, for `localvolume status` "
            "and `ui`: by name `totalBytes` and `usedBytes`, rounded up to a whole percent. A pool "
            "that has a problem is not in it. If a pool serves several classes, only the object of "
            "the first one has its `usedBytes`"
        ),
    ),
    "DISKS_ANNOTATION": (
        "annotation of a CSIStorageCapacity",
        (
            "which raw disks the node has, and what the plan says of each, as JSON, for "
            "`localvolume status` and `ui`: [Formatting raw disks](../disks.md#seen-from-afar). "
            "The object has no capacity, and belongs to the agent's pod"
        ),
    ),
    "DISKS_CLASS": (
        "`storageClassName` of that CSIStorageCapacity",
        "no StorageClass: the object promises no room to anybody",
    ),
    "RELEASED_ANNOTATION": (
        "annotation of a PersistentVolume",
        (
            "since when its claim has been gone, and the UID of that claim: the volume is removed "
            "after the undo period"
        ),
    ),
    "KEPT_ANNOTATION": (
        "annotation of a PersistentVolume",
        (
            "until when it is kept at least, as promised when `released-since` was written, and "
            "the UID of that claim"
        ),
    ),
    "MOVING_ANNOTATION": (
        "annotation of a PersistentVolume",
        (
            "`localvolume move-to-csi` has begun to move it: the reclaim policy that it had, and "
            "that its successor gets again"
        ),
    ),
    "MOVED_ANNOTATION": (
        "annotation of a PersistentVolume",
        (
            "made anew for the CSI driver by `localvolume move-to-csi`: the UID of the object "
            "whose place it took. Its agent removes it once the pool's record says the same"
        ),
    ),
    "HEALTH_ANNOTATION": (
        "annotation of a PersistentVolume",
        "what is wrong with the volume, for as long as it is: [Health](../health.md)",
    ),
}
"""Where each of ours is, and what it says, by the constant's name."""

OTHERS: Mapping[str, str] = {
    "PROVISIONED_BY_ANNOTATION": "who made the PersistentVolume: "
    "`local-volume-provisioner-<node>-<UID>`, as upstream writes it",
    "BOUND_BY_CONTROLLER_ANNOTATION": "read: that a claim has held the volume",
    "ALPHA_AFFINITY_ANNOTATION": "node affinity, with `useAlphaAPI`",
    "HOSTNAME_LABEL": "the node's label that node affinity names",
    "MANAGER_LABEL": "label of a CSIStorageCapacity: who keeps it, `localvolume` for room, "
    "`localvolume-disks` for raw disks",
    "DRIVER_LABEL": "label of a CSIStorageCapacity: the provisioner, with `_` for `/`",
    "ELASTIC_FLEX_DRIVER": "elastic's provisioner and FlexVolume driver",
    "ELASTIC_NODE_LABEL": "read: the node of a volume of elastic's driver",
    "KUTTI_NODE_ANNOTATION": "read: the node of a volume that kutti made",
    "LOCAL_PATH_NODE_ANNOTATION": "read: the node of a volume that local-path made",
}

SNAPSHOTS: Mapping[str, str] = {
    snapshots.BEING_CREATED: "annotation of a VolumeSnapshotContent, as csi-snapshotter writes it: "
    "a snapshot may have been cut that the status does not show yet",
    snapshots.BEING_DELETED: "read: that the VolumeSnapshot of a content is going",
    snapshots.RESERVE_ANNOTATION: "annotation of a VolumeSnapshotContent whose snapshot has a "
    "reserve that fills: a sentence that says so",
    snapshots.FINALIZER: "finalizer of a VolumeSnapshotContent, the snapshot-controller's; "
    "removed once the snapshot is removed",
    snapshots.GROUP_ANNOTATION: "read: that a content belongs to a group, and is removed with it",
    snapshots.GROUP_BEING_CREATED: "annotation of a VolumeGroupSnapshotContent: a group may have "
    "been cut that the status does not show yet",
    snapshots.GROUP_BEING_DELETED: "read: that the VolumeGroupSnapshot of a content is going",
    snapshots.GROUP_FINALIZER: "finalizer of a VolumeGroupSnapshotContent, the "
    "snapshot-controller's; removed once the group is removed",
    copies.MANAGED_BY_LABEL: "read: the node of a content whose volume is gone, if the "
    "snapshot-controller runs for distributed snapshotting",
    snapshots.MODE_CHANGE: "read: that a snapshot of a filesystem may be restored as a Block "
    "volume",
    CLONING_FINALIZER: "finalizer of a claim, external-provisioner's, while the claim is cloned",
}
"""The names that external-snapshotter and external-provisioner gave to what concerns copies."""

_NOT_MARKS = {"FLEX_DRIVER", "DYNAMIC_PROVISIONER", "MANAGER", "DISKS_MANAGER"}


def render(explained: Mapping[str, tuple[str, str]] = OWN) -> str:
    """docs/reference/marks.md. Raises Missing."""
    found = dict(constants())
    known = set(explained) | set(OTHERS) | _NOT_MARKS
    if unknown := set(found) - known:
        raise Missing(f"docsite/marks.py: neither in OWN nor in OTHERS: {', '.join(unknown)}")
    own = [(code(found[name]), *said) for name, said in explained.items() if name in found]
    others = [(code(found[name]), said) for name, said in OTHERS.items()]
    others += [(code(name), said) for name, said in SNAPSHOTS.items()]
    return page(
        "Labels, annotations and finalizers",
        "Everything that we write on objects of the cluster, and what we read of others.",
        f"## Ours\n\n{table(('name', 'what it is', 'what it says'), own)}",
        f"## Of others\n\n{table(('name', 'what it says'), others)}",
        "## On logical volumes\n\nTags of the form "
        f"`{lvtags.PREFIX}<key>=<value>`: `lvs -o lv_name,lv_tags` shows them. A logical volume "
        "without our tag is never touched.",
        "## On the disk\n\nA pool in a directory has a directory `.localvolume`: "
        "[Files in a pool](../pools.md#files-in-a-pool).",
    )


def constants() -> Iterator[tuple[str, str]]:
    """The public names of the module that are texts, and the texts."""
    for node in ast.parse(inspect.getsource(marks)).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str())):
                if not name.startswith("_"):
                    yield name, str(getattr(marks, name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str())):
                if not name.startswith("_"):
                    yield name, str(getattr(marks, name))
