"""The rules for claims that ask for more than they have: when a volume grows, or why not. Pure."""

from __future__ import annotations

from typing import Final

from localvolume.dynamic.model import (
    Action,
    Grow,
    Hold,
    Keep,
    TellGrown,
    TellInfeasible,
)
from localvolume.dynamic.plan.placing import growth, unable_now
from localvolume.dynamic.plan.world import Found, World, pool_of
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import claims
from localvolume.volumes.capacity import bytes_of, quantity
from localvolume.volumes.growing import is_infeasible

Claim = PersistentVolumeClaim

EVENT_RESIZE_FAILED: Final = "VolumeResizeFailed"


def sized(world: World, claim: Claim, volume: PersistentVolume) -> Action:
    """What is to be done or said because of the size that the claim asks for."""
    key = volume.metadata.name
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
        why = "an older provisioner made it, and its size is not enforced"
        return _never_grows(world, claim, why, asked)
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
    if why := unable_now(pool):
        return _cannot_grow(claim, f"pool {pool.config.name}: {why}")
    more = growth(world, found, asked)
    if isinstance(more, str):
        return _never_grows(world, claim, f"pool {pool.config.name}: {more}", asked)
    world.take(pool.config.name, more)
    return Grow(
        key=record.name,
        reason=f"the claim asks for {quantity(asked)}",
        claim=claim,
        volume=world.facts.volumes[record.name],
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


def _never_grows(world: World, claim: Claim, reason: str, asked: int) -> Action:
    """It cannot be that large unless room is made: its status says so first, then Events do.

    Whoever owns the claim may ask for less then, which Kubernetes allows.
    """
    held = _cannot_grow(claim, reason)
    if is_infeasible(claim, asked, held.reason, world.facts.now.here):
        return held
    return TellInfeasible(key=held.key, reason=held.reason, claim=claim, size_bytes=asked)
