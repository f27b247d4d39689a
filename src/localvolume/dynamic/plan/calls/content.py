"""Which volume or snapshot others may have the content of, and what keeps them from it. Pure."""

from __future__ import annotations

from dataclasses import replace

from localvolume.backends.model import Record, filesystem_of, lost
from localvolume.backends.modes import no_mode_change
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.calls import NotNow, OutOfRange, Unknown, Wanted, Wrong
from localvolume.dynamic.model import ClassFacts, Pool, Wish
from localvolume.dynamic.plan.calls.finding import check_here, find
from localvolume.dynamic.plan.given import check_kept
from localvolume.dynamic.plan.placing import VolumeMode, is_for
from localvolume.dynamic.plan.world import Found, World, rounded
from localvolume.volumes.capacity import quantity


def origin_of(world: World, wanted: Wanted, class_facts: ClassFacts) -> Found:
    """The volume or snapshot whose content is wanted, in the one pool that can have the copy."""
    origin = find(world, wanted.source)
    check_here(world, wanted.source, origin, snapshot=wanted.from_snapshot)
    if origin is None or not is_source(origin.record, snapshot=wanted.from_snapshot):
        kind = "snapshot" if wanted.from_snapshot else "volume"
        raise Unknown(f"there is no {kind} {wanted.source} here")
    check_kept(world, wanted.source)
    check_copies(origin.pool, full=class_facts.wish.full_copies)
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


def check_copies(pool: Pool, *, full: bool, reserve: bool = False) -> None:
    """Raises NotNow while, and Wrong where, no snapshot or clone can be made in the pool."""
    if pool.report.unwell:
        raise NotNow(f"pool {pool.config.name}: {pool.report.unwell}")
    if why := pool.report.no_copies_now(full=full, reserve=reserve):
        raise Wrong(f"pool {pool.config.name}: {why}")


def check_content(found: Found) -> None:
    """Raises Wrong if the content of a snapshot is lost, and NotNow while nobody can tell."""
    if why := lost_content(found):
        raise Wrong(why)
    if found.record.reserve_bytes and found.record.name not in found.pool.report.fills:
        raise NotNow(f"it is not known yet how full the reserve of {found.record.name} is")


def lost_content(found: Found) -> str:
    """That the content of a snapshot is lost, "" if it is not, or nobody can tell."""
    fill = found.pool.report.fills.get(found.record.name)
    return lost(found.record) if fill is not None and fill.lost else ""


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
