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
        "Its claim is gone and its reclaim policy is Delete: cleaning begins, by the method that "
        "the message names.",
        _NOTHING,
    ),
    "VolumeCleaned": Reason(
        "Normal",
        "PersistentVolume",
        "It was cleaned. The message says how, how much, how long it took, and how that was "
        "proved.",
        _NOTHING
        + " `localvolume.dev/cleaned` on the volume's next PersistentVolume says the same, "
        "and stays.",
    ),
    "VolumeCleaningWaits": Reason(
        "Warning",
        "PersistentVolume",
        "A cleaning Job is working on the volume, or was. Nothing else is done beside it.",
        "Look at the Job that it names. The agent continues on its own once the Job has ended.",
    ),
    "VolumeFailedDelete": Reason(
        "Warning",
        "PersistentVolume",
        "It was not cleaned or not removed, and the data stays. The message gives the reason.",
        "Correct what it names: mount what is not mounted, end what has the device open, replace "
        "the disk. The agent tries again on its own. If a volume's class is gone or not valid, "
        "nobody can tell its undoPeriod: create or correct the class, or delete the "
        "PersistentVolume. If the message says that a clock is far ahead, set the clocks right: "
        "until then, the volume is kept.",
    ),
    "VolumeKeptFromClaim": Reason(
        "Warning",
        "PersistentVolume",
        "Pods do not get the volume, and nothing is copied from it. Either the pool remembers "
        "claims that had it later than the PersistentVolume says, so the API server may have "
        "been set back; or the pool cannot note that another claim has it now.",
        "Find out whose the data is. Let `claimRef` name that tenant's claim (namespace, name and"
        " UID), and then annotate the PersistentVolume as the message says. If another claim "
        "cannot be noted, correct what the message says about the pool.",
    ),
    "VolumeNamesTaken": Reason(
        "Warning",
        "PersistentVolume",
        "Other PersistentVolumes have both names that follow from its node, class and entry. It "
        "is offered under a name that nobody can know beforehand. Names are not taken by "
        "accident.",
        "Look at the label `localvolume.dev/node` of the objects that it names: whoever has that "
        "node's token may have made them. See [a stolen "
        "token](../rights.md#a-stolen-token-of-a-node).",
    ),
    "VolumeVanished": Reason(
        "Warning",
        "PersistentVolume",
        "The entry, mount or device is gone. If no claim ever held the volume, the object is "
        "withdrawn after a minute; otherwise it stays.",
        "Bring the disk back, or mount it again. If it is lost for good, see [a disk "
        "failed](../operations.md#a-disk-failed).",
    ),
    "VolumePutRight": Reason(
        "Normal",
        "PersistentVolume",
        "What an earlier Event said of the volume is over: it was found well again, or there "
        "is nothing to be done for it any more.",
        _NOTHING,
    ),
    "VolumeReplaced": Reason(
        "Warning",
        "PersistentVolume",
        "The filesystem or device at the path is not the one that was published. It is neither "
        "used nor cleaned.",
        "Mount the right one, or correct the link. If you exchanged it on purpose, see [replacing"
        " a disk](../operations.md#replacing-a-disk).",
    ),
    "VolumeNotItsOwn": Reason(
        "Warning",
        "PersistentVolume",
        "By the volume's own record, it no longer belongs to this object, or the record cannot be"
        " read. The object may have come back with an older state of the API server. Nothing is "
        "cleaned for it.",
        "See [whose a volume is](../operations.md#whose-a-volume-is).",
    ),
    "VolumeNotRecorded": Reason(
        "Warning",
        "PersistentVolume",
        "The volume's record could not be written, or its root could not be set up as it was at "
        "first. What relies on that waits, and is tried again.",
        "The message names the error, for example a filesystem that takes no writes, or a full "
        "disk under `RECORDS_DIR`.",
    ),
    "VolumeSizeDiffers": Reason(
        "Warning",
        "PersistentVolume",
        "The device is smaller or larger than the object says.",
        "Restore the size, or have the volume made anew: release it and delete the object.",
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
        "The reclaim policy is Recycle, which we do not support.",
        "Set it to Delete or Retain.",
    ),
    "VolumeUnknownReclaimPolicy": Reason(
        "Warning",
        "PersistentVolume",
        "The reclaim policy is unknown.",
        "Set it to Delete or Retain.",
    ),
    # Volumes made for claims, FlexVolume
    "WaitForFirstConsumer": Reason(
        "Normal",
        "claim",
        "No node is chosen yet. That happens with the first pod that uses the claim.",
        "Create the pod.",
    ),
    "Provisioning": Reason("Normal", "claim", "A volume is being made.", _NOTHING),
    "ProvisioningSucceeded": Reason(
        "Normal",
        "claim",
        "The volume has been made.",
        _NOTHING,
    ),
    "ProvisioningFailed": Reason(
        "Warning",
        "claim",
        "No volume was made: the class or the claim asks for something that does not exist, a "
        "pool has a problem, or there is no room. The message says which.",
        "Correct what the message names: the class, the claim or the pool. Only if room is what "
        "is missing, make room or add a pool. It is tried again when something changes.",
    ),
    "Resizing": Reason("Normal", "claim", "The volume is growing.", _NOTHING),
    "VolumeMoved": Reason(
        "Normal",
        "PersistentVolume",
        "`localvolume move-to-csi` has made the object anew, and its agent has taken the volume "
        "over. Pods use it through the CSI driver.",
        "Start the pods.",
    ),
    "VolumeNotMoved": Reason(
        "Warning",
        "PersistentVolume",
        "The object was made anew for the CSI driver, and its agent does not take the volume "
        "over. The message gives the reason. The data stays, and no pod gets it.",
        "If the volume is in use, end the pod that still uses it. If the pool has no record of "
        "it, or a record of another object or claim, do not start the pods; look at what lies "
        "there with `localvolume why <path>`.",
    ),
    "VolumeReleased": Reason(
        "Normal",
        "PersistentVolume",
        "Its claim is gone. The volume is kept for its undoPeriod, which the message states, "
        "whatever becomes of its class meanwhile.",
        "To get it back: `localvolume undo <pv>`, then create the claim again.",
    ),
    "VolumeResizeSuccessful": Reason(
        "Normal",
        "claim",
        "PersistentVolume and claim show the new size.",
        _NOTHING,
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
        "The claim again names the VolumeAttributesClass that its volume has: nothing is changed.",
        _NOTHING,
    ),
    "VolumeModifyFailed": Reason(
        "Warning",
        "claim",
        "The volume was not given what its VolumeAttributesClass says. Nothing of the class is "
        "applied, and the volume serves as before.",
        "If the message says that the class does not exist, create it. If it says that no volume "
        "can have it, name another class in the claim. The agent tries again on its own.",
    ),
    "VolumeLimitsNotKept": Reason(
        "Warning",
        "PersistentVolume",
        "The limits of reading and writing that its VolumeAttributesClass sets are not kept in a "
        "pod that uses the volume. The message gives the reason.",
        "If limits are switched off, switch them on again (`csi.ioLimits`), or name another class"
        " in the claim. Otherwise look at the control group that the message names. The agent "
        "tries again each minute.",
    ),
    "VolumeResizeFailed": Reason(
        "Warning",
        "claim",
        "The volume could not grow. It serves as before, with the size that it has.",
        "Correct what the message names. Only if room is what is missing, make room in its pool "
        "or ask for less: the claim's status then says `ControllerResizeInfeasible`. The agent "
        "tries again.",
    ),
    "VolumeLimitEscaped": Reason(
        "Warning",
        "PersistentVolume",
        "The volume holds something that its limit does not count, such as subvolumes inside a "
        "btrfs volume, or its directory was taken out of its quota project.",
        "Speak with its owner. If you do not trust your tenants, use the backend `image` or `lvm`.",
    ),
    "PoolWarning": Reason(
        "Warning",
        "Node",
        "A pool is well, but not for long: a thin pool fills, or its metadata fills. Or volumes "
        "in it cannot be used, for example after its files were copied.",
        "Extend the thin pool, or remove volumes: [thick and thin](../pools.md#thick-and-thin). "
        "After a copy, see [a pool is restored](../operations.md#a-pool-is-restored-from-a-copy).",
    ),
    "PoolProblem": Reason(
        "Warning",
        "Node",
        "A pool cannot be used, or cannot enforce sizes as it should.",
        "The message has the commands: [what happens when](../pools.md#what-happens-when).",
    ),
    "PoolWarningOver": Reason(
        "Normal",
        "Node",
        "Nothing that a `PoolWarning` said of this pool is so any more.",
        _NOTHING,
    ),
    "PoolProblemOver": Reason(
        "Normal",
        "Node",
        "What a `PoolProblem` said of this pool is over.",
        _NOTHING,
    ),
    "CapacityNotPublished": Reason(
        "Warning",
        "Node",
        "The API server refused the node's CSIStorageCapacity, so the scheduler does not know its"
        " room.",
        "Compare the agent's rights with [Rights](../rights.md).",
    ),
    "CapacityNotPublishedOver": Reason(
        "Normal",
        "Node",
        "What `CapacityNotPublished` said is over.",
        _NOTHING,
    ),
    # The agent as a whole
    "ConfigurationInvalid": Reason(
        "Warning",
        "Node",
        "The ConfigMap is invalid, and the last valid one stays in force. The message names the "
        "keys.",
        "Correct the ConfigMap. `localvolume check-config DIR` checks it.",
    ),
    "ConfigurationChanged": Reason(
        "Normal", "Node", "The configuration is valid again, and in force.", _NOTHING
    ),
    "NodeTaintRemoved": Reason(
        "Normal",
        "Node",
        "All volumes of the node are offered, and the taint of `removeNodeNotReadyTaint` is gone.",
        _NOTHING,
    ),
    "NodeTaintNotRemoved": Reason(
        "Warning",
        "Node",
        "The taint stays: the API server refused to remove it, or the node has another taint of "
        "that key.",
        "Check the agent's right to patch Nodes, or remove the taint by hand.",
    ),
    "CSIRegistrationFailed": Reason(
        "Warning",
        "Node",
        "The kubelet does not accept the agent as the CSI driver, so pods with its volumes wait. "
        "The message has the kubelet's words.",
        "[Look at what it says](../csi.md#when-something-is-wrong). The agent tries again.",
    ),
    "CSIRegistrationFailedOver": Reason(
        "Normal",
        "Node",
        "The kubelet accepts the agent as the CSI driver after all.",
        _NOTHING,
    ),
    # Snapshots
    "SnapshotCreationFailed": Reason(
        "Warning",
        "VolumeSnapshotContent",
        "A snapshot could not be cut. The VolumeSnapshot's status says the same.",
        "Do what the message says; the agent tries again. `localvolume why snapshot/NAME` has the"
        " rest.",
    ),
    "SnapshotContentCheckandUpdateFailed": Reason(
        "Warning",
        "VolumeSnapshotContent",
        "The snapshot no longer exists, or the snapshot for which a content was made by hand was "
        "not found. The VolumeSnapshot may still say that it is ready.",
        "If you made the content by hand, compare `snapshotHandle` with the handle of the "
        "snapshot that was kept: [brought back by its "
        "handle](../snapshots.md#keep-a-snapshot-and-bring-it-back). Otherwise bring back the "
        "pool that had it, or delete the VolumeSnapshot.",
    ),
    "SnapshotDeleteError": Reason(
        "Warning",
        "VolumeSnapshotContent",
        "A snapshot could not be removed. It stays, and so does its object.",
        "Do what the message says; the agent tries again.",
    ),
    "SnapshotReserveFilling": Reason(
        "Warning",
        "VolumeSnapshotContent, VolumeSnapshot",
        "More than 80 % of the reserve of a snapshot is full. Once it is full, the snapshot is "
        "lost; its volume keeps working.",
        "Restore what you need and delete it, or [extend its reserve](../snapshots.md#a-reserve).",
    ),
    "SnapshotLost": Reason(
        "Warning",
        "VolumeSnapshotContent, VolumeSnapshot",
        "The reserve of a snapshot was full: its content is lost, and nothing can be restored "
        "from it. Its volume keeps working.",
        "Delete the VolumeSnapshot, and take another one with a class that has a larger "
        "[`snapshotReserve`](../snapshots.md#a-reserve).",
    ),
    "GroupSnapshotCreationFailed": Reason(
        "Warning",
        "VolumeGroupSnapshotContent",
        "The volumes of a group could not be cut together, and no snapshot of them was left. The "
        "VolumeGroupSnapshot's status says the same.",
        "Do what the message says; the agent tries again. [Which volumes can be cut "
        "together](../snapshots.md#snapshots-of-several-volumes-at-one-moment).",
    ),
    "GroupSnapshotContentCheckandUpdateFailed": Reason(
        "Warning",
        "VolumeGroupSnapshotContent",
        "The group, or some of it, no longer exists; or the group for which a content was made by"
        " hand was not found or has other snapshots.",
        "If you made the content by hand, compare `groupSnapshotHandles` with the handles of the "
        "groups that were kept. Otherwise bring back the pool that had the group, or delete the "
        "VolumeGroupSnapshot.",
    ),
    "GroupSnapshotDeleteError": Reason(
        "Warning",
        "VolumeGroupSnapshotContent",
        "A group of snapshots could not be removed, or not all of it. What is left stays, and so "
        "does its object.",
        "Do what the message says; the agent tries again.",
    ),
    # Lost nodes
    "ReferencedNodeDeleted": Reason(
        "Warning",
        "PersistentVolume, claim, VolumeSnapshotContent",
        "No node is left that could serve the volume. The message says what is done about it, or "
        "what that waits for. On a content: the node that has its snapshot is gone.",
        "Bring the node back, or see [a node is lost](../operations.md#a-node-is-lost). If the "
        "message says that a clock is far ahead, set the clocks right.",
    ),
    "ReferencedNodeReturned": Reason(
        "Normal",
        "PersistentVolume, claim",
        "The node came back before anything was deleted.",
        _NOTHING,
    ),
    "VolumeAbandoned": Reason(
        "Warning",
        "PersistentVolume",
        "The object is removed although nobody cleaned the volume: its node is lost for good.",
        "Destroy or wipe that node's disks: a tenant's data may be on them.",
    ),
    # Raw disks
    "DisksNotApproved": Reason(
        "Normal",
        "Node",
        "Disks were found that match the filters of `disks`. Nothing is done before you approve "
        "that plan.",
        "Look at `localvolume plan` on the node. Add its digest to `disks.approved`, or change "
        "the filters.",
    ),
    "DiskPlanChanged": Reason(
        "Warning",
        "Node",
        "What would be done is not what was approved, so nothing was done.",
        "Look at the plan again, and approve the new one.",
    ),
    "DiskFormatted": Reason(
        "Normal",
        "Node",
        "A disk was made into a volume, as the approved plan says.",
        _NOTHING,
    ),
    "DiskFormatFailed": Reason(
        "Warning",
        "Node",
        "A disk of the approved plan was not made into a volume. The message gives the reason.",
        "Correct what it names. The agent tries again after a while, if the plan is still the "
        "same.",
    ),
    "DiskMounted": Reason(
        "Normal",
        "Node",
        "A disk that was formatted here earlier is mounted again.",
        _NOTHING,
    ),
    "DiskMountFailed": Reason(
        "Warning",
        "Node",
        "A disk that was formatted here earlier could not be mounted again.",
        "Correct what the message names. The agent tries again after a while.",
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
The agent and the controller write these Events on PersistentVolumes, claims and Nodes.
`kubectl describe` shows them, and
`kubectl get events -A --field-selector reason=VolumeFailedDelete` finds them. The same Event on the
same object is counted, not repeated. Events live for an hour: what still holds is reported again,
and metrics report it permanently. The message always gives the reason.
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
