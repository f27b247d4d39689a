"""The rules for claims: whose they are, whether they can be served here, and from which pool.

They follow the external-provisioner contract (sig-storage-lib-external-provisioner,
"shouldProvision" and "provisionClaimOperation"). The first rule that answers counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from localvolume.backends.model import Record, outgrew
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.classes.parameters import read_claim
from localvolume.dynamic.model import (
    Action,
    ClassFacts,
    GiveBack,
    Hold,
    Keep,
    Make,
    Pool,
    Publish,
    Reject,
    TakeAway,
)
from localvolume.dynamic.plan.attributes import asked, changed
from localvolume.dynamic.plan.calls.content import with_content_of
from localvolume.dynamic.plan.copies import follows, held, origin_of, unprotected
from localvolume.dynamic.plan.given import claims_with
from localvolume.dynamic.plan.growing import sized
from localvolume.dynamic.plan.paths import Unsafe, directory_of, owner_of
from localvolume.dynamic.plan.placing import Placing, choose, is_for, place, with_limits
from localvolume.dynamic.plan.records import most_advanced_last, never_published
from localvolume.dynamic.plan.world import Found, World, mode_of
from localvolume.kube.cache import key_of
from localvolume.kube.objects import PersistentVolumeClaim
from localvolume.volumes import claims
from localvolume.volumes.attributes import Attributes
from localvolume.volumes.objects import claim_of, is_being_deleted

Claim = PersistentVolumeClaim

_ASKING = "its VolumeAttributesClass is being read"


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
    # Nobody is asked to serve a claim that waits for its first pod; a copy does not wait.
    if provisioner in world.facts.provisioners or follows(world, claim):
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
    if follows(world, claim):
        if world.is_labelled(claim):
            return None
        return _keep(claim, "another node has the content that it asks for")
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
    if record.request:
        return _keep(claim, "a CSI call made its volume: external-provisioner serves it")
    if record.claim_uid != claim.metadata.uid:
        return _reject(claim, "the pool has a volume of that name that is another claim's")
    match record.state:
        case "making":
            return _completed(world, claim, Found(pool, record))
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


def _completed(world: World, claim: Claim, found: Found) -> Action:
    """Go on with what was begun."""
    pool, record = found
    origin = pool.report.records.get(record.made_from) if record.made_from else None
    reason = ""
    if record.made_from and (
        origin is None or origin.state != "offered" or outgrew(origin, record)
    ):
        reason = f"{record.made_from} is gone, or has grown since a copy of it was begun"
    elif origin is not None and not _is_still_theirs(world, claim, origin):
        namespace = claim.metadata.namespace
        reason = f"no claim of namespace {namespace} has volume {origin.name} any more"
    if reason:
        # Nobody was told of it. The claim is judged again once it is gone.
        return TakeAway(key=_key(claim), reason=reason, pool=pool.config, record=record, spare=True)
    return Make(
        key=_key(claim),
        reason="it was begun and is not complete",
        claim=claim,
        pool=pool.config,
        record=record,
        fresh=False,
        origin=origin,
    )


def _is_still_theirs(world: World, claim: Claim, origin: Record) -> bool:
    """Whether what is to be copied is the tenant's who asked for it.

    A copy may wait for long, as while its source is in use. Meanwhile the claim that is cloned may
    be gone, and its volume another tenant's. What a snapshot holds never changes.
    """
    if origin.snapshot_of:
        return True
    holders = claims_with(world.volumes_of(origin.name), origin)
    return (claim.metadata.namespace, origin.name) in holders


# --- can it be served as it asks? --------------------------------------------------------------


def invalid(world: World, claim: Claim) -> Action | None:
    problem = world.class_of(claim).problem
    return _reject(claim, f"class {claims.class_of(claim)}: {problem}") if problem else None


def impossible(world: World, claim: Claim) -> Action | None:
    csi = world.class_of(claim).object.provisioner == CSI_DRIVER
    if csi and claims.source_of(claim) is not None and not claims.is_copy(claim):
        return _keep(claim, "a volume populator fills its volume, and has it made")
    reason = claims.fault_of(claim, copies=follows(world, claim))
    return _reject(claim, reason) if reason else None


def without_attributes(world: World, claim: Claim) -> Action | None:
    wanted = asked(world, claim)
    if isinstance(wanted, Attributes):
        return None
    return _keep(claim, _ASKING) if wanted is None else _reject(claim, wanted)


def wrong_topology(world: World, claim: Claim) -> Action | None:
    class_facts = world.class_of(claim)
    if world.allows(class_facts.object.allowed_topologies):
        return None
    return _not_here(world, claim, f"class {class_facts.name} does not allow node {_node(world)}")


def unlabelled(world: World, claim: Claim) -> Action | None:
    """Without the label its affinity would name no node, and no pod could ever use it."""
    class_facts = world.class_of(claim)
    missing = [
        key for key in class_facts.wish.affinity_keys if not world.facts.node.labels.get(key)
    ]
    if not missing:
        return None
    return _not_here(world, claim, f"node {_node(world)} has no label {', '.join(missing)}")


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
    class_facts, size = world.class_of(claim), claims.requested_bytes(claim) or 0
    wanted = asked(world, claim)
    if isinstance(wanted, Attributes) and wanted.is_limited:
        class_facts = with_limits(class_facts)
    if follows(world, claim):
        return _to_be_copied(world, claim, class_facts, size)
    pool = choose(world, class_facts, mode_of(claim), size)
    if isinstance(pool, str):
        return _give_back(claim, f"node {_node(world)}: {pool}")
    return _make(world, claim, class_facts, pool, size)


def _to_be_copied(world: World, claim: Claim, class_facts: ClassFacts, size: int) -> Action:
    origin = origin_of(world, claim, size)
    if not isinstance(origin, Found):
        return origin
    home, size = origin.pool.config.name, max(size, origin.record.size_bytes)
    pool = choose(world, class_facts, mode_of(claim), size, only=home)
    if isinstance(pool, str):
        return _not_here(world, claim, f"node {_node(world)}: {pool}", f"put pool {home} right")
    return _make(world, claim, class_facts, pool, size, origin.record)


def _not_here(
    world: World, claim: Claim, reason: str, help_: str = "put that node right"
) -> Action:
    """This node cannot serve it: another one may, unless it asks for content that lies here."""
    if not follows(world, claim):
        return _give_back(claim, reason)
    return held(claim, f"{reason}; the content that it asks for is there alone: {help_}")


def _make(
    world: World,
    claim: Claim,
    class_facts: ClassFacts,
    pool: Pool,
    size: int,
    origin: Record | None = None,
) -> Action:
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
    placed = place(world, pool, class_facts, Placing(key, size, mode_of(claim), directory, owner))
    if isinstance(placed, str):
        return _reject(claim, placed)
    wanted = asked(world, claim)
    record = replace(placed, claim=key_of(claim), claim_uid=claim.metadata.uid)
    if isinstance(wanted, Attributes):
        record = replace(record, attributes=wanted)
    if origin is not None:
        record = with_content_of(origin, record)
    reason = f"pool {config.name} has room"
    return Make(key=key, reason=reason, claim=claim, pool=config, record=record, origin=origin)


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
    without_attributes,
    wrong_topology,
    unlabelled,
    others_turn,
    to_be_made,
)


# --- claims that have their volume: growing, and other attributes ------------------------------


def _bound(world: World, claim: Claim) -> Action:
    key = claim.spec.volume_name
    if (unprotect := unprotected(world, claim)) is not None:
        return unprotect
    volume = world.facts.volumes.get(key)
    if volume is None or claim_of(volume) != claim.metadata.uid or is_being_deleted(claim):
        return Keep(key=key, reason="nothing is to be done for it")
    size, change = sized(world, claim, volume), changed(world, claim, volume)
    if change is None or not isinstance(size, Keep | Hold):
        return size
    # Neither waits for the other. Of two that are held, one can be said.
    return size if isinstance(size, Hold) and isinstance(change, Hold) else change
