"""How much a mounted volume holds, as NodeGetVolumeStats answers it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from localvolume.backends.model import Source, Usage
from localvolume.host.block.operations import size_bytes
from localvolume.host.syscalls import closed_after

Entry = Mapping[str, int | str]
"""A VolumeUsage."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the filesystem or device says; of a `shared` one, the volume is only a part."""

    entries: list[Entry]
    shared: bool = False


def seen(source: Source, fd: int) -> Seen:
    """What is mounted, open as `fd` (O_PATH). Raises OSError."""
    if source.record.volume_mode == "Block":
        device = os.open(f"/proc/self/fd/{source.fd}", os.O_RDONLY | os.O_CLOEXEC)
        with closed_after(device):
            return Seen([{"unit": "BYTES", "total": size_bytes(device)}])
    found = os.fstatvfs(fd)
    entries = [
        _entry(
            "BYTES",
            (found.f_blocks - found.f_bfree) * found.f_frsize,
            found.f_bavail * found.f_frsize,
            found.f_blocks * found.f_frsize,
        )
    ]
    # A filesystem that makes inodes as they are needed counts none.
    if found.f_files:
        used = found.f_files - found.f_ffree
        entries.append(_entry("INODES", used, found.f_ffree, found.f_files))
    return Seen(entries, shared=not source.fs_type)


def limited(usage: Usage) -> list[Entry]:
    """What the volume's own limit says; empty if that does not say it."""
    if usage.used_bytes is None or usage.available_bytes is None:
        return []
    entries = [_entry("BYTES", usage.used_bytes, usage.available_bytes)]
    if usage.used_inodes is not None and usage.available_inodes is not None:
        entries.append(_entry("INODES", usage.used_inodes, usage.available_inodes))
    return entries


def _entry(unit: str, used: int, available: int, total: int | None = None) -> Entry:
    whole = used + available if total is None else total
    return {"unit": unit, "used": used, "available": available, "total": whole}
