"""What an agent would find in a pool, seen without it: nothing is made, locked or changed.

The agent's own look makes a pool where there is none, has btrfs count, and brings logical volumes
up. So a part of what it can tell is not told here; where that matters, less is promised.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from localvolume.backends.model import (
    Abilities,
    BackendFailed,
    PoolReport,
    Record,
    Usage,
    able_with,
    has_content_of,
)
from localvolume.backends.pool.orphans import orphans
from localvolume.backends.pool.pool import filesystem_of
from localvolume.backends.pool.records import read_records
from localvolume.backends.pool.root import DIRECTORY, PoolUnusable, see_usable, space_of
from localvolume.backends.pool.survey import run_here
from localvolume.config.pools import PoolConfig
from localvolume.host.filesystem import reflink
from localvolume.host.filesystem.errors import mounted_failure
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.syscalls import closed_after, fstatfs


@dataclass(frozen=True, slots=True)
class Known:
    """What objects know of a pool: see ``Store.know``."""

    ids: Collection[str] = ()
    places: Collection[str] = ()
    missing: Collection[str] = ()


NOTHING: Final = Known()


def prospect(config: PoolConfig, known: Known = NOTHING) -> PoolReport:
    """`problem` is what would keep the agent from using the pool, "" if nothing."""
    if config.lvm is not None:
        return _of_group(config, known)
    name = config.name
    try:
        with closed_after(os.open(config.mount_dir, DIRECTORY)) as pool:
            path = os.readlink(f"/proc/self/fd/{pool}")
            pool_id = see_usable(pool, path, config, known.ids, known.places, known.missing)
            records: dict[str, Record] = {}
            unreadable: Mapping[str, str] = {}
            if pool_id:
                read = read_records(pool)
                records, unreadable = dict(read.all()), read.unreadable()
            mount = read_mount_table().holding(path)
            space = space_of(pool)
            usage = _usage(config, pool, path, records)
            able = _abilities(config, pool, path, is_made=bool(pool_id))
            return PoolReport(
                name=name,
                id=pool_id,
                total_bytes=space.total,
                available_bytes=space.available,
                used_bytes=space.used,
                unwell=str(mounted_failure(mount)) if mount is not None else "",
                abilities=able_with(able, usage),
                records=records,
                usage=usage,
                orphans=orphans(pool, records, unreadable),
                unreadable=unreadable,
                filesystem=filesystem_of(pool, mount),
            )
    except OSError as error:
        return PoolReport(name=name, problem=f"{config.mount_dir}: {error.strerror or error}")
    except (PoolUnusable, BackendFailed, ValueError) as error:
        return PoolReport(name=name, problem=str(error))


def _of_group(config: PoolConfig, known: Known) -> PoolReport:
    from localvolume.backends.lvm.survey import survey

    if config.lvm is None or not config.lvm.group:
        # A pattern is not a group yet: the agent asks repeatedly which group it matches.
        return PoolReport(name=config.name, abilities=Abilities(enforce=True))
    found = survey(config, run_here)
    if known.ids and not found.problem and found.id not in known.ids:
        names = ", ".join(sorted(known.ids))
        why = f"this is {found.id}, and PersistentVolumes name {names}: its disks are not there"
        return PoolReport(name=config.name, problem=f"{why}, or it was made anew")
    return found


def _abilities(config: PoolConfig, pool: int, path: str, *, is_made: bool) -> Abilities:
    match config.backend:
        case "directory":
            from localvolume.backends.directory.backend import DirectoryBackend

            return DirectoryBackend().abilities(pool, path)
        case "btrfs":
            from localvolume.backends.btrfs.backend import abilities_with
            from localvolume.backends.btrfs.copying import APART
            from localvolume.host.btrfs.quota import read_state
            from localvolume.host.btrfs.subvolumes import is_btrfs

            if not is_btrfs(pool):
                why = "its filesystem is not btrfs"
                return Abilities(enforce=False, why_not=why, filesystem=False)
            # The agent switches quotas on where they are off.
            found = read_state(pool)
            able = Abilities(enforce=True, overwrite=False, no_copies="", no_groups=APART)
            return abilities_with(found) if found.on else able
        case _:
            from dataclasses import replace

            from localvolume.backends.image.backend import ImageBackend
            from localvolume.backends.image.copying import NO_SHARING

            found_able = ImageBackend(run_here).abilities(pool, path)
            if is_made or not found_able.block:
                return found_able
            # It has no place for images yet in which that could be tried.
            no_copies = "" if reflink.can_clone(pool) else NO_SHARING
            return replace(found_able, no_copies=no_copies, no_groups=no_copies)


def _usage(
    config: PoolConfig, pool: int, path: str, records: Mapping[str, Record]
) -> Mapping[str, Usage]:
    from localvolume.backends.directory.backend import DirectoryBackend

    adopted = [one for one in records.values() if one.adopted]
    ours = [one for one in records.values() if not one.adopted and one.state != "making"]
    usage: dict[str, Usage] = {}
    if adopted or (ours and config.backend == "directory"):
        those = adopted + (ours if config.backend == "directory" else [])
        usage |= DirectoryBackend().usage(pool, path, those)
    if ours and config.backend == "btrfs":
        usage |= _usage_of_subvolumes(pool, ours)
    elif ours and config.backend == "image":
        from localvolume.backends.image.backend import ImageBackend

        usage |= ImageBackend(run_here).usage(pool, path, ours)
    return usage


def _usage_of_subvolumes(pool: int, records: Collection[Record]) -> Mapping[str, Usage]:
    from localvolume.backends.btrfs.backend import limit_of, usage_of
    from localvolume.host.btrfs.limits import measure

    with suppress(OSError):
        held = measure(pool, {record.inode for record in records})
        found = fstatfs(pool)
        free = found.available * found.block_size
        shared = any(has_content_of(record) for record in records)
        return {
            record.name: usage_of(record, held[record.inode], limit_of(record), free, shared=shared)
            for record in records
            if record.inode in held
        }
    # Quotas are off, or are counted anew: each volume counts with all of its size.
    return {}
