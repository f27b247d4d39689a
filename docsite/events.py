"""The page of Events: what each reason means and what to do. The code says which there are."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import NamedTuple

from docsite import reasons
from docsite.markdown import Missing, code, page, table


class Reason(NamedTuple):
    """`kind` is Normal or Warning; `about` the objects it is written on."""

    kind: str
    about: str
    means: str
    todo: str


_NOTHING = "Nothing."

EVENTS: dict[str, Reason] = {
    # Static volumes
    "VolumeDelete": Reason(
        "Normal",
        "PersistentVolume",
        "Its claim is gone, its reclaim policy is Delete: cleaning begins, by the method it says.",
        _NOTHING,
    ),
    "VolumeCleaned": Reason(
        "Normal",
        "PersistentVolume",
        "It was cleaned: how, how much, how long it took, and how that was proved.",
        _NOTHING + " Keep it, where a receipt is asked for: Events live for an hour.",
    ),
    "VolumeCleaningWaits": Reason(
        "Warning",
        "PersistentVolume",
        "A cleaning Job is at work on the volume, or was: nothing else is done beside it.",
        "Look at the Job that it names. It goes on by itself once the Job has ended.",
    ),
    "VolumeFailedDelete": Reason(
        "Warning",
        "PersistentVolume",
        "It was not cleaned or not removed, and the data stays. The message says why.",
        "Put right what it says: mount what is not mounted, end what has the device open, replace "
        "the disk. It is tried again by itself. Where a volume's class is gone, or not valid, "
        "nobody can tell its undoPeriod: create or correct the class, or delete the "
        "PersistentVolume. Where it says that a clock is far ahead, set the clocks right: until "
        "then the volume is kept.",
    ),
    "VolumeKeptFromClaim": Reason(
        "Warning",
        "PersistentVolume",
        "Pods do not get the volume, and nothing is copied from it. Either the pool remembers "
        "claims that had it since what the PersistentVolume says, so that the API server may have "
        "been set back; or the pool cannot note that another claim has it now.",
        "Find out whose the data is. Let `claimRef` name that one's claim (namespace, name and "
        "UID), and then annotate the PersistentVolume as the message says. Where another claim "
        "cannot be noted, put right what the message says of the pool.",
    ),
    "VolumeNamesTaken": Reason(
        "Warning",
        "PersistentVolume",
        "Other PersistentVolumes have both names that follow from its node, class and entry: it is "
        "offered under a name that nobody can know beforehand. Names are not taken by accident.",
        "Look at the label `localvolume.dev/node` of the objects that it names: whoever has "
        "that node's token may have made them. See "
        "[a stolen token](../rights.md#a-stolen-token-of-a-node).",
    ),
    "VolumeVanished": Reason(
        "Warning",
        "PersistentVolume",
        "The entry, mount or device is gone. If no claim ever held it, the object is withdrawn "
        "after a minute; else it stays.",
        "Bring the disk back, mount it again. If it is lost for good, see "
        "[a disk failed](../operations.md#a-disk-failed).",
    ),
    "VolumeReplaced": Reason(
        "Warning",
        "PersistentVolume",
        "Another filesystem or device is at the path than the one that was published. It is "
        "neither used nor cleaned.",
        "Mount the right one, or correct the link. If the exchange was on purpose, see "
        "[replacing a disk](../operations.md#replacing-a-disk).",
    ),
    "VolumeNotItsOwn": Reason(
        "Warning",
        "PersistentVolume",
        "By the volume's own record it is not this object's any more, or the record cannot be "
        "read: the object may have come back with an older state of the API server. Nothing is "
        "cleaned for it.",
        "See [whose a volume is](../operations.md#whose-a-volume-is).",
    ),
    "VolumeNotRecorded": Reason(
        "Warning",
        "PersistentVolume",
        "The volume's record could not be written, or its root not be set up as it was at first. "
        "What relies on that waits, and is tried again.",
        "The message names the error: a filesystem that takes no writes, a full disk under "
        "`RECORDS_DIR`.",
    ),
    "VolumeSizeDiffers": Reason(
        "Warning",
        "PersistentVolume",
        "The device is smaller or larger than the object says.",
        "Restore the size, or let the volume be made anew: release it and delete the object.",
    ),
    "VolumeDuplicate": Reason(
        "Warning",
        "PersistentVolume",
        "Another PersistentVolume offers the same data: one disk has two entries.",
        "Take one of the entries out of the discovery directories.",
    ),
    "VolumeUnsupportedReclaimPolicy": Reason(
        "Warning",
        "PersistentVolume",
        "The reclaim policy is Recycle, which nothing here does.",
        "Set it to Delete or Retain.",
    ),
    "VolumeUnknownReclaimPolicy": Reason(
        "Warning",
        "PersistentVolume",
        "The reclaim policy is none that is known.",
        "Set it to Delete or Retain.",
    ),
    # Volumes made for claims, FlexVolume
    "WaitForFirstConsumer": Reason(
        "Normal",
        "claim",
        "No node is chosen yet: that is done with the first pod that uses the claim.",
        "Create the pod.",
    ),
    "Provisioning": Reason("Normal", "claim", "A volume is being made.", _NOTHING),
    "ProvisioningSucceeded": Reason("Normal", "claim", "The volume is there.", _NOTHING),
    "ProvisioningFailed": Reason(
        "Warning",
        "claim",
        "No volume was made: the class or the claim asks for what there is not, a pool has a "
        "problem, or no room. The message says which.",
        "Put right what the message says: the class, the claim or the pool; only where it is room "
        "that is missing, make room or add a pool. It is tried again when something changes.",
    ),
    "Resizing": Reason("Normal", "claim", "The volume is growing.", _NOTHING),
    "VolumeMoved": Reason(
        "Normal",
        "PersistentVolume",
        "`localvolume move-to-csi` has made the object anew, and its agent has taken the volume "
        "over: pods use it through the CSI driver.",
        "Start the pods.",
    ),
    "VolumeNotMoved": Reason(
        "Warning",
        "PersistentVolume",
        "The object was made anew for the CSI driver, and its agent does not take the volume over. "
        "The message says why. The data stays, and no pod gets it.",
        "Where it is in use: end the pod that still uses it. Where the pool has no record of it, "
        "or one of another object or claim: do not start the pods; look what lies there with "
        "`localvolume why <path>`.",
    ),
    "VolumeReleased": Reason(
        "Normal",
        "PersistentVolume",
        "Its claim is gone, and the volume is kept for its undoPeriod, which the message says, "
        "whatever becomes of its class meanwhile.",
        "To have it back: `localvolume undo <pv>`, then create the claim again.",
    ),
    "VolumeResizeSuccessful": Reason(
        "Normal", "claim", "PersistentVolume and claim say the new size.", _NOTHING
    ),
    "VolumeModify": Reason(
        "Normal",
        "claim",
        "The volume is being given what its new VolumeAttributesClass says.",
        _NOTHING,
    ),
    "VolumeModifySuccessful": Reason(
        "Normal", "claim", "The volume has what its VolumeAttributesClass says.", _NOTHING
    ),
    "VolumeModifyCanceled": Reason(
        "Normal",
        "claim",
        "The claim names the VolumeAttributesClass again that its volume has: nothing is changed.",
        _NOTHING,
    ),
    "VolumeModifyFailed": Reason(
        "Warning",
        "claim",
        "The volume was not given what its VolumeAttributesClass says: nothing of it is applied, "
        "and the volume serves as before.",
        "Where the message says that the class is not there, create it. Where it says that no "
        "volume can have it, name another class in the claim. It is tried again by itself.",
    ),
    "VolumeLimitsNotKept": Reason(
        "Warning",
        "PersistentVolume",
        "The limits of reading and writing that its VolumeAttributesClass says are not kept in a "
        "pod that uses the volume. The message says why.",
        "Where limits are switched off, switch them on again (`csi.ioLimits`), or name another "
        "class in the claim. Else look at the control group that the message names. It is tried "
        "again each minute.",
    ),
    "VolumeResizeFailed": Reason(
        "Warning",
        "claim",
        "The volume could not grow. It serves as before, with the size it has.",
        "Put right what the message says; only where it is room that is missing, make room in its "
        "pool or ask for less: the claim's status says `ControllerResizeInfeasible` then. It is "
        "tried again.",
    ),
    "VolumeLimitEscaped": Reason(
        "Warning",
        "PersistentVolume",
        "The volume holds what its limit does not count, such as subvolumes inside a btrfs volume, "
        "or its directory was taken out of its quota project.",
        "Speak with its owner; where tenants are not trusted, use backend `image` or `lvm`.",
    ),
    "PoolWarning": Reason(
        "Warning",
        "Node",
        "A pool is well but will not be for long: a thin pool fills, its metadata fills. Or "
        "volumes in it cannot be used, as after its files were copied.",
        "Extend the thin pool, or remove volumes: [thick and thin](../pools.md#thick-and-thin). "
        "After a copy: [a pool is restored](../operations.md#a-pool-is-restored-from-a-copy).",
    ),
    "PoolProblem": Reason(
        "Warning",
        "Node",
        "A pool cannot be used, or cannot enforce sizes as it should. Repeated each hour.",
        "The message has the commands: [what happens when](../pools.md#what-happens-when).",
    ),
    "CapacityNotPublished": Reason(
        "Warning",
        "Node",
        "The API server refused the node's CSIStorageCapacity: the scheduler does not know its "
        "room.",
        "Compare the agent's rights with [Rights](../rights.md).",
    ),
    # The agent as a whole
    "ConfigurationInvalid": Reason(
        "Warning",
        "Node",
        "The ConfigMap is invalid; the last valid one stays in force. The message names the keys.",
        "Correct the ConfigMap; `localvolume check-config DIR` says whether it is right.",
    ),
    "ConfigurationChanged": Reason(
        "Normal", "Node", "The configuration is valid again, and in force.", _NOTHING
    ),
    "NodeTaintRemoved": Reason(
        "Normal",
        "Node",
        "All volumes of the node are offered; the taint of `removeNodeNotReadyTaint` is gone.",
        _NOTHING,
    ),
    "NodeTaintNotRemoved": Reason(
        "Warning",
        "Node",
        "The taint stays: the API server refused, or the node has another one of that key.",
        "See to the agent's right to patch Nodes, or remove the taint by hand.",
    ),
    "CSIRegistrationFailed": Reason(
        "Warning",
        "Node",
        "The kubelet does not take the agent for the CSI driver: pods with its volumes wait. The "
        "message has the kubelet's words.",
        "[Look at what it says](../csi.md#when-something-is-wrong); the agent tries again.",
    ),
    # Snapshots
    "SnapshotCreationFailed": Reason(
        "Warning",
        "VolumeSnapshotContent",
        "A snapshot could not be cut. The VolumeSnapshot's status says the same.",
        "What the message says; it is tried again. `localvolume why snapshot/NAME` has the rest.",
    ),
    "SnapshotContentCheckandUpdateFailed": Reason(
        "Warning",
        "VolumeSnapshotContent",
        "The snapshot is gone that was there, or one that the content was made for by hand was not "
        "found. The VolumeSnapshot may still say that it is ready.",
        "Of a content that was made by hand: compare `snapshotHandle` with the one that was "
        "retained: "
        "[brought back by its handle](../snapshots.md#keep-a-snapshot-and-bring-it-back). Else "
        "bring back the pool that had it, or delete the VolumeSnapshot.",
    ),
    "SnapshotDeleteError": Reason(
        "Warning",
        "VolumeSnapshotContent",
        "A snapshot could not be removed: it stays, and so does its object.",
        "What the message says; it is tried again.",
    ),
    "SnapshotReserveFilling": Reason(
        "Warning",
        "VolumeSnapshotContent, VolumeSnapshot",
        "More than 80 % of the reserve of a snapshot is full. Once it is full the snapshot is "
        "lost; its volume goes on.",
        "Restore what is needed and delete it, or [extend its reserve](../snapshots.md#a-reserve).",
    ),
    "SnapshotLost": Reason(
        "Warning",
        "VolumeSnapshotContent, VolumeSnapshot",
        "The reserve of a snapshot was full: its content is lost, and nothing can be restored from "
        "it. Its volume goes on.",
        "Delete the VolumeSnapshot. Take another one of a class with a larger "
        "[`snapshotReserve`](../snapshots.md#a-reserve).",
    ),
    "GroupSnapshotCreationFailed": Reason(
        "Warning",
        "VolumeGroupSnapshotContent",
        "The volumes of a group could not be cut together, and no snapshot of them was left. The "
        "VolumeGroupSnapshot's status says the same.",
        "What the message says; it is tried again. "
        "[Which volumes can](../snapshots.md#snapshots-of-several-volumes-at-one-moment).",
    ),
    "GroupSnapshotContentCheckandUpdateFailed": Reason(
        "Warning",
        "VolumeGroupSnapshotContent",
        "The group is gone that was there, or some of it, or one that the content was made for by "
        "hand was not found or has other snapshots.",
        "Of a content that was made by hand: compare `groupSnapshotHandles` with those that were "
        "retained. Else bring back the pool that had it, or delete the VolumeGroupSnapshot.",
    ),
    "GroupSnapshotDeleteError": Reason(
        "Warning",
        "VolumeGroupSnapshotContent",
        "A group of snapshots could not be removed, or not all of it: what is left stays, and so "
        "does its object.",
        "What the message says; it is tried again.",
    ),
    # Lost nodes
    "ReferencedNodeDeleted": Reason(
        "Warning",
        "PersistentVolume, claim, VolumeSnapshotContent",
        "No node is left that could serve the volume, and what is done about it, or what that "
        "waits for. Of a content: the node that has its snapshot is not there.",
        "Bring the node back; or see [a node is lost](../operations.md#a-node-is-lost). Where it "
        "says that a clock is far ahead, set the clocks right.",
    ),
    "ReferencedNodeReturned": Reason(
        "Normal",
        "PersistentVolume, claim",
        "The node is there again before anything was deleted.",
        _NOTHING,
    ),
    "VolumeAbandoned": Reason(
        "Warning",
        "PersistentVolume",
        "The object is removed though nobody cleaned the volume: its node is lost for good.",
        "Destroy or wipe that node's disks: a tenant's data may be on them.",
    ),
    # Raw disks
    "DisksNotApproved": Reason(
        "Normal",
        "Node",
        "Disks were found that the filters of `disks` mean. Nothing is done before that plan is "
        "approved.",
        "Look at `localvolume plan` on the node; add its digest to `disks.approved`, or change "
        "the filters.",
    ),
    "DiskPlanChanged": Reason(
        "Warning",
        "Node",
        "What would be done is not what was approved: nothing was done.",
        "Look at the plan anew, and approve that one.",
    ),
    "DiskFormatted": Reason(
        "Normal", "Node", "A disk was made a volume, as the approved plan says.", _NOTHING
    ),
    "DiskFormatFailed": Reason(
        "Warning",
        "Node",
        "A disk of the approved plan was not made a volume. The message says why.",
        "Put right what it says. It is tried again after a while, if the plan is still the same.",
    ),
    "DiskMounted": Reason(
        "Normal", "Node", "A disk that was formatted here before is mounted again.", _NOTHING
    ),
    "DiskMountFailed": Reason(
        "Warning",
        "Node",
        "A disk that was formatted here before could not be mounted again.",
        "Put right what the message says. It is tried again after a while.",
    ),
    # Health
    "VolumeUnhealthy": Reason(
        "Warning",
        "PersistentVolume, claim",
        "The volume does not work as it should: read-only, I/O errors, device gone, pool full.",
        "See [Health](../health.md). Nothing is healed by deleting.",
    ),
    "VolumeHealthy": Reason(
        "Normal", "PersistentVolume, claim", "What was wrong with it is over.", _NOTHING
    ),
}

_INTRODUCTION = """\
What agent and controller write on PersistentVolumes, claims and Nodes; `kubectl describe` shows
it, and `kubectl get events -A --field-selector reason=VolumeFailedDelete` finds it. The same Event
on the same object is counted, not repeated. Events live for an hour: what is still so is said
anew, and metrics say it for good. The message always says why.
"""


def render(explained: Mapping[str, Reason] = EVENTS) -> str:
    """docs/reference/events.md. Raises Missing."""
    found = reasons.found()
    if unknown := {one for one in found if not fnmatch.filter(explained, one)}:
        raise Missing(
            "docsite/events.py, EVENTS: say what these Events mean and what to do (or, where one "
            f"is no reason, add it to docsite/reasons.py): {', '.join(sorted(unknown))}"
        )
    if gone := {one for one in explained if not any(fnmatch.fnmatch(one, two) for two in found)}:
        raise Missing(f"docsite/events.py: the code has no such Event: {', '.join(sorted(gone))}")
    rows = [
        (code(name), one.kind, one.about, one.means, one.todo) for name, one in explained.items()
    ]
    titles = ("reason", "type", "on", "what it means", "what to do")
    return page("Events", _INTRODUCTION, table(titles, rows))
