"""Why a group of snapshots of our CSI driver is as it is: pure. The first rule is the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.status.groups import (
    group_snapshot_of,
    handle_of_group,
    node_of_group,
    snapshots_in,
)
from localvolume.cli.seeing.status.snapshots import state_of_content, volume_with
from localvolume.cli.seeing.why.explanation import Explanation, Verdict
from localvolume.cli.seeing.why.snapshot import by_agent_of
from localvolume.kube.kinds import GROUP_CONTENTS
from localvolume.kube.snapshotobjects import VolumeGroupSnapshotContent as Content
from localvolume.volumes.snapshots import (
    GROUP_BEING_CREATED,
    GROUP_BEING_DELETED,
    group_in_status,
    is_ready,
    owner_of,
)


def groups_named(facts: Facts, name: str, namespace: str) -> Sequence[Content]:
    """The contents that somebody means by that name: of the object, of its VolumeGroupSnapshot in
    the namespace, or of the group itself."""
    return [
        one
        for one in (facts.groups or {}).values()
        if name in (one.metadata.name, handle_of_group(one))
        or group_snapshot_of(one) == f"{namespace}/{name}"
    ]


def why_group(facts: Facts, content: Content) -> Explanation:
    """The verdict, and what it rests on."""
    verdict = next(answer for rule in RULES if (answer := rule(facts, content)))
    return Explanation(
        about=f"groupsnapshotcontent/{content.metadata.name}",
        verdict=verdict,
        chain=chain(facts, content),
        events=facts.events_about(GROUP_CONTENTS.kind, content),
    )


def going(facts: Facts, content: Content) -> Verdict | None:
    """The verdict on a group that is being deleted."""
    meta, spec = content.metadata, content.spec
    if not meta.deletion_timestamp:
        return None
    snapshot = group_snapshot_of(content) or "its VolumeGroupSnapshot"
    if GROUP_BEING_CREATED in meta.annotations:
        text = "it is being deleted, and a group may have been cut of which it does not tell yet"
        then = "the agent finds out, and then lets it go"
        return _by_agent(facts, content, "deleting-begun", text, then)
    if GROUP_BEING_DELETED not in meta.annotations and spec.volume_group_snapshot_ref.uid:
        text = f"it is being deleted, and {snapshot} still has it"
        who = f"the snapshot-controller, once {snapshot} goes"
        return Verdict(code="deleting-held", text=text, then="it goes with that", who=who)
    if spec.deletion_policy == "Retain":
        text = "it is being deleted, and its deletion policy is Retain: the group stays"
        then = "the agent lets the object go; its handle is what finds the group again"
        return _by_agent(facts, content, "letting-go", text, then)
    if why := state_of_content(content).why:
        text = f"it is being deleted, and the agent said: {why}"
    else:
        text = "it is being deleted, and its deletion policy is Delete: its snapshots are removed"
    return _by_agent(facts, content, "deleting", text, "the object goes once all of them have")


def ready(facts: Facts, content: Content) -> Verdict | None:
    """The verdict on a group that is cut and told of."""
    if not is_ready(content):
        return None
    text = "it is cut, and volumes can be restored from each of its snapshots"
    then = f"it stays on {node_of_group(facts, content) or 'its node'} until it is deleted"
    return Verdict(code="ready", text=text, then=then)


def failed(_facts: Facts, content: Content) -> Verdict | None:
    """The verdict on a group that could not be cut."""
    state = state_of_content(content)
    if state.word != "failed":
        return None
    is_said = group_in_status(content) or content.spec.source.group_snapshot_handles is not None
    text = f"it is not {'found' if is_said else 'cut'}: {state.why or 'nobody said why'}"
    who = "you: put that right, or delete the VolumeGroupSnapshot"
    return Verdict(code="failed", text=text, then="the agent tries again, less and less often",
                   who=who)  # fmt: skip


def begun(facts: Facts, content: Content) -> Verdict | None:
    """The verdict on a group that an agent has taken on."""
    if not owner_of(content):
        return None
    return _by_agent(facts, content, "cutting", "it is being cut", "its status tells once it is")


def not_taken(facts: Facts, content: Content) -> Verdict | None:
    """The verdict on a group that no agent has taken on yet."""
    handles = content.spec.source.volume_handles
    if not handles:
        text = f"no node says that it has the group {handle_of_group(content)}"
        then = "the agent that has it tells, once it finds it in its pools"
        who = "you: compare the handle with the one that was retained"
        return Verdict(code="not-found", text=text, then=then, who=who)
    if facts.volumes is not None and volume_with(facts, handles[0]) is None:
        text = f"no PersistentVolume has the handle {handles[0]}: nothing can be cut of it"
        who = "you: delete the VolumeGroupSnapshot"
        then = "nothing, unless a node has that volume"
        return Verdict(code="no-volume", text=text, then=then, who=who)
    then = "the agent of its first volume cuts it, or says why that cannot be"
    return _by_agent(facts, content, "waiting", "no agent has taken it on yet", then)


RULES: tuple[Callable[[Facts, Content], Verdict | None], ...] = (
    going,
    ready,
    failed,
    begun,
    not_taken,
)


def _by_agent(facts: Facts, content: Content, code: str, text: str, then: str) -> Verdict:
    return by_agent_of(facts, node_of_group(facts, content), code, text, then)


def chain(facts: Facts, content: Content) -> list[tuple[str, str]]:
    """What is known of it, from the VolumeGroupSnapshot down to its snapshots."""
    spec = content.spec
    found = [
        ("VolumeGroupSnapshot", group_snapshot_of(content)),
        ("Class", spec.volume_group_snapshot_class_name or ""),
        ("Deletion policy", spec.deletion_policy),
        *(("Of volume", _volume(facts, handle)) for handle in spec.source.volume_handles),
        ("Node", node_of_group(facts, content)),
        ("Handle", handle_of_group(content)),
        ("Snapshots", ", ".join(snapshots_in(content))),
    ]
    return [(name, value) for name, value in found if value]


def _volume(facts: Facts, handle: str) -> str:
    volume = volume_with(facts, handle)
    if volume is None:
        return handle if facts.volumes is None else f"{handle} (gone)"
    ref = volume.spec.claim_ref
    return f"{handle}, of the claim {ref.namespace}/{ref.name}" if ref else handle
