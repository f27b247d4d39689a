"""What an agent would report about this host's pools and directories, from the host alone."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from localvolume.backends.pool.prospect import prospect
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.model import Pool
from localvolume.dynamic.plan.inability import inabilities


def seen_here(mount_dir: str, host_dir: str) -> str:
    """Where a directory is for this process: the agent's mountDir may not exist on the host."""
    return host_dir if not os.path.exists(mount_dir) and os.path.exists(host_dir) else mount_dir


def problems_of_pools(pools: Sequence[PoolConfig]) -> Mapping[str, str]:
    """Why pools could not be used as they are configured, by the pools' names."""
    found = []
    for pool in pools:
        # A pool of logical volumes has no directory.
        here = replace(pool, mount_dir=seen_here(pool.mount_dir, pool.host_dir))
        found.append(Pool(config=pool, report=prospect(here if pool.lvm is None else pool)))
    wrong = {one.config.name: one.report.problem for one in found if one.report.problem}
    return wrong | dict(inabilities(found, ()))


def problem_of_directory(mount_dir: str, host_dir: str) -> str:
    """Why a discovery directory cannot be listed, "" if it can."""
    where = seen_here(mount_dir, host_dir)
    try:
        with os.scandir(where):
            return ""
    except OSError as error:
        return f"the discovery directory {where} cannot be listed: {error.strerror}"
