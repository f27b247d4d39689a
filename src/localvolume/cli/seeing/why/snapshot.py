"""Why a snapshot of our CSI driver is as it is: pure. The first rule to answer is the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.kinds import CONTENTS, SeenContent
from localvolume.cli.seeing.status.snapshots import (
    cut_at,
    handle_of_content,
    node_of_content,
    snapshot_of_content,
    source_of,
    state_of_content,
    unfit,
)
from localvolume.cli.seeing.status.states import agent_of
from localvolume.cli.seeing.why.explanation import Explanation, Verdict
from localvolume.cli.seeing.words import age, size
from localvolume.volumes.snapshots import (
    BEING_CREATED,
    BEING_DELETED,
    RESERVE_ANNOTATION,
    group_of,
    handle_in_status,
    is_ready,
    owner_of,
)


def contents_named(facts: Facts, name: str, namespace: str) -> Sequence[SeenContent]:
    """The contents that somebody means by that name: of the object, of its VolumeSnapshot in the
    namespace, or of what lies in the pool."""
    return [
        one
        for one in (facts.contents or {}).values()
        if name in (one.metadata.name, handle_of_content(one))
        or snapshot_of_content(one) == f"{namespace}/{name}"
    ]


def why_snapshot(facts: Facts, content: SeenContent) -> Explanation:
    """The verdict, and what it rests on."""
    verdict = next(answer for rule in RULES if (answer := rule(facts, content)))
    return Explanation(
        about=f"snapshotcontent/{content.metadata.name}",
        verdict=verdict,
        chain=chain(facts, content),
        events=facts.events_about(CONTENTS.kind, content),
    )


def going(facts: Facts, content: SeenContent) -> Verdict | None:
    """The verdict on a snapshot that is being deleted."""
    meta, spec = content.metadata, content.spec
    if not meta.deletion_timestamp:
        return None
    snapshot = snapshot_of_content(content) or "its VolumeSnapshot"
    if BEING_CREATED in meta.annotations:
        text = "it is being deleted, and a snapshot may have been cut of which it does not tell yet"
        then = "the agent finds out, and then lets it go"
        return _by_agent(facts, content, "deleting-begun", text, then)
    if BEING_DELETED not in meta.annotations and spec.volume_snapshot_ref.uid:
        text = f"it is being deleted, and {snapshot} still has it"
        who = f"the snapshot-controller, once {snapshot} goes"
        return Verdict(code="deleting-held", text=text, then="it goes with that", who=who)
    if spec.deletion_policy == "Retain":
        text = "it is being deleted, and its deletion policy is Retain: the snapshot stays"
        then = "the agent lets the object go; its handle is what finds the snapshot again"
        return _by_agent(facts, content, "letting-go", text, then)
    if why := state_of_content(content).why:
        text = f"it is being deleted, and the agent said: {why}"
    else:
        text = "it is being deleted, and its deletion policy is Delete: its snapshot is removed"
    return _by_agent(facts, content, "deleting", text, "the object goes once the snapshot has")


def ready(facts: Facts, content: SeenContent) -> Verdict | None:
    """The verdict on a snapshot that is cut and told of."""
    if not is_ready(content):
        return None
    at = cut_at(content)
    when = f", {age(facts.now, at)} ago" if at else ""
    node = node_of_content(facts, content)
    text = f"it is cut{when}, and volumes can be restored from it"
    then = f"it stays on {node or 'its node'} until it is deleted, also without its volume"
    if said := content.metadata.annotations.get(RESERVE_ANNOTATION):
        who = "you: restore from it and delete it, or extend its reserve"
        return Verdict(code="filling", text=f"{text}; {said}", then="it is lost then", who=who)
    return Verdict(code="ready", text=text, then=then)


def failed(_facts: Facts, content: SeenContent) -> Verdict | None:
    """The verdict on a snapshot that could not be cut, or is lost."""
    state = state_of_content(content)
    if state.word != "failed":
        return None
    text = f"it {unfit(content)}: {state.why or 'nobody said why'}"
    if handle_in_status(content):
        then, who = "nothing brings it back", "you: delete the VolumeSnapshot"
        return Verdict(code="lost", text=text, then=then, who=who)
    who = "you: put that right, or delete the VolumeSnapshot"
    return Verdict(code="failed", text=text, then="the agent tries again, less and less often",
                   who=who)  # fmt: skip


def begun(facts: Facts, content: SeenContent) -> Verdict | None:
    """The verdict on a snapshot that an agent has taken on."""
    if not owner_of(content):
        return None
    return _by_agent(facts, content, "cutting", "it is being cut", "its status tells once it is")


def not_taken(facts: Facts, content: SeenContent) -> Verdict | None:
    """The verdict on a snapshot that no agent has taken on yet."""
    handle, source = content.spec.source.volume_handle, source_of(facts, content)
    if handle and source is None and facts.volumes is not None:
        text = f"no PersistentVolume has the handle {handle}: there is nothing to cut it of"
        who = "you: delete the VolumeSnapshot"
        then = "nothing, unless a node has that volume"
        return Verdict(code="no-volume", text=text, then=then, who=who)
    if not handle and not node_of_content(facts, content):
        text = f"no node says that it has the snapshot {handle_of_content(content)}"
        then = "the agent that has it tells, once it finds it in its pools"
        who = "you: compare the handle with the one that was retained"
        return Verdict(code="not-found", text=text, then=then, who=who)
    text = "no agent has taken it on yet"
    return _by_agent(facts, content, "waiting", text, "the agent of its volume cuts it")


RULES: tuple[Callable[[Facts, SeenContent], Verdict | None], ...] = (
    going,
    ready,
    failed,
    begun,
    not_taken,
)


def _by_agent(facts: Facts, content: SeenContent, code: str, text: str, then: str) -> Verdict:
    """What the agent is to do; if that is not running, it is what the verdict is about."""
    return by_agent_of(facts, node_of_content(facts, content), code, text, then)


def by_agent_of(facts: Facts, node: str, code: str, text: str, then: str) -> Verdict:
    """What the agent of a node is to do, "" while none is known; see above."""
    agent = agent_of(facts, node)
    if not node or agent.state not in ("missing", "not ready"):
        return Verdict(code=code, text=text, then=then, who="nobody: the agent does it")
    text = f"{text}; the agent of {node} is {agent.state}: {agent.why}"
    return Verdict(code="no-agent", text=text, then=then, who=f"you: get the agent of {node} going")


def chain(facts: Facts, content: SeenContent) -> list[tuple[str, str]]:
    """What is known of it, from the VolumeSnapshot down to what lies in the pool."""
    spec, status = content.spec, content.status
    volume = source_of(facts, content)
    of = spec.source.volume_handle or ""
    if of and volume is None and facts.volumes is not None:
        of += " (gone; the snapshot does not need it)" if is_ready(content) else " (gone)"
    elif volume is not None and (ref := volume.spec.claim_ref):
        of += f", of the claim {ref.namespace}/{ref.name}"
    restores = status.restore_size if status is not None else None
    found = [
        ("VolumeSnapshot", snapshot_of_content(content)),
        ("Class", spec.volume_snapshot_class_name or ""),
        ("Deletion policy", spec.deletion_policy),
        ("Of volume", of),
        ("Node", node_of_content(facts, content)),
        ("Handle", handle_of_content(content)),
        ("One of the group", group_of(content)),
        ("Cut", cut_at(content) or ""),
        ("Restores to", size(restores) if restores is not None else ""),
    ]
    return [(name, value) for name, value in found if value]
