"""An approved plan is carried out: every disk is held first, and none is touched unless all hold.

Held means: open exclusively, locked against other agents, and looked at again through that very
descriptor. mkfs wants the disk to itself, so the exclusive hold ends right before it; the disk
stays open and locked, which keeps its device number from being given to another, and mkfs opens
that descriptor (/proc/self/fd), exclusively and without any option of force.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from localvolume.disks import attach, claim
from localvolume.disks.facts import described, read_inside, users_here
from localvolume.disks.hold import Hold
from localvolume.disks.mkfs import MkfsFailed, make_filesystem
from localvolume.disks.model import Claim, Disk, DiskPlan, Inside, Judged
from localvolume.disks.plan.meaning import first_reason
from localvolume.disks.plan.naming import best_link, entry_name, link_entry_name, stable, uuid_of
from localvolume.disks.plan.predicates import INSIDE
from localvolume.host.block.blockdev import (
    InUse,
    NotABlockDevice,
    SignatureUnknown,
    exclusive_open,
    read_signature,
)
from localvolume.host.block.disklist import BY_ID, describe_disk
from localvolume.host.filesystem.mark import read_mark
from localvolume.host.locks import lock_device
from localvolume.host.process.commands import CommandMissing, CommandTimedOut
from localvolume.host.process.workers import Hung, Workers

R = TypeVar("R")

SECONDS: Final = 60.0
"""How long one step on one disk may take, mkfs excepted."""

RECLAIM_SECONDS: Final = 10.0
"""See `carry_out`."""

# What may go wrong with one disk, in words.
_FAILURES: Final = (
    *(OSError, ValueError, Hung, InUse, NotABlockDevice, SignatureUnknown),
    *(CommandMissing, CommandTimedOut),
)


WITHDRAWN: Final = "the configuration that approved it is not in force any more"


class PlanChanged(Exception):
    """Something is not as it was when the plan was made: nothing was done. Look again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one disk: the path of its volume, or why there is none."""

    judged: Judged
    path: str = ""
    failure: str = ""


class CarryOut(Protocol):
    """As `carry_out`."""

    async def __call__(
        self, plan: DiskPlan, workers: Workers, *, by_id: str, approved: Callable[[], bool]
    ) -> list[Outcome]: ...


async def carry_out(
    plan: DiskPlan,
    workers: Workers,
    *,
    by_id: str = BY_ID,
    approved: Callable[[], bool] = lambda: True,
    reclaim_seconds: float = RECLAIM_SECONDS,
) -> list[Outcome]:
    """Do all that an approved plan says. Raises PlanChanged before anything is done, if at all.

    A disk that fails on the way is told in its outcome, and the others go on. `approved` is asked
    before each disk is touched: looking takes its time, and an approval may be withdrawn. Others
    (udev looks at each new filesystem) may have a disk open for `reclaim_seconds` after mkfs.
    """
    if not plan.approved:
        raise PlanChanged("the plan is not approved")
    holds = [Hold(row) for row in plan.todo]
    try:
        for hold in holds:
            await _take(hold, workers, by_id)
        if not approved():
            raise PlanChanged(WITHDRAWN)
        outcomes = []
        for hold in holds:
            try:
                if not approved():
                    raise ValueError(WITHDRAWN)
                path = await _do(hold, plan.digest, workers, by_id, reclaim_seconds)
                outcomes.append(Outcome(hold.judged, path=path))
            except (*_FAILURES, MkfsFailed) as error:
                outcomes.append(Outcome(hold.judged, failure=str(error)))
            finally:
                hold.let_go()
        return outcomes
    finally:
        for hold in holds:
            hold.let_go()


async def mount_again(judged: Judged, workers: Workers) -> Outcome:
    """Mount what was formatted under an approved plan, after a restart."""
    disk, wanted = judged.disk, judged.filter
    if wanted is None or judged.verdict != "mount" or not judged.digest:
        raise ValueError(f"{disk.name} is not to be mounted")
    uuid = uuid_of(judged.digest, disk, wanted)
    try:
        path = await workers.call(
            *(_key(disk), SECONDS, attach.mount, disk, wanted.fs_type, uuid),
            *(wanted.mount_dir, entry_name(disk)),
        )
    except _FAILURES as error:
        return Outcome(judged, failure=str(error))
    return Outcome(judged, path=path)


async def _call(hold: Hold, workers: Workers, fn: Callable[..., R], *args: Any) -> R:
    """Call `fn` with the hold in a thread. Raises as Workers.call does.

    Everything that is done with a held disk goes this way: the disk stays held while a call that
    nobody waits for any more may still write to it.
    """
    return await workers.call(_key(hold.judged.disk), SECONDS, hold.use, fn, *args)


async def _take(hold: Hold, workers: Workers, by_id: str) -> None:
    """Hold a disk and see that it is what was approved. Raises PlanChanged."""
    disk, wanted = hold.judged.disk, hold.judged.filter
    try:
        await _call(hold, workers, _open, by_id)
        inside = await _call(hold, workers, _read)
        found = await read_signature(hold.through, timeout=SECONDS)
    except _FAILURES as error:
        raise PlanChanged(f"{disk.name}: {error}") from error
    inside = dataclasses.replace(inside, signature=found.type if found else "")
    if inside != disk.inside:
        now = dataclasses.replace(disk, inside=inside)
        reason = first_reason(INSIDE, now, wanted)[1] if wanted else ""
        raise PlanChanged(f"{disk.name}: {reason or 'what lies on it has changed'}")


def _open(hold: Hold, by_id: str) -> None:
    disk = hold.judged.disk
    pin = lock_device(disk.node)
    if pin is None:
        raise InUse(disk.node, ("another process that formats or cleans it",))
    hold.pin = pin
    hold.exclusive = exclusive_open(f"/proc/self/fd/{pin}", device=disk.device)
    # Only now, as nothing of it changes any more: is it still the very same disk?
    now = described(describe_disk(disk.device, by_id))
    then = dataclasses.replace(disk, offered=(), named="", place="", taken="", inside=None)
    if now != then:
        raise NotABlockDevice(f"it is not the disk any more that it was: {_difference(then, now)}")
    # Loop devices stand on a disk without claiming it.
    if users := users_here(disk):
        raise InUse(disk.node, tuple(users))


def _difference(then: Disk, now: Disk) -> str:
    names = [field.name for field in dataclasses.fields(Disk)]
    return ", ".join(name for name in names if getattr(then, name) != getattr(now, name))


def _read(hold: Hold) -> Inside:
    return read_inside(hold.exclusive, hold.judged.disk, idle=True)


async def _do(hold: Hold, digest: str, workers: Workers, by_id: str, reclaim_seconds: float) -> str:
    """Make a volume of a disk that is held; returns its path."""
    disk, wanted = hold.judged.disk, hold.judged.filter
    if wanted is None:
        raise ValueError(f"no filter means {disk.name}")
    if wanted.block:
        name = link_entry_name(disk, digest)
        arguments = (disk, wanted.mount_dir, name, best_link(disk))
        return await _call(hold, workers, lambda _: attach.link(*arguments, by_id=by_id))
    uuid = uuid_of(digest, disk, wanted)
    await _call(hold, workers, _begin, Claim(digest, uuid, stable(disk.identity)))
    hold.share()
    await make_filesystem(hold.pin, wanted.fs_type, uuid, wanted.mkfs_options)
    await _call(hold, workers, _finish, wanted.fs_type, uuid, reclaim_seconds)
    hold.let_go()
    return await workers.call(
        *(_key(disk), SECONDS, attach.mount, disk, wanted.fs_type, uuid),
        *(wanted.mount_dir, entry_name(disk)),
    )


def _begin(hold: Hold, made: Claim) -> None:
    """Write on the disk that its formatting begins; of one begun earlier, start anew."""
    size = hold.judged.disk.size_bytes
    if hold.judged.begun:
        # The old claim stays until the new one is there: never is there nothing of ours.
        claim.blank_edges(hold.exclusive, size)
    claim.write(hold.exclusive, size, made)


def _finish(hold: Hold, fs_type: str, uuid: str, reclaim_seconds: float) -> None:
    """See that the filesystem is there, and take the claim away: from now on it is finished."""
    disk = hold.judged.disk
    hold.exclusive = _retaken(hold, disk, reclaim_seconds)
    mark = read_mark(hold.exclusive)
    if mark is None or (mark.fs_type, mark.uuid) != (fs_type, uuid):
        raise NotABlockDevice(f"mkfs has ended, but {disk.node} does not hold what it should")
    os.fsync(hold.exclusive)
    claim.erase(hold.exclusive, disk.size_bytes)


def _retaken(hold: Hold, disk: Disk, seconds: float) -> int:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return exclusive_open(f"/proc/self/fd/{hold.pin}", device=disk.device)
        except InUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _key(disk: Disk) -> str:
    return f"disk {disk.name}"
