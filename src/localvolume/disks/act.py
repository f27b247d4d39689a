"""Carries out an approved plan: holds every disk first, and touches none unless all are held.

A held disk is open exclusively, locked against other agents, and looked at again through that same
descriptor. mkfs needs exclusive access, so the exclusive hold ends right before it. The disk stays
open and locked, so no other disk can get its device number. mkfs opens that descriptor
(/proc/self/fd), exclusively and without any force option.

All of this runs in worker threads: a dead disk may never answer. A new mount is checked before
anybody can see it, and never covers what is there already.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from localvolume.config.disks import DiskFilter
from localvolume.disks import claim
from localvolume.disks.facts import described, place_problem, read_inside, users_here
from localvolume.disks.model import Claim, Disk, DiskPlan, Judged
from localvolume.disks.plan.naming import (
    LABEL,
    best_link,
    entry_name,
    link_entry_name,
    stable,
    uuid_of,
)
from localvolume.disks.plan.predicates import INSIDE, first_reason
from localvolume.host.block.blockdev import (
    InUse,
    NotABlockDevice,
    SignatureUnknown,
    exclusive_open,
    read_signature,
)
from localvolume.host.block.disklist import BY_ID, describe_disk
from localvolume.host.block.sysfs import block_number
from localvolume.host.filesystem.mark import read_mark
from localvolume.host.filesystem.xfsprogs import VERSION_COMMAND, for_older_kernels
from localvolume.host.locks import lock_device
from localvolume.host.mount.detached import open_mount, put_mount
from localvolume.host.mount.mounts import read_mount_table
from localvolume.host.process.commands import CommandMissing, CommandTimedOut, run
from localvolume.host.process.workers import Hung, Workers
from localvolume.host.tree.beneath import open_beneath
from localvolume.host.tree.entries import device_number
from localvolume.host.users import Users

R = TypeVar("R")

SECONDS: Final = 60.0
"""How long one step on one disk may take, mkfs excepted."""

RECLAIM_SECONDS: Final = 10.0
"""See `carry_out`."""

MKFS_SECONDS: Final = 1800.0
VERSION_SECONDS: Final = 30.0

# What may go wrong with one disk, in words.
_FAILURES: Final = (
    *(OSError, ValueError, Hung, InUse, NotABlockDevice, SignatureUnknown),
    *(CommandMissing, CommandTimedOut),
)

_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC

WITHDRAWN: Final = "the configuration that approved it is not in force any more"


class Hold:
    """A disk that nobody else may take, held until the last call that works on it has returned.

    `pin` is open and locked, `exclusive` keeps all others out; -1 means not open.

    Usable from worker threads that may be left behind in a hanging call (host/users.py).
    """

    def __init__(self, judged: Judged) -> None:
        self.judged = judged
        self.pin = -1
        self.exclusive = -1
        self._users = Users(self._close)

    @property
    def through(self) -> str:
        """A path to the open descriptor, for programs that read the disk while we hold it."""
        return f"/proc/{os.getpid()}/fd/{self.pin}"

    def use(self, fn: Callable[..., R], *args: Any) -> R:
        """Call `fn` with the hold, which stays open meanwhile. Raises ValueError once let go."""
        if not self._users.enter():
            raise ValueError(f"{self.judged.disk.name}: given up before it began")
        try:
            return fn(self, *args)
        finally:
            self._users.leave()

    def share(self) -> None:
        """Let others open the disk exclusively; no call may be using it."""
        self.exclusive, exclusive = -1, self.exclusive
        if exclusive >= 0:
            os.close(exclusive)

    def let_go(self) -> None:
        """Close the disk at once, or when the last call returns."""
        self._users.give_up()

    def _close(self) -> None:
        self.share()
        self.pin, pin = -1, self.pin
        if pin >= 0:
            os.close(pin)


class PlanChanged(Exception):
    """Something has changed since the plan was made: nothing was done. Look again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one disk: the path of its volume, or why there is none."""

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
    """Do all that an approved plan says. Raises PlanChanged, but only before anything is done.

    If a disk fails, its outcome says so, and the others go on. `approved` is asked before each disk
    is touched: looking takes time, and an approval may be withdrawn. After mkfs, others may have a
    disk open for `reclaim_seconds`: udev looks at each new filesystem.
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
        path = await _mount(disk, wanted, uuid, workers)
    except _FAILURES as error:
        return Outcome(judged, failure=str(error))
    return Outcome(judged, path=path)


async def _mount(disk: Disk, wanted: DiskFilter, uuid: str, workers: Workers) -> str:
    where = (wanted.mount_dir, entry_name(disk))
    return await workers.call(_key(disk), SECONDS, mount, disk, wanted.fs_type, uuid, *where)


async def _call(hold: Hold, workers: Workers, fn: Callable[..., R], *args: Any) -> R:
    """Call `fn` with the hold in a thread. Raises as Workers.call does.

    Every call on a held disk goes through here: the disk stays held as long as a call that nobody
    waits for any more may still write to it.
    """
    return await workers.call(_key(hold.judged.disk), SECONDS, hold.use, fn, *args)


async def _take(hold: Hold, workers: Workers, by_id: str) -> None:
    """Hold a disk and check that it is what was approved. Raises PlanChanged."""
    disk, wanted = hold.judged.disk, hold.judged.filter
    try:
        await _call(hold, workers, _open, by_id)
        inside = await _call(hold, workers, lambda _: read_inside(hold.exclusive, disk, idle=True))
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
    # Compared only now, when nothing about the disk can change any more.
    now = described(describe_disk(disk.device, by_id))
    then = dataclasses.replace(disk, offered=(), named="", place="", taken="", inside=None)
    if now != then:
        raise NotABlockDevice(f"it is not the disk any more that it was: {_difference(then, now)}")
    # Loop devices use a disk without claiming it.
    if users := users_here(disk):
        raise InUse(disk.node, tuple(users))


def _difference(then: Disk, now: Disk) -> str:
    names = [field.name for field in dataclasses.fields(Disk)]
    return ", ".join(name for name in names if getattr(then, name) != getattr(now, name))


async def _do(hold: Hold, digest: str, workers: Workers, by_id: str, reclaim_seconds: float) -> str:
    """Make a volume of a held disk; returns its path."""
    disk, wanted = hold.judged.disk, hold.judged.filter
    if wanted is None:
        raise ValueError(f"no filter matches {disk.name}")
    if wanted.block:
        name = link_entry_name(disk, digest)
        arguments = (disk, wanted.mount_dir, name, best_link(disk))
        return await _call(hold, workers, lambda _: link(*arguments, by_id=by_id))
    uuid = uuid_of(digest, disk, wanted)
    await _call(hold, workers, _begin, Claim(digest, uuid, stable(disk.identity)))
    hold.share()
    await make_filesystem(hold.pin, wanted.fs_type, uuid, wanted.mkfs_options)
    await _call(hold, workers, _finish, wanted.fs_type, uuid, reclaim_seconds)
    hold.let_go()
    return await _mount(disk, wanted, uuid, workers)


def _begin(hold: Hold, made: Claim) -> None:
    """Write on the disk that its formatting begins; start over if it was begun earlier."""
    size = hold.judged.disk.size_bytes
    if hold.judged.begun:
        # The old claim stays until the new one is there: the disk is never without a claim.
        claim.blank_edges(hold.exclusive, size)
    claim.write(hold.exclusive, size, made)


def _finish(hold: Hold, fs_type: str, uuid: str, reclaim_seconds: float) -> None:
    """Check that the filesystem is there, and erase the claim: from then on it is finished."""
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


# --- mkfs --------------------------------------------------------------------------------------


class MkfsFailed(Exception):
    """mkfs failed; what it left is recognised as ours."""


async def make_filesystem(pin: int, fs_type: str, uuid: str, options: Sequence[str]) -> None:
    """Make a filesystem on the device open as `pin`. mkfs inherits `pin`, and any lock with it.

    Raises MkfsFailed, CommandMissing, CommandTimedOut.
    """
    version = ""
    if fs_type == "xfs":
        version = (await run(VERSION_COMMAND, timeout=VERSION_SECONDS)).stdout
    argv = mkfs_command(fs_type, uuid, options, f"/proc/self/fd/{pin}", version)
    done = await run(argv, timeout=MKFS_SECONDS, env={"LC_ALL": "C"}, pass_fds=[pin])
    if done.returncode != 0:
        said = " ".join((done.stderr.strip() or done.stdout.strip()).split())
        raise MkfsFailed(f"{argv[0]}: {said or f'exit status {done.returncode}'}")


def mkfs_command(
    fs_type: str, uuid: str, options: Sequence[str], path: str, version: str = ""
) -> list[str]:
    """The mkfs command, without force. It discards nothing: the claim must outlive a killed mkfs.

    `version` is the version that mkfs.xfs prints.
    """
    if fs_type == "xfs":
        words = [word for word in options if word != "-K"]
        return [
            *("mkfs.xfs", "-q", "-K", *for_older_kernels(version, options)),
            *("-m", f"uuid={uuid}", "-L", LABEL, *words, path),
        ]
    words, extended = _taken_out("-E", options)
    # If both "discard" and "nodiscard" are given, the last one counts.
    return [
        *("mkfs.ext4", "-q", "-U", uuid, "-L", LABEL),
        *("-E", ",".join([*extended, "nodiscard"]), *words, path),
    ]


def _taken_out(flag: str, options: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options without that flag, and the values it had."""
    words, values = list(options), []
    while flag in words:
        at = words.index(flag)
        values.append(words[at + 1])
        del words[at : at + 2]
    return words, values


# --- the finished volume in its place ----------------------------------------------------------


def mount(disk: Disk, fs_type: str, fs_uuid: str, directory: str, name: str) -> str:
    """Mount the filesystem of that UUID at `directory`/`name`; returns that path.

    Raises OSError, NotABlockDevice (also if the device is another disk by now), InUse.
    """
    path = f"{directory}/{name}"
    _must_be_free(directory, name, link=False)
    # Stays open until the end: no other disk can get the device's number meanwhile.
    with open(disk.node, "rb", buffering=0) as device:
        pin = device.fileno()
        if device_number(os.fstat(pin).st_rdev) != disk.device:
            raise NotABlockDevice(f"{disk.node} is another device by now")
        mark = read_mark(pin)
        if mark is None or (mark.fs_type, mark.uuid) != (fs_type, fs_uuid):
            raise NotABlockDevice(f"{disk.node} does not hold the filesystem {fs_uuid} any more")
        try:
            mounted = open_mount(disk.node, fs_type)
        except OSError as error:
            if error.errno == errno.EBUSY:
                raise InUse(disk.node, ()) from error
            raise
        try:
            if device_number(_device_of(mounted)) != disk.device:
                raise NotABlockDevice(f"{disk.node} is another device by now")
            _put(mounted, directory, name, path)
        finally:
            os.close(mounted)
    return path


def _device_of(mount_fd: int) -> int:
    root = os.open(".", _DIRECTORY, dir_fd=mount_fd)
    try:
        return os.fstat(root).st_dev
    finally:
        os.close(root)


def _put(mount_fd: int, directory: str, name: str, path: str) -> None:
    root = os.open(directory, _DIRECTORY)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=root)
        # Follows neither a link nor a mount that is there already.
        place = open_beneath(root, name, _DIRECTORY | os.O_NOFOLLOW)
        try:
            put_mount(mount_fd, place, path)
        finally:
            os.close(place)
    finally:
        os.close(root)


def link(disk: Disk, directory: str, name: str, target: str, *, by_id: str = BY_ID) -> str:
    """Make `directory`/`name` a link to `target` in /dev/disk/by-id; returns its path.

    Raises OSError, and NotABlockDevice if the target does not lead to the disk.
    """
    if block_number(f"{by_id}/{target}") != disk.device:
        raise NotABlockDevice(f"{by_id}/{target} does not lead to {disk.node} any more")
    _must_be_free(directory, name, link=True)
    root = os.open(directory, _DIRECTORY)
    try:
        os.symlink(f"{by_id}/{target}", name, dir_fd=root)
    finally:
        os.close(root)
    return f"{directory}/{name}"


def _must_be_free(directory: str, name: str, *, link: bool) -> None:
    if problem := place_problem(directory, name, read_mount_table(), link=link):
        raise OSError(errno.EEXIST, problem, f"{directory}/{name}")
