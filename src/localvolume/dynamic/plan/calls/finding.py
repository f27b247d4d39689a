"""What a call finds by its name, and how one that was begun is gone on with. Pure."""

from __future__ import annotations

from typing import Final

from localvolume.backends.model import has_content_of, outgrew
from localvolume.dynamic.calls import NotNow
from localvolume.dynamic.model import Action, AnswerCall, MakeCalled, RemoveCalled
from localvolume.dynamic.plan.world import Found, World

_UNTOLD: Final = "no pool that is configured here has it"


def find(world: World, name: str) -> Found | None:
    """The volume or snapshot of that name. Raises NotNow if what is known of it is not enough."""
    for pool in world.facts.pools:
        if why := pool.report.unreadable.get(name):
            raise NotNow(f"pool {pool.config.name} has a record of it that cannot be read: {why}")
    found = world.records_of(name)
    if len(found) > 1:
        raise NotNow("two pools have a record of it")
    if found and found[0].pool.report.problem:
        raise NotNow(f"pool {found[0].pool.config.name}: {found[0].pool.report.problem}")
    if not found:
        for pool in world.facts.pools:
            if pool.report.problem:
                # It may lie there: neither another one nor its absence may be promised.
                raise NotNow(f"pool {pool.config.name}: {pool.report.problem}")
    return found[0] if found else None


def answer(found: Found, reason: str) -> AnswerCall:
    """Answer a call for it with what there is."""
    name = found.record.name
    fill = found.pool.report.fills.get(name)
    return AnswerCall(
        key=name, reason=reason, pool=found.pool.config, record=found.record, fill=fill
    )


def completed(found: Found, namespace: str = "") -> Action:
    """Go on with what a call began, or take it away if that cannot be done any more."""
    pool, record = found
    origin = None
    if record.state == "making" and (name := has_content_of(record)):
        origin = pool.report.records.get(name)
        if origin is None or origin.state != "offered" or outgrew(origin, record):
            why = f"{name}, whose content it was to have, is gone or has grown since it was begun"
            return RemoveCalled(
                key=record.name, reason=why, pool=pool.config, record=record, refusal=NotNow(why)
            )
    return MakeCalled(
        key=record.name,
        reason="it was begun, and its call has no answer",
        pool=pool.config,
        record=record,
        origin=origin,
        namespace=namespace,
    )


def check_untold(world: World, handle: str, *, snapshot: bool) -> None:
    """Raises NotNow if an object says that this node has what a call removes and no pool has: its
    pool may have been taken out of the configuration. What was removed stays on record as long as
    an object is of it.
    """
    if told := world.told_of(handle, snapshot=snapshot):
        policy = "deletion policy" if snapshot else "reclaim policy"
        raise NotNow(
            f"{_UNTOLD}, and {told}: bring its pool back, or give that the {policy} Retain to leave"
            " the data where it is"
        )


def check_here(world: World, handle: str, found: Found | None, *, snapshot: bool = False) -> None:
    """The same for what a call is about and does not remove."""
    if found is None and (told := world.told_of(handle, snapshot=snapshot)):
        raise NotNow(f"{_UNTOLD}, and {told}: bring its pool back")
