"""The rules for CSI calls: what each that waits is answered, or what is done for it first. Pure.

A call that makes a volume is idempotent by the volume's name: the record has what was asked for. A
volume of a claim is found by calls, and it is grown and removed as its claim says.
"""

from __future__ import annotations

from dataclasses import replace

from localvolume.backends.capacity import most_of_cut
from localvolume.backends.model import Record, filesystem_of, has_content_of, lost, outgrew
from localvolume.backends.modes import no_mode_change
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.calls import (
    Differs,
    InUse,
    NoRoom,
    NotNow,
    OutOfRange,
    Refused,
    Room,
    Unknown,
    Wanted,
    Wrong,
)
from localvolume.dynamic.model import (
    Action,
    AnswerCall,
    Call,
    ClassFacts,
    CreateCall,
    GrowCall,
    GrowCalled,
    MakeCalled,
    ModifyCall,
    ModifyCalled,
    Pool,
    RemoveCall,
    RemoveCalled,
    SnapshotCall,
    Wish,
)
from localvolume.dynamic.plan.attributes import unfit_for
from localvolume.dynamic.plan.paths import Unsafe, owner_of
from localvolume.dynamic.plan.placing import (
    Placing,
    VolumeMode,
    choose,
    growth,
    is_for,
    place,
    unfit,
    unlimited,
    with_limits,
)
from localvolume.dynamic.plan.world import Found, World, rounded
from localvolume.kube.objects import Meta, PersistentVolumeClaim
from localvolume.volumes.attributes import NONE, Attributes, changed_by
from localvolume.volumes.capacity import quantity
from localvolume.volumes.objects import is_held_by_claim, volumes_of_claims

_DEFAULT_KEYS = ("kubernetes.io/hostname",)


def judge_call(world: World, call: Call) -> Action:
    """The one action that a call asks for."""
    try:
        found = find(world, call.key)
        match call:
            case CreateCall():
                return _create(world, call, found)
            case SnapshotCall():
                return _snapshot(world, call, found)
            case GrowCall():
                return _grow(world, call, found)
            case ModifyCall():
                return _modify(world, call, found)
            case RemoveCall():
                return _remove(world, call, found)
            case _:
                raise NotImplementedError(call)
    except Refused as refusal:
        return AnswerCall(key=call.key, reason=str(refusal), refusal=refusal)


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


# --- making ------------------------------------------------------------------------------------


def _create(world: World, call: CreateCall, found: Found | None) -> Action:
    if found is not None:
        return _made(call, found)
    for volume in world.volumes_of(call.key):
        raise NotNow(
            f"PersistentVolume {volume.metadata.name} is of that volume, and no pool of this node"
            " has it"
        )
    if call.class_facts.problem:
        raise Wrong(call.class_facts.problem)
    _check_wish(call.class_facts)
    wanted, class_facts = call.wanted, call.class_facts
    _check_attributes(wanted.attributes)
    if wanted.attributes.is_limited:
        class_facts = with_limits(class_facts)
        _check_limits(world, class_facts)
    origin = _origin(world, wanted, class_facts) if wanted.source else None
    asked = max(wanted.size_bytes, origin.record.size_bytes) if origin else wanted.size_bytes
    only = origin.pool.config.name if origin else ""
    chosen = choose(world, class_facts, wanted.volume_mode, asked, only=only)
    if isinstance(chosen, str):
        raise NoRoom(f"node {world.facts.node.name}: {chosen}")
    size = rounded(chosen, asked)
    if 0 < wanted.limit_bytes < size:
        raise OutOfRange(
            f"the volume would have {quantity(size)}, and may have {quantity(wanted.limit_bytes)}"
        )
    # No claim is known here: only what needs none can be rendered.
    nobodys = PersistentVolumeClaim(metadata=Meta(name=call.key))
    try:
        owner = owner_of(class_facts.wish, nobodys, call.key)
    except Unsafe as unsafe:
        raise Wrong(str(unsafe)) from unsafe
    placing = Placing(call.key, asked, wanted.volume_mode, call.key, owner)
    record = place(world, chosen, class_facts, placing)
    if isinstance(record, str):
        raise Wrong(record)
    record = replace(record, request=call.request, attributes=wanted.attributes)
    if origin is not None:
        record = with_content_of(origin.record, record)
    return MakeCalled(
        key=call.key,
        reason=f"pool {chosen.config.name} has room",
        pool=chosen.config,
        record=record,
        origin=origin.record if origin else None,
    )


def _origin(world: World, wanted: Wanted, class_facts: ClassFacts) -> Found:
    """The volume or snapshot whose content is wanted, in the one pool that can have the copy."""
    origin = find(world, wanted.source)
    if origin is None or not is_source(origin.record, snapshot=wanted.from_snapshot):
        kind = "snapshot" if wanted.from_snapshot else "volume"
        raise Unknown(f"there is no {kind} {wanted.source} here")
    _check_copies(origin.pool, full=class_facts.wish.full_copies)
    check_content(origin)
    if not is_for(origin.pool, class_facts):
        raise Wrong(f"{wanted.source} is in pool {origin.pool.config.name}, not one of the class")
    size = wanted.size_bytes or origin.record.size_bytes
    if why := too_small(origin, size):
        raise OutOfRange(why)
    if why := uncopied(origin, wanted.volume_mode, size, class_facts.wish):
        raise Wrong(why)
    return origin


def is_source(record: Record, *, snapshot: bool) -> bool:
    """Whether it is a complete snapshot, or volume, of ours: others may have its content."""
    ours = record.driver == CSI_DRIVER and record.state == "offered" and not record.pod_uid
    return ours and bool(record.snapshot_of) == snapshot


def _check_copies(pool: Pool, *, full: bool, reserve: bool = False) -> None:
    """Raises NotNow while, and Wrong where, no snapshot or clone can be made in the pool."""
    if pool.report.unwell:
        raise NotNow(f"pool {pool.config.name}: {pool.report.unwell}")
    if why := pool.report.no_copies_now(full=full, reserve=reserve):
        raise Wrong(f"pool {pool.config.name}: {why}")


def _made(call: CreateCall, found: Found) -> Action:
    record, wanted = found.record, call.wanted
    if record.driver != CSI_DRIVER:
        raise Differs("a volume that is not the CSI driver's has its name")
    if record.state == "removed":
        raise NotNow("the volume that had its name is being removed")
    if record.snapshot_of:
        raise Differs("a snapshot has that name")
    if record.pod_uid:
        raise Differs("a pod's own volume has that name")
    if record.request and record.request != call.request:
        raise Differs(f"it was made by a call that asked for {record.request}")
    if not record.request and (
        record.size_bytes < wanted.size_bytes
        or record.volume_mode != wanted.volume_mode
        or record.made_from != wanted.source
    ):
        raise Differs("it was made for a claim that asked for something else")
    if record.request and record.state != "offered":
        return completed(found)
    if record.state != "offered":
        raise NotNow("it is being made for its claim")
    return answer(found, "it is made")


def completed(found: Found) -> Action:
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
    )


def _check_wish(class_facts: ClassFacts) -> None:
    """Raises Wrong for what only a claim can have."""
    wish = class_facts.wish
    if wish.directory:
        raise Wrong("parameter pathPattern needs a claim, which a call does not name")
    if wish.affinity_keys != _DEFAULT_KEYS:
        raise Wrong("parameter nodeAffinityKey is not served by calls: the topology is the node's")
    if wish.undo_seconds:
        raise Wrong("parameter undoPeriod is not served by calls: a call removes at once")


def _check_attributes(attributes: Attributes) -> None:
    """Raises Wrong for what only a claim's volume can have."""
    if attributes.undo_seconds is not None:
        raise Wrong("parameter undoPeriod is not served by calls: a call removes at once")


def _check_limits(world: World, class_facts: ClassFacts) -> None:
    """Raises Wrong where no pool of the class has volumes that can be limited."""
    if world.facts.no_limits:
        raise Wrong(world.facts.no_limits)
    pools = [pool for pool in world.facts.pools if is_for(pool, class_facts)]
    whys = [f"pool {pool.config.name}: {unlimited(pool.config.backend)}" for pool in pools]
    if pools and all(unlimited(pool.config.backend) for pool in pools):
        raise Wrong("; ".join(whys))


# --- snapshots ---------------------------------------------------------------------------------


def _snapshot(world: World, call: SnapshotCall, found: Found | None) -> Action:
    if found is not None:
        record = found.record
        if record.state == "removed":
            raise NotNow("what had its name is being removed")
        if record.group:
            raise Differs(f"a snapshot of group {record.group} has that name")
        if record.snapshot_of != call.source:
            raise Differs("a volume, or a snapshot of another one, has that name")
        if record.state == "making":
            check_holder(world, call.source, call.namespace)
        if record.state != "offered":
            return completed(found)
        check_content(found)
        return answer(found, "it is cut")
    origin = find(world, call.source)
    if origin is None or not is_source(origin.record, snapshot=False):
        raise Unknown(f"there is no volume {call.source} here")
    check_holder(world, call.source, call.namespace)
    pool, of = origin
    _check_copies(pool, full=call.full_copies, reserve=call.reserve is not None)
    if why := pool.report.abilities.no_snapshots:
        raise Wrong(f"pool {pool.config.name}: {why}")
    reserve = 0
    if call.reserve is not None and pool.report.abilities.reserves:
        reserve = call.reserve.of(of.size_bytes)
        most = rounded(pool, reserve)
    else:
        most = most_of_cut(of, pool.report.usage.get(of.name))
    if (left := world.capacity[pool.config.name]) < most:
        raise NoRoom(
            f"pool {pool.config.name}: {quantity(left)} of room left, and the snapshot may come to"
            f" hold {quantity(most)}"
        )
    world.take(pool.config.name, most)
    return MakeCalled(
        key=call.key,
        reason=f"a call asks for a snapshot of {call.source}",
        pool=pool.config,
        record=snapshot_record(
            of, call.key, most, full_copies=call.full_copies, reserve_bytes=reserve
        ),
        origin=of,
    )


def check_holder(world: World, source: str, namespace: str) -> None:
    """Raises Unknown if a claim of the namespace asked, and none of that namespace has the volume.

    A content waits for as long as it takes. Meanwhile its claim may be deleted, and the
    PersistentVolume given to a claim of another tenant.
    """
    if namespace and (namespace, source) not in volumes_of_claims(world.volumes_of(source)):
        raise Unknown(f"no claim of namespace {namespace} has volume {source} any more")


def check_content(found: Found) -> None:
    """Raises Wrong if the content of a snapshot is lost, and NotNow while nobody can tell."""
    if why := lost_content(found):
        raise Wrong(why)
    if found.record.reserve_bytes and found.record.name not in found.pool.report.fills:
        raise NotNow(f"how full the reserve of {found.record.name} is cannot be told yet")


def lost_content(found: Found) -> str:
    """That the content of a snapshot is lost, "" if it is not, or nobody can tell."""
    fill = found.pool.report.fills.get(found.record.name)
    return lost(found.record) if fill is not None and fill.lost else ""


def snapshot_record(
    origin: Record,
    name: str,
    holds_bytes: int,
    *,
    full_copies: bool = False,
    reserve_bytes: int = 0,
) -> Record:
    """The record of a snapshot that is to be cut."""
    return replace(
        origin,
        name=name,
        state="making",
        directory=name if origin.directory else "",
        inode=0,
        project=0,
        claim="",
        claim_uid="",
        given=(),
        volume_uid="",
        request=f"snapshot of {origin.name}",
        snapshot_of=origin.name,
        made_from="",
        full_copies=full_copies,
        cut_at=0,
        holds_bytes=holds_bytes,
        reserve_bytes=reserve_bytes,
        trash="",
        attributes=NONE,
    )


def with_content_of(origin: Record, record: Record) -> Record:
    """The record of a volume that has the content of another: its filesystem is the same, and what
    is to be done with the content in the end is done with each copy of it."""
    return replace(
        record,
        made_from=origin.name,
        overwrite=record.overwrite or origin.overwrite,
        discard=record.discard or origin.discard,
        fs_type=origin.fs_type,
        mode=origin.mode,
        uid=origin.uid,
        gid=origin.gid,
    )


def uncopied(
    origin: Found, mode: VolumeMode, size_bytes: int, wish: Wish, *, other_mode: bool = False
) -> str:
    """Why no volume of that mode and size, of a class that says so, can have the content of
    `origin`; "" if one can. `other_mode`: whether it may be of another mode than that."""
    pool, record = origin
    if why := lost_content(origin):
        return why
    if why := pool.report.no_copies_now(full=wish.full_copies):
        return f"pool {pool.config.name}: {why}"
    if record.volume_mode != mode and not other_mode:
        return f"{record.name} is of volumeMode {record.volume_mode}, and {mode} is asked for"
    if why := no_mode_change(record, mode):
        return why
    if mode == "Filesystem" and wish.fs_type and wish.fs_type != (has := filesystem_of(record)):
        has = has or "no filesystem of its own"
        return f"{record.name} has {has}, and {wish.fs_type} is asked for"
    return too_small(origin, size_bytes)


def too_small(origin: Found, size_bytes: int) -> str:
    """Why a volume of that size cannot have the content of `origin`, "" if it can."""
    pool, record = origin
    if rounded(pool, size_bytes) >= record.size_bytes:
        return ""
    return (
        f"{record.name} has {quantity(record.size_bytes)}, and a volume with its content needs"
        f" as much: {quantity(size_bytes)} is asked for"
    )


# --- growing -----------------------------------------------------------------------------------


def _grow(world: World, call: GrowCall, found: Found | None) -> Action:
    if (
        found is None
        or found.record.driver != CSI_DRIVER
        or found.record.snapshot_of
        or found.record.pod_uid
        or found.record.state != "offered"
    ):
        raise Unknown(f"there is no volume {call.key} here")
    record, limit = found.record, call.limit_bytes
    if 0 < limit < max(record.size_bytes, rounded(found.pool, call.size_bytes)):
        raise OutOfRange(f"it has {quantity(record.size_bytes)}, and grows by whole units")
    if record.size_bytes >= call.size_bytes:
        return answer(found, "it has that size")
    if not record.request:
        raise NotNow("it grows as its claim asks for, and has not yet")
    more = growth(world, found, call.size_bytes)
    if isinstance(more, str):
        raise NoRoom(f"pool {found.pool.config.name}: {more}")
    world.take(found.pool.config.name, more)
    return GrowCalled(
        key=call.key,
        reason=f"a call asks for {quantity(call.size_bytes)}",
        pool=found.pool.config,
        record=record,
        size_bytes=call.size_bytes,
    )


# --- other attributes --------------------------------------------------------------------------


def _modify(world: World, call: ModifyCall, found: Found | None) -> Action:
    if found is None or not is_source(found.record, snapshot=False):
        raise Unknown(f"there is no volume {call.key} here")
    pool, record = found
    _check_attributes(call.attributes)
    wanted = changed_by(record.attributes, call.attributes)
    if why := unfit_for(world, record, wanted):
        raise Wrong(why)
    if wanted != record.attributes and not record.request:
        raise NotNow("it gets the attributes of the class that its claim names, and has not yet")
    # Also if it is on record already: what a call that died has begun is done to the end.
    return ModifyCalled(
        key=call.key,
        reason="a call asks for these attributes",
        pool=pool.config,
        record=record,
        attributes=wanted,
    )


# --- removing ----------------------------------------------------------------------------------


def _remove(world: World, call: RemoveCall, found: Found | None) -> Action:
    if found is None:
        check_untold(world, call.key, snapshot=call.snapshot)
    if found is None or found.record.state == "removed":
        return AnswerCall(key=call.key, reason="there is no volume of that name")
    record = found.record
    if bool(record.snapshot_of) != call.snapshot or record.pod_uid:
        # No kind is removed by a call for the other: it is as if it were not there.
        return AnswerCall(key=call.key, reason="what has that name is of the other kind")
    if record.driver != CSI_DRIVER:
        raise Wrong("a volume that is not the CSI driver's has that name")
    if record.group:
        raise Wrong(f"it is one of group {record.group}, which is removed as a whole")
    if not record.request:
        raise InUse("it was made for a claim, and is removed once that and its volume are deleted")
    volumes = world.volumes_of(call.key)
    for volume in volumes:
        if is_held_by_claim(volume):
            raise InUse(f"a claim has it, by PersistentVolume {volume.metadata.name}")
    return RemoveCalled(
        key=call.key,
        reason="a call removes it",
        pool=found.pool.config,
        record=record,
        volumes=tuple(volume.metadata.name for volume in volumes),
    )


def check_untold(world: World, handle: str, *, snapshot: bool) -> None:
    """Raises NotNow if an object says that this node has what no pool has: its pool may have been
    taken out of the configuration. What was removed stays on record as long as an object is of it.
    """
    if told := world.told_of(handle, snapshot=snapshot):
        policy = "deletion policy" if snapshot else "reclaim policy"
        raise NotNow(
            f"no pool that is configured here has it, and {told}: bring its pool back, or give that"
            f" the {policy} Retain to leave the data where it is"
        )


# --- room --------------------------------------------------------------------------------------


def room_of(world: World, class_facts: ClassFacts, mode: VolumeMode) -> Room:
    """The room in the pools that volumes of that class and mode may be made in."""
    places: dict[str, int] = {}
    largest = 0
    for pool in world.facts.pools:
        if not is_for(pool, class_facts) or unfit(pool, class_facts, mode):
            continue
        # Pools on one filesystem share one capacity.
        where = pool.report.filesystem or f"pool {pool.config.name}"
        has = max(0, world.capacity[pool.config.name])
        places[where] = max(has, places.get(where, 0))
        largest = max(largest, world.fits(pool, class_facts.wish.option_class))
    return Room(sum(places.values()), largest)
