"""Read a pool from outside its agent: nothing is written, locked or measured."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence

from localvolume.backends.model import PoolReport
from localvolume.backends.pool.orphans import orphans
from localvolume.backends.pool.records import read_records
from localvolume.backends.pool.root import DIRECTORY, PoolUnusable, read_id
from localvolume.config.pools import PoolConfig
from localvolume.host.process import commands
from localvolume.host.process.commands import Finished
from localvolume.host.process.commandsync import OUTPUT_LIMIT
from localvolume.host.syscalls import closed_after


def run_here(
    argv: Sequence[str],
    timeout: float,
    *,
    output_limit: int = OUTPUT_LIMIT,
    env: Mapping[str, str] | None = None,
) -> Finished:
    """Run a host command; not from within an event loop."""
    return asyncio.run(commands.run(argv, timeout=timeout, output_limit=output_limit, env=env))


def survey(config: PoolConfig) -> PoolReport:
    """Its records and orphans; `problem` if there is no such pool, or it cannot be read."""
    if config.backend == "lvm":
        from localvolume.backends.lvm import survey as lvmsurvey

        return lvmsurvey.survey(config, run_here)
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
