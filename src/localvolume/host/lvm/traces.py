"""Whether a volume group can have changed since LVM reported it: asked of the kernel, not of LVM.

LVM writes each change to the group's disks, and a thin pool writes there what it hands out. The
kernel counts what is written to a disk. It also has the devices of the active volumes, which come
and go without a write. While all of this stays as it is, a report stays true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from localvolume.host.block import sysfs
from localvolume.host.block.sysfs import listing, read

# Documentation/block/stat.rst: sectors, which count before their writer hears of the end.
_READ: Final = 2
_CHANGED: Final = (6, 13)
"""Written, and discarded."""


class Traces(NamedTuple):
    """What would differ after a change."""

    disks: tuple[tuple[str, ...], ...]
    """Of each disk: which one it is of all since boot, and its counters."""
    devices: tuple[tuple[str, ...], ...]
    """Of each active volume: the kernel's name and number, and whether it is suspended."""

    def is_but_written(self, before: Traces) -> bool:
        """Whether it is the same disks and devices, and only data may have been written since."""
        return (
            self.devices == before.devices
            and len(self.disks) == len(before.disks)
            and all(now[0] == then[0] for now, then in zip(self.disks, before.disks, strict=True))
        )


def traces(group: str, disks: Sequence[str], sys: str = sysfs.SYS) -> Traces | None:
    """Those of the group with these disks (`major:minor`); None if the kernel does not tell."""
    counted = tuple(_counters(sysfs.real(f"{sys}/dev/block/{disk}")) for disk in disks)
    if not counted or not all(counted):
        return None
    prefix = f"{group.replace('-', '--')}-"
    devices = []
    for name in listing(f"{sys}/block"):
        base = f"{sys}/block/{name}"
        called = read(f"{base}/dm/name") or "" if name.startswith("dm-") else ""
        if called.startswith(prefix):
            state = (read(f"{base}/dev") or "", read(f"{base}/dm/suspended") or "")
            devices.append((called, *state))
    return Traces(counted, tuple(sorted(devices)))


def _counters(base: str) -> tuple[str, ...]:
    """Of the disk at `base`; empty if nothing is counted for it."""
    whole = sysfs.disk_of(base)
    words = (read(f"{base}/stat") or "").split()
    # LVM has read from it, so a driver that counts at all has counted that.
    if len(words) <= max(_CHANGED) or words[_READ] == "0":
        return ()
    if read(f"{whole}/queue/iostats") != "1":
        return ()
    return (read(f"{whole}/diskseq") or "", *(words[index] for index in _CHANGED))
