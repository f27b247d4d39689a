"""Which pool a new volume is made in, and as what; and whether one may grow. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from localvolume.backends.capacity import is_full, most_bytes, most_of
from localvolume.backends.model import Record, grown_to
from localvolume.config.foreign.openebs import limit_bytes
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.dynamic.model import ClassFacts, Pool, Wish
from localvolume.dynamic.plan.paths import Owner, conflicts
from localvolume.dynamic.plan.world import Found, World, begun_bytes, rounded
from localvolume.volumes.capacity import quantity

VolumeMode = Literal["Filesystem", "Block"]


@dataclass(frozen=True, slots=True)
class Placing:
    """A volume to be made: its size in bytes, and the directory that it would have in a pool."""

    name: str
    size_bytes: int
    volume_mode: VolumeMode
    directory: str
    owner: Owner


def choose(
    world: World, class_facts: ClassFacts, mode: VolumeMode, size: int, *, only: str = ""
) -> Pool | str:
    """The pool with the most room of those that fit; or why none does.

    `only` is the name of the one pool that has the content that is wanted.
    """
    most = most_bytes(size, *_limits(class_facts, size))
    whys: list[str] = []
    fitting: list[Pool] = []
    for pool in world.facts.pools:
        if only not in ("", pool.config.name) or not is_for(pool, class_facts):
            continue
        why = unfit(pool, class_facts, mode)
        if not why and is_counted(pool, class_facts):
            why = _lack(world, class_facts, pool, most)
        if why:
            whys.append(f"pool {pool.config.name}: {why}")
        else:
            fitting.append(pool)
    if not fitting:
        if only and not whys:
            return f"its content is in pool {only}, which is not for the class"
        return "; ".join(whys) or _why_no_pool(world, class_facts)
    return max(fitting, key=lambda pool: (_fits(world, class_facts, pool), pool.config.name))


def place(world: World, pool: Pool, class_facts: ClassFacts, placing: Placing) -> Record | str:
    """The record of a new volume in that pool, whose room it takes; or why it cannot be there."""
    config, wish, size = pool.config, class_facts.wish, placing.size_bytes
    directory = "" if config.backend in _MAKE_BLOCK else placing.directory
    if directory and (conflict := conflicts(directory, world.places_in(config.name))):
        return f"its directory {directory!r} {conflict}"
    soft, hard = _limits(class_facts, size)
    world.take(config.name, rounded(pool, most_bytes(size, soft, hard)), directory)
    provisioner = class_facts.object.provisioner
    return Record(
        name=placing.name,
        backend=config.backend,
        state="making",
        directory=directory,
        size_bytes=size,
        class_name=class_facts.name,
        volume_mode=placing.volume_mode,
        fs_type=wish.fs_type,
        mode=placing.owner.mode,
        uid=placing.owner.uid,
        gid=placing.owner.gid,
        enforced=is_enforced(pool, class_facts),
        soft_bytes=soft,
        hard_bytes=hard,
        sparse=config.sparse,
        overwrite=wish.overwrite,
        discard=wish.discard,
        option_class=wish.option_class,
        full_copies=wish.full_copies,
        driver=CSI_DRIVER if provisioner == CSI_DRIVER else "",
    )


def unable_now(pool: Pool) -> str:
    """Why nothing in the pool grows for now, whatever room it has; "" if it may."""
    return pool.report.problem or pool.report.unwell or pool.beside.unknown


def growth(world: World, found: Found, asked: int) -> int | str:
    """How many bytes more the pool has to give for a volume to grow; or why it cannot."""
    pool, record = found
    if why := unable_now(pool):
        return why
    more = rounded(pool, most_of(grown_to(record, asked))) - most_of(record)
    if not is_full(pool.report):
        # An attempt that ended early has it already: the capacity that is left lacks it.
        more = max(0, more - begun_bytes(pool, record.name))
    left = world.capacity[pool.config.name]
    if (record.enforced or pool.config.flavor == "native") and left < more:
        return f"{quantity(left)} of room left{_shared(pool)}, {quantity(more)} needed"
    return more


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


def is_for(pool: Pool, class_facts: ClassFacts) -> bool:
    """Whether the pool is one that the class may use, whatever state it is in."""
    config, wish = pool.config, class_facts.wish
    if wish.inline:
        return config.name in wish.pools
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


def unfit(pool: Pool, class_facts: ClassFacts, mode: VolumeMode | None) -> str:
    """Why the pool cannot serve the class now (or a volume of that mode), or ""."""
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
    if wish.limited and (why := unlimited(pool.config.backend)):
        return why
    if wish.overwrite and not report.abilities.overwrite:
        return "content cannot be overwritten there: only ext4 and xfs write over what was"
    return _unfit_mode(pool, mode) if mode else ""


def _unfit_mode(pool: Pool, mode: str) -> str:
    able, backend = pool.report.abilities, pool.config.backend
    if mode == "Block" and not able.block:
        if backend in _MAKE_BLOCK:
            return f"no Block volumes can be made there: {able.why_not}"
        return f"the backend {backend} makes no Block volumes; {' and '.join(_MAKE_BLOCK)} do"
    if mode == "Filesystem" and not able.filesystem:
        return f"no filesystems can be made there: {able.why_not}"
    return ""


def with_limits(class_facts: ClassFacts) -> ClassFacts:
    """The class as it is for a volume whose attributes limit reading or writing."""
    return replace(class_facts, wish=replace(class_facts.wish, limited=True))


def unlimited(backend: str) -> str:
    """Why reading from and writing to volumes of that backend cannot be limited, "" if it can."""
    if backend in _MAKE_BLOCK:
        return ""
    return (
        f"volumes of the backend {backend} share a device with others, so limits of one would be"
        f" limits of all; {' and '.join(_MAKE_BLOCK)} have devices of their own"
    )


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
