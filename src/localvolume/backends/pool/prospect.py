"""What an agent would find in a pool before it has one: nothing is made, written or locked."""

from __future__ import annotations

import os

from localvolume.backends.model import Abilities, PoolReport
from localvolume.backends.pool.root import PoolUnusable, see_usable
from localvolume.backends.pool.survey import survey
from localvolume.config.pools import PoolConfig
from localvolume.host.syscalls import closed_after


def prospect(config: PoolConfig) -> PoolReport:
    """`problem` is what would keep the agent from using the pool, "" for nothing; `abilities` what
    could be done there. Nothing else is filled in, but for logical volumes."""
    name = config.name
    if config.lvm is not None:
        # A pattern is no group: which it matches, the agent asks again and again.
        able = PoolReport(name=name, abilities=Abilities(enforce=True))
        return survey(config) if config.lvm.group else able
    try:
        with closed_after(
            os.open(config.mount_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        ) as pool:
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

            # The backend's own look would switch quotas on.
            able = is_btrfs(pool)
            return Abilities(enforce=able, why_not="" if able else "its filesystem is not btrfs")
        case _:
            from localvolume.host.loop import attach

            why_not = attach.why_none()
            return Abilities(enforce=not why_not, why_not=why_not)
