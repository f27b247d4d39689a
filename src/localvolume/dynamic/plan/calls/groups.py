"""The rules for calls about groups of snapshots: cut at one moment, and all of them or none. Pure.

The volumes of a group lie in one pool: it is one store that holds them all still. A group is there
once all its snapshots are complete; what is left of one that is not is taken away by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from localvolume.backends.capacity import most_of_cut
from localvolume.backends.handles import member_handle
from localvolume.dynamic.calls import (
    Apart,
    Differs,
    InUse,
    NoRoom,
    NotNow,
    Refused,
    Unknown,
    Wrong,
)
from localvolume.dynamic.model import (
    Action,
    AnswerCall,
    CutGroup,
    CutGroupCall,
    Pool,
    RemoveGroup,
    RemoveGroupCall,
)
from localvolume.dynamic.plan.calls.content import is_source
from localvolume.dynamic.plan.calls.finding import check_here, check_untold, find
from localvolume.dynamic.plan.calls.snapshots import check_holder, snapshot_record
from localvolume.dynamic.plan.world import Found, World
from localvolume.volumes.capacity import quantity

_COMPLETE: Final = ("made", "offered")


def group_key(name: str) -> str:
    """What calls about that group are known by: no volume has such a name."""
    return f"group/{name}"


def is_whole(world: World, name: str) -> bool:
    """Whether all snapshots of the group are complete."""
    return _is_whole(_of(world, name))


def unknown_part(pools: Iterable[Pool]) -> str:
    """Where volumes and snapshots could be that nobody knows of, "" for nowhere."""
    for pool in pools:
        if why := pool.report.problem or "; ".join(sorted(pool.report.unreadable.values())):
            return f"pool {pool.config.name}: {why}"
    return ""


def judge_group_call(world: World, call: CutGroupCall | RemoveGroupCall) -> Action:
    """The one action that a call asks for."""
    try:
        there = _of(world, call.name)
        if len({found.pool.config.name for found in there}) > 1:
            raise NotNow("two pools have records of it")
        if any(found.record.name in world.facts.busy for found in there):
            raise NotNow("something is being done with its snapshots")
        if isinstance(call, RemoveGroupCall):
            return _remove(world, call, there)
        return _known(call, there) if there else _cut(world, call)
    except Refused as refusal:
        return AnswerCall(key=call.key, reason=str(refusal), refusal=refusal)


def _of(world: World, name: str) -> list[Found]:
    """All that there is of the group."""
    return [found for found in world.all_records() if found.record.group == name]


def _is_whole(there: Sequence[Found]) -> bool:
    complete = [found.record for found in there if found.record.state in _COMPLETE]
    return bool(complete) and len(complete) == complete[0].group_size


# --- cutting -----------------------------------------------------------------------------------


def _known(call: CutGroupCall, there: Sequence[Found]) -> Action:
    """For a group that was begun, at least."""
    records = tuple(found.record for found in there)
    if any(record.state == "removed" for record in records):
        raise NotNow("the group that had its name is being removed")
    if not _is_whole(there):
        if any(record.state == "offered" for record in records):
            raise InUse("the group that has its name is removed in part: remove the rest first")
        raise NotNow("an earlier attempt was not completed, and what it left is taken away first")
    if {record.snapshot_of for record in records} != set(call.sources):
        others = ", ".join(sorted(record.snapshot_of for record in records))
        raise Differs(f"a group of snapshots of others has that name: of {others}")
    if all(record.state == "offered" for record in records):
        return AnswerCall(key=call.key, reason="it is cut")
    return CutGroup(
        key=call.key,
        reason="it is cut, and its call has no answer",
        pool=there[0].pool.config,
        records=records,
    )


def _cut(world: World, call: CutGroupCall) -> Action:
    origins = _origins(world, call)
    pool = origins[0].pool
    members = {}
    for _, origin in origins:
        name = member_handle(call.name, origin.name)
        if find(world, name) is not None or name in world.facts.busy:
            raise NotNow(f"something is left or being made that is called {name}")
        most = most_of_cut(origin, pool.report.usage.get(origin.name))
        members[name] = snapshot_record(origin, name, most)
    all_of_it = sum(record.holds_bytes for record in members.values())
    if (left := world.capacity[pool.config.name]) < all_of_it:
        raise NoRoom(
            f"pool {pool.config.name}: {quantity(left)} of room left, and the snapshots may come to"
            f" hold {quantity(all_of_it)}"
        )
    world.take(pool.config.name, all_of_it)
    return CutGroup(
        key=call.key,
        reason=f"a call asks for snapshots of {', '.join(call.sources)} together",
        pool=pool.config,
        records=tuple(
            replace(record, group=call.name, group_size=len(members)) for record in members.values()
        ),
        origins=tuple(origin.record for origin in origins),
    )


def _origins(world: World, call: CutGroupCall) -> list[Found]:
    """The volumes, which can all be cut together."""
    here, missing = [], []
    for source in call.sources:
        found = find(world, source)
        check_here(world, source, found)
        if found is None or not is_source(found.record, snapshot=False):
            missing.append(source)
        else:
            here.append(found)
    if not here:
        raise Unknown(f"there is no volume {', '.join(missing)} here")
    node = world.facts.node.name
    if missing:
        raise Apart(
            f"node {node} has {', '.join(found.record.name for found in here)}, and not"
            f" {', '.join(missing)}: the volumes of a group must be on one node"
        )
    names = sorted({found.pool.config.name for found in here})
    if len(names) > 1:
        raise Apart(
            f"they are in the pools {', '.join(names)} of node {node}: the volumes of a group must"
            " be in one pool"
        )
    for source in call.sources:
        check_holder(world, source, call.namespace)
    _check_together(here[0].pool)
    return here


def _check_together(pool: Pool) -> None:
    """Raises NotNow while, and Apart where, volumes of the pool cannot be cut at one moment."""
    report = pool.report
    if report.unwell:
        raise NotNow(f"pool {pool.config.name}: {report.unwell}")
    if why := report.problem or report.abilities.no_copies or report.abilities.no_groups:
        raise Apart(f"pool {pool.config.name}: {why}")


# --- removing ----------------------------------------------------------------------------------


def _remove(world: World, call: RemoveGroupCall, there: Sequence[Found]) -> Action:
    left = tuple(found.record for found in there if found.record.state != "removed")
    if not left:
        if not there and (why := unknown_part(world.facts.pools)):
            raise NotNow(f"it may be in {why}")
        if not there:
            check_untold(world, call.name, snapshot=True)
        return AnswerCall(key=call.key, reason="there is no group of that name")
    has, asked = {record.name for record in left}, set(call.snapshots)
    # A removal that was not completed goes on with what it left.
    if has != asked if _is_whole(there) else not has <= asked:
        raise Wrong(
            f"the group has the snapshots {', '.join(sorted(has))}, and snapshot_ids names"
            f" {', '.join(sorted(asked)) or 'none'}"
        )
    return RemoveGroup(
        key=call.key, reason="a call removes it", pool=there[0].pool.config, records=left
    )
