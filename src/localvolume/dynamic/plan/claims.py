"""The rules for claims: whose they are, whether they can be served here, and from which pool.

They follow the external-provisioner contract (sig-storage-lib-external-provisioner,
"shouldProvision" and "provisionClaimOperation"). The first rule that answers counts.
"""

from __future__ import annotations

from collections.abc import Callable

from localvolume.backends.capacity import is_full, most_bytes, most_of
from localvolume.backends.model import Record, grown_to
from localvolume.config.foreign.openebs import limit_bytes
from localvolume.dynamic.classes.parameters import read_claim
from localvolume.dynamic.model import (
    Action,
    ClassFacts,
    GiveBack,
    Grow,
    Hold,
    Keep,
    Make,
    Pool,
    Publish,
    Reject,
    TellGrown,
    Wish,
)
from localvolume.dynamic.plan.paths import Unsafe, conflicts, directory_of, owner_of
from localvolume.dynamic.plan.records import most_advanced_last, never_published
from localvolume.dynamic.plan.world import Found, World, begun_bytes, mode_of, pool_of, rounded
from localvolume.kube.cache import key_of
from localvolume.kube.objects import PersistentVolumeClaim
from localvolume.volumes import claims
from localvolume.volumes.capacity import bytes_of, quantity
from localvolume.volumes.objects import claim_of, is_being_deleted

Claim = PersistentVolumeClaim

EVENT_RESIZE_FAILED = "VolumeResizeFailed"


def judge_claim(world: World, claim: Claim) -> Action:
    """The one action that a claim calls for."""
    if claim.spec.volume_name:
        return _bound(world, claim)
    return next(answer for rule in _RULES if (answer := rule(world, claim)))


def _key(claim: Claim) -> str:
    return claims.volume_name(claim.metadata.uid)


def _keep(claim: Claim, reason: str) -> Keep:
    return Keep(key=_key(claim), reason=reason)


def _reject(claim: Claim, reason: str) -> Reject:
    return Reject(key=_key(claim), reason=reason, claim=claim)


def _give_back(claim: Claim, reason: str) -> GiveBack:
    return GiveBack(key=_key(claim), reason=reason, claim=claim)


# --- is it ours to serve? ----------------------------------------------------------------------


def not_ours(world: World, claim: Claim) -> Action | None:
    provisioner = claims.provisioner_of(claim)
    if provisioner in world.facts.provisioners:
        return None
    return _keep(claim, f"its provisioner is {provisioner or 'nobody'}")


def going(_world: World, claim: Claim) -> Action | None:
    return _keep(claim, "the claim is being deleted") if is_being_deleted(claim) else None


def without_class(world: World, claim: Claim) -> Action | None:
    name = claims.class_of(claim)
    if name in world.facts.classes:
        return None
    if name in world.facts.foreign_classes:
        return _keep(claim, f"its class {name} has another provisioner")
    return _reject(claim, f'storageclass.storage.k8s.io "{name}" not found')


def elsewhere(world: World, claim: Claim) -> Action | None:
    mode = world.class_of(claim).object.volume_binding_mode
    if world.for_this_node(claim, immediate=mode != "WaitForFirstConsumer"):
        return None
    selected = claims.selected_node(claim)
    if selected:
        return _keep(claim, f"it is to be served on {selected}")
    return _keep(claim, "no node is selected for it yet")


def served(world: World, claim: Claim) -> Action | None:
    if _key(claim) in world.facts.volumes:
        return _keep(claim, "its PersistentVolume exists")
    return None


# --- what was begun is completed before anything else ------------------------------------------


def begun(world: World, claim: Claim) -> Action | None:
    for one in world.facts.pools:
        if why := one.report.unreadable.get(_key(claim)):
            reason = f"pool {one.config.name} has a record of it that cannot be read: {why}"
            return Hold(key=_key(claim), reason=reason, claim=claim, event="ProvisioningFailed")
    found = world.records_of(_key(claim))
    if not found:
        return None
    if len(found) > 1 and not all(never_published(one.record) for one in found):
        return Hold(key=_key(claim), reason="two pools have a record of it", claim=claim)
    # If two were offered, nobody has either yet: the other goes once this one is published.
    pool, record = most_advanced_last(found)[-1]
    if pool.report.problem:
        reason = f"it was begun in pool {pool.config.name}: {pool.report.problem}"
        return Hold(key=_key(claim), reason=reason, claim=claim, event="ProvisioningFailed")
    if record.claim_uid != claim.metadata.uid:
        return _reject(claim, "the pool has a volume of that name that is another claim's")
    match record.state:
        case "making":
            reason = "it was begun and is not complete"
            return Make(
                key=_key(claim),
                reason=reason,
                claim=claim,
                pool=pool.config,
                record=record,
                fresh=False,
            )
        case "removed":
            reason = "its volume was removed; delete the claim and create it anew"
            return Hold(key=_key(claim), reason=reason, claim=claim, event="ProvisioningFailed")
    return Publish(
        key=_key(claim),
        reason="its volume is complete",
        claim=claim,
        pool=pool.config,
        pool_id=pool.report.id,
        record=record,
    )


# --- can it be served as it asks? --------------------------------------------------------------


def invalid(world: World, claim: Claim) -> Action | None:
    problem = world.class_of(claim).problem
    return _reject(claim, f"class {claims.class_of(claim)}: {problem}") if problem else None


def impossible(_world: World, claim: Claim) -> Action | None:
    reason = claims.fault_of(claim)
    return _reject(claim, reason) if reason else None


def wrong_topology(world: World, claim: Claim) -> Action | None:
    class_facts = world.class_of(claim)
    if world.allows(class_facts.object.allowed_topologies):
        return None
    return _give_back(claim, f"class {class_facts.name} does not allow node {_node(world)}")


def unlabelled(world: World, claim: Claim) -> Action | None:
    """Without the label its affinity would name no node, and no pod could ever use it."""
    class_facts = world.class_of(claim)
    missing = [
        key for key in class_facts.wish.affinity_keys if not world.facts.node.labels.get(key)
    ]
    if not missing:
        return None
    return _give_back(claim, f"node {_node(world)} has no label {', '.join(missing)}")


# --- where? ------------------------------------------------------------------------------------


def others_turn(world: World, claim: Claim) -> Action | None:
    """An earlier agent of this node deals with the claim as long as it is there."""
    class_facts = world.class_of(claim)
    for pool in world.facts.pools:
        if pool.report.taken and is_for(pool, class_facts):
            reason = f"pool {pool.config.name}: {pool.report.problem}"
            return Hold(key=_key(claim), reason=reason, claim=claim)
    return None


def to_be_made(world: World, claim: Claim) -> Action:
    class_facts = world.class_of(claim)
    size = claims.requested_bytes(claim) or 0
    most = most_bytes(size, *_limits(class_facts, size))
    whys: list[str] = []
    fitting: list[Pool] = []
    for pool in world.facts.pools:
        if not is_for(pool, class_facts):
            continue
        why = unfit(pool, class_facts, claim)
        if not why and is_counted(pool, class_facts):
            why = _lack(world, class_facts, pool, most)
        if why:
            whys.append(f"pool {pool.config.name}: {why}")
        else:
            fitting.append(pool)
    if not fitting:
        text = "; ".join(whys) or _why_no_pool(world, class_facts)
        return _give_back(claim, f"node {_node(world)}: {text}")
    best = max(fitting, key=lambda pool: (_fits(world, class_facts, pool), pool.config.name))
    return _make(world, claim, class_facts, best, size)


def _fits(world: World, class_facts: ClassFacts, pool: Pool) -> int:
    return world.fits(pool, class_facts.wish.option_class)


def _lack(world: World, class_facts: ClassFacts, pool: Pool, most: int) -> str:
    """Why the pool has too little capacity for a volume of `most` bytes, "" if it has enough."""
    capacity, needed = world.capacity[pool.config.name], rounded(pool, most)
    fits = _fits(world, class_facts, pool)
    if capacity < needed:
        return f"{quantity(capacity)} of room left{_shared(pool)}, {quantity(most)} asked for"
    if fits < needed:
        return (
            f"{quantity(capacity)} of room left, of which LVM makes no volume larger than"
            f" {quantity(max(0, fits))}, {quantity(most)} asked for"
        )
    return ""


def _shared(pool: Pool) -> str:
    """Names the pools that share the capacity, if any do."""
    names = ", ".join(f"pool {name}" for name in pool.beside.names)
    return f" on the filesystem that it shares with {names}" if names else ""


def _why_no_pool(world: World, class_facts: ClassFacts) -> str:
    refusals = world.facts.refusals.get(class_facts.object.provisioner, {})
    refusal = refusals.get(class_facts.name) or refusals.get("")
    return refusal or f"no pool of class {class_facts.name} is configured"


def _make(world: World, claim: Claim, class_facts: ClassFacts, pool: Pool, size: int) -> Action:
    config, wish, key = pool.config, class_facts.wish, _key(claim)
    try:
        source = read_claim(claim, class_facts)
        directory = directory_of(wish, config.flavor, claim, key)
        owner = owner_of(wish, claim, key)
    except Unsafe as unsafe:
        return _reject(claim, str(unsafe))
    if source == "hostPath" and class_facts.object.mount_options:
        return _reject(
            claim,
            "a hostPath volume takes no mount options, and the class has some: ask for volumeType "
            "local",
        )
    if config.backend in ("image", "lvm"):
        directory = ""
    elif conflict := conflicts(directory, world.places_in(config.name)):
        return _reject(claim, f"its directory {directory!r} {conflict}")
    soft, hard = _limits(class_facts, size)
    world.take(config.name, rounded(pool, most_bytes(size, soft, hard)), directory)
    record = Record(
        name=key,
        backend=config.backend,
        state="making",
        directory=directory,
        size_bytes=size,
        class_name=class_facts.name,
        claim=key_of(claim),
        claim_uid=claim.metadata.uid,
        volume_mode=mode_of(claim),
        fs_type=wish.fs_type,
        mode=owner.mode,
        uid=owner.uid,
        gid=owner.gid,
        enforced=is_enforced(pool, class_facts),
        soft_bytes=soft,
        hard_bytes=hard,
        sparse=config.sparse,
        overwrite=wish.overwrite,
        discard=wish.discard,
        option_class=wish.option_class,
    )
    return Make(
        key=key, reason=f"pool {config.name} has room", claim=claim, pool=config, record=record
    )


def is_for(pool: Pool, class_facts: ClassFacts) -> bool:
    """Whether the pool is one that the class may use, whatever state it is in."""
    config, wish = pool.config, class_facts.wish
    return (
        config.serves(class_facts.name, class_facts.object.provisioner)
        and (not wish.pools or not wish.pools.isdisjoint((config.name, config.of)))
        and (not wish.host_dirs or config.host_dir in wish.host_dirs)
        and _is_device_class(pool, wish)
    )


def _is_device_class(pool: Pool, wish: Wish) -> bool:
    """Whether TopoLVM's parameter, or the lack of it, means the pool."""
    config, lvm = pool.config, pool.config.lvm
    if wish.device_class:
        return lvm is not None and wish.device_class in (config.name, config.of)
    if lvm is None:
        return wish.device_class is None
    named = wish.device_class is None and bool(wish.pools)
    return named or not lvm.by_name_only


def is_enforced(pool: Pool, class_facts: ClassFacts) -> bool:
    """Whether the size of such a volume is to be enforced; that of a logical volume always is."""
    if pool.config.backend == "lvm":
        return True
    if class_facts.wish.enforce is None:
        return pool.config.enforce
    return class_facts.wish.enforce


def is_counted(pool: Pool, class_facts: ClassFacts) -> bool:
    """Whether capacity is accounted for. Where sizes mean nothing, as with the tools we replace, a
    claim for more than there is must be served, as they did."""
    return pool.config.flavor == "native" or is_enforced(pool, class_facts)


def unfit(pool: Pool, class_facts: ClassFacts, claim: Claim | None) -> str:
    """Why the pool cannot serve the class now (or this claim of it), or ""."""
    report, wish = pool.report, class_facts.wish
    if wrong := report.problem or report.unwell or pool.beside.unknown:
        return wrong
    if is_enforced(pool, class_facts) and not report.abilities.enforce:
        return why_unenforced(pool)
    if wish.fs_type and pool.config.backend not in _MAKE_BLOCK:
        return f"fsType {wish.fs_type} needs the backend image or lvm"
    if wish.discard and pool.config.backend != "lvm":
        return "onRemoval discard needs the backend lvm"
    if wish.option_class and not _has_option_class(pool, wish.option_class):
        return f"there is no lvcreate-option-class {wish.option_class}"
    if wish.overwrite and not report.abilities.overwrite:
        return "content cannot be overwritten there: only ext4 and xfs write over what was"
    if claim is None:
        return ""
    return _unfit_mode(pool, mode_of(claim))


def _unfit_mode(pool: Pool, mode: str) -> str:
    able, backend = pool.report.abilities, pool.config.backend
    if mode == "Block" and not able.block:
        if backend in _MAKE_BLOCK:
            return f"no Block volumes can be made there: {able.why_not}"
        return f"the backend {backend} makes no Block volumes; {' and '.join(_MAKE_BLOCK)} do"
    if mode == "Filesystem" and not able.filesystem:
        return f"no filesystems can be made there: {able.why_not}"
    return ""


_MAKE_BLOCK = ("image", "lvm")
"""The backends that make devices."""


def why_unenforced(pool: Pool) -> str:
    """Why the pool cannot enforce sizes, with what would help."""
    why = f"sizes cannot be enforced: {pool.report.abilities.why_not}"
    return f"{why}{_OTHERWISE}" if pool.config.backend == "directory" else why


_OTHERWISE = ". Or say enforce: none, of the pool or in the class, where no size must be enforced"


def _has_option_class(pool: Pool, name: str) -> bool:
    lvm = pool.config.lvm
    return lvm is not None and name in dict(lvm.option_classes)


def _limits(class_facts: ClassFacts, size: int) -> tuple[int | None, int | None]:
    """The soft and hard limit, in bytes, if the class wants others than the size."""
    if class_facts.wish.quota_graces is None:
        return None, None
    soft, hard = (limit_bytes(size, grace) for grace in class_facts.wish.quota_graces)
    return soft, hard


def _node(world: World) -> str:
    return world.facts.node.name


_RULES: tuple[Callable[[World, Claim], Action | None], ...] = (
    not_ours,
    going,
    without_class,
    elsewhere,
    served,
    begun,
    invalid,
    impossible,
    wrong_topology,
    unlabelled,
    others_turn,
    to_be_made,
)


# --- claims that have their volume: growing ----------------------------------------------------


def _bound(world: World, claim: Claim) -> Action:
    key = claim.spec.volume_name
    volume = world.facts.volumes.get(key)
    if volume is None or claim_of(volume) != claim.metadata.uid or is_being_deleted(claim):
        return Keep(key=key, reason="nothing is to be done for it")
    asked = claims.requested_bytes(claim) or 0
    has = bytes_of(volume.spec.capacity.get("storage", "")) or 0
    told = bytes_of(claim.status.capacity.get("storage", "")) or 0
    if asked <= has:
        if claim.status.phase == "Bound" and told < has and _resized(world, key, has):
            return TellGrown(
                key=key, reason="the volume has grown", claim=claim, volume=volume, size_bytes=has
            )
        return Keep(key=key, reason="it has what it asks for")
    found = world.records_of(key)
    said = pool_of(volume)
    home = world.pools.get(said[0]) if said else None
    if home is not None and home.report.problem:
        if home.report.taken:
            return Keep(key=key, reason="another agent works in its pool")
        return _cannot_grow(claim, f"pool {home.config.name}: {home.report.problem}")
    if not found or said is None:
        return _cannot_grow(claim, "an older provisioner made it, and its size is not enforced")
    pool, record = found[0]
    if record.state != "offered":
        return _cannot_grow(claim, f"the record of its volume says {record.state}")
    if record.size_bytes >= asked:
        return TellGrown(
            key=key,
            reason="the volume has grown",
            claim=claim,
            volume=volume,
            # The size that it has, not the one asked for: logical volumes are rounded up.
            size_bytes=record.size_bytes,
        )
    return _grow(world, claim, Found(pool, record), asked)


def _resized(world: World, key: str, size: int) -> bool:
    return any(record.size_bytes >= size for _, record in world.records_of(key))


def _grow(world: World, claim: Claim, found: Found, asked: int) -> Action:
    pool, record = found
    key = record.name
    if why := pool.report.problem or pool.report.unwell or pool.beside.unknown:
        return _cannot_grow(claim, f"pool {pool.config.name}: {why}")
    more = rounded(pool, most_of(grown_to(record, asked))) - most_of(record)
    if not is_full(pool.report):
        # An attempt that ended early has it already: the capacity that is left lacks it.
        more = max(0, more - begun_bytes(pool, key))
    left = world.capacity[pool.config.name]
    if (record.enforced or pool.config.flavor == "native") and left < more:
        text = f"{quantity(left)} of room left{_shared(pool)}, {quantity(more)} needed"
        return _cannot_grow(claim, f"pool {pool.config.name}: {text}")
    world.take(pool.config.name, more)
    return Grow(
        key=key,
        reason=f"the claim asks for {quantity(asked)}",
        claim=claim,
        volume=world.facts.volumes[key],
        pool=pool.config,
        record=record,
        size_bytes=asked,
    )


def _cannot_grow(claim: Claim, reason: str) -> Hold:
    return Hold(
        key=claim.spec.volume_name,
        reason=f"it cannot grow: {reason}",
        claim=claim,
        event=EVENT_RESIZE_FAILED,
    )
