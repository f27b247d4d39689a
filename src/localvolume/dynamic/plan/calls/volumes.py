"""The rules for calls that make, grow, change and remove a volume, and ask for room. Pure.

A call that makes a volume is idempotent by the volume's name: the record has what was asked for. A
volume of a claim is found by calls, and it is grown and removed as its claim says.
"""

from __future__ import annotations

from dataclasses import replace

from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.calls import (
    Differs,
    InUse,
    NoRoom,
    NotNow,
    OutOfRange,
    Room,
    Unknown,
    Wrong,
)
from localvolume.dynamic.model import (
    Action,
    AnswerCall,
    ClassFacts,
    CreateCall,
    GrowCall,
    GrowCalled,
    MakeCalled,
    ModifyCall,
    ModifyCalled,
    RemoveCall,
    RemoveCalled,
)
from localvolume.dynamic.plan.attributes import unfit_for
from localvolume.dynamic.plan.calls.content import is_source, origin_of, with_content_of
from localvolume.dynamic.plan.calls.finding import answer, check_here, check_untold, completed
from localvolume.dynamic.plan.given import check_kept
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
from localvolume.volumes.attributes import Attributes, changed_by
from localvolume.volumes.capacity import quantity
from localvolume.volumes.objects import is_held_by_claim

_DEFAULT_KEYS = ("kubernetes.io/hostname",)


def create(world: World, call: CreateCall, found: Found | None) -> Action:
    """Make the volume, go on with it, or answer with what is there. Raises Refused."""
    if found is not None:
        return _made(world, call, found)
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
    origin = origin_of(world, wanted, class_facts) if wanted.source else None
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


def _made(world: World, call: CreateCall, found: Found) -> Action:
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
        check_kept(world, wanted.source)
        return completed(found)
    if record.state != "offered":
        raise NotNow("it is being made for its claim")
    return answer(found, "it is made")


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


def grow(world: World, call: GrowCall, found: Found | None) -> Action:
    """Grow it, or answer that it has the size. Raises Refused."""
    check_here(world, call.key, found)
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


def modify(world: World, call: ModifyCall, found: Found | None) -> Action:
    """Give it other attributes. Raises Refused."""
    check_here(world, call.key, found)
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


def remove(world: World, call: RemoveCall, found: Found | None) -> Action:
    """Take it away, or answer that there is none. Raises Refused."""
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
