"""The rules for VolumeGroupSnapshotContents: what each needs next on this node, and why. Pure.

They are csi-snapshotter's (pkg/sidecar-controller/groupsnapshot_helper.go), but that a node only
acts for what is its own: the node of the first volume, which also says why a group cannot be cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from localvolume.backends.handles import handle_of
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotClass, VolumeGroupSnapshotContent
from localvolume.snapshots.groups.facts import Facts
from localvolume.snapshots.plan import OF_SIDECAR, fault_of_parameters
from localvolume.snapshots.plan import is_to_go as is_single_to_go
from localvolume.volumes.snapshots import (
    GROUP_BEING_CREATED,
    GROUP_BEING_DELETED,
    GROUP_FINALIZER,
    group_in_status,
    is_ready,
    owner_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something to do for a content."""

    content: VolumeGroupSnapshotContent
    reason: str

    @property
    def name(self) -> str:
        """The content's."""
        return self.content.metadata.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Action):
    """Cut the group `handle` of those volumes, or find it cut, and tell the content."""

    handle: str
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Find(Action):
    """Tell the content of the group that somebody says is there, or its status, with those
    snapshots; or that it is not."""

    handle: str
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidy(Action):
    """Take away the annotation that says that the group is being cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove(Action):
    """Remove the group, which has those snapshots, then let the content go."""

    handle: str
    snapshots: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo(Action):
    """Let the content go. `by_anyone`: it is no node's, and the agents of all nodes see it."""

    by_anyone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse(Action):
    """Say on the content why nothing is done for it."""


def plan(facts: Facts) -> list[Action]:
    """At most one action for each content."""
    judged = (judge(facts, content) for content in facts.contents.values())
    return [action for action in judged if action is not None]


def own_contents(facts: Facts) -> Iterable[VolumeGroupSnapshotContent]:
    """The contents whose groups are, or will be, on this node."""
    return (one for one in facts.contents.values() if is_served(one) and is_own(facts, one))


def judge(facts: Facts, content: VolumeGroupSnapshotContent) -> Action | None:
    """What the content needs next; None for nothing."""
    if not is_served(content):
        return None
    if not is_own(facts, content):
        if not owner_of(content) and is_to_go(content) and _has_nothing(content):
            return _let_go(content, "no node has it, and nothing of it can be anywhere", True)
        return None
    if is_to_go(content):
        return _going(facts, content)
    handle = group_in_status(content)
    if handle and GROUP_BEING_CREATED in content.metadata.annotations:
        return Tidy(content=content, reason="its group is cut and reported")
    if is_ready(content):
        there = facts.groups.get(handle, frozenset())
        is_lost = facts.complete and not there.issuperset(_told(content))
        return _lost(content) if is_lost else None
    return _coming(facts, content)


def is_served(content: VolumeGroupSnapshotContent) -> bool:
    """Whether the driver of its group is ours."""
    source = content.spec.source
    named = bool(source.volume_handles) or source.group_snapshot_handles is not None
    return content.spec.driver == CSI_DRIVER and named


def is_own(facts: Facts, content: VolumeGroupSnapshotContent) -> bool:
    """Whether its group is, or will be, on this node; what an agent has written on it counts."""
    if owner := owner_of(content):
        return owner == facts.node_key
    handles, namespace = content.spec.source.volume_handles, _namespace_of(content)
    if handles and (namespace, handles[0]) in facts.volumes:
        return True
    return any(handle in facts.groups for handle in _handles_of(content))


def is_to_go(content: VolumeGroupSnapshotContent) -> bool:
    """Whether the snapshot-controller, or its absence from an unbound content, lets it go."""
    meta, spec = content.metadata, content.spec
    if not meta.deletion_timestamp:
        return False
    if spec.source.group_snapshot_handles and not spec.volume_group_snapshot_ref.uid:
        return True
    # Until the status tells of what may have been cut, nobody would remove that.
    return GROUP_BEING_CREATED not in meta.annotations and GROUP_BEING_DELETED in meta.annotations


def fault_of_class(
    content: VolumeGroupSnapshotContent, found: VolumeGroupSnapshotClass | None
) -> str:
    """Why no group can be cut as the content's class says, "" if one can; None: it is gone."""
    name = content.spec.volume_group_snapshot_class_name
    return fault_of_parameters("VolumeGroupSnapshotClass", name, found, OF_SIDECAR)


# --- what is to be there -----------------------------------------------------------------------


def _coming(facts: Facts, content: VolumeGroupSnapshotContent) -> Action:
    source = content.spec.source
    if there := source.group_snapshot_handles:
        return Find(
            content=content,
            reason="somebody says that its group is there",
            handle=there.volume_group_snapshot_handle,
            snapshots=there.volume_snapshot_handles,
        )
    if not content.spec.volume_group_snapshot_ref.uid:
        return Refuse(content=content, reason="it names volumes, and is bound to no group snapshot")
    handle, said = _own_handle(content), group_in_status(content)
    if said and said != handle:
        return Refuse(
            content=content, reason=f"its status names group {said}, and its own is {handle}"
        )
    if said:
        # Whatever is cut now is of another moment.
        return _lost(content)
    begun = GROUP_BEING_CREATED in content.metadata.annotations
    if not begun and handle not in facts.groups and (others := _elsewhere(facts, content)):
        return Refuse(
            content=content,
            reason=f"node {facts.node_key} has no PersistentVolume of {', '.join(others)} for a"
            f" claim of namespace {_namespace_of(content)}: the volumes of a group must be on one"
            " node",
        )
    return Cut(
        content=content,
        reason="it was begun, and its status does not name it" if begun else "it is asked for",
        handle=handle,
        sources=source.volume_handles,
    )


def _lost(content: VolumeGroupSnapshotContent) -> Find:
    """As after its disk died, or the API server was set back to before its removal."""
    return Find(
        content=content,
        reason="its status names it, and it may be gone",
        handle=group_in_status(content),
        snapshots=_told(content),
    )


def _elsewhere(facts: Facts, content: VolumeGroupSnapshotContent) -> list[str]:
    """Those of its volumes that no claim of its namespace has on this node.

    A volume that lies here all the same is somebody else's.
    """
    namespace = _namespace_of(content)
    handles = content.spec.source.volume_handles
    return [one for one in handles if (namespace, one) not in facts.volumes]


# --- what is to go -----------------------------------------------------------------------------


def _going(facts: Facts, content: VolumeGroupSnapshotContent) -> Action | None:
    if content.spec.deletion_policy == "Retain":
        return _let_go(content, "its deletion policy is Retain: the group stays")
    source, handle = content.spec.source, group_in_status(content)
    if not handle and source.volume_handles and content.spec.volume_group_snapshot_ref.uid:
        # A cut that failed may have left something.
        handle = _own_handle(content)
    if not handle:
        return _let_go(content, "its status names no group")
    if others := sorted(_others(facts, content, handle)):
        return _let_go(content, f"{', '.join(others)} has the same group, which stays")
    told = _told(content)
    there = facts.groups.get(handle, frozenset())
    if users := sorted(_users(facts, content, there.union(told))):
        return Refuse(
            content=content,
            reason=f"{', '.join(users)} offers a snapshot of it elsewhere: delete that first",
        )
    snapshots = told or tuple(sorted(there))
    return Remove(
        content=content, reason="its deletion policy is Delete", handle=handle, snapshots=snapshots
    )


def _told(content: VolumeGroupSnapshotContent) -> tuple[str, ...]:
    """The handles of the group's snapshots, as far as they are told of."""
    status, named = content.status, content.spec.source.group_snapshot_handles
    told = tuple(one.snapshot_handle for one in status.volume_snapshot_info_list) if status else ()
    return told or (named.volume_snapshot_handles if named else ())


def _others(facts: Facts, content: VolumeGroupSnapshotContent, handle: str) -> Iterable[str]:
    """The names of other contents that stand for the group."""
    for name, other in facts.contents.items():
        if (
            other is not content
            and is_served(other)
            and handle in _handles_of(other)
            and not other.metadata.deletion_timestamp
        ):
            yield name


def _users(
    facts: Facts, content: VolumeGroupSnapshotContent, snapshots: Iterable[str]
) -> Iterable[str]:
    """The names of the contents that offer one of those snapshots in another namespace.

    The snapshot-controller gives those in its own namespace to the group, and lets nobody delete
    them before it.
    """
    own = _namespace_of(content)
    for handle in snapshots:
        for single in facts.offered.get(handle, ()):
            if single.spec.volume_snapshot_ref.namespace != own and not is_single_to_go(single):
                yield single.metadata.name


def _namespace_of(content: VolumeGroupSnapshotContent) -> str:
    """The namespace whose group it is."""
    return content.spec.volume_group_snapshot_ref.namespace


def _own_handle(content: VolumeGroupSnapshotContent) -> str:
    """The handle of the group that is cut for it."""
    return handle_of(f"groupsnapshot-{content.spec.volume_group_snapshot_ref.uid}")


def _handles_of(content: VolumeGroupSnapshotContent) -> list[str]:
    """The handles of the groups that it may stand for."""
    source = content.spec.source
    there = source.group_snapshot_handles
    said = [group_in_status(content), there.volume_group_snapshot_handle if there else ""]
    if source.volume_handles and content.spec.volume_group_snapshot_ref.uid:
        said.append(_own_handle(content))
    return [handle for handle in said if handle]


def _has_nothing(content: VolumeGroupSnapshotContent) -> bool:
    """Whether no group can go with it: none was begun, or it is kept anyway."""
    if content.spec.deletion_policy == "Retain":
        return True
    return not group_in_status(content) and content.spec.source.group_snapshot_handles is None


def _let_go(
    content: VolumeGroupSnapshotContent, reason: str, by_anyone: bool = False
) -> LetGo | None:
    if GROUP_FINALIZER not in content.metadata.finalizers:
        return None
    return LetGo(content=content, reason=reason, by_anyone=by_anyone)
