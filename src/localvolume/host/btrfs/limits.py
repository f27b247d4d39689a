"""One limit for a subvolume and for those that are made inside it, as far as btrfs lets us.

Anybody who may write to a btrfs directory may make a subvolume or a snapshot in it, and the kernel
charges that only to the new one itself. So a tenant who makes one inside a volume can use all the
space that the disk has. This cannot be prevented. The next `look` finds it, and from then on the
volume and all inside it share its limit: each may grow by what the limit leaves beyond what all of
them hold. The kernel limits each separately, so between two looks they may exceed the shared limit
by that much for each of them; after that, none may grow. A snapshot counts like a copy.

Two reasons not to use the kernel's groups of groups for this: making a snapshot of a member puts
all counts of the filesystem out of step, and nobody's limit holds until everything is recounted;
and anybody may have a new subvolume charged to such a group of another volume (the kernel asks no
permission), and so use up that one's limit. A subvolume's own group is safe from both.

Subvolumes are read by their names, and of the groups only those that are asked for. Deleted ones
keep both until the kernel has freed them, and a tenant makes and deletes thousands in a second.

Some raw ioctls and deleted snapshots of large trees still put full quotas out of step. Then nothing
is measured until everything has been recounted, which `have_counted` starts.
"""

from __future__ import annotations

import contextlib
import errno
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from localvolume.host.btrfs.quota import (
    Quotas,
    delete_group,
    read_groups,
    read_limit,
    read_quotas,
    set_limit,
)
from localvolume.host.btrfs.subvolumes import FIRST_ID, commit, is_named, read_ids, read_inside

MOST: Final = 30_000
"""Subvolumes inside volumes that a look takes in: each is read each time, which takes a second or
two for so many. A tenant makes thousands in a second."""

#: Bytes left to a volume, within its limit, to delete what is inside it and has used up the rest.
_TO_DELETE = 256 << 10
#: Errors from the kernel if the group or subvolume is gone meanwhile, or quotas are off.
_GONE = frozenset({errno.ENOENT, errno.EINVAL, errno.ENOTCONN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a volume holds: bytes referenced by it and by the `inside` subvolumes that lie in it.

    `exclusive` are those that none but one of them references: removing all of them frees at least
    these.
    """

    referenced: int
    exclusive: int
    inside: int = 0


def lift(fd: int, identities: Iterable[int]) -> None:
    """Lift the limits of subvolumes that are to be deleted: that takes some space for a moment.

    Errors are ignored: if a limit stays, deleting says what is missing.
    """
    with contextlib.suppress(OSError):
        for identity in identities:
            if read_limit(fd, identity) is not None:
                set_limit(fd, identity, None)


def look(fd: int, limits: Mapping[int, int | None], most: int = MOST) -> dict[int, Held | None]:
    """Measure volumes by their ids, and make each one and all inside it keep its limit.

    Volumes that are gone are left out; so are all of them while the numbers mean nothing. Those
    that have more inside than their share of `most` are None: they are not measured, and the limits
    there stay as they are.
    """
    inside, beyond = _inside(fd, limits, most)
    if any(inside.values()):
        # The limits set below depend on what they hold by now.
        commit(fd)
    quotas = read_groups(fd, chain(inside, *inside.values()))
    found = _held(quotas, inside)
    for identity, held in found.items():
        limit = limits[identity]
        if limit is not None:
            family = _family(quotas, identity, inside[identity])
            _share(fd, quotas, family, limit, held.referenced)
    return {**found, **dict.fromkeys(beyond)}


def measure(fd: int, identities: Collection[int]) -> dict[int, Held | None]:
    """Measure volumes as of the last commit, and change nothing; else as `look`."""
    inside, beyond = _inside(fd, identities, MOST)
    quotas = read_groups(fd, chain(inside, *inside.values()))
    return {**_held(quotas, inside), **dict.fromkeys(beyond)}


def _inside(
    fd: int, identities: Iterable[int], most: int
) -> tuple[dict[int, list[int]], list[int]]:
    """What lies in each volume that is there, and in which of them too much does.

    Volumes take turns, one subvolume at a time, until `most` are read. So none with less than an
    equal share is beyond, whatever the others have, and what one leaves of its share is theirs.
    """
    found: dict[int, list[int]] = {one: [] for one in identities if is_named(fd, one)}
    beyond = []
    turns = deque((one, read_inside(fd, one)) for one in found)
    while turns:
        identity, reading = turns.popleft()
        one = next(reading, None)
        if one is None:
            continue
        if most > 0:
            most -= 1
            found[identity].append(one)
            turns.append((identity, reading))
        else:
            del found[identity]
            beyond.append(identity)
    return found, beyond


def _held(quotas: Quotas, inside: Mapping[int, Collection[int]]) -> dict[int, Held]:
    if not quotas.consistent:
        return {}
    found = {}
    for identity, below in inside.items():
        if identity not in quotas.groups:
            continue
        family = [quotas.groups[one] for one in _family(quotas, identity, below)]
        found[identity] = Held(
            referenced=sum(one.referenced for one in family),
            exclusive=sum(one.exclusive for one in family),
            inside=len(below),
        )
    return found


def _family(quotas: Quotas, identity: int, below: Iterable[int]) -> list[int]:
    """The volume itself and what lies in it, as far as they are counted."""
    return [one for one in (identity, *below) if one in quotas.groups]


def _share(fd: int, quotas: Quotas, family: list[int], most: int, held: int) -> None:
    # The volume itself is the first.
    for one in family:
        now = quotas.groups[one]
        mine = most
        if len(family) > 1:
            mine = now.referenced + max(0, most - held)
        if one == family[0]:
            mine = min(most, max(mine, now.referenced + _TO_DELETE))
        if now.limit != mine:
            _set_if_there(fd, one, mine)


def _set_if_there(fd: int, identity: int, most: int | None) -> None:
    try:
        set_limit(fd, identity, most)
    except OSError as error:
        if error.errno not in _GONE:
            raise


def forget(fd: int) -> None:
    """Delete the groups of subvolumes that are gone, as far as the kernel allows it yet.

    The kernel does so by itself since Linux 6.11.
    """
    quotas = read_quotas(fd)
    if quotas.on:
        ids = read_ids(fd)
        for one in quotas.groups:
            if _is_stale(one, ids):
                delete_group(fd, one)


def _is_stale(identity: int, ids: Collection[int]) -> bool:
    # Ids only rise: one above all others may belong to a subvolume that is just being made.
    return FIRST_ID <= identity < max(ids) and identity not in ids
