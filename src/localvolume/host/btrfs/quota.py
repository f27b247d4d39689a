"""Quota groups of btrfs by ioctl: switch quotas on, recount, read groups, set limits.

Each subvolume has a group of its own, whose number here is the subvolume's id. Numbers from 2^48 on
belong to groups that hold others, which somebody else may have made. Data is read from the quota
tree, which is as old as the last commit (30 s by default). All functions take a descriptor of any
directory in the filesystem, raise OSError and need CAP_SYS_ADMIN in the initial user namespace.
"""

import errno
import fcntl
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from localvolume.host.btrfs.subvolumes import FEW_BYTES, Item, search
from localvolume.host.syscalls import ioc

_MAGIC = 0x94
_IOC_QUOTA_CTL = ioc(3, _MAGIC, 40, 16)
_IOC_QGROUP_CREATE = ioc(1, _MAGIC, 42, 16)
_IOC_QGROUP_LIMIT = ioc(2, _MAGIC, 43, 48)
_IOC_QUOTA_RESCAN = ioc(1, _MAGIC, 44, 64)
_IOC_QUOTA_RESCAN_STATUS = ioc(2, _MAGIC, 45, 64)
_ENABLE = 1
_MAX_REFERENCED = 1
_NO_LIMIT = (1 << 64) - 1

_QUOTA_TREE = 8
_STATUS, _INFO, _LIMIT = 240, 242, 244
_ON, _RESCAN, _INCONSISTENT, _SIMPLE = 1, 2, 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """What one group holds: the bytes it references, those that no other one does, its limit."""

    referenced: int
    exclusive: int
    limit: int | None = None


@dataclass(slots=True, kw_only=True)
class Quotas:
    """One look at a filesystem's quotas.

    `consistent` False: the numbers mean nothing and limits are not kept until everything has been
    recounted. `counting`: a recount is in progress. `simple`: they are simple ones, which charge
    all data to the subvolume that wrote it, for as long as anything references it.
    """

    on: bool
    simple: bool = False
    consistent: bool = False
    counting: bool = False
    groups: dict[int, Group] = field(default_factory=dict)


def read_quotas(fd: int) -> Quotas:
    """Read the state and all groups in one go; `on` is False if quotas are off."""
    last = (1 << 64) - 1
    found = Quotas(on=False)
    sizes: dict[int, tuple[int, int]] = {}
    limits: dict[int, int | None] = {}
    try:
        for item in search(fd, _QUOTA_TREE, (0, 0, 0), (last, 0xFF, last)):
            if item.type == _STATUS:
                found = _state_in(item)
            elif item.type == _INFO:
                sizes[item.offset] = _sizes_in(item)
            elif item.type == _LIMIT:
                limits[item.offset] = _limit_in(item)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        return Quotas(on=False)
    found.groups = {
        one: Group(referenced=referenced, exclusive=exclusive, limit=limits.get(one))
        for one, (referenced, exclusive) in sizes.items()
    }
    return found


def read_groups(fd: int, identities: Iterable[int]) -> Quotas:
    """As `read_quotas`, with those groups only, as far as they exist.

    It is `consistent` if it was so before and after they were read.
    """
    found = read_state(fd)
    for one in identities:
        if (item := _item(fd, _INFO, one)) is not None:
            referenced, exclusive = _sizes_in(item)
            found.groups[one] = Group(
                referenced=referenced, exclusive=exclusive, limit=read_limit(fd, one)
            )
    found.consistent = found.consistent and read_state(fd).consistent
    return found


def read_state(fd: int) -> Quotas:
    """As `read_quotas`, without the groups: anybody may make any number of these."""
    item = _item(fd, _STATUS, 0)
    return Quotas(on=False) if item is None else _state_in(item)


def _item(fd: int, kind: int, identity: int) -> Item | None:
    """One item of the quota tree; None if there is none, or no quotas."""
    key = (0, kind, identity)
    try:
        return next(search(fd, _QUOTA_TREE, key, key, FEW_BYTES), None)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise
        return None


def _state_in(item: Item) -> Quotas:
    flags = struct.unpack_from("<Q", item.data, 16)[0]
    return Quotas(
        on=bool(flags & _ON),
        simple=bool(flags & _SIMPLE),
        counting=bool(flags & _RESCAN),
        consistent=not flags & (_RESCAN | _INCONSISTENT),
    )


def read_limit(fd: int, identity: int) -> int | None:
    """Return the limit of one group, in bytes; None if there is none, or no quotas."""
    item = _item(fd, _LIMIT, identity)
    return None if item is None else _limit_in(item)


def _sizes_in(item: Item) -> tuple[int, int]:
    _, referenced, _, exclusive = struct.unpack_from("<4Q", item.data)
    return referenced, exclusive


def _limit_in(item: Item) -> int | None:
    flags, most = struct.unpack_from("<2Q", item.data)
    return int(most) if flags & _MAX_REFERENCED and most != _NO_LIMIT else None


def switch_on(fd: int) -> None:
    """Switch full quotas on; the kernel starts to count what is there already."""
    fcntl.ioctl(fd, _IOC_QUOTA_CTL, struct.pack("=2Q", _ENABLE, 0))


def count_anew(fd: int) -> None:
    """Start to recount everything; harmless if that is in progress."""
    try:
        fcntl.ioctl(fd, _IOC_QUOTA_RESCAN, bytes(64))
    except OSError as error:
        if error.errno != errno.EINPROGRESS:
            raise


def is_counting(fd: int) -> bool:
    """Whether everything is being recounted at this moment."""
    answer = fcntl.ioctl(fd, _IOC_QUOTA_RESCAN_STATUS, bytes(64))
    return bool(struct.unpack_from("=Q", answer)[0])


def delete_group(fd: int, identity: int) -> bool:
    """Delete a group; False if it is still needed (EBUSY). Harmless if there is none."""
    try:
        fcntl.ioctl(fd, _IOC_QGROUP_CREATE, struct.pack("=2Q", 0, identity))
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        if error.errno != errno.ENOENT:
            raise
    return True


def set_limit(fd: int, identity: int, most: int | None) -> None:
    """Limit the bytes that a group may reference; None for no limit."""
    value = _NO_LIMIT if most is None else most
    fcntl.ioctl(
        fd, _IOC_QGROUP_LIMIT, struct.pack("=6Q", identity, _MAX_REFERENCED, value, 0, 0, 0)
    )


def have_counted(fd: int, seconds: float) -> Quotas:
    """Switch quotas on or start to recount if needed, and wait at most `seconds` for the end.

    Returns the quotas as they are then, consistent or not, without their groups.
    """
    found = read_state(fd)
    if not found.on:
        switch_on(fd)
    elif not found.consistent and not is_counting(fd):
        count_anew(fd)
    deadline = time.monotonic() + seconds
    while not (found.on and found.consistent) and time.monotonic() < deadline:
        time.sleep(0.01)
        found = read_state(fd)
    return found
