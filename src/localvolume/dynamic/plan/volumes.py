"""The rules for PersistentVolumes: when one is deleted, when its volume goes, when neither may.

"shouldDelete" of sig-storage-lib-external-provisioner with our finalizer: the object is deleted
first and held, the volume moved to the trash, and the object let go last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from localvolume.backends.model import Record
from localvolume.config.syntax.durations import format_duration
from localvolume.dynamic.model import (
    Action,
    Delete,
    Hold,
    Keep,
    MarkReleased,
    Pool,
    Remember,
    Retire,
    Secure,
)
from localvolume.dynamic.plan.given import (
    is_made_anew,
    is_taken_up,
    kept_from,
    newly_given,
    set_back,
)
from localvolume.dynamic.plan.moving import moved
from localvolume.dynamic.plan.paths import conflicts, is_here
from localvolume.dynamic.plan.records import never_published
from localvolume.dynamic.plan.undoing import Undo, undo_of
from localvolume.dynamic.plan.world import Found, World, pool_of
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import marks, periods
from localvolume.volumes.objects import (
    claim_of,
    is_being_deleted,
    is_finalized,
    is_held_by_claim,
    phase_of,
    record_name_of,
)

Volume = PersistentVolume

EVENT_FAILED_DELETE = "VolumeFailedDelete"
EVENT_KEPT_FROM_CLAIM = "VolumeKeptFromClaim"
EVENT_PUT_RIGHT = "VolumePutRight"


def judge_volume(world: World, volume: Volume) -> Action:
    """The one action that a PersistentVolume calls for."""
    return next(answer for rule in _RULES if (answer := rule(world, volume)))


def why_over(world: World, volume: Volume, judged: Action) -> str:
    """Why nothing that was said of the volume is so any more; "" if some of it is, or may be.

    What is still to be done for it may fail for the same reason as before. A volume that is held
    without an Event is left alone all the same.
    """
    waits_its_time = isinstance(judged, Hold) and judged.volume is None
    if not isinstance(judged, Keep) and not waits_its_time:
        return ""
    is_adopted = pool_of(volume) is None and called(world, volume) is None
    if is_adopted and isinstance(_home_of_adopted(world, volume), str):
        return ""
    if any(set_back(volume, record) for _, record in _without_spares(world, volume)):
        # Nothing is to be removed now, but what is in it may be another tenant's all the same.
        return ""
    return judged.reason


def _hold(volume: Volume, reason: str, event: str = EVENT_FAILED_DELETE) -> Hold:
    """With an Event only if somebody waits for something to happen to the volume."""
    waits = is_being_deleted(volume) or phase_of(volume) in ("Released", "Failed")
    return Hold(
        key=volume.metadata.name, reason=reason, volume=volume, event=event if waits else ""
    )


def _kept(volume: Volume, reason: str) -> Hold:
    return Hold(key=volume.metadata.name, reason=reason, volume=volume, event=EVENT_KEPT_FROM_CLAIM)


def _keep(volume: Volume, reason: str) -> Keep:
    return Keep(key=volume.metadata.name, reason=reason)


def not_ours(world: World, volume: Volume) -> Action | None:
    provisioner = volume.metadata.annotations.get(marks.PROVISIONED_BY_ANNOTATION, "")
    if provisioner not in world.facts.provisioners:
        return _hold(volume, f"no pool of this node is for the provisioner {provisioner!r}")
    if not is_here(volume, world.facts.node):
        return _hold(volume, f"its node affinity does not name node {world.facts.node.name}")
    return None


def called(world: World, volume: Volume) -> Action | None:
    if pool_of(volume) is None and any(
        record.request for _, record in world.records_of(record_name_of(volume))
    ):
        return _keep(volume, "external-provisioner made it by a CSI call, and removes it by one")
    return None


def other_handle(_world: World, volume: Volume) -> Action | None:
    """We give every volume its own name as its handle: with another it would name another's."""
    name = volume.metadata.name
    if volume.spec.csi is None or record_name_of(volume) == name:
        return None
    return _hold(volume, f"its handle {volume.spec.csi.volume_handle!r} is not its name")


def other_pool(world: World, volume: Volume) -> Action | None:
    """The pool it was made in must be there, and be that very one."""
    said = pool_of(volume)
    if said is None:
        return None
    name, pool_id = said
    pool = world.pools.get(name)
    if pool is None:
        return _hold(volume, f"its pool {name} is not configured")
    if pool.report.problem:
        event = "" if pool.report.taken else EVENT_FAILED_DELETE
        return _hold(volume, f"pool {name}: {pool.report.problem}", event)
    if pool.report.id != pool_id:
        return _hold(volume, f"pool {name} is another one than the volume was made in")
    if reason := pool.report.unreadable.get(volume.metadata.name):
        return _hold(volume, f"its record cannot be read: {reason}")
    return None


def other_volume(world: World, volume: Volume) -> Action | None:
    """What is on record under its name must be this object's."""
    said = pool_of(volume)
    for pool, record in _without_spares(world, volume):
        if is_made_anew(volume, record) and not is_taken_up(volume, record):
            if reason := kept_from(volume, record):
                return _kept(volume, reason)
            return _hold(volume, "the pool's record is of an earlier object of that name")
        if said is not None and said[0] != pool.config.name:
            return _hold(volume, f"pool {pool.config.name} has a record of it too")
        if said is None and not record.adopted:
            return _hold(volume, f"pool {pool.config.name} has a volume of ours by that name")
    return None


def _without_spares(world: World, volume: Volume) -> list[Found]:
    """The records of its name. If the pool that it names has one, those of other pools that were
    never published are left out: `judge_spares` takes care of them."""
    said, found = pool_of(volume), world.records_of(volume.metadata.name)
    home = [one for one in found if said and one.pool.config.name == said[0]]
    return [one for one in found if not home or one in home or not never_published(one.record)]


def to_be_remembered(world: World, volume: Volume) -> Action | None:
    for pool, record in _without_spares(world, volume):
        if pool.report.problem:
            return _hold(volume, f"pool {pool.config.name}: {pool.report.problem}")
        if record.state == "making":
            return _hold(volume, "its volume is not complete")
        given = newly_given(world, volume, record)
        if record.state != "removed" and (
            record.state != "offered" or record.volume_uid != volume.metadata.uid or given
        ):
            return Remember(
                key=record.name,
                reason="another claim has it" if given else "its PersistentVolume exists",
                pool=pool.config,
                record=record,
                volume=volume,
                given=given,
            )
    return None


def going(world: World, volume: Volume) -> Action | None:
    if not is_being_deleted(volume):
        return None
    if not is_finalized(volume):
        return _keep(volume, "it is being deleted")
    claim = world.claim_with(claim_of(volume))
    held = is_held_by_claim(volume) or claim is not None
    if held and not (claim is not None and never_bound(volume, claim)):
        kept = kept_from_whoever(world, volume)
        return kept or _keep(volume, "it is deleted once its claim is gone")
    return _retire(world, volume)


def never_bound(volume: Volume, claim: PersistentVolumeClaim) -> bool:
    """Whether the claim never had the volume made for it, nor ever will: an object that is being
    deleted is not bound any more. Unless it goes, the claim waits forever."""
    return phase_of(volume) in ("Pending", "Available") and not claim.spec.volume_name


def _retire(world: World, volume: Volume) -> Action:
    # Also if claimRef was emptied: the volume was made for a claim, which may have left data.
    kept = volume.spec.persistent_volume_reclaim_policy != "Delete"
    reason, name, directory = "its object is being deleted", volume.metadata.name, ""
    pool: Pool | None = None
    record: Record | None = None
    if pool_of(volume) is None:
        home = _home_of_adopted(world, volume)
        if isinstance(home, str):
            return _hold(volume, home)
        pool, directory = home
        record = pool.report.records.get(name)
    elif found := _without_spares(world, volume):
        pool, record = found[0]
    else:
        # Whatever may lie in the pool without a record is listed as an orphan, not removed.
        reason, kept = "its pool has no record of it", True
    return Retire(
        key=name,
        reason=reason,
        volume=volume,
        pool=pool.config if pool else None,
        record=record,
        directory=directory,
        keep=kept,
    )


def _home_of_adopted(world: World, volume: Volume) -> tuple[Pool, str] | str:
    """The pool, and the path below it, that can be relied on now; or why none can."""
    home = world.place_of_adopted(volume)
    if isinstance(home, str):
        return home
    pool, directory = home
    name, said = volume.metadata.name, f"pool {pool.config.name}"
    if pool.report.problem:
        return f"{said}: {pool.report.problem}"
    if reason := pool.report.unreadable.get(name):
        return f"its record cannot be read: {reason}"
    for other, record in world.records_of(name):
        if other is not pool or record.directory != directory:
            return f"pool {other.config.name} has a record of it at {record.directory!r}"
    # Other volumes there may still be in use, and would go with it.
    others = world.places_of_others(pool.config.name, name)
    if conflict := conflicts(directory, others):
        return f"its directory {directory!r} {conflict}"
    return home


def kept_from_whoever(world: World, volume: Volume) -> Action | None:
    for _, record in _without_spares(world, volume):
        if reason := kept_from(volume, record):
            return _kept(volume, reason)
    return None


def released(world: World, volume: Volume) -> Action | None:
    policy, phase = volume.spec.persistent_volume_reclaim_policy, phase_of(volume)
    if phase not in ("Released", "Failed"):
        return None
    if policy != "Delete":
        return _keep(volume, f"its reclaim policy is {policy}")
    if phase == "Failed":
        return _hold(volume, "its phase is Failed: somebody must look")
    uid = claim_of(volume)
    if not uid:
        return _keep(volume, "its claimRef was emptied, so that a claim can have it again")
    if world.claim_with(uid) is not None:
        return _keep(volume, "its claim is still there")
    if pool_of(volume) is None:
        home = _home_of_adopted(world, volume)
        if isinstance(home, str):
            return _hold(volume, home)
    for _, record in _without_spares(world, volume):
        if reason := set_back(volume, record):
            return _hold(volume, reason)
    return _in_time(world, volume) or Delete(
        key=volume.metadata.name, reason="its claim is gone", volume=volume
    )


def _in_time(world: World, volume: Volume) -> Action | None:
    """The action while its removal can still be undone, or if nobody can tell for how long."""
    class_facts = world.facts.classes.get(volume.spec.storage_class_name)
    undo = undo_of(volume, class_facts, _pool_seconds(world, volume), _own_seconds(world, volume))
    left = _left(world, volume, undo)
    if not undo.marked and undo.period:
        now = world.facts.now
        promised = (undo.until or 0.0) - (now.here if now.earlier is None else now.earlier)
        period = max(undo.period, promised)
        return MarkReleased(
            key=volume.metadata.name,
            reason=f"its claim is gone; it is removed after {format_duration(round(period))}",
            volume=volume,
            period=period,
        )
    if left > 0:
        text = "its claim is gone, and that can still be undone"
        again = left if left < math.inf else None
        if doubt := periods.doubt(undo.until or 0.0, world.facts.now):
            return replace(_hold(volume, f"{text}: {doubt}"), again_seconds=again)
        return Hold(key=volume.metadata.name, reason=text, again_seconds=again)
    return _hold(volume, undo.problem) if undo.problem else None


def _left(world: World, volume: Volume, undo: Undo) -> float:
    """For how many seconds at least it can still be undone."""
    if undo.until is None:
        return 0.0
    witnessed = world.facts.witnessed.get(volume.metadata.uid, periods.NOBODY)
    return periods.left(undo.since, undo.until, world.facts.now, witnessed)


def _own_seconds(world: World, volume: Volume) -> float | None:
    """What its VolumeAttributesClass said, as its record has it."""
    said = [record.attributes.undo_seconds for _, record in _without_spares(world, volume)]
    return next((one for one in said if one is not None), None)


def _pool_seconds(world: World, volume: Volume) -> float:
    said = pool_of(volume)
    if said is not None:
        return world.pools[said[0]].config.undo_seconds
    home = world.place_of_adopted(volume)
    return 0.0 if isinstance(home, str) else home[0].config.undo_seconds


def claimed_again(_world: World, volume: Volume) -> Action | None:
    if not marks.OF_RELEASED & volume.metadata.annotations.keys():
        return None
    if phase_of(volume) == "Released":
        return None
    return MarkReleased(
        key=volume.metadata.name, reason="it is not released any more", volume=volume, again=True
    )


def unsecured(_world: World, volume: Volume) -> Action | None:
    if pool_of(volume) is None or is_finalized(volume):
        return None
    return Secure(
        key=volume.metadata.name, reason="it lacks the finalizer that guards it", volume=volume
    )


def as_it_should_be(_world: World, volume: Volume) -> Action:
    return _keep(volume, "nothing is to be done for it")


_RULES: tuple[Callable[[World, Volume], Action | None], ...] = (
    not_ours,
    called,
    other_handle,
    other_pool,
    moved,
    other_volume,
    to_be_remembered,
    going,
    kept_from_whoever,
    released,
    claimed_again,
    unsecured,
    as_it_should_be,
)
