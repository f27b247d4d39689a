"""The rows of `localvolume plan` for VolumeSnapshotContents and those of groups.

What is due for a content is the snapshots' roles' own plan; whether it can be done is what the
plan for the pools answers to the call that the role would make.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from localvolume.cli.planning.facts import Read
from localvolume.cli.planning.rows import VERDICTS
from localvolume.dynamic.called import Calls
from localvolume.dynamic.model import (
    AnswerCall,
    Call,
    CutGroupCall,
    Plan,
    RemoveCall,
    RemoveGroupCall,
    SnapshotCall,
)
from localvolume.dynamic.plan.calls.groups import group_key
from localvolume.dynamic.pools import Pools
from localvolume.host.process.workers import Workers
from localvolume.kube.client import Client
from localvolume.kube.errors import NotThere
from localvolume.kube.kinds import GROUP_CLASSES, SNAPSHOT_CLASSES, Kind, T
from localvolume.snapshots import plan as single
from localvolume.snapshots.facts import gather
from localvolume.snapshots.groups import plan as group
from localvolume.snapshots.groups.facts import gather as gather_groups
from localvolume.volumes import marks

WORDS: Final = {
    "Find": "tell",
    "TellLost": "tell",
    "TellFill": "tell",
    "Tidy": "record",
    "TakeOn": "record",
    "LetGo": "let go",
    "Refuse": "refuse",
}


@dataclass(frozen=True, slots=True)
class Due:
    """What is due for one content: what its role would ask of the pools, or a verdict already."""

    action: single.Action | group.Action
    call: Call | None = None
    verdict: str = ""
    reason: str = ""


async def due(client: Client, read: Read) -> list[Due]:
    """Raises ApiError."""
    if not read.driver:
        return []
    workers = Workers()
    try:
        calls = Calls(Pools(workers), lambda: None, read.facts.volumes)
        calls.looking()
        calls.seen(read.facts)
        key, objects = marks.node_key(read.facts.node.name), read.facts.volumes.values()
        contents = {one.metadata.name: one for one in read.contents}
        facts = gather(key, contents, objects, calls, read.groups)
        found = [await _single(client, facts.snapshots, one) for one in single.plan(facts)]
        groups = {one.metadata.name: one for one in read.groups}
        of_groups = gather_groups(key, groups, objects, calls, read.contents)
        found += [await _group(client, of_groups.groups, one) for one in group.plan(of_groups)]
        return found
    finally:
        workers.close()


async def _single(client: Client, there: Mapping[str, str], action: single.Action) -> Due:
    match action:
        case single.Cut():
            name = action.content.spec.volume_snapshot_class_name
            known = await _class(client, SNAPSHOT_CLASSES, name)
            if fault := single.fault_of_class(action.content, known):
                return Due(action, verdict="refuse", reason=fault)
            full = single.allows_full_copies(known)
            call = SnapshotCall(
                key=action.handle,
                source=action.source,
                full_copies=full,
                reserve=single.reserve_of(known),
                namespace=action.content.spec.volume_snapshot_ref.namespace,
            )
            return Due(action, call)
        case single.Remove():
            return Due(action, RemoveCall(key=action.handle, snapshot=True))
        case single.Find() if action.handle not in there:
            why = f"there is no snapshot {action.handle} here"
            return Due(action, verdict="wait", reason=why)
        case _:
            return Due(action, verdict=WORDS[type(action).__name__], reason=action.reason)


async def _group(client: Client, there: Iterable[str], action: group.Action) -> Due:
    match action:
        case group.Cut():
            name = action.content.spec.volume_group_snapshot_class_name
            fault = group.fault_of_class(action.content, await _class(client, GROUP_CLASSES, name))
            if fault:
                return Due(action, verdict="refuse", reason=fault)
            key, sources = group_key(action.handle), tuple(sorted(action.sources))
            cut = CutGroupCall(
                key=key,
                name=action.handle,
                sources=sources,
                namespace=action.content.spec.volume_group_snapshot_ref.namespace,
            )
            return Due(action, cut)
        case group.Remove():
            key, snapshots = group_key(action.handle), tuple(sorted(action.snapshots))
            call = RemoveGroupCall(key=key, name=action.handle, snapshots=snapshots)
            return Due(action, call)
        case group.Find() if action.handle not in there:
            return Due(action, verdict="wait", reason=f"there is no group {action.handle} here")
        case _:
            return Due(action, verdict=WORDS[type(action).__name__], reason=action.reason)


async def _class(client: Client, kind: Kind[T], name: str | None) -> T | None:
    """None if it has none, or that is gone."""
    if not name:
        return None
    try:
        return await client.get(kind, name)
    except NotThere:
        return None


def with_calls(read: Read, wanted: Iterable[Due]) -> Read:
    """The same with the calls that the roles would make, for the plan to answer."""
    calls = [one.call for one in wanted if one.call is not None]
    return replace(read, facts=replace(read.facts, calls=calls))


def content_rows(wanted: Iterable[Due], made: Plan, unread: str) -> list[dict[str, Any]]:
    """One row for each content for which something is due."""
    answers = {action.key: action for action in made.actions}
    rows = []
    for one in wanted:
        kind = "groupSnapshotContent" if isinstance(one.action, group.Action) else "snapshotContent"
        verdict, reason = one.verdict, one.reason
        row: dict[str, Any] = {"class": "", "path": "", kind: one.action.name}
        if one.call is not None:
            answer = answers[one.call.key]
            verdict = VERDICTS[type(answer).__name__]
            reason = f"{one.action.reason}; {answer.reason}"
            if isinstance(answer, AnswerCall) and answer.refusal is not None:
                verdict = "wait"
            if (pool := getattr(answer, "pool", None)) is not None:
                row["pool"] = pool.name
        rows.append(row | {"verdict": verdict, "reason": reason})
    if unread:
        rows.append({"class": "", "path": "", "verdict": "hold", "reason": unread})
    return rows
