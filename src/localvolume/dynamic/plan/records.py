"""The rules for what lies in a pool without a PersistentVolume: purged, taken away, or orphaned."""

from __future__ import annotations

from collections.abc import Sequence

from localvolume.backends.model import Record, has_content_of, kept_for
from localvolume.dynamic.model import Action, Ask, Hold, Keep, Pool, Purge, TakeAway
from localvolume.dynamic.plan.calls.groups import is_whole
from localvolume.dynamic.plan.inline import judge_idle
from localvolume.dynamic.plan.world import Found, World, pool_of
from localvolume.kube.cache import key_of

_STATES = ("making", "made", "removed", "offered")
"""The least advanced first."""

ORPHAN = "no PersistentVolume names it, and it may hold data"


def judge_record(world: World, found: Found) -> Action:
    """The one action for a record that has neither a PersistentVolume nor a claim of ours.

    Nothing is taken away on the word of a cache: the API server itself must have said that the
    claim is gone and that there is no PersistentVolume. What is in the trash already was put there
    on its word.
    """
    pool, record = found
    if pool.report.problem:
        return Keep(key=record.name, reason=f"pool {pool.config.name}: {pool.report.problem}")
    twice = world.records_of(record.name)
    # What lies in the trash goes, even if what was begun under its name cannot be taken away.
    trashed = [one for one in twice if one.record.state == "removed"]
    spares = [one for one in twice if never_published(one.record)]
    sure = not any(one.pool.report.problem for one in twice)
    if sure and len(trashed) == 1 and len(spares) + 1 == len(twice):
        pool, record = trashed[0]
    elif len(twice) > 1 and not all(never_published(one.record) for one in twice):
        return Hold(key=record.name, reason="two pools have a record of it")
    if (claim := world.holder_of(record)) is not None:
        reason = f"claim {key_of(claim)} is bound to it, and its PersistentVolume is missing"
        return Hold(key=record.name, reason=reason)
    if record.state == "removed" and (
        snapshots := kept_for(record.name, pool.report.records.values())
    ):
        return Keep(key=record.name, reason=f"its data stays for {', '.join(snapshots)}")
    if record.state == "removed":
        if told := _still_told_of(world, record):
            return Keep(key=record.name, reason=f"it is removed, and {told}")
        reason = "its PersistentVolume is gone"
        return Purge(key=record.name, reason=reason, pool=pool.config, record=record)
    if record.request:
        return _of_call(world, pool, record)
    if record.adopted or (record.state == "offered" and record.volume_uid):
        return Hold(key=record.name, reason=ORPHAN)
    if record.name in world.facts.named:
        reason = "there is a PersistentVolume of its name, which this node does not see"
        return Hold(key=record.name, reason=reason)
    if record.name not in world.facts.absent or record.claim_uid not in world.facts.gone:
        return Ask(key=record.name, reason="nobody seems to want it", record=record)
    never = "published" if record.state == "offered" else "offered"
    reason = f"it was never {never}, and its claim is not this node's any more"
    return TakeAway(key=record.name, reason=reason, pool=pool.config, record=record)


def _still_told_of(world: World, record: Record) -> str:
    """What is still of a volume or snapshot that a call removed, or why that is not known; or "".

    Until nothing is, a repeated call must find it removed: of what is not on record, nobody could
    tell it from what lies in a pool that is not configured any more.
    """
    if not record.request:
        return ""
    if not record.snapshot_of:
        return world.told_of(record.name, snapshot=False)
    handles = [handle for handle in (record.name, record.group) if handle]
    return next(filter(None, (world.told_of(one, snapshot=True) for one in handles)), "")


def _of_call(world: World, pool: Pool, record: Record) -> Action:
    """No call waits for it now: one that does is judged in place of this.

    What was never complete has no caller who knows of it, and perhaps none who will ask again: its
    claim may be gone. One that is repeated makes it anew. So it is with a snapshot whose group was
    not completed: the others were to be of the same moment. A snapshot that a content waits for
    stays: its call comes again when the agent has started, and a full copy goes on where it was.
    """
    if record.group and record.state == "made" and not is_whole(world, record.group):
        reason = f"group {record.group} was not completed, or has been removed in part"
        return TakeAway(key=record.name, reason=reason, pool=pool.config, record=record, spare=True)
    if record.state == "making" or (record.state == "made" and not has_content_of(record)):
        if record.snapshot_of and (waits := world.awaited(record.name)):
            return Keep(key=record.name, reason=f"it was begun, and {waits}")
        reason = "it was begun for a CSI call that had no answer and waits for none"
        return TakeAway(key=record.name, reason=reason, pool=pool.config, record=record, spare=True)
    if record.pod_uid and record.state == "offered":
        return judge_idle(world, Found(pool, record))
    return Keep(key=record.name, reason="a CSI call made it, and a CSI call removes it")


def never_published(record: Record) -> bool:
    """Whether, as far as the record knows, no PersistentVolume ever named it."""
    return not record.adopted and (
        record.state in ("making", "made") or (record.state == "offered" and not record.volume_uid)
    )


def judge_spares(world: World, name: str) -> Action | None:
    """Takes away what a pool still has of a volume that was made elsewhere while the pool was away.

    Nobody was ever told of what was not offered. What was offered but never published may be taken
    away once the PersistentVolume names another pool, which knows its UID: a claim is bound only
    once. Anything else that was offered is for people to look at.
    """
    found = world.records_of(name)
    if len(found) < 2 or any(pool.report.problem for pool, _ in found):
        return None
    volume = world.facts.volumes.get(name)
    said = pool_of(volume) if volume else None
    home = [one for one in found if said and one.pool.config.name == said[0]]
    known = volume is not None and any(one.record.volume_uid == volume.metadata.uid for one in home)
    for pool, record in _others(found, home):
        if record.state in ("making", "made") or (known and never_published(record)):
            reason = "its claim was served from another pool"
            return TakeAway(key=name, reason=reason, pool=pool.config, record=record, spare=True)
    return None


def _others(found: Sequence[Found], home: Sequence[Found]) -> Sequence[Found]:
    """All but the one that counts: the PersistentVolume's, or else the most advanced."""
    if home:
        return [one for one in found if one not in home]
    return most_advanced_last(found)[:-1]


def most_advanced_last(found: Sequence[Found]) -> list[Found]:
    """Always in the same order, whatever the order of the pools."""
    return sorted(found, key=lambda one: (_STATES.index(one.record.state), one.pool.config.name))
