"""What LVM's reports of one volume group mean for a pool: a pure function.

Only what carries our tags in this pool is ours; everything else is counted and left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from localvolume.backends.capacity import FULL_PERCENT
from localvolume.backends.lvm.record import (
    CUT,
    GROWTH,
    KEPT,
    KIND,
    OF,
    Entry,
    growth_name,
    read_entry,
)
from localvolume.backends.model import (
    FULL_ENDS,
    WARN_PERCENT,
    Abilities,
    Fill,
    PoolReport,
    Usage,
    kept_for,
    lost,
)
from localvolume.config.lvcreateoptions import allocation_of
from localvolume.config.pools import LvmConfig
from localvolume.host.lvm.commands import LogicalVolume, VolumeGroup
from localvolume.host.lvm.report import INVALID
from localvolume.volumes.lvtags import OWNER, POOL_OWNER, PREFIX, BadTag, decode

# How large a volume LVM can make of what is free in a group: pure.
#
# This can be less than all free space: each stripe lies on a physical volume of its own, and a
# contiguous volume takes one run of extents on each.


def free_bytes(group: VolumeGroup) -> int:
    """All space that volumes may be made of, whatever their layout."""
    if group.free is None:
        return group.free_bytes
    return sum(map(sum, group.free)) * group.extent_bytes


def largest_by_class(config: LvmConfig, group: VolumeGroup) -> Mapping[str, int]:
    """The largest thick volume in bytes, by the option class that chooses its layout; "" for none.

    Empty if it is not known which extents are free.
    """
    if group.free is None:
        return {}
    found = {}
    for name in ("", *dict(config.option_classes)):
        stripes, _, options = config.layout(name)
        policy = allocation_of(options) or group.allocation
        extents = largest_extents(group.free, max(1, stripes), policy)
        found[name] = extents * group.extent_bytes
    return found


def largest_extents(free: Sequence[Sequence[int]], stripes: int, policy: str) -> int:
    """How many extents the largest volume can have; `free` are the runs of each physical volume."""
    if policy not in ("normal", "anywhere"):
        # One run for each stripe. LVM may do better with "cling", but never worse.
        longest = sorted(map(_longest, free), reverse=True)
        return stripes * longest[stripes - 1] if len(longest) >= stripes else 0
    if stripes == 1:
        return sum(map(sum, free))
    # LVM takes the longest run of each physical volume, and of these the longest ones, until too
    # few are left. It may first stay with the same physical volumes as long as all have some left;
    # that depends on lvm.conf (maximise_cling), so the lower result counts. "anywhere" may finally
    # put two stripes on one physical volume; this does not rely on it.
    return stripes * min(_greedy(free, stripes, cling) for cling in (True, False))


def _greedy(free: Sequence[Sequence[int]], stripes: int, cling: bool) -> int:
    """How many extents each stripe gets."""
    runs = [sorted(sizes) for sizes in free]
    taken = 0
    while True:
        runs = sorted((one for one in runs if one), key=_longest, reverse=True)
        if len(runs) < stripes:
            return taken
        chosen = runs[:stripes]
        taken += _take(chosen)
        while cling and all(chosen):
            taken += _take(chosen)


def _take(chosen: Sequence[list[int]]) -> int:
    """Take as much of the longest run of each as all of them have."""
    size = min(map(_longest, chosen))
    for sizes in chosen:
        rest = sizes.pop() - size
        if rest:
            sizes.append(rest)
            sizes.sort()
    return size


def _longest(sizes: Sequence[int]) -> int:
    return max(sizes, default=0)


OUTDATED: Final = -1
"""The `turn` of a View that is out of date, as space has been given back since."""


class NoPool(Exception):
    """What is there cannot be used as the pool now; the text says why, and what helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A group and the pool in it, as they are now. `volumes` are all in the group, by name."""

    id: str
    group: VolumeGroup
    pool: LogicalVolume | None
    volumes: Mapping[str, LogicalVolume]
    entries: Mapping[str, Entry] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    growths: Mapping[str, int] = field(default_factory=dict)
    """Bytes that are set aside for a volume to grow by, by its name."""
    orphans: Sequence[str] = ()
    foreign_bytes: int = 0
    largest: Mapping[str, int] = field(default_factory=dict)
    """The largest thick volume that fits, in bytes, by option class; "" for none."""
    stripes: int = 1
    """How many disks a volume lies on, each in whole extents, unless its options say otherwise."""
    turn: int = 0
    """How often space had been taken from it when it was read."""

    def on(self, name: str) -> list[str]:
        """The classic snapshots of that volume."""
        return classic_snapshots(name, self.volumes.values())

    def kept_on(self, name: str) -> list[str]:
        """Those of them that are volumes of ours: the data of that volume stays for them."""
        return kept_for(name, (entry.record for entry in self.entries.values()))


def classic_snapshots(name: str, volumes: Iterable[LogicalVolume]) -> list[str]:
    """The snapshots that would go or break with that volume; thin ones are volumes of their own."""
    return sorted(one.name for one in volumes if one.origin == name and one.kind == "snapshot")


def view_of(config: LvmConfig, group: VolumeGroup, volumes: Iterable[LogicalVolume]) -> View:
    """What is there. Raises NoPool."""
    by_name = {one.name: one for one in volumes}
    if group.missing:
        raise NoPool(f"{group.missing} physical volumes of {group.name} are missing")
    if not group.writable:
        raise NoPool(f"the volume group {group.name} is read-only")
    pool = None
    if config.thin_pool:
        pool = by_name.get(config.thin_pool)
        if pool is None:
            raise NoPool(f"there is no thin pool {config.thin_pool} in {group.name}")
        if pool.kind != "pool":
            raise NoPool(f"{pool.full_name} is no thin pool")
        if not pool.zeroes:
            raise NoPool(
                f"{pool.full_name} hands out blocks that still hold what others wrote: run"
                f" lvchange --zero y {pool.full_name}"
            )
    seen = View(
        id=pool.uuid if pool else group.uuid,
        group=group,
        pool=pool,
        volumes=by_name,
        largest={} if pool else largest_by_class(config, group),
        stripes=1 if pool else max(1, config.layout()[0]),
    )
    return _sorted_out(seen, config)


def _sorted_out(seen: View, config: LvmConfig) -> View:
    entries: dict[str, Entry] = {}
    growths: list[tuple[str, LogicalVolume]] = []
    cuts: list[tuple[str, LogicalVolume]] = []
    unreadable: dict[str, str] = {}
    orphans: list[str] = []
    for volume in _here(seen.volumes.values(), config):
        if not any(tag.startswith(PREFIX) for tag in volume.tags):
            continue
        try:
            fields = decode(volume.tags)
            if KEPT in fields and OWNER not in fields:
                orphans.append(volume.name)
            elif fields.get(OWNER) != POOL_OWNER:
                continue
            elif fields.get(KIND) == GROWTH:
                growths.append((fields.get(OF, ""), volume))
            elif fields.get(KIND) == CUT:
                cuts.append((fields.get(OF, ""), volume))
            else:
                entries[volume.name] = _entry(volume)
        except BadTag as error:
            unreadable[volume.name] = str(error)
    # A volume that cannot be read may still be growing, or be copied.
    whose = entries.keys() | unreadable.keys()
    orphans += [volume.name for name, volume in (*growths, *cuts) if name not in whose]
    foreign = 0
    if config.thin_pool:
        # This counts others' snapshots, too: nobody can tell how much they may still come to hold.
        foreign = sum(volume.size_bytes for volume in _here(seen.volumes.values(), config))
        foreign -= sum(entry.record.size_bytes for entry in entries.values())
    return replace(
        seen,
        entries=entries,
        unreadable=unreadable,
        growths={
            name: volume.size_bytes
            for name, volume in growths
            if name in entries and volume.name == growth_name(name)
        },
        orphans=sorted(orphans),
        foreign_bytes=foreign,
    )


def _here(volumes: Iterable[LogicalVolume], config: LvmConfig) -> Iterable[LogicalVolume]:
    """Those in the thin pool, or, without one, those in no pool; a pool of thick volumes thus also
    sees a thin pool's own tags.
    """
    return (one for one in volumes if one.pool == config.thin_pool)


def _entry(volume: LogicalVolume) -> Entry:
    if volume.kind == "pool":
        raise BadTag("it has the tags of a volume and is a thin pool")
    return read_entry(volume)


# --- reports -------------------------------------------------------------------------------------


def report_of(
    name: str,
    seen: View,
    *,
    abilities: Abilities,
    usage: Mapping[str, Usage] | None = None,
    troubles: Collection[str] = (),
) -> PoolReport:
    """The pool's report; `troubles` are warnings in addition to those from LVM's reports."""
    pool, group = seen.pool, seen.group
    if pool is None:
        total, available = group.size_bytes, free_bytes(group)
        # What is free where LVM may not allocate is not used either.
        used: int | None = max(0, total - group.free_bytes)
    else:
        full = 100.0 if pool.data_percent is None else pool.data_percent
        total, available = pool.size_bytes, int(pool.size_bytes * (1 - full / 100))
        used = None if pool.data_percent is None else total - available
    return PoolReport(
        name=name,
        id=seen.id,
        total_bytes=total,
        available_bytes=available,
        used_bytes=used,
        largest_bytes=seen.largest,
        abilities=abilities,
        records={entry.record.name: entry.record for entry in seen.entries.values()},
        usage=_with_growths(seen, usage or {}),
        orphans=seen.orphans,
        unreadable=seen.unreadable,
        foreign_bytes=seen.foreign_bytes,
        unit_bytes=group.extent_bytes * seen.stripes,
        data_percent=pool.data_percent if pool else None,
        metadata_percent=pool.metadata_percent if pool else None,
        thin_health=pool.health if pool else "",
        warnings=[*warnings_of(seen), *sorted(troubles)],
        fills=fills_of(seen),
    )


def _with_growths(seen: View, usage: Mapping[str, Usage]) -> Mapping[str, Usage]:
    """Add what each volume has beyond its record: LVM gave it that before a growth ended early."""
    found = dict(usage)
    for name, entry in seen.entries.items():
        if entry.record.state in ("made", "offered") and not entry.record.snapshot_of:
            more = entry.volume.size_bytes - entry.record.size_bytes + seen.growths.get(name, 0)
            if more:
                found[name] = replace(found.get(name, Usage()), begun_bytes=more)
    return found


def warnings_of(seen: View) -> list[str]:
    """What people must look at. It names thresholds, not measured values, so it rarely changes."""
    found: list[str] = []
    if seen.pool is not None:
        found += _fullness(f"the data of {seen.pool.full_name}", seen.pool.data_percent)
        found += _fullness(f"the metadata of {seen.pool.full_name}", seen.pool.metadata_percent)
    for name, volume in sorted(seen.volumes.items()):
        entry = seen.entries.get(name)
        if entry is not None and entry.record.reserve_bytes:
            found += _of_reserve(entry)
        elif (entry is not None or volume is seen.pool) and volume.health:
            found.append(f"LVM says of {volume.full_name}: {volume.health}")
    return found


def _of_reserve(entry: Entry) -> list[str]:
    record, volume = entry.record, entry.volume
    if record.state == "removed":
        return []
    if volume.health == INVALID:
        return [f"{lost(record)}: remove it"]
    if volume.health:
        return [f"LVM says of {volume.full_name}: {volume.health}"]
    if (volume.data_percent or 0.0) < WARN_PERCENT:
        return []
    return [f"the reserve of snapshot {record.name} is more than {WARN_PERCENT}% full: {FULL_ENDS}"]


def fills_of(seen: View) -> Mapping[str, Fill]:
    """How full the reserves of complete snapshots are. LVM only knows it of active ones."""
    return {
        name: Fill(percent=volume.data_percent or 0.0, lost=volume.health == INVALID)
        for name, entry in seen.entries.items()
        if entry.record.reserve_bytes
        and entry.record.state == "offered"
        and (volume := entry.volume).active
        and (volume.health == INVALID or (not volume.health and volume.data_percent is not None))
    }


def _fullness(what: str, percent: float | None) -> list[str]:
    if percent is None or percent < WARN_PERCENT:
        return []
    if percent < FULL_PERCENT:
        return [f"{what} is more than {WARN_PERCENT}% full: extend it, or remove volumes"]
    end = "no volume is made there any more; when it is full, every volume in it fails"
    return [f"{what} is more than {FULL_PERCENT}% full: {end}"]
