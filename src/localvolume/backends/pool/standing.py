"""What a pool stands on, and what it has promised there, also where it cannot be used.

Pools on one filesystem take their room from the same. So each says which one it is on, and one that
has a problem says what its records stand for: its volumes are there all the same.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from localvolume.backends.model import OURS, PoolReport, Record
from localvolume.backends.pool.layout import RECORDS
from localvolume.backends.pool.records import Records
from localvolume.config.pools import PoolConfig
from localvolume.host.mount.mounts import Mount, read_mount_table
from localvolume.host.tree.entries import device_number
from localvolume.host.tree.trees import opened

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a pool without its being open; see the same fields of `PoolReport`."""

    filesystem: str = ""
    records: Mapping[str, Record] = field(default_factory=dict)
    uncounted: str = ""

    def report(self, name: str, problem: str, *, taken: bool = False) -> PoolReport:
        """The report of that pool with a problem."""
        return PoolReport(
            name=name,
            problem=problem,
            taken=taken,
            filesystem=self.filesystem,
            dormant=self.records,
            uncounted=self.uncounted,
        )


def filesystem_of(pool: int, mount: Mount | None) -> str:
    """The filesystem of an open pool, which `mount` holds; raises OSError.

    By the mount table where it can be: each subvolume of a btrfs has an st_dev of its own.
    """
    return mount.device if mount is not None else device_number(os.fstat(pool).st_dev)


def standing_of(config: PoolConfig) -> Standing:
    """Look at a pool that cannot be opened: nothing is written, locked or measured."""
    try:
        pool = os.open(config.mount_dir, _DIRECTORY)
    except OSError:
        return Standing()  # nothing is there
    filesystem = ""
    try:
        path = os.readlink(f"/proc/self/fd/{pool}")
        filesystem = filesystem_of(pool, read_mount_table().holding(path))
        with opened(pool, f"{OURS}/{RECORDS}") as directory:
            records = Records(directory)
            records.refresh()
        return Standing(filesystem=filesystem, records=records.all())
    except FileNotFoundError:
        return Standing(filesystem=filesystem)  # no agent has made a pool of it yet
    except (OSError, ValueError) as error:
        return Standing(filesystem=filesystem, uncounted=str(error))
    finally:
        os.close(pool)
