"""A classic snapshot of a thick volume that stays: what is written over there goes to its reserve.

- It shares all else with its volume, whose data therefore stays until its snapshots go.
- LVM makes it with its tags in one step. What a crash left before it is complete is cut anew.
- Once its reserve is full the kernel drops it, and the volume goes on: its device then answers each
  read with an error, for good.
- It can be read only, and is active whenever its volume is: nobody can tell otherwise how full it
  is.
"""

from __future__ import annotations

import time
from dataclasses import replace

from localvolume.backends.lvm.making import lv_bytes
from localvolume.backends.lvm.record import Entry, completed, fields_of
from localvolume.backends.lvm.removal import in_state, remove
from localvolume.backends.lvm.tools import Take, Tools
from localvolume.backends.lvm.view import OUTDATED, View
from localvolume.backends.model import BackendFailed, Impossible, NotThisVolume, Record
from localvolume.host.lvm.commands import check_names
from localvolume.volumes.lvtags import encode


def cut(
    tools: Tools, seen: View, record: Record, origin: Entry, known: Entry | None, take: Take
) -> Entry:
    """Cut it, complete; `known` is what was begun. Raises NoSpace, Impossible, BackendFailed."""
    if origin.volume.kind != "thick":
        raise Impossible(f"{origin.record.name} is neither linear nor striped: no snapshot stays")
    if record.overwrite or record.discard:
        # What is written over meanwhile is kept, and goes as it is.
        raise Impossible(
            f"what {origin.record.name} holds is to be overwritten or discarded at its end, which"
            " is not done with the reserve of a snapshot"
        )
    check_names(tools.of.group, record.name)
    if known is not None:
        remove(tools, known.volume, in_state("making"))
        # What was there before no longer holds: it is read again.
        seen = replace(seen, turn=OUTDATED)
    name, has = origin.volume.name, origin.volume.size_bytes
    tools.active(origin.volume)
    begun = replace(record, state="making", volume_uid="", cut_at=0)
    reserve = lv_bytes(tools, seen, replace(record, option_class=""), record.reserve_bytes)

    def make(now: View) -> None:
        if record.name in now.volumes:
            raise NotThisVolume(f"there is a volume {record.name} already, and it is not this one")
        tags = encode(fields_of(begun, size_bytes=has))
        tools.lvm.cut(tools.of.group, name, record.name, reserve, tags)

    take(seen, make, reserve)
    volume = tools.made(record.name)
    if (volume.kind, volume.origin) != ("snapshot", name):
        raise BackendFailed(f"LVM says that it made a snapshot, and {volume.full_name} is none")
    made = replace(
        record,
        state=completed(record),
        size_bytes=has,
        cut_at=time.time_ns(),
        holds_bytes=volume.size_bytes,
    )
    return Entry(record=made, volume=tools.retag(volume, fields_of(made)), asked=has)
