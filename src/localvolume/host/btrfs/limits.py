"""One limit for a subvolume and for those that are made inside it, as far as btrfs lets us.

Anybody who may write to a directory of btrfs may make a subvolume in it, or a snapshot, and the
kernel charges that to nobody but itself. So a tenant who makes one inside a volume has as much room
again as the disk has. It cannot be prevented. It is found at the next `look`, and from then on the
volume and all inside it share its limit: each may grow by what the limit leaves beyond all they
hold. Each by itself: between two looks they may exceed it by as much again for each of them, and
once they did, none may grow. A snapshot counts like a copy.

Why the kernel's groups of groups are not used for it: making a snapshot of a member puts all counts
of the filesystem out of step, and no limit of anybody holds until all has been counted anew; and
anybody may have a new subvolume charged to such a group of another volume (the kernel asks no
permission), and so use up that one's limit. A subvolume's own group is safe from both.

Some raw ioctls and deleted snapshots of large trees still put full quotas out of step. Nothing is
measured then until all has been counted anew, which `have_counted` begins.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from localvolume.host.btrfs.quota import Quotas, delete_group, read_quotas, set_limit
from localvolume.host.btrfs.subvolumes import FIRST_ID, Subvolumes, commit, read_subvolumes

#: Bytes left to a volume, within its limit, when all is used up by what is inside it: to delete it.
_TO_DELETE = 256 << 10
#: What the kernel says of a group or subvolume that went meanwhile, or of quotas that did.
_GONE = frozenset({errno.ENOENT, errno.EINVAL, errno.ENOTCONN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a volume holds: bytes referenced by it and by the `inside` subvolumes that lie in it."""

    referenced: int
    inside: int = 0


def lift(fd: int, identities: Iterable[int]) -> None:
    """Take the limits off subvolumes that are to be deleted, which needs room for a moment.

    As far as that can be: without, deleting says what is missing.
    """
    groups = read_quotas(fd).groups
    with contextlib.suppress(OSError):
        for identity in identities:
            if identity in groups and groups[identity].limit is not None:
                set_limit(fd, identity, None)


def look(fd: int, limits: Mapping[int, int | None]) -> dict[int, Held]:
    """Measure volumes by their ids, and see to it that each and all inside it keep its limit.

    Those that are gone are left out; so are all where numbers mean nothing at the moment.
    """
    subvolumes = read_subvolumes(fd)
    inside = {one: subvolumes.inside(one) for one in limits if one in subvolumes.parents}
    if any(inside.values()):
        # What is granted from now on depends on what they hold by now.
        commit(fd)
    quotas = read_quotas(fd)
    if not quotas.consistent:
        return {}
    found = {}
    for identity, below in inside.items():
        if identity not in quotas.groups:
            continue
        family = [one for one in (identity, *below) if one in quotas.groups]
        held = sum(quotas.groups[one].referenced for one in family)
        found[identity] = Held(referenced=held, inside=len(below))
        most = limits[identity]
        if most is not None:
            _share(fd, quotas, family, most, held)
    return found


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
    """Delete the groups of subvolumes that are gone, as far as the kernel lets them go yet.

    It does so by itself since Linux 6.11.
    """
    quotas = read_quotas(fd)
    if quotas.on:
        subvolumes = read_subvolumes(fd)
        for one in quotas.groups:
            if _is_stale(one, subvolumes):
                delete_group(fd, one)


def _is_stale(identity: int, subvolumes: Subvolumes) -> bool:
    # Ids only rise: one above all others may be of a subvolume that is just being made.
    return FIRST_ID <= identity < max(subvolumes.ids) and identity not in subvolumes.ids
