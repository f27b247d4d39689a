"""Which logical volumes are FlexVolume's, and what their tags say. Pure.

What is not marked as ours is not: other people's volumes, those of the pools of dynamic volumes,
and every thin pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from localvolume.flexvolume.driver import MAKING, TAG_STATE, DriverFailed, Owned
from localvolume.host.lvm.commands import BadName, LogicalVolume, check_name
from localvolume.volumes.lvtags import (
    FLEX_OWNER,
    OWNER,
    PREFIX,
    BadTag,
    decode,
    encode,
)

Tags = Mapping[str, str]

POOL_TAGS: Final = encode({OWNER: "thin-pool"})
"""On a thin pool that we make, from the start."""

_ADOPTABLE: Final = frozenset({"thick", "thin"})
_HOLDING: Final = frozenset({"thick", "thin", "other"})
"""The kinds that may hold a filesystem. "other": an administrator made it redundant since."""


def owned_of(volumes: Sequence[LogicalVolume]) -> list[Owned]:
    """Those of a group that carry our mark, and nothing else."""
    return [
        Owned(name=volume.name, size_bytes=volume.size_bytes, tags=noted, id=volume.uuid)
        for volume in volumes
        if (noted := noted_on(volume)) is not None
    ]


def unmarked_of(volumes: Sequence[LogicalVolume]) -> list[str]:
    """The names of those that carry no mark of ours at all, and might be elastic's."""
    return [volume.name for volume in volumes if is_unmarked(volume)]


def is_unmarked(volume: LogicalVolume) -> bool:
    """Whether it might be elastic's: plain, thick or thin, and without any mark of ours."""
    return (
        volume.kind in _ADOPTABLE
        and not volume.origin
        and not any(tag.startswith(PREFIX) for tag in volume.tags)
        and _is_name(volume.name)
    )


def is_half_pool(volume: LogicalVolume) -> bool:
    """Whether it is what a killed lvcreate left of a thin pool: LVM first makes the volume for the
    pool's metadata, as a plain one with the pool's name."""
    return (
        volume.kind == "thick"
        and volume.tags >= POOL_TAGS
        and not volume.open
        and not volume.has_snapshots
    )


def is_begun_thin(volume: LogicalVolume) -> bool:
    """Whether it is a thin volume of ours whose making never ended: it holds nobody's data.

    Raises DriverFailed if it is not ours.
    """
    return volume.kind == "thin" and ours(volume).get(TAG_STATE) == MAKING


def noted_on(volume: LogicalVolume) -> dict[str, str] | None:
    """What is noted with a volume of ours (TAG_...); None if it is not ours."""
    if volume.kind not in _HOLDING:
        return None
    try:
        fields = decode(volume.tags)
    except BadTag:
        return None
    return fields if fields.pop(OWNER, "") == FLEX_OWNER else None


def ours(volume: LogicalVolume) -> dict[str, str]:
    """What is noted with it; if it is not ours, DriverFailed, saying whose it is."""
    noted = noted_on(volume)
    if noted is not None:
        return noted
    what = f"the logical volume {volume.full_name} is there already, and"
    if volume.kind not in _HOLDING:
        raise DriverFailed(f"{what} it is a {volume.kind}, no volume for a pod: left as it is")
    try:
        owner = decode(volume.tags).get(OWNER, "")
    except BadTag as error:
        raise DriverFailed(f"{what} its tags cannot be read: {error}: left as it is") from error
    if owner:
        raise DriverFailed(f"{what} it is served by {owner!r}, not by FlexVolume: left as it is")
    raise DriverFailed(
        f"{what} nothing says that it was made for this PersistentVolume: left as it is. If it was,"
        f" mark it: lvchange --addtag {PREFIX}{OWNER}={FLEX_OWNER} {volume.full_name}"
    )


def fields_of(noted: Tags) -> dict[str, str]:
    """What the tags of a volume of ours with these notes say."""
    return {**noted, OWNER: FLEX_OWNER}


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except BadName:
        return False
    return True
