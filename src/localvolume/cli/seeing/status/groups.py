"""The groups of snapshots of our CSI driver as VolumeGroupSnapshotContents tell of them: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.status.snapshots import (
    Shape,
    node_of_owner,
    state_of_content,
    volume_with,
    what_is_wrong,
)
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent
from localvolume.volumes.snapshots import group_in_status, owner_of


def node_of_group(facts: Facts, content: VolumeGroupSnapshotContent) -> str:
    """The node that has the group or is to have it, as far as objects say; or ""."""
    if key := owner_of(content):
        return node_of_owner(facts, key)
    # The agent of the first volume cuts it, or says why that cannot be.
    for handle in content.spec.source.volume_handles[:1]:
        volume = volume_with(facts, handle)
        return facts.node_of(volume) if volume is not None else ""
    return ""


def handle_of_group(content: VolumeGroupSnapshotContent) -> str:
    """The handle of the group, "" while none is known."""
    there = content.spec.source.group_snapshot_handles
    return group_in_status(content) or (there.volume_group_snapshot_handle if there else "")


def group_snapshot_of(content: VolumeGroupSnapshotContent) -> str:
    """`namespace/name` of its VolumeGroupSnapshot."""
    ref = content.spec.volume_group_snapshot_ref
    return f"{ref.namespace}/{ref.name}" if ref.name else ""


def snapshots_in(content: VolumeGroupSnapshotContent) -> Sequence[str]:
    """The handles of its snapshots, as far as it tells of them."""
    told = content.status.volume_snapshot_info_list if content.status is not None else ()
    there = content.spec.source.group_snapshot_handles
    return [one.snapshot_handle for one in told] or (there.volume_snapshot_handles if there else ())


def groups_of(facts: Facts, only: str = "") -> Sequence[VolumeGroupSnapshotContent]:
    """In the order of nodes and names; of one node, those that are or will be there."""
    found = sorted(
        (facts.groups or {}).values(),
        key=lambda one: (node_of_group(facts, one), one.metadata.name),
    )
    return [one for one in found if not only or node_of_group(facts, one) == only]


def group_shape(facts: Facts, content: VolumeGroupSnapshotContent) -> Shape:
    """One group, as `status` shows it."""
    state, spec = state_of_content(content), content.spec
    return {
        "name": content.metadata.name,
        "groupSnapshot": group_snapshot_of(content),
        "handle": handle_of_group(content),
        "volumeHandles": list(spec.source.volume_handles),
        "snapshotHandles": list(snapshots_in(content)),
        "node": node_of_group(facts, content),
        "state": state.word,
        "reason": state.why,
        "deletionPolicy": spec.deletion_policy,
        "groupSnapshotClass": spec.volume_group_snapshot_class_name or "",
        "created": content.metadata.creation_timestamp,
        "deleting": content.metadata.deletion_timestamp,
    }


def problems_of_groups(facts: Facts, only: str = "") -> Iterator[tuple[str, str, str, str]]:
    """What is wrong with groups: about what, on which node, what, and what to do."""
    for content in groups_of(facts, only):
        if text := what_is_wrong(facts, content, "the group of snapshots"):
            about = f"groupsnapshotcontent/{content.metadata.name}"
            yield about, node_of_group(facts, content), text, f"localvolume why {about}"
