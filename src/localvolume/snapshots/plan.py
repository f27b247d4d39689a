"""The rules for VolumeSnapshotContents: what each needs next on this node, and why. Pure.

They are csi-snapshotter's (pkg/sidecar-controller), but that a node only acts for what is its own,
and that a snapshot stays as long as another content stands for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from localvolume.backends.handles import handle_of
from localvolume.backends.model import FULL_ENDS, WARN_PERCENT
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.classes.parameters import FULL_COPIES, full_copies
from localvolume.dynamic.classes.reserves import RESERVE, Reserve, reserve
from localvolume.kube.snapshotobjects import VolumeSnapshotClass, VolumeSnapshotContent
from localvolume.snapshots.facts import Facts
from localvolume.volumes.snapshots import (
    BEING_CREATED,
    BEING_DELETED,
    FINALIZER,
    RESERVE_ANNOTATION,
    group_of,
    handle_in_status,
    is_ready,
    name_asked_for,
    owner_of,
)

_PREFIX = "csi.storage.k8s.io/"

OF_SIDECAR = frozenset(
    f"{_PREFIX}{name}"
    for name in (
        "snapshotter-secret-name",
        "snapshotter-secret-namespace",
        "snapshotter-list-secret-name",
        "snapshotter-list-secret-namespace",
        "group-snapshotter-secret-name",
        "group-snapshotter-secret-namespace",
        "group-snapshotter-get-secret-name",
        "group-snapshotter-get-secret-namespace",
    )
)
"""Parameters that csi-snapshotter keeps to itself. This driver needs no secrets."""

_KNOWN = OF_SIDECAR | {FULL_COPIES, RESERVE}

FILLING: Final = f"more than {WARN_PERCENT}% of its reserve is full: {FULL_ENDS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """Something to do for a content."""

    content: VolumeSnapshotContent
    reason: str

    @property
    def name(self) -> str:
        """The content's."""
        return self.content.metadata.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Action):
    """Cut the snapshot `handle` of the volume `source`, or find it cut, and tell the content."""

    handle: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Find(Action):
    """Tell the content of the snapshot that somebody says is there, or its status; or that it is
    not."""

    handle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidy(Action):
    """Take away the annotation that says that the snapshot is being cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOn(Action):
    """Write on the content that its snapshot, one of a group, is on this node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove(Action):
    """Remove the snapshot, then let the content go."""

    handle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo(Action):
    """Let the content go. `by_anyone`: it is no node's, and the agents of all nodes see it."""

    by_anyone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TellLost(Action):
    """Say that the content of its snapshot is lost, and that nothing can be made with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TellFill(Action):
    """Write down, and say, that its reserve fills; with `filling` "", that it does not any more."""

    filling: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse(Action):
    """Say on the content why nothing is done for it."""


def plan(facts: Facts) -> list[Action]:
    """At most one action for each content."""
    judged = (judge(facts, content) for content in facts.contents.values())
    return [action for action in judged if action is not None]


def own_contents(facts: Facts) -> Iterable[VolumeSnapshotContent]:
    """The contents whose snapshots are, or will be, on this node."""
    return (one for one in facts.contents.values() if is_served(one) and is_own(facts, one))


def judge(facts: Facts, content: VolumeSnapshotContent) -> Action | None:
    """What the content needs next; None for nothing."""
    if not is_served(content):
        return None
    if group := group_of(content):
        return _of_group(facts, content, group)
    if not is_own(facts, content):
        if not owner_of(content) and is_to_go(content) and _has_nothing(content):
            return _let_go(content, "no node has it, and nothing of it can be anywhere", True)
        return None
    if is_to_go(content):
        return _going(facts, content)
    handle = handle_in_status(content)
    if why := facts.lost.get(handle):
        status = content.status
        told = status is not None and status.error is not None and status.error.message == why
        if not told or is_ready(content):
            return TellLost(content=content, reason=why)
        if BEING_CREATED in content.metadata.annotations:
            return Tidy(content=content, reason="its snapshot is cut, lost and reported")
        return None
    if handle and BEING_CREATED in content.metadata.annotations:
        return Tidy(content=content, reason="its snapshot is cut and reported")
    if is_ready(content):
        is_gone = facts.complete and handle not in facts.snapshots
        return _gone(content, handle) if is_gone else _filling(facts, content)
    return _coming(content)


def _filling(facts: Facts, content: VolumeSnapshotContent) -> Action | None:
    fill = facts.fills.get(handle_in_status(content))
    if fill is None:
        return None
    filling = FILLING if fill >= WARN_PERCENT else ""
    if filling == content.metadata.annotations.get(RESERVE_ANNOTATION, ""):
        return None
    reason = filling or "its reserve has room again"
    return TellFill(content=content, reason=reason, filling=filling)


def is_served(content: VolumeSnapshotContent) -> bool:
    """Whether the driver of its snapshot is ours."""
    source = content.spec.source
    return content.spec.driver == CSI_DRIVER and bool(
        source.volume_handle or source.snapshot_handle
    )


def is_own(facts: Facts, content: VolumeSnapshotContent) -> bool:
    """Whether its snapshot is, or will be, on this node.

    What an agent has written on it counts before what lies here: of a disk that was copied to
    another node, both nodes have the same volumes.
    """
    if owner := owner_of(content):
        return owner == facts.node_key
    source, namespace = content.spec.source, content.spec.volume_snapshot_ref.namespace
    return (namespace, source.volume_handle) in facts.volumes or any(
        handle in facts.snapshots for handle in _handles_of(content)
    )


def is_to_go(content: VolumeSnapshotContent) -> bool:
    """Whether the snapshot-controller, or its absence from an unbound content, lets it go."""
    meta, spec = content.metadata, content.spec
    if not meta.deletion_timestamp:
        return False
    if spec.source.snapshot_handle and not spec.volume_snapshot_ref.uid:
        return True
    # Until the status tells of what may have been cut, nobody would remove that.
    return BEING_CREATED not in meta.annotations and BEING_DELETED in meta.annotations


def fault_of_class(content: VolumeSnapshotContent, found: VolumeSnapshotClass | None) -> str:
    """Why no snapshot can be cut as the content's class says, "" if one can; None: it is gone."""
    name = content.spec.volume_snapshot_class_name
    if fault := fault_of_parameters("VolumeSnapshotClass", name, found, _KNOWN):
        return fault
    try:
        full_copies(found.parameters.get(FULL_COPIES, "refused") if found else "refused")
    except ValueError as error:
        return f"VolumeSnapshotClass {name}: parameter {FULL_COPIES}: {error}"
    try:
        reserve_of(found)
    except ValueError as error:
        return f"VolumeSnapshotClass {name}: parameter {RESERVE}: {error}"
    return ""


def fault_of_parameters(
    kind: str, name: str | None, found: VolumeSnapshotClass | None, known: Collection[str]
) -> str:
    """The same of a class of either kind, but for what its parameters say."""
    if not name:
        return f"it has no {kind}"
    if found is None:
        return f"there is no {kind} {name}"
    if found.driver != CSI_DRIVER:
        return f"{kind} {name} is for driver {found.driver}"
    if unknown := sorted(found.parameters.keys() - set(known)):
        return f"{kind} {name} has parameters that are not known: {', '.join(unknown)}"
    return ""


def allows_full_copies(found: VolumeSnapshotClass | None) -> bool:
    """Whether the class lets all data be copied where it cannot be shared."""
    return found is not None and found.parameters.get(FULL_COPIES) == "allowed"


def reserve_of(found: VolumeSnapshotClass | None) -> Reserve | None:
    """The reserve that snapshots of the class may have. Raises ValueError."""
    said = found.parameters.get(RESERVE) if found is not None else None
    return None if said is None else reserve(said)


# --- one of a group ----------------------------------------------------------------------------


def _of_group(facts: Facts, content: VolumeSnapshotContent, group: str) -> Action | None:
    """Its group's content decides: whose that is cuts and removes them all.

    The snapshot-controller writes its status, as the agent that has the group's content tells it.
    This node says that the snapshot is here, which whoever restores it must know. It does where it
    is that agent itself: another node's may tell of any snapshot. From then on it says how the
    snapshot is.
    """
    owner, source = owner_of(content), content.spec.source
    if owner not in ("", facts.node_key):
        return None
    if is_to_go(content):
        here = owner or is_own(facts, content)
        return _let_go(content, f"it goes with group {group}", by_anyone=not here)
    handle = handle_in_status(content) or source.snapshot_handle or ""
    of = facts.snapshots.get(handle, "")
    told = (content.spec.volume_snapshot_ref.namespace, group) in facts.offered_groups
    here = facts.groups.get(handle) == group and source.volume_handle in (None, of)
    if not owner and told and here:
        return TakeOn(content=content, reason=f"its snapshot, one of group {group}, is here")
    if owner and told and facts.complete and not (is_ready(content) and here):
        return _gone(content, handle)
    return None


# --- what is to be there -----------------------------------------------------------------------


def _coming(content: VolumeSnapshotContent) -> Action:
    source = content.spec.source
    if source.snapshot_handle:
        return Find(
            content=content,
            reason="somebody says that its snapshot is there",
            handle=source.snapshot_handle,
        )
    if not content.spec.volume_snapshot_ref.uid:
        return Refuse(content=content, reason="it names a volume, and is bound to no snapshot")
    handle, said = handle_of(name_asked_for(content)), handle_in_status(content)
    if said and said != handle:
        return Refuse(
            content=content,
            reason=f"its status names snapshot {said}, and its own is {handle}",
        )
    if said:
        # Whatever is cut now is of another moment.
        return _gone(content, said)
    begun = BEING_CREATED in content.metadata.annotations
    return Cut(
        content=content,
        reason="it was begun, and its status does not name it" if begun else "it is asked for",
        handle=handle,
        source=source.volume_handle or "",
    )


def _gone(content: VolumeSnapshotContent, handle: str) -> Find:
    """As after its disk died, or the API server was set back to before its removal."""
    return Find(content=content, reason="its status names it, and it may be gone", handle=handle)


def handle_coming(content: VolumeSnapshotContent) -> str:
    """The handle of the snapshot that is being cut for the content, "" for none."""
    if content.metadata.deletion_timestamp or BEING_CREATED not in content.metadata.annotations:
        return ""
    coming = _coming(content)
    return coming.handle if isinstance(coming, Cut) else ""


# --- what is to go -----------------------------------------------------------------------------


def _going(facts: Facts, content: VolumeSnapshotContent) -> Action | None:
    if content.spec.deletion_policy == "Retain":
        return _let_go(content, "its deletion policy is Retain: the snapshot stays")
    source, handle = content.spec.source.volume_handle, handle_in_status(content)
    if not handle and source and content.spec.volume_snapshot_ref.uid:
        # A cut that failed may have left something.
        handle = handle_of(name_asked_for(content))
    if not handle:
        return _let_go(content, "its status names no snapshot")
    if group := facts.groups.get(handle):
        return _let_go(content, f"it goes with group {group}")
    if source and (cut_of := facts.snapshots.get(handle, source)) != source:
        return Refuse(
            content=content,
            reason=f"snapshot {handle} is of volume {cut_of}, and not of its own, {source}",
        )
    if others := sorted(_others(facts, content, handle)):
        return _let_go(content, f"{', '.join(others)} has the same snapshot, which stays")
    return Remove(content=content, reason="its deletion policy is Delete", handle=handle)


def _others(facts: Facts, content: VolumeSnapshotContent, handle: str) -> Iterable[str]:
    """The names of other contents that stand for the snapshot."""
    for name, other in facts.contents.items():
        if (
            other is not content
            and is_served(other)
            and handle in _handles_of(other)
            and not other.metadata.deletion_timestamp
        ):
            yield name


def _handles_of(content: VolumeSnapshotContent) -> list[str]:
    """The handles of the snapshots that it may stand for."""
    source, said = content.spec.source, handle_in_status(content)
    found = [handle for handle in (said, source.snapshot_handle) if handle]
    if source.volume_handle and content.spec.volume_snapshot_ref.uid:
        found.append(handle_of(name_asked_for(content)))
    return found


def _has_nothing(content: VolumeSnapshotContent) -> bool:
    """Whether no snapshot can go with it: none was begun, or it is kept anyway.

    A node writes its key on a content before it cuts a snapshot.
    """
    if content.spec.deletion_policy == "Retain":
        return True
    return not handle_in_status(content) and not content.spec.source.snapshot_handle


def _let_go(content: VolumeSnapshotContent, reason: str, by_anyone: bool = False) -> LetGo | None:
    if FINALIZER not in content.metadata.finalizers:
        return None
    return LetGo(content=content, reason=reason, by_anyone=by_anyone)
