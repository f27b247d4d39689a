"""Snapshots of several thin volumes, all cut at one moment, and all of them or none.

- LVM cuts one volume with each command, and suspends that one alone. So the filesystems in use are
  frozen before the first command, and thawed after the last: what a program has written to one, and
  waited for, before it wrote to another, is in the snapshots in that order. To suspend a volume is
  to freeze its filesystem once more, which Linux can since 6.8.
- One volume of raw blocks in use can be among them. Nothing holds the writes to it, but the moment
  at which LVM cuts it is one at which all others stand still. With two there is no such moment.
- Whoever writes waits for as long as LVM takes. How long that is, is measured before anything is
  frozen, with the commands that see to the pool's numbers (``copying``): a group for which it would
  be too long is refused.
- All snapshots are `making` until all are cut, then each is `made`. The last one completes the
  group: what a crash leaves of one that is not complete is taken away.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Final, NamedTuple

from localvolume.backends import still
from localvolume.backends.lvm.copying import THICK, mapped
from localvolume.backends.lvm.engine import Fields
from localvolume.backends.lvm.making import check, fs_of
from localvolume.backends.lvm.record import GROUP, Entry, fields_of
from localvolume.backends.lvm.removal import in_state, remove
from localvolume.backends.lvm.tools import Take, Tools
from localvolume.backends.lvm.view import View
from localvolume.backends.model import (
    BackendFailed,
    Busy,
    Impossible,
    NotThisVolume,
    Record,
    outgrew,
)
from localvolume.backends.still import Still
from localvolume.host.lvm.commands import BadReport, LogicalVolume, LvmFailed
from localvolume.volumes.lvtags import encode

log = logging.getLogger(__name__)

_LEAST: Final = (6, 8)


class Member(NamedTuple):
    """A snapshot that is asked for, and its living origin."""

    record: Record
    origin: Entry


def why_not(release: str) -> str:
    """Why that Linux cannot suspend a volume whose filesystem is frozen, "" if it can."""
    found = re.match(r"(\d+)\.(\d+)", release)
    if found is not None and (int(found[1]), int(found[2])) >= _LEAST:
        return ""
    least = ".".join(map(str, _LEAST))
    return (
        "LVM cannot suspend volumes that are frozen for a group of snapshots: that takes Linux"
        f" {least} or later, and this is {release}"
    )


def cut_together(
    tools: Tools, seen: View, members: Sequence[Member], take: Take, seconds: float
) -> list[Record]:
    """Cut all of them; their volumes stand still for at most so many seconds.

    Raises as ``copying.copy``, and Busy if a volume cannot be held still. It leaves none of them
    then, but for what cannot be removed now: that is taken away later.
    """
    if why := why_not(os.uname().release):
        raise Impossible(why)
    for record, origin in members:
        check(tools, record)
        if origin.volume.kind != "thin" or not tools.of.thin_pool:
            raise Impossible(THICK)
        if record.name in seen.volumes:
            raise BackendFailed(f"{record.name} is left of an attempt that was not completed")
        if outgrew(origin.record, record):
            raise BackendFailed(f"{origin.record.name} has grown meanwhile")
    begun = [replace(one.record, state="making", volume_uid="", cut_at=0) for one in members]
    try:
        return _cut(tools, seen, members, begun, take, seconds)
    except BaseException:
        _leave_none(tools, begun)
        raise


def _cut(
    tools: Tools,
    seen: View,
    members: Sequence[Member],
    begun: Sequence[Record],
    take: Take,
    seconds: float,
) -> list[Record]:
    holds = [mapped(tools, origin) for _, origin in members]
    moment: list[int] = []

    def act(now: View) -> None:
        for record in begun:
            if record.name in now.volumes:
                raise NotThisVolume(f"there is a volume {record.name} already")
        longest = _take_numbers(tools, members, begun)
        if longest * len(members) > seconds:
            raise BackendFailed(
                f"LVM takes {longest:.1f} s for each of {len(members)} snapshots, and nobody who"
                f" writes is held up for more than {seconds:g} s: make smaller groups"
            )
        moment.append(_cut_all(tools, members, begun, seconds, longest))

    take(seen, act, sum(holds))
    there = _there(tools)
    made, volumes = [], []
    for (_, origin), record, held in zip(members, begun, holds, strict=True):
        volume = there.get(record.name)
        if volume is None or volume.kind != "thin" or volume.origin != origin.volume.name:
            raise BackendFailed(f"LVM says that it made {record.name}, and does not report it")
        # What was written until the cut is in it, too.
        held = min(origin.volume.size_bytes, max(held, mapped(tools, origin)))
        made.append(replace(record, state="made", cut_at=moment[0], holds_bytes=held))
        volumes.append(volume)
    for volume, record in zip(volumes, made, strict=True):
        tools.retag(volume, fields_of(record))
    return made


def _take_numbers(tools: Tools, members: Sequence[Member], begun: Sequence[Record]) -> float:
    """See to it that the pool has no volumes of the numbers that LVM gives to the next, one for
    each (see ``copying``); returns how long LVM took for a volume at most, in seconds.
    """
    longest = 0.0
    for (_, origin), record in zip(members, begun, strict=True):
        size = origin.volume.size_bytes
        began = time.monotonic()
        tools.create(record.name, size, _tags(record, size), thin_pool=tools.of.thin_pool)
        longest = max(longest, time.monotonic() - began)
    # Only now: each that is removed gives back its number.
    _remove(tools, begun)
    return longest


def _cut_all(
    tools: Tools,
    members: Sequence[Member],
    begun: Sequence[Record],
    seconds: float,
    longest: float,
) -> int:
    """Cut them while all stand still; returns when that was, in nanoseconds."""
    with ExitStack() as held:
        origins = _held(tools, members, held)
        with still.all_frozen(origins, seconds) as until:
            # What was on disk by then is in it.
            cut_at = time.time_ns()
            for (_, origin), record in zip(members, begun, strict=True):
                if until is not None and time.monotonic() + longest > until:
                    raise BackendFailed(
                        f"LVM takes too long: nobody who writes is held up for more than"
                        f" {seconds:g} s. Make smaller groups"
                    )
                tools.lvm.snapshot(
                    tools.of.group,
                    origin.volume.name,
                    record.name,
                    active=False,
                    tags=encode(_tags(record, origin.volume.size_bytes)),
                )
    return cut_at


def _held(tools: Tools, members: Sequence[Member], stack: ExitStack) -> list[Still]:
    """What there is to hold of the volumes, until the stack ends. Raises Busy."""
    origins, loose = [], 0
    for _, origin in members:
        volume, fs = tools.active(origin.volume), fs_of(origin.record)
        try:
            it = still.held(origin.record.name, volume.path, volume.device, fs)
            origins.append(stack.enter_context(it))
        except Busy:
            loose += not fs
            if fs or loose > 1:
                raise
    return origins


def _tags(record: Record, size: int) -> dict[str, str]:
    return fields_of(record, size_bytes=size)


def _there(tools: Tools) -> dict[str, LogicalVolume]:
    return {one.name: one for one in tools.lvm.volumes(tools.of.group)}


def _remove(tools: Tools, records: Sequence[Record]) -> None:
    there = _there(tools)
    for record in records:
        if (volume := there.get(record.name)) is not None:
            remove(tools, volume, _of_group(record.group))


def _leave_none(tools: Tools, begun: Sequence[Record]) -> None:
    try:
        _remove(tools, begun)
    except (BackendFailed, LvmFailed, BadReport, OSError) as error:
        group = begun[0].group
        log.warning("snapshots of group %s stay for now, and go later: %s", group, error)


def _of_group(group: str) -> Callable[[Fields], bool]:
    """Accepts a snapshot of the group that nobody was told of."""
    is_unknown = in_state("making", "made")
    return lambda fields: is_unknown(fields) and fields.get(GROUP) == group
