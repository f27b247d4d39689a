"""What a btrfs volume can be asked for, and what is told of what it holds."""

from __future__ import annotations

from typing import Final

from localvolume.backends.model import Impossible, Record, Usage
from localvolume.host.btrfs.limits import Held

# An empty subvolume takes 16 KiB, and each change needs some for a moment.
_LEAST_BYTES: Final = 1 << 20


def limit_of(record: Record) -> int | None:
    """The limit in bytes; raises Impossible for what this backend cannot be asked for."""
    if record.volume_mode != "Filesystem":
        raise Impossible("a btrfs subvolume is no block device: use the image backend")
    if record.overwrite:
        raise Impossible(
            "btrfs writes new data elsewhere and never over the old, so that content cannot be"
            " overwritten: use the directory or image backend on ext4 or xfs"
        )
    if record.soft_bytes is not None:
        raise Impossible("btrfs has no soft limits")
    most = record.size_bytes if record.hard_bytes is None else record.hard_bytes
    if most < _LEAST_BYTES:
        raise Impossible(f"a btrfs volume needs at least {_LEAST_BYTES} bytes")
    return most if record.enforced else None


def usage_of(held: Held, most: int | None, free: int) -> Usage:
    """What is told of a volume with the limit `most`; `free` bytes are left in its pool."""
    problem = ""
    if held.inside:
        problem = (
            f"{held.inside} subvolumes or snapshots were made inside it; btrfs counts each by"
            " itself, so that together they can exceed its size between two measurements"
        )
    return Usage(
        used_bytes=held.referenced,
        available_bytes=free if most is None else min(free, max(0, most - held.referenced)),
        problem=problem,
    )
