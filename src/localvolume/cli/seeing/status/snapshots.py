"""The snapshots of our CSI driver as VolumeSnapshotContents tell of them: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from localvolume.cli.seeing.facts import Facts, moment
from localvolume.cli.seeing.kinds import SeenContent
from localvolume.cli.seeing.status.states import State
from localvolume.controller.plan.copies import MANAGED_BY_LABEL
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.snapshotobjects import VolumeSnapshotContent
from localvolume.volumes.moments import written
from localvolume.volumes.objects import is_csi
from localvolume.volumes.snapshots import (
    RESERVE_ANNOTATION,
    AnyContent,
    group_of,
    handle_in_status,
    is_ready,
    owner_of,
)

SNAPSHOT_STATES: Final = ("waiting", "failed", "ready", "deleting")
"""Each snapshot is in exactly one, as the metric localvolume_snapshot_contents counts them."""

LATE_SECONDS: Final = 300.0
"""Neither cutting nor removing a snapshot takes that long where nothing is wrong."""

Shape = dict[str, Any]


def state_of_content(content: AnyContent) -> State:
    """The word, and what the agent says of it."""
    error = content.status.error if content.status is not None else None
    why = (error.message or "") if error is not None else ""
    if content.metadata.deletion_timestamp:
        return State("deleting", why)
    if is_ready(content):
        return State("ready")
    return State("failed", why) if error is not None else State("waiting")


def source_of(facts: Facts, content: SeenContent) -> PersistentVolume | None:
    """The PersistentVolume that it is a snapshot of, if that is still there."""
    return volume_with(facts, content.spec.source.volume_handle or "")


def volume_with(facts: Facts, handle: str) -> PersistentVolume | None:
    """The PersistentVolume of our driver that has that handle."""
    for volume in (facts.volumes or {}).values():
        csi = volume.spec.csi
        if handle and csi is not None and is_csi(volume) and csi.volume_handle == handle:
            return volume
    return None


def node_of_owner(facts: Facts, key: str) -> str:
    """The name of the node whose agent has written its key on a content."""
    node = facts.known_nodes.by_key(key)
    return node.metadata.name if node else key


def node_of_content(facts: Facts, content: SeenContent) -> str:
    """The node that has the snapshot or is to have it, as far as objects say; or ""."""
    if key := owner_of(content):
        return node_of_owner(facts, key)
    volume = source_of(facts, content)
    if volume is not None and (name := facts.node_of(volume)):
        return name
    return content.metadata.labels.get(MANAGED_BY_LABEL, "")


def handle_of_content(content: SeenContent) -> str:
    """The handle of its snapshot, "" while none is known."""
    return handle_in_status(content) or content.spec.source.snapshot_handle or ""


def snapshot_of_content(content: SeenContent) -> str:
    """`namespace/name` of its VolumeSnapshot."""
    ref = content.spec.volume_snapshot_ref
    return f"{ref.namespace}/{ref.name}" if ref.name else ""


def cut_at(content: SeenContent) -> str | None:
    """When it was cut (RFC 3339), None if the content does not say."""
    at = content.status.creation_time if content.status is not None else None
    return written(at / 1e9) if at else None


def contents_of(facts: Facts, only: str = "") -> Sequence[SeenContent]:
    """In the order of nodes and names; of one node, those that are or will be there."""
    found = sorted(
        (facts.contents or {}).values(),
        key=lambda one: (node_of_content(facts, one), one.metadata.name),
    )
    return [one for one in found if not only or node_of_content(facts, one) == only]


def snapshot_shape(facts: Facts, content: SeenContent) -> Shape:
    """One snapshot, as `status` and `why` show it."""
    state, status = state_of_content(content), content.status
    return {
        "name": content.metadata.name,
        "snapshot": snapshot_of_content(content),
        "handle": handle_of_content(content),
        "volumeHandle": content.spec.source.volume_handle or "",
        "groupHandle": group_of(content),
        "node": node_of_content(facts, content),
        "state": state.word,
        "reason": state.why,
        "restoreSizeBytes": status.restore_size if status is not None else None,
        "cut": cut_at(content),
        "deletionPolicy": content.spec.deletion_policy,
        "snapshotClass": content.spec.volume_snapshot_class_name or "",
        "created": content.metadata.creation_timestamp,
        "deleting": content.metadata.deletion_timestamp,
    }


def problems_of_snapshots(facts: Facts, only: str = "") -> Iterator[tuple[str, str, str, str]]:
    """What is wrong with snapshots: about what, on which node, what, and what to do."""
    for content in contents_of(facts, only):
        if text := what_is_wrong(facts, content, "the snapshot"):
            about = f"snapshotcontent/{content.metadata.name}"
            yield about, node_of_content(facts, content), text, f"localvolume why {about}"


def unfit(content: AnyContent) -> str:
    """What is so of one that is not ready, though the agent has seen to it."""
    was_cut = isinstance(content, VolumeSnapshotContent) and bool(handle_in_status(content))
    return "cannot be used" if was_cut else "is not cut"


def what_is_wrong(facts: Facts, content: AnyContent, what: str) -> str:
    """Why somebody should look at it, "" if nobody need; `what` it stands for."""
    state = state_of_content(content)
    if state.word == "failed":
        return f"{what} {unfit(content)}: {state.why}"
    if state.word == "ready" and (said := content.metadata.annotations.get(RESERVE_ANNOTATION)):
        return said
    begun = content.metadata.deletion_timestamp or content.metadata.creation_timestamp
    since = moment(begun)
    if state.word == "ready" or since is None or facts.now - since < LATE_SECONDS:
        return ""
    done = "removed" if state.word == "deleting" else "cut"
    return f"{what} is not {done}{f': {state.why}' if state.why else ', and nothing says why'}"
