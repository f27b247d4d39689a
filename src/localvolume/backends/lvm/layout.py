"""How large a volume LVM can make of what is free in a group: pure.

It can be less than all that is free: stripes lie on as many physical volumes, and a contiguous
volume in one run of extents on each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localvolume.config.lvcreateoptions import allocation_of
from localvolume.config.pools import LvmConfig
from localvolume.host.lvm.commands import VolumeGroup


def free_bytes(group: VolumeGroup) -> int:
    """All that volumes may be made of, whatever their layout."""
    if group.free is None:
        return group.free_bytes
    return sum(map(sum, group.free)) * group.extent_bytes


def largest_by_class(config: LvmConfig, group: VolumeGroup) -> Mapping[str, int]:
    """The largest thick volume in bytes, by the option class that chooses its layout; "" for none.

    Nothing where it is not known which extents are free.
    """
    if group.free is None:
        return {}
    found = {}
    for name in ("", *dict(config.option_classes)):
        stripes, _, options = config.layout(name)
        policy = allocation_of(options) or group.allocation
        extents = largest_extents(group.free, max(1, stripes), policy)
        found[name] = extents * group.extent_bytes
    return found


def largest_extents(free: Sequence[Sequence[int]], stripes: int, policy: str) -> int:
    """How many extents the largest volume can have; `free` are the runs of each physical volume."""
    if policy not in ("normal", "anywhere"):
        # One run for each stripe. LVM can do better with "cling"; that much it always can.
        return stripes * _each(sorted(map(_longest, free), reverse=True), stripes)
    if stripes == 1:
        return sum(map(sum, free))
    # LVM takes the longest run of each physical volume, and of these the longest ones, until too
    # few are left. It may stay with the same physical volumes first, as long as all have any left:
    # that depends on lvm.conf (maximise_cling), so the lesser counts. "anywhere" may put two
    # stripes on one in the end, on which nobody counts.
    return stripes * min(_greedy(free, stripes, cling) for cling in (True, False))


def _greedy(free: Sequence[Sequence[int]], stripes: int, cling: bool) -> int:
    """How many extents each stripe gets."""
    runs = [sorted(sizes) for sizes in free]
    taken = 0
    while True:
        runs = sorted((one for one in runs if one), key=_longest, reverse=True)
        if len(runs) < stripes:
            return taken
        chosen = runs[:stripes]
        taken += _take(chosen)
        while cling and all(chosen):
            taken += _take(chosen)


def _take(chosen: Sequence[list[int]]) -> int:
    """Take as much of the longest run of each as all of them have."""
    size = min(map(_longest, chosen))
    for sizes in chosen:
        rest = sizes.pop() - size
        if rest:
            sizes.append(rest)
            sizes.sort()
    return size


def _longest(sizes: Sequence[int]) -> int:
    return max(sizes, default=0)


def _each(longest: Sequence[int], stripes: int) -> int:
    return longest[stripes - 1] if len(longest) >= stripes else 0
