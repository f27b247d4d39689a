"""Read a pool from outside its agent: nothing is written, locked or measured."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from localvolume.backends.model import Abilities, PoolReport
from localvolume.backends.pool.orphans import orphans
from localvolume.backends.pool.records import read_records
from localvolume.backends.pool.root import DIRECTORY, PoolUnusable, read_id, see_usable
from localvolume.config.pools import PoolConfig
from localvolume.host.process import commands
from localvolume.host.process.commands import Finished
from localvolume.host.process.commandsync import OUTPUT_LIMIT
from localvolume.host.syscalls import closed_after


def _run(
    argv: Sequence[str],
    timeout: float,
    *,
    output_limit: int = OUTPUT_LIMIT,
    env: Mapping[str, str] | None = None,
) -> Finished:
    return asyncio.run(commands.run(argv, timeout=timeout, output_limit=output_limit, env=env))


def survey(config: PoolConfig) -> PoolReport:
    """Its records and orphans; `problem` if there is no such pool, or it cannot be read."""
    if config.backend == "lvm":
        from localvolume.backends.lvm import survey as lvmsurvey

        return lvmsurvey.survey(config, _run)
    try:
        with closed_after(os.open(config.mount_dir, DIRECTORY)) as pool:
            pool_id = read_id(pool)
            if pool_id is None:
                return PoolReport(name=config.name, problem="no agent has made a pool of it yet")
            records = read_records(pool)
            unreadable = records.unreadable()
            return PoolReport(
                name=config.name,
                id=pool_id,
                records=records.all(),
                orphans=orphans(pool, records.all(), unreadable),
                unreadable=unreadable,
            )
    except (PoolUnusable, OSError) as error:
        return PoolReport(name=config.name, problem=str(error))


def prospect(config: PoolConfig) -> PoolReport:
    """What an agent would find in a pool that it does not have yet: nothing is made.

    `problem` is what would keep the agent from using the pool, "" if nothing; `abilities` are what
    could be done there. Nothing else is filled in, except for logical volumes.
    """
    name = config.name
    if config.lvm is not None:
        # A pattern is not a group yet: the agent asks repeatedly which group it matches.
        able = PoolReport(name=name, abilities=Abilities(enforce=True))
        return survey(config) if config.lvm.group else able
    try:
        with closed_after(os.open(config.mount_dir, DIRECTORY)) as pool:
            path = os.readlink(f"/proc/self/fd/{pool}")
            see_usable(pool, path, config)
            return PoolReport(name=name, abilities=_abilities(config, pool, path))
    except OSError as error:
        return PoolReport(name=name, problem=f"{config.mount_dir}: {error.strerror or error}")
    except PoolUnusable as error:
        return PoolReport(name=name, problem=str(error))


def _abilities(config: PoolConfig, pool: int, path: str) -> Abilities:
    match config.backend:
        case "directory":
            from localvolume.backends.directory.backend import DirectoryBackend

            return DirectoryBackend().abilities(pool, path)
        case "btrfs":
            from localvolume.host.btrfs.subvolumes import is_btrfs

            # The backend's own `abilities` would switch quotas on.
            able = is_btrfs(pool)
            return Abilities(enforce=able, why_not="" if able else "its filesystem is not btrfs")
        case _:
            from localvolume.host.loop import attach

            why_not = attach.why_none()
            return Abilities(enforce=not why_not, why_not=why_not)
